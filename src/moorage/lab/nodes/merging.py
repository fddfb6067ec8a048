"""How Ignition lays one config (the child) over another (the parent).

Single values: the child's, if it says one. Structs: field by field. Lists: entries with the same key become one, the
others follow in order; a path that is a file in the parent and a link in the child becomes the link alone. Appended
contents have no keys and add up.
"""

from __future__ import annotations

from typing import Any

from moorage.lab.nodes import specs


def merged(parent: specs.Config, child: specs.Config) -> specs.Config:
    """The child laid over the parent; neither is changed."""
    return _struct(specs.CONFIG, parent, child)


def key_of(kind: specs.Struct | type, entry: Any) -> str:
    """What tells an entry of a list from the others."""
    if isinstance(kind, specs.Struct):
        return kind.key(entry) if kind.key else ""
    return str(entry)


def _struct(kind: specs.Struct, parent: specs.Config, child: specs.Config) -> specs.Config:
    elsewhere = _keys_by_list(kind, child)
    result: specs.Config = {}
    for name, field in kind.fields.items():
        ours, theirs = parent.get(name), child.get(name)
        value: Any
        if isinstance(field.kind, specs.Struct):
            value = _struct(field.kind, ours or {}, theirs or {}) if ours and theirs else theirs or ours
        elif isinstance(field.kind, specs.Listed):
            others = set().union(*(keys for other, keys in elsewhere.items() if other != name))
            value = _list(name, field.kind, ours or [], theirs or [], others if name in elsewhere else set())
        else:
            value = theirs if theirs is not None or field.plain else ours
        if value is not None and value != [] and value != {}:
            result[name] = value
    return result


def _keys_by_list(kind: specs.Struct, child: specs.Config) -> dict[str, set[str]]:
    """The child's keys in each of the lists that share one space of them."""
    found = {}
    for name in kind.shared:
        listed = kind.fields[name].kind
        if isinstance(listed, specs.Listed):
            found[name] = {key_of(listed.of, entry) for entry in child.get(name) or []}
    return found


def _list(name: str, kind: specs.Listed, parent: list[Any], child: list[Any], elsewhere: set[str]) -> list[Any]:
    if kind.repeat:
        return [*parent, *child]
    theirs = {key_of(kind.of, entry): entry for entry in child}
    ours = {key_of(kind.of, entry) for entry in parent}
    result = []
    for entry in parent:
        key = key_of(kind.of, entry)
        if key in theirs:
            # A header that the child names without a value is one that shall not be sent.
            if not (name == "httpHeaders" and theirs[key].get("value") is None):
                result.append(_struct(kind.of, entry, theirs[key]) if isinstance(kind.of, specs.Struct) else entry)
        elif key not in elsewhere:
            result.append(entry)
    return result + [entry for entry in child if key_of(kind.of, entry) not in ours]
