"""Objects as protobuf: kubectl and other programs in Go send built-in kinds so, though they read JSON as well.

``data/protobuf_fields.json`` lists the messages: for each field its number, name and Go type. The encoding leaves no
field out that is not a pointer, so what JSON would leave out for being empty is dropped here; of a pointer even the
empty value means something.
"""

from __future__ import annotations

import base64
import datetime
import functools
import importlib.resources
import json
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

MEDIA = "application/vnd.kubernetes.protobuf"
_MAGIC = b"k8s\x00"
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_EMPTY = ("", 0, 0.0, False)

Field = Sequence[str]
"""The name in JSON (empty: what is within belongs to the object around it), the type, and perhaps "always"."""


class Unreadable(ValueError):  # noqa: N818 - told to the client, in a refusal
    """These bytes are no object."""


def decoded(body: bytes) -> dict[str, Any]:
    """The object in a body, as it would be in JSON."""
    if not body.startswith(_MAGIC):
        raise Unreadable("provided data does not appear to be a protobuf message, expected prefix [107 56 115 0]")
    try:
        envelope = dict(_fields(body[len(_MAGIC) :]))
        about = dict(_fields(envelope.get(1, b"")))
        version, kind = about.get(1, b"").decode(), about.get(2, b"").decode()
        message = _known(version, kind)
        content = _message(message, envelope.get(2, b""))
    except Unreadable:
        raise
    except (IndexError, KeyError, ValueError, struct.error, AttributeError, TypeError) as wrong:
        raise Unreadable(f"unable to decode: {wrong}") from None
    return {"apiVersion": version, "kind": kind, **content}


def _known(version: str, kind: str) -> str:
    kinds: Mapping[str, str] = _table()["kinds"]
    found = kinds.get("v1 DeleteOptions" if kind == "DeleteOptions" else f"{version} {kind}")
    if found is None:
        raise Unreadable(f'no kind "{kind}" is registered for version "{version}"')
    return found


@functools.cache
def _table() -> dict[str, Any]:
    text = importlib.resources.files(__package__).joinpath("data/protobuf_fields.json").read_text()
    found: dict[str, Any] = json.loads(text)
    return found


def _varint(data: bytes, place: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[place]
        place += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, place
        shift += 7


def _fields(data: bytes) -> Iterator[tuple[int, Any]]:
    """The numbers and raw values of a message."""
    place = 0
    while place < len(data):
        tag, place = _varint(data, place)
        number, wire = tag >> 3, tag & 7
        value: Any
        if wire == _VARINT:
            value, place = _varint(data, place)
        elif wire == _FIXED64:
            value, place = struct.unpack_from("<d", data, place)[0], place + 8
        elif wire == _FIXED32:
            value, place = struct.unpack_from("<f", data, place)[0], place + 4
        elif wire == _BYTES:
            size, place = _varint(data, place)
            if place + size > len(data):
                raise Unreadable("unexpected EOF")
            value, place = data[place : place + size], place + size
        else:
            raise Unreadable(f"illegal wireType {wire}")
        yield number, value


def _message(name: str, data: bytes) -> Any:
    special = _SPECIAL.get(name)
    if special is not None:
        return special(data)
    fields: Mapping[str, Field] = _table()["messages"][name]
    found: dict[str, Any] = {}
    for number, raw in _fields(data):
        field = fields.get(str(number))
        if field is not None and field[0] != "-":
            _put(found, field, raw)
    return found


def _put(found: dict[str, Any], field: Field, raw: Any) -> None:
    key, type_ = field[0], field[1]
    if type_.startswith("[]"):
        found.setdefault(key, []).extend(_items(type_[2:], raw))
        return
    if type_.startswith("map:"):
        value_type = type_.split(":", 2)[2]
        pair = dict(_fields(raw))
        found.setdefault(key, {})[pair.get(1, b"").decode()] = _value(value_type, pair.get(2, b""))
        return
    value = _value(type_.removeprefix("*"), raw)
    if not key:
        found.update(value)
    elif value is not None and (type_.startswith("*") or "always" in field[2:] or not _is_empty(value)):
        found[key] = value


def _is_empty(value: Any) -> bool:
    return not isinstance(value, dict | list) and value in _EMPTY


def _items(type_: str, raw: Any) -> list[Any]:
    if type_.startswith("int") and isinstance(raw, bytes):
        numbers, place = [], 0
        while place < len(raw):
            number, place = _varint(raw, place)
            numbers.append(_signed(number))
        return numbers
    return [_value(type_, raw)]


def _signed(number: int) -> int:
    return number - (1 << 64) if number >> 63 else number


def _value(type_: str, raw: Any) -> Any:
    if type_ == "string":
        return raw.decode()
    if type_ == "bool":
        return bool(raw)
    if type_.startswith("int"):
        return _signed(raw)
    if type_ == "float64":
        return raw
    if type_ == "bytes":
        return base64.b64encode(raw).decode()
    return _message(type_, raw)


def _time(data: bytes, digits: int) -> str | None:
    if not data:
        return None
    parts = dict(_fields(data))
    moment = datetime.datetime.fromtimestamp(_signed(parts.get(1, 0)), datetime.UTC)
    micros = f".{parts.get(2, 0) // 1000:06d}" if digits else ""
    return f"{moment:%Y-%m-%dT%H:%M:%S}{micros}Z"


def _int_or_string(data: bytes) -> int | str:
    parts = dict(_fields(data))
    return str(parts.get(3, b"").decode()) if parts.get(1) else _signed(parts.get(2, 0))


def _json(data: bytes) -> Any:
    raw = dict(_fields(data)).get(1, b"")
    return json.loads(raw) if raw else None


def _either(*numbers_and_types: tuple[int, str]) -> Callable[[bytes], Any]:
    """A message that stands for whichever of its fields is there."""

    def read(data: bytes) -> Any:
        found: dict[str, Any] = {}
        for number, raw in _fields(data):
            for known, type_ in numbers_and_types:
                if number == known:
                    _put(found, (str(number), f"*{type_}" if not type_.startswith("[]") else type_), raw)
        return next((found[str(number)] for number, _ in reversed(numbers_and_types) if str(number) in found), None)

    return read


def _strings(data: bytes) -> list[str]:
    return [raw.decode() for number, raw in _fields(data) if number == 1]


_PROPS = "apiextensions/v1.JSONSchemaProps"
_SPECIAL: Mapping[str, Callable[[bytes], Any]] = {
    "meta/v1.Time": lambda data: _time(data, 0),
    "meta/v1.MicroTime": lambda data: _time(data, 6),
    "api/resource.Quantity": lambda data: dict(_fields(data)).get(1, b"").decode(),
    "util/intstr.IntOrString": _int_or_string,
    "pkg/runtime.RawExtension": _json,
    "apiextensions/v1.JSON": _json,
    "meta/v1.FieldsV1": _json,
    "authentication/v1.ExtraValue": _strings,
    "authorization/v1.ExtraValue": _strings,
    "certificates/v1.ExtraValue": _strings,
    "apiextensions/v1.JSONSchemaPropsOrArray": _either((2, f"[]{_PROPS}"), (1, _PROPS)),
    "apiextensions/v1.JSONSchemaPropsOrBool": _either((1, "bool"), (2, _PROPS)),
    "apiextensions/v1.JSONSchemaPropsOrStringArray": _either((2, "[]string"), (1, _PROPS)),
}
