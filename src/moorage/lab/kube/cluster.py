"""A whole Kubernetes in one process: the store, the API over it, what every cluster begins with, and its controllers.

Without controllers a `Kube` is an API server alone: objects are kept, and nothing is done about them. With a path, all
of it is also kept in a file and is there again after a restart, with the same uids and versions.
"""

from __future__ import annotations

import asyncio
import ipaddress
import pathlib
from typing import Any, Protocol

from moorage.engine import clock as clocks
from moorage.lab.kube import (
    accounts,
    api,
    builtin_kinds,
    collection,
    crds,
    daemonsets,
    deployments,
    disruption,
    endpoints,
    indexes,
    kinds,
    loop,
    namespaces,
    persistence,
    replicasets,
    roles,
    rules_services,
    scheduling,
    statefulsets,
    store,
)

SYSTEM_NAMESPACES = ("default", "kube-system", "kube-public", "kube-node-lease")


class Controller(Protocol):
    """Something with a loop that works on the objects of a cluster."""

    loop: loop.Loop[Any]


class Kube:
    """One cluster. ``service_network`` is where services get their addresses; ``root_ca`` is what pods trust."""

    def __init__(
        self,
        clock: clocks.Clock,
        *,
        path: pathlib.Path | None = None,
        service_network: str = str(rules_services.DEFAULT_NETWORK),
        root_ca: str = "",
    ) -> None:
        self.clock = clock
        self.store = store.Store()
        self.kinds = kinds.Kinds()
        for kind in builtin_kinds.kinds():
            self.kinds.add(kind)
        self._copy = None if path is None else persistence.Copy(self.store, path)
        if self._copy is not None:
            self._copy.load()
        self.api = api.Api(self.store, self.kinds, clock)
        rules_services.use_network(self.api, ipaddress.ip_network(service_network))
        self.index = indexes.Index(self.api)
        self.definitions = crds.Definitions(self.api)
        self._furnish()
        roles.bootstrap(self.api)
        self.accounts = accounts.Accounts(self.api, root_ca)
        self.controllers: tuple[Controller, ...] = (
            collection.Collector(self.api, self.index),
            namespaces.Namespaces(self.api),
            self.accounts,
            disruption.Budgets(self.api),
            replicasets.ReplicaSets(self.api, self.index),
            deployments.Deployments(self.api, self.index),
            daemonsets.DaemonSets(self.api, self.index),
            statefulsets.StatefulSets(self.api, self.index),
            scheduling.Scheduler(self.api, self.index),
            scheduling.Taints(self.api),
            endpoints.Endpoints(self.api),
        )
        # Nobody could have watched before there was a server; who asks for a version from then has to list again.
        self.store.restore(self.store.revision)

    def _furnish(self) -> None:
        """Make what every cluster begins with, as far as it is not there yet."""
        for name in SYSTEM_NAMESPACES:
            if self.store.get(namespaces.KEY, ("", name)) is None:
                self.api.put({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
        if self.store.get(rules_services.SERVICES, ("default", "kubernetes")) is None:
            first = str(rules_services.network_of(self.api)[1])
            labels = {"component": "apiserver", "provider": "kubernetes"}
            port = {"name": "https", "port": 443, "protocol": "TCP", "targetPort": 6443}
            self.api.put(
                {
                    "apiVersion": "v1",
                    "kind": "Service",
                    "metadata": {"name": "kubernetes", "namespace": "default", "labels": labels},
                    "spec": {"type": "ClusterIP", "clusterIP": first, "clusterIPs": [first], "ports": [port]},
                }
            )

    def start_copying(self) -> None:
        """Keep the file up to date from now on; `start_controllers` does it too."""
        if self._copy is not None:
            self._copy.start()

    async def start_controllers(self) -> None:
        """Let all controllers work, until `stop`."""
        self.start_copying()
        for controller in self.controllers:
            controller.loop.start()

    async def stop(self) -> None:
        """End the controllers, each after the object at hand, and write the rest of the copy."""
        await asyncio.gather(*(controller.loop.stop() for controller in self.controllers))
        if self._copy is not None:
            await self._copy.stop()
            self._copy = None
