"""Server-side apply: each manager declares the fields it wants, and nobody overwrites another's unasked.

What is applied is merged into the live object. Fields that the manager applied before and does not apply any more go,
unless somebody else has them too. Fields that others manage and that would change are conflicts, which ``force``
decides in the applier's favour.
"""

from __future__ import annotations

import dataclasses
import json
from typing import Any

from moorage.lab.kube import comparing, fieldsets, kinds, managed, merging, patches, problem, typed

Object = dict[str, Any]

KUBECTL = "kubectl"
LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
_MOST_ANNOTATIONS = 256 * 1024


class Conflicts(Exception):  # noqa: N818 - becomes a Problem
    """Fields of others that would be changed, by their managers' entries."""

    def __init__(self, fields: dict[managed.Who, fieldsets.Set]) -> None:
        super().__init__("conflicts")
        self.fields = fields


def apply(
    schema: kinds.Schema | None,
    live: Object | None,
    applied: Object,
    manager: str,
    force: bool,
    subresource: str,
    time: str,
    *,
    reset: managed.Paths = (),
) -> Object:
    """The object after ``applied`` (as sent: nothing defaulted) was merged into ``live`` (None: there is none yet).

    409 if fields of others would change. Neither argument is changed; parts of both are in the result. For the scale
    subresource ``applied`` is the object's own number of replicas, at its place in the object.
    """
    if "managedFields" in (applied.get("metadata") or {}):
        raise problem.bad_request("metadata.managedFields must be nil")
    type_ = typed.of(schema)
    _check(type_, applied)
    how = _How(type_, manager, subresource, time, reset)
    try:
        found = _applied(how, live, applied, force)
    except Conflicts as conflicts:
        left = _not_of_client_side(how, live, conflicts) if manager == KUBECTL else conflicts.fields
        if left:
            raise _refusal(left, subresource) from None
        found = _applied(how, live, applied, force=True)
    if manager == KUBECTL:
        _keep_last_applied(found, applied)
    return found


@dataclasses.dataclass(frozen=True)
class _How:
    type: typed.Type
    manager: str
    subresource: str
    time: str
    reset: managed.Paths

    @property
    def who(self) -> managed.Who:
        return (self.manager or managed.UNKNOWN, managed.APPLY, "", self.subresource)


def _check(type_: typed.Type, applied: Object) -> None:
    wrong = list(typed.mistakes(type_, applied, lambda of, value: fieldsets.told((fieldsets.item(of, value),))))
    if not wrong:
        return
    told = [f"{where}: {why}" if where else why for where, why in wrong]
    words = told[0] if len(told) == 1 else "\n  ".join(["errors:", *told])
    raise problem.broken(f"failed to create typed patch object ({_named(applied)}): {words}")


def unconvertible(applied: Object, why: str) -> problem.Problem:
    """The refusal of values that fit the schema's types, but cannot be read: no quantity, no time, no base64."""
    told = f"unable to convert unstructured object to {_kind_of(applied)}: {why}"
    return problem.broken(f"failed to convert new object ({_named(applied)}) to proper version: {told}")


def _named(applied: Object) -> str:
    meta = applied.get("metadata") or {}
    return f"{meta.get('namespace', '')}/{meta.get('name', '')}; {_kind_of(applied)}"


def _kind_of(content: Object) -> str:
    version = str(content.get("apiVersion", ""))
    return f"{version if '/' in version else f'/{version}'}, Kind={content.get('kind', '')}"


def check_kind(kind: kinds.Kind, applied: Object) -> None:
    """400 unless what is applied names the kind and version under which it was sent."""
    if (applied.get("apiVersion"), applied.get("kind")) != (kind.api_version, kind.name):
        raise problem.bad_request(f"invalid object type: {_kind_of(applied)}")


