"""The ingress of a cluster: routers on its nodes, with a certificate for all names under ``apps``.

Routers are pods of a Deployment; where one runs, its node listens on 443, 80 and 1936. Nothing tells a client that a
router is there but an answer through the names and balancers of the site, which is how the operators check it.
"""

from __future__ import annotations

import datetime
import ssl
from typing import Any

from aiohttp import web

from moorage.lab.nodes import cluster as clusters
from moorage.lab.nodes import credentials, instance, network

Object = dict[str, Any]

NAMESPACE = "openshift-ingress"
LABEL = "ingresscontroller.operator.openshift.io/deployment-ingresscontroller"
SERVICE = "router"
HTTPS, HTTP, HEALTH = 443, 80, 1936
_LIFE = datetime.timedelta(days=730)


class Ingress:
    """The authority and certificate of a cluster's ingress, made by its operator."""

    def __init__(self, domain: str) -> None:
        self.domain = f"apps.{domain}"
        self.authority = credentials.authority("ingress-operator", _LIFE)
        self.pair = credentials.serving(self.authority, f"*.{self.domain}", [f"*.{self.domain}"], _LIFE)

    def host(self, name: str) -> str:
        return f"{name}.{self.domain}"


class Router:
    """One router, listening on a machine; it answers for the hosts of the cluster's Routes."""

    def __init__(self, cluster: clusters.Cluster, ingress: Ingress, machine: instance.Instance) -> None:
        self._cluster = cluster
        self._ingress = ingress
        self._machine = machine
        self._runners: list[web.AppRunner] = []

    async def start(self) -> None:
        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        tls.minimum_version = ssl.TLSVersion.TLSv1_2
        network.load_pair(tls, self._ingress.pair.certificate, self._ingress.pair.key)
        try:
            await self._listen(HTTPS, self._answer, tls)
            await self._listen(HTTP, self._answer, None)
            await self._listen(HEALTH, self._healthy, None)
        except OSError:
            # Half a router must not be left behind.
            await self.stop()
            raise

    async def stop(self) -> None:
        runners, self._runners = self._runners, []
        for runner in runners:
            await runner.cleanup()

    async def _listen(self, port: int, handler: Any, tls: ssl.SSLContext | None) -> None:
        runner = web.ServerRunner(web.Server(handler), shutdown_timeout=0.5)
        await runner.setup()
        self._runners.append(runner)  # type: ignore[arg-type]
        at = self._cluster.site.port(port)
        await web.TCPSite(runner, self._machine.address, at, ssl_context=tls).start()

    async def _healthy(self, request: web.BaseRequest) -> web.Response:
        return web.Response(text="ok\n")

    async def _answer(self, request: web.BaseRequest) -> web.Response:
        host = request.host.partition(":")[0]
        kind = self._cluster.api.kind("route.openshift.io", "Route")
        routes = (entry.object for entry in self._cluster.api.entries(kind))
        if any((route.get("spec") or {}).get("host") == host for route in routes):
            return web.Response(text="ok\n")
        return web.Response(status=503, text="Application is not available\n")


def deployment(replicas: int) -> Object:
    """What keeps the routers running."""
    labels = {LABEL: "default"}
    ports = [{"containerPort": port, "hostPort": port, "protocol": "TCP"} for port in (HTTP, HTTPS, HEALTH)]
    apart = {"labelSelector": {"matchLabels": labels}, "topologyKey": "kubernetes.io/hostname"}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "router-default", "namespace": NAMESPACE, "labels": labels},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": labels},
            "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 0, "maxUnavailable": "25%"}},
            "template": {
                "metadata": {"labels": labels},
                "spec": {
                    "hostNetwork": True,
                    "nodeSelector": {"node-role.kubernetes.io/worker": ""},
                    "affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [apart]}},
                    "containers": [{"name": "router", "image": "payload/haproxy-router", "ports": ports}],
                },
            },
        },
    }


def reached_words(host: str, problem: BaseException) -> str:
    """Why a host of the ingress cannot be reached, as the operators tell it."""
    return f'Get "https://{host}/healthz": {network.words(problem)}'
