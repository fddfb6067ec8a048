"""What each machine waits for, in a person's words: the rules behind `moorage machines`."""

from __future__ import annotations

import datetime
from typing import Any

import pytest

from moorage.machines import approval, overview
from tests.unit.machines import memory
from tests.unit.machines import test_approval as rules

SPACE, NAME = "openshift-machine-api", rules.NODE
NOW = rules.ASKED
MADE = memory.stamp(rules.MADE)


def machine(name: str = NAME, phase: str = "", *, deleted: bool = False, **status: Any) -> dict[str, Any]:
    metadata = {"name": name, "namespace": SPACE, "creationTimestamp": MADE}
    metadata |= {"deletionTimestamp": MADE, "finalizers": ["x"]} if deleted else {}
    return {"metadata": metadata, "spec": {}, "status": {**({"phase": phase} if phase else {}), **status}}


def of_set(found: dict[str, Any], name: str) -> dict[str, Any]:
    owner = {"kind": "MachineSet", "name": name, "controller": True}
    return {**found, "metadata": {**found["metadata"], "ownerReferences": [owner]}}


def node(status: str = "True", message: str = "", *, cordoned: bool = False) -> dict[str, Any]:
    ready = {"type": "Ready", "status": status, "message": message}
    spec = {"unschedulable": True} if cordoned else {}
    return {"metadata": {"name": NAME}, "spec": spec, "status": {"conditions": [ready]}}


def condition(kind: str, status: str, message: str) -> dict[str, str]:
    return {"type": kind, "status": status, "message": message}


LINKED = {"nodeRef": {"name": NAME}}


@pytest.mark.parametrize(
    ("found", "nodes", "why"),
    [
        (machine(), [], "for a controller to look at it: nobody has yet, so see whether moorage machine-api runs"),
        (
            machine(phase="Provisioning", lastOperation={"state": "Processing", "description": "waiting for its disk"}),
            [],
            "waiting for its disk",
        ),
        (
            machine(phase="Provisioning", lastOperation={"state": "Failed", "description": "the engine is locked"}),
            [],
            "the engine is locked",
        ),
        (
            machine(phase="Provisioning", conditions=[condition("InstanceExists", "False", "Instance not created")]),
            [],
            "Instance not created",
        ),
        (machine(phase="Provisioning"), [], "its instance to be complete"),
        (
            machine(phase="Provisioned", lastOperation={"state": "Successful", "description": "complete"}),
            [],
            "to become a node: it has not asked for a certificate yet",
        ),
        (machine(phase="Running", **LINKED), [node()], ""),
        (machine(phase="Running", **LINKED), [], f"node {NAME} is gone"),
        (
            machine(phase="Running", **LINKED),
            [node("Unknown", "it stopped posting")],
            "its node is not ready: it stopped posting",
        ),
        (machine(phase="Running", **LINKED), [node(cordoned=True)], "its node takes no pods: it is cordoned"),
        (
            machine(
                phase="Running", conditions=[condition("InstanceExists", "Unknown", "the engine is away")], **LINKED
            ),
            [node()],
            "the engine is away",
        ),
        (
            machine(phase="Provisioned", conditions=[condition("InstanceExists", "Unknown", "the engine is away")]),
            [],
            "the engine is away",
        ),
        (
            machine(conditions=[condition("InstanceExists", "Unknown", "label x is missing")]),
            [],
            "label x is missing",
        ),
        *(
            (
                machine(
                    phase="Running", deleted=deleted, conditions=[condition("Paused", "True", "ClusterAPI")], **LINKED
                ),
                [node()],
                "somebody else keeps it: ClusterAPI",
            )
            for deleted in (False, True)
        ),
        (machine(phase="Running", conditions=[condition("Paused", "False", "x")], **LINKED), [node()], ""),
        (machine(phase="Failed", errorMessage="no such template"), [], "no such template"),
        (
            machine(
                phase="Deleting",
                deleted=True,
                conditions=[condition("Drainable", "False", "blocked by: backup"), condition("Drained", "False", "no")],
            ),
            [],
            "blocked by: backup",
        ),
        (
            machine(
                phase="Deleting",
                deleted=True,
                conditions=[
                    condition("Drainable", "True", ""),
                    condition("Drained", "False", "pod a/b: a budget forbids it"),
                ],
            ),
            [],
            "pod a/b: a budget forbids it",
        ),
        (
            machine(phase="Deleting", deleted=True, conditions=[condition("Drained", "True", "")]),
            [],
            "its instance to be gone",
        ),
        (machine(phase="Running", deleted=True, **LINKED), [node()], "its instance to be gone"),
        (
            machine(
                phase="Deleting",
                deleted=True,
                lastOperation={"type": "Update", "state": "Processing", "description": "to be switched on"},
            ),
            [],
            "its instance to be gone",
        ),
        (
            machine(
                phase="Deleting",
                deleted=True,
                lastOperation={"type": "Delete", "state": "Failed", "description": "the engine is locked"},
            ),
            [],
            "the engine is locked",
        ),
        (
            machine(
                phase="Deleting",
                deleted=True,
                lastOperation={"type": "Delete", "state": "Successful", "description": "the engine removes it"},
            ),
            [],
            "the engine removes it",
        ),
        (
            machine(
                phase="Deleting",
                deleted=True,
                lastOperation={"type": "Delete", "state": "Processing", "description": "being removed"},
                conditions=[
                    {**condition("InstanceExists", "Unknown", "not found, but it reports"), "reason": "InstanceMissing"}
                ],
                **LINKED,
            ),
            [node()],
            "not found, but it reports",
        ),
        (
            machine(
                phase="Deleting",
                deleted=True,
                lastOperation={"type": "Delete", "state": "Failed", "description": "the engine is locked"},
                conditions=[{**condition("InstanceExists", "Unknown", "no answer"), "reason": "ErrorCheckingProvider"}],
            ),
            [],
            "the engine is locked",
        ),
        (
            machine(
                phase="Deleting",
                deleted=True,
                conditions=[
                    condition("Drained", "False", "pod a/b: a budget forbids it"),
                    {**condition("InstanceExists", "Unknown", "not found"), "reason": "InstanceMissing"},
                ],
            ),
            [],
            "pod a/b: a budget forbids it",
        ),
    ],
)
def test_what_a_machine_waits_for(found: dict[str, Any], nodes: list[dict[str, Any]], why: str) -> None:
    (row,) = overview.overview([found], [], nodes, [], NOW).machines

    assert row.why == why


