"""Writing down how a machine is: nothing that it says already, and nothing over what somebody else wrote meanwhile.

A `draft` is a copy of the status to be changed at will; `Writer.status` sends what differs, together with the version
that it was made from, so that a writer who was late gets a conflict and looks again. That holds for the note that an
instance is about to be made, too: whoever has an outdated machine in its cache cannot begin.
"""

from __future__ import annotations

import copy
import datetime
from collections.abc import Mapping
from typing import Any, Final

from moorage.engine import clock as clocks
from moorage.machines import conditions, objects, phases
from moorage.machines.runtime import client as clients
from moorage.machines.runtime import errors, kinds, metrics
from moorage.platforms import contract

Object = Mapping[str, Any]
Draft = dict[str, Any]

CREATE, UPDATE, DELETE = "Create", "Update", "Delete"
PROCESSING, SUCCESSFUL, FAILED = "Processing", "Successful", "Failed"

UNKNOWN: Final = "Unknown"
_DRAIN, _TERMINATE = "preDrain", "preTerminate"


class Ended(Exception):  # noqa: N818 - nothing is wrong
    """The machine has ended while it was looked at."""


def draft(machine: Object) -> Draft:
    """A copy of the status, to be changed."""
    return copy.deepcopy(dict(objects.status(machine)))


def set_condition(
    status: Draft,
    now: datetime.datetime,
    kind: str,
    value: conditions.Status,
    reason: str = "",
    message: str = "",
    severity: conditions.Severity = "",
) -> None:
    status["conditions"] = conditions.set_condition(
        status.get("conditions"), kind, value, reason, message, severity, now
    )


def operation(
    status: Draft, now: datetime.datetime, verb: str, state: str, description: str, *, anew: bool = False
) -> None:
    """Note the last operation; ``anew`` if it is another one, even if there is nothing else to say of it."""
    said = {"type": verb, "state": state, "description": description}
    before = status.get("lastOperation") or {}
    if anew or {key: before.get(key) for key in said} != said:
        status["lastOperation"] = {**said, "lastUpdated": conditions.stamp(now)}


def creating_since(machine: Object) -> datetime.datetime | None:
    """When an instance was asked for whose fate nobody knows: there may be one, or there may yet be.

    Whoever asked wrote it down before and did not come to write an end of it: the answer was lost, or it was killed.
    """
    last = objects.status(machine).get("lastOperation") or {}
    if objects.provider_id(machine) or (last.get("type"), last.get("state")) != (CREATE, PROCESSING):
        return None
    return conditions.moment(last.get("lastUpdated"))


def unseen_since(machine: Object) -> datetime.datetime | None:
    """The latest moment at which something was done for the machine after which an instance may be there, unseen.

    None once a deletion has met it, or if the platform refused to make one.
    """
    last = objects.status(machine).get("lastOperation") or {}
    if not last and objects.provider_id(machine):
        # It came with its instance: see `foundling`.
        return conditions.moment(objects.metadata(machine).get("creationTimestamp"))
    if last.get("type") == DELETE or (last.get("type"), last.get("state")) == (CREATE, FAILED):
        return None
    return conditions.moment(last.get("lastUpdated"))


def is_met(machine: Object) -> bool:
    """Whether a deletion has met the instance: there was one."""
    last = objects.status(machine).get("lastOperation") or {}
    return last.get("type") == DELETE and last.get("state") in (PROCESSING, SUCCESSFUL)


def is_ordered(machine: Object) -> bool:
    """Whether the instance's removal is ordered: when it is not found any more, that is why."""
    last = objects.status(machine).get("lastOperation") or {}
    return (last.get("type"), last.get("state")) == (DELETE, SUCCESSFUL)


def show_instance(status: Draft, now: datetime.datetime, instance: contract.Instance) -> None:
    """``providerStatus``: the instance by the platform's own words."""
    before = status.get("providerStatus") or {}
    made = conditions.set_condition(
        before.get("conditions"), conditions.MACHINE_CREATED, "True", conditions.CREATE_SUCCEEDED, now=now
    )
    shown = {"instanceId": instance.id, "instanceState": instance.state, "conditions": made}
    status["providerStatus"] = {**before, **shown}


def show_failed(status: Draft, now: datetime.datetime, message: str) -> None:
    """``providerStatus`` of a machine whose instance could not be made."""
    before = status.get("providerStatus") or {}
    made = conditions.set_condition(
        before.get("conditions"), conditions.MACHINE_CREATED, "False", conditions.CREATE_FAILED, message, now=now
    )
    status["providerStatus"] = {**before, "conditions": made}


