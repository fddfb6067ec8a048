"""Who may act for a Machine, and what becomes of one whose controller dies: one instance, or none, whatever happens."""

from __future__ import annotations

import pytest

from moorage.machines.runtime import errors as api_errors
from tests.unit.machines.machine_world import NAME, World


class NotLeaderError(Exception):
    """The lease is lost."""


@pytest.fixture
def world() -> World:
    return World()


# -- the right to act --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("forbidden", ["create", "update"])
def test_who_does_not_lead_makes_nothing(world: World, forbidden: str) -> None:
    world.put()
    if forbidden == "update":
        world.turn()

    def check() -> None:
        raise NotLeaderError

    world.check = check
    with pytest.raises(NotLeaderError):
        world.turn()

    assert forbidden not in world.yard.verbs()


def test_who_does_not_lead_drains_nothing(world: World) -> None:
    """Whoever leads may have given the machine another fate meanwhile."""

    def check() -> None:
        raise NotLeaderError

    world.running()
    world.pod("web-1")
    world.delete()
    world.check = check
    world.api.calls.clear()

    with pytest.raises(NotLeaderError):
        world.turn()

    assert not [call for call in world.api.calls if call.startswith(("evict", "patch nodes"))]


def test_the_right_is_checked_right_before_the_call(world: World) -> None:
    world.put()
    order: list[str] = []
    world.check = lambda: order.append(f"check after {len(world.api.calls)}")
    world.yard.before = lambda call: order.append(f"{call.split()[0]} after {len(world.api.calls)}")

    world.turn()

    (checked,) = (index for index, each in enumerate(order) if each.startswith("check"))
    assert order[checked + 1] == order[checked].replace("check", "create")


# -- a death at every call ---------------------------------------------------------------------------------------------


def _places() -> list[str]:
    world = World(building=2)
    world.put()
    world.run(lambda: world.phase == "Provisioned")
    return world.places()


@pytest.mark.parametrize("lag", [0.0, 45.0])
@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("place", _places())
def test_a_controller_that_is_killed_anywhere_leaves_one_instance(place: str, when: str, lag: float) -> None:
    world = World(building=2, lag=lag)
    world.put()
    world.kill_at(place, when)

    world.outlive(lambda: world.phase == "Provisioned")

    assert world.deaths == 1
    assert world.machine["spec"]["providerID"] == world.yard.only(NAME).provider_id


@pytest.mark.parametrize("lag", [0.0, 45.0])
@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("place", _places())
def test_a_machine_that_is_deleted_after_a_death_leaves_no_instance(place: str, when: str, lag: float) -> None:
    world = World(building=2, lag=lag)
    world.put()
    world.kill_at(place, when)
    world.outlive(lambda: world.deaths == 1)

    world.delete()
    world.outlive(lambda: world.is_gone)

    assert world.yard.instances == []


def test_an_api_that_fails_for_a_while_does_no_harm(world: World) -> None:
    for call in ("patch machines", "get secrets", "patch machines", "patch machines"):
        world.api.trouble(call, api_errors.Unavailable("out of reach"))
    world.put()

    world.run(lambda: world.status.get("phase") == "Provisioned")

    assert len(world.yard.instances) == 1