def test_a_machine_that_asks_to_be_let_in_says_by_which_request() -> None:
    (row,) = overview.overview([machine(phase="Provisioned")], [], [], [rules.client()], NOW).machines

    assert row.why == "to be let in: request csr-7 is pending"


@pytest.mark.parametrize("has_asked", [True, False])
def test_a_machine_that_is_too_old_to_be_let_in_by_itself_says_so(has_asked: bool) -> None:
    """It may have waited for room on a host for hours; what comes then is refused, and only a person can help."""

    def told(after: datetime.timedelta) -> str:
        moment, request = rules.MADE + approval.LATEST + after, rules.client()
        request["metadata"]["creationTimestamp"] = memory.stamp(moment)
        requests = [request] if has_asked else []
        return overview.overview([machine(phase="Provisioned")], [], [], requests, moment).machines[0].why

    in_time, too_late = told(datetime.timedelta()), told(datetime.timedelta(seconds=1))

    why = (
        "be let in: request csr-7 is pending" if has_asked else "become a node: it has not asked for a certificate yet"
    )
    assert in_time == f"to {why}"
    assert too_late.startswith(f"to {why}, too late for a machine of more than 2 h; if it is yours: oc adm certificate")
    assert (" approve csr-7" in too_late) == has_asked


def test_a_request_that_came_in_time_is_not_too_late_however_long_it_waits() -> None:
    """The controllers may have been down, or the platform silent: they will judge it by when it was made."""
    (row,) = overview.overview(
        [machine(phase="Provisioned")], [], [], [rules.client()], rules.MADE + approval.LATEST * 2
    ).machines

    assert row.why == "to be let in: request csr-7 is pending"


def test_a_request_that_was_decided_is_waited_for_no_more() -> None:
    request = rules.client()
    request["status"] = {"conditions": [{"type": "Approved", "status": "True"}]}
    (row,) = overview.overview([machine(phase="Provisioned")], [], [], [request], NOW).machines

    assert "request" not in row.why


def test_a_machine_that_is_just_made_is_given_a_minute() -> None:
    found = overview.overview([machine()], [], [], [], rules.MADE + datetime.timedelta(seconds=30))

    assert found.machines[0].why == "for a controller to look at it"
