"""What MachineSets are made of: counts, hints for the autoscaler, names, expectations, selectors."""

from __future__ import annotations

import datetime
from typing import Any

import hypothesis
import pytest
from hypothesis import strategies

from moorage.engine import clock as clocks
from moorage.engine import errors as engine_errors
from moorage.machines import capacity, expectations, machineset_names, selectors
from moorage.machines.runtime import kinds
from moorage.platforms.ovirt import machine as ovirt
from tests.unit.machines import fleet
from tests.unit.machines.fleet import KEY, LABELS, PLACE, SET

# -- counts ------------------------------------------------------------------------------------------------------------


def test_the_status_tells_how_many_are_of_use() -> None:
    berth = fleet.Fleet()
    berth.add_set(4, template={"metadata": {"labels": {**LABELS, "tier": "gold"}}, "spec": {}})
    berth.settle()
    first, second, third, fourth = berth.names()
    berth.edit_machine(first, lambda found: found["metadata"]["labels"].pop("tier"))
    berth.become_node(second)
    berth.become_node(third, ready="Unknown")
    berth.edit_machine(fourth, lambda found: found.setdefault("status", {}).update(nodeRef={"name": "not there"}))
    berth.settle()
    status = berth.status()
    assert status["replicas"] == 4
    assert status["fullyLabeledReplicas"] == 3
    assert status["readyReplicas"] == 1
    assert status["availableReplicas"] == 1
    assert status["observedGeneration"] == 1
    assert status["labelSelector"] == f"{next(iter(LABELS))}={SET}"


def test_what_is_going_does_not_count() -> None:
    berth = fleet.Fleet()
    owner = berth.add_set(0)
    berth.add_machine("old", owner=owner, metadata={"deletionTimestamp": "2026-03-01T12:00:00Z", "finalizers": ["x"]})
    berth.settle()
    assert berth.status()["replicas"] == 0


def test_a_node_that_becomes_ready_is_counted_and_one_that_only_reports_is_not_looked_at() -> None:
    berth = fleet.Fleet()
    berth.add_set(1)
    berth.settle()
    (name,) = berth.names()
    berth.become_node(name, ready="False")
    berth.settle()
    berth.api.change(kinds.NODE, name, "", lambda found: found["status"]["conditions"][0].update(status="True"))
    berth.sync()
    assert berth.keys.taken() == {KEY}
    berth.controller.reconcile(KEY)
    assert berth.status()["readyReplicas"] == 1
    berth.sync()
    berth.keys.taken()
    berth.api.change(kinds.NODE, name, "", lambda found: found["status"].update(images=["new"]))
    berth.edit_machine(name, lambda found: found["status"].update(providerStatus={"state": "up"}))
    berth.sync()
    assert berth.keys.taken() == set()


@pytest.mark.parametrize(
    ("least", "ready_for", "available", "again"),
    [(0, 0, 1, None), (60, 0, 0, 61), (60, 59, 0, 2), (60, 60, 0, 1), (60, 61, 1, None)],
)
def test_a_machine_is_available_when_its_node_has_been_ready_for_long_enough(
    least: int, ready_for: int, available: int, again: float | None
) -> None:
    berth = fleet.Fleet()
    owner = berth.add_set(1, minReadySeconds=least)
    berth.add_machine("m", owner=owner)
    berth.become_node("m", since=berth.clock.wall() - datetime.timedelta(seconds=ready_for))
    assert berth.reconcile().requeue_after == again
    assert berth.status()["readyReplicas"] == 1
    assert berth.status()["availableReplicas"] == available


# -- hints for the autoscaler ------------------------------------------------------------------------------------------

OVIRT = {
    "apiVersion": "ovirtproviderconfig.machine.openshift.io/v1beta1",
    "cluster_id": "c",
    "template_name": "t",
    "cpu": {"cores": 4, "sockets": 2, "threads": 2},
    "memory_mb": 16384,
}


def hinted(spec: Any, reading: capacity.Reading | None) -> dict[str, str]:
    berth = fleet.Fleet(reading)
    template = {"metadata": {"labels": dict(LABELS)}, "spec": {"providerSpec": {"value": spec}}}
    berth.add_set(0, template=template)
    notes = {"mine": "stays", "machine.openshift.io/vCPU": "99"}
    berth.api.change(kinds.MACHINE_SET, SET, PLACE, lambda found: found["metadata"].update(annotations=notes))
    berth.settle()
    berth.api.calls.clear()
    berth.reconcile()
    assert berth.api.writes == [], "what is written is not written again"
    found: dict[str, str] = berth.the_set()["metadata"]["annotations"]
    return found


def test_a_set_on_ovirt_tells_what_its_machines_would_bring() -> None:
    assert hinted(OVIRT, capacity.reading(ovirt)) == {
        "mine": "stays",
        "machine.openshift.io/vCPU": "16",
        "machine.openshift.io/memoryMb": "16384",
        "capacity.cluster-autoscaler.kubernetes.io/cpu": "16",
        "capacity.cluster-autoscaler.kubernetes.io/memory": "16384Mi",
    }


