"""MachineSets: whose machine it is, sets that contradict themselves, sets that are to be left alone."""

from __future__ import annotations

import pytest

from moorage.machines import machineset_claims
from moorage.machines.runtime import errors, kinds
from tests.unit.machines import fleet
from tests.unit.machines.fleet import KEY, LABELS, PLACE, SET


@pytest.fixture
def berth() -> fleet.Fleet:
    return fleet.Fleet()


# -- whose machine it is -----------------------------------------------------------------------------------------------


def test_an_orphan_that_matches_is_adopted_and_counts(berth: fleet.Fleet) -> None:
    owner = berth.add_set(2)
    berth.add_machine("stray")
    berth.settle()
    stray = berth.machine("stray")
    assert stray is not None
    assert stray["metadata"]["ownerReferences"] == [fleet.reference(owner)]
    assert len(berth.names()) == 2


def test_an_orphan_that_comes_later_is_one_too_many(berth: fleet.Fleet) -> None:
    berth.add_set(1)
    berth.settle()
    berth.add_machine("stray")
    berth.settle()
    assert len(berth.names()) == 1


def _other(kind: str) -> fleet.Object:
    return {"apiVersion": "example.com/v1", "kind": kind, "metadata": {"name": "other", "uid": "uid-other"}}


UNTOUCHED: dict[str, fleet.Object] = {
    "labels that do not match": {"labels": {"other": "yes"}},
    "another controller": {"ownerReferences": [fleet.reference(_other("Owner"))]},
    "a set of the same name that was there before": {
        "ownerReferences": [{**fleet.reference(_other("MachineSet")), "name": SET}]
    },
    "it is going": {"deletionTimestamp": "2026-03-01T12:00:00Z", "finalizers": ["wait"]},
    "another namespace": {"namespace": "elsewhere"},
}


@pytest.mark.parametrize("meta", UNTOUCHED.values(), ids=UNTOUCHED)
def test_these_are_not_adopted(berth: fleet.Fleet, meta: fleet.Object) -> None:
    berth.add_set(1)
    before = berth.add_machine("stray", metadata=meta)
    berth.settle()
    place = meta.get("namespace", PLACE)
    assert berth.api.have(kinds.MACHINE, "stray", place) == before
    assert berth.status()["replicas"] == 1


def test_an_owner_that_is_no_controller_is_kept_beside_the_set(berth: fleet.Fleet) -> None:
    owner = berth.add_set(1)
    other = fleet.reference(_other("Owner"), is_controller=False)
    berth.add_machine("stray", metadata={"ownerReferences": [other]})
    berth.settle()
    stray = berth.machine("stray")
    assert stray is not None
    assert stray["metadata"]["ownerReferences"] == [other, fleet.reference(owner)]


def test_a_set_that_owned_it_without_control_is_not_named_twice(berth: fleet.Fleet) -> None:
    owner = berth.add_set(1)
    berth.add_machine("stray", metadata={"ownerReferences": [fleet.reference(owner, is_controller=False)]})
    berth.settle()
    stray = berth.machine("stray")
    assert stray is not None
    assert stray["metadata"]["ownerReferences"] == [fleet.reference(owner)]


def test_a_machine_that_matches_no_longer_is_released_and_replaced(berth: fleet.Fleet) -> None:
    berth.add_set(1)
    berth.settle()
    (name,) = berth.names()
    berth.edit_machine(name, lambda found: found["metadata"].update(labels={"quarantine": "yes"}))
    berth.settle()
    released = berth.machine(name)
    assert released is not None
    assert machineset_claims.controller_uid(released) == ""
    assert len(berth.names()) == 2
    assert berth.status()["replicas"] == 1


def test_an_orphan_that_has_changed_meanwhile_is_judged_again_and_not_replaced(berth: fleet.Fleet) -> None:
    berth.add_set(1)
    berth.add_machine("stray")
    berth.sync()
    berth.edit_machine("stray", lambda found: found["metadata"].update(annotations={"touched": "yes"}))
    with pytest.raises(errors.Conflict):
        berth.controller.reconcile(KEY)
    assert berth.calls("create") == []
    berth.settle()
    assert berth.names() == ["stray"]


@pytest.mark.parametrize("state", ["deleted", "made anew", "gone"])
def test_a_set_that_is_no_more_adopts_nothing(berth: fleet.Fleet, state: str) -> None:
    """The cache still shows it as it was."""
    berth.add_set(1)
    berth.add_machine("stray")
    berth.sync()
    if state == "deleted":
        berth.edit_set(lambda found: found["metadata"].update(deletionTimestamp="2026-03-01T12:00:00Z"))
    else:
        berth.api.delete(kinds.MACHINE_SET, SET, PLACE)
        berth.add_set(1) if state == "made anew" else None
    # Another has the name now: the status that was worked out is not its own.
    if state == "made anew":
        with pytest.raises(errors.Conflict):
            berth.controller.reconcile(KEY)
    else:
        berth.controller.reconcile(KEY)
    stray = berth.machine("stray")
    assert stray is not None
    assert "ownerReferences" not in stray["metadata"]
    assert berth.names() == ["stray"]


