"""A schema as merging sees it: which values are structs, maps, lists with keys, sets, or wholes that cannot be shared.

`of` reads an OpenAPI schema with its x-kubernetes extensions once and keeps the result; types below the root are read
when somebody first asks for them, because schemas are big and may contain themselves. Where a schema says nothing the
type is deduced from the value: objects field by field, lists as a whole.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from moorage.lab.kube import kinds, patches

MAP = "map"
LIST = "list"
LEAF = "leaf"

# Marks an object that a real server reads into a structure of its own: null means absent.
_NATIVE = "x-native"
_PRESERVE = "x-kubernetes-preserve-unknown-fields"
_FREE: dict[str, Any] = {_PRESERVE: True}
_WHOLE: dict[str, Any] = {_PRESERVE: True, "x-kubernetes-map-type": "atomic"}
_TEXT: dict[str, Any] = {"type": "string"}
_TEXTS: dict[str, Any] = {"type": "object", "additionalProperties": _TEXT}
_METADATA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "annotations": _TEXTS,
        "creationTimestamp": _TEXT,
        "deletionGracePeriodSeconds": {"type": "integer"},
        "deletionTimestamp": _TEXT,
        "finalizers": {"type": "array", "items": _TEXT, "x-kubernetes-list-type": "set"},
        "generateName": _TEXT,
        "generation": {"type": "integer"},
        "labels": _TEXTS,
        "managedFields": {"type": "array", "items": _FREE, "x-kubernetes-list-type": "atomic"},
        "name": _TEXT,
        "namespace": _TEXT,
        "ownerReferences": {
            "type": "array",
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["uid"],
            "items": {
                "type": "object",
                "x-kubernetes-map-type": "atomic",
                "properties": {
                    **dict.fromkeys(("apiVersion", "kind", "name", "uid"), _TEXT),
                    "blockOwnerDeletion": {"type": "boolean"},
                    "controller": {"type": "boolean"},
                },
            },
        },
        "resourceVersion": _TEXT,
        "selfLink": _TEXT,
        "uid": _TEXT,
    },
}
"""What every object has; definitions of custom kinds do not say it."""

# Structures that are filled in where they are absent, but unlike the other ones can be absent.
_POINTERS = frozenset(("PodSecurityContext", "StatefulSetPersistentVolumeClaimRetentionPolicy"))
_ZEROS: dict[str, Any] = {"string": "", "integer": 0, "number": 0, "boolean": False}


class Untyped(ValueError):  # noqa: N818 - of what was sent, not of ours
    """A value does not fit its type; the text says why."""


class Type:
    """What one schema says. ``keys``: names for a keyed list, None for a set; ``whole_list``: items have no owners."""

    __slots__ = (
        "_element",
        "_fields",
        "_items",
        "_preserve",
        "_properties",
        "_schema",
        "atomic",
        "keys",
        "lists",
        "maps",
        "native",
        "scalar",
        "whole_list",
        "zeros",
    )

    def __init__(self, schema: Mapping[str, Any], preserve: bool = False) -> None:
        inner = schema.get("allOf")
        if inner and len(inner) == 1 and "type" not in schema:
            schema = {**inner[0], **{key: value for key, value in schema.items() if key != "allOf"}}
        if schema.get("x-kubernetes-embedded-resource"):
            schema = _embedded(schema)
        kind = schema.get("type") or ""
        self._schema = schema
        self._preserve = preserve or bool(schema.get(_PRESERVE))
        self._properties: Mapping[str, Any] = schema.get("properties") or {}
        self._fields: dict[str, Type | None] = {}
        self._element: Type | bool | None = False
        self._items: Type | None = None
        self.maps = kind in ("object", "")
        self.lists = kind in ("array", "")
        self.scalar = kind if kind not in ("object", "array") else None
        self.atomic = schema.get("x-kubernetes-map-type") == "atomic"
        self.native = bool(schema.get(_NATIVE)) and self.maps
        self.whole_list, self.keys = _list_kind(schema)
        self.zeros: dict[str, Any] = _zeros(schema) if self.native else {}

    def declares(self, name: str) -> bool:
        """Whether the field is one of the schema's own, not just any key of a map."""
        return name in self._properties

    def field(self, name: str) -> Type | None:
        """The type of a field; None if there may be no such field."""
        try:
            return self._fields[name]
        except KeyError:
            schema = self._properties.get(name)
            if schema is None:
                return self.element
            found = self._fields[name] = _shared(schema, self._preserve)
            return found

    @property
    def element(self) -> Type | None:
        """The type of the fields that are not declared."""
        if isinstance(self._element, bool):
            more = self._schema.get("additionalProperties")
            if isinstance(more, Mapping):
                self._element = _shared(more, self._preserve)
            elif more or (more is None and (self._preserve or not self._properties)):
                self._element = FREE
            else:
                self._element = None
        return self._element

    @property
    def items(self) -> Type:
        """The type of a list's items."""
        if self._items is None:
            schema = self._schema.get("items")
            self._items = WHOLE if schema is None else _shared(schema, self._preserve)
        return self._items

    @property
    def defaults(self) -> dict[str, Any]:
        """What the fields of an object are that do not say it: they may be keys of a list's items."""
        found = dict(self.zeros)
        for name, schema in self._properties.items():
            if schema.get("default") is not None:
                found[name] = schema["default"]
        return found

    def fits(self, value: Any) -> bool:
        """Whether a value that is not taken apart is of the schema's type."""
        match self.scalar:
            case "integer" | "number":
                return isinstance(value, int | float) and not isinstance(value, bool)
            case "boolean":
                return isinstance(value, bool)
            case "string":
                # A format such as date-time or int-or-string has its own ways of being written.
                plain = self._schema.get("format") in (None, "", "byte")
                return isinstance(value, str) or (not plain and not isinstance(value, dict | list))
        return True

    def form(self, value: Any) -> str:
        """How to take a value apart: as a map, as a list, or not at all. Null is an empty one where it can be."""
        if isinstance(value, dict):
            return MAP if self.maps else LEAF
        if isinstance(value, list):
            return LIST if self.lists else LEAF
        if value is None:
            return MAP if self.maps else LIST if self.lists and self.scalar is None else LEAF
        return LEAF


