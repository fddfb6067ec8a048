"""Patches that need no schema: JSON patch (RFC 6902) and merge patch (RFC 7386), as a Kubernetes server takes them.

Where the server is laxer than the RFC (negative indices, replacing a member that is not there) so are we, because what
works in the lab and what works on a real server have to be the same. Nothing that is passed in is changed.
"""

from __future__ import annotations

import json
from typing import Any

from moorage.lab.kube import problem

MOST_OPERATIONS = 10_000
_ABSENT = object()


class Inapplicable(Exception):  # noqa: N818 - becomes a Problem before anybody sees it
    """An operation of a JSON patch does not fit the document."""


def json_patch(content: Any, operations: Any) -> Any:
    """The document after these operations; 422 if one does not apply, 400 if they are no operations at all."""
    _check_operations(operations)
    found = content
    for operation in operations:
        try:
            found = _applied(found, operation)
        except Inapplicable:
            # Which one, and why, is what the real server keeps to itself.
            raise problem.Problem(
                422, "Invalid", "the server rejected our request due to an error in our request"
            ) from None
    return found


def _check_operations(operations: Any) -> None:
    told = "error decoding patch: json: cannot unmarshal"
    if not isinstance(operations, list):
        raise problem.bad_request(f"{told} {json_type(operations)} into Go value of type []handlers.jsonPatchOp")
    for operation in operations:
        if not isinstance(operation, dict):
            raise problem.bad_request(f"{told} {json_type(operation)} into Go value of type handlers.jsonPatchOp")
        for key in ("op", "path", "from"):
            if not isinstance(operation.get(key, ""), str | None):
                of = f"jsonPatchOp.{key} of type string"
                raise problem.bad_request(f"{told} {json_type(operation[key])} into Go struct field {of}")
    if len(operations) > MOST_OPERATIONS:
        words = f"The allowed maximum operations in a JSON patch is {MOST_OPERATIONS}, got {len(operations)}"
        raise problem.Problem(413, "RequestEntityTooLarge", words)


def _applied(content: Any, operation: dict[str, Any]) -> Any:
    path = operation.get("path")
    if path is None:
        raise Inapplicable
    value = operation.get("value")
    match operation.get("op"):
        case "add":
            return _changed(content, _split(path), value, adding=True)
        case "remove":
            return _changed(content, _split(path), _ABSENT)
        case "replace":
            return value if path == "" else _changed(content, _split(path), value)
        case "test":
            found = content if path == "" else _get(content, _split(path))
            if not same(None if found is _ABSENT else found, value):
                raise Inapplicable
            return content
        case "move":
            moved = _present(content, operation)
            left = _changed(content, _split(operation["from"]), _ABSENT)
            return _changed(left, _split(path), moved, adding=True)
        case "copy":
            return _changed(content, _split(path), _present(content, operation), adding=True)
    raise Inapplicable


def _present(content: Any, operation: dict[str, Any]) -> Any:
    source = operation.get("from")
    if source is None:
        raise Inapplicable
    found = _get(content, _split(source))
    return None if found is _ABSENT else found


def _split(pointer: str) -> list[str]:
    _, *keys = pointer.split("/")
    if not keys:
        raise Inapplicable
    return [key.replace("~1", "/").replace("~0", "~") for key in keys]


def _get(content: Any, keys: list[str]) -> Any:
    for place, key in enumerate(keys):
        if isinstance(content, dict):
            content = content.get(key, _ABSENT)
        elif isinstance(content, list):
            content = content[_index(key, len(content), len(content) - 1)]
        else:
            raise Inapplicable
        if place < len(keys) - 1 and (content is _ABSENT or content is None):
            raise Inapplicable
    return content


