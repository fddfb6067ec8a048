"""The end of a Machine: hooks, pods, instance, node, object, in this order, each only when the one before is done."""

from __future__ import annotations

from typing import Any

import pytest

from moorage.engine import errors
from moorage.machines import machine_deletion, objects
from moorage.machines.runtime import errors as api_errors
from moorage.machines.runtime import kinds
from tests.unit.machines.machine_world import KEY, NAME, NAMESPACE, KilledError, World, machine_object, node


@pytest.fixture
def world() -> World:
    found = World()
    found.running()
    return found


def hold(world: World, when: str) -> None:
    hooks = {when: [{"name": "Held", "owner": "somebody"}]}
    world.change(lambda found: found["spec"].update(lifecycleHooks=hooks))


def test_everything_goes_in_order(world: World) -> None:
    world.pod("web-1")
    world.api.calls.clear()
    order: list[str] = world.api.calls
    world.yard.before = lambda call: order.append(f"platform {call}")
    world.delete()

    world.run(lambda: world.is_gone)

    telling = ("evict", "platform delete", "delete nodes")
    seen = [call for call in order if call.startswith(telling)]
    assert seen[0] == "evict app/web-1"
    assert seen[1:-1] == [f"platform delete {NAME}"] * 3
    assert seen[-1] == f"delete nodes {NAME}"
    assert order[-1] == f"patch machines {KEY}"
    assert world.yard.instances == []


def test_a_machine_that_is_to_go_says_so(world: World) -> None:
    hold(world, "preTerminate")
    world.delete()

    world.turn()

    assert world.phase == "Deleting"


def test_without_our_finalizer_it_is_not_ours_to_end(world: World) -> None:
    world.change(lambda found: found["metadata"].update(finalizers=["example.com/other"]))
    world.delete()
    world.yard.calls.clear()

    assert world.turn() is None

    assert world.yard.calls == []
    assert world.phase == "Running"


def test_others_finalizers_outlast_ours(world: World) -> None:
    world.change(lambda found: found["metadata"]["finalizers"].append("example.com/other"))
    world.delete()

    world.run(lambda: objects.FINALIZER not in world.machine["metadata"]["finalizers"])

    assert world.machine["metadata"]["finalizers"] == ["example.com/other"]
    assert world.yard.instances == []


# -- hooks -------------------------------------------------------------------------------------------------------------


def test_a_hook_before_draining_holds_everything(world: World) -> None:
    world.pod("web-1")
    hold(world, "preDrain")
    world.delete()

    assert world.turn() is None

    assert world.api.have(kinds.POD, "web-1", "app") is not None
    assert world.condition("Drained") == {}
    assert world.condition("Drainable")["status"] == "False"
    assert "DrainBlocked" in world.reasons()
    assert "delete" not in world.yard.verbs()


def test_a_hook_before_the_end_lets_pods_go_and_holds_the_instance(world: World) -> None:
    world.pod("web-1")
    hold(world, "preTerminate")
    world.delete()

    world.run(lambda: world.condition("Drained").get("status") == "True", seconds=60)

    assert world.turn() is None
    assert world.api.have(kinds.POD, "web-1", "app") is None
    assert world.condition("Terminable")["status"] == "False"
    assert "delete" not in world.yard.verbs()


@pytest.mark.parametrize("when", ["preDrain", "preTerminate"])
def test_a_hook_that_is_taken_away_lets_it_go_on(world: World, when: str) -> None:
    hold(world, when)
    world.delete()
    world.turn()

    world.change(lambda found: found["spec"].update(lifecycleHooks={}))
    world.run(lambda: world.is_gone)

    assert world.yard.instances == []


# -- draining ----------------------------------------------------------------------------------------------------------


def test_what_may_not_leave_holds_the_machine_and_is_named(world: World) -> None:
    world.pod("web-1")
    world.api.budgets["app", "web-1"] = "web-budget"
    world.delete()

    assert world.turn() == 5.0

    drained = world.condition("Drained")
    assert (drained["status"], drained["reason"], drained["severity"]) == ("False", "DrainError", "Warning")
    assert "web-budget" in drained["message"]
    assert "app/web-1" in drained["message"]
    assert "delete" not in world.yard.verbs()
    del world.api.budgets["app", "web-1"]
    world.run(lambda: world.is_gone)


