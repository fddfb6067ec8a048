"""The scheduler: which node a pod gets, what it says when there is none, and the taints that follow a node's state."""

from __future__ import annotations

import collections
from typing import Any

import pytest

from moorage.lab.kube import placement, scheduling
from tests.unit.lab.kube import controllers_world as worlds

Object = worlds.Object


def _pod(world: worlds.World, name: str, **spec: Any) -> Object:
    return world.put("v1", "Pod", name, spec={**worlds.template()["spec"], **spec})


def _node_of(world: worlds.World, name: str) -> str:
    found = world.find("Pod", name)
    return "" if found is None else str(found["spec"].get("nodeName", ""))


def _scheduled(world: worlds.World, name: str) -> Object:
    found = world.find("Pod", name)
    assert found is not None
    return next((each for each in found["status"].get("conditions", []) if each["type"] == "PodScheduled"), {})


def test_a_pod_is_bound_to_a_ready_node_after_a_moment() -> None:
    async def told() -> None:
        world = worlds.World()
        world.node("ready")
        world.node("young", ready=False)
        async with worlds.working(scheduling.Scheduler(world.api, world.index)):
            began = world.clock.now()
            _pod(world, "p")
            await world.until(lambda: _node_of(world, "p") == "ready")
            assert world.clock.now() - began >= 1
        assert _scheduled(world, "p")["status"] == "True"

    worlds.story(told())


def test_pods_are_spread_over_the_nodes() -> None:
    async def told() -> None:
        world = worlds.World()
        for name in ("a", "b", "c"):
            world.node(name)
        async with worlds.working(scheduling.Scheduler(world.api, world.index)):
            for number in range(9):
                _pod(world, f"p{number}")
            await world.until(lambda: all(_node_of(world, f"p{number}") for number in range(9)))
        assert collections.Counter(_node_of(world, f"p{number}") for number in range(9)) == {"a": 3, "b": 3, "c": 3}

    worlds.story(told())


def test_the_emptiest_node_is_taken() -> None:
    async def told() -> None:
        world = worlds.World()
        for name in ("a", "b", "c"):
            world.node(name)
        for number in range(6):
            _pod(world, f"old{number}", nodeName="a" if number % 2 else "c")
        async with worlds.working(scheduling.Scheduler(world.api, world.index)):
            for name in ("p", "q", "r"):
                _pod(world, name)
            await world.until(lambda: [_node_of(world, name) for name in ("p", "q", "r")] == ["b", "b", "b"])

    worlds.story(told())


def test_no_two_pods_listen_on_the_same_port_of_a_node() -> None:
    def listening(port: int) -> list[Object]:
        return [{"name": "c", "image": "i", "ports": [{"containerPort": port, "hostPort": port}]}]

    async def told() -> None:
        world = worlds.World()
        for name in ("a", "b"):
            world.node(name)

        def placed() -> list[str]:
            return [_node_of(world, f"p{number}") for number in range(3)]

        async with worlds.working(scheduling.Scheduler(world.api, world.index)):
            for number in range(3):
                _pod(world, f"p{number}", containers=listening(443))
            _pod(world, "other", containers=listening(80))
            await world.until(lambda: _node_of(world, "other") and len(list(filter(None, placed()))) == 2)
            await world.until(
                lambda: any("free ports" in _scheduled(world, f"p{n}").get("message", "") for n in range(3))
            )
        assert sorted(filter(None, placed())) == ["a", "b"]

    worlds.story(told())


def test_a_pod_that_fits_nowhere_says_why_and_is_tried_again() -> None:
    async def told() -> None:
        world = worlds.World()
        world.node("cordoned")
        world.change("Node", "cordoned", lambda node: node["spec"].update(unschedulable=True))
        world.node("master", taints=[{"key": "node-role.kubernetes.io/master", "effect": "NoSchedule"}])
        async with worlds.working(scheduling.Scheduler(world.api, world.index)):
            _pod(world, "p")
            await world.until(lambda: _scheduled(world, "p"))
            condition = _scheduled(world, "p")
            assert (condition["status"], condition["reason"]) == ("False", "Unschedulable")
            assert condition["message"] == (
                "0/2 nodes are available: 1 node(s) had untolerated taint {node-role.kubernetes.io/master: },"
                " 1 node(s) were unschedulable."
            )
            world.change("Node", "cordoned", lambda node: node["spec"].pop("unschedulable"))
            await world.until(lambda: _node_of(world, "p") == "cordoned")

    worlds.story(told())


def test_room_that_becomes_free_is_used() -> None:
    async def told() -> None:
        world = worlds.World()
        world.node("small")
        world.change("Node", "small", lambda node: node["status"].update(allocatable={"pods": "1"}))
        async with worlds.working(scheduling.Scheduler(world.api, world.index)):
            _pod(world, "first")
            await world.until(lambda: _node_of(world, "first"))
            _pod(world, "second")
            await world.until(lambda: "Too many pods" in _scheduled(world, "second").get("message", ""))
            world.delete("Pod", "first", grace_seconds=0)
            await world.until(lambda: _node_of(world, "second") == "small")

    worlds.story(told())


