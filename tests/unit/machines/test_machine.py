"""A Machine from its first look to Running: what is asked of the platform, and what is written down when."""

from __future__ import annotations

from typing import Any

import pytest

from moorage.engine import errors
from moorage.machines import machine, objects
from moorage.machines.runtime import controller, kinds, metrics, queue
from moorage.machines.runtime import errors as api_errors
from moorage.platforms import contract
from tests.unit.machines.machine_world import INFRA, KEY, NAME, NAMESPACE, USER_DATA, World, machine_object


@pytest.fixture
def world() -> World:
    return World()


def test_a_new_machine_gets_a_finalizer_before_anything_is_made(world: World) -> None:
    world.put()
    seen: list[list[str]] = []
    world.yard.before = lambda _call: seen.append(list(world.machine["metadata"].get("finalizers", ())))

    world.turn()

    assert seen == [[objects.FINALIZER], [objects.FINALIZER]]


def test_other_finalizers_stay(world: World) -> None:
    found = machine_object()
    found["metadata"]["finalizers"] = ["example.com/other"]
    world.put(found)

    world.turn()

    assert world.machine["metadata"]["finalizers"] == ["example.com/other", objects.FINALIZER]


def test_an_instance_is_made_of_the_spec_and_the_secret(world: World) -> None:
    world.put()

    assert world.turn() == machine.BUILDING

    assert world.yard.verbs() == ["exists", "create"]
    assert world.yard.only(NAME).user_data == USER_DATA
    assert world.yard.only(NAME).infra_id == INFRA


def test_what_is_about_to_be_made_is_written_down_first(world: World) -> None:
    world.put()
    noted: list[dict[str, Any]] = []
    world.yard.before = lambda call: noted.append(world.status) if call.startswith("create") else None

    world.turn()

    (status,) = noted
    assert status["phase"] == "Provisioning"
    assert (status["lastOperation"]["type"], status["lastOperation"]["state"]) == ("Create", "Processing")
    (exists,) = (each for each in status["conditions"] if each["type"] == "InstanceExists")
    assert (exists["status"], exists["reason"], exists["severity"]) == ("False", "InstanceNotCreated", "Warning")


def test_a_made_instance_is_known_at_once_by_its_id(world: World) -> None:
    world.put()

    world.turn()

    assert world.machine["spec"]["providerID"] == "yard://i-1"
    assert world.status["providerStatus"]["instanceId"] == "i-1"
    assert world.status["providerStatus"]["instanceState"] == "building"
    assert world.machine["metadata"]["annotations"][objects.STATE_ANNOTATION] == "building"
    assert world.condition("InstanceExists")["status"] == "True"


def test_a_half_built_instance_is_completed_and_says_what_it_waits_for() -> None:
    world = World(building=2)
    world.put()
    world.turn()
    assert world.phase == "Provisioning"
    assert world.status["lastOperation"]["description"] == "waiting for it to be up: it is building"

    assert world.turn() == machine.BUILDING
    assert world.turn() == machine.WAITING

    assert world.phase == "Provisioned"
    assert world.yard.verbs() == ["exists", "create", "update", "update"]
    assert world.status["lastOperation"]["state"] == "Successful"


def test_one_that_somebody_else_began_is_adopted_and_completed(world: World) -> None:
    world.yard.create(objects.wanted(machine_object(), b"", INFRA))
    world.put()

    world.turn()

    assert world.yard.verbs() == ["create", "exists", "update"]
    assert world.phase == "Provisioned"
    assert world.machine["spec"]["providerID"] == "yard://i-1"


def test_a_complete_one_is_adopted_without_touching_it() -> None:
    world = World(building=0)
    world.yard.create(objects.wanted(machine_object(), b"", INFRA))
    world.put()

    world.turn()

    assert world.yard.verbs() == ["create", "exists"]
    assert world.phase == "Provisioned"


def test_addresses_come_with_the_instance_and_the_names_before(world: World) -> None:
    world.put()
    world.turn()
    assert world.status["addresses"] == [
        {"type": "Hostname", "address": NAME},
        {"type": "InternalDNS", "address": NAME},
    ]

    world.turn()

    assert world.status["addresses"][0] == {"type": "InternalIP", "address": "10.0.0.1"}


