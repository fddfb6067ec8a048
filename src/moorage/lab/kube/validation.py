"""What is wrong with an object's values, by its structural schema and in the words of a real server.

The order of the checks is that of the library which real servers use: type, combinations (allOf, anyOf, oneOf, not),
text, format, numbers, lists, enum, fields. Lists that are sets or maps and embedded objects are looked at afterwards.
Of built-in kinds only what their shapes call needed, unique or one of a few is looked at: `decoding` has seen to types.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from moorage.lab.kube import formats, kinds, problem, shapes

Causes = list[problem.Cause]

_INVALID = "FieldValueInvalid"
_TYPE = "FieldValueTypeInvalid"
_REQUIRED = "FieldValueRequired"
_DUPLICATE = "FieldValueDuplicate"
_INT_OR_STRING = "x-kubernetes-int-or-string"
_BOUNDS = {
    "positive": (1, 2**63, "must be greater than 0"),
    "nonnegative": (0, 2**63, "must be greater than or equal to 0"),
    "port": (1, 65535, "must be between 1 and 65535, inclusive"),
}
_SIMPLE = {"string": str, "boolean": bool, "array": list, "object": dict}


def validate(schema: kinds.Schema, content: Any, path: str = "") -> Causes:
    """Everything wrong with the content; ``path`` is where it stands, empty for a whole object."""
    found: Causes = []
    _validate(schema, content, path, found)
    if shapes.NATIVE not in schema:
        _extensions(schema, content, path, found)
    return found


def _validate(schema: kinds.Schema, value: Any, path: str, found: Causes) -> None:
    if shapes.NATIVE in schema and isinstance(value, dict):
        _validate_native(schema, value, path, found)
        return
    if value is None and (schema.get("nullable") or not _typed(schema)):
        return
    _check_type(schema, value, path, found)
    _check_combined(schema, value, path, found)
    if isinstance(value, str):
        _check_text(schema, value, path, found)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        _check_number(schema, value, path, found)
    elif isinstance(value, list):
        _check_list(schema, value, path, found)
    if "enum" in schema and value not in schema["enum"]:
        _unsupported(schema, value, path, found)
    if isinstance(value, dict):
        _check_object(schema, value, path, found)


def _validate_native(schema: kinds.Schema, value: Any, path: str, found: Causes) -> None:
    if isinstance(value, list):
        items = schema.get("items", {})
        if shapes.UNIQUE in schema:
            found.extend(_duplicates(schema, value, path))
        if "properties" in items or "enum" in items:
            for at, each in enumerate(value):
                _validate_native(items, each, f"{path}[{at}]", found)
    elif isinstance(value, dict):
        for key in schema.get("required") or ():
            # To a typed server an empty text or list is the same as none.
            if value.get(key) in (None, "", []):
                found.append(_cause(_REQUIRED, "Required value", _below(path, key)))
        properties: dict[str, kinds.Schema] = schema.get("properties") or {}
        rest: kinds.Schema = schema.get("additionalProperties") or {}
        for key, each in value.items():
            inner = properties.get(key, rest)
            if isinstance(each, dict | list) or "enum" in inner or shapes.BOUND in inner:
                _validate_native(inner, each, _below(path, key), found)
    elif value and "enum" in schema and value not in schema["enum"]:
        _unsupported(schema, value, path, found)
    elif shapes.BOUND in schema and isinstance(value, int):
        least, most, words = _BOUNDS[schema[shapes.BOUND]]
        if not least <= value <= most:
            found.append(_cause(_INVALID, f"Invalid value: {value}: {words}", path))


def _unsupported(schema: kinds.Schema, value: Any, path: str, found: Causes) -> None:
    allowed = ", ".join(json.dumps(str(each), ensure_ascii=False) for each in schema["enum"])
    words = f"Unsupported value: {told(value)}: supported values: {allowed}"
    found.append(_cause("FieldValueNotSupported", words, path))


def _typed(schema: kinds.Schema) -> bool:
    return "type" in schema or bool(schema.get(_INT_OR_STRING))


def _cause(reason: str, message: str, path: str) -> problem.Cause:
    return problem.Cause(reason, message, path)


def _bad(value: Any, words: str, path: str, found: Causes) -> None:
    found.append(_cause(_INVALID, f"Invalid value: {told(value)}: {path} in body {words}", path))


def told(value: Any) -> str:
    """A value as Go prints it in messages."""
    if isinstance(value, dict):
        return f"map[string]interface {{}}{{{_pairs(value)}}}"
    if isinstance(value, list):
        return f"[]interface {{}}{{{', '.join(told(each) for each in value)}}}"
    if value is None:
        return '"null"'
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return json.dumps(value, ensure_ascii=False)


def _pairs(value: Mapping[str, Any]) -> str:
    return ", ".join(f"{json.dumps(key)}:{told(value[key])}" for key in sorted(value))


def type_name(value: Any) -> str:
    """The JSON type of a value, with whole numbers apart."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int):
        return "integer" if -(2**63) <= value < 2**63 else "number"
    if isinstance(value, float):
        return "integer" if value.is_integer() and abs(value) < 2**63 else "number"
    return next(name for name, kind in _SIMPLE.items() if isinstance(value, kind))


