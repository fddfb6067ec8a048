"""A platform that does not know an instance: it may be a lapse, or another platform. What could be lost waits."""

from __future__ import annotations

import datetime
from typing import Any

import pytest

from moorage.engine import errors
from moorage.machines import machine_absence, machine_deletion, objects
from moorage.machines.runtime import errors as api_errors
from moorage.machines.runtime import kinds
from tests.unit.machines import memory
from tests.unit.machines.machine_world import NAME, KilledError, World, node


@pytest.fixture
def world() -> World:
    """A Machine that has been running for an hour."""
    found = World()
    found.running()
    found.clock.advance(3600)
    return found


# -- a deletion --------------------------------------------------------------------------------------------------------


def test_an_instance_that_is_not_found_once_is_not_left_behind(world: World) -> None:
    world.yard.hide(NAME, 50.0)
    world.delete()

    world.turn()

    exists = world.condition("InstanceExists")
    assert (exists["status"], exists["reason"]) == ("Unknown", "InstanceMissing")
    assert world.api.have(kinds.NODE, NAME) is not None
    world.run(lambda: world.is_gone)
    assert world.yard.instances == []


def test_one_that_is_gone_is_looked_for_twice_and_no_more(world: World) -> None:
    world.sink()
    world.delete()
    began = world.clock.now()

    world.run(lambda: world.is_gone)

    assert world.yard.verbs()[-2:] == ["delete", "delete"]
    assert machine_absence.DOUBT <= world.clock.now() - began <= machine_absence.DOUBT + 2.0
    assert world.api.have(kinds.NODE, NAME) is None


def test_looks_in_a_hurry_are_one(world: World) -> None:
    world.yard.hide(NAME, 50.0)
    world.delete()

    for _ in range(5):
        world.turn()
        world.clock.advance(5.0)

    assert not world.is_gone


def test_a_miss_outlives_the_controller(world: World) -> None:
    world.sink()
    world.delete()
    world.turn()
    world.clock.advance(machine_absence.DOUBT + 1.0)

    world.restarted()
    world.turn()

    assert world.is_gone


@pytest.mark.parametrize("before", ["missed once", "given up"])
def test_a_miss_from_before_counts(world: World, before: str) -> None:
    world.sink()
    if before == "given up":
        world.run(lambda: world.phase == "Failed")
    else:
        world.turn()
        world.clock.advance(machine_absence.DOUBT + 1.0)
    world.delete()

    world.turn()

    assert world.is_gone


def test_one_that_was_seen_to_go_is_not_doubted(world: World) -> None:
    world.delete()
    began = world.clock.now()

    world.run(lambda: world.is_gone)

    assert world.clock.now() - began == 2 * machine_deletion.GOING


@pytest.mark.parametrize("whose", ["the same", "others"])
def test_one_that_is_only_being_switched_off_is_doubted(world: World, whose: str) -> None:
    """Its removal was not ordered yet: one wrong answer would leave it behind, and its node would be gone."""
    world.delete()
    world.clock.advance(world.turn() or 0.0)
    world.yard.hide(NAME, 50.0)
    if whose == "others":
        world.source = object()

    world.turn()

    assert world.condition("InstanceExists")["reason"] == "InstanceMissing"
    assert world.api.have(kinds.NODE, NAME) is not None
    world.run(lambda: world.is_gone)
    assert world.yard.instances == []


def test_one_without_a_known_id_that_is_being_switched_off_is_doubted_too() -> None:
    world = World()
    world.yard.fail("create", KilledError(), after=True)
    world.put()
    with pytest.raises(KilledError):
        world.turn()
    world.clock.advance(3600)
    world.delete()
    world.clock.advance(world.turn() or 0.0)
    assert not objects.provider_id(world.machine)
    world.yard.hide(NAME, 50.0)

    world.run(lambda: world.is_gone)

    assert world.yard.instances == []


def test_one_that_is_found_again_is_not_half_missed(world: World) -> None:
    """A miss, a look that finds it, and a miss: that is not two in a row."""
    world.delete()
    world.yard.leaving = 3
    world.yard.hide(NAME, 50.0)
    world.clock.advance(world.turn() or 0.0)
    world.clock.advance(world.turn() or 0.0)
    assert world.condition("InstanceExists")["status"] == "True"
    world.yard.hide(NAME, 50.0)

    world.turn()

    assert not world.is_gone
    world.run(lambda: world.is_gone)
    assert world.yard.instances == []


@pytest.mark.parametrize("restarts", [False, True])
def test_what_was_ordered_stays_ordered(world: World, restarts: bool) -> None:
    """Engines lock what they remove: that is no failure of the removal, which takes no longer for it."""
    world.delete()
    world.clock.advance(world.turn() or 0.0)
    world.clock.advance(world.turn() or 0.0)
    assert world.yard.instances == []
    world.yard.fail("delete", errors.Transient("it is locked"))
    with pytest.raises(errors.Transient):
        world.turn()
    assert "it is locked" in world.status["lastOperation"]["description"]
    if restarts:
        world.restarted()

    world.turn()

    assert world.is_gone


