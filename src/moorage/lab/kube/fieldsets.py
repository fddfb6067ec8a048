"""Sets of fields in the form in which managedFields carries them (FieldsV1), and what may be done with them.

A set is a tree of dicts. ``f:name`` is a field, ``k:{"name":"x"}`` the item of a list with these keys, ``v:"x"`` the
item of a set, ``i:0`` the item at an index. An empty dict is a member; one with members below it says so by ``"."``.
Sets are never changed once made: what comes out shares with what went in whatever is the same, and *is* the first
operand when nothing was gained or lost, so that an unchanged set costs no more than looking at it.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from moorage.lab.kube import typed

Set = dict[str, Any]
Path = tuple[str, ...]

_SELF: Set = {".": {}}
# Go writes these as escapes wherever it writes JSON.
_ESCAPES = str.maketrans({"<": "\\u003c", ">": "\\u003e", "&": "\\u0026", "\u2028": "\\u2028", "\u2029": "\\u2029"})


class Malformed(ValueError):  # noqa: N818 - of what was sent, not of ours
    """What a client sent as managed fields cannot be read as a set."""


def field(name: str) -> str:
    return f"f:{name}"


@functools.lru_cache(maxsize=4096, typed=True)
def _value_element(value: object) -> str:
    return "v:" + json.dumps(value, ensure_ascii=False).translate(_ESCAPES)


@functools.lru_cache(maxsize=8192, typed=True)
def _key_element(names: tuple[str, ...], *values: object) -> str:
    keys = dict(sorted(zip(names, values, strict=True)))
    return "k:" + json.dumps(keys, ensure_ascii=False, separators=(",", ":")).translate(_ESCAPES)


def item(type_: typed.Type, value: Any) -> str:
    """The path element of an item of a set or keyed list; `typed.Untyped` if it has none."""
    if type_.keys is None:
        if isinstance(value, str | int | float):
            return _value_element(value)
        raise typed.Untyped(_unkeyable(value))
    return _key_element(type_.keys, *typed.key_values(type_, value))


def _unkeyable(value: Any) -> str:
    if isinstance(value, dict):
        return "associative list without keys has an element that's a map type"
    if isinstance(value, list):
        return "not supported: associative list with lists as elements"
    return "associative list without keys has an element that's an explicit null"


def union(one: Set, other: Set) -> Set:
    """What is in either."""
    found = one
    for element, below in other.items():
        mine = one.get(element)
        if mine is None:
            joined = below
        elif element == ".":
            continue
        else:
            joined = union(mine or _SELF, below or _SELF)
            if joined is mine or joined is _SELF:
                continue
        if found is one:
            found = dict(one)
        found[element] = joined
    return found


def difference(one: Set, other: Set) -> Set:
    """What is in the first and not in the second; having a field says nothing about the fields below it."""
    found = one
    for element, below in other.items():
        mine = one.get(element)
        if mine is None:
            continue
        left = {} if element == "." else difference(mine or _SELF, below or _SELF)
        if left is mine or left is _SELF:
            continue
        if found is one:
            found = dict(one)
        if left:
            found[element] = _folded(left)
        else:
            del found[element]
    return found


def intersection(one: Set, other: Set) -> Set:
    """What is in both."""
    found: Set = {}
    for element, below in other.items():
        mine = one.get(element)
        if mine is None:
            continue
        if element == ".":
            found[element] = below
        elif both := intersection(mine or _SELF, below or _SELF):
            found[element] = _folded(both)
    return found


def _folded(below: Set) -> Set:
    return {} if len(below) == 1 and "." in below else below


def without(fields: Set, paths: Sequence[Sequence[str]]) -> Set:
    """The set without these fields and everything below them; paths are names, as in ("metadata", "labels")."""
    for path in paths:
        fields = _cut(fields, path)
    return fields


def _cut(fields: Set, path: Sequence[str]) -> Set:
    element = field(path[0])
    below = fields.get(element)
    if below is None:
        return fields
    left = {} if len(path) == 1 else _cut(below, path[1:])
    if left is below:
        return fields
    found = {key: value for key, value in fields.items() if key != element}
    if left:
        found[element] = left
    return found


def put(fields: Set, path: Path, below: Set) -> None:
    """Put a member, or a whole subtree, into a set that is still being made."""
    for element in path[:-1]:
        inner = fields.get(element)
        if inner is None:
            inner = fields[element] = {}
        elif not inner:
            inner = fields[element] = dict(_SELF)
        fields = inner
    present = fields.get(path[-1])
    fields[path[-1]] = below if present is None else _folded(union(present or _SELF, below or _SELF))


def has(fields: Set, path: Path) -> bool:
    """Whether the field itself is a member."""
    for element in path:
        inner = fields.get(element)
        if inner is None:
            return False
        fields = inner
    return not fields or "." in fields


def members(fields: Set, path: Path = ()) -> Iterator[Path]:
    """The members' paths: at each level first those of that level, as real servers list them."""
    ordered = sorted((key for key in fields if key != "."), key=_rank)
    for element in ordered:
        if not fields[element] or "." in fields[element]:
            yield (*path, element)
    for element in ordered:
        yield from members(fields[element], (*path, element))


