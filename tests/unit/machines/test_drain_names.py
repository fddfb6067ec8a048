"""Draining goes by what things are, not by what they are called: a name may be another's by the time it is used."""

from __future__ import annotations

from typing import Any

import pytest

from moorage.machines import drain, objects
from moorage.machines.runtime import kinds
from tests.unit.machines.machine_world import NAME, NAMESPACE, World


@pytest.fixture
def world() -> World:
    found = World()
    found.running()
    return found


@pytest.fixture
def drainer(world: World) -> drain.Drainer:
    return drain.Drainer(world.api, world.clock)  # type: ignore[arg-type]


def test_a_node_that_is_another_machines_by_now_is_left_alone(world: World, drainer: drain.Drainer) -> None:
    marked = {"annotations": {objects.MACHINE_ANNOTATION: f"{NAMESPACE}/another"}}
    world.api.change(kinds.NODE, NAME, "", lambda found: found["metadata"].update(marked))
    world.pod("web-1")
    world.api.calls.clear()

    outcome = drainer.attempt(world.machine)

    assert outcome.drained
    assert f"{NAMESPACE}/another" in outcome.message
    assert world.api.writes == []


def test_a_pod_of_the_same_name_that_came_meanwhile_is_not_evicted(world: World, drainer: drain.Drainer) -> None:
    """A StatefulSet gives a new pod, on another node perhaps, the name of the old one."""
    world.pod("db-0")
    evict = world.api.evict

    def late(*given: Any, **more: Any) -> None:
        world.pod("db-0", spec={"nodeName": "elsewhere"})
        evict(*given, **more)

    world.api.evict = late  # type: ignore[method-assign]

    outcome = drainer.attempt(world.machine)

    assert "replaced meanwhile" in outcome.message
    found = world.api.have(kinds.POD, "db-0", "app")
    assert found is not None
    assert "deletionTimestamp" not in found["metadata"]