def _changed(content: Any, keys: list[str], value: Any, *, adding: bool = False) -> Any:
    """A copy in which the value at the pointer is another, or gone; all that is not on the way there is shared."""
    key, *rest = keys
    if isinstance(content, dict):
        if rest and content.get(key) is None:
            raise Inapplicable
        if not rest and value is _ABSENT and key not in content:
            raise Inapplicable
        found = dict(content)
        if rest:
            found[key] = _changed(content[key], rest, value, adding=adding)
        elif value is _ABSENT:
            del found[key]
        else:
            found[key] = value
        return found
    if not isinstance(content, list):
        raise Inapplicable
    items = list(content)
    if rest:
        index = _index(key, len(items), len(items) - 1)
        items[index] = _changed(items[index], rest, value, adding=adding)
    elif adding:
        items.insert(len(items) if key == "-" else _index(key, len(items) + 1, len(items)), value)
    else:
        index = _index(key, len(items), len(items) - 1)
        items[index : index + 1] = [] if value is _ABSENT else [value]
    return items


def _index(key: str, size: int, last: int) -> int:
    digits = key[1:] if key[:1] in ("-", "+") else key
    if not (digits.isascii() and digits.isdigit()):
        raise Inapplicable
    index = int(key)
    if index < 0:
        index += size
    if not 0 <= index <= last:
        raise Inapplicable
    return index


def same(one: Any, other: Any) -> bool:
    """Whether two JSON values are equal; unlike in Python, true is no 1, and 1.0 is written differently from 1."""
    if type(one) is not type(other):
        return False
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(value, other[key]) for key, value in one.items())
    if isinstance(one, list):
        return len(one) == len(other) and all(same(a, b) for a, b in zip(one, other, strict=True))
    return bool(one == other)


def merge_patch(content: Any, patch: Any) -> Any:
    """The document with the patch merged into it; 400 if the patch is no object."""
    if patch is None:
        raise problem.bad_request("Invalid JSON Patch")
    if not isinstance(patch, dict):
        told = f"json: cannot unmarshal {json_type(patch)} into Go value of type map[string]interface {{}}"
        raise problem.bad_request(f"error decoding patch: {told}")
    return _merged(content, patch)


def _merged(content: Any, patch: Any) -> Any:
    if not isinstance(patch, dict):
        return patch if isinstance(content, dict) else pruned(patch)
    if not isinstance(content, dict):
        return pruned(patch)
    found = dict(content)
    for key, value in patch.items():
        if value is None:
            found.pop(key, None)
        elif found.get(key) is None:
            found[key] = pruned(value)
        else:
            found[key] = _merged(found[key], value)
    return found


def pruned(value: Any) -> Any:
    """The value without the fields that are null, at any depth."""
    if isinstance(value, dict):
        return {key: pruned(inner) for key, inner in value.items() if inner is not None}
    if isinstance(value, list):
        return [pruned(inner) for inner in value]
    return value


def json_type(value: Any) -> str:
    """A value's type in the words of Go's JSON reader."""
    if isinstance(value, bool):
        return "bool"
    if isinstance(value, str):
        return "string"
    if isinstance(value, int | float):
        return "number"
    return "array" if isinstance(value, list) else "object"


def go_type(value: Any) -> str:
    """A value's type as Go prints it."""
    if isinstance(value, bool):
        return "bool"
    if isinstance(value, int):
        return "int64"
    if isinstance(value, float):
        return "float64"
    if isinstance(value, str):
        return "string"
    if isinstance(value, list):
        return "[]interface {}"
    return "map[string]interface {}" if isinstance(value, dict) else "%!s(<nil>)"


def as_go(value: Any) -> str:
    """A value as Go prints it: map[a:1 b:[x y]]."""
    if isinstance(value, dict):
        return "map[" + " ".join(f"{key}:{as_go(value[key])}" for key in sorted(value)) + "]"
    if isinstance(value, list):
        return "[" + " ".join(as_go(inner) for inner in value) + "]"
    if isinstance(value, bool):
        return "true" if value else "false"
    return "<nil>" if value is None else str(value)


def go_literal(value: Any) -> str:
    """A value as Go would write it in a program."""
    if isinstance(value, dict):
        inner = ", ".join(f"{json.dumps(key)}:{go_literal(value[key])}" for key in sorted(value))
        return f"map[string]interface {{}}{{{inner}}}"
    if isinstance(value, list):
        return "[]interface {}{" + ", ".join(go_literal(inner) for inner in value) + "}"
    return json.dumps(value, ensure_ascii=False) if isinstance(value, str) else as_go(value)