def test_a_machine_with_a_node_runs_and_is_left_alone(world: World) -> None:
    world.running()

    assert world.turn() is None
    assert world.phase == "Running"


def test_a_running_machine_is_looked_at_and_never_touched(world: World) -> None:
    """An administrator who switches a VM off does not want it switched on by a controller."""
    world.running()
    world.yard.only(NAME).state = "off"
    world.yard.calls.clear()

    assert world.turn() == machine.WAITING

    assert world.yard.verbs() == ["exists"]
    assert (world.phase, world.status["providerStatus"]["instanceState"]) == ("Running", "off")
    assert world.machine["metadata"]["annotations"][objects.STATE_ANNOTATION] == "off"


def test_what_is_as_it_was_is_not_written_again(world: World) -> None:
    world.running()
    world.turn()
    world.api.calls.clear()
    world.clock.advance(600)

    world.turn()

    assert world.api.writes == []


def test_a_running_machine_without_an_address_is_looked_at_until_it_has_one(world: World) -> None:
    world.put()
    world.turn()
    world.yard.only(NAME).state = "up"
    world.join()

    assert world.turn() == machine.WAITING


def test_virtual_addresses_are_told_to_the_platform(world: World) -> None:
    told: list[contract.Machine] = []
    world.vips = ("10.0.0.250",)
    exists = world.yard.exists
    world.yard.exists = lambda wanted: (told.append(wanted), exists(wanted))[1]  # type: ignore[method-assign]
    world.put()

    world.turn()

    assert told[0].not_addresses == ("10.0.0.250",)


def test_times_are_those_of_the_last_change(world: World) -> None:
    world.put()
    world.turn()
    before = world.condition("InstanceExists")["lastTransitionTime"]
    world.clock.advance(60)

    world.turn()

    assert world.condition("InstanceExists")["lastTransitionTime"] == before
    assert world.status["lastUpdated"] > before


def test_a_health_check_counts_from_when_the_phase_began_whatever_else_is_said_meanwhile(world: World) -> None:
    world.running()
    since = world.status["lastUpdated"]
    world.clock.advance(60)
    world.yard.only(NAME).state = "off"

    world.turn()

    assert world.status["providerStatus"]["instanceState"] == "off"
    assert world.status["lastUpdated"] == since


def test_a_health_check_counts_on_while_an_instance_is_refused_again_and_again(world: World) -> None:
    world.yard.fail("create", errors.Transient("no room"), times=3)
    world.put()
    with pytest.raises(errors.Transient):
        world.turn()
    since = world.status["lastUpdated"]
    assert world.phase == "Provisioning"

    for _ in range(2):
        world.clock.advance(120)
        with pytest.raises(errors.Transient):
            world.turn()

    assert world.status["lastUpdated"] == since


def test_the_way_to_each_phase_is_measured_once_and_that_of_a_deletion_never(world: World) -> None:
    def counted() -> dict[str, float]:
        samples = (each for found in metrics.PHASE_TRANSITION.collect() for each in found.samples)
        return {each.labels["phase"]: each.value for each in samples if each.name.endswith("_count")}

    before = counted()
    world.running()
    world.turn()
    world.delete()
    world.run(lambda: world.is_gone)

    assert {phase: count - before.get(phase, 0.0) for phase, count in counted().items()} == {
        **dict.fromkeys(before, 0.0),
        "Provisioning": 1.0,
        "Provisioned": 1.0,
        "Running": 1.0,
    }


@pytest.mark.parametrize("label", ["", "other-abcde"])
def test_a_machine_of_no_or_another_cluster_is_told_so_and_left_alone(world: World, label: str) -> None:
    found = machine_object()
    found["metadata"]["labels"][objects.CLUSTER_LABEL] = label
    world.put(found)

    assert world.turn() is None

    assert world.yard.calls == []
    assert "finalizers" not in world.machine["metadata"]
    assert world.reasons() == ["FailedValidate"]
    found = world.condition("InstanceExists")
    assert (found["status"], found["reason"]) == ("Unknown", "FailedValidate")
    assert objects.CLUSTER_LABEL in found["message"]


