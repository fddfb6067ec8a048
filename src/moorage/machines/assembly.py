"""All controllers of a platform, put together: what they are to know is read from the cluster that they look after.

The Infrastructure object tells the cluster's mark and its platform, and on some platforms its virtual addresses; on
others those are in the install-config that the cluster was made from. Caches are shared: each kind is followed once.
"""

from __future__ import annotations

import dataclasses
import logging
import os
import re
import socket
import threading
import uuid
from collections.abc import Iterator, Mapping
from typing import Any, Final, Protocol, cast

import yaml

from moorage import errors as top
from moorage.machines import (
    approver,
    capacity,
    credentials,
    events,
    healthcheck,
    kubelets,
    machine,
    machineset,
    nodelink,
    nodes,
    objects,
)
from moorage.machines.runtime import client as clients
from moorage.machines.runtime import controller, election, errors, informer, kinds, manager, metrics, queue
from moorage.platforms import contract, registry

NAMESPACE: Final = "openshift-machine-api"
LEASE: Final = "moorage-machine-api"
#: Where the install-config is kept, and the key there.
INSTALL_CONFIG: Final = ("kube-system", "cluster-config-v1", "install-config")
#: Machines that are worked on at the same time: each may be waiting for the platform's answer.
WORKERS: Final = 10

_VIPS: Final = re.compile(r"(api|ingress|dns)_?vips?", re.IGNORECASE)

_log = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True)
class Settings:
    """What all machines of a cluster have in common."""

    platform: str
    infra_id: str
    vips: tuple[str, ...] = ()
    namespace: str = NAMESPACE


def discover(client: clients.Client, platform: str = "") -> Settings:
    """The settings that the cluster itself tells; ``platform`` overrides what it says it stands on."""
    try:
        infrastructure = client.get(kinds.INFRASTRUCTURE, "cluster")
    except errors.NotFound as missing:
        raise top.MoorageError(
            "the cluster has no Infrastructure object, so its machines cannot be told from others",
            remedy="name a cluster that was installed as OpenShift or OKD by --kubeconfig",
        ) from missing
    infra_id = str(objects.status(infrastructure).get("infrastructureName") or "")
    if not infra_id:
        raise top.MoorageError("the Infrastructure object does not tell infrastructureName", remedy="correct it")
    named = platform or platform_of(infrastructure)
    return Settings(named, infra_id, _virtual_addresses(client, infrastructure, named))


def platform_of(infrastructure: Mapping[str, Any]) -> str:
    """The name of the platform that the cluster says it stands on."""
    status = objects.status(infrastructure).get("platformStatus") or {}
    kind = str(status.get("type") or objects.status(infrastructure).get("platform") or "")
    if kind != "External":
        return kind.lower()
    spec = (objects.spec(infrastructure).get("platformSpec") or {}).get("external") or {}
    return str(spec.get("platformName") or "").lower()


def vips_of(install_config: object, platform: str) -> tuple[str, ...]:
    """The virtual addresses that an install-config gives its cluster, whatever they are for.

    A platform may have none, but one that is not even in the install-config has not said so: that is a `LookupError`.
    """
    section = install_config.get("platform") if isinstance(install_config, Mapping) else None
    settings = section.get(platform) if isinstance(section, Mapping) else None
    if not isinstance(settings, Mapping):
        raise LookupError(f"its install-config says nothing of platform {platform!r}")
    found: list[str] = []
    for key, value in settings.items():
        if _VIPS.fullmatch(str(key)):
            found += [str(each) for each in (value if isinstance(value, list) else [value]) if each]
    return tuple(dict.fromkeys(found))


def _virtual_addresses(client: clients.Client, infrastructure: Mapping[str, Any], platform: str) -> tuple[str, ...]:
    """All there are: a node that carries one for a while must not be taken to have it."""
    told = objects.virtual_addresses(infrastructure)
    namespace, name, key = INSTALL_CONFIG
    try:
        data = client.get(kinds.CONFIG_MAP, name, namespace).get("data") or {}
        found = vips_of(yaml.safe_load(str(data.get(key) or "")), platform)
    except (errors.NotFound, yaml.YAMLError, LookupError) as problem:
        if told:
            return told
        raise top.MoorageError(
            f"ConfigMap {namespace}/{name} does not tell the cluster's virtual addresses: {problem}",
            remedy=f"put the install-config back into {namespace}/{name}: nodes must not get certificates for them",
        ) from problem
    return tuple(dict.fromkeys((*told, *found)))


def identity() -> str:
    """Who this process is in an election: no other, not even the same pod after a restart."""
    return f"{os.environ.get('POD_NAME') or socket.gethostname()}_{uuid.uuid4()}"


class Reconciler(Protocol):
    """What every controller's heart is like."""

    def feed(self, keys: queue.Queue) -> None: ...

    def reconcile(self, key: str) -> controller.Result: ...


@dataclasses.dataclass(frozen=True)
class Caches:
    """Everything that is followed."""

    machines: informer.Informer
    sets: informer.Informer
    checks: informer.Informer
    nodes: informer.Informer
    requests: informer.Informer

    def __iter__(self) -> Iterator[informer.Informer]:
        return iter((self.machines, self.sets, self.checks, self.nodes, self.requests))


