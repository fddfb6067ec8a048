"""What a MachineSet's status says: how many machines there are, how many of them are of use, and what is wrong.

Everything here computes; `machineset` writes what comes out, and only if it differs from what stands there.
"""

from __future__ import annotations

import dataclasses
import datetime
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from moorage.machines import authority, conditions, machineset_rules, objects, selectors

Object = Mapping[str, Any]

#: What keeps the set from having the machines that it should have; the type is the one that ReplicaSets use.
REPLICA_FAILURE: Final = "ReplicaFailure"
INVALID: Final = "InvalidConfiguration"
FAILED_CREATE: Final = "FailedCreate"
FAILED_DELETE: Final = "FailedDelete"
FAILED: Final = "FailedSync"
PAUSED_REASON: Final = "Paused"


@dataclasses.dataclass(frozen=True)
class Trouble:
    """Why a set has not the machines that it should have: ``reason`` for programs, ``message`` for people."""

    reason: str
    message: str


@dataclasses.dataclass(frozen=True)
class Counts:
    """The machines of a set; ``soonest`` is when the next of the ready ones counts as available, in seconds."""

    replicas: int
    fully_labeled: int
    ready: int
    available: int
    soonest: float | None = None


def is_ready(node: Object | None) -> bool:
    return node is not None and conditions.is_true(objects.conditions(node), "Ready")


def counted(
    machine_set: Object,
    machines: Sequence[Object],
    node_of: Callable[[Object], Object | None],
    now: datetime.datetime,
) -> Counts:
    """Count the machines; one is ready when its node is, and available when that has lasted for minReadySeconds."""
    spec = objects.spec(machine_set)
    wanted = objects.labels(spec.get("template") or {})
    least = int(spec.get("minReadySeconds") or 0)
    labeled = ready = available = 0
    waits: list[float] = []
    for machine in machines:
        labeled += wanted.items() <= objects.labels(machine).items()
        node = node_of(machine)
        if not is_ready(node) or node is None:
            continue
        ready += 1
        wait = _wait(node, least, now)
        available += wait <= 0
        if wait > 0:
            waits.append(wait)
    return Counts(len(machines), labeled, ready, available, min(waits, default=None))


def _wait(node: Object, least: int, now: datetime.datetime) -> float:
    """Seconds until a ready node has been so for long enough; 0 if it has."""
    if least <= 0:
        return 0.0
    since = conditions.since(objects.conditions(node), "Ready")
    if since is None:
        return float(least)
    left = least - (now - since).total_seconds()
    # The API's dates are cut to whole seconds, so a node may have become ready almost a second after its date.
    return left + 1.0 if left >= 0 else 0.0


def judged(
    machine_set: Object,
    selector: selectors.Selector,
    counts: Counts,
    trouble: Trouble | None,
    now: datetime.datetime,
) -> dict[str, Any]:
    """The status of a set that was looked after."""
    return {
        "replicas": counts.replicas,
        "fullyLabeledReplicas": counts.fully_labeled,
        "readyReplicas": counts.ready,
        "availableReplicas": counts.available,
        "labelSelector": str(selector),
        "observedGeneration": int(objects.metadata(machine_set).get("generation") or 0),
        "errorReason": None,
        "errorMessage": None,
        "conditions": _conditions(machine_set, trouble, now),
        **authority.recorded(machine_set),
    }


def invalid(machine_set: Object, message: str, now: datetime.datetime) -> dict[str, Any]:
    """The status of a set that cannot be looked after: the counts stay what they were."""
    return {
        "observedGeneration": int(objects.metadata(machine_set).get("generation") or 0),
        "errorReason": INVALID,
        "errorMessage": message,
        "conditions": _conditions(machine_set, Trouble(INVALID, message), now),
        **authority.recorded(machine_set),
    }


def resting(machine_set: Object, now: datetime.datetime) -> dict[str, Any]:
    """The status of a set that is to be left alone: nothing but that."""
    return {"conditions": _paused(machine_set, now), **authority.recorded(machine_set)}


def change(machine_set: Object, wanted: Mapping[str, Any]) -> dict[str, Any]:
    """What of the wanted status is not there yet, as a merge patch; None stands for: not there."""
    present = objects.status(machine_set)
    return {
        key: value for key, value in wanted.items() if present.get(key, [] if key == "conditions" else None) != value
    }


def _paused(machine_set: Object, now: datetime.datetime) -> list[conditions.Condition]:
    """The conditions with what is to be said of pauses; nothing, for a set that never had one."""
    found = [dict(each) for each in objects.conditions(machine_set)]
    if (told := authority.told(machine_set)) and not authority.is_ours(machine_set):
        return conditions.set_condition(found, conditions.PAUSED, *told, now=now)
    if machineset_rules.is_paused(machine_set):
        message = "The set bears the annotation that pauses it"
        return conditions.set_condition(found, conditions.PAUSED, "True", PAUSED_REASON, message, now=now)
    if told:
        return conditions.set_condition(found, conditions.PAUSED, *told, now=now)
    if conditions.find(found, conditions.PAUSED):
        return conditions.set_condition(found, conditions.PAUSED, "False", "NotPaused", severity="Info", now=now)
    return found


def _conditions(machine_set: Object, trouble: Trouble | None, now: datetime.datetime) -> list[conditions.Condition]:
    """What never was is not told to be absent: a condition appears when it is true for the first time."""
    found = _paused(machine_set, now)
    if trouble:
        return conditions.set_condition(
            found, REPLICA_FAILURE, "True", trouble.reason, trouble.message, "Error", now=now
        )
    if conditions.find(found, REPLICA_FAILURE):
        found = conditions.set_condition(found, REPLICA_FAILURE, "False", "Synced", severity="Info", now=now)
    return found
