"""The agent of a node's network pod: what it sees, when it believes it, and what the programs beside it get of it."""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from moorage.lab.nodes import instance, network_agent, renderer, vip, vrrp
from tests.unit.lab.nodes import node_world, stand_in_renderer

SETTINGS, DISPATCHER = "/etc/moorage/network.json", "/etc/NetworkManager/dispatcher.d/30-resolv"
FOLDERS = ("/etc/moorage", "/etc/keepalived", "/etc/coredns")
CONFIG = "/etc/keepalived/keepalived.conf"
WAITS = "network-monitor: keepalived: waits until the other nodes know this one"


@pytest.fixture(autouse=True)
def stand_in(monkeypatch: pytest.MonkeyPatch) -> None:
    """The stand-in for the product's program, and looks that do not take real time."""
    monkeypatch.setattr(renderer, "COMMAND", (sys.executable, str(Path(stand_in_renderer.__file__))))
    monkeypatch.setattr(network_agent, "_FASTEST_LOOK", 0.02)
    monkeypatch.setattr(vip, "_FASTEST_LOOK", 0.02)


def pod(role: str) -> bytes:
    mounts = [{"name": path.rpartition("/")[2], "mountPath": path} for path in FOLDERS]

    def container(name: str, *command: str) -> dict[str, Any]:
        return {"name": name, "image": "example.com/moorage:1", "command": list(command), "volumeMounts": mounts}

    spec = {
        "initContainers": [container("render", "moorage", "node-network", "render", "--role", role)],
        "containers": [
            container("keepalived", "/bin/sh", "-c", f"while true; do\n keepalived -f {CONFIG} --dont-fork; done"),
            container("coredns", "/bin/sh", "-c", "exec coredns -conf /etc/coredns/Corefile"),
            container("network-monitor", "moorage", "node-network", "run", "--role", role),
        ],
        "volumes": [{"name": each["name"], "hostPath": {"path": each["mountPath"]}} for each in mounts],
    }
    metadata = {"name": "moorage-network", "namespace": "kube-system"}
    return yaml.safe_dump({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}).encode()


class Scene(node_world.World):
    """A cluster whose nodes have such a pod."""

    @property
    def vip(self) -> str:
        return str(self.site.networks["default"][100])

    def member(self, name: str, role: str = "master", **settings: Any) -> instance.Instance:
        made = self.machine(name, role, network=pod(role))
        made.kept[SETTINGS] = json.dumps({"vip": self.vip, **settings}).encode()
        made.kept[DISPATCHER] = b"into resolv.conf"
        return made

    def let_nodes_look(self) -> None:
        """What the product's manifests bring: nodes may read Nodes."""
        api, name = "rbac.authorization.k8s.io", "node-reader"
        rules = [{"apiGroups": [""], "resources": ["nodes"], "verbs": ["get", "list", "watch"]}]
        role = {"apiVersion": f"{api}/v1", "kind": "ClusterRole", "metadata": {"name": name}, "rules": rules}
        self.cluster.put(role)
        self.cluster.put(
            {
                "apiVersion": f"{api}/v1",
                "kind": "ClusterRoleBinding",
                "metadata": {"name": name},
                "roleRef": {"apiGroup": api, "kind": "ClusterRole", "name": name},
                "subjects": [{"apiGroup": api, "kind": "Group", "name": "system:nodes"}],
            }
        )

    def add_node(self, name: str, address: str, role: str = "worker") -> None:
        labels = {f"node-role.kubernetes.io/{role}": ""}
        self.cluster.put({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels}, "spec": {}})
        status = {"addresses": [{"type": "InternalIP", "address": address}]}
        self.cluster.change("", "Node", "", name, lambda node: node.update(status=status))


def seen(machine: instance.Instance) -> dict[str, Any]:
    """What the program was last told on behalf of a machine."""
    found: dict[str, Any] = json.loads(machine.kept.get(stand_in_renderer.SEEN, b"{}"))
    return found


def nodes(machine: instance.Instance) -> list[str]:
    return [each["name"] for each in seen(machine).get("nodes", [])]


def console(machine: instance.Instance) -> str:
    return "\n".join(machine.console)


