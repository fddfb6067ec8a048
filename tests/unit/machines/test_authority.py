"""Machines and sets that are another API's to keep: they rest here, whatever becomes of them, until they come back."""

from __future__ import annotations

import pytest

from moorage.machines import objects
from moorage.machines.runtime import kinds
from tests.unit.machines import fleet
from tests.unit.machines.fleet import PLACE, SET
from tests.unit.machines.machine_world import World, machine_object


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def berth() -> fleet.Fleet:
    return fleet.Fleet()


# -- machines ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("authority", ["ClusterAPI", "Migrating"])
@pytest.mark.parametrize("deleted", [False, True])
def test_while_another_api_keeps_it_a_machine_rests(world: World, authority: str, deleted: bool) -> None:
    found = machine_object()
    found["metadata"]["finalizers"] = [objects.FINALIZER]
    world.put({**found, "status": {"authoritativeAPI": authority}})
    if deleted:
        world.delete()

    assert world.turn() is None

    assert world.yard.calls == []
    paused = world.condition("Paused")
    assert (paused["status"], paused["reason"]) == ("True", "AuthoritativeAPINotMachineAPI")
    assert authority in paused["message"]


def test_a_new_machine_that_is_to_be_anothers_is_never_touched(world: World) -> None:
    """It has a wish and no status yet: to read the status alone would make an instance that the cluster-api makes."""
    world.put(machine_object(authoritativeAPI="ClusterAPI"))

    for _ in range(3):
        assert world.turn() is None

    assert world.yard.calls == []
    assert world.status["authoritativeAPI"] == "ClusterAPI"
    assert world.condition("Paused")["status"] == "True"
    assert "finalizers" not in world.machine["metadata"]


def test_a_new_machine_that_is_ours_is_recorded_as_such(world: World) -> None:
    world.put(machine_object(authoritativeAPI="MachineAPI"))

    world.turn()

    assert world.status["authoritativeAPI"] == "MachineAPI"
    assert (world.condition("Paused")["status"], world.condition("Paused")["reason"]) == (
        "False",
        "AuthoritativeAPIMachineAPI",
    )
    assert len(world.yard.instances) == 1


@pytest.mark.parametrize(("wish", "so"), [("MachineAPI", "Migrating"), ("MachineAPI", "ClusterAPI")])
def test_a_wish_is_not_yet_so(world: World, wish: str, so: str) -> None:
    world.put({**machine_object(authoritativeAPI=wish), "status": {"authoritativeAPI": so}})

    world.turn()

    assert world.yard.calls == []
    assert world.status["authoritativeAPI"] == so


def test_a_wish_against_it_is_not_yet_so_either(world: World) -> None:
    """The migration has not begun: until it has, the machine is looked after."""
    world.put({**machine_object(authoritativeAPI="ClusterAPI"), "status": {"authoritativeAPI": "MachineAPI"}})

    world.turn()

    assert len(world.yard.instances) == 1


def test_an_authority_of_another_time_is_not_ours(world: World) -> None:
    world.put(machine_object(authoritativeAPI="FleetAPI"))

    assert world.turn() is None

    assert (world.yard.calls, world.api.writes) == ([], [])


def test_a_machine_that_is_handed_back_goes_on(world: World) -> None:
    world.put({**machine_object(), "status": {"authoritativeAPI": "ClusterAPI"}})
    world.turn()
    world.change(lambda found: found["status"].update(authoritativeAPI="MachineAPI"))

    world.turn()

    assert (world.condition("Paused")["status"], world.condition("Paused")["severity"]) == ("False", "Info")
    assert len(world.yard.instances) == 1


def test_where_nobody_can_choose_nothing_is_said_of_pauses(world: World) -> None:
    world.put()

    world.turn()

    assert world.condition("Paused") == {}


# -- sets --------------------------------------------------------------------------------------------------------------


def edit_set(berth: fleet.Fleet, wish: str = "", so: str = "") -> None:
    def edit(found: fleet.Object) -> None:
        if wish:
            found["spec"]["authoritativeAPI"] = wish
        if so:
            found.setdefault("status", {})["authoritativeAPI"] = so

    berth.api.change(kinds.MACHINE_SET, SET, PLACE, edit)


@pytest.mark.parametrize(
    ("wish", "so"), [("ClusterAPI", ""), ("", "Migrating"), ("MachineAPI", "ClusterAPI"), ("MachineAPI", "Migrating")]
)
def test_a_set_that_is_anothers_makes_nothing_and_says_why(berth: fleet.Fleet, wish: str, so: str) -> None:
    berth.add_set(2)
    edit_set(berth, wish, so)

    berth.settle()

    assert berth.names() == []
    assert berth.status()["authoritativeAPI"] == so or wish
    paused = fleet.condition(berth.status(), "Paused")
    assert (paused["status"], paused["reason"]) == ("True", "AuthoritativeAPINotMachineAPI")


def test_a_set_that_is_anothers_gives_none_up(berth: fleet.Fleet) -> None:
    berth.add_set(2)
    berth.settle()
    edit_set(berth, so="Migrating")
    berth.scale(0)

    berth.settle()

    assert len(berth.names()) == 2


def test_a_set_that_is_ours_is_recorded_as_such_and_written_once(berth: fleet.Fleet) -> None:
    berth.add_set(2)
    edit_set(berth, "MachineAPI")
    berth.settle()
    assert len(berth.names()) == 2
    assert berth.status()["authoritativeAPI"] == "MachineAPI"
    paused = fleet.condition(berth.status(), "Paused")
    assert (paused["status"], paused["reason"], paused["severity"]) == ("False", "AuthoritativeAPIMachineAPI", "Info")
    berth.api.calls.clear()

    berth.controller.reconcile(fleet.KEY)

    assert berth.api.writes == [], "there is nothing new to say"


def test_a_set_of_ours_can_be_paused_and_goes_on(berth: fleet.Fleet) -> None:
    berth.add_set(2)
    edit_set(berth, "MachineAPI")
    pause: fleet.Object = {"cluster.x-k8s.io/paused": ""}
    berth.api.change(kinds.MACHINE_SET, SET, PLACE, lambda found: found["metadata"].update(annotations=pause))
    berth.settle()
    assert (berth.names(), fleet.condition(berth.status(), "Paused")["status"]) == ([], "True")

    berth.api.change(kinds.MACHINE_SET, SET, PLACE, lambda found: found["metadata"].update(annotations={}))
    berth.settle()

    assert len(berth.names()) == 2
    assert fleet.condition(berth.status(), "Paused")["reason"] == "AuthoritativeAPIMachineAPI"


def test_a_hand_over_that_the_cache_does_not_show_yet_holds(berth: fleet.Fleet) -> None:
    berth.add_set(2)
    berth.sync()
    edit_set(berth, so="Migrating")

    berth.controller.reconcile(fleet.KEY)

    assert berth.names() == []
