"""Conditions in the status of an object: one of each type, with the time at which its truth last changed."""

from __future__ import annotations

from typing import Any

Object = dict[str, Any]


def found(content: Object, kind: str) -> Object:
    """The condition of that type; empty if there is none."""
    conditions = (content.get("status") or {}).get("conditions") or ()
    return next((each for each in conditions if each.get("type") == kind), {})


def true(content: Object, kind: str) -> bool:
    return found(content, kind).get("status") == "True"


def put(content: Object, now: str, kind: str, status: str, reason: str, message: str) -> Object:
    """Set a condition; its time moves only if its truth does."""
    conditions: list[Object] = content.setdefault("status", {}).setdefault("conditions", [])
    wanted = {"type": kind, "status": status, "reason": reason, "message": message}
    for known in conditions:
        if known["type"] == kind:
            known.update(wanted | ({} if known["status"] == status else {"lastTransitionTime": now}))
            return known
    conditions.append({**wanted, "lastTransitionTime": now})
    return conditions[-1]