def give_up(status: Draft, failure: objects.Failure) -> None:
    """Failed, for good. What state an instance is in, if there is one, nobody will look after any more."""
    status["phase"] = phases.FAILED
    status["errorReason"], status["errorMessage"] = failure.reason or None, failure.message
    if (status.get("providerStatus") or {}).get("instanceState"):
        status["providerStatus"]["instanceState"] = UNKNOWN


def enter(status: Draft, phase: str) -> None:
    """Any other phase, in which there is no error."""
    status["phase"] = phase
    status.pop("errorReason", None)
    status.pop("errorMessage", None)


def difference(old: Object, new: Object) -> dict[str, Any]:
    """The merge patch that leads from one object to the other; empty if they are the same."""
    change: dict[str, Any] = {}
    for key in [*old, *(key for key in new if key not in old)]:
        before, after = old.get(key), new.get(key)
        if before == after:
            continue
        if isinstance(before, Mapping) and isinstance(after, Mapping):
            change[key] = difference(before, after)
        else:
            change[key] = after
    return change


class Writer:
    """Writes Machine objects. `Conflict` from any of these means: what was read is outdated; `Ended`: it is gone."""

    def __init__(self, client: clients.Client, clock: clocks.Clock) -> None:
        self._client = client
        self._clock = clock

    def status(self, machine: Object, status: Draft) -> Object:
        """Have this status written, and the conditions that follow from the lifecycle hooks. Returns the machine."""
        now = self._clock.wall()
        _show_hooks(machine, status, now)
        change = difference(objects.status(machine), status)
        if not change:
            return machine
        if "phase" in change or not objects.status(machine).get("lastUpdated"):
            # The date of the phase, not of every word: how long a machine may take to start is counted from it.
            change["lastUpdated"] = conditions.stamp(now)
        body = {"metadata": {"resourceVersion": objects.revision(machine)}, "status": change}
        written = self._patch(machine, body, "status")
        self._count(machine, str(status.get("phase") or ""), now)
        return written

    def identity(
        self, machine: Object, *, provider_id: str = "", state: str = "", labels: Mapping[str, str] | None = None
    ) -> Object:
        """Have it written what the machine's instance is known as, its state, and where it is."""
        change: dict[str, Any] = {}
        if provider_id and objects.provider_id(machine) != provider_id:
            change["spec"] = {"providerID": provider_id}
        marks: dict[str, Any] = {}
        if state and objects.notes(machine).get(objects.STATE_ANNOTATION) != state:
            marks["annotations"] = {objects.STATE_ANNOTATION: state}
        new = {key: value for key, value in (labels or {}).items() if objects.labels(machine).get(key) != value}
        if new:
            marks["labels"] = new
        if not change and not marks:
            return machine
        change["metadata"] = {**marks, "resourceVersion": objects.revision(machine)}
        return self._patch(machine, change)

    def finalizers(self, machine: Object, wanted: list[str]) -> Object:
        """Have exactly these finalizers; without the last one a machine that is deleted ends."""
        body = {"metadata": {"finalizers": wanted, "resourceVersion": objects.revision(machine)}}
        return self._patch(machine, body)

    def _patch(self, machine: Object, body: dict[str, Any], subresource: str = "") -> Object:
        name, namespace = objects.name(machine), objects.namespace(machine)
        try:
            return self._client.patch(kinds.MACHINE, name, namespace, body, subresource=subresource)
        except errors.NotFound:
            raise Ended from None

    def _count(self, machine: Object, phase: str, now: datetime.datetime) -> None:
        born = conditions.moment(objects.metadata(machine).get("creationTimestamp"))
        # A deletion says when somebody wanted it, not how long anything took.
        if phase and phase not in (phases.phase(machine), phases.DELETING) and born is not None:
            metrics.PHASE_TRANSITION.labels(phase).observe(max(0.0, (now - born).total_seconds()))


def _show_hooks(machine: Object, status: Draft, now: datetime.datetime) -> None:
    for kind, when, what in (
        (conditions.DRAINABLE, _DRAIN, "Drain"),
        (conditions.TERMINABLE, _TERMINATE, "Terminate"),
    ):
        hooks = objects.hooks(machine, when)
        if not hooks:
            set_condition(status, now, kind, "True")
            continue
        listed = " ".join(f"{{Name:{hook.name} Owner:{hook.owner}}}" for hook in hooks)
        why = f"{what} operation currently blocked by: [{listed}]"
        set_condition(status, now, kind, "False", conditions.HOOK_PRESENT, why, "Warning")
