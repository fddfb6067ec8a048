"""Secrets that do not leak by being printed, journaled or pickled.

A value wrapped in `Secret` shows as ``(secret)`` everywhere and has to be revealed by name. The journal is opened with
the secrets of the run: it refuses outputs that contain one and blots them out of the platform's own words.
"""

from __future__ import annotations

import base64
import hmac
import json
import urllib.parse
from collections.abc import Iterable, Mapping, Sequence

BLOT = "(secret)"

# Blotting out a shorter word would turn every message into blots, and no real credential is that short.
SHORTEST = 4


class Secret:
    """A string that is shown to no one unless revealed."""

    __slots__ = ("_value",)

    def __init__(self, value: str) -> None:
        self._value = value

    def reveal(self) -> str:
        """The value itself, for the one call that needs it."""
        return self._value

    def __repr__(self) -> str:
        return BLOT

    __str__ = __repr__

    def __format__(self, spec: str) -> str:
        return format(BLOT, spec)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and hmac.compare_digest(self._value.encode(), other._value.encode())

    def __hash__(self) -> int:
        return hash((Secret, self._value))

    def __reduce__(self) -> str:
        raise TypeError("a secret cannot be pickled")


def forms(secrets: Iterable[Secret]) -> tuple[str, ...]:
    """The spellings in which the secrets might turn up in a message, longest first."""
    found: set[str] = set()
    for secret in secrets:
        value = secret.reveal()
        if len(value) < SHORTEST:
            continue
        encoded = base64.b64encode(value.encode()).decode()
        found |= {value, urllib.parse.quote(value, safe=""), urllib.parse.quote_plus(value), json.dumps(value)[1:-1]}
        found |= {encoded, encoded.rstrip("="), encoded.translate(str.maketrans("+/", "-_"))}
    return tuple(sorted(found, key=lambda form: (-len(form), form)))


def scrub(text: str, spellings: Sequence[str]) -> str:
    """The text with every spelling of a secret blotted out."""
    for spelling in spellings:
        text = text.replace(spelling, BLOT)
    return text


def find(value: object, spellings: Sequence[str], where: str) -> str | None:
    """The path below ``where`` at which a value holds a secret, or None."""
    if isinstance(value, Secret):
        return where
    if isinstance(value, str):
        return where if any(spelling in value for spelling in spellings) else None
    if isinstance(value, Mapping):
        parts = [(f"{where}.{key}", item) for key, item in value.items()]
        parts += [(f"a key of {where}", key) for key in value]
    elif isinstance(value, list | tuple):
        parts = [(f"{where}[{index}]", item) for index, item in enumerate(value)]
    else:
        return None
    return next((path for name, item in parts if (path := find(item, spellings, name))), None)
