"""Whether the schema in a CustomResourceDefinition is structural: says the type of everything, in one place.

The rules and the words of their refusals are those of a real server; rules in CEL are stored and not compiled.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from moorage.lab.kube import formats, problem, schema, validation

Cause = problem.Cause
Schema = Mapping[str, Any]

TYPES = ("array", "boolean", "integer", "number", "object", "string")

_UNSUPPORTED = ("$ref", "id", "additionalItems", "patternProperties", "definitions", "dependencies")
_JUNCTORS = ("allOf", "anyOf", "oneOf")
# What may not be said within allOf, anyOf, oneOf and not, with the words of the refusal.
_OUTSIDE_ONLY = {
    "type": "must be empty to be structural",
    "title": "must be empty to be structural",
    "description": "must be empty to be structural",
    "default": "must be undefined to be structural",
    "additionalProperties": "must be undefined to be structural",
    "nullable": "must be false to be structural",
    "x-kubernetes-preserve-unknown-fields": "must be false to be structural",
    "x-kubernetes-embedded-resource": "must be false to be structural",
    "x-kubernetes-int-or-string": "must be false to be structural",
}
_INT_OR_STRING = "x-kubernetes-int-or-string"
_PRESERVED = "x-kubernetes-preserve-unknown-fields"
_EMBEDDED = "x-kubernetes-embedded-resource"
_INT_OR_STRING_FORM = [{"type": "integer"}, {"type": "string"}]


def check(root: Schema, path: str) -> list[Cause]:
    """Everything wrong with the schema of a whole object."""
    if not root.get("type"):
        return [required(f"{path}.type", "must not be empty at the root")]
    if root["type"] != "object":
        return [invalid(f"{path}.type", root["type"], "must be object at the root")]
    found = list(_check(root, path))
    metadata = (root.get("properties") or {}).get("metadata")
    if metadata is not None and not _plain_metadata(metadata):
        words = "must not specify anything other than name and generateName, but metadata is implicitly specified"
        found.append(forbidden(f"{path}.properties[metadata]", words))
    return found


def required(path: str, words: str = "") -> Cause:
    return Cause("FieldValueRequired", f"Required value: {words}" if words else "Required value", path)


def forbidden(path: str, words: str) -> Cause:
    return Cause("FieldValueForbidden", f"Forbidden: {words}", path)


def invalid(path: str, value: Any, words: str) -> Cause:
    return Cause("FieldValueInvalid", f"Invalid value: {validation.told(value)}: {words}", path)


def unsupported(path: str, value: Any, allowed: tuple[str, ...]) -> Cause:
    told = ", ".join(f'"{each}"' for each in allowed)
    words = f"Unsupported value: {validation.told(value)}: supported values: {told}"
    return Cause("FieldValueNotSupported", words, path)


def _plain_metadata(metadata: Schema) -> bool:
    names = metadata.get("properties") or {}
    return set(names) <= {"name", "generateName"} and set(metadata) <= {"type", "properties", "description", "required"}


def _check(node: Schema, path: str) -> Iterator[Cause]:
    for key in _UNSUPPORTED:
        if node.get(key) is not None:
            yield forbidden(f"{path}.{key}", f"{key} is not supported")
    if node.get("uniqueItems"):
        words = "uniqueItems cannot be set to true since the runtime complexity becomes quadratic"
        yield forbidden(f"{path}.uniqueItems", words)
    if node.get("type") and node["type"] not in TYPES:
        yield unsupported(f"{path}.type", node["type"], TYPES)
    if node.get("pattern"):
        yield from _check_pattern(node["pattern"], path)
    yield from _check_items(node, path)
    yield from _check_list_type(node, path)
    yield from _check_embedded(node, path)
    yield from _check_fields(node, path)
    yield from _check_junctors(node, path)
    if "default" in node and node["default"] is not None:
        yield from _check_default(node, path)


def _check_pattern(pattern: str, path: str) -> Iterator[Cause]:
    try:
        formats.pattern(pattern)
    except re.error as wrong:
        words = f"must be a valid regular expression, but isn't: error parsing regexp: {wrong.msg}: `{pattern}`"
        yield invalid(f"{path}.pattern", pattern, words)


def _check_items(node: Schema, path: str) -> Iterator[Cause]:
    items = node.get("items")
    if isinstance(items, list):
        yield forbidden(f"{path}.items", "items must be a schema object and not an array")
    elif isinstance(items, dict):
        if not _has_type(items):
            yield required(f"{path}.items.type", "must not be empty for specified array items")
        yield from _check(items, f"{path}.items")
    elif node.get("type") == "array":
        yield required(f"{path}.items", "must be specified")


def _check_fields(node: Schema, path: str) -> Iterator[Cause]:
    properties, rest = node.get("properties") or {}, node.get("additionalProperties")
    if properties and rest is not None and rest is not False:
        words = "additionalProperties and properties are mutual exclusive"
        yield forbidden(f"{path}.additionalProperties", words)
    words = "must not be empty for specified object fields"
    for name, inner in properties.items():
        if not _has_type(inner):
            yield required(f"{path}.properties[{name}].type", words)
        yield from _check(inner, f"{path}.properties[{name}]")
    if isinstance(rest, dict):
        if not _has_type(rest):
            yield required(f"{path}.additionalProperties.type", words)
        yield from _check(rest, f"{path}.additionalProperties")


def _has_type(node: Schema) -> bool:
    free = node.get(_INT_OR_STRING) or node.get(_PRESERVED) or node.get(_EMBEDDED) or node.get("$ref")
    return bool(node.get("type") or free)


def _check_list_type(node: Schema, path: str) -> Iterator[Cause]:
    kind, keys = node.get("x-kubernetes-list-type"), node.get("x-kubernetes-list-map-keys") or []
    if kind is None:
        return
    if node.get("type") != "array":
        words = "must be array if x-kubernetes-list-type is specified"
        yield invalid(f"{path}.type", node.get("type", ""), words)
        return
    items = node["items"] if isinstance(node.get("items"), dict) else {}
    if kind not in ("atomic", "set", "map"):
        yield unsupported(f"{path}.x-kubernetes-list-type", kind, ("atomic", "set", "map"))
    elif kind == "set" and items.get("type") == "object" and items.get("x-kubernetes-map-type") != "atomic":
        words = "must be atomic as item of a list with x-kubernetes-list-type=set"
        yield invalid(f"{path}.items.x-kubernetes-map-type", items.get("x-kubernetes-map-type"), words)
    elif kind == "map":
        yield from _check_map_keys(items, keys, path)


def _check_map_keys(items: Schema, keys: list[str], path: str) -> Iterator[Cause]:
    where = f"{path}.x-kubernetes-list-map-keys"
    properties = items.get("properties") or {}
    if not keys:
        yield required(where, "must not be empty if x-kubernetes-list-type is map")
    elif any(key not in properties for key in keys):
        shown = ", ".join(f'"{key}"' for key in keys)
        words = f"Invalid value: []string{{{shown}}}: entries must all be names of item properties"
        yield Cause("FieldValueInvalid", words, where)
    for key in keys:
        if key in properties and "default" not in properties[key] and key not in (items.get("required") or []):
            words = (
                "this property is in x-kubernetes-list-map-keys, so it must have a default or be a required property"
            )
            yield required(f"{path}.items.properties[{key}].default", words)


def _check_embedded(node: Schema, path: str) -> Iterator[Cause]:
    if not node.get(_EMBEDDED):
        return
    if not node.get("properties") and not node.get(_PRESERVED):
        words = f"must not be empty if {_EMBEDDED} is true without {_PRESERVED}"
        yield required(f"{path}.properties", words)
    if node.get("type") != "object":
        words = f"must be object if {_EMBEDDED} is true"
        yield required(f"{path}.type", words) if not node.get("type") else invalid(f"{path}.type", node["type"], words)


def _check_junctors(node: Schema, path: str) -> Iterator[Cause]:
    for keyword in _JUNCTORS:
        inners = node.get(keyword) or []
        if node.get(_INT_OR_STRING) and keyword in ("anyOf", "allOf") and _spells_int_or_string(keyword, inners):
            continue
        for at, inner in enumerate(inner for inner in inners if isinstance(inner, dict)):
            yield from _check_inside(inner, f"{path}.{keyword}[{at}]")
    if isinstance(node.get("not"), dict):
        yield from _check_inside(node["not"], f"{path}.not")


def _spells_int_or_string(keyword: str, inners: list[Schema]) -> bool:
    return inners == _INT_OR_STRING_FORM if keyword == "anyOf" else {"anyOf": _INT_OR_STRING_FORM} in inners


def _check_inside(node: Schema, path: str) -> Iterator[Cause]:
    """Within a junctor: conditions only, no types and nothing that changes an object."""
    for key, words in sorted(_OUTSIDE_ONLY.items()):
        if node.get(key) not in (None, False, ""):
            yield forbidden(f"{path}.{key}", words)
    for name, inner in (node.get("properties") or {}).items():
        yield from _check_inside(inner, f"{path}.properties[{name}]")
    if isinstance(node.get("items"), dict):
        yield from _check_inside(node["items"], f"{path}.items")
    yield from _check_junctors({key: value for key, value in node.items() if key != _INT_OR_STRING}, path)


def _check_default(node: Schema, path: str) -> Iterator[Cause]:
    default = node["default"]
    if isinstance(default, dict | list) and schema.unknown_fields(node, default):
        yield invalid(f"{path}.default", default, "must not have unknown fields")
        return
    for wrong in validation.validate(node, default):
        inner = f".{wrong.field}" if wrong.field and wrong.field != "<nil>" else ""
        yield Cause(wrong.reason, wrong.message, f"{path}.default{inner}")
