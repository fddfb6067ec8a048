"""MachineHealthChecks: who is replaced and who is not, and what is said about it."""

from __future__ import annotations

import datetime
from typing import Any

import pytest

from moorage.machines.runtime import errors, kinds, metrics
from tests.unit.machines import fleet
from tests.unit.machines.fleet import CHECK, PLACE

LONG = datetime.timedelta(minutes=6)
CHECK_KEY = f"{PLACE}/{CHECK}"


@pytest.fixture
def ward() -> fleet.Fleet:
    """A check, and a set that has five machines, all of them well."""
    made = fleet.Fleet()
    made.add_check()
    owner = made.add_set(5)
    for number in range(5):
        made.add_machine(f"m{number}", owner=owner)
        made.become_node(f"m{number}")
    return made


def fall_ill(ward: fleet.Fleet, *names: str, since: datetime.timedelta = LONG) -> None:
    for name in names:
        ward.add_node(name, ready="Unknown", since=ward.clock.wall() - since)


def recover(ward: fleet.Fleet, *names: str) -> None:
    for name in names:
        ward.add_node(name)


def edit_check(ward: fleet.Fleet, **spec: Any) -> None:
    ward.api.change(kinds.MACHINE_HEALTH_CHECK, CHECK, PLACE, lambda found: found["spec"].update(spec))


def allowed(ward: fleet.Fleet) -> tuple[str, str]:
    found = fleet.condition(ward.check_status(), "RemediationAllowed")
    return found["status"], found.get("reason", "")


# -- the way it should be ----------------------------------------------------------------------------------------------


def test_all_are_well(ward: fleet.Fleet) -> None:
    assert ward.look().requeue_after is None
    status = ward.check_status()
    assert (status["expectedMachines"], status["currentHealthy"], status["remediationsAllowed"]) == (5, 5, 5)
    assert allowed(ward) == ("True", "")
    ward.api.calls.clear()
    ward.look()
    assert ward.api.calls == [], "when nothing has changed nothing is asked or written"


def test_a_machine_whose_node_is_sick_for_too_long_is_deleted_and_its_set_makes_another(ward: fleet.Fleet) -> None:
    fall_ill(ward, "m2")
    before = metrics.REMEDIATIONS.labels(CHECK, PLACE)._value.get()
    ward.look()
    assert "m2" not in ward.names()
    assert ward.reasons() == ["MachineDeleted"]
    assert metrics.REMEDIATIONS.labels(CHECK, PLACE)._value.get() == before + 1
    ward.settle()
    assert len(ward.names()) == 5


def test_it_is_looked_at_again_at_the_moment_when_it_would_be_too_long(ward: fleet.Fleet) -> None:
    fall_ill(ward, "m2", since=datetime.timedelta(seconds=100))
    fall_ill(ward, "m3", since=datetime.timedelta(seconds=40))
    assert ward.look().requeue_after == pytest.approx(201)
    assert len(ward.names()) == 5
    assert set(ward.reasons()) == {"DetectedUnhealthy"}
    assert ward.check_status()["currentHealthy"] == 3
    ward.clock.advance(201)
    ward.look()
    assert "m2" not in ward.names()
    assert "m3" in ward.names()


def test_nobody_waits_for_longer_than_an_hour(ward: fleet.Fleet) -> None:
    edit_check(ward, nodeStartupTimeout="9h")
    ward.add_machine("new", owner=ward.the_set())
    assert ward.look().requeue_after == 3600


def test_a_machine_that_never_becomes_a_node_is_deleted(ward: fleet.Fleet) -> None:
    ward.add_machine("late", owner=ward.the_set(), status={"lastUpdated": "2026-03-01T11:49:00Z"})
    ward.look()
    assert "late" not in ward.names()


def test_a_machine_that_has_failed_is_deleted_at_once(ward: fleet.Fleet) -> None:
    ward.edit_machine("m1", lambda found: found["status"].update(phase="Failed"))
    ward.look()
    assert "m1" not in ward.names()


def test_a_machine_whose_node_was_removed_is_deleted(ward: fleet.Fleet) -> None:
    ward.api.delete(kinds.NODE, "m1")
    ward.look()
    assert "m1" not in ward.names()


