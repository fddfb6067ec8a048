"""Who manages which fields of an object: the bookkeeping of metadata.managedFields for plain writes.

Every manager has an entry per way of writing (Update or Apply), version and subresource. A write takes the fields it
changed from all other entries and gives them to the writer's; fields that went are nobody's. A write by whoever has the
fields already changes nothing but the time, and is made as cheap as that: leases and heartbeats are written all day.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable
from typing import Any

from moorage.lab.kube import comparing, fieldsets, kinds, typed

Object = dict[str, Any]
Paths = tuple[tuple[str, ...], ...]

APPLY = "Apply"
UPDATE = "Update"
UNKNOWN = "unknown"
MOST_UPDATERS = 10
OLD_UPDATES = "ancient-changes"

Who = tuple[str, str, str, str]
"""What tells entries apart: manager, operation, apiVersion (empty for Apply: one entry for all), subresource."""


@dataclasses.dataclass(frozen=True, slots=True)
class Entry:
    """The fields of one manager. ``shown`` is the entry as it was read, as long as it is still true."""

    who: Who
    api_version: str
    time: str
    fields: fieldsets.Set
    shown: Object | None = None


Entries = dict[Who, Entry]

# What writes to a resource, or to a part of it, never change, whatever they say; where kinds differ from the rest.
_RESET: dict[tuple[str, str, str], Paths] = {
    ("", "pods", "status"): (("spec",), ("metadata", "deletionTimestamp"), ("metadata", "ownerReferences")),
    ("apps", "deployments", "status"): (("spec",), ("metadata", "labels")),
    ("certificates.k8s.io", "certificatesigningrequests", ""): (("spec",), ("status",)),
    ("certificates.k8s.io", "certificatesigningrequests", "status"): (("spec",), ("status", "conditions")),
    ("certificates.k8s.io", "certificatesigningrequests", "approval"): (("spec",), ("status", "certificate")),
}


def reset_fields(kind: kinds.Kind, subresource: str) -> Paths:
    """The fields that a write to this part of an object does not reach, so that the writer does not manage them."""
    known = _RESET.get((*kind.key, subresource))
    if known is not None:
        return known
    if subresource == "status":
        return (("spec",),)
    return (("status",),) if not subresource and "status" in kind.subresources else ()


def updated(
    schema: kinds.Schema | None,
    before: Object | None,
    after: Object,
    manager: str,
    subresource: str,
    time: str,
    api_version: str,
    *,
    reset: Paths = (),
) -> None:
    """Set ``after``'s managed fields, for a write by this manager that made it of ``before`` (None: created it)."""
    entries = _known(before, after, subresource)
    meta = after["metadata"]
    meta.pop("managedFields", None)
    if before is not None and not entries:
        # Once nobody's, fields stay so until something is applied.
        return
    type_ = typed.of(schema)
    changes = comparing.compare(type_, before or {}, after).without(reset)
    if not type_.native:
        entries = {who: reconcile(type_, entry) for who, entry in entries.items()}
    who = (manager or UNKNOWN, UPDATE, api_version, subresource)
    entries = capped(_written(entries, changes, who, "" if subresource == "scale" else time))
    if entries:
        meta["managedFields"] = shown(entries)


def _known(before: Object | None, after: Object, subresource: str) -> Entries:
    """The entries to start from: those that the writer sent, if they can be read, else those that were there."""
    live = before["metadata"].get("managedFields") if before is not None else None
    sent = after["metadata"].get("managedFields")
    if subresource or sent is None or sent == live:
        return read(live)
    if sent in ([], [{}]):
        return {}
    try:
        return parsed(sent) or read(live)
    except fieldsets.Malformed:
        return read(live)


def _written(entries: Entries, changes: comparing.Changes, who: Who, time: str) -> Entries:
    gained = fieldsets.union(changes.added, changes.modified) if changes.added else changes.modified
    found: Entries = {}
    for other, entry in entries.items():
        if other == who:
            left = fieldsets.difference(entry.fields, changes.removed)
        else:
            left = fieldsets.difference(fieldsets.difference(entry.fields, gained), changes.removed)
        if other == who and gained:
            left = fieldsets.union(left, gained)
            found[who] = Entry(who, who[2], time, left, entry.shown if left is entry.fields else None)
        elif left is entry.fields:
            found[other] = entry
        elif left:
            found[other] = dataclasses.replace(entry, fields=left, shown=None)
    if gained and who not in found:
        found[who] = Entry(who, who[2], time, gained)
    return {other: entry for other, entry in found.items() if entry.fields}


def reconcile(type_: typed.Type, entry: Entry) -> Entry:
    fields = fieldsets.reconciled(type_, entry.fields)
    return entry if fields is entry.fields else dataclasses.replace(entry, fields=fields, shown=None)