def behind_scale(kind: kinds.Kind, scale: Object) -> Object:
    """What applying this Scale means for the object behind it: its number of replicas, at its place."""
    found: Any = (scale.get("spec") or {}).get("replicas")
    path = (kind.scale or kinds.ScalePaths()).replicas.strip(".").split(".")
    for name in reversed(path):
        found = {name: found}
    meta = scale.get("metadata") or {}
    return {"apiVersion": kind.api_version, "kind": kind.name, "metadata": {"name": meta.get("name", "")}, **found}


def _applied(how: _How, live: Object | None, applied: Object, force: bool) -> Object:
    base = _without_books(live or {})
    if how.type.native:
        base = _denulled(how.type, base)
    version = applied["apiVersion"]
    entries = managed.read((live or {}).get("metadata", {}).get("managedFields"))
    if live is not None and not entries:
        entries = managed.first_seen(how.type, base, how.subresource, how.time, version, how.reset)
    if not how.type.native:
        entries = {who: managed.reconcile(how.type, entry) for who, entry in entries.items()}
    fields = fieldsets.without(comparing.owned(how.type, applied), how.reset)
    last = entries.get(how.who)
    merged = merging.merged(how.type, base, applied)
    entries[how.who] = managed.Entry(how.who, version, last.time if last else "", fields)
    if last is not None:
        merged = _pruned(how.type, merged, entries, last.fields)
    if how.type.native:
        merged = _denulled(how.type, merged)
    changes = comparing.compare(how.type, base, merged).without(how.reset)
    entries, conflicts = managed.taken(entries, changes, how.who)
    if conflicts and not force:
        raise Conflicts(conflicts)
    return _booked(how, merged, entries, changed=merged != base)


def _booked(how: _How, merged: Object, entries: managed.Entries, changed: bool) -> Object:
    """The object with its managers written into it. Whoever applies what is there already has no time of applying."""
    mine = entries.pop(how.who, None)
    if mine is not None and (fields := _tracked(mine.fields)):
        # The books of a Scale are not the object's own: no time comes over with them.
        time = how.time if changed and how.subresource != "scale" else mine.time
        entries[how.who] = dataclasses.replace(mine, fields=fields, time=time)
    meta = dict(merged.get("metadata") or {})
    if entries:
        meta["managedFields"] = managed.shown(entries)
    return {**merged, "metadata": meta}


_UNTRACKED: managed.Paths = (
    ("apiVersion",),
    ("kind",),
    *(("metadata", name) for name in sorted(comparing.UNTRACKED)),
)


def _tracked(fields: fieldsets.Set) -> fieldsets.Set:
    found = fieldsets.without(fields, _UNTRACKED)
    meta = found.get("f:metadata")
    if meta is None or (meta and "." not in meta):
        return found
    below = {element: inner for element, inner in meta.items() if element != "."}
    rest = {element: inner for element, inner in found.items() if element != "f:metadata"}
    return {**rest, "f:metadata": below} if below else rest


def _without_books(live: Object) -> Object:
    if "managedFields" not in live.get("metadata", {}):
        return live
    meta = {key: value for key, value in live["metadata"].items() if key != "managedFields"}
    return {**live, "metadata": meta}


def _pruned(type_: typed.Type, merged: Object, entries: managed.Entries, last: fieldsets.Set) -> Object:
    """Without what the manager applied last time, does not apply now, and nobody else has."""
    last = fieldsets.named(type_, last)
    all_owned: fieldsets.Set = {}
    for entry in entries.values():
        all_owned = fieldsets.union(all_owned, entry.fields)
    there = fieldsets.named(type_, comparing.owned(type_, merged))
    left = _removed(type_, merged, last)
    kept = fieldsets.named(type_, comparing.owned(type_, left))
    wanted = fieldsets.union(kept, fieldsets.named(type_, all_owned))
    left = _removed(type_, merged, fieldsets.difference(there, wanted))
    # Only what was the manager's own may go: not what came up because something around it went.
    kept = fieldsets.named(type_, comparing.owned(type_, left))
    gone = fieldsets.intersection(fieldsets.difference(there, kept), last)
    return _removed(type_, merged, gone)


