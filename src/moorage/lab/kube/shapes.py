"""The fields of the built-in kinds, read from the small files in ``shapes_data``.

A file names its package and then its shapes, each with a line per field: name, type, particulars, ``--``, description.

    Container -- One program of a pod.
      name! string needed -- The name, unique within the pod.
      env [EnvVar] map:name merge:name
      resources ResourceRequirements ={}

``!`` means that published documents call the field required, and that a scalar which is absent reads as its zero;
``needed`` that a server refuses an object without it. A type is a scalar, ``[T]``, ``{T}`` (a map), ``a|b`` (one of
these; an underscore stands for a blank), or a shape, of another file as in ``meta.ObjectMeta``. The particulars are
``atomic``, ``granular``, ``set``, ``map:KEYS`` for server-side apply, ``merge[:KEY]``, ``retain`` and ``replace`` for
strategic merge, ``unique`` if entries with the same key are refused, ``positive``, ``nonnegative`` and ``port`` for
numbers, and ``=DEFAULT``. Everything is read once per process, in a few milliseconds.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import pathlib
from collections.abc import Callable, Iterator
from typing import Any

from moorage.lab.kube import kinds, native_defaults

NATIVE = "x-native"
"""Marks an object that a real server reads into a structure of its own: null means absent, unknown fields are lost."""
DEFAULTS = "x-native-defaults"
"""What completes such an object where a plain default does not do."""
UNIQUE = "x-native-unique"
"""The key by which no two entries of a list may be alike."""
FIELD = "x-native-field"
"""Marks every field of a built-in shape, also those that are no objects."""
OMITTED = "x-native-omitted"
"""Marks lists and maps that are left out when they are empty."""
BOUND = "x-native-bound"
"""Which numbers a field may hold: one of `BOUNDS`."""
BOUNDS = ("positive", "nonnegative", "port")

_FILES = pathlib.Path(__file__).parent / "shapes_data"
_GROUPS = {
    "rbac.authorization.k8s.io": "rbac",
    "": "core",
}
_ANYTHING = {"x-kubernetes-preserve-unknown-fields": True}
_SCALARS: dict[str, dict[str, Any]] = {
    "string": {"type": "string"},
    "bytes": {"type": "string", "format": "byte"},
    "bool": {"type": "boolean"},
    "int32": {"type": "integer", "format": "int32"},
    "int64": {"type": "integer", "format": "int64"},
    "double": {"type": "number", "format": "double"},
    "object": {"type": "object", **_ANYTHING},
}
# Types of their own name in published documents: how they are published, and how they are held against objects.
_NAMED: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    **{
        name: (
            "io.k8s.apimachinery.pkg.apis.meta.v1",
            {"type": "string", "format": "date-time"},
            {"type": "string", "format": "date-time", NATIVE: name},
        )
        for name in ("Time", "MicroTime")
    },
    "Quantity": (
        "io.k8s.apimachinery.pkg.api.resource",
        {"oneOf": [{"type": "string"}, {"type": "number"}]},
        {"x-kubernetes-int-or-string": True, NATIVE: "Quantity"},
    ),
    "IntOrString": (
        "io.k8s.apimachinery.pkg.util.intstr",
        {"format": "int-or-string", "oneOf": [{"type": "integer"}, {"type": "string"}]},
        {"x-kubernetes-int-or-string": True, NATIVE: "IntOrString"},
    ),
    "RawExtension": ("io.k8s.apimachinery.pkg.runtime", {"type": "object"}, {"type": "object", **_ANYTHING}),
    "FieldsV1": ("io.k8s.apimachinery.pkg.apis.meta.v1", {"type": "object"}, {"type": "object", **_ANYTHING}),
    **{
        name: ("io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1", {}, _ANYTHING)
        for name in ("JSON", "JSONSchemaPropsOrArray", "JSONSchemaPropsOrBool", "JSONSchemaPropsOrStringArray")
    },
}
_ZEROS: dict[str, Any] = {"string": "", "int32": 0, "int64": 0, "bool": False}


@dataclasses.dataclass(frozen=True)
class Field:
    """A line of a shape."""

    name: str
    type: str
    required: bool
    needed: bool
    words: tuple[str, ...]
    default: Any
    description: str


@dataclasses.dataclass(frozen=True)
class Shape:
    """The fields of an object; ``full_name`` is its name in published documents."""

    alias: str
    name: str
    full_name: str
    atomic: bool
    description: str
    fields: tuple[Field, ...]

    @property
    def go_name(self) -> str:
        """How a Go program calls it: v1.Container."""
        return ".".join(self.full_name.split(".")[-2:])


NOTHING = object()
"""A field without a default; null would be one."""


def schema(group: str, version: str, name: str) -> kinds.Schema:
    """The schema that objects of a built-in kind are held against. Shapes are shared, and may hold themselves."""
    return resolved(f"{alias_of(group, version)}.{name}")


def alias_of(group: str, version: str) -> str:
    """Which file has the shapes of a group and version."""
    alias = _GROUPS.get(group, group.split(".", maxsplit=1)[0])
    return "autoscaling1" if (group, version) == ("autoscaling", "v1") else alias


def resolved(reference: str) -> kinds.Schema:
    """The schema of a shape such as ``meta.ObjectMeta``, with every shape it refers to in place."""
    return _resolved(*reference.split("."))


def published(reference: str, prefix: str) -> dict[str, Any]:
    """A shape as documents show it: shapes it refers to are a ``$ref`` of this prefix and their full name."""
    shape = shapes()[reference]
    properties = {field.name: _published_field(shape.alias, field, prefix) for field in shape.fields}
    found: dict[str, Any] = {"type": "object"}
    if shape.description:
        found["description"] = shape.description
    if required := [field.name for field in shape.fields if field.required]:
        found["required"] = required
    if properties:
        found["properties"] = properties
    if shape.atomic:
        found["x-kubernetes-map-type"] = "atomic"
    return found


def named_types() -> dict[str, dict[str, Any]]:
    """The published types that are no objects with fields, by their full names."""
    return {f"{package}.{name}": dict(shown) for name, (package, shown, _) in _NAMED.items()}


def references(reference: str) -> Iterator[str]:
    """The shapes, by reference, that the fields of a shape mention."""
    shape = shapes()[reference]
    for field in shape.fields:
        inner = field.type.strip("[]{}")
        if "|" not in inner and inner not in _SCALARS and inner not in _NAMED:
            yield _absolute(shape.alias, inner)


@functools.cache
def shapes() -> dict[str, Shape]:
    """All shapes, by reference."""
    found = {}
    for file in sorted(_FILES.glob("*.txt")):
        for shape in _read(file.read_text(encoding="utf-8")):
            found[f"{shape.alias}.{shape.name}"] = shape
    return found


def _read(text: str) -> Iterator[Shape]:
    header, *blocks = text.split("\n\n")
    _, alias, package = header.split()
    for block in blocks:
        first, *lines = block.strip("\n").split("\n")
        title, _, description = first.partition(" -- ")
        name, _, how = title.partition(" ")
        fields = tuple(_field(line) for line in lines)
        yield Shape(alias, name, f"{package}.{name}", how == "atomic", description, fields)


def _field(line: str) -> Field:
    spoken, _, description = line.strip().partition(" -- ")
    name, type_, *words = spoken.split(" ")
    required, needed = name.endswith("!"), "needed" in words
    default = NOTHING
    for word in words:
        if word.startswith("="):
            default = _default(word[1:], type_)
    if required and not needed and default is NOTHING:
        default = _ZEROS.get(type_, NOTHING)
    words = [word for word in words if word != "needed" and not word.startswith("=")]
    return Field(name.rstrip("!"), type_, required, needed, tuple(words), default, description)


def _default(word: str, type_: str) -> Any:
    if word[0] in '{["' or type_ in ("int32", "int64", "bool") or word.isdigit():
        return json.loads(word)
    return word


def _absolute(alias: str, type_: str) -> str:
    return type_ if "." in type_ else f"{alias}.{type_}"


@functools.cache
def _resolved(alias: str, name: str) -> dict[str, Any]:
    return _Resolver.of(f"{alias}.{name}")


class _Resolver:
    """The schemas made so far. A shape that holds itself is found here while it is still being filled."""

    made: dict[str, dict[str, Any]] = {}  # noqa: RUF012 - one for the process

    @classmethod
    def of(cls, reference: str) -> dict[str, Any]:
        if reference in cls.made:
            return cls.made[reference]
        shape = shapes()[reference]
        properties: dict[str, Any] = {}
        found: dict[str, Any] = {"type": "object", NATIVE: shape.go_name, "properties": properties}
        if needed := [field.name for field in shape.fields if field.needed]:
            found["required"] = needed
        if shape.atomic:
            found["x-kubernetes-map-type"] = "atomic"
        if complete := native_defaults.OF.get(reference):
            found[DEFAULTS] = complete
        cls.made[reference] = found
        for field in shape.fields:
            inner = _typed(field.type, functools.partial(cls._inner, shape.alias))
            properties[field.name] = {**inner, **_particulars(field), **_native(field), "nullable": True, FIELD: True}
        return found

    @classmethod
    def _inner(cls, alias: str, type_: str) -> dict[str, Any]:
        if type_ in _NAMED:
            return _NAMED[type_][2]
        return cls.of(_absolute(alias, type_))


def _published_field(alias: str, field: Field, prefix: str) -> dict[str, Any]:
    def refer(name: str) -> dict[str, Any]:
        full = f"{_NAMED[name][0]}.{name}" if name in _NAMED else shapes()[_absolute(alias, name)].full_name
        return {"$ref": f"{prefix}{full}"}

    found = _typed(field.type, refer)
    more = _particulars(field)
    if field.description:
        more["description"] = field.description
    if "$ref" in found and more:
        # What stands beside a $ref is not read.
        return {"allOf": [found], **more}
    found.pop("x-kubernetes-preserve-unknown-fields", None)
    return {**found, **more}


def _typed(type_: str, refer: Callable[[str], dict[str, Any]]) -> dict[str, Any]:
    if type_[0] == "[":
        return {"type": "array", "items": _typed(type_[1:-1], refer)}
    if type_[0] == "{":
        return {"type": "object", "additionalProperties": _typed(type_[1:-1], refer)}
    if type_ in _SCALARS:
        return dict(_SCALARS[type_])
    if "|" in type_:
        return {"type": "string", "enum": type_.replace("_", " ").split("|")}
    return refer(type_)


def _native(field: Field) -> dict[str, Any]:
    """What only this server is to know of a field."""
    found: dict[str, Any] = {}
    if bound := next((word for word in field.words if word in BOUNDS), ""):
        found[BOUND] = bound
    if "unique" in field.words:
        found[UNIQUE] = next(word for word in field.words if word.startswith("map:")).removeprefix("map:")
    if field.type[0] in "[{" and not field.required:
        found[OMITTED] = True
    return found


def _particulars(field: Field) -> dict[str, Any]:
    found: dict[str, Any] = {}
    strategies = []
    for word in field.words:
        what, _, value = word.partition(":")
        if what == "map":
            found |= {"x-kubernetes-list-map-keys": value.split(","), "x-kubernetes-list-type": "map"}
        elif what in ("merge", "retain", "replace"):
            strategies.append("retainKeys" if what == "retain" else what)
            if value:
                found["x-kubernetes-patch-merge-key"] = value
        elif what != "unique" and what not in BOUNDS:
            of_list = field.type[0] == "[" or field.type == "bytes"
            found["x-kubernetes-list-type" if of_list else "x-kubernetes-map-type"] = what
    if strategies:
        found["x-kubernetes-patch-strategy"] = ",".join(strategies)
    if field.default is not NOTHING:
        found["default"] = field.default
    return found