@pytest.mark.parametrize("why", ["annotation", "no node"])
def test_draining_is_skipped(world: World, why: str) -> None:
    world.pod("web-1")
    if why == "annotation":
        world.change(lambda found: found["metadata"]["annotations"].update({objects.EXCLUDE_DRAIN: ""}))
    else:
        world.change(lambda found: found["status"].pop("nodeRef"))
    # A hook before draining holds what is drained.
    hold(world, "preDrain")
    world.delete()

    world.turn()

    assert (world.condition("Drained")["status"], world.condition("Drained")["message"]) == (
        "True",
        "Node drain skipped",
    )
    assert world.api.have(kinds.POD, "web-1", "app") is not None
    assert "delete" in world.yard.verbs()


def test_what_was_drained_is_not_drained_again(world: World) -> None:
    world.delete()
    world.turn()
    world.pod("daemonless")
    world.api.calls.clear()

    world.run(lambda: world.is_gone)

    assert not [call for call in world.api.calls if call.startswith(("evict", "list pods"))]


# -- the instance ------------------------------------------------------------------------------------------------------


def test_an_instance_that_is_going_is_waited_for() -> None:
    world = World(leaving=3)
    world.running()
    world.delete()

    assert world.turn() == machine_deletion.GOING

    assert world.api.have(kinds.NODE, NAME) is not None
    assert world.status["lastOperation"]["type"] == "Delete"
    assert world.status["lastOperation"]["state"] == "Processing"
    world.run(lambda: world.is_gone)
    assert world.yard.verbs().count("delete") == 5


@pytest.mark.parametrize(
    "failure",
    [errors.Transient("busy"), errors.Ambiguous("the connection broke"), errors.Unauthorized("refused")],
)
@pytest.mark.parametrize("after", [False, True])
def test_a_removal_that_fails_is_told_and_tried_again(world: World, failure: Exception, after: bool) -> None:
    world.yard.fail("delete", failure, after=after)
    world.clock.advance(3600)
    world.delete()

    with pytest.raises(type(failure)):
        world.turn()

    assert (world.status["lastOperation"]["type"], world.status["lastOperation"]["state"]) == ("Delete", "Failed")
    assert "FailedDelete" in world.reasons()
    world.run(lambda: world.is_gone)
    assert world.yard.instances == []


def test_a_refusal_for_good_does_not_lose_an_instance(world: World) -> None:
    world.yard.fail("delete", errors.Terminal("the spec makes no sense"))
    world.delete()

    with pytest.raises(errors.Terminal):
        world.turn()

    assert objects.FINALIZER in world.machine["metadata"]["finalizers"]


def test_a_refusal_does_not_lose_an_instance_that_nobody_sees_just_now(world: World) -> None:
    world.clock.advance(3600)
    world.yard.hide(NAME, 30.0)
    world.yard.fail("delete", errors.Terminal("the spec makes no sense"))
    world.delete()

    with pytest.raises(errors.Terminal):
        world.turn()

    assert objects.FINALIZER in world.machine["metadata"]["finalizers"]


@pytest.mark.parametrize("answer", ["lost", "heard"])
def test_a_failed_removal_does_not_end_the_wait_for_one_that_has_not_shown(answer: str) -> None:
    world = World(lag=40.0)
    if answer == "lost":
        world.yard.fail("create", errors.Ambiguous("the connection broke"), after=True)
    world.yard.fail("delete", errors.Transient("busy"))
    world.put()
    world.turn()
    world.delete()

    with pytest.raises(errors.Transient):
        world.turn()
    world.run(lambda: world.is_gone)

    assert world.yard.instances == []


def test_a_machine_that_never_made_sense_can_go() -> None:
    world = World()
    world.put(machine_object(providerSpec={}))
    world.turn()
    world.delete()
    world.yard.fail("delete", errors.Terminal("the spec makes no sense"))

    world.turn()

    assert world.is_gone


