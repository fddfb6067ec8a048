"""What a typed server says to an object that does not even fit its types: 400, in the words of Go's decoder.

A value of the wrong type in a built-in kind never gets as far as validation; of custom kinds only the metadata is
typed. Text that is no time, no base64 or no quantity is refused here too. Patches are merged as plain values and then
turned into typed objects, by another part of a real server, which has other words for the same.
"""

from __future__ import annotations

from typing import Any

from moorage.lab.kube import formats, kinds, quantities, shapes

_BOUNDS = {"int32": 2**31, "int64": 2**63}
_GO_KINDS = {bool: "bool", int: "int64", float: "float64", str: "string", list: "slice", dict: "map"}
_TIMES = {"Time": "2006-01-02T15:04:05Z07:00", "MicroTime": "2006-01-02T15:04:05.000000Z07:00"}


class _Unfit(Exception):  # noqa: N818 - found and told in one place
    """``restoring`` is what is said of a value that was merged, if not the same."""

    def __init__(self, decoding: str, restoring: str = "") -> None:
        super().__init__(decoding)
        self.restoring = restoring or decoding


def undecodable(kind: kinds.Kind, content: Any) -> str:
    """Why a server could not read this as an object of its kind; empty if it could."""
    try:
        if not kind.custom and kind.schema is not None:
            _check(kind.schema, content, "", "")
        elif isinstance(content, dict) and content.get("metadata") is not None:
            _check(shapes.resolved("meta.ObjectMeta"), content["metadata"], "", "")
    except _Unfit as unfit:
        return f'{kind.name} in version "{kind.version}" cannot be handled as a {kind.name}: {unfit}'
    return ""


def unrestorable(kind: kinds.Kind, content: Any) -> str:
    """Why the values that a patch or an apply made cannot become an object of a built-in kind; empty if they can."""
    if kind.custom or kind.schema is None:
        return ""
    try:
        _check(kind.schema, content, "", "")
    except _Unfit as unfit:
        return unfit.restoring
    return ""


def _check(schema: kinds.Schema, value: Any, owner: str, path: str) -> None:
    """``owner`` is the structure that the value is a field of, ``path`` leads to it from the top, without places."""
    kind = schema.get("type")
    if value is None or (kind == "string" and type(value) is str and "format" not in schema):
        return
    if kind == "object":
        if not isinstance(value, dict):
            raise _cannot(schema, value, owner, path)
        _check_fields(schema, value, owner, path)
    elif kind == "array":
        if not isinstance(value, list):
            raise _cannot(schema, value, owner, path)
        for each in value:
            _check(schema["items"], each, owner, path)
    elif kind is not None or shapes.NATIVE in schema:
        _check_scalar(schema, value, owner, path)


def _check_fields(schema: kinds.Schema, value: dict[str, Any], owner: str, path: str) -> None:
    name = str(schema.get(shapes.NATIVE, "")).rpartition(".")[2]
    properties, rest = schema.get("properties"), schema.get("additionalProperties")
    for key, each in value.items():
        if properties is not None:
            if key in properties:
                _check(properties[key], each, name, f"{path}.{key}")
        elif rest is not None:
            _check(rest, each, owner, path)


def _check_scalar(schema: kinds.Schema, value: Any, owner: str, path: str) -> None:
    kind, format_, native = schema.get("type"), schema.get("format", ""), schema.get(shapes.NATIVE)
    if native in ("Quantity", "IntOrString"):
        _check_number_or_text(str(native), schema, value, owner, path)
    elif kind == "string":
        if not isinstance(value, str):
            raise _cannot(schema, value, owner, path)
        if format_ == "byte" and (at := formats.not_base64_at(value)) is not None:
            wrong = f"illegal base64 data at input byte {at}"
            raise _Unfit(wrong, f"error decoding from json: {wrong}")
        if format_ == "date-time" and not formats.fits("date-time", value):
            raise _Unfit(_no_time(value, _TIMES.get(str(native), _TIMES["Time"])))
    elif kind == "boolean" and not isinstance(value, bool):
        raise _cannot(schema, value, owner, path)
    elif kind == "integer":
        bound = _BOUNDS.get(format_, 2**63)
        if not isinstance(value, int) or isinstance(value, bool) or not -bound <= value < bound:
            raise _cannot(schema, value, owner, path)
    elif kind == "number" and (not isinstance(value, int | float) or isinstance(value, bool)):
        raise _cannot(schema, value, owner, path)


def _check_number_or_text(native: str, schema: kinds.Schema, value: Any, owner: str, path: str) -> None:
    if native == "IntOrString":
        if not isinstance(value, str | int) or isinstance(value, bool):
            raise _cannot(schema, value, owner, path)
        return
    try:
        quantities.canonical("" if isinstance(value, bool | dict | list) else str(value))
    except ValueError as unfit:
        raise _Unfit(str(unfit)) from None


def _no_time(value: str, layout: str) -> str:
    return f'parsing time "{value}" as "{layout}": cannot parse "{value}" as "2006"'


def _cannot(schema: kinds.Schema, value: Any, owner: str, path: str) -> _Unfit:
    where = f"Go struct field {owner}.{path.lstrip('.')}" if path else "Go value"
    told = _told(value)
    if told == "number" and schema.get("type") == "integer":
        told = f"number {value:g}" if isinstance(value, float) else f"number {value}"
    decoding = f"json: cannot unmarshal {told} into {where} of type {_go(schema)}"
    return _Unfit(decoding, _cannot_restore(schema, value))


def _cannot_restore(schema: kinds.Schema, value: Any) -> str:
    wanted, given = schema.get("type"), _GO_KINDS[type(value)]
    if schema.get(shapes.NATIVE) == "IntOrString":
        return f"json: cannot unmarshal {_told(value)} into Go value of type int32"
    if wanted == "object":
        return f"cannot restore {'map from' if 'additionalProperties' in schema else 'struct from:'} {given}"
    if wanted == "array" or schema.get("format") == "byte":
        return f"cannot restore slice from {given}"
    if (wanted, given) in (("string", "int64"), ("integer", "int64"), ("integer", "float64")):
        return f"cannot convert {given} to {_go(schema)}"
    return f"unrecognized type: {_go(schema)}"


def _told(value: Any) -> str:
    if isinstance(value, bool):
        return "bool"
    if isinstance(value, int | float):
        return "number"
    if isinstance(value, str):
        return "string"
    return "array" if isinstance(value, list) else "object"


def _go(schema: kinds.Schema) -> str:
    """How Go calls the type."""
    kind, native = schema.get("type"), schema.get(shapes.NATIVE)
    if native == "IntOrString":
        return "int32"
    if kind == "array":
        return f"[]{_go(schema['items'])}"
    if kind == "object":
        rest = schema.get("additionalProperties")
        return f"map[string]{_go(rest)}" if rest is not None else str(native or "map[string]interface {}")
    if kind == "integer":
        return str(schema.get("format", "int64"))
    return {"boolean": "bool", "number": "float64"}.get(
        str(kind), "[]uint8" if schema.get("format") == "byte" else "string"
    )
