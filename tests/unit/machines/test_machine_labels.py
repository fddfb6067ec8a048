"""What a Machine is labelled with: what its instance is and where, as far as the platform tells."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import pytest

from moorage.engine import errors
from moorage.machines import objects
from moorage.platforms import contract
from tests.unit.machines.machine_world import INFRA, World


@pytest.fixture
def world() -> World:
    return World()


def located(world: World, place: Callable[[contract.Machine], contract.Place]) -> None:
    """The platform has types and places."""
    exists = world.yard.exists

    def typed(wanted: contract.Machine) -> contract.Instance | None:
        found = exists(wanted)
        return None if found is None else dataclasses.replace(found, type="large")

    world.yard.exists = typed  # type: ignore[method-assign]
    world.yard.place = place  # type: ignore[attr-defined]


def told_labels(world: World) -> dict[str, str]:
    own = (objects.TYPE_LABEL, objects.REGION_LABEL, objects.ZONE_LABEL)
    return {label: word for label, word in world.machine["metadata"]["labels"].items() if label in own}


def test_labels_of_the_instance_are_those_that_the_platform_tells(world: World) -> None:
    located(world, lambda wanted: contract.Place("north", f"north-{wanted.infra_id}"))

    world.running()

    assert told_labels(world) == {
        objects.TYPE_LABEL: "large",
        objects.REGION_LABEL: "north",
        objects.ZONE_LABEL: f"north-{INFRA}",
    }
    assert world.machine["metadata"]["labels"][objects.CLUSTER_LABEL] == INFRA


def test_a_platform_without_places_gives_no_empty_labels(world: World) -> None:
    world.running()

    assert told_labels(world) == {}


def test_no_machine_waits_for_a_platform_that_does_not_tell_its_place(world: World) -> None:
    def forbidden(_wanted: contract.Machine) -> contract.Place:
        raise errors.Unauthorized("you may not look at clusters")

    located(world, forbidden)

    world.running()

    assert told_labels(world) == {objects.TYPE_LABEL: "large"}


def test_a_place_that_was_told_is_not_taken_back(world: World) -> None:
    located(world, lambda wanted: contract.Place("north", "north-1"))
    world.running()
    located(world, lambda wanted: contract.Place())

    world.turn()

    assert told_labels(world)[objects.ZONE_LABEL] == "north-1"
