"""Whether a machine is healthy: every rule, at its edges."""

from __future__ import annotations

import datetime
from typing import Any

import pytest

from moorage.machines import durations, healthcheck_rules
from moorage.machines.healthcheck_rules import Healthy, Neither, Unhealthy, Waiting

NOW = datetime.datetime(2026, 3, 1, 12, 0, 0, tzinfo=datetime.UTC)
SPEC: dict[str, Any] = {
    "selector": {"matchLabels": {"role": "worker"}},
    "unhealthyConditions": [
        {"type": "Ready", "status": "False", "timeout": "5m"},
        {"type": "Ready", "status": "Unknown", "timeout": "300s"},
        {"type": "DiskPressure", "status": "True", "timeout": "1m"},
    ],
}


def ago(seconds: float) -> str:
    return (NOW - datetime.timedelta(seconds=seconds)).isoformat()


def machine(*, node: str = "n", **parts: Any) -> dict[str, Any]:
    meta = {"name": "m", "labels": {"role": "worker"}, **parts.pop("metadata", {})}
    return {"metadata": meta, "status": {**({"nodeRef": {"name": node}} if node else {}), **parts}}


def node(**conditions: tuple[str, float | None]) -> dict[str, Any]:
    told = [
        {"type": kind, "status": status, **({} if since is None else {"lastTransitionTime": ago(since)})}
        for kind, (status, since) in conditions.items()
    ]
    return {"metadata": {"name": "n", "uid": "u"}, "status": {"conditions": told}}


def judge(found: dict[str, Any], its_node: dict[str, Any] | None, **spec: Any) -> healthcheck_rules.Verdict:
    return healthcheck_rules.judge(found, its_node, healthcheck_rules.read({"spec": {**SPEC, **spec}}), NOW)


WELL = node(Ready=("True", 1000))
GOING = {"deletionTimestamp": ago(5)}

CASES: dict[str, tuple[dict[str, Any], dict[str, Any] | None, type]] = {
    "ready": (machine(), WELL, Healthy),
    "a node that says nothing": (machine(), node(), Healthy),
    "failed": (machine(phase="Failed"), WELL, Unhealthy),
    "failed without a node": (machine(node="", phase="Failed"), None, Unhealthy),
    "its node is gone": (machine(), None, Unhealthy),
    "not ready for long": (machine(), node(Ready=("False", 301)), Unhealthy),
    "not ready for just as long as is allowed": (machine(), node(Ready=("False", 300)), Waiting),
    "not ready for a moment": (machine(), node(Ready=("False", 0)), Waiting),
    "not heard of for long": (machine(), node(Ready=("Unknown", 301)), Unhealthy),
    "not ready, since when is not told": (machine(), node(Ready=("False", None)), Waiting),
    "another condition": (machine(), node(Ready=("True", 999), DiskPressure=("True", 61)), Unhealthy),
    "the condition says what is well": (machine(), node(Ready=("True", 999), DiskPressure=("False", 61)), Healthy),
    "a condition that is not listed": (machine(), node(Ready=("True", 999), PIDPressure=("True", 9999)), Healthy),
    "one waits, the other is over": (machine(), node(Ready=("False", 1), DiskPressure=("True", 61)), Unhealthy),
    "going": (machine(metadata=GOING), node(Ready=("False", 301)), Neither),
    "going and failed": (machine(metadata=GOING, phase="Failed"), WELL, Neither),
    "somebody outside sees to it": (
        machine(metadata={"annotations": {"host.metal3.io/external-remediation": ""}}),
        WELL,
        Neither,
    ),
    "somebody outside sees to it, in vain": (
        machine(metadata={"annotations": {"host.metal3.io/external-remediation": ""}}),
        node(Ready=("False", 301)),
        Unhealthy,
    ),
    "starting": (machine(node="", lastUpdated=ago(10)), None, Waiting),
    "starting for just as long as is allowed": (machine(node="", lastUpdated=ago(600)), None, Waiting),
    "never started": (machine(node="", lastUpdated=ago(601)), None, Unhealthy),
    "nobody has begun with it": (machine(node=""), None, Waiting),
}


@pytest.mark.parametrize(("found", "its_node", "verdict"), CASES.values(), ids=CASES)
def test_verdicts(found: dict[str, Any], its_node: dict[str, Any] | None, verdict: type) -> None:
    assert type(judge(found, its_node)) is verdict


WAITS: dict[str, tuple[dict[str, Any], dict[str, Any] | None, float]] = {
    "the rest, and a second more": (machine(), node(Ready=("False", 100)), 201),
    "the first of two": (machine(), node(Ready=("False", 100), DiskPressure=("True", 50)), 11),
    "the rest of the start": (machine(node="", lastUpdated=ago(100)), None, 501),
    "all of the start": (machine(node=""), None, 600),
}