def test_a_machine_that_is_gone_is_nobodys_business(world: World) -> None:
    assert world.turn() is None
    assert world.yard.calls == []


# -- hooks, pauses -----------------------------------------------------------------------------------------------------


def test_hooks_show_in_the_conditions(world: World) -> None:
    hooks = {
        "preDrain": [{"name": "MigrateApp", "owner": "app-operator"}, {"name": "Second", "owner": "me"}],
        "preTerminate": [{"name": "Keep", "owner": "storage"}],
    }
    world.put(machine_object(lifecycleHooks=hooks))

    world.turn()

    drainable, terminable = world.condition("Drainable"), world.condition("Terminable")
    assert (drainable["status"], drainable["reason"], drainable["severity"]) == ("False", "HookPresent", "Warning")
    assert drainable["message"] == (
        "Drain operation currently blocked by: [{Name:MigrateApp Owner:app-operator} {Name:Second Owner:me}]"
    )
    assert terminable["message"] == "Terminate operation currently blocked by: [{Name:Keep Owner:storage}]"


def test_without_hooks_it_may_be_drained_and_ended(world: World) -> None:
    world.put()

    world.turn()

    assert world.condition("Drainable")["status"] == world.condition("Terminable")["status"] == "True"


# -- writing beside others ---------------------------------------------------------------------------------------------


def test_who_read_an_outdated_machine_makes_nothing(world: World) -> None:
    world.put()
    world.api.change(kinds.MACHINE, NAME, NAMESPACE, lambda found: found["metadata"].update(finalizers=["f"]))
    world.cache.hold(KEY)
    world.change(lambda found: found["metadata"].setdefault("annotations", {}).update(seen="by another"))

    with pytest.raises(api_errors.Conflict) as late:
        world.turn()

    assert late.value.retry_after == machine.OUTDATED, "the cache has time to catch up"
    assert "create" not in world.yard.verbs()


def test_a_conflict_that_does_not_end_is_met_ever_later() -> None:
    """Somebody writes the machine all the time, such as two controllers of different minds."""
    world = World()
    world.put()
    world.cache.hold(KEY)
    world.change(lambda found: found["metadata"].setdefault("annotations", {}).update(seen="by another"))
    keys = queue.Queue(world.clock)
    worker = controller.Controller("machine", world.controller.reconcile, keys)
    pauses: list[float] = []
    again = keys.add_rate_limited

    def noted(key: str, *, at_least: float = 0.0) -> float:
        pauses.append(again(key, at_least=at_least))
        return pauses[-1]

    keys.add_rate_limited = noted  # type: ignore[method-assign]

    for _ in range(14):
        worker.step(KEY)

    assert pauses[0] == machine.OUTDATED
    assert pauses[-1] > 30.0
    assert pauses == sorted(pauses)


def test_two_controllers_with_the_same_view_make_one_instance() -> None:
    """The second was stopped after it had read the machine, and goes on when the first is done."""
    world = World(lag=1000.0)
    found = machine_object()
    found["metadata"]["finalizers"] = [objects.FINALIZER]
    world.put(found)
    world.cache.hold(KEY)
    first, second = world.controller, world.restarted()

    first.reconcile(KEY)
    with pytest.raises(api_errors.Conflict):
        second.reconcile(KEY)

    assert len(world.yard.instances) == 1


def test_a_machine_that_ends_while_it_is_looked_at_is_no_error(world: World) -> None:
    world.put()
    world.api.trouble("patch machines", api_errors.NotFound("gone", code=404))

    assert world.turn() is None


def test_others_words_in_the_status_survive(world: World) -> None:
    world.put()
    world.cache.hold(KEY)
    world.cache.release()
    world.turn()
    world.change(lambda found: found["status"].update(nodeRef={"name": NAME}, unheard="of"))

    world.turn()

    assert (world.status["nodeRef"], world.status["unheard"]) == ({"name": NAME}, "of")
