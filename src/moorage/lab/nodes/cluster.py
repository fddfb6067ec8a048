"""A cluster that came up in the lab: its API and etcd, the machines of its control plane, and what runs on them.

The objects are in one store, whichever machine serves them; but they can be had only through API servers that run on
machines that are up and connected, and only while etcd has its majority. A cluster is born on a bootstrap machine
(`bootstrap`), and moves to its masters (`handover`).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

import yaml

from moorage import lab
from moorage.lab import calls, faults
from moorage.lab import site as sites
from moorage.lab.kube import authentication, kinds, problem, server, store
from moorage.lab.kube import cluster as kubes
from moorage.lab.nodes import (
    conditions,
    config_server,
    credentials,
    etcd,
    facts,
    instance,
    network,
    renders,
    serving,
    static_pods,
)

Object = dict[str, Any]

TICK = 5.0
# However fast the cloud's time runs, nobody looks around more often than this (real seconds).
_FASTEST_TICK = 0.05
API_PORT, MCS_PORT = 6443, 22623
_NODES: kinds.Key = ("", "nodes")
_MASTER_LABELS = ("node-role.kubernetes.io/master", "node-role.kubernetes.io/control-plane")

_log = logging.getLogger(__name__)


class Cluster:
    """One cluster of a site."""

    def __init__(self, site: sites.Site, about: facts.Facts, material: renders.ControlPlane) -> None:
        self.site = site
        self.clock = site.clock
        self.facts = about
        self.kube = kubes.Kube(site.clock, service_network=about.service_network, root_ca=material.server_authorities)
        self.api = self.kube.api
        self.etcd = etcd.Etcd()
        self.api.available = self.etcd.why_unavailable
        # OpenShift lets kubelets tell their roles, which Kubernetes forbids.
        self.api.kubelet_label_domains = ("node-role.kubernetes.io",)
        self.bootstrap: instance.Instance | None = None
        self.material = material
        self.certificates = serving.Certificates(self.api, about)
        #: Whether the bootstrap's part is over, and the cluster's own signers are at work.
        self.handed_over = False
        #: Who gives new machines their configs, by machine; the machines' MCS services are made from it.
        self.machine_config_server: Callable[[instance.Instance], network.Service] | None = None
        self._access = self._believed(())
        self._tasks: set[asyncio.Task[None]] = set()
        self._seen: dict[tuple[str, str], float] = {}
        self._begun = False
        #: The names of the Nodes of the control plane: they are asked for again and again, and are few among many.
        self._masters: dict[str, None] = {}
        self.api.on_written.append(self._written)

    @property
    def domain(self) -> str:
        return self.facts.domain

    @property
    def access(self) -> authentication.Access:
        """Whom the API servers believe."""
        return self._access

    def masters(self) -> Iterator[tuple[Object, instance.Instance]]:
        """The Nodes of the control plane, each with the machine that is it."""
        for name in sorted(self._masters):
            entry = self.api.store.get(_NODES, ("", name))
            machine = None if entry is None else self.machine_of(entry.object)
            if entry is not None and machine is not None:
                yield entry.object, machine

    def _written(self, key: kinds.Key, event: store.Event) -> None:
        if key != _NODES:
            return
        labels = event.entry.object["metadata"].get("labels") or {}
        if event.type != store.DELETED and any(label in labels for label in _MASTER_LABELS):
            self._masters[event.name[1]] = None
        else:
            self._masters.pop(event.name[1], None)

    def machine_of(self, node: Object) -> instance.Instance | None:
        """The machine behind a Node."""
        addresses = (node.get("status") or {}).get("addresses") or ()
        found = [each["address"] for each in addresses if each.get("type") == "InternalIP"]
        return self.site.instance_at(found[0]) if found else None

    def control_plane(self) -> list[instance.Instance]:
        """The machines on which parts of the control plane may run: the bootstrap, and the masters."""
        found = [machine for _, machine in self.masters()]
        return found if self.bootstrap is None else [self.bootstrap, *found]

    def servers(self) -> list[instance.Instance]:
        """The machines whose API servers can be reached."""
        return [each for each in self.control_plane() if static_pods.runs(static_pods.API_SERVER, each)]

    @property
    def alive(self) -> bool:
        """Whether the API can be used: somebody serves it, and etcd has its majority."""
        return self.etcd.has_quorum and bool(self.servers())

    async def until_alive(self) -> None:
        """What the cluster's own parts do while there is no API: wait."""
        while not self.alive:
            await self.tick()

    async def tick(self) -> None:
        await lab.sleep(self.clock, max(TICK, _FASTEST_TICK * self.clock.speed))

    async def passed(self, seconds: float) -> None:
        """Let time pass in which the cluster works: it counts only while there is an API to work with."""
        left = seconds
        while left > 0:
            await self.until_alive()
            step = min(left, TICK)
            await lab.sleep(self.clock, step)
            left -= step

    # --- what runs on machines ---

    async def run(self, component: static_pods.Component, machine: instance.Instance) -> None:
        """Start a static pod on a machine; if it cannot be started, its console says why and it is tried again."""
        try:
            await machine.wire.serve(component.service, lambda: self._service(component, machine))
        except (OSError, credentials.Unusable, serving.NoSigner, config_server.NotReady) as problem:
            await machine.wire.unserve(component.service)
            machine.say(f"kubelet: back-off restarting failed container {component.pod}: {problem}")
        if not machine.on:
            # The power went while it started.
            await machine.wire.unserve(component.service)
        self._seen.pop((machine.name, component.service), None)

    async def end(self, component: static_pods.Component, machine: instance.Instance) -> None:
        """Take a static pod away from a machine for good."""
        static_pods.displace(component, machine)
        await machine.wire.unserve(component.service)

    async def supervise(self, machine: instance.Instance) -> None:
        """Start what the machine's disk says and does not run, each after the time it takes to start."""
        if not machine.reachable:
            return
        for component in static_pods.CONTROL_PLANE:
            at = (machine.name, component.service)
            if not static_pods.placed(component, machine) or component.service in machine.wire.listening:
                self._seen.pop(at, None)
            elif self.clock.now() - self._seen.setdefault(at, self.clock.now()) >= component.start_seconds:
                await self.run(component, machine)

    def believe(self, *signers: str) -> None:
        """Let clients in that these signers signed, besides those whom the cluster was born to believe."""
        self._access = self._believed(signers)

    async def serve_anew(self) -> None:
        """Restart the API servers on masters, one after the other, for what they believe or show has changed."""
        for _, machine in self.masters():
            if static_pods.runs(static_pods.API_SERVER, machine):
                await self.run(static_pods.API_SERVER, machine)

    def _service(self, component: static_pods.Component, machine: instance.Instance) -> network.Service:
        if component is static_pods.API_SERVER:
            return self._api_server(machine)
        if component is static_pods.MACHINE_CONFIG_SERVER and self.machine_config_server is not None:
            return self.machine_config_server(machine)
        return static_pods.Running()

    def _api_server(self, machine: instance.Instance) -> network.Service:
        pairs = self.material.serving if machine is self.bootstrap else self.certificates.pairs()
        shown = [server.Certificate(pair.certificate, pair.key) for pair in pairs]
        port = self.site.port(API_PORT)
        service = f"kube/{self.domain}"
        middlewares = (calls.recording(self.site.calls, service), faults.striking(self.site.faults, service))
        return server.Server(
            self.api, self._access, shown, machine.address, port, middlewares=middlewares, identity=machine.name
        )

    def _believed(self, signers: tuple[str, ...]) -> authentication.Access:
        return authentication.Access(
            client_ca=credentials.bundle(self.material.client_authorities, *signers),
            service_account_public_keys=self.material.token_keys,
            service_account_key=self.material.token_signing_key,
        )

    # --- life ---

    async def begin(self) -> None:
        """Let the cluster's own parts work; begun already, nothing changes."""
        if self._begun:
            return
        self._begun = True
        from moorage.lab.nodes import handover, lifecycle, operators, runtime

        await self.kube.start_controllers()
        for work in (handover, lifecycle, operators, runtime):
            self.spawn(work.run(self), work.__name__)

    def spawn(self, work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        """Do some work for as long as the cluster lives."""
        task = asyncio.get_running_loop().create_task(work, name=f"cluster {self.domain}: {name}")
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    @property
    def state(self) -> str:
        """How far the cluster is, in a word or two."""
        if not self.alive:
            return "no API"
        version = self.find("config.openshift.io", "ClusterVersion", "", "version") or {}
        if conditions.true(version, "Available"):
            return "installed"
        return "handed over" if self.handed_over else "bootstrapping"

    def to_json(self) -> Object:
        servers = [machine.name for machine in self.servers()]
        return {"name": self.domain, "infraID": self.facts.infra_id, "state": self.state, "servers": servers}

    async def kubeconfig(self) -> str:
        """The administrator's kubeconfig, leading to where the API's name leads, by address.

        Programs outside of the lab ask other name servers; the certificate is still held against the name.
        """
        document = yaml.safe_load(self.material.admin_kubeconfig)
        host, port = self.facts.api_host, self.site.port(API_PORT)
        address = (await self.site.resolve(host))[0]
        for each in document["clusters"]:
            each["cluster"] |= {"server": f"https://{address}:{port}", "tls-server-name": host}
        return str(yaml.safe_dump(document, sort_keys=False))

    async def stop(self) -> None:
        """End all that works for the cluster. Its machines are their own affair."""
        tasks, self._tasks = list(self._tasks), set()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self.kube.stop()

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            _log.error("%s: the lab has a defect", task.get_name(), exc_info=task.exception())

    # --- objects ---

    def find(self, group: str, kind: str, namespace: str, name: str) -> Object | None:
        """An object, or None if it or its kind is not there."""
        try:
            found = self.api.find(self.api.kind(group, kind), namespace, name)
        except LookupError:
            return None
        return None if found is None else found.object

    def put(self, content: Object) -> None:
        """Create or replace an object, unless it is as it should be already; a refusal is worth a word, not an end."""
        try:
            self.api.put(content)
        except problem.Problem as refused:
            _log.warning("cluster %s: %s", self.domain, refused.message)

    def change(self, group: str, kind: str, namespace: str, name: str, edit: Callable[[Object], None]) -> None:
        """Change an object with its status if it is there, and if the change makes a difference."""
        try:
            found = self.api.kind(group, kind)
        except LookupError:
            return
        entry = self.api.find(found, namespace, name)
        if entry is None:
            return
        wanted = store.copied(entry)
        edit(wanted)
        if wanted != entry.object:
            self.api.apply_status(found, namespace, name, edit)
