"""Which fields differ between two objects, and which fields an object has, as sets of `fieldsets`.

Objects are taken apart as their type says: maps field by field, keyed lists item by item, wholes not at all.
What is equal is passed over without a look inside, so comparing costs little when little has changed.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from moorage.lab.kube import fieldsets, typed

Object = dict[str, Any]
_ABSENT: Any = object()

UNTRACKED = frozenset(
    (
        "name",
        "namespace",
        "creationTimestamp",
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
        "selfLink",
        "uid",
        "clusterName",
        "generation",
        "managedFields",
        "resourceVersion",
    )
)
"""The metadata that belongs to the server: nobody manages it."""


@dataclasses.dataclass(slots=True)
class Changes:
    """The fields that came, that have another value now, and that went."""

    added: fieldsets.Set
    modified: fieldsets.Set
    removed: fieldsets.Set

    def without(self, paths: tuple[tuple[str, ...], ...]) -> Changes:
        """The changes outside of these fields."""
        if not paths:
            return self
        return Changes(
            fieldsets.without(self.added, paths),
            fieldsets.without(self.modified, paths),
            fieldsets.without(self.removed, paths),
        )


def compare(type_: typed.Type, before: Object, after: Object) -> Changes:
    """What is different in ``after``; ``before`` may be empty. Kind, version and the server's metadata are left out."""
    found = Changes({}, {}, {})
    for name, one, other in _pairs(type_, before, after):
        if name == "metadata":
            one, other = _tracked(one), _tracked(other)
            if one == other:
                continue
        elif name in ("apiVersion", "kind"):
            continue
        _compare(type_.field(name) or typed.FREE, one, other, (f"f:{name}",), found)
    # Owning all of the metadata would be owning nothing in particular.
    for fields in (found.added, found.removed):
        below = fields.get("f:metadata")
        if below is not None:
            below.pop(".", None)
            if not below:
                del fields["f:metadata"]
    return found


def _tracked(metadata: Any) -> Any:
    if not isinstance(metadata, dict):
        return {}
    return {name: value for name, value in metadata.items() if name not in UNTRACKED}


def _pairs(type_: typed.Type, one: Object, other: Object) -> list[tuple[str, Any, Any]]:
    """The fields that are not equal: name, one value, the other; absent values are `_ABSENT`."""
    found = []
    for name, value in one.items():
        there = other.get(name, _ABSENT)
        if there is not value and (there is _ABSENT or there != value):
            found.append((name, value, there))
    found += [(name, _ABSENT, value) for name, value in other.items() if name not in one]
    if type_.native:
        found = [pair for pair in (_native_pair(type_, *each) for each in found) if pair[1] != pair[2]]
    return found


def _native_pair(type_: typed.Type, name: str, one: Any, other: Any) -> tuple[str, Any, Any]:
    zero = type_.zeros.get(name, _ABSENT)
    return name, zero if _nothing(type_, name, one) else one, zero if _nothing(type_, name, other) else other


def _nothing(type_: typed.Type, name: str, value: Any) -> bool:
    """Whether a native object does not show this value of a field: null, an empty map, an empty list."""
    if value is _ABSENT or value is None:
        return True
    return value in ({}, []) and not (type_.field(name) or typed.FREE).native


def _compare(type_: typed.Type, one: Any, other: Any, path: fieldsets.Path, found: Changes) -> None:
    if one is _ABSENT:
        fieldsets.put(found.added, path, _covering(type_, other))
        return
    if other is _ABSENT:
        fieldsets.put(found.removed, path, _covering(type_, one))
        return
    forms = {type_.form(value) for value in (one, other) if value is not None}
    for form in forms:
        _compare_as(form, type_, one, other, path, found)


def _compare_as(form: str, type_: typed.Type, one: Any, other: Any, path: fieldsets.Path, found: Changes) -> None:
    """Compare two values as if both had this form; what has another counts as empty."""
    if form == typed.MAP and not type_.atomic:
        one_map, other_map = one if isinstance(one, dict) else {}, other if isinstance(other, dict) else {}
        if one_map or other_map:
            for name, a, b in _pairs(type_, one_map, other_map):
                _compare(type_.field(name) or typed.FREE, a, b, (*path, f"f:{name}"), found)
            return
    elif form == typed.LIST and not type_.whole_list:
        one_list, other_list = one if isinstance(one, list) else [], other if isinstance(other, list) else []
        if one_list or other_list:
            _compare_lists(type_, one_list, other_list, path, found)
            return
    fieldsets.put(found.modified, path, {})


def _compare_lists(type_: typed.Type, one: list[Any], other: list[Any], path: fieldsets.Path, found: Changes) -> None:
    before, after = _by_item(type_, one), _by_item(type_, other)
    for element in {**before, **after}:
        a, b = before.get(element, []), after.get(element, [])
        if a == b:
            continue
        here = (*path, element)
        if len(a) <= 1 and len(b) <= 1:
            _compare(type_.items, a[0] if a else _ABSENT, b[0] if b else _ABSENT, here, found)
        elif len(a) >= 2 and len(b) >= 2:
            fieldsets.put(found.modified, here, {})
        elif len(a) >= 2:
            # Items of the same key cannot be told apart: together they are one member.
            if b:
                fieldsets.put(found.added, here, _covering(type_.items, b[0]))
            fieldsets.put(found.removed, here, {})
        else:
            if a:
                fieldsets.put(found.removed, here, _covering(type_.items, a[0]))
            fieldsets.put(found.added, here, {})


def _by_item(type_: typed.Type, items: list[Any]) -> dict[str, list[Any]]:
    found: dict[str, list[Any]] = {}
    for value in items:
        try:
            found.setdefault(fieldsets.item(type_, value), []).append(value)
        except typed.Untyped:
            continue
    return found


def _covering(type_: typed.Type, value: Any) -> fieldsets.Set:
    """The value itself and all there is in it."""
    form = type_.form(value)
    found: fieldsets.Set = {}
    if form == typed.MAP and not type_.atomic:
        for name, inner in (value or {}).items():
            if not (type_.native and _nothing(type_, name, inner)):
                found[f"f:{name}"] = _covering(type_.field(name) or typed.FREE, inner)
    elif form == typed.LIST and not type_.whole_list:
        for element, values in _by_item(type_, value or []).items():
            found[element] = _covering(type_.items, values[0]) if len(values) == 1 else {}
    if found:
        found["."] = {}
    return found


def owned(type_: typed.Type, value: Any) -> fieldsets.Set:
    """The fields that whoever applies this object says something about."""
    return _owned(type_, value) or {}


def _owned(type_: typed.Type, value: Any) -> fieldsets.Set | None:
    """What is owned below a value; None if the value itself is."""
    form = type_.form(value)
    if form == typed.MAP and not type_.atomic:
        return _owned_fields(type_, value or {})
    if form == typed.LIST and not type_.whole_list:
        found: fieldsets.Set = {}
        for element, values in _by_item(type_, value or []).items():
            below = _owned(type_.items, values[0]) if len(values) == 1 else None
            found[element] = {**below, ".": {}} if below else {}
        return found
    return None


def _owned_fields(type_: typed.Type, value: Object) -> fieldsets.Set:
    found: fieldsets.Set = {}
    for name, inner in value.items():
        below = _owned(type_.field(name) or typed.FREE, inner)
        if below is None:
            found[f"f:{name}"] = {}
        elif inner is None or inner == {} or not type_.declares(name):
            found[f"f:{name}"] = {**below, ".": {}} if below else {}
        elif below:
            found[f"f:{name}"] = below
    return found