@contextlib.asynccontextmanager
async def scene() -> AsyncIterator[Scene]:
    async with node_world.world() as world:
        world.site.clusters["harbour"] = world.cluster
        try:
            yield Scene(world.site, world.cluster, world.server)
        finally:
            del world.site.clusters["harbour"]


def story(tell: Callable[[Scene], Awaitable[None]]) -> None:
    async def told() -> None:
        async with scene() as found:
            await tell(found)

    asyncio.run(told())


def test_a_node_begins_with_what_it_knows_of_itself() -> None:
    async def tell(scene: Scene) -> None:
        machine = scene.member("master-0")
        await machine.power_on()
        await scene.until(lambda: "coredns" in machine.wire.listening, "CoreDNS runs")

        told = seen(machine)
        assert told["role"] == "master"
        assert told["self"] == {"name": "master-0", "address": machine.address, "interface": "ens3", "prefix": 20}
        assert told["resolvers"] == [scene.site.nameserver.host]
        assert told["nodes"] == []
        assert "keepalived" not in machine.wire.listening
        assert WAITS in console(machine)

    story(tell)


def test_the_nodes_of_the_cluster_are_seen_once_it_is_one_of_them() -> None:
    async def tell(scene: Scene) -> None:
        scene.let_nodes_look()
        machine = scene.member("master-0")
        await scene.joined(machine)
        await scene.until(lambda: nodes(machine) == ["master-0"], "it sees itself")
        assert seen(machine)["nodes"] == [{"name": "master-0", "address": machine.address, "role": "master"}]

        scene.add_node("worker-9", "127.0.0.9")

        await scene.until(lambda: nodes(machine) == ["master-0", "worker-9"], "it sees the other")
        await scene.until(lambda: "keepalived" in machine.wire.listening, "keepalived runs")
        await scene.until(lambda: vrrp.link(scene.site).holder(scene.vip) is machine, "it holds the address")
        assert await machine.wire.resolve("worker-9") == ["127.0.0.9"]
        assert "(for 2 nodes)" in console(machine)

    story(tell)


def test_a_holder_stays_one_when_peers_come_and_go() -> None:
    async def tell(scene: Scene) -> None:
        scene.let_nodes_look()
        machine = scene.member("master-0")
        await scene.joined(machine)
        await scene.until(lambda: vrrp.link(scene.site).holder(scene.vip) is machine, "it holds the address")
        (member,) = vrrp.link(scene.site)._members

        scene.add_node("worker-9", "127.0.0.9")

        await scene.until(lambda: member.router.peers == ("127.0.0.9",), "keepalived has read its config again")
        assert vrrp.link(scene.site)._members == [member]
        assert console(machine).count("Entering") == 2

    story(tell)


def test_who_may_not_look_sees_nobody() -> None:
    async def tell(scene: Scene) -> None:
        machine = scene.member("worker-0", "worker")
        await scene.joined(machine)
        words = 'nodes is forbidden: User "system:node:worker-0" cannot list resource "nodes"'
        await scene.until(lambda: words in console(machine), words)

        assert nodes(machine) == []
        assert console(machine).count(words) == 1
        scene.let_nodes_look()
        await scene.until(lambda: nodes(machine) == ["worker-0"], "it may look now")

    story(tell)


def test_who_is_cut_off_hears_of_nothing() -> None:
    async def tell(scene: Scene) -> None:
        scene.let_nodes_look()
        machine, other = scene.member("master-0"), scene.member("master-1")
        await scene.joined(machine, other)
        await scene.until(lambda: len(nodes(machine)) == len(nodes(other)) == 2, "they see each other")

        await machine.partition()
        scene.add_node("worker-9", "127.0.0.9")
        await scene.until(lambda: "worker-9" in nodes(other), "the other sees it")
        # Nothing can be awaited: it would have had the time.
        await asyncio.sleep(0.3)
        assert "worker-9" not in nodes(machine)

        await machine.heal()
        await scene.until(lambda: "worker-9" in nodes(machine), "it is back")

    story(tell)