def _check_type(schema: kinds.Schema, value: Any, path: str, found: Causes) -> None:
    wanted = ("integer", "string") if schema.get(_INT_OR_STRING) else (schema.get("type"),)
    if wanted == (None,):
        return
    actual = type_name(value)
    if actual in wanted or (actual == "integer" and "number" in wanted):
        return
    words = f'Invalid value: "{actual}": {path} in body must be of type {",".join(map(str, wanted))}: "{actual}"'
    found.append(_cause(_TYPE, words, path))


def _check_combined(schema: kinds.Schema, value: Any, path: str, found: Causes) -> None:
    if "anyOf" in schema or "oneOf" in schema or "allOf" in schema or "not" in schema:
        for keyword, words in (("anyOf", "must validate at least one schema (anyOf)"), ("oneOf", "")):
            if schema.get(keyword):
                _check_alternatives(schema[keyword], value, path, words, found)
        for inner in schema.get("allOf") or []:
            if wrong := _alternative(inner, value, path):
                found.extend(wrong)
                _combined("must validate all the schemas (allOf)", path, found)
        if (inner := schema.get("not")) is not None and not _alternative(inner, value, path):
            _combined("must not validate the schema (not)", path, found)


def _check_alternatives(inners: list[kinds.Schema], value: Any, path: str, words: str, found: Causes) -> None:
    wrongs = [_alternative(inner, value, path) for inner in inners]
    fitting = sum(not wrong for wrong in wrongs)
    if not fitting:
        none = "must validate one and only one schema (oneOf). Found none valid"
        _combined(words or none, path, found)
        found.extend(wrongs[0])
    elif fitting > 1 and not words:
        many = f"must validate one and only one schema (oneOf). Found {fitting} valid alternatives"
        _combined(many, path, found)


def _alternative(schema: kinds.Schema, value: Any, path: str) -> Causes:
    found: Causes = []
    _validate(schema, value, path, found)
    return found


def _combined(words: str, path: str, found: Causes) -> None:
    found.append(_cause(_INVALID, f'Invalid value: "": "{path}" {words}', "<nil>"))


def _check_text(schema: kinds.Schema, value: str, path: str, found: Causes) -> None:
    longest, shortest, pattern = schema.get("maxLength"), schema.get("minLength"), schema.get("pattern")
    if longest is not None and len(value) > longest:
        found.append(_cause("FieldValueTooLong", f"Too long: may not be more than {longest} bytes", path))
    elif shortest is not None and len(value) < shortest:
        _bad(value, f"should be at least {shortest} chars long", path, found)
    elif pattern and not formats.pattern(pattern).search(value):
        _bad(value, f"should match '{pattern}'", path, found)
    format_ = schema.get("format")
    if format_ and schema.get("type", "string") == "string" and not formats.fits(format_, value):
        shown = json.dumps(value, ensure_ascii=False)
        words = f"Invalid value: {shown}: {path} in body must be of type {format_}: {shown}"
        found.append(_cause(_TYPE, words, path))