def caches(client: clients.Client, namespace: str) -> Caches:
    """Machines of one namespace alone: in no other are they ours."""
    found = Caches(
        machines=informer.Informer(client, kinds.MACHINE, namespace=namespace),
        sets=informer.Informer(client, kinds.MACHINE_SET, namespace=namespace),
        checks=informer.Informer(client, kinds.MACHINE_HEALTH_CHECK, namespace=namespace),
        nodes=informer.Informer(client, kinds.NODE),
        requests=informer.Informer(client, kinds.CSR),
    )
    nodelink.index(found.machines)
    nodelink.index_nodes(found.nodes)
    return found


class Assembly:
    """The controllers of one cluster, ready to run."""

    def __init__(
        self,
        client: clients.Client,
        settings: Settings,
        *,
        elect: bool = True,
        metrics_address: str = "",
        workers: int = WORKERS,
        environ: Mapping[str, str] = os.environ,
        actuator: contract.Actuator | None = None,
    ) -> None:
        """``actuator`` takes the place of the platform's own, for those who bring their own credentials."""
        self.client = client
        self.settings = settings
        self.clock = client.clock
        self.caches = caches(client, settings.namespace)
        self._keyring: credentials.Keyring | None = None
        self._given = actuator
        if actuator is None:
            self._keyring = credentials.Keyring(settings.platform, self._secret, self.clock, environ=environ)
        lease = election.Election(client, LEASE, settings.namespace, identity(), self.clock) if elect else None
        self.manager = manager.Manager(election=lease, metrics_address=metrics_address)
        for followed in self.caches:
            self.manager.add_informer(followed)
        self._recorder = events.Recorder(client, self.clock, LEASE)
        platform = None if self._given else registry.machines(settings.platform)
        self._add("machine", self._machines(), workers)
        self._add("machineset", self._sets(capacity.reading(platform)), 2)
        self._add("machinehealthcheck", self._checks(), 1)
        self._add("node", self._nodes(), 2)
        self._add("nodelink", nodelink.NodeLink(client, self.caches.nodes, self.caches.machines, _log.info), 2)
        self._add("approver", self._approver(), 4)

    def run(self, stop: threading.Event) -> None:
        """Work until told to stop; see `manager.Manager.run`."""
        _log.info(
            "machine controllers for %s on %s; addresses that are nobody's own: %s",
            self.settings.infra_id,
            self.settings.platform,
            ", ".join(self.settings.vips) or "none",
        )
        forget = metrics.follow(self.caches.machines.list, self.caches.sets.list)
        try:
            self.manager.run(stop)
        finally:
            forget()
            self.close()

    def close(self) -> None:
        """Remove what was written; `run` does so at its end."""
        if self._keyring is not None:
            self._keyring.close()

    def actuator(self) -> contract.Actuator:
        """The platform's actuator of this moment, to know it by; controllers call `_platform`."""
        if self._keyring is None:
            return cast("contract.Actuator", self._given)
        return self._keyring.current()

    def _platform(self) -> contract.Actuator:
        """What controllers call: always the actuator of the moment, and silent about its credentials."""
        return self.actuator() if self._keyring is None else credentials.Rotating(self._keyring)

    def _add(self, name: str, heart: Reconciler, workers: int) -> None:
        keys = queue.Queue(self.clock, name=name)
        heart.feed(keys)
        self.manager.add_controller(controller.Controller(name, heart.reconcile, keys, workers))

    def _machines(self) -> machine.Machines:
        told = self.settings
        return machine.Machines(
            self.client,
            self.caches.machines,
            self._platform(),
            self.clock,
            self.manager.check,
            infra_id=told.infra_id,
            vips=lambda: told.vips,
            recorder=self._recorder,
            source=self.actuator,
        )

    def _sets(self, reading: capacity.Reading | None) -> machineset.MachineSets:
        return machineset.MachineSets(
            self.client,
            self.caches.sets,
            self.caches.machines,
            self.caches.nodes,
            clock=self.clock,
            check=self.manager.check,
            recorder=self._recorder,
            reading=reading,
        )

    def _checks(self) -> healthcheck.HealthChecks:
        return healthcheck.HealthChecks(
            self.client,
            self.caches.checks,
            self.caches.machines,
            self.caches.nodes,
            clock=self.clock,
            check=self.manager.check,
            recorder=self._recorder,
        )

    def _nodes(self) -> nodes.Nodes:
        return nodes.Nodes(
            self.client,
            self.caches.nodes,
            self.caches.machines,
            self._platform(),
            nodes.Place(self.settings.infra_id, self.settings.vips, self.settings.namespace),
            source=self.actuator,
            clock=self.clock,
            tell=_log.info,
            check=self.manager.check,
        )

    def _approver(self) -> approver.Approver:
        def config_map(namespace: str, name: str) -> Mapping[str, Any]:
            return self.client.get(kinds.CONFIG_MAP, name, namespace)

        return approver.Approver(
            self.client,
            self.caches.requests,
            self.caches.machines,
            self.caches.nodes,
            clock=self.clock,
            tell=_log.info,
            shown=kubelets.looker(config_map, self.clock),
        )

    def _secret(self, namespace: str, name: str) -> Mapping[str, Any]:
        return self.client.get(kinds.SECRET, name, namespace)