def test_a_removal_that_failed_has_not_met_it(world: World) -> None:
    world.yard.fail("delete", errors.Unauthorized("refused"))
    world.delete()
    with pytest.raises(errors.Unauthorized):
        world.turn()
    world.yard.hide(NAME, 50.0)

    world.run(lambda: world.is_gone)

    assert world.yard.instances == []


def test_a_miss_of_tomorrow_counts_anew(world: World) -> None:
    """The date was wrong when it was written down: to wait for it to come would be to wait for ever."""
    world.sink()
    world.delete()
    world.turn()

    def ahead(found: dict[str, Any]) -> None:
        (exists,) = (each for each in found["status"]["conditions"] if each["type"] == "InstanceExists")
        exists["lastTransitionTime"] = memory.stamp(world.clock.wall() + datetime.timedelta(days=1))

    world.change(ahead)

    again = world.turn()

    assert again == machine_absence.DOUBT + 1.0
    world.clock.advance(again)
    world.turn()
    assert world.is_gone


@pytest.mark.parametrize("is_deleted", [False, True])
def test_new_credentials_count_anew(world: World, is_deleted: bool) -> None:
    """They may show another platform: what the one has missed and the other does not know is not missed twice."""
    world.sink()
    if is_deleted:
        world.delete()
    world.clock.advance(world.turn() or 0.0)

    world.source = object()
    for _ in range(5):
        again = world.turn()
        assert not world.is_gone
        assert world.phase != "Failed"
        world.clock.advance(5.0)

    assert again is not None
    world.clock.advance(again)
    world.turn()
    assert world.is_gone or world.phase == "Failed"


# -- a node that reports -----------------------------------------------------------------------------------------------


def test_a_machine_whose_node_reports_is_not_given_up(world: World) -> None:
    """The Secret names another engine for an hour: all machines would be Failed, and all of them are at work."""
    world.yard.hide(NAME, 3600.0)
    end = world.clock.now() + 3600.0
    while world.clock.now() < end:
        world.clock.advance(world.turn() or 30.0)
        assert world.phase == "Running"
        assert world.condition("InstanceExists")["status"] == "Unknown"
    assert f"its node {NAME} reports" in world.condition("InstanceExists")["message"]
    assert "credentials" in world.condition("InstanceExists")["message"]

    world.turn()

    assert world.condition("InstanceExists")["status"] == "True"


def test_a_machine_whose_node_reports_does_not_end_without_its_instance(world: World) -> None:
    """It would run on with nobody to know of it, and its node would come back."""
    world.yard.hide(NAME, 3600.0)
    world.delete()
    end = world.clock.now() + 3600.0
    while world.clock.now() < end:
        world.clock.advance(world.turn() or 30.0)
        assert world.api.have(kinds.NODE, NAME) is not None
    assert f"its node {NAME} reports" in world.condition("InstanceExists")["message"]

    world.run(lambda: world.is_gone)

    assert world.yard.instances == []


@pytest.mark.parametrize("fate", ["silent", "gone", "replaced"])
def test_it_is_given_up_when_its_node_is_no_more(world: World, fate: str) -> None:
    world.yard.sink(NAME)
    for _ in range(3):
        world.clock.advance(world.turn() or 30.0)
    assert world.phase == "Running"

    if fate == "gone":
        world.api.delete(kinds.NODE, NAME)
    else:
        found = node(ready="Unknown" if fate == "silent" else "True")
        found["metadata"]["uid"] = "another" if fate == "replaced" else found["metadata"]["uid"]
        world.api.put(kinds.NODE, found)
    world.turn()

    assert world.phase == "Failed"
    assert world.condition("InstanceExists")["status"] == "False"


def test_it_is_not_given_up_while_its_node_cannot_be_looked_at(world: World) -> None:
    world.sink()
    world.clock.advance(world.turn() or 30.0)
    world.api.trouble("get nodes", api_errors.Unavailable("out of reach"))

    with pytest.raises(api_errors.Unavailable):
        world.turn()

    assert world.phase == "Running"


# -- a node that only shares the name ----------------------------------------------------------------------------------


def test_a_node_stays_if_the_machine_of_its_name_never_was_an_instance() -> None:
    world = World()
    world.api.put(kinds.NODE, node())
    world.yard.fail("create", errors.Terminal("there is no such template"))
    world.put()
    world.run(lambda: world.phase == "Failed")
    world.delete()

    world.run(lambda: world.is_gone)

    assert world.api.have(kinds.NODE, NAME) is not None


def test_a_node_goes_with_an_instance_whose_id_nobody_came_to_write_down() -> None:
    world = World()
    world.yard.fail("create", KilledError(), after=True)
    world.put()
    with pytest.raises(KilledError):
        world.turn()
    assert not objects.provider_id(world.machine)
    world.api.put(kinds.NODE, node())
    world.delete()

    world.run(lambda: world.is_gone)

    assert world.yard.instances == []
    assert world.api.have(kinds.NODE, NAME) is None