def _rank(element: str) -> tuple[int, str]:
    return "fkvi".find(element[0]), element


def told(path: Path) -> str:
    """A path as messages show it: .spec.containers[name="one"].image"""
    return "".join(_told(element) for element in path)


def _told(element: str) -> str:
    kind, _, rest = element.partition(":")
    if kind == "f":
        return f".{rest}"
    if kind == "k":
        return "[" + ",".join(f"{name}={_quoted(value)}" for name, value in json.loads(rest).items()) + "]"
    return f"[={_quoted(json.loads(rest))}]" if kind == "v" else f"[{rest}]"


def _quoted(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def ordered(fields: Set) -> Set:
    """The same set, its elements in the order in which they are shown."""
    return {element: ordered(fields[element]) for element in sorted(fields)}


def parsed(fields: Any) -> Set:
    """A set that a client sent, every element written the one way that we write it; what is no element is dropped."""
    if fields is None:
        return {}
    if not isinstance(fields, Mapping):
        raise Malformed(f"fieldsV1 is {type(fields).__name__}")
    found: Set = {}
    for element, below in fields.items():
        name = element if element == "." else _canonical(element)
        if name:
            inner = parsed(below)
            found[name] = {} if name == "." else _folded(inner)
    return found


def _canonical(element: str) -> str:
    kind, colon, rest = element.partition(":")
    if not colon:
        raise Malformed(f"missing colon: {element}")
    try:
        if kind == "k":
            keys = json.loads(rest)
            return _key_element(tuple(keys), *keys.values())
        if kind == "v":
            return _value_element(json.loads(rest))
        if kind == "i":
            return f"i:{int(rest)}"
    except (ValueError, TypeError, AttributeError) as error:
        raise Malformed(f"{element}: {error}") from None
    return element if kind == "f" else ""


def named(type_: typed.Type | None, fields: Set) -> Set:
    """The set, and with every field that the schema declares also its parents, as far as they are declared."""
    found: Set = {}
    for element, below in fields.items():
        if not below:
            found[element] = below
            continue
        kind, _, name = element.partition(":")
        inner = None if type_ is None else type_.field(name) if kind == "f" else type_.items
        full = named(inner, below)
        if kind == "f" and type_ is not None and type_.declares(name):
            full["."] = {}
        found[element] = full
    return found


def reconciled(type_: typed.Type | None, fields: Set) -> Set:
    """The set as it has to be read now if what it has members in has become atomic since it was written."""
    found = fields
    for element, below in fields.items():
        if not below or element == ".":
            continue
        kind, _, name = element.partition(":")
        inner = None if type_ is None else type_.field(name) if kind == "f" else type_.items
        whole = inner is not None and ((inner.maps and inner.atomic) or (not inner.maps and inner.whole_list))
        left = {} if whole else reconciled(inner, below)
        if left is not below:
            if found is fields:
                found = dict(fields)
            found[element] = left
    return found
