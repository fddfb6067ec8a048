"""A Machine that was copied with its instance's id: it stays the older one's, whatever becomes of the copy."""

from __future__ import annotations

from typing import Any

import pytest

from moorage.machines import objects
from moorage.machines.runtime import errors as api_errors
from moorage.machines.runtime import kinds
from tests.unit.machines.machine_world import NAME, NAMESPACE, KilledError, World, machine_object

COPY = "a-copy-of-it"
COPY_KEY = f"{NAMESPACE}/{COPY}"


@pytest.fixture
def world() -> World:
    """A Machine that runs, and an hour later a copy of it."""
    found = World()
    found.running()
    found.clock.advance(3600)
    copy = machine_object(COPY, providerID=found.machine["spec"]["providerID"])
    copy["metadata"]["finalizers"] = [objects.FINALIZER]
    found.put(copy)
    found.api.calls.clear()
    found.yard.calls.clear()
    return found


def the_copy(world: World) -> dict[str, Any]:
    found = world.api.have(kinds.MACHINE, COPY, NAMESPACE)
    assert found is not None, "the copy is gone"
    return found


def turn(world: World) -> float | None:
    return world.controller.reconcile(COPY_KEY).requeue_after


def delete_copy(world: World) -> None:
    """Somebody tidies it away, and it is seen to until it is gone."""
    world.api.delete(kinds.MACHINE, COPY, NAMESPACE)
    for _ in range(10):
        if world.api.have(kinds.MACHINE, COPY, NAMESPACE) is None:
            return
        world.clock.advance(turn(world) or 1.0)
    raise AssertionError("it does not end")


def test_a_copy_is_refused_with_the_name_of_the_other_and_what_to_do(world: World) -> None:
    assert turn(world) is None

    status = the_copy(world)["status"]
    assert (status["phase"], status["errorReason"]) == ("Failed", "InvalidConfiguration")
    assert f"Machine {NAME}," in status["errorMessage"]
    assert "without spec.providerID" in status["errorMessage"]
    exists = next(each for each in status["conditions"] if each["type"] == "InstanceExists")
    assert (exists["status"], exists["reason"]) == ("Unknown", "FailedValidate")
    assert world.yard.calls == [], "nothing was asked of the platform for it"


@pytest.mark.parametrize("before", ["refused", "not looked at yet"])
def test_the_end_of_a_copy_takes_nothing_along(world: World, before: str) -> None:
    world.pod("web-1")
    if before == "refused":
        turn(world)
    # Even if it has been taken for the node's machine once.
    reference = {"kind": "Node", "name": NAME, "uid": f"uid-of-{NAME}"}
    world.api.change(
        kinds.MACHINE, COPY, NAMESPACE, lambda found: found.setdefault("status", {}).update(nodeRef=reference)
    )

    delete_copy(world)

    assert world.yard.calls == []
    assert world.yard.only(NAME).state == "up"
    assert world.api.have(kinds.NODE, NAME) is not None
    assert not [call for call in world.api.calls if call.startswith(("evict", "patch nodes", "delete nodes"))]
    world.turn()
    assert world.phase == "Running"


def test_hooks_that_were_copied_too_do_not_keep_it(world: World) -> None:
    hooks = {when: [{"name": "Held", "owner": "somebody"}] for when in ("preDrain", "preTerminate")}
    world.api.change(kinds.MACHINE, COPY, NAMESPACE, lambda found: found["spec"].update(lifecycleHooks=hooks))

    delete_copy(world)

    assert world.yard.calls == []


def test_the_older_one_goes_as_ever(world: World) -> None:
    turn(world)
    world.delete()

    world.run(lambda: world.is_gone)

    assert world.yard.instances == []


def test_of_one_second_the_same_is_chosen_always() -> None:
    """By whichever is looked at: else both would be refused, or none."""
    world = World()
    world.running()
    copy = machine_object(COPY, providerID=world.machine["spec"]["providerID"])
    stamp = world.machine["metadata"]["creationTimestamp"]
    copy["metadata"] |= {"uid": "uid-0", "creationTimestamp": stamp}
    world.put(copy)

    turn(world)
    world.turn()

    assert (the_copy(world)["status"]["phase"], world.phase) == ("Provisioned", "Failed")


def test_a_cache_that_has_not_heard_of_the_others_end_does_not_leave_an_instance_behind(world: World) -> None:
    """Its finalizer was taken away by hand: nobody but the copy knows of the instance then."""
    world.cache.hold(f"{NAMESPACE}/{NAME}")
    world.change(lambda found: found["metadata"].update(finalizers=[]))
    world.delete()

    turn(world)
    assert the_copy(world)["status"]["phase"] == "Provisioned"
    delete_copy(world)

    assert world.yard.instances == []


def test_a_cache_that_has_not_heard_of_the_other_does_not_cost_its_instance(world: World) -> None:
    found = world.machine
    del world.api.objects[str(kinds.MACHINE), NAMESPACE, NAME]
    world.cache.hold(f"{NAMESPACE}/{NAME}")
    world.put(found)

    delete_copy(world)

    assert world.yard.calls == []


def test_nothing_is_decided_while_the_api_does_not_answer(world: World) -> None:
    world.api.trouble(f"get machines {NAMESPACE}/{NAME}", api_errors.Unavailable("out of reach"))

    with pytest.raises(api_errors.Unavailable):
        turn(world)

    assert "phase" not in the_copy(world).get("status", {})
    assert world.yard.calls == []


def test_who_does_not_lead_does_not_end_it(world: World) -> None:
    def check() -> None:
        raise KilledError

    world.check = check
    with pytest.raises(KilledError):
        delete_copy(world)

    assert objects.FINALIZER in the_copy(world)["metadata"]["finalizers"]


def test_who_was_never_copied_asks_nobody() -> None:
    """A thousand that go at once are not to ask for a thousand each."""
    world = World()
    world.running()
    world.delete()
    world.api.calls.clear()

    world.run(lambda: world.is_gone)

    assert not [call for call in world.api.calls if call.startswith(("get machines", "list machines"))]
