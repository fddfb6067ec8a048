"""Machine-config servers of a cluster: one on the bootstrap machine, then one on every master.

The bootstrap's serves what lies on its disk, with the credentials that the installer made for new nodes. The masters'
serve what the API holds at that moment, with the token of the service account by whose name new nodes ask to be let in.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from aiohttp import web

from moorage.lab.kube import store
from moorage.lab.nodes import credentials, facts, instance, machine_configs, manifests, mcs, network, renders, signing
from moorage.lab.nodes import files as files_

if TYPE_CHECKING:
    from moorage.lab.nodes import cluster as clusters

Object = dict[str, Any]

_TLS = "machine-config-server-tls"
_TOKEN = "node-bootstrapper-token"  # noqa: S105 - the name of a Secret
_SETTINGS = ("DNS", "FeatureGate", "Image", "Infrastructure", "Network", "Node", "Proxy", "Scheduler")
_SINGLE = (("ConfigMap", "cloud-provider-config"), ("Secret", "pull-secret"))
_MACHINE_CONFIGURATION = ("MachineConfig", "MachineConfigPool", "KubeletConfig", "ContainerRuntimeConfig")


class NotReady(Exception):  # noqa: N818 - what the pod's log would say
    """The server cannot start yet; says what it lacks."""


class Service:
    """A machine-config server that listens on a machine's address while it is started."""

    def __init__(self, server: mcs.MachineConfigServer, host: str, port: int) -> None:
        self._server = server
        self._host = host
        self._port = port
        self._runner: web.AppRunner | None = None

    async def start(self) -> None:
        self._runner = web.AppRunner(self._server.app(), access_log=None, shutdown_timeout=0.1)
        await self._runner.setup()
        await web.TCPSite(self._runner, self._host, self._port, ssl_context=self._server.tls(), backlog=1024).start()

    async def stop(self) -> None:
        runner, self._runner = self._runner, None
        if runner is not None:
            await runner.cleanup()


def maker(cluster: clusters.Cluster, files: files_.Files) -> Callable[[instance.Instance], network.Service]:
    """What makes the server of a machine: the bootstrap's from its files, any other from the API."""

    def make(machine: instance.Instance) -> network.Service:
        def log(line: str) -> None:
            machine.say(f"machine-config-server: {line}")

        if machine is cluster.bootstrap:
            pair = renders.pair(files, "machine-config-server")
            render = _from_files(files)
        else:
            pair = _pair(cluster)
            render = _from_api(cluster)
        on_bootstrap = machine is cluster.bootstrap
        server = mcs.MachineConfigServer(render, pair.certificate, pair.key, bootstrap=on_bootstrap, log=log)
        return Service(server, machine.address, cluster.site.port(mcs.PORT))

    return make


def _from_files(files: files_.Files) -> mcs.Render:
    # The files are those of the moment when the server was started, as in the real one's folder.
    known = list(manifests.load(renders.documents(files)).values())
    kubeconfig = files.read(f"{renders.AUTH}/kubeconfig-kubelet").decode()
    root_ca = renders.authorities(files, "root-ca")
    kubelet_ca = renders.authorities(files, "kube-apiserver-complete-client-ca-bundle")
    done: dict[str, bytes | None] = {}

    def render(pool: str) -> bytes | None:
        if pool not in done:
            done[pool] = _encoded(
                machine_configs.rendered(known, pool, kubeconfig=kubeconfig, root_ca=root_ca, kubelet_ca=kubelet_ca)
            )
        return done[pool]

    return render


def _from_api(cluster: clusters.Cluster) -> mcs.Render:
    done: dict[str, tuple[int, bytes | None]] = {}

    def render(pool: str) -> bytes | None:
        if cluster.etcd.why_unavailable():
            raise ValueError(cluster.etcd.why_unavailable())
        parts = _parts(cluster)
        newest = max((entry.revision for entry in parts), default=0)
        # A thousand machines that boot at once ask for the same thing.
        if pool not in done or done[pool][0] != newest + len(parts):
            content = machine_configs.rendered(
                [entry.object for entry in parts],
                pool,
                kubeconfig=_kubeconfig(cluster),
                root_ca=_data(cluster, "ConfigMap", "kube-system", "root-ca").get("ca.crt", ""),
                kubelet_ca=cluster.access.client_ca,
            )
            done[pool] = (newest + len(parts), _encoded(content))
        return done[pool][1]

    return render


def _parts(cluster: clusters.Cluster) -> list[store.Entry]:
    """All objects that nodes' configs are made of."""
    api = cluster.api
    groups = {"config.openshift.io": _SETTINGS, "machineconfiguration.openshift.io": _MACHINE_CONFIGURATION}
    kinds = [api.kind(group, name) for group, names in groups.items() for name in names]
    single = [api.find(api.kind("", kind), renders.CONFIG, name) for kind, name in _SINGLE]
    return [entry for kind in kinds for entry in api.entries(kind)] + [entry for entry in single if entry is not None]


def _kubeconfig(cluster: clusters.Cluster) -> str:
    token = signing.token_of(cluster.find("", "Secret", renders.MACHINE_CONFIG_OPERATOR, _TOKEN))
    if not token:
        raise ValueError(f"the token of {renders.NODE_BOOTSTRAPPER} has not been made yet")
    return kubeconfig(cluster.facts, cluster.material.server_authorities, token)


def kubeconfig(about: facts.Facts, authorities: str, token: str) -> str:
    """A kubeconfig with which a new machine introduces itself."""
    name, user = "local", "kubelet"
    content = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [
            {
                "name": name,
                "cluster": {
                    "server": about.api_int_url,
                    "certificate-authority-data": base64.b64encode(authorities.encode()).decode(),
                },
            }
        ],
        "users": [{"name": user, "user": {"token": token}}],
        "contexts": [{"name": user, "context": {"cluster": name, "user": user}}],
        "current-context": user,
    }
    return json.dumps(content)


def _pair(cluster: clusters.Cluster) -> credentials.Pair:
    data = _data(cluster, "Secret", renders.MACHINE_CONFIG_OPERATOR, _TLS)
    try:
        certificate, key = (base64.b64decode(data[part]) for part in ("tls.crt", "tls.key"))
    except (KeyError, ValueError) as wrong:
        raise NotReady(f"secret {_TLS}: {wrong}") from wrong
    return credentials.pair(certificate, key, _TLS)


def _data(cluster: clusters.Cluster, kind: str, namespace: str, name: str) -> dict[str, str]:
    found = (cluster.find("", kind, namespace, name) or {}).get("data")
    return found if isinstance(found, dict) else {}


def _encoded(content: Object | None) -> bytes | None:
    return None if content is None else json.dumps(content, separators=(",", ":")).encode()