def taken(entries: Entries, changes: comparing.Changes, who: Who) -> tuple[Entries, dict[Who, fieldsets.Set]]:
    """The entries without what somebody else changed, and what was changed of each one's fields."""
    gained = fieldsets.union(changes.added, changes.modified)
    found: Entries = {}
    conflicts: dict[Who, fieldsets.Set] = {}
    for other, entry in entries.items():
        fields = entry.fields
        if other != who:
            if lost := fieldsets.intersection(fields, gained):
                conflicts[other] = lost
            fields = fieldsets.difference(fieldsets.difference(fields, gained), changes.removed)
        if fields:
            same = fields is entry.fields
            found[other] = entry if same else dataclasses.replace(entry, fields=fields, shown=None)
    return found, conflicts


def first_seen(type_: typed.Type, live: Object, subresource: str, time: str, api_version: str, reset: Paths) -> Entries:
    """For an object of which nobody kept books: one entry that has all there is."""
    gained = comparing.compare(type_, {}, live).without(reset)
    fields = fieldsets.union(gained.added, gained.modified)
    who = ("before-first-apply", UPDATE, api_version, subresource)
    return {who: Entry(who, api_version, time, fields)} if fields else {}


def read(shown: Any) -> Entries:
    """The entries of an object of ours, taken as they are."""
    found: Entries = {}
    for each in shown or ():
        operation, version = each["operation"], each["apiVersion"]
        who = (
            each.get("manager", ""),
            operation,
            version if operation == UPDATE else "",
            each.get("subresource", ""),
        )
        found[who] = Entry(who, version, each.get("time") or "", each.get("fieldsV1") or {}, each)
    return found


def parsed(sent: Any) -> Entries:
    """The entries that a client sent; `fieldsets.Malformed` if they are none."""
    if not isinstance(sent, list):
        raise fieldsets.Malformed("managedFields is no list")
    found: Entries = {}
    for each in sent:
        if not isinstance(each, dict) or each.get("operation") not in (APPLY, UPDATE):
            raise fieldsets.Malformed("operation must be `Apply` or `Update`")
        if not each.get("apiVersion") or each.get("fieldsType") != "FieldsV1":
            raise fieldsets.Malformed("apiVersion must not be empty, and fieldsType must be FieldsV1")
        ((who, entry),) = read([each]).items()
        fields = fieldsets.parsed(each.get("fieldsV1"))
        found[who] = dataclasses.replace(entry, fields=fields, shown=None)
    return found


def shown(entries: Entries) -> list[Object]:
    """The entries as objects have them: what was applied first, then the updates, the oldest first."""
    order = sorted(entries.values(), key=lambda e: (e.who[1], e.time, e.who[0], e.api_version, e.who[3]))
    return [_shown(entry) for entry in order]


def _shown(entry: Entry) -> Object:
    if entry.shown is not None and (entry.shown.get("time") or "") == entry.time:
        return entry.shown
    manager, operation, _, subresource = entry.who
    found: Object = {"manager": manager, "operation": operation, "apiVersion": entry.api_version}
    if entry.time:
        found["time"] = entry.time
    fields = entry.fields if entry.shown is not None else fieldsets.ordered(entry.fields)
    found |= {"fieldsType": "FieldsV1", "fieldsV1": fields}
    if subresource:
        found["subresource"] = subresource
    return found


def capped(entries: Entries) -> Entries:
    """The entries, the oldest updates thrown together if there are too many of them."""
    updaters = sorted(
        (entry for who, entry in entries.items() if who[1] == UPDATE), key=lambda e: (e.time, identity(e.who))
    )
    if len(updaters) <= MOST_UPDATERS:
        return entries
    found = dict(entries)
    excess = len(updaters) - MOST_UPDATERS
    first: dict[str, Entry] = {}
    for entry in updaters:
        if not excess:
            break
        version = entry.api_version
        if version not in first:
            first[version] = entry
            continue
        bucket = (OLD_UPDATES, UPDATE, version, "")
        if bucket not in found:
            found[bucket] = dataclasses.replace(found.pop(first[version].who), who=bucket, shown=None)
        if entry.who != bucket:
            fields = fieldsets.union(entry.fields, found[bucket].fields)
            del found[entry.who]
            found[bucket] = Entry(bucket, version, entry.time, fields)
        excess -= 1
    return found


def identity(who: Who) -> str:
    """An entry's name by which real servers sort."""
    names = ("manager", "operation", "apiVersion", "subresource")
    return json.dumps({name: value for name, value in zip(names, who, strict=True) if value}, separators=(",", ":"))


def described(who: Who) -> str:
    """An entry's manager as messages of conflicts name it."""
    manager, operation, version, subresource = who
    part = f' with subresource "{subresource}"' if subresource else ""
    return f'"{manager}"{part}' + (f" using {version}" if operation == UPDATE else "")


def same_but_times(one: Iterable[Object], other: Iterable[Object]) -> bool:
    """Whether two objects' entries say the same, but for when it was written."""
    strip = [[{k: v for k, v in each.items() if k != "time"} for each in entries or ()] for entries in (one, other)]
    return strip[0] == strip[1]
