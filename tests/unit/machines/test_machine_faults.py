"""What goes wrong while a Machine is provided: specs that never work, refusals, lost answers, vanished instances."""

from __future__ import annotations

from typing import Any

import pytest

from moorage.engine import errors
from moorage.machines import machine, objects, user_data
from moorage.machines.runtime import errors as api_errors
from moorage.machines.runtime import kinds
from tests.unit.machines.machine_world import NAME, NAMESPACE, World, machine_object


@pytest.fixture
def world() -> World:
    return World()


def is_failed_for_good(world: World) -> bool:
    world.yard.calls.clear()
    world.clock.advance(3600)
    return world.turn() is None and world.phase == "Failed" and world.yard.calls == []


# -- specs that never work ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        ({"providerSpec": {}}, "spec.providerSpec.value"),
        ({"providerSpec": {"value": {"userDataSecret": {}}}}, "spec.providerSpec.value.userDataSecret.name"),
    ],
)
def test_an_invalid_spec_fails_with_its_field(world: World, spec: dict[str, Any], field: str) -> None:
    world.put(machine_object(**spec))

    world.turn()

    assert world.status["errorReason"] == "InvalidConfiguration"
    assert field in world.status["errorMessage"]
    assert "create" not in world.yard.verbs()
    assert is_failed_for_good(world)


def test_what_the_platform_refuses_for_good_fails_for_good(world: World) -> None:
    refusal = errors.Terminal("providerSpec.value.cpu.cores is 0", words="Cores must be positive")
    world.yard.fail("create", refusal)
    world.put()

    world.turn()

    assert world.status["errorReason"] == "InvalidConfiguration"
    assert world.status["errorMessage"] == "providerSpec.value.cpu.cores is 0: Cores must be positive"
    assert world.status["lastOperation"]["state"] == "Failed"
    (made,) = world.status["providerStatus"]["conditions"]
    assert (made["type"], made["status"], made["reason"]) == ("MachineCreated", "False", "MachineCreateFailed")
    assert world.machine["metadata"]["annotations"][objects.STATE_ANNOTATION] == "Unknown"
    assert {"FailedCreate", "Failed"} <= set(world.reasons())
    assert is_failed_for_good(world)


def test_an_instance_that_can_never_be_completed_fails(world: World) -> None:
    world.put()
    world.turn()
    world.yard.fail("update", errors.Terminal("there is no affinity group east"))

    world.turn()

    assert (world.phase, world.status["errorMessage"]) == ("Failed", "there is no affinity group east")
    assert world.status["providerStatus"]["instanceState"] == "Unknown"
    assert is_failed_for_good(world)


@pytest.mark.parametrize(("verb", "turns_before"), [("create", 0), ("update", 1)])
def test_a_machine_waits_for_room_and_says_so(world: World, verb: str, turns_before: int) -> None:
    """A host in maintenance, a full storage: somebody sees to it, and need not see to each machine as well."""
    world.yard.fail(verb, errors.Exhausted("start it: no host may run it", words="There is no host"))
    world.put()
    for _ in range(turns_before):
        world.turn()

    with pytest.raises(errors.Exhausted):
        world.turn()

    assert world.phase == "Provisioning"
    assert world.status["lastOperation"]["state"] == "Failed"
    assert world.status["lastOperation"]["description"] == "start it: no host may run it: There is no host"

    world.run(lambda: world.phase == "Provisioned")
    assert len(world.yard.instances) == 1


def test_a_failed_machine_can_be_deleted(world: World) -> None:
    world.put()
    world.turn()
    world.yard.fail("update", errors.Terminal("never"))
    world.turn()
    world.delete()

    world.run(lambda: world.is_gone)

    assert world.yard.instances == []


def test_a_failed_machine_keeps_its_finalizer(world: World) -> None:
    """Its half-built instance would be left behind without."""
    world.put()
    world.turn()
    world.yard.fail("update", errors.Terminal("never"))
    world.turn()
    world.change(lambda found: found["metadata"].update(finalizers=[]))

    world.turn()

    assert world.machine["metadata"]["finalizers"] == [objects.FINALIZER]


def test_a_running_machine_outlives_its_spec(world: World) -> None:
    world.running()
    world.change(lambda found: found["spec"].update(providerSpec={}))

    world.turn()

    assert world.phase == "Running"