@pytest.mark.parametrize(("found", "its_node", "seconds"), WAITS.values(), ids=WAITS)
def test_when_to_look_again(found: dict[str, Any], its_node: dict[str, Any] | None, seconds: float) -> None:
    verdict = judge(found, its_node)
    assert isinstance(verdict, Waiting)
    assert verdict.seconds == pytest.approx(seconds)


@pytest.mark.parametrize(
    ("timeout", "waited", "verdict"),
    [
        ("0", 99999, Neither),
        ("0s", 99999, Neither),
        ("20m", 700, Waiting),
        ("20m", 1201, Unhealthy),
        (None, 601, Unhealthy),
    ],
)
def test_the_time_to_start(timeout: str | None, waited: float, verdict: type) -> None:
    assert type(judge(machine(node="", lastUpdated=ago(waited)), None, nodeStartupTimeout=timeout)) is verdict


# -- how many ----------------------------------------------------------------------------------------------------------

LIMITS: list[tuple[object, int, int]] = [
    (None, 5, 5),
    ("100%", 5, 5),
    (2, 5, 2),
    ("2", 5, 2),
    (0, 5, 0),
    ("0%", 5, 0),
    ("40%", 5, 2),
    ("40%", 4, 1),
    ("40%", 2, 0),
    ("99%", 1, 0),
    ("33%", 100, 33),
    ("29%", 100, 29),
    (-1, 5, 0),
    ("-10%", 5, 0),
    (9, 5, 9),
]


@pytest.mark.parametrize(("told", "total", "most"), LIMITS)
def test_how_many_may_be_unhealthy(told: object, total: int, most: int) -> None:
    assert healthcheck_rules.limit({"spec": {"maxUnhealthy": told}}, total) == most


@pytest.mark.parametrize("told", ["many", "10 %", "1.5", "%", "", True])
def test_limits_that_cannot_be_read(told: object) -> None:
    with pytest.raises(healthcheck_rules.InvalidCheck, match="maxUnhealthy"):
        healthcheck_rules.limit({"spec": {"maxUnhealthy": told}}, 5)


# -- whom --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("selector", "meta", "covered"),
    [
        (SPEC["selector"], {}, True),
        (SPEC["selector"], {"labels": {"role": "master"}}, False),
        ({}, {"labels": {"role": "master"}}, True),
        (None, {}, True),
        (SPEC["selector"], {"annotations": {"cluster.x-k8s.io/skip-remediation": ""}}, False),
        # No word of OpenShift's: whoever writes it will find that nobody reads it.
        (SPEC["selector"], {"annotations": {"machine.openshift.io/skip-remediation": "true"}}, True),
    ],
)
def test_whom_a_check_looks_at(selector: Any, meta: dict[str, Any], covered: bool) -> None:
    rules = healthcheck_rules.read({"spec": {**SPEC, "selector": selector}})
    assert rules.covers(machine(metadata=meta)) is covered


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        ({"nodeStartupTimeout": "soon"}, "nodeStartupTimeout"),
        ({"unhealthyConditions": [{"type": "Ready", "status": "False", "timeout": "5 m"}]}, "unhealthyConditions"),
        ({"selector": {"matchExpressions": [{"key": "a", "operator": "Near"}]}}, "selector"),
    ],
)
def test_checks_that_cannot_be_read(spec: dict[str, Any], field: str) -> None:
    with pytest.raises(healthcheck_rules.InvalidCheck, match=field):
        healthcheck_rules.read({"spec": {**SPEC, **spec}})


# -- durations ---------------------------------------------------------------------------------------------------------

DURATIONS: list[tuple[str, float]] = [
    ("0", 0),
    ("0s", 0),
    ("10m", 600),
    ("1h30m", 5400),
    ("1.5h", 5400),
    ("300ms", 0.3),
    ("1h2m3.5s", 3723.5),
    (".5s", 0.5),
    ("1.s", 1),
    ("2us", 2e-6),
    ("2µs", 2e-6),
    ("7ns", 7e-9),
    ("-1m", -60),
    ("+1m", 60),
]


@pytest.mark.parametrize(("text", "seconds"), DURATIONS)
def test_durations(text: str, seconds: float) -> None:
    assert durations.seconds(text) == pytest.approx(seconds)


@pytest.mark.parametrize("text", ["", "10", "m", "10 m", "1d", "1h 30m", "--1m", "1.2.3s", "ten minutes", "."])
def test_texts_that_are_no_durations(text: str) -> None:
    with pytest.raises(durations.InvalidDuration):
        durations.seconds(text)
