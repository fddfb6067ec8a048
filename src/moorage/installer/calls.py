"""Every call to a platform in the log, and not one secret.

A platform's client tells its calls line by line. Before a line is written, the run's credentials are blotted out in
all their spellings, and so is whatever looks like a credential that was only handed out on the way: a bearer token, a
session password, a private key.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Protocol

from moorage.engine import secret

#: A reply may be a listing of megabytes; this much of it tells what happened.
LONGEST = 4000

_WORDS = r"(?:[a-z0-9]+[_-])*(?:authorization|token|password|passwd|secret|api[_-]?key|apikey|cookie)"
_LOOKS_SECRET = (
    (re.compile(r"-----BEGIN ([A-Z ]*PRIVATE KEY)-----.*?(?:-----END \1-----|\Z)", re.DOTALL), secret.BLOT),
    (re.compile(r"(?i)\b(bearer|basic)\s+[A-Za-z0-9._~+/=-]{4,}"), rf"\1 {secret.BLOT}"),
    (re.compile(rf'(?i)(\\?"{_WORDS}\\?"\s*:\s*\\?")(?:[^"\\]|\\(?!").)*'), rf"\1{secret.BLOT}"),
    (re.compile(rf"(?i)(<{_WORDS}>)[^<]*"), rf"\1{secret.BLOT}"),
    (
        re.compile(rf"(?im)^(\s*(?:[<>]\s*)?(?:set-|x-)?{_WORDS}\s*:[ \t]*)(?!(?:bearer|basic)\b)\S.*$"),
        rf"\1{secret.BLOT}",
    ),
    (re.compile(rf"(?i)\b({_WORDS}=)[^&\s\"',;]+"), rf"\1{secret.BLOT}"),
)
_CONTROL = {code: f"\\x{code:02x}" for code in (*range(32), 127)} | {10: "\\n", 13: "\\r", 9: " "}


class Log(Protocol):
    """Where lines go: what is written at debug is always in the log file."""

    def debug(self, text: str) -> None: ...


def masked(text: str, spellings: Iterable[str]) -> str:
    """The text as it may be kept: no secrets, one line, not endless."""
    text = secret.scrub(text, tuple(spellings))
    for pattern, instead in _LOOKS_SECRET:
        text = pattern.sub(instead, text)
    # A reply with line ends in it must not be able to write log lines of its own.
    text = text.translate(_CONTROL)
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}… ({len(text) - LONGEST} more characters)"


def tracer(log: Log, secrets: Iterable[secret.Secret] = ()) -> Callable[[str], None]:
    """What a platform calls with a line for each of its calls (`contract.Surroundings.trace`)."""
    spellings = secret.forms(secrets)

    def trace(line: str) -> None:
        log.debug(f"call: {masked(line, spellings)}")

    return trace