def _check_number(schema: kinds.Schema, value: float, path: str, found: Causes) -> None:
    factor, most, least = schema.get("multipleOf"), schema.get("maximum"), schema.get("minimum")
    if factor and abs(value / factor - round(value / factor)) > 1e-9:
        _bad(value, f"should be a multiple of {factor:g}", path, found)
    # In messages about whole numbers real servers show bounds without their fraction.
    whole = schema.get("type") == "integer"
    if most is not None:
        bound = int(most) if whole else f"{most:g}"
        if schema.get("exclusiveMaximum") and value >= most:
            _bad(value, f"should be less than {bound}", path, found)
        elif value > most:
            _bad(value, f"should be less than or equal to {bound}", path, found)
    if least is not None:
        bound = int(least) if whole else f"{least:g}"
        if schema.get("exclusiveMinimum") and value <= least:
            _bad(value, f"should be greater than {bound}", path, found)
        elif value < least:
            _bad(value, f"should be greater than or equal to {bound}", path, found)


def _check_list(schema: kinds.Schema, value: list[Any], path: str, found: Causes) -> None:
    if isinstance(items := schema.get("items"), dict):
        for at, each in enumerate(value):
            _validate(items, each, f"{path}[{at}]", found)
    least, most = schema.get("minItems"), schema.get("maxItems")
    if least is not None and len(value) < least:
        _bad(len(value), f"should have at least {least} items", path, found)
    if most is not None and len(value) > most:
        found.append(_cause("FieldValueTooMany", f"Too many: {len(value)}: must have at most {most} items", path))


def _check_object(schema: kinds.Schema, value: dict[str, Any], path: str, found: Causes) -> None:
    least, most = schema.get("minProperties"), schema.get("maxProperties")
    if least is not None and len(value) < least:
        _bad(len(value), f"should have at least {least} properties", path, found)
    if most is not None and len(value) > most:
        found.append(_cause("FieldValueTooMany", f"Too many: {len(value)}: must have at most {most} items", path))
    properties, rest = schema.get("properties") or {}, schema.get("additionalProperties")
    for key in schema.get("required") or ():
        if key not in value:
            found.append(_cause(_REQUIRED, "Required value", _below(path, key)))
    for key, each in value.items():
        inner = properties.get(key, rest)
        if isinstance(inner, dict):
            _validate(inner, each, _below(path, key), found)


def _below(path: str, key: str) -> str:
    return f"{path}.{key}" if path else key


def _extensions(schema: kinds.Schema, value: Any, path: str, found: Causes) -> None:
    """Sets and maps among lists, embedded objects; all the way down."""
    if isinstance(value, dict):
        if schema.get("x-kubernetes-embedded-resource"):
            for key in ("apiVersion", "kind"):
                if not value.get(key):
                    found.append(_cause(_REQUIRED, "Required value: must not be empty", _below(path, key)))
        properties, rest = schema.get("properties") or {}, schema.get("additionalProperties")
        for key, each in value.items():
            if isinstance(each, dict | list) and isinstance(inner := properties.get(key, rest), dict):
                _extensions(inner, each, _below(path, key), found)
    elif isinstance(value, list) and isinstance(items := schema.get("items"), dict):
        found.extend(_duplicates(schema, value, path))
        for at, each in enumerate(value):
            if isinstance(each, dict | list):
                _extensions(items, each, f"{path}[{at}]", found)


def _duplicates(schema: kinds.Schema, value: list[Any], path: str) -> Iterator[problem.Cause]:
    kind, seen = schema.get("x-kubernetes-list-type"), set()
    if key := schema.get(shapes.UNIQUE):
        for at, each in enumerate(value):
            if isinstance(each, dict) and each.get(key) in seen:
                yield _cause(_DUPLICATE, f"Duplicate value: {told(each[key])}", f"{path}[{at}].{key}")
            seen.add(each.get(key))
    # Of the fields of built-in shapes the list type says only how to merge; servers accept entries that are alike.
    elif kind in ("set", "map") and shapes.FIELD not in schema:
        for at, each in enumerate(value):
            if kind == "map" and isinstance(each, dict):
                each = {key: each[key] for key in schema["x-kubernetes-list-map-keys"] if key in each}
            mark = json.dumps(each, sort_keys=True)
            if mark in seen:
                yield _cause(_DUPLICATE, f"Duplicate value: {told(each)}", f"{path}[{at}]")
            seen.add(mark)
