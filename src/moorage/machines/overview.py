"""A cluster's machines at a glance: which set, which phase, which node, and above all what each one waits for.

Computed from what the API has and nothing else, so that it tells the same from anywhere: on a screen, in a script, from
a laptop without credentials for the platform.
"""

from __future__ import annotations

import dataclasses
import datetime
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from moorage.machines import approval, conditions, objects, phases

Object = Mapping[str, Any]

#: A machine that nobody has touched for so long is looked after by nobody.
_UNTOUCHED = datetime.timedelta(minutes=1)
_DELETE = "Delete"


@dataclasses.dataclass(frozen=True)
class Row:
    """One machine; ``why`` is empty for one that waits for nothing."""

    set: str
    machine: str
    phase: str
    node: str
    instance: str
    seconds: float
    why: str


@dataclasses.dataclass(frozen=True)
class SetRow:
    """One set, by its counts."""

    name: str
    wanted: int
    present: int
    ready: int


@dataclasses.dataclass(frozen=True)
class Overview:
    """All of it."""

    sets: tuple[SetRow, ...]
    machines: tuple[Row, ...]


class Request(NamedTuple):
    """A pending certificate request, and when it was made, as far as that is known."""

    name: str
    made: datetime.datetime | None = None


def overview(
    machines: Sequence[Object],
    sets: Sequence[Object],
    nodes: Sequence[Object],
    requests: Sequence[Object],
    now: datetime.datetime,
) -> Overview:
    """What there is, sorted by set and name."""
    by_name = {objects.name(node): node for node in nodes}
    asking: dict[str, Request] = {}
    for request in requests:
        if not approval.is_decided(request) and (name := approval.claimed(request)):
            asking[name] = Request(objects.name(request), _made(request))
    rows = [_row(machine, by_name, asking, now) for machine in machines]
    return Overview(
        tuple(sorted((_set_row(each) for each in sets), key=lambda row: row.name)),
        # Those of no set (the control plane) come first, as they do in a cluster's life.
        tuple(sorted(rows, key=lambda row: (row.set, row.machine))),
    )


def _set_row(found: Object) -> SetRow:
    wanted = objects.spec(found).get("replicas")
    status = objects.status(found)
    present, ready = int(status.get("replicas") or 0), int(status.get("readyReplicas") or 0)
    return SetRow(objects.name(found), 1 if wanted is None else int(wanted), present, ready)


def _row(machine: Object, nodes: Mapping[str, Object], asking: Mapping[str, Request], now: datetime.datetime) -> Row:
    created = _made(machine) or now
    provider = objects.status(machine).get("providerStatus") or {}
    state = provider.get("instanceState") or objects.notes(machine).get(objects.STATE_ANNOTATION) or ""
    return Row(
        set=_set_of(machine),
        machine=objects.name(machine),
        phase=phases.DELETING if objects.is_deleted(machine) else phases.phase(machine),
        node=objects.node_name(machine),
        instance=str(state),
        seconds=max(0.0, (now - created).total_seconds()),
        why=why(machine, nodes, asking, now),
    )


def _set_of(machine: Object) -> str:
    owner = objects.owner(machine)
    if owner is not None and owner.get("kind") == "MachineSet":
        return str(owner.get("name") or "")
    return str(objects.labels(machine).get(objects.SET_LABEL) or "")


def why(machine: Object, nodes: Mapping[str, Object], asking: Mapping[str, Request], now: datetime.datetime) -> str:
    """What the machine waits for, or what has become of it; empty if it is as it should be."""
    if failure := objects.failure(machine):
        return failure.message or failure.reason
    if (paused := conditions.find(objects.conditions(machine), conditions.PAUSED)) and paused.get("status") == "True":
        return f"somebody else keeps it: {paused.get('message') or paused.get('reason')}"
    if objects.is_deleted(machine):
        return _leaving(machine)
    if name := objects.node_name(machine):
        return _unwell(name, nodes.get(name)) or _doubted(machine)
    if untouched := _untouched(machine, now):
        return untouched
    if phases.phase(machine) == phases.PROVISIONED:
        return _doubted(machine) or _outside(machine, asking, now)
    return _unfinished(machine)


