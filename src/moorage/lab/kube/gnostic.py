"""The protobuf form of an OpenAPI v2 document, as the gnostic project defines it, written without any protobuf library.

A table says for each message which field of the JSON document becomes which field number, and of what type. What a
message has no field for but begins with ``x-`` becomes a vendor extension, whose value is YAML (and JSON is YAML).
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Iterator, Mapping
from typing import Any

_TEXT, _TRUE, _WHOLE, _REAL, _TEXTS = "text", "bool", "int", "double", "texts"
_EXTENSIONS = "x-"

# JSON field: (number, type); a type may be another message of the table, or the name of an encoder below.
_MESSAGES: dict[str, dict[str, tuple[int, str]]] = {
    "Document": {
        "swagger": (1, _TEXT),
        "info": (2, "Info"),
        "host": (3, _TEXT),
        "basePath": (4, _TEXT),
        "schemes": (5, _TEXTS),
        "consumes": (6, _TEXTS),
        "produces": (7, _TEXTS),
        "paths": (8, "paths"),
        "definitions": (9, "schemas"),
        "security": (12, "requirements"),
        "securityDefinitions": (13, "securities"),
        _EXTENSIONS: (16, ""),
    },
    "Info": {"title": (1, _TEXT), "version": (2, _TEXT), "description": (3, _TEXT), _EXTENSIONS: (7, "")},
    "PathItem": {
        "get": (2, "Operation"),
        "put": (3, "Operation"),
        "post": (4, "Operation"),
        "delete": (5, "Operation"),
        "options": (6, "Operation"),
        "head": (7, "Operation"),
        "patch": (8, "Operation"),
        "parameters": (9, "parameters"),
        _EXTENSIONS: (10, ""),
    },
    "Operation": {
        "tags": (1, _TEXTS),
        "summary": (2, _TEXT),
        "description": (3, _TEXT),
        "operationId": (5, _TEXT),
        "produces": (6, _TEXTS),
        "consumes": (7, _TEXTS),
        "parameters": (8, "parameters"),
        "responses": (9, "responses"),
        "schemes": (10, _TEXTS),
        "deprecated": (11, _TRUE),
        _EXTENSIONS: (13, ""),
    },
    "BodyParameter": {
        "description": (1, _TEXT),
        "name": (2, _TEXT),
        "in": (3, _TEXT),
        "required": (4, _TRUE),
        "schema": (5, "Schema"),
        _EXTENSIONS: (6, ""),
    },
    "PathParameter": {
        "required": (1, _TRUE),
        "in": (2, _TEXT),
        "description": (3, _TEXT),
        "name": (4, _TEXT),
        "type": (5, _TEXT),
        "format": (6, _TEXT),
        "uniqueItems": (19, _TRUE),
    },
    "QueryParameter": {
        "required": (1, _TRUE),
        "in": (2, _TEXT),
        "description": (3, _TEXT),
        "name": (4, _TEXT),
        "type": (6, _TEXT),
        "format": (7, _TEXT),
        "uniqueItems": (20, _TRUE),
    },
    "Response": {"description": (1, _TEXT), "schema": (2, "wrapped"), _EXTENSIONS: (5, "")},
    "ApiKey": {"type": (1, _TEXT), "name": (2, _TEXT), "in": (3, _TEXT), "description": (4, _TEXT)},
    "Schema": {
        "$ref": (1, _TEXT),
        "format": (2, _TEXT),
        "title": (3, _TEXT),
        "description": (4, _TEXT),
        "default": (5, "any"),
        "multipleOf": (6, _REAL),
        "maximum": (7, _REAL),
        "exclusiveMaximum": (8, _TRUE),
        "minimum": (9, _REAL),
        "exclusiveMinimum": (10, _TRUE),
        "maxLength": (11, _WHOLE),
        "minLength": (12, _WHOLE),
        "pattern": (13, _TEXT),
        "maxItems": (14, _WHOLE),
        "minItems": (15, _WHOLE),
        "uniqueItems": (16, _TRUE),
        "maxProperties": (17, _WHOLE),
        "minProperties": (18, _WHOLE),
        "required": (19, _TEXTS),
        "enum": (20, "anys"),
        "additionalProperties": (21, "additional"),
        "type": (22, "wrapped text"),
        "items": (23, "wrapped"),
        "properties": (25, "schemas"),
        _EXTENSIONS: (31, ""),
    },
}


def encoded(document: Mapping[str, Any]) -> bytes:
    """The bytes of a Document message."""
    return _message("Document", document)


def _message(name: str, content: Mapping[str, Any]) -> bytes:
    fields = _MESSAGES[name]
    found = bytearray()
    for key, value in content.items():
        if key in fields:
            number, kind = fields[key]
            found += _field(number, kind, value)
        elif key.startswith("x-") and _EXTENSIONS in fields:
            found += _block(fields[_EXTENSIONS][0], _block(1, key.encode()) + _block(2, _any(value)))
    return bytes(found)


def _field(number: int, kind: str, value: Any) -> bytes:
    if kind in _MESSAGES:
        return _block(number, _message(kind, value))
    return b"".join(_ENCODERS[kind](number, value))


def _varint(value: int) -> bytes:
    value &= (1 << 64) - 1
    found = bytearray()
    while value > 0x7F:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    found.append(value)
    return bytes(found)


def _block(number: int, content: bytes) -> bytes:
    """A field that has a length: text, or a message."""
    return _varint(number << 3 | 2) + _varint(len(content)) + content


def _any(value: Any) -> bytes:
    return _block(2, json.dumps(value, ensure_ascii=False).encode())


def _texts(number: int, values: list[str]) -> Iterator[bytes]:
    return (_block(number, value.encode()) for value in values)


def _truth(number: int, value: bool) -> Iterator[bytes]:
    if value:
        yield _varint(number << 3) + b"\x01"


def _whole(number: int, value: int) -> Iterator[bytes]:
    yield _varint(number << 3) + _varint(int(value))


def _real(number: int, value: float) -> Iterator[bytes]:
    yield _varint(number << 3 | 1) + struct.pack("<d", value)


def _named(number: int, kind: str, field: int, content: Mapping[str, Any]) -> bytes:
    """A map: repeated pairs of a name and a message, in one message."""
    pairs = (_block(1, name.encode()) + _block(2, _message(kind, value)) for name, value in content.items())
    return _block(number, b"".join(_block(field, pair) for pair in pairs))


def _parameters(number: int, values: list[dict[str, Any]]) -> Iterator[bytes]:
    for value in values:
        if value["in"] == "body":
            parameter = _block(1, _message("BodyParameter", value))
        elif value["in"] == "path":
            parameter = _block(2, _block(4, _message("PathParameter", value)))
        else:
            parameter = _block(2, _block(3, _message("QueryParameter", value)))
        yield _block(number, _block(1, parameter))


def _responses(number: int, content: Mapping[str, Any]) -> Iterator[bytes]:
    pairs = (
        _block(1, code.encode()) + _block(2, _block(1, _message("Response", value))) for code, value in content.items()
    )
    yield _block(number, b"".join(_block(1, pair) for pair in pairs))


def _securities(number: int, content: Mapping[str, Any]) -> Iterator[bytes]:
    pairs = (
        _block(1, name.encode()) + _block(2, _block(2, _message("ApiKey", value))) for name, value in content.items()
    )
    yield _block(number, b"".join(_block(1, pair) for pair in pairs))


def _requirements(number: int, values: list[dict[str, list[str]]]) -> Iterator[bytes]:
    for value in values:
        pairs = (_block(1, name.encode()) + _block(2, b"".join(_texts(1, scopes))) for name, scopes in value.items())
        yield _block(number, b"".join(_block(1, pair) for pair in pairs))


def _additional(number: int, value: Any) -> Iterator[bytes]:
    inner = _varint(2 << 3) + bytes([value]) if isinstance(value, bool) else _block(1, _message("Schema", value))
    yield _block(number, inner)


_ENCODERS: dict[str, Callable[[int, Any], Iterator[bytes]]] = {
    _TEXT: lambda number, value: iter([_block(number, value.encode())]),
    _TEXTS: _texts,
    _TRUE: _truth,
    _WHOLE: _whole,
    _REAL: _real,
    "any": lambda number, value: iter([_block(number, _any(value))]),
    "anys": lambda number, values: (_block(number, _any(value)) for value in values),
    "paths": lambda number, value: iter([_named(number, "PathItem", 2, value)]),
    "schemas": lambda number, value: iter([_named(number, "Schema", 1, value)]),
    "parameters": _parameters,
    "responses": _responses,
    "securities": _securities,
    "requirements": _requirements,
    "additional": _additional,
    # Where v2 allows several types, or a schema or a file, there is a message around the one there is.
    "wrapped text": lambda number, value: iter([_block(number, _block(1, value.encode()))]),
    "wrapped": lambda number, value: iter([_block(number, _block(1, _message("Schema", value)))]),
}
