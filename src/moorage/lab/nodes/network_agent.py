"""The agent of a pod with `moorage node-network`, as the lab plays it: it renders what the programs beside it run on.

It sees the machine, and the cluster's Nodes once its own credentials let it, and has the product's own renderer
(`renderer`) make files of that. As the real one it believes a change only when it has stayed so for a while, keeps a
config that its program would refuse away from it, and lets keepalived wait until the other nodes know this one. All
agents of a cluster share one list of its Nodes, as if each watched them; but each must reach the API to make use of it.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import json
import weakref
from typing import Any

from moorage import lab
from moorage.lab.kube import kinds, store
from moorage.lab.nodes import (
    api_client,
    files,
    haproxy_cfg,
    instance,
    keepalived_conf,
    kubelet,
    kubelet_certificates,
    pacing,
    renderer,
    renders,
    vip_pods,
)
from moorage.lab.nodes import cluster as clusters

BOOTSTRAP, MASTER, WORKER = "bootstrap", "master", "worker"
INTERFACE = "ens3"
VIEW_PATH = "/etc/moorage/network-view.json"

# Cloud seconds: between two looks, until a change is believed, and until the others know a node that knows itself.
LOOK_SECONDS = 10.0
STEADY_SECONDS = 20.0
JOIN_SECONDS = 30.0
_SIGHTINGS = 3
# However fast the cloud's time runs, nobody looks more often than this (real seconds), nor do all agents of a site
# together look, or render, more often than that in one.
_FASTEST_LOOK = 0.15
_LOOKS_PER_SECOND = 200.0

_NODES: kinds.Key = ("", "nodes")
# As many as it takes to find out who answers, and that one may ask: the rest of the list is shared.
_ASKED = "/api/v1/nodes?limit=1"
_MASTER_LABELS = ("node-role.kubernetes.io/master", "node-role.kubernetes.io/control-plane")
_JUDGES = {"/keepalived.conf": keepalived_conf.parse, "/haproxy.cfg": haproxy_cfg.parse}
_UNANSWERED = (OSError, TimeoutError, api_client.Refused, api_client.KubeconfigError)

_lists: weakref.WeakKeyDictionary[clusters.Cluster, NodeList] = weakref.WeakKeyDictionary()


@dataclasses.dataclass(frozen=True, order=True)
class Node:
    """A node of the cluster, as agents know it."""

    name: str
    address: str
    role: str


def _node(content: dict[str, Any]) -> Node | None:
    labels = content["metadata"].get("labels") or {}
    role = MASTER if any(each in labels for each in _MASTER_LABELS) else WORKER
    for each in (content.get("status") or {}).get("addresses") or ():
        if each.get("type") == "InternalIP":
            return Node(content["metadata"]["name"], each["address"], role)
    return None


class NodeList:
    """The Nodes of one cluster, followed as they are written: nobody has to read them all again."""

    def __init__(self, cluster: clusters.Cluster) -> None:
        found = (_node(entry.object) for entry in cluster.api.store.entries(_NODES))
        self._found = {each.name: each for each in found if each is not None}
        self._nodes: tuple[Node, ...] | None = None
        cluster.api.on_written.append(self._written)

    @property
    def nodes(self) -> tuple[Node, ...]:
        """All of them in order; the same object for as long as nothing has changed."""
        if self._nodes is None:
            self._nodes = tuple(sorted(self._found.values()))
        return self._nodes

    def _written(self, key: kinds.Key, event: store.Event) -> None:
        if key != _NODES:
            return
        node = None if event.type == store.DELETED else _node(event.entry.object)
        if self._found.get(event.name[1]) == node:
            return
        if node is None:
            del self._found[event.name[1]]
        else:
            self._found[node.name] = node
        self._nodes = None


def listed(cluster: clusters.Cluster) -> NodeList:
    """The list that the agents of a cluster share."""
    if cluster not in _lists:
        _lists[cluster] = NodeList(cluster)
    return _lists[cluster]


# What is the same on all nodes of a cluster is there once.
@functools.lru_cache(maxsize=256)
def _shared(content: bytes) -> bytes:
    return content


@functools.lru_cache(maxsize=32)
def _encoded(nodes: tuple[Node, ...]) -> bytes:
    return json.dumps([dataclasses.asdict(each) for each in nodes]).encode()


class Agent:
    """The agent on one machine."""

    def __init__(self, machine: instance.Instance, about: vip_pods.Agent) -> None:
        self._machine = machine
        self._about = about
        self._files = files.Files(machine)
        self._role = about.role or machine.role
        self._list: NodeList | None = None
        self._clients: tuple[bytes, list[api_client.Client]] = (b"", [])
        self._in_force: tuple[Node, ...] | None = self._remembered()
        self._candidate: tuple[Node, ...] = ()
        self._sightings, self._since = 0, 0.0
        self._settings: bytes | None = None
        self._rendered = False
        self._waits = self._role != BOOTSTRAP and not self._member
        self._member_since: float | None = None
        self._told: dict[str, str] = {}

    async def run(self) -> None:
        """Look and render, again and again, until the machine is switched off or the pod is gone."""
        machine = self._machine
        async with renderer.used(machine.site) as program:
            with pacing.among(machine.site, "network agents"):
                if self._waits:
                    self._say("keepalived: waits until the other nodes know this one")
                while True:
                    await self._look(program)
                    turn = pacing.turn(machine.site, "network agents", LOOK_SECONDS, _FASTEST_LOOK, _LOOKS_PER_SECOND)
                    await lab.sleep(machine.clock, turn)

    def lets(self, program: vip_pods.Program) -> bool:
        """Whether a program of its pod may run: all wait for their configs, keepalived for the other nodes too."""
        return self._rendered and not (self._waits and program.name == vip_pods.KEEPALIVED)

    @property
    def _member(self) -> bool:
        return any(each.name == self._machine.name for each in self._in_force or ())

    def _say(self, words: str) -> None:
        self._machine.say(f"network-monitor: {words}")

    def _say_once(self, topic: str, words: str) -> None:
        """Say what has changed about something; nothing is a state too."""
        if self._told.get(topic, "") != words:
            self._told[topic] = words
            if words:
                self._say(words)

    # --- looking ---

    async def _look(self, program: renderer.Renderer) -> None:
        settings = self._files.find(self._about.settings)
        if settings is None:
            self._say_once("settings", f"open {self._about.settings}: no such file or directory")
            return
        try:
            if await self._believed() or settings != self._settings:
                await self._apply(program, settings)
        except renderer.Failed as failed:
            self._settings = None
            self._say_once("render", str(failed))
        else:
            self._say_once("render", "")
        self._join()

    async def _believed(self) -> bool:
        """Take note of the Nodes; True when others than before come into force by this."""
        now = self._machine.clock.now()
        seen = await self._seen() if self._list is None else self._list.nodes
        if seen is None:
            seen = self._in_force or ()
        if seen is self._in_force or seen == self._in_force:
            self._sightings = 0
            return False
        if not self._sightings or seen != self._candidate:
            self._candidate, self._sightings, self._since = seen, 0, now
        self._sightings += 1
        if self._in_force is not None:
            if self._sightings < _SIGHTINGS or now - self._since < STEADY_SECONDS:
                return False
            # Whoever cannot reach the API has not heard of any of this.
            if await self._seen() is None:
                return False
        self._in_force, self._sightings = seen, 0
        self._machine.kept[VIEW_PATH] = _encoded(seen)
        return True

    def _remembered(self) -> tuple[Node, ...] | None:
        """The Nodes that were last in force, if the disk has them."""
        with contextlib.suppress(ValueError, TypeError, KeyError):
            content = self._machine.kept.get(VIEW_PATH)
            return None if content is None else tuple(Node(**each) for each in json.loads(content))
        return None

    async def _seen(self) -> tuple[Node, ...] | None:
        """The Nodes by the API, from the first place that answers; None if nobody does."""
        why = ""
        try:
            for client in self._access():
                try:
                    answer = await client.get(_ASKED)
                except _UNANSWERED as problem:
                    why = why or client.words(problem)
                    continue
                self._say_once("api", "")
                return self._found(answer)
        except (api_client.KubeconfigError, OSError) as problem:
            why = str(problem)
        self._say_once(
            "api", f"the nodes of the cluster cannot be seen, the last good view stays: {why}" if why else ""
        )
        return None

    def _found(self, answer: dict[str, Any]) -> tuple[Node, ...]:
        """The shared list of the cluster that has answered: its first Node tells which one that is."""
        for item in answer.get("items") or ():
            metadata = item["metadata"]
            for cluster in self._machine.site.clusters.values():
                entry = cluster.api.store.get(_NODES, ("", metadata["name"]))
                if entry is not None and entry.object["metadata"]["uid"] == metadata["uid"]:
                    self._list = listed(cluster)
                    return self._list.nodes
        return ()

    def _access(self) -> list[api_client.Client]:
        """Where the API may be, in the order to try, with the credentials that the machine has by now.

        Masters ask the API beside them first: where the virtual address is what is broken, it does not help.
        """
        loopback = f"{renders.AUTH}/kubeconfig-loopback"
        bootstraps = self._role == BOOTSTRAP
        shown = self._files.read(loopback) if bootstraps else self._machine.kept.get(kubelet_certificates.CLIENT_PATH)
        if shown is None:
            # Nobody has let it in yet.
            return []
        if self._clients[0] is not shown:
            self._clients = shown, self._connected(shown, bootstraps=bootstraps)
        return self._clients[1]

    def _connected(self, shown: bytes, *, bootstraps: bool) -> list[api_client.Client]:
        wire = self._machine.wire
        if bootstraps:
            return [api_client.from_kubeconfig(wire, shown)]
        pair = kubelet_certificates.stored(self._machine, kubelet_certificates.CLIENT_PATH)
        if pair is None:
            return []
        server, authority = api_client.place(self._files.read(kubelet.BOOTSTRAP_KUBECONFIG))
        beside = [f"https://localhost:{server.rpartition(':')[2]}"] if self._role == MASTER else []
        return [
            api_client.Client(wire, each, authority, certificate=pair[0], key=pair[1]) for each in (*beside, server)
        ]

    # --- files ---

    async def _apply(self, program: renderer.Renderer, settings: bytes) -> None:
        """Have the files rendered, and bring the disk to them."""
        rendered = await program.render(self._request(settings))
        self._settings = settings
        changed = []
        for path, text in rendered.items():
            content = _shared(text.encode())
            if self._files.find(path) == content:
                continue
            if objection := self._objection(path, text):
                self._say(f"{path}: the new config is refused, the old one stays: {objection}")
                continue
            self._files.write(path, content)
            changed.append(path)
        if changed:
            nodes = len(self._in_force or ())
            self._say(f"written: {', '.join(changed)} (for {nodes} node{'s' if nodes != 1 else ''})")
        self._rendered = True

    def _request(self, settings: bytes) -> dict[str, Any]:
        machine = self._machine
        try:
            given = json.loads(settings)
        except ValueError as problem:
            raise renderer.Failed(f"{self._about.settings}: not JSON: {problem}") from problem
        prefix = machine.site.networks[machine.network_name].prefixlen
        return {
            "settings": given,
            "role": self._role,
            "self": {"name": machine.name, "address": machine.address, "interface": INTERFACE, "prefix": prefix},
            "nodes": [dataclasses.asdict(each) for each in self._in_force or ()],
            "resolvers": [machine.site.nameserver.host],
        }

    def _objection(self, path: str, text: str) -> str:
        """What the program itself has against a config: a real agent asks it with ``keepalived -t``, ``haproxy -c``."""
        for ending, judge in _JUDGES.items():
            if path.endswith(ending):
                try:
                    judge(text)
                except (keepalived_conf.Wrong, haproxy_cfg.Wrong) as wrong:
                    return str(wrong)
        return ""

    def _join(self) -> None:
        """Let keepalived begin when the others have had the time to learn of this node."""
        if not self._waits:
            return
        now = self._machine.clock.now()
        self._member_since = (self._member_since or now) if self._member else None
        if self._member_since is not None and now - self._member_since >= JOIN_SECONDS:
            self._waits = False
            self._say("keepalived: may start, the other nodes know this one")