def test_a_missing_object_besides_the_machine_is_an_error(world: World) -> None:
    """Else the machine would be taken for gone, and nobody would come again."""
    world.put()
    world.restarted(vips=lambda: world.api.get(kinds.INFRASTRUCTURE, "cluster"))

    with pytest.raises(api_errors.NotFound):
        world.turn()


# -- what may work later -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "failure",
    [
        errors.Transient("the engine is busy", retry_after=7.0),
        errors.Unauthorized("the password is refused"),
        errors.NotFound("there is no cluster yet"),
        errors.AlreadyExists("the name is taken"),
    ],
)
def test_a_refused_create_is_told_and_tried_again_at_once(world: World, failure: errors.PlatformFailure) -> None:
    world.yard.fail("create", failure)
    world.put()

    with pytest.raises(type(failure)):
        world.turn()

    assert world.phase == "Provisioning"
    assert world.status["lastOperation"]["state"] == "Failed"
    assert world.status["lastOperation"]["description"] == failure.message
    assert "errorReason" not in world.status
    assert world.reasons() == ["FailedCreate"]
    world.turn()
    assert len(world.yard.instances) == 1


@pytest.mark.parametrize("is_running", [False, True])
def test_a_platform_that_cannot_be_asked_leaves_everything_as_it_is(world: World, is_running: bool) -> None:
    if is_running:
        world.running()
    else:
        world.put()
    phase = world.machine.get("status", {}).get("phase")
    world.yard.fail("exists", errors.Transient("the engine is away"), times=5)

    for _ in range(5):
        with pytest.raises(errors.Transient):
            world.turn()
        world.clock.advance(3600)

    exists = world.condition("InstanceExists")
    assert (exists["status"], exists["reason"]) == ("Unknown", "ErrorCheckingProvider")
    assert "the engine is away" in exists["message"]
    assert world.status.get("phase") == phase
    assert len(world.yard.instances) == int(is_running)


def test_a_running_machine_is_not_failed_by_a_refusal(world: World) -> None:
    world.running()
    world.yard.fail("exists", errors.Terminal("this makes no sense"))

    with pytest.raises(errors.Terminal):
        world.turn()

    assert world.phase == "Running"


def test_an_update_that_fails_is_told_and_tried_again(world: World) -> None:
    world.put()
    world.turn()
    world.yard.fail("update", errors.Transient("the disk is locked"))

    with pytest.raises(errors.Transient):
        world.turn()

    assert (world.phase, world.status["lastOperation"]["type"]) == ("Provisioning", "Update")
    assert world.status["lastOperation"]["description"] == "the disk is locked"
    world.turn()
    assert world.phase == "Provisioned"


def test_user_data_is_waited_for(world: World) -> None:
    secret = world.api.have(kinds.SECRET, "worker-user-data", NAMESPACE)
    world.api.delete(kinds.SECRET, "worker-user-data", NAMESPACE)
    world.put()

    with pytest.raises(errors.Transient, match="worker-user-data"):
        world.turn()
    assert "create" not in world.yard.verbs()
    assert "worker-user-data" in world.status["lastOperation"]["description"]

    assert secret is not None
    world.api.put(kinds.SECRET, secret)
    world.turn()
    assert len(world.yard.instances) == 1


@pytest.mark.parametrize("data", [{}, {"userData": ""}, {"userData": "%%%"}, None])
def test_a_secret_without_user_data_makes_no_machine(world: World, data: dict[str, str] | None) -> None:
    world.api.change(kinds.SECRET, "worker-user-data", NAMESPACE, lambda found: found.update(data=data))
    world.put()

    with pytest.raises(errors.Transient, match="has no userData"):
        world.turn()

    assert world.yard.instances == []


def test_a_secret_is_read_once_for_many_and_again_after_a_while(world: World) -> None:
    reader = user_data.UserData(world.api, world.clock)  # type: ignore[arg-type]

    for _ in range(10):
        reader.of(machine_object())
    assert world.api.calls.count(f"get secrets {NAMESPACE}/worker-user-data") == 1

    world.clock.advance(user_data.KEPT)
    reader.of(machine_object())
    assert world.api.calls.count(f"get secrets {NAMESPACE}/worker-user-data") == 2


# -- lost answers ------------------------------------------------------------------------------------------------------


