"""Conditions: what is true of a machine at the moment, since when, and why not.

A condition's ``lastTransitionTime`` moves only when something it says changes, so that "since when" can be trusted and
decisions may be built upon it. The list is kept in the order of its types, as others that write it do.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Mapping
from typing import Any, Final, Literal

Condition = dict[str, Any]
Status = Literal["True", "False", "Unknown"]
Severity = Literal["", "Error", "Warning", "Info"]

INSTANCE_EXISTS: Final = "InstanceExists"
DRAINABLE: Final = "Drainable"
DRAINED: Final = "Drained"
TERMINABLE: Final = "Terminable"
PAUSED: Final = "Paused"
#: A condition of ``providerStatus``: whether the instance could be made.
MACHINE_CREATED: Final = "MachineCreated"

HOOK_PRESENT: Final = "HookPresent"
DRAIN_ERROR: Final = "DrainError"
ERROR_CHECKING: Final = "ErrorCheckingProvider"
FAILED_VALIDATE: Final = "FailedValidate"
INSTANCE_MISSING: Final = "InstanceMissing"
INSTANCE_NOT_CREATED: Final = "InstanceNotCreated"
AUTHORITY_ELSEWHERE: Final = "AuthoritativeAPINotMachineAPI"
AUTHORITY_HERE: Final = "AuthoritativeAPIMachineAPI"
CREATE_SUCCEEDED: Final = "MachineCreateSucceeded"
CREATE_FAILED: Final = "MachineCreateFailed"


def stamp(moment: datetime.datetime) -> str:
    """A moment as the API writes it: UTC, whole seconds."""
    return moment.astimezone(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def moment(text: object) -> datetime.datetime | None:
    """The moment that the API wrote down; None if it wrote none."""
    try:
        found = datetime.datetime.fromisoformat(str(text or ""))
    except ValueError:
        return None
    return found if found.tzinfo else found.replace(tzinfo=datetime.UTC)


def find(conditions: Iterable[Mapping[str, Any]] | None, kind: str) -> Mapping[str, Any] | None:
    """The condition of this type, if it is there."""
    return next((each for each in conditions or () if each.get("type") == kind), None)


def is_true(conditions: Iterable[Mapping[str, Any]] | None, kind: str) -> bool:
    found = find(conditions, kind)
    return found is not None and found.get("status") == "True"


def since(conditions: Iterable[Mapping[str, Any]] | None, kind: str, reason: str = "") -> datetime.datetime | None:
    """Since when the condition says what it says; None if it is not there, or is so for another reason."""
    found = find(conditions, kind)
    if found is None or (reason and found.get("reason") != reason):
        return None
    return moment(found.get("lastTransitionTime"))


def set_condition(
    conditions: Iterable[Mapping[str, Any]] | None,
    kind: str,
    status: Status,
    reason: str = "",
    message: str = "",
    severity: Severity = "",
    now: datetime.datetime | None = None,
) -> list[Condition]:
    """The conditions with this one as given. What does not apply is left out, as the API does with empty fields."""
    kept = [dict(each) for each in conditions or ()]
    wanted: Condition = {"type": kind, "status": status}
    wanted |= {key: value for key, value in (("reason", reason), ("message", message), ("severity", severity)) if value}
    before = find(kept, kind)
    if before is not None and _said(before) == _said(wanted):
        return sorted(kept, key=_type)
    wanted["lastTransitionTime"] = stamp(now or datetime.datetime.now(datetime.UTC))
    return sorted([*(each for each in kept if each.get("type") != kind), wanted], key=_type)


def _said(condition: Mapping[str, Any]) -> tuple[str, ...]:
    return tuple(str(condition.get(key) or "") for key in ("type", "status", "reason", "message", "severity"))


def _type(condition: Mapping[str, Any]) -> str:
    return str(condition.get("type") or "")