# -- caution -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("most", "ill", "is_allowed", "left"),
    [
        ("40%", 1, True, 1),
        ("40%", 2, True, 0),
        ("40%", 3, False, 0),
        (1, 1, True, 0),
        (1, 2, False, 0),
        ("0%", 1, False, 0),
        ("59%", 2, True, 0),
        ("100%", 5, True, 0),
    ],
)
def test_if_too_many_are_ill_none_is_touched(
    ward: fleet.Fleet, most: str | int, ill: int, is_allowed: bool, left: int
) -> None:
    edit_check(ward, maxUnhealthy=most)
    fall_ill(ward, *(f"m{number}" for number in range(ill)))
    ward.look()
    assert len(ward.names()) == (5 - ill if is_allowed else 5)
    assert allowed(ward) == (("True", "") if is_allowed else ("False", "TooManyUnhealthy"))
    assert ward.check_status()["remediationsAllowed"] == left
    assert ("RemediationRestricted" in ward.reasons()) is not is_allowed
    assert metrics.SHORT_CIRCUIT.labels(CHECK, PLACE)._value.get() == (not is_allowed)


def test_machines_that_start_or_go_count_as_not_healthy(ward: fleet.Fleet) -> None:
    edit_check(ward, maxUnhealthy=2)
    fall_ill(ward, "m0")
    ward.add_machine("new", owner=ward.the_set(), status={"lastUpdated": "2026-03-01T11:59:00Z"})
    going = {"deletionTimestamp": "2026-03-01T11:00:00Z", "finalizers": ["wait"]}
    ward.add_machine("old", owner=ward.the_set(), metadata=going)
    ward.look()
    assert "m0" in ward.names()
    assert ward.check_status()["expectedMachines"] == 7
    assert ward.check_status()["currentHealthy"] == 4


def test_when_enough_are_well_again_it_goes_on(ward: fleet.Fleet) -> None:
    edit_check(ward, maxUnhealthy=1)
    fall_ill(ward, "m0", "m1")
    ward.look()
    recover(ward, "m1")
    ward.look()
    assert "m0" not in ward.names()
    assert allowed(ward) == ("True", "")


def test_a_machine_without_a_controller_is_not_deleted_as_nobody_would_make_another(ward: fleet.Fleet) -> None:
    ward.add_machine("master-0", metadata={"labels": {**fleet.LABELS, "machine.openshift.io/role": "master"}})
    ward.become_node("master-0")
    fall_ill(ward, "master-0")
    ward.look()
    assert "master-0" in ward.names()
    assert ward.reasons() == ["SkippedNoController"]
    assert ward.check_status()["currentHealthy"] == 5


def test_a_machine_that_is_to_be_skipped_is_not_even_counted(ward: fleet.Fleet) -> None:
    fall_ill(ward, "m0")
    mark = {"cluster.x-k8s.io/skip-remediation": ""}
    ward.edit_machine("m0", lambda found: found["metadata"].update(annotations=mark))
    ward.look()
    assert "m0" in ward.names()
    assert ward.check_status()["expectedMachines"] == 4


def test_a_paused_check_does_nothing(ward: fleet.Fleet) -> None:
    ward.add_check(notes={"cluster.x-k8s.io/paused": ""})
    fall_ill(ward, "m0")
    ward.look()
    assert ward.api.calls == []


def test_machines_elsewhere_are_none_of_its_business(ward: fleet.Fleet) -> None:
    ward.add_machine("far", owner=ward.the_set(), metadata={"namespace": "elsewhere"}, status={"phase": "Failed"})
    ward.add_machine("other", owner=ward.the_set(), metadata={"labels": {"a": "b"}}, status={"phase": "Failed"})
    ward.look()
    assert ward.check_status()["expectedMachines"] == 5
    assert ward.calls("delete") == []


@pytest.mark.parametrize("spec", [{"maxUnhealthy": "many"}, {"nodeStartupTimeout": "soon"}])
def test_a_check_that_cannot_be_read_does_nothing_and_says_so(ward: fleet.Fleet, spec: fleet.Object) -> None:
    edit_check(ward, **spec)
    fall_ill(ward, "m0")
    ward.look()
    assert len(ward.names()) == 5
    assert allowed(ward) == ("False", "InvalidConfiguration")