def test_what_comes_and_goes_is_not_believed(monkeypatch: pytest.MonkeyPatch) -> None:
    async def tell(scene: Scene) -> None:
        scene.let_nodes_look()
        machine = scene.member("master-0")
        await scene.joined(machine)
        await scene.until(lambda: nodes(machine) == ["master-0"], "it sees itself")
        written = console(machine).count("network-monitor: written")

        # Nothing is steady any more, however slow this computer is; each turn is long enough for a look.
        monkeypatch.setattr(network_agent, "STEADY_SECONDS", 1e6)
        for _ in range(3):
            scene.add_node("worker-9", "127.0.0.9")
            await asyncio.sleep(0.2)
            scene.delete("Node", "worker-9")
            await asyncio.sleep(0.2)

        assert console(machine).count("network-monitor: written") == written

    story(tell)


def test_a_node_that_starts_again_goes_on_with_what_it_knew() -> None:
    async def tell(scene: Scene) -> None:
        scene.let_nodes_look()
        machine = scene.member("master-0")
        await scene.joined(machine)
        await scene.until(lambda: "keepalived" in machine.wire.listening, "keepalived runs")

        await scene.server.wire.close()
        del machine.kept[stand_in_renderer.SEEN]
        await machine.reboot()

        await scene.until(lambda: "keepalived" in machine.wire.listening, "keepalived runs again")
        assert nodes(machine) == ["master-0"]
        assert console(machine).count(WAITS) == 1

    story(tell)


def test_a_config_that_would_be_refused_never_takes_the_place_of_a_good_one() -> None:
    async def tell(scene: Scene) -> None:
        scene.let_nodes_look()
        machine = scene.member("master-0", spoilt=True)
        await scene.joined(machine)
        await scene.until(lambda: nodes(machine) == ["master-0"], "it sees itself")
        good = machine.kept[CONFIG]

        scene.add_node("worker-9", "127.0.0.9")
        await scene.until(lambda: "worker-9" in nodes(machine), "it sees the other")

        assert f"network-monitor: {CONFIG}: the new config is refused, the old one stays: " in console(machine)
        assert "Unknown keyword 'vrrp_intsance'" in console(machine)
        assert machine.kept[CONFIG] == good

    story(tell)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (b'{"vip": "127.0.0.1", "error": "api_vips is empty"}', "moorage node-network render: api_vips is empty"),
        (b"{", f"{SETTINGS}: not JSON: Expecting"),
        (None, f"open {SETTINGS}: no such file or directory"),
    ],
)
def test_what_keeps_it_from_rendering_is_told_once_and_tried_again(settings: bytes | None, words: str) -> None:
    async def tell(scene: Scene) -> None:
        machine = scene.member("master-0")
        good = machine.kept.pop(SETTINGS)
        if settings is not None:
            machine.kept[SETTINGS] = settings
        await machine.power_on()
        await scene.until(lambda: words in console(machine), words)
        await asyncio.sleep(0.2)
        assert console(machine).count(words) == 1
        assert "coredns" not in machine.wire.listening

        machine.kept[SETTINGS] = good
        await scene.until(lambda: "coredns" in machine.wire.listening, "CoreDNS runs")

    story(tell)


def test_the_program_ends_with_the_last_pod() -> None:
    async def tell(scene: Scene) -> None:
        machine = scene.member("master-0")
        await machine.power_on()
        await scene.until(lambda: "coredns" in machine.wire.listening, "CoreDNS runs")
        assert renderer._renderers[scene.site].pid is not None

        await machine.power_off()

        assert scene.site not in renderer._renderers

    story(tell)


# --- the shared list ---------------------------------------------------------------------------------------------


def test_the_list_is_the_same_until_something_matters() -> None:
    async def tell(scene: Scene) -> None:
        scene.add_node("a", "127.0.0.9", "control-plane")
        found = network_agent.listed(scene.cluster)
        before = found.nodes
        assert before == (network_agent.Node("a", "127.0.0.9", "master"),)

        scene.cluster.change("", "Node", "", "a", lambda node: node["status"].update(phase="Running"))
        assert found.nodes is before
        assert network_agent.listed(scene.cluster) is found

        scene.add_node("b", "127.0.0.8")
        assert [each.name for each in found.nodes] == ["a", "b"]
        scene.delete("Node", "a")
        assert [each.name for each in found.nodes] == ["b"]

    story(tell)
