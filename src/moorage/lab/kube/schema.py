"""Structural schemas at work: completing an object by its schema's defaults, finding and dropping fields it lacks.

What is wrong with an object's values is `validate`'s business, with the words of a real server. Rules written in CEL
(``x-kubernetes-validations``) are NOT evaluated: an object that breaks only such a rule is accepted here. Schemas of
built-in kinds come from `shapes` and say so by a mark; they read null as absent, as typed servers do.
"""

from __future__ import annotations

from typing import Any

from moorage.lab.kube import decoding, kinds, quantities, shapes, validation

Object = dict[str, Any]

validate = validation.validate
undecodable = decoding.undecodable
unrestorable = decoding.unrestorable

_PRESERVED = "x-kubernetes-preserve-unknown-fields"
_EMBEDDED = "x-kubernetes-embedded-resource"
_IMPLIED = ("apiVersion", "kind", "metadata")


def apply_defaults(schema: kinds.Schema, content: Any) -> None:
    """Complete an object in place. Nulls where null is no value are taken away first, so that defaults reach them."""
    if isinstance(content, dict):
        _default_object(schema, content)
    elif isinstance(content, list) and isinstance(items := schema.get("items"), dict):
        for each in content:
            if isinstance(each, dict | list):
                apply_defaults(items, each)


def _default_object(schema: kinds.Schema, content: Object) -> None:
    properties, rest = schema.get("properties") or {}, schema.get("additionalProperties")
    native = shapes.NATIVE in schema
    if None in content.values():
        _drop_nulls(properties, rest, content, native)
    if native:
        _drop_empty(properties, content)
    for key, inner in properties.items():
        # A default of null is none.
        if key not in content and inner.get("default") is not None:
            content[key] = _cloned(inner["default"])
    if complete := schema.get(shapes.DEFAULTS):
        complete(content)
    for key, value in content.items():
        inner = properties.get(key, rest)
        if not isinstance(inner, dict):
            continue
        if isinstance(value, dict | list):
            apply_defaults(inner, value)
        elif inner.get(shapes.NATIVE) == "Quantity":
            content[key] = _quantity(value)
    if schema.get(_EMBEDDED) and isinstance(content.get("metadata"), dict):
        apply_defaults(shapes.resolved("meta.ObjectMeta"), content["metadata"])


def _drop_nulls(properties: Object, rest: Any, content: Object, native: bool) -> None:
    for key in [key for key, value in content.items() if value is None]:
        inner = properties.get(key, rest)
        if isinstance(inner, dict) and (native or not inner.get("nullable")) and _PRESERVED not in inner:
            del content[key]


def _drop_empty(properties: Object, content: Object) -> None:
    for key in [key for key, value in content.items() if value in ([], {})]:
        if shapes.OMITTED in properties.get(key, ()):
            del content[key]


def _quantity(value: Any) -> Any:
    try:
        return value if isinstance(value, bool) else quantities.canonical(str(value))
    except ValueError:
        return value


def _cloned(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _cloned(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_cloned(each) for each in value]
    return value


def unknown_fields(schema: kinds.Schema, content: Object | list[Any]) -> list[str]:
    """The fields that the schema does not know, as servers warn of them: ``unknown field "spec.foo"``."""
    found: list[str] = []
    _unknown(schema, content, "", found, None)
    if shapes.NATIVE not in schema:
        # Servers decode the metadata of custom objects before they look at the rest, which they do in order.
        found.sort(key=lambda path: (not path.startswith("metadata."), path))
    return [f'unknown field "{path}"' for path in found]


def prune(schema: kinds.Schema, content: Object) -> None:
    """Drop the fields that the schema does not know."""
    dropped: list[tuple[Object, str]] = []
    _unknown(schema, content, "", [], dropped)
    for where, key in dropped:
        del where[key]


def _unknown(
    schema: kinds.Schema, content: Any, path: str, found: list[str], dropped: list[tuple[Object, str]] | None
) -> None:
    if isinstance(content, list):
        if isinstance(items := schema.get("items"), dict):
            for at, each in enumerate(content):
                if isinstance(each, dict | list):
                    _unknown(items, each, f"{path}[{at}]", found, dropped)
        return
    properties, rest = schema.get("properties") or {}, schema.get("additionalProperties")
    embedded, preserved = bool(schema.get(_EMBEDDED)), bool(schema.get(_PRESERVED)) or rest is True
    for key, value in content.items():
        below = f"{path}.{key}" if path else key
        inner = properties.get(key, rest)
        if embedded and key in _IMPLIED:
            inner = shapes.resolved("meta.ObjectMeta") if key == "metadata" else {}
        if inner is None or inner is False:
            if not preserved:
                found.append(below)
                if dropped is not None:
                    dropped.append((content, key))
        elif isinstance(value, dict | list) and isinstance(inner, dict) and _looks_inside(inner):
            _unknown(inner, value, below, found, dropped)


def _looks_inside(schema: kinds.Schema) -> bool:
    # A schema that names no fields and no items but keeps what is unknown has nothing to say about what it holds.
    return not schema.get(_PRESERVED) or "properties" in schema or "items" in schema or _EMBEDDED in schema