def test_a_create_whose_answer_is_lost_is_looked_for_and_adopted(world: World) -> None:
    world.yard.fail("create", errors.Ambiguous("the connection broke"), after=True)
    world.put()

    assert world.turn() == machine.UNANSWERED
    assert "providerID" not in world.machine["spec"]
    world.turn()

    assert world.machine["spec"]["providerID"] == world.yard.only(NAME).provider_id
    assert world.yard.verbs().count("create") == 1


def test_one_that_shows_late_is_waited_for_and_not_made_twice() -> None:
    world = World(lag=40.0)
    world.yard.fail("create", errors.Ambiguous("the connection broke"), after=True)
    world.put()

    world.run(lambda: world.phase == "Provisioned")

    assert world.yard.verbs().count("create") == 1
    assert len(world.yard.instances) == 1


def test_one_that_never_shows_is_made_after_a_while(world: World) -> None:
    world.yard.fail("create", errors.Ambiguous("the connection broke"))
    world.put()
    world.turn()

    world.clock.advance(30)
    world.turn()
    assert world.yard.verbs().count("create") == 1, "it might yet show"
    world.clock.advance(31)
    world.turn()

    assert len(world.yard.instances) == 1


def test_one_that_was_seen_once_is_never_made_again(world: World) -> None:
    """Found by name, then missed by the very next look: its id must have been written down in between."""
    world.yard.create(objects.wanted(machine_object(), b"", "harbour-x7k2p"))
    world.yard.before = lambda call: world.yard.hide(NAME, 10.0) if call.startswith("update") else None
    world.put()

    world.turn()
    world.yard.before = lambda _call: None
    world.run(lambda: world.phase == "Provisioned")

    assert len(world.yard.instances) == 1


# -- instances that vanish ---------------------------------------------------------------------------------------------


def test_a_vanished_instance_fails_its_machine_at_the_second_miss(world: World) -> None:
    world.running()
    world.sink()

    wanted = world.turn()

    exists = world.condition("InstanceExists")
    assert (world.phase, exists["status"], exists["reason"]) == ("Running", "Unknown", "InstanceMissing")
    assert wanted is not None
    world.clock.advance(wanted)
    world.turn()
    exists = world.condition("InstanceExists")
    assert (world.phase, exists["status"], exists["severity"]) == ("Failed", "False", "Warning")
    assert exists["message"] == "Instance not found on provider"
    assert "can't find created instance yard://i-1" in world.status["errorMessage"]
    assert "errorReason" not in world.status
    assert world.status["providerStatus"]["instanceState"] == "Unknown"
    assert is_failed_for_good(world)


def test_two_misses_in_a_hurry_are_one(world: World) -> None:
    world.running()
    world.sink()

    for _ in range(5):
        world.turn()
        world.clock.advance(5)

    assert world.phase == "Running"


def test_one_that_comes_back_is_forgiven_and_doubted_anew(world: World) -> None:
    world.running()
    world.fall_silent()
    world.yard.hide(NAME, 30.0)
    world.turn()
    world.clock.advance(45)
    world.turn()
    assert world.condition("InstanceExists")["status"] == "True"

    world.yard.hide(NAME, 30.0)
    world.turn()

    assert world.phase == "Running"


def test_a_miss_outlives_the_controller(world: World) -> None:
    world.running()
    world.sink()
    world.turn()
    world.clock.advance(120)

    world.restarted()
    world.turn()

    assert world.phase == "Failed"


def test_one_that_vanishes_half_built_is_given_up_with_the_platforms_words(world: World) -> None:
    world.put()
    world.turn()
    world.yard.sink(NAME)

    world.run(lambda: world.phase == "Failed", seconds=300)

    assert world.status["errorMessage"].endswith(": it sank")
    assert world.yard.instances == []


def test_another_instance_of_that_name_is_not_the_machines(world: World) -> None:
    """Nodes and volumes refer to an instance by its id: it cannot be exchanged below them."""
    world.running()
    world.sink()
    world.yard.create(objects.wanted(machine_object(), b"", "harbour-x7k2p"))

    world.run(lambda: world.phase == "Failed", seconds=300)

    assert world.machine["spec"]["providerID"] == "yard://i-1"
    assert "yard://i-2" in world.status["errorMessage"]