def test_accelerators_are_told_too() -> None:
    found = hinted({"any": 1}, lambda spec: {"GPU": 2})
    assert found["machine.openshift.io/GPU"] == "2"
    assert found["capacity.cluster-autoscaler.kubernetes.io/gpu-count"] == "2"
    assert found["capacity.cluster-autoscaler.kubernetes.io/gpu-type"] == "nvidia.com/gpu"


CA = "capacity.cluster-autoscaler.kubernetes.io"


@pytest.mark.parametrize("own", [{"cpu": "3500m"}, {"memory": "12Gi"}, {"gpu-count": "1"}, {"gpu-type": "amd.com/gpu"}])
def test_what_a_user_tells_the_autoscaler_stays(own: dict[str, str]) -> None:
    """They know what the system keeps for itself; and it stays when the template is changed."""
    told = {"vCPU": 4, "memoryMb": 16384, "GPU": 2}
    berth = fleet.Fleet(lambda spec: told)
    berth.add_set(0)
    notes = {f"{CA}/{key}": value for key, value in own.items()}
    berth.api.change(kinds.MACHINE_SET, SET, PLACE, lambda found: found["metadata"].update(annotations=dict(notes)))
    berth.settle()

    told |= {"vCPU": 8, "memoryMb": 32768, "GPU": 4}
    berth.reconcile()

    assert berth.the_set()["metadata"]["annotations"] == {
        "machine.openshift.io/vCPU": "8",
        "machine.openshift.io/memoryMb": "32768",
        "machine.openshift.io/GPU": "4",
        f"{CA}/cpu": "8",
        f"{CA}/memory": "32768Mi",
        f"{CA}/gpu-count": "4",
        f"{CA}/gpu-type": "nvidia.com/gpu",
        **notes,
    }


def refused(spec: Any) -> dict[str, int]:
    raise engine_errors.Terminal("no such thing")


UNHINTED: dict[str, tuple[Any, capacity.Reading | None]] = {
    "the platform does not tell": (OVIRT, capacity.reading(object())),
    "only the engine knows the instance type": (
        {**OVIRT, "cpu": None, "memory_mb": 0, "instance_type_id": "x"},
        capacity.reading(ovirt),
    ),
    "the spec is wrong": ({**OVIRT, "memory_mb": "much"}, capacity.reading(ovirt)),
    "the platform refuses it": ({"any": 1}, refused),
    "there is no spec": (None, capacity.reading(ovirt)),
}


@pytest.mark.parametrize(("spec", "reading"), UNHINTED.values(), ids=UNHINTED)
def test_what_is_not_known_is_not_told(spec: Any, reading: capacity.Reading | None) -> None:
    assert hinted(spec, reading) == {"mine": "stays", "machine.openshift.io/vCPU": "99"}


# -- names -------------------------------------------------------------------------------------------------------------

A_SET = {"metadata": {"name": SET, "uid": "u", "generation": 3}}
UIDS = strategies.lists(strategies.uuids().map(str), unique=True, max_size=8)


def crew(uids: list[str]) -> machineset_names.Crew:
    return machineset_names.Crew.of({"metadata": {"uid": uid}} for uid in uids)


@hypothesis.given(UIDS, strategies.randoms())
def test_a_name_follows_from_the_machines_in_whatever_order(uids: list[str], chance: Any) -> None:
    shuffled = list(uids)
    chance.shuffle(shuffled)
    assert machineset_names.next_name(A_SET, crew(uids)) == machineset_names.next_name(A_SET, crew(shuffled))


@hypothesis.given(UIDS)
def test_machines_that_come_one_by_one_add_up_to_the_same(uids: list[str]) -> None:
    grown = machineset_names.Crew()
    for uid in uids:
        grown = grown.joined_by({"metadata": {"uid": uid}})
    assert grown == crew(uids)


@pytest.mark.parametrize("change", [{"uid": "other"}, {"generation": 4}])
def test_another_set_or_another_spec_gives_another_name(change: dict[str, Any]) -> None:
    other = {"metadata": {**A_SET["metadata"], **change}}
    assert machineset_names.next_name(A_SET, crew([])) != machineset_names.next_name(other, crew([]))


def test_other_machines_and_other_attempts_give_other_names() -> None:
    found = {
        machineset_names.next_name(A_SET, crew(uids), attempt) for uids in ([], ["a"], ["b"]) for attempt in (0, 1)
    }
    assert len(found) == 6


def test_a_name_is_no_longer_than_a_host_name_may_be() -> None:
    found = machineset_names.next_name({"metadata": {**A_SET["metadata"], "name": "n" * 80}}, crew([]))
    assert len(found) == 63


# -- expectations ------------------------------------------------------------------------------------------------------


def shown(name: str, uid: str = "u", **meta: Any) -> dict[str, Any]:
    return {"metadata": {"namespace": "ns", "name": name, "uid": uid, **meta}}


