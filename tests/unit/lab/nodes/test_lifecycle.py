"""Nodes that fall silent and come back, and what becomes of their pods; told to the controller step by step."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from moorage.lab.nodes import lifecycle, pacing
from tests.unit.lab.nodes import node_world
from tests.unit.lab.nodes.node_world import World, until

Object = dict[str, Any]
LOST = [lifecycle.UNREACHABLE]


def taints(world: World, name: str) -> list[str]:
    """What drives pods from a node. Where new ones may go is the scheduler's affair."""
    return [key for key, effect in world.taints(name) if effect == "NoExecute"]


class Time:
    """The cloud's time, in the hands of the story."""

    def __init__(self, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 1000.0
        monkeypatch.setattr(world.clock, "now", lambda: self.now)
        # As on the wall, where hearts beat every ten seconds.
        monkeypatch.setattr(pacing, "heartbeat", lambda site: pacing.HEARTBEAT)
        monkeypatch.setattr(lifecycle, "_FASTEST_LOOK", 0.0)
        self.warden = lifecycle.Warden(world.cluster)
        self._world = world
        self._beats = 0

    def passes(self, seconds: float, *beating: str) -> None:
        """Let the controller look every five seconds, while some nodes beat."""
        for _ in range(int(seconds / 5)):
            self.now += 5
            for name in beating:
                self.beat(name)
            self.warden.look()

    def beat(self, name: str) -> None:
        self._beats += 1
        renewed = f"2026-01-01T00:00:00.{self._beats:06}Z"
        spec = {"holderIdentity": name, "renewTime": renewed}
        meta = {"name": name, "namespace": "kube-node-lease"}
        self._world.cluster.put(
            {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": meta, "spec": spec}
        )


def add_node(world: World, name: str, ready: str = "True") -> None:
    world.cluster.put({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}, "spec": {}})
    report(world, name, ready)


def report(world: World, name: str, ready: str = "True") -> None:
    def edit(content: Object) -> None:
        known = {each["type"]: each for each in content.setdefault("status", {}).get("conditions", [])}
        for kind, status in (("Ready", ready), ("DiskPressure", "False")):
            known[kind] = {"type": kind, "status": status, "lastTransitionTime": "2026-01-01T00:00:00Z"}
        content["status"]["conditions"] = list(known.values())

    world.cluster.change("", "Node", "", name, edit)


def run_pod(world: World, name: str, node: str, **spec: Any) -> None:
    world.pod(name, node, **spec)

    def edit(content: Object) -> None:
        content["status"] |= {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}

    world.cluster.change("", "Pod", "default", name, edit)


def is_ready(world: World, name: str) -> bool:
    pod = world.find("Pod", name, "default") or {}
    return any(each["type"] == "Ready" and each["status"] == "True" for each in pod["status"]["conditions"])


def leaving(world: World, name: str) -> bool:
    pod = world.find("Pod", name, "default")
    return pod is not None and bool(pod["metadata"].get("deletionTimestamp"))


def story(tell: Callable[[World, Time], Awaitable[None]], monkeypatch: pytest.MonkeyPatch) -> None:
    async def told() -> None:
        async with node_world.world(signer=False) as world:
            with monkeypatch.context() as patch:
                add_node(world, "a")
                add_node(world, "b")
                time = Time(world, patch)
                time.passes(20, "a", "b")
                await tell(world, time)

    asyncio.run(told())


def test_a_silent_node_is_lost_and_the_others_are_not(monkeypatch: pytest.MonkeyPatch) -> None:
    async def tell(world: World, time: Time) -> None:
        time.passes(lifecycle.GRACE_SECONDS, "b")
        assert world.condition("a")["status"] == "True"
        assert taints(world, "a") == []

        time.passes(5, "b")
        for kind in ("Ready", "DiskPressure", "MemoryPressure", "PIDPressure"):
            assert world.condition("a", kind)["status"] == "Unknown"
        assert world.condition("a")["reason"] == "NodeStatusUnknown"
        assert taints(world, "a") == LOST
        assert world.condition("b")["status"] == "True"
        assert taints(world, "b") == []

        # Said once: as long as nothing changes nothing is written.
        version = world.node("a")["metadata"]["resourceVersion"]
        time.passes(60, "b")
        assert world.node("a")["metadata"]["resourceVersion"] == version

    story(tell, monkeypatch)


def test_a_node_that_reports_again_is_free_of_taints(monkeypatch: pytest.MonkeyPatch) -> None:
    async def tell(world: World, time: Time) -> None:
        own = {"key": "dedicated", "effect": "NoExecute"}
        world.cluster.change("", "Node", "", "a", lambda node: node["spec"].update(taints=[own]))
        time.passes(60, "b")
        assert taints(world, "a") == ["dedicated", *LOST]

        # It beats, but has not said yet how it is.
        time.passes(10, "a", "b")
        assert taints(world, "a") == ["dedicated", *LOST]
        assert world.condition("a")["status"] == "Unknown"

        report(world, "a")
        time.passes(5, "a", "b")
        assert taints(world, "a") == ["dedicated"]

    story(tell, monkeypatch)


def test_taints_that_keep_new_pods_away_are_left_to_the_scheduler(monkeypatch: pytest.MonkeyPatch) -> None:
    async def tell(world: World, time: Time) -> None:
        away = {"key": lifecycle.NOT_READY, "effect": "NoSchedule"}
        report(world, "a", "False")
        world.cluster.change("", "Node", "", "a", lambda node: node["spec"].update(taints=[away]))

        time.passes(5, "a", "b")
        assert world.taints("a") == [(lifecycle.NOT_READY, "NoSchedule"), (lifecycle.NOT_READY, "NoExecute")]

        report(world, "a")
        time.passes(5, "a", "b")
        assert world.taints("a") == [(lifecycle.NOT_READY, "NoSchedule")]

    story(tell, monkeypatch)


def test_a_node_that_is_not_ready_is_tainted_as_such(monkeypatch: pytest.MonkeyPatch) -> None:
    async def tell(world: World, time: Time) -> None:
        report(world, "a", "False")
        time.passes(5, "a", "b")

        assert taints(world, "a") == [lifecycle.NOT_READY]
        report(world, "a")
        time.passes(5, "a", "b")
        assert taints(world, "a") == []

    story(tell, monkeypatch)


def test_beats_of_any_clock_are_beats(monkeypatch: pytest.MonkeyPatch) -> None:
    async def tell(world: World, time: Time) -> None:
        # Its clock goes backwards, but it is heard.
        for number in range(20):
            time.now += 20
            time._beats = 100 - number
            time.beat("a")
            time.warden.look()

        assert world.condition("a")["status"] == "True"

    story(tell, monkeypatch)


def test_after_an_outage_nodes_get_their_time_again(monkeypatch: pytest.MonkeyPatch) -> None:
    async def tell(world: World, time: Time) -> None:
        time.now += 3600  # nobody looked, for there was no API
        time.warden.look()
        assert world.condition("a")["status"] == "True"

        time.passes(30, "b")
        assert world.condition("a")["status"] == "True"
        time.passes(40, "b")
        assert world.condition("a")["status"] == "Unknown"
        assert world.condition("b")["status"] == "True"

    story(tell, monkeypatch)


def test_pods_leave_a_lost_node_when_they_bear_it_no_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    async def tell(world: World, time: Time) -> None:
        brief = {"key": lifecycle.UNREACHABLE, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 30}
        run_pod(world, "usual", "a")
        run_pod(world, "brief", "a", tolerations=[brief])
        run_pod(world, "stoic", "a", tolerations=[{"operator": "Exists"}])
        run_pod(world, "elsewhere", "b")
        time.passes(55, "b")

        assert not any(is_ready(world, name) for name in ("usual", "brief", "stoic"))
        assert is_ready(world, "elsewhere")
        assert not leaving(world, "brief")

        time.passes(35, "b")
        assert (leaving(world, "brief"), leaving(world, "usual")) == (True, False)
        time.passes(270, "b")
        assert leaving(world, "usual")
        assert not leaving(world, "stoic")
        # Only the node itself could say that they have ended.
        assert world.find("Pod", "usual", "default") is not None
        assert not leaving(world, "elsewhere")

    story(tell, monkeypatch)


def test_pods_of_a_node_that_is_gone_are_removed(monkeypatch: pytest.MonkeyPatch) -> None:
    async def tell(world: World, time: Time) -> None:
        run_pod(world, "orphan", "a", tolerations=[{"operator": "Exists"}])
        run_pod(world, "elsewhere", "b")
        world.delete("Node", "a")

        time.passes(40, "b")
        assert world.find("Pod", "orphan", "default") is not None
        time.passes(10, "b")
        assert world.find("Pod", "orphan", "default") is None
        assert world.find("Pod", "elsewhere", "default") is not None

        # A Node of the same name that comes later begins anew.
        add_node(world, "a")
        time.passes(45, "b")
        assert world.condition("a")["status"] == "True"

    story(tell, monkeypatch)


@pytest.mark.parametrize(
    ("tolerations", "seconds"),
    [
        (None, 0),
        ([], 0),
        ([{"key": "other", "operator": "Exists"}], 0),
        ([{"key": lifecycle.UNREACHABLE, "operator": "Exists", "effect": "NoSchedule"}], 0),
        ([{"operator": "Exists"}], float("inf")),
        ([{"key": lifecycle.UNREACHABLE, "operator": "Exists"}], float("inf")),
        ([{"operator": "Exists", "tolerationSeconds": 7}, {"operator": "Exists", "tolerationSeconds": 5}], 5),
        ([{"operator": "Exists"}, {"key": lifecycle.UNREACHABLE, "operator": "Exists", "tolerationSeconds": 9}], 9),
    ],
)
def test_how_long_a_pod_bears_it(tolerations: Any, seconds: float) -> None:
    assert lifecycle._tolerated({"spec": {"tolerations": tolerations}}) == seconds


def test_a_machine_that_dies_is_missed_and_found_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """The controller and a real kubelet together."""

    async def told() -> None:
        async with node_world.world() as world:
            world.cluster.spawn(lifecycle.run(world.cluster), "lifecycle")
            machines = [world.machine("worker-0"), world.machine("worker-1")]
            await world.joined(*machines)
            await until(lambda: taints(world, "worker-0") == [], "no taints")

            await machines[0].power_off()
            await until(lambda: world.condition("worker-0")["status"] == "Unknown", "it is missed")
            await until(lambda: taints(world, "worker-0") == LOST, "taints")
            assert world.ready("worker-1")

            await machines[0].power_on()
            await until(lambda: world.ready("worker-0"), "Ready again")
            await until(lambda: taints(world, "worker-0") == [], "no taints again")

            # An outage of the API makes nobody lost.
            since = [world.condition(each.name)["lastTransitionTime"] for each in machines]
            await world.server.partition()
            begun = world.clock.now()
            await until(lambda: world.clock.now() > begun + 300, "five minutes without an API")
            await world.server.heal()
            renewed = world.lease("worker-0")["spec"]["renewTime"]
            await until(lambda: world.lease("worker-0")["spec"]["renewTime"] > renewed, "a beat")
            assert [world.condition(each.name)["lastTransitionTime"] for each in machines] == since

    asyncio.run(told())