def test_pods_of_other_schedulers_gated_ones_and_those_that_are_going_are_left_alone() -> None:
    async def told() -> None:
        world = worlds.World()
        world.node("n")
        scheduler = scheduling.Scheduler(world.api, world.index)
        _pod(world, "other", schedulerName="mine")
        _pod(world, "gated", schedulingGates=[{"name": "wait"}])
        async with worlds.working(scheduler):
            await world.rest(scheduler)
        assert (_node_of(world, "other"), _node_of(world, "gated")) == ("", "")

    worlds.story(told())


_TERMS = "requiredDuringSchedulingIgnoredDuringExecution"


def _affinity(*expressions: Object, fields: tuple[Object, ...] = ()) -> Object:
    term = {"matchExpressions": list(expressions), "matchFields": list(fields)}
    return {"affinity": {"nodeAffinity": {_TERMS: {"nodeSelectorTerms": [term]}}}}


@pytest.mark.parametrize(
    ("spec", "chosen"),
    [
        ({}, True),
        ({"nodeSelector": {"zone": "a"}}, True),
        ({"nodeSelector": {"zone": "b"}}, False),
        (_affinity({"key": "zone", "operator": "In", "values": ["a", "b"]}), True),
        (_affinity({"key": "zone", "operator": "NotIn", "values": ["a"]}), False),
        (_affinity({"key": "gpu", "operator": "Exists"}), False),
        (_affinity({"key": "gpu", "operator": "DoesNotExist"}), True),
        (_affinity({"key": "cores", "operator": "Gt", "values": ["7"]}), True),
        (_affinity({"key": "cores", "operator": "Lt", "values": ["8"]}), False),
        (_affinity(fields=({"key": "metadata.name", "operator": "In", "values": ["n"]},)), True),
        (_affinity(fields=({"key": "metadata.name", "operator": "In", "values": ["m"]},)), False),
        (_affinity(), False),
    ],
)
def test_which_nodes_a_pod_chooses(spec: Object, chosen: bool) -> None:
    node = {"metadata": {"name": "n", "labels": {"zone": "a", "cores": "8"}}}
    assert placement.chosen(spec, node) is chosen


_TAINT = {"key": "k", "value": "v", "effect": "NoSchedule"}


@pytest.mark.parametrize(
    ("toleration", "tolerated"),
    [
        ({"operator": "Exists"}, True),
        ({"key": "k", "operator": "Exists"}, True),
        ({"key": "k", "value": "v"}, True),
        ({"key": "k", "operator": "Equal", "value": "w"}, False),
        ({"key": "k"}, False),
        ({"key": "other", "operator": "Exists"}, False),
        ({"key": "k", "operator": "Exists", "effect": "NoExecute"}, False),
        ({"key": "k", "operator": "Exists", "effect": "NoSchedule"}, True),
    ],
)
def test_what_a_toleration_is_for(toleration: Object, tolerated: bool) -> None:
    assert placement.tolerated([toleration], _TAINT) is tolerated


def _keys(world: worlds.World, name: str) -> list[str]:
    found = world.find("Node", name)
    assert found is not None
    return sorted(each["key"].partition("/")[2] for each in found["spec"].get("taints", []))


def test_taints_follow_what_a_node_says_and_what_is_said_of_it() -> None:
    async def told() -> None:
        world = worlds.World()
        world.node("n", ready=False, taints=[{"key": "example.com/mine", "effect": "NoSchedule"}])

        def says(state: str) -> None:
            world.change(
                "Node", "n", lambda node: node["status"].update(conditions=[{"type": "Ready", "status": state}])
            )

        async with worlds.working(scheduling.Taints(world.api)):
            await world.until(lambda: _keys(world, "n") == ["mine", "not-ready"])
            says("True")
            await world.until(lambda: _keys(world, "n") == ["mine"])
            says("Unknown")
            await world.until(lambda: _keys(world, "n") == ["mine", "unreachable"])
            says("True")
            world.change("Node", "n", lambda node: node["spec"].update(unschedulable=True))
            await world.until(lambda: _keys(world, "n") == ["mine", "unschedulable"])
            world.change("Node", "n", lambda node: node["spec"].pop("unschedulable"))
            await world.until(lambda: _keys(world, "n") == ["mine"])

    worlds.story(told())


def test_taints_that_drive_pods_away_are_left_to_who_set_them() -> None:
    async def told() -> None:
        world = worlds.World()
        evicting = {"key": "node.kubernetes.io/unreachable", "effect": "NoExecute", "timeAdded": "2026-01-01T00:00:00Z"}
        world.node("n", taints=[evicting])

        async with worlds.working(scheduling.Taints(world.api)):
            world.change("Node", "n", lambda node: node["spec"].update(unschedulable=True))
            await world.until(lambda: _keys(world, "n") == ["unreachable", "unschedulable"])
            assert world.get("Node", "n")["spec"]["taints"][0] == evicting

    worlds.story(told())