# -- caches that lag ---------------------------------------------------------------------------------------------------


LAGS = (
    "the node is well again",
    "the machine was replaced by another of its name",
    "it is to be skipped now",
    "it is going already",
    "it is gone",
)


def behind(ward: fleet.Fleet, what: str) -> None:
    """Something changes for the better after the caches were filled."""
    if what == "the node is well again":
        recover(ward, "m0")
    elif what == "the machine was replaced by another of its name":
        ward.api.delete(kinds.MACHINE, "m0", PLACE)
        ward.add_machine("m0", owner=ward.the_set(), status={"nodeRef": {"name": "m0"}})
    elif what == "it is to be skipped now":
        mark = {"cluster.x-k8s.io/skip-remediation": ""}
        ward.edit_machine("m0", lambda found: found["metadata"].update(annotations=mark))
    elif what == "it is going already":
        going = {"deletionTimestamp": "2026-03-01T12:00:00Z", "finalizers": ["wait"]}
        ward.edit_machine("m0", lambda found: found["metadata"].update(going))
    else:
        ward.api.delete(kinds.MACHINE, "m0", PLACE)
    ward.api.calls.clear()


@pytest.mark.parametrize("what", LAGS)
def test_nothing_is_deleted_on_the_word_of_a_cache_alone(ward: fleet.Fleet, what: str) -> None:
    fall_ill(ward, "m0")
    ward.sync()
    behind(ward, what)
    ward.health.reconcile(CHECK_KEY)
    assert ward.calls("delete") == []


def test_a_node_that_the_cache_does_not_have_yet_is_not_missing(ward: fleet.Fleet) -> None:
    ward.add_machine("new", owner=ward.the_set())
    ward.sync()
    ward.become_node("new")
    ward.machines.step()
    ward.health.reconcile(CHECK_KEY)
    assert "new" in ward.names()


def test_who_has_lost_the_lease_deletes_nothing(ward: fleet.Fleet) -> None:
    fall_ill(ward, "m0")
    ward.leading = False
    with pytest.raises(errors.NotLeader):
        ward.look()
    assert ward.api.writes == []


def test_one_deletion_that_fails_does_not_keep_the_others_waiting(ward: fleet.Fleet) -> None:
    fall_ill(ward, "m0", "m1")
    ward.api.trouble("delete machines", errors.Unavailable("the connection broke"))
    with pytest.raises(errors.Unavailable):
        ward.look()
    assert "m1" not in ward.names()
    assert sorted(ward.reasons()) == ["MachineDeleted", "MachineDeletionFailed"]
    ward.look()
    assert "m0" not in ward.names()


# -- what makes it look ------------------------------------------------------------------------------------------------


def test_it_looks_when_something_has_changed_that_matters_and_not_otherwise(ward: fleet.Fleet) -> None:
    ward.sync()
    assert ward.check_keys.taken() == {CHECK_KEY}
    ward.edit_machine("m0", lambda found: found["status"].update(providerStatus={"state": "up"}))
    ward.api.change(kinds.NODE, "m1", "", lambda found: found["status"].update(images=["new"]))
    ward.add_node("stranger", ready="False")
    ward.sync()
    assert ward.check_keys.taken() == set()
    fall_ill(ward, "m0")
    ward.sync()
    assert ward.check_keys.taken() == {CHECK_KEY}
    ward.api.delete(kinds.NODE, "m1")
    ward.sync()
    assert ward.check_keys.taken() == {CHECK_KEY}
    ward.edit_machine("m2", lambda found: found["status"].update(phase="Failed"))
    ward.sync()
    assert ward.check_keys.taken() == {CHECK_KEY}
    ward.api.delete(kinds.MACHINE, "m3", PLACE)
    ward.sync()
    assert ward.check_keys.taken() == {CHECK_KEY}


def test_a_check_that_is_gone_is_no_longer_counted(ward: fleet.Fleet) -> None:
    ward.look()
    assert (CHECK, PLACE) in metrics.NODES_COVERED._metrics
    ward.api.delete(kinds.MACHINE_HEALTH_CHECK, CHECK, PLACE)
    ward.look()
    ward.look()
    assert (CHECK, PLACE) not in metrics.NODES_COVERED._metrics