def test_a_set_that_is_deleted_is_left_to_the_garbage_collector(berth: fleet.Fleet) -> None:
    berth.add_set(3)
    berth.settle()
    berth.edit_set(
        lambda found: found["metadata"].update(
            deletionTimestamp="2026-03-01T12:00:00Z", finalizers=["foregroundDeletion"]
        )
    )
    berth.api.delete(kinds.MACHINE, berth.names()[0], PLACE)
    berth.api.calls.clear()
    berth.settle()
    assert berth.api.writes == []
    assert len(berth.names()) == 2


def test_a_set_that_is_gone_is_forgotten(berth: fleet.Fleet) -> None:
    berth.add_set(1)
    berth.settle()
    berth.api.delete(kinds.MACHINE_SET, SET, PLACE)
    assert berth.reconcile().requeue_after is None
    assert len(berth.names()) == 1


# -- sets that contradict themselves -----------------------------------------------------------------------------------

WRONG: dict[str, tuple[fleet.Object, str]] = {
    "labels do not match": ({"selector": {"matchLabels": {"other": "yes"}}}, "does not match"),
    "empty selector": ({"selector": {}}, "is empty"),
    "unknown operator": ({"selector": {"matchExpressions": [{"key": "a", "operator": "Near"}]}}, "unknown operator"),
    "In without values": ({"selector": {"matchExpressions": [{"key": "a", "operator": "In"}]}}, "needs values"),
    "unknown policy": ({"deletePolicy": "Fairest"}, "Fairest"),
    "less than none": ({"replicas": -1}, "less than 0"),
}


@pytest.mark.parametrize(("spec", "words"), WRONG.values(), ids=WRONG)
def test_a_set_that_contradicts_itself_says_so_and_does_nothing(
    berth: fleet.Fleet, spec: fleet.Object, words: str
) -> None:
    berth.add_set(**{"replicas": 2, **spec})
    berth.add_machine("stray")
    berth.settle()
    assert berth.names() == ["stray"]
    status = berth.status()
    assert status["errorReason"] == "InvalidConfiguration"
    assert words in status["errorMessage"]
    assert fleet.condition(status, "ReplicaFailure")["reason"] == "InvalidConfiguration"
    assert status["observedGeneration"] == 1
    assert berth.reasons() == ["ReconcileError"]


def test_a_set_that_is_corrected_is_looked_after_and_says_nothing_wrong_any_more(berth: fleet.Fleet) -> None:
    berth.add_set(2, deletePolicy="Fairest")
    berth.settle()
    berth.edit_set(lambda found: found["spec"].update(deletePolicy="Oldest"))
    berth.settle()
    assert len(berth.names()) == 2
    assert "errorReason" not in berth.status()
    assert "errorMessage" not in berth.status()
    assert fleet.condition(berth.status(), "ReplicaFailure")["status"] == "False"


def test_expressions_select_too(berth: fleet.Fleet) -> None:
    expressions = [{"key": next(iter(LABELS)), "operator": "Exists"}, {"key": "old", "operator": "DoesNotExist"}]
    berth.add_set(1, selector={"matchExpressions": expressions})
    berth.add_machine("old", metadata={"labels": {**LABELS, "old": "yes"}})
    berth.sync()
    listing = berth.api.list
    berth.api.list = lambda kind, place, **named: listing(kind, place)  # type: ignore[method-assign]
    berth.settle()
    assert len(berth.names()) == 2
    assert berth.status()["labelSelector"] == f"{next(iter(LABELS))},!old"


# -- paused ------------------------------------------------------------------------------------------------------------


def test_a_paused_set_is_left_alone_until_it_is_not(berth: fleet.Fleet) -> None:
    berth.add_set(2)
    pause: fleet.Object = {"cluster.x-k8s.io/paused": ""}
    berth.api.change(kinds.MACHINE_SET, SET, PLACE, lambda found: found["metadata"].update(annotations=pause))
    berth.settle()
    assert berth.names() == []
    assert fleet.condition(berth.status(), "Paused")["status"] == "True"
    berth.api.change(kinds.MACHINE_SET, SET, PLACE, lambda found: found["metadata"].update(annotations={}))
    berth.settle()
    assert len(berth.names()) == 2
    assert fleet.condition(berth.status(), "Paused")["status"] == "False"


def test_a_pause_that_the_cache_does_not_show_yet_holds(berth: fleet.Fleet) -> None:
    berth.add_set(2)
    berth.sync()
    pause = {"cluster.x-k8s.io/paused": "true"}
    berth.api.change(kinds.MACHINE_SET, SET, PLACE, lambda found: found["metadata"].update(annotations=pause))
    berth.controller.reconcile(KEY)
    assert berth.names() == []