def _removed(type_: typed.Type, value: Object, fields: fieldsets.Set) -> Object:
    left = merging.removed(type_, value, fields)
    return {} if left is merging.ABSENT else left


def _denulled(type_: typed.Type, value: Any) -> Any:
    """Where a server reads objects into structures of its own, null is no value."""
    form = type_.form(value)
    if form == typed.MAP and value:
        inner = ((name, below) for name, below in value.items() if below is not None or not type_.native)
        return {name: _denulled(type_.field(name) or typed.FREE, below) for name, below in inner}
    if form == typed.LIST and value:
        return [_denulled(type_.items, below) for below in value]
    return value


def _refusal(conflicts: dict[managed.Who, fieldsets.Set], subresource: str) -> problem.Problem:
    causes = []
    told = []
    for who in sorted(conflicts, key=managed.identity):
        paths = [fieldsets.told(path) for path in fieldsets.members(conflicts[who])]
        shown_as = (*who[:2], "autoscaling/v1", who[3]) if subresource == "scale" else who
        name = managed.described(shown_as)
        told.append("\n- ".join([f"conflicts with {name}:", *paths]))
        causes += [problem.Cause("FieldManagerConflict", f"conflict with {name}", path) for path in paths]
    if len(causes) == 1:
        message = f"Apply failed with 1 conflict: {causes[0].message}: {causes[0].field}"
    else:
        message = f"Apply failed with {len(causes)} conflicts: " + "\n".join(told)
    return problem.Problem(409, "Conflict", message, details={"causes": [dataclasses.asdict(c) for c in causes]})


def _not_of_client_side(how: _How, live: Object | None, conflicts: Conflicts) -> dict[managed.Who, fieldsets.Set]:
    """The conflicts that are real: what `kubectl apply` wrote by itself before, and is still there, may change."""
    allowed = _client_side(how.type, live or {})
    left = {who: fieldsets.difference(fields, allowed) for who, fields in conflicts.fields.items()}
    return {who: fields for who, fields in left.items() if fields}


def _client_side(type_: typed.Type, live: Object) -> fieldsets.Set:
    text = ((live.get("metadata") or {}).get("annotations") or {}).get(LAST_APPLIED)
    try:
        before = json.loads(text or "null")
    except ValueError:
        return {}
    if not isinstance(before, dict) or before.get("apiVersion") != live.get("apiVersion"):
        return {}
    changes = comparing.compare(type_, before, live)
    fields = comparing.owned(type_, before)
    for changed in (changes.modified, changes.added, changes.removed):
        fields = fieldsets.difference(fields, changed)
    return fields


def _keep_last_applied(found: Object, applied: Object) -> None:
    """Let the annotation of client-side apply, if there is one, say what was applied, should it be used again."""
    annotations = found["metadata"].get("annotations") or {}
    if not annotations.get(LAST_APPLIED):
        return
    meta = dict(applied.get("metadata") or {})
    own = {key: value for key, value in (meta.get("annotations") or {}).items() if key != LAST_APPLIED}
    if own or "annotations" in meta:
        meta["annotations"] = own
    text = json.dumps({**applied, "metadata": meta}, separators=(",", ":"), sort_keys=True, ensure_ascii=False) + "\n"
    annotations = {**annotations, LAST_APPLIED: text}
    if sum(len(key) + len(value) for key, value in annotations.items()) > _MOST_ANNOTATIONS:
        del annotations[LAST_APPLIED]
    found["metadata"]["annotations"] = annotations


def check_document(document: Any) -> Object:
    """What was read from an apply request's body, if it is an object; 400 if not."""
    if isinstance(document, dict):
        return document
    told = f"json: cannot unmarshal {patches.json_type(document)} into Go value of type map[string]interface {{}}"
    raise problem.bad_request(f"error decoding YAML: error unmarshaling JSON: while decoding JSON: {told}")