@pytest.mark.parametrize("label", ["", "other-abcde"])
def test_a_machine_whose_label_was_taken_away_can_go(world: World, label: str) -> None:
    world.change(lambda found: found["metadata"]["labels"].update({objects.CLUSTER_LABEL: label}))
    world.delete()

    world.run(lambda: world.is_gone)

    assert world.yard.instances == []


def test_one_that_was_asked_for_and_has_not_shown_is_waited_for() -> None:
    world = World(lag=40.0)
    world.yard.fail("create", errors.Ambiguous("the connection broke"), after=True)
    world.put()
    world.turn()
    world.delete()

    world.run(lambda: world.is_gone)

    assert world.yard.instances == []


def test_who_does_not_lead_removes_nothing(world: World) -> None:
    def check() -> None:
        raise KilledError

    world.check = check
    world.delete()

    with pytest.raises(KilledError):
        world.turn()

    assert "delete" not in world.yard.verbs()


# -- the node ----------------------------------------------------------------------------------------------------------


def test_a_node_goes_only_after_its_instance(world: World) -> None:
    world.delete()
    world.turn()
    assert world.api.have(kinds.NODE, NAME) is not None

    world.run(lambda: world.is_gone)

    assert world.api.have(kinds.NODE, NAME) is None


@pytest.mark.parametrize(
    ("uid", "marked", "goes"),
    [
        (f"uid-of-{NAME}", "", True),
        (f"uid-of-{NAME}", KEY, True),
        ("another", KEY, True),
        ("another", "", False),
        (f"uid-of-{NAME}", f"{NAMESPACE}/another", False),
    ],
)
def test_a_node_of_that_name_goes_if_it_is_the_machines(world: World, uid: str, marked: str, goes: bool) -> None:
    found = node()
    found["metadata"] |= {"uid": uid, "annotations": {objects.MACHINE_ANNOTATION: marked} if marked else {}}
    world.api.put(kinds.NODE, found)
    world.delete()

    world.run(lambda: world.is_gone)

    assert (world.api.have(kinds.NODE, NAME) is None) is goes


def test_a_node_that_is_gone_already_is_no_matter(world: World) -> None:
    world.api.delete(kinds.NODE, NAME)
    world.delete()

    world.run(lambda: world.is_gone)

    assert world.yard.instances == []


def test_a_node_that_is_replaced_in_the_last_moment_stays(world: World) -> None:
    world.delete()
    world.turn()
    world.turn()
    get = world.api.get

    def and_replace(*what: Any) -> Any:
        found = get(*what)
        world.api.put(kinds.NODE, {"metadata": {"name": NAME, "uid": "another"}})
        return found

    world.api.get = and_replace  # type: ignore[method-assign]
    world.turn()

    assert world.is_gone
    assert (world.api.have(kinds.NODE, NAME) or {})["metadata"]["uid"] == "another"


def test_a_node_that_cannot_be_removed_keeps_the_machine(world: World) -> None:
    world.delete()
    world.turn()
    world.turn()
    world.api.trouble("delete nodes", api_errors.Unavailable("out of reach"))

    with pytest.raises(api_errors.Unavailable):
        world.turn()
    assert not world.is_gone

    world.run(lambda: world.is_gone)
    assert world.api.have(kinds.NODE, NAME) is None


# -- a death at every call ---------------------------------------------------------------------------------------------


def _world() -> World:
    found = World(leaving=2)
    found.running()
    found.pod("web-1")
    found.delete()
    found.api.calls.clear()
    found.yard.calls.clear()
    return found


def _places() -> list[str]:
    world = _world()
    world.run(lambda: world.is_gone)
    return world.places()


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("place", _places())
def test_a_controller_that_is_killed_anywhere_leaves_nothing(place: str, when: str) -> None:
    world = _world()
    world.kill_at(place, when)

    world.outlive(lambda: world.is_gone)

    # The very last write ends the machine: who dies after it is not missed.
    assert world.deaths == 1 or (place, when) == (_places()[-1], "after")
    assert world.yard.instances == []
    assert world.api.have(kinds.NODE, NAME) is None
    assert world.api.have(kinds.POD, "web-1", "app") is None