@pytest.fixture
def expected() -> expectations.Expectations:
    return expectations.Expectations(clocks.ManualClock(), patience=300)


def test_a_creation_is_awaited_until_it_is_seen(expected: expectations.Expectations) -> None:
    expected.expect_creation("set", "ns", "m")
    expected.observe(None, shown("other"))
    assert expected.outstanding("set") == 300
    assert expected.outstanding("another set") == 0
    expected.observe(None, shown("m"))
    assert expected.outstanding("set") == 0


def test_a_creation_that_has_come_and_gone_was_seen(expected: expectations.Expectations) -> None:
    expected.expect_creation("set", "ns", "m")
    expected.observe(shown("m"), None)
    assert expected.outstanding("set") == 0


def test_a_deletion_is_awaited_until_that_very_machine_is_going_or_gone(expected: expectations.Expectations) -> None:
    for uid in ("one", "two"):
        expected.expect_deletion("set", uid)
    expected.observe(shown("m", "one"), shown("m", "one", labels={"new": "yes"}))
    expected.observe(shown("m", "other"), None)
    assert expected.outstanding("set") == 300
    expected.observe(shown("m", "one"), shown("m", "one", deletionTimestamp="2026-03-01T12:00:00Z"))
    assert expected.outstanding("set") == 300
    expected.observe(shown("n", "two"), None)
    assert expected.outstanding("set") == 0


def test_what_failed_is_not_awaited(expected: expectations.Expectations) -> None:
    expected.expect_creation("set", "ns", "m")
    expected.expect_deletion("set", "u")
    expected.give_up_creation("ns", "m")
    assert expected.outstanding("set") > 0
    expected.give_up_deletion("u")
    assert expected.outstanding("set") == 0


def test_what_is_never_seen_is_given_up_after_a_while() -> None:
    clock = clocks.ManualClock()
    expected = expectations.Expectations(clock, patience=300)
    expected.expect_creation("set", "ns", "m")
    clock.advance(299)
    assert expected.outstanding("set") == pytest.approx(1)
    clock.advance(2)
    assert expected.outstanding("set") == 0


def test_a_set_that_is_gone_expects_nothing(expected: expectations.Expectations) -> None:
    expected.expect_creation("set", "ns", "m")
    expected.forget("set")
    assert expected.outstanding("set") == 0


# -- selectors ---------------------------------------------------------------------------------------------------------

SELECTORS: list[tuple[dict[str, Any], dict[str, str], bool, str]] = [
    ({}, {"a": "1"}, True, ""),
    ({"matchLabels": {"a": "1"}}, {"a": "1", "b": "2"}, True, "a=1"),
    ({"matchLabels": {"a": "1"}}, {"a": "2"}, False, "a=1"),
    ({"matchLabels": {"a": ""}}, {}, False, "a="),
    ({"matchLabels": {"b": "2", "a": "1"}}, {"a": "1"}, False, "a=1,b=2"),
    ({"matchExpressions": [{"key": "a", "operator": "In", "values": ["2", "1"]}]}, {"a": "1"}, True, "a in (1,2)"),
    ({"matchExpressions": [{"key": "a", "operator": "In", "values": ["1"]}]}, {}, False, "a in (1)"),
    ({"matchExpressions": [{"key": "a", "operator": "NotIn", "values": ["1"]}]}, {"a": "1"}, False, "a notin (1)"),
    ({"matchExpressions": [{"key": "a", "operator": "NotIn", "values": ["1"]}]}, {}, True, "a notin (1)"),
    ({"matchExpressions": [{"key": "a", "operator": "Exists"}]}, {"a": ""}, True, "a"),
    ({"matchExpressions": [{"key": "a", "operator": "Exists"}]}, {}, False, "a"),
    ({"matchExpressions": [{"key": "a", "operator": "DoesNotExist"}]}, {"a": ""}, False, "!a"),
    ({"matchExpressions": [{"key": "a", "operator": "DoesNotExist"}]}, {}, True, "!a"),
    (
        {"matchLabels": {"z": "1"}, "matchExpressions": [{"key": "a", "operator": "Exists"}]},
        {"a": "", "z": "1"},
        True,
        "a,z=1",
    ),
]


@pytest.mark.parametrize(("selector", "labels", "expected", "told"), SELECTORS)
def test_selectors(selector: dict[str, Any], labels: dict[str, str], expected: bool, told: str) -> None:
    found = selectors.read(selector)
    assert found.matches(labels) is expected
    assert str(found) == told


@pytest.mark.parametrize(
    "expression",
    [
        {"key": "a", "operator": "In"},
        {"key": "a", "operator": "NotIn", "values": []},
        {"key": "a", "operator": "Exists", "values": ["1"]},
        {"key": "a", "operator": "Gt", "values": ["1"]},
        {"key": "a"},
        {"operator": "Exists"},
    ],
)
def test_selectors_that_cannot_be_read(expression: dict[str, Any]) -> None:
    with pytest.raises(selectors.InvalidSelector):
        selectors.read({"matchExpressions": [expression]})