def _untouched(machine: Object, now: datetime.datetime) -> str:
    if phases.phase(machine) or objects.conditions(machine):
        return ""
    created = conditions.moment(objects.metadata(machine).get("creationTimestamp")) or now
    if now - created < _UNTOUCHED:
        return "for a controller to look at it"
    return "for a controller to look at it: nobody has yet, so see whether moorage machine-api runs"


def _doubted(machine: Object) -> str:
    """Why nobody knows how its instance is, or that it has none; empty if all is well."""
    exists = conditions.find(objects.conditions(machine), conditions.INSTANCE_EXISTS)
    if exists is None or exists.get("status") == "True":
        return ""
    return str(exists.get("message") or exists.get("reason") or "")


def _leaving(machine: Object) -> str:
    for kind in (conditions.DRAINABLE, conditions.DRAINED, conditions.TERMINABLE):
        found = conditions.find(objects.conditions(machine), kind)
        if found is not None and found.get("status") != "True":
            said = str(found.get("message") or found.get("reason") or "")
            return said or f"to be {kind.lower()}"
    exists = conditions.find(objects.conditions(machine), conditions.INSTANCE_EXISTS) or {}
    if (exists.get("status"), exists.get("reason")) == ("Unknown", conditions.INSTANCE_MISSING):
        return _doubted(machine)
    # What was said of it before, such as that it was to be completed, is of no interest any more; and what was ordered
    # successfully is not over until the machine is gone.
    last = objects.status(machine).get("lastOperation") or {}
    return str((last.get("description") if last.get("type") == _DELETE else "") or "its instance to be gone")


def _unwell(name: str, node: Object | None) -> str:
    if node is None:
        return f"node {name} is gone"
    ready = conditions.find(objects.conditions(node), "Ready")
    if ready is None:
        return "its node has not reported yet"
    if ready.get("status") != "True":
        said = ready.get("message") or ready.get("reason") or ""
        return f"its node is not ready: {said}" if said else "its node is not ready"
    return "its node takes no pods: it is cordoned" if objects.spec(node).get("unschedulable") else ""


def _outside(machine: Object, asking: Mapping[str, Request], now: datetime.datetime) -> str:
    request = next((asking[name] for name in (objects.name(machine), *_names(machine)) if name in asking), None)
    said = "to become a node: it has not asked for a certificate yet"
    if request is not None:
        said = f"to be let in: request {request.name} is pending"
    asked = now if request is None or request.made is None else request.made
    if asked - (_made(machine) or now) <= approval.LATEST:
        return said
    # It waited for room, or was switched off: nobody lets it in by itself any more, however long it is waited for.
    hours = approval.LATEST.total_seconds() / 3600
    by_hand = f"oc adm certificate approve {request.name if request else 'its request when it has asked'}"
    return f"{said}, too late for a machine of more than {hours:g} h; if it is yours: {by_hand}"


def _made(thing: Object) -> datetime.datetime | None:
    return conditions.moment(objects.metadata(thing).get("creationTimestamp"))


def _names(machine: Object) -> list[str]:
    listed = objects.status(machine).get("addresses") or ()
    return [str(each.get("address")) for each in listed if each.get("type") in ("InternalDNS", "Hostname")]


def _unfinished(machine: Object) -> str:
    return _last_words(machine) or _doubted(machine) or "its instance to be complete"


def _last_words(machine: Object) -> str:
    """What the controller noted about its last step, unless that is over."""
    last = objects.status(machine).get("lastOperation") or {}
    if last.get("state") == "Successful":
        return ""
    return str(last.get("description") or "")