def _list_kind(schema: Mapping[str, Any]) -> tuple[bool, tuple[str, ...] | None]:
    kind = schema.get("x-kubernetes-list-type")
    if kind == "map":
        return False, tuple(schema.get("x-kubernetes-list-map-keys") or ())
    if kind is not None:
        return kind != "set", None
    if "merge" in str(schema.get("x-kubernetes-patch-strategy", "")).split(","):
        key = schema.get("x-kubernetes-patch-merge-key")
        return False, (key,) if key else None
    return True, None


def _zeros(schema: Mapping[str, Any]) -> dict[str, Any]:
    """What the fields of a native object read as when they are absent, for those that are never really absent."""
    required = schema.get("required") or ()
    found: dict[str, Any] = {}
    for name, inner in (schema.get("properties") or {}).items():
        default = inner.get("default")
        native = str(inner.get(_NATIVE, "")).rpartition(".")[2]
        if native == "ObjectMeta" or (default == {} and native not in _POINTERS):
            found[name] = {}
        elif default in ("", 0):
            found[name] = default
        elif name in required:
            found[name] = _ZEROS.get(inner.get("type", ""))
    return found


def _embedded(schema: Mapping[str, Any]) -> dict[str, Any]:
    """The schema of a whole object, with the fields that every object has."""
    properties = dict(schema.get("properties") or {})
    if not (properties.get("metadata") or {}).get(_NATIVE):
        properties |= {"apiVersion": _TEXT, "kind": _TEXT, "metadata": _METADATA}
    return {**schema, "properties": properties}


FREE = Type(_FREE)
"""Anything, owned field by field."""
WHOLE = Type(_WHOLE)
"""Anything, owned as a whole."""

_MOST_KEPT = 10_000
# By the identity of the schema, which is held so that no other can come to the same address.
_kept: dict[tuple[int, bool], tuple[Mapping[str, Any], Type]] = {}
_roots: dict[int, tuple[kinds.Schema, Type]] = {}


def of(schema: kinds.Schema | None) -> Type:
    """The type of whole objects of a kind."""
    if schema is None:
        schema = _FREE
    found = _roots.get(id(schema))
    if found is None:
        if len(_roots) > _MOST_KEPT:
            _roots.clear()
        found = _roots[id(schema)] = (schema, Type(_embedded(schema)))
    return found[1]


def _shared(schema: Mapping[str, Any], preserve: bool) -> Type:
    found = _kept.get((id(schema), preserve))
    if found is None:
        if len(_kept) > _MOST_KEPT:
            _kept.clear()
        found = _kept[id(schema), preserve] = (schema, Type(schema, preserve))
    return found[1]


def key_values(type_: Type, value: Any) -> list[Any]:
    """The values of the keys by which an item of this list is known."""
    if not isinstance(value, dict):
        null = value is None
        raise Untyped(f"associative list with keys may not have {'a null element' if null else 'non-map elements'}")
    names = type_.keys or ()
    try:
        return [value[name] for name in names]
    except KeyError:
        defaults = type_.items.defaults
        for name in names:
            if name not in value and name not in defaults:
                raise Untyped(
                    f'associative list with keys has an element that omits key field "{name}"'
                    " (and doesn't have default value)"
                ) from None
        return [value[name] if name in value else defaults[name] for name in names]


_WRONG = {
    "integer": "numeric (int or float), got {type}",
    "number": "numeric (int or float), got {type}",
    "string": "string, got &value.valueUnstructured{{Value:{exact}}}",
    "boolean": "boolean, got &{{{shown}}}",
}


def mistakes(type_: Type, value: Any, item_of: Any) -> Iterator[tuple[str, str]]:
    """Where and how a value does not fit its type; ``item_of`` tells list items apart, as `fieldsets.item` does."""
    form = type_.form(value)
    if form == LEAF or value is None:
        if wrong := _wrong_leaf(type_, value):
            yield "", wrong
    elif form == MAP:
        for name, below in value.items():
            inner = type_.field(name)
            if inner is None:
                yield f".{name}", "field not declared in schema"
                continue
            for where, why in mistakes(inner, below, item_of):
                yield f".{name}{where}", why
    else:
        yield from _list_mistakes(type_, value, item_of)


def _list_mistakes(type_: Type, value: list[Any], item_of: Any) -> Iterator[tuple[str, str]]:
    seen: set[str] = set()
    for number, below in enumerate(value):
        at = f"[{number}]"
        if not type_.whole_list:
            try:
                at = item_of(type_, below)
            except Untyped as error:
                yield "", f"element {number}: {error}"
                return
            if at in seen:
                yield "", f"duplicate entries for key {at}"
            seen.add(at)
        for where, why in mistakes(type_.items, below, item_of):
            yield f"{at}{where}", why


def _wrong_leaf(type_: Type, value: Any) -> str:
    if value is None:
        return ""
    if type_.scalar is None:
        return f"expected {'map' if type_.maps else 'list'}, got &{{{patches.as_go(value)}}}"
    if type_.fits(value):
        return ""
    exact = patches.go_literal(value)
    words = _WRONG[type_.scalar]
    return "expected " + words.format(type=patches.go_type(value), exact=exact, shown=patches.as_go(value))
