"""Documents in JSON and YAML, read as Kubernetes reads them: YAML is JSON in another spelling.

Keys are texts, and what looks like a date is a text too. JSON is YAML, and much quicker to read as what it is. What is
no JSON is refused in the words of Go's reader, which are what users of a cluster know.
"""

from __future__ import annotations

import json
import re
from typing import Any, NoReturn

import yaml

_TIMESTAMP = "tag:yaml.org,2002:timestamp"


class _Loader(yaml.SafeLoader):
    """Knows of no dates."""


_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag != _TIMESTAMP]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


_ENDED = "unexpected end of JSON input"
_ESCAPE = re.compile(r"\\")
_UNFIT_HEX = re.compile(r"\\u[0-9a-fA-F]{0,3}(?![0-9a-fA-F])")
_OPEN_ESCAPE = re.compile(r"(?<!\\)(\\\\)*\\$")
_QUOTED = {"'": r"\'", "\n": r"\n", "\r": r"\r", "\t": r"\t", "\\": r"\\"}
_IN_NUMBER = "in numeric literal"
_AFTER_PAIR = "after object key:value pair"
_LITERALS = ("true", "false", "null")
# What Python finds wrong, and how Go says it.
_WRONGS = {
    "Expecting value": "looking for beginning of value",
    "Expecting property name enclosed in double quotes": "looking for beginning of object key string",
    "Expecting ':' delimiter": "after object key",
    "Extra data": "after top-level value",
    "Invalid control character at": "in string literal",
    "Invalid \\escape": "in string escape code",
    "Invalid \\uXXXX escape": "in \\u hexadecimal character escape",
}


def _no_number(name: str) -> NoReturn:
    if name.startswith("-"):
        raise ValueError(_unexpected(name[1], _IN_NUMBER))
    raise ValueError(_unexpected(name[0], _WRONGS["Expecting value"]))


_json = json.JSONDecoder(parse_constant=_no_number)


def from_json(body: bytes | str) -> Any:
    """The value in a document; ValueError, in Go's words, if it cannot be read."""
    text = body.decode() if isinstance(body, bytes) else body
    try:
        return _json.decode(text)
    except json.JSONDecodeError as wrong:
        raise ValueError(_in_go(text, wrong)) from None


def _in_go(text: str, wrong: json.JSONDecodeError) -> str:
    if escape := _escape(text, wrong):
        return escape
    rest = text[wrong.pos :]
    if not wrong.msg.startswith("Invalid"):
        rest = rest.lstrip(" \t\r\n")
    if not rest or wrong.msg.startswith("Unterminated"):
        return _ENDED
    if wrong.msg == "Expecting value":
        for literal in _LITERALS:
            if rest.startswith(literal[0]):
                same = next(at for at in range(len(literal)) if rest[at : at + 1] != literal[at])
                return _unexpected(rest[same : same + 1] or " ", f"in literal {literal} (expecting '{literal[same]}')")
        if rest.startswith("-"):
            return _unexpected(rest[1], _IN_NUMBER) if rest[1:] else _ENDED
    told = _WRONGS.get(wrong.msg) or ("after array element" if _in_list(text[: wrong.pos]) else _AFTER_PAIR)
    return _unexpected(rest[0], told)


def _escape(text: str, wrong: json.JSONDecodeError) -> str:
    """What is wrong with an escape, if it is one. Python points somewhere into it, Go at the sign that does not fit."""
    where = _WRONGS.get(wrong.msg, "")
    if wrong.msg.startswith("Unterminated") and _OPEN_ESCAPE.search(text):
        return _unexpected(" ", _WRONGS["Invalid \\escape"])
    if "escape" not in where:
        return ""
    begun = text.rfind("\\", 0, wrong.pos + 1)
    unfit = (_UNFIT_HEX if "hex" in where else _ESCAPE).search(text, begun)
    if unfit is None:
        # Python wants a sign behind the last escape.
        return _ENDED
    rest = text[unfit.end() :]
    # To Go a text that ends too early ends with a blank.
    return _unexpected(rest[:1] or " ", where)


def _in_list(text: str) -> bool:
    """Whether what comes after this text would be an item of a list."""
    open_: list[str] = []
    quoted = escaped = False
    for sign in text:
        if quoted:
            quoted, escaped = escaped or sign != '"', not escaped and sign == "\\"
        elif sign == '"':
            quoted = True
        elif sign in "[{":
            open_.append(sign)
        elif sign in "]}":
            open_.pop()
    return open_[-1:] == ["["]


def _unexpected(sign: str, where: str) -> str:
    # Go looks at bytes, and shows each as the letter of that number.
    sign = chr(sign.encode(errors="surrogatepass")[0])
    shown = _QUOTED.get(sign) or (sign if sign.isprintable() else f"\\x{ord(sign):02x}")
    return f"invalid character '{shown}' {where}"


def from_yaml(body: bytes | str) -> Any:
    """The value in a document; ValueError if it cannot be read."""
    try:
        return json.loads(body)
    except ValueError:
        pass
    try:
        return _plain(yaml.load(body, _Loader))  # noqa: S506 - a safe loader, with one resolver less
    except (yaml.YAMLError, UnicodeDecodeError) as wrong:
        raise ValueError(str(wrong)) from None


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {_key(key): _plain(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_plain(each) for each in value]
    if value is None or isinstance(value, str | int | float):
        return value
    raise ValueError(f"a {type(value).__name__} has no place in JSON")


def _key(key: Any) -> str:
    if isinstance(key, bool):
        return str(key).lower()
    if isinstance(key, str | int | float):
        return str(key)
    raise ValueError("a key is a text")
