"""MachineSets: the number that is wanted, whatever is lost, late or done twice on the way."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from moorage.machines import machineset_names
from moorage.machines.runtime import errors, kinds
from tests.unit.machines import fleet
from tests.unit.machines.fleet import KEY, LABELS, PLACE, SET

LOST = errors.Unavailable("the connection broke")


@pytest.fixture
def berth() -> fleet.Fleet:
    return fleet.Fleet()


def finalize(berth: fleet.Fleet) -> None:
    """Let machines stay for a while when they are deleted, as their own controller has them do."""
    for name in berth.names():
        berth.edit_machine(name, lambda found: found["metadata"].update(finalizers=["machine.machine.openshift.io"]))


# -- the number --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("wanted", "made"), [(None, 1), (0, 0), (1, 1), (7, 7)])
def test_it_makes_as_many_as_are_wanted(berth: fleet.Fleet, wanted: int | None, made: int) -> None:
    berth.add_set(wanted)
    berth.settle()
    assert len(berth.names()) == made


def test_a_machine_is_what_the_template_says_and_the_sets_own(berth: fleet.Fleet) -> None:
    template = {
        "metadata": {"labels": {**LABELS, "more": "yes"}, "annotations": {"note": "x"}},
        "spec": {"providerSpec": {"value": {"size": 4}}, "taints": [{"key": "k", "effect": "NoSchedule"}]},
    }
    owner = berth.add_set(1, template=template)
    berth.settle()
    (name,) = berth.names()
    found = berth.machine(name)
    assert found is not None
    assert found["spec"] == template["spec"]
    assert found["metadata"]["labels"] == {**LABELS, "more": "yes"}
    assert found["metadata"]["annotations"] == {"note": "x"}
    assert found["metadata"]["ownerReferences"] == [fleet.reference(owner)]
    assert name.startswith(f"{SET}-")


def test_a_template_that_was_copied_from_a_machine_does_not_give_its_instance_away(berth: fleet.Fleet) -> None:
    spec = {"providerID": "yard://i-1", "providerSpec": {"value": {"size": 4}}}
    berth.add_set(2, template={"metadata": {"labels": dict(LABELS)}, "spec": spec})

    berth.settle()

    assert [(berth.machine(name) or {})["spec"] for name in berth.names()] == [
        {"providerSpec": {"value": {"size": 4}}}
    ] * 2


def test_it_shrinks_and_grows_with_its_replicas(berth: fleet.Fleet) -> None:
    berth.add_set(2)
    berth.settle()
    first = berth.names()
    berth.scale(4)
    berth.settle()
    assert len(berth.names()) == 4
    assert set(first) <= set(berth.names())
    berth.scale(1)
    berth.settle()
    assert len(berth.names()) == 1


def test_a_machine_that_goes_is_replaced_while_it_goes_by_one_of_another_name(berth: fleet.Fleet) -> None:
    berth.add_set(1)
    berth.settle()
    (old,) = berth.names()
    finalize(berth)
    berth.api.delete(kinds.MACHINE, old, PLACE)
    berth.settle()
    (new,) = berth.names()
    assert new != old
    assert berth.machine(old) is not None


def test_a_machine_that_is_gone_in_a_moment_is_replaced_by_one_of_another_name(berth: fleet.Fleet) -> None:
    berth.add_set(1)
    seen: list[str] = []
    for _ in range(5):
        berth.settle()
        (name,) = berth.names()
        seen.append(name)
        berth.api.delete(kinds.MACHINE, name, PLACE)
    assert len(set(seen)) == 5


def test_scaling_to_nothing_and_back_gives_new_names(berth: fleet.Fleet) -> None:
    berth.add_set(1)
    berth.settle()
    before = berth.names()
    for number in (0, 1):
        berth.scale(number)
        berth.settle()
    assert berth.names() != before


def test_a_set_at_rest_makes_no_call(berth: fleet.Fleet) -> None:
    berth.add_set(3)
    berth.settle()
    berth.reconcile()
    berth.api.calls.clear()
    berth.reconcile()
    assert berth.api.calls == []


# -- twice and never ---------------------------------------------------------------------------------------------------


def test_a_storm_of_events_on_a_stale_cache_makes_nothing_twice(berth: fleet.Fleet) -> None:
    berth.add_set(3)
    berth.sync()
    for _ in range(20):
        berth.controller.reconcile(KEY)
    assert len(berth.calls("create")) == 3
    assert len(berth.calls("list")) == 1, "what it has asked for is not even looked for before the cache has shown it"


def test_it_says_when_to_look_again_if_the_cache_never_catches_up(berth: fleet.Fleet) -> None:
    berth.add_set(3)
    berth.sync()
    assert berth.controller.reconcile(KEY).requeue_after == pytest.approx(300)
    berth.clock.advance(301)
    berth.controller.reconcile(KEY)
    assert len(berth.names()) == 3, "the list of the API itself shows that there are enough"


def test_a_storm_on_a_stale_cache_deletes_nothing_twice(berth: fleet.Fleet) -> None:
    berth.add_set(5)
    berth.settle()
    finalize(berth)
    berth.scale(3)
    berth.sync()
    for _ in range(20):
        berth.controller.reconcile(KEY)
    assert len(berth.calls("delete")) == 2
    assert len(berth.names()) == 3


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("which", range(4))
def test_a_create_whose_reply_is_lost_is_not_made_twice(berth: fleet.Fleet, when: str, which: int) -> None:
    berth.add_set(4)
    berth.sync()
    _lose(berth, which, when)
    with pytest.raises(errors.Unavailable):
        berth.controller.reconcile(KEY)
    berth.controller.reconcile(KEY)
    berth.settle()
    assert len(berth.names()) == 4
    assert len(set(berth.calls("create"))) == 4, (
        "what was not answered is asked for again under its own name, or was found"
    )


def _lose(berth: fleet.Fleet, which: int, when: str) -> None:
    """Let the create after so many others fail."""
    create, made = berth.api.create, iter(range(100))

    def failing(kind: kinds.Kind, content: Any) -> Any:
        if kind == kinds.MACHINE and next(made) == which:
            berth.api.trouble("create machines", LOST, when)
        return create(kind, content)

    berth.api.create = failing  # type: ignore[method-assign]


@pytest.mark.parametrize("cached", [False, True])
def test_a_create_that_arrives_after_its_client_has_given_up_is_found_by_its_name(
    berth: fleet.Fleet, cached: bool
) -> None:
    """The request was on its way: the list before the next attempt did not show it yet."""
    owner = berth.add_set(1)
    berth.sync()
    name = machineset_names.next_name(owner, machineset_names.Crew())
    listing = berth.api.list

    def overtaken(*args: Any, **named: Any) -> Any:
        found = listing(*args, **named)
        berth.add_machine(name, owner=owner)
        if cached:
            berth.machines.step()
        return found

    berth.api.list = overtaken  # type: ignore[method-assign]
    again = berth.controller.reconcile(KEY).requeue_after
    assert (again is None) is cached, "only what the cache has not shown yet is waited for"
    berth.settle()
    assert berth.names() == [name]


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_process_that_takes_over_with_an_old_cache_makes_nothing_twice(berth: fleet.Fleet, when: str) -> None:
    berth.add_set(3)
    berth.sync()
    berth.api.trouble("create machines", LOST, when)
    with pytest.raises(errors.Unavailable):
        berth.controller.reconcile(KEY)
    berth.boot()
    berth.sets.step()  # the set is known, its machines are not
    berth.controller.reconcile(KEY)
    berth.settle()
    assert len(berth.names()) == 3


def test_a_name_that_is_somebody_elses_is_not_taken_for_its_own(berth: fleet.Fleet) -> None:
    owner = berth.add_set(1)
    taken = machineset_names.next_name(owner, machineset_names.Crew())
    berth.add_machine(taken, metadata={"labels": {"other": "yes"}})
    berth.settle()
    assert len(berth.names()) == 2
    assert berth.status()["replicas"] == 1


def test_the_first_refusal_ends_the_attempt_and_is_told(berth: fleet.Fleet) -> None:
    berth.add_set(8)
    berth.sync()
    _lose(berth, 3, "before")
    with pytest.raises(errors.Unavailable):
        berth.controller.reconcile(KEY)
    assert len(berth.calls("create")) == 4
    assert berth.status()["replicas"] == 3
    failure = fleet.condition(berth.status(), "ReplicaFailure")
    assert (failure["status"], failure["reason"]) == ("True", "FailedCreate")
    assert berth.reasons() == ["ReconcileError"]
    berth.settle()
    assert len(berth.names()) == 8
    assert fleet.condition(berth.status(), "ReplicaFailure")["status"] == "False"


def test_a_deletion_that_fails_is_told_and_done_later(berth: fleet.Fleet) -> None:
    berth.add_set(2)
    berth.settle()
    berth.scale(0)
    berth.sync()
    berth.api.trouble("delete machines", LOST)
    with pytest.raises(errors.Unavailable):
        berth.controller.reconcile(KEY)
    assert fleet.condition(berth.status(), "ReplicaFailure")["reason"] == "FailedDelete"
    berth.settle()
    assert berth.names() == []


@pytest.mark.parametrize("gone", [errors.NotFound("gone", code=404), errors.Conflict("another", code=409)])
def test_what_has_gone_already_need_not_be_deleted(berth: fleet.Fleet, gone: errors.ApiError) -> None:
    berth.add_set(2)
    berth.settle()
    berth.scale(1)
    berth.sync()
    berth.api.trouble("delete machines", gone)
    assert berth.controller.reconcile(KEY).requeue_after is None, "nothing is waited for"


def test_deletions_are_of_the_very_machine_that_was_chosen(berth: fleet.Fleet) -> None:
    berth.add_set(1)
    berth.settle()
    berth.scale(0)
    berth.sync()
    seen: list[str] = []
    delete = berth.api.delete

    def noted(*args: Any, uid: str = "", **named: Any) -> None:
        seen.append(uid)
        delete(*args, uid=uid, **named)

    berth.api.delete = noted  # type: ignore[method-assign]
    (name,) = berth.names()
    machine = berth.machine(name)
    assert machine is not None
    berth.controller.reconcile(KEY)
    assert seen == [machine["metadata"]["uid"]]


def rest(berth: fleet.Fleet) -> None:
    """The set is left alone from now on, which is no change of its spec."""
    paused = {"cluster.x-k8s.io/paused": ""}
    berth.api.change(kinds.MACHINE_SET, SET, PLACE, lambda found: found["metadata"].update(annotations=paused))


#: What somebody does when they see that too many are made, or deleted, and how many there are to be then.
SECOND_THOUGHTS: dict[str, tuple[Callable[[fleet.Fleet], None], int | None]] = {
    "another number": (lambda berth: berth.scale(2), 2),
    "paused": (rest, None),
    "deleted": (lambda berth: berth.api.delete(kinds.MACHINE_SET, SET, PLACE), None),
}


@pytest.mark.parametrize(("corrected", "wanted"), SECOND_THOUGHTS.values(), ids=SECOND_THOUGHTS)
def test_no_more_are_made_once_that_is_not_wanted_any_longer(
    berth: fleet.Fleet, corrected: Callable[[fleet.Fleet], None], wanted: int | None
) -> None:
    berth.add_set(100)
    berth.sync()
    create = berth.api.create

    def and_correct(kind: kinds.Kind, content: Any) -> Any:
        made = create(kind, content)
        if len(berth.names()) == 5:
            corrected(berth)
            berth.sets.step()
        return made

    berth.api.create = and_correct  # type: ignore[method-assign]
    berth.controller.reconcile(KEY)
    assert len(berth.names()) == 5
    berth.settle()
    assert len(berth.names()) == (5 if wanted is None else wanted)


@pytest.mark.parametrize(("corrected", "wanted"), SECOND_THOUGHTS.values(), ids=SECOND_THOUGHTS)
def test_no_more_are_deleted_once_that_is_not_wanted_any_longer(
    berth: fleet.Fleet, corrected: Callable[[fleet.Fleet], None], wanted: int | None
) -> None:
    """Who typed a 0 too few has lost some, and not all."""
    berth.add_set(20)
    berth.settle()
    berth.scale(0)
    berth.sync()
    delete = berth.api.delete

    def and_correct(kind: kinds.Kind, *args: Any, **named: Any) -> None:
        delete(kind, *args, **named)
        if kind == kinds.MACHINE and len(berth.names()) == 17:
            corrected(berth)
            berth.sets.step()

    berth.api.delete = and_correct  # type: ignore[method-assign]
    berth.controller.reconcile(KEY)
    assert len(berth.names()) == 17
    berth.settle()
    assert len(berth.names()) == (17 if wanted is None else wanted)


def test_to_look_again_before_each_costs_no_call(berth: fleet.Fleet) -> None:
    berth.add_set(50)
    berth.sync()

    berth.controller.reconcile(KEY)

    assert len(berth.calls("create")) == 50
    assert len(berth.calls("get", "machinesets")) == 1


def test_a_set_that_has_changed_since_is_not_acted_upon(berth: fleet.Fleet) -> None:
    berth.add_set(3)
    berth.sync()
    berth.scale(0)
    berth.controller.reconcile(KEY)
    assert berth.calls("create") == []


@pytest.mark.parametrize("verb", ["create", "delete"])
def test_who_has_lost_the_lease_does_nothing(berth: fleet.Fleet, verb: str) -> None:
    berth.add_set(2)
    if verb == "delete":
        berth.settle()
        berth.scale(0)
    berth.sync()
    berth.leading = False
    berth.api.calls.clear()
    with pytest.raises(errors.NotLeader):
        berth.controller.reconcile(KEY)
    assert berth.api.writes == []
    berth.leading = True
    berth.settle()
    assert len(berth.names()) == (2 if verb == "create" else 0)
