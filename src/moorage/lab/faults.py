"""Faults on order: rules that make calls of an API fail, wait, vanish, happen twice or read the past.

A rule matches calls by method and path and strikes from its n-th match on, as often as it has strikes remaining. Rules
are written and shown as JSON, so that a test, a command or another process can order them; `striking` is the middleware
that carries them out, just inside `calls.recording`.
"""

from __future__ import annotations

import dataclasses
import fnmatch
import json
import math
import re
from collections.abc import Mapping
from typing import Any

from aiohttp import typedefs, web

from moorage import errors, lab
from moorage.engine import clock as clocks
from moorage.lab import calls

FAIL = "fail"
DELAY = "delay"
DROP = "drop"
APPLY_THEN_DROP = "apply-then-drop"
DUPLICATE = "duplicate"
STALE_READ = "stale-read"
ACTIONS = (FAIL, DELAY, DROP, APPLY_THEN_DROP, DUPLICATE, STALE_READ)

# A handler that can read the past looks for this mark in its request.
STALE = web.RequestKey("stale", bool)

# At most one of these decides what becomes of a call; the other actions may come on top.
_FATES = (FAIL, DROP, APPLY_THEN_DROP, DUPLICATE)
_MOST_RULES = 1000
_WILD = re.compile(r"\*\*|\*")


class RuleRefused(errors.MoorageError):
    """A fault rule makes no sense."""


@dataclasses.dataclass(frozen=True)
class Rule:
    """An order to misbehave.

    In ``path`` a ``*`` stands for anything within one segment and ``**`` for anything at all; a pattern with a ``?``
    is held against the path and its query, any other against the path alone. ``service`` is a shell pattern for the API
    that is meant. ``nth`` is the first matching call to be struck (1: from the first); ``remaining`` is how many are
    struck from there on, None for all.
    """

    action: str
    service: str = "*"
    method: str = "*"
    path: str = "**"
    nth: int = 1
    remaining: int | None = None
    status: int = 500
    body: Any = ""
    headers: Mapping[str, str] = dataclasses.field(default_factory=dict)
    seconds: float = 0.0


_KEYS = tuple(field.name for field in dataclasses.fields(Rule))
# Which fields say something for one action only.
_ONLY = {"status": FAIL, "body": FAIL, "headers": FAIL, "seconds": DELAY}


def from_json(document: object) -> Rule:
    """Read a rule; a rule with ``nth`` and no ``remaining`` strikes the n-th matching call alone."""
    if not isinstance(document, dict):
        raise RuleRefused("a fault rule is a JSON object", remedy='write it like {"action": "drop", "path": "/vms"}')
    unknown = [str(key) for key in document if key not in _KEYS]
    if unknown:
        raise RuleRefused(f"a fault rule has no {', '.join(unknown)}", remedy=f"it may have {', '.join(_KEYS)}")
    if "action" not in document:
        raise RuleRefused("a fault rule needs an action", remedy=f"use one of {', '.join(ACTIONS)}")
    alone = {"remaining": 1} if "nth" in document else {}
    rule = Rule(**{**alone, **document})
    _check(rule)
    for key, action in _ONLY.items():
        if key in document and rule.action != action:
            raise RuleRefused(f"{key} says nothing about {rule.action}", remedy=f"leave it out, or use {action}")
    return rule


def to_json(rule: Rule) -> dict[str, object]:
    """The rule as a document that `from_json` reads as the same rule."""
    only = {key: getattr(rule, key) for key, action in _ONLY.items() if action == rule.action}
    if "headers" in only:
        only["headers"] = dict(rule.headers)
    common = ("action", "service", "method", "path", "nth", "remaining")
    return {key: getattr(rule, key) for key in common} | only


def _check(rule: Rule) -> None:
    wrongs = {
        f"action is one of {', '.join(ACTIONS)}": rule.action in ACTIONS,
        "service is a name or a pattern": isinstance(rule.service, str) and bool(rule.service),
        "method is a word in capitals, or *": isinstance(rule.method, str)
        and (rule.method == "*" or (rule.method.isalpha() and rule.method.isupper())),
        "path begins with / or *": isinstance(rule.path, str) and rule.path[:1] in ("/", "*"),
        "nth is a whole number above 0": _whole(rule.nth) and rule.nth > 0,
        "remaining is a whole number, or null": rule.remaining is None
        or (_whole(rule.remaining) and rule.remaining >= 0),
        "status is a whole number from 200 to 599": _whole(rule.status) and 200 <= rule.status <= 599,
        "headers are names with texts of one line": isinstance(rule.headers, Mapping)
        and all(_header(name, value) for name, value in rule.headers.items()),
        "seconds is a number, 0 or more": isinstance(rule.seconds, int | float)
        and not isinstance(rule.seconds, bool)
        and math.isfinite(rule.seconds)
        and rule.seconds >= 0,
        "body is a text or a JSON value": _writable(rule.body),
    }
    wrong = [words for words, right in wrongs.items() if not right]
    if wrong:
        raise RuleRefused(f"the fault rule cannot be used: {'; '.join(wrong)}")


def _whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _header(name: object, value: object) -> bool:
    sound = isinstance(name, str) and re.fullmatch(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+", name) is not None
    return sound and isinstance(value, str) and value.isprintable()


def _writable(body: object) -> bool:
    try:
        json.dumps(body, allow_nan=False, ensure_ascii=False).encode()
    except (TypeError, ValueError, RecursionError):
        return False
    return True


def _matcher(pattern: str) -> re.Pattern[str]:
    pieces = [re.escape(piece) for piece in _WILD.split(pattern)]
    wilds = [".*" if wild == "**" else "[^/?]*" for wild in _WILD.findall(pattern)]
    return re.compile("".join(a + b for a, b in zip(pieces, [*wilds, ""], strict=True)), re.DOTALL)


@dataclasses.dataclass
class _Armed:
    number: int
    rule: Rule
    matcher: re.Pattern[str]
    matched: int = 0
    struck: int = 0

    def matches(self, service: str, method: str, path: str, query: str) -> bool:
        if not fnmatch.fnmatchcase(service, self.rule.service):
            return False
        asked = f"{path}?{query}" if "?" in self.rule.path else path
        return self.rule.method in ("*", method) and self.matcher.fullmatch(asked) is not None

    @property
    def remaining(self) -> int | None:
        return None if self.rule.remaining is None else self.rule.remaining - self.struck

    @property
    def due(self) -> bool:
        return self.matched >= self.rule.nth and self.remaining != 0


class Faults:
    """The rules in force, oldest first."""

    def __init__(self, clock: clocks.Clock) -> None:
        self.clock = clock
        self._armed: dict[int, _Armed] = {}
        self._last = 0

    def add(self, rule: Rule) -> int:
        """Put a rule in force; the number is its handle."""
        _check(rule)
        if len(self._armed) >= _MOST_RULES:
            raise RuleRefused(f"there are {_MOST_RULES} fault rules already", remedy="remove those that are spent")
        self._last += 1
        self._armed[self._last] = _Armed(self._last, rule, _matcher(rule.path))
        return self._last

    def remove(self, number: int) -> bool:
        """Take a rule out of force; False if there is none of that number."""
        return self._armed.pop(number, None) is not None

    def clear(self) -> None:
        """Take all rules out of force."""
        self._armed.clear()

    def to_json(self) -> list[dict[str, object]]:
        """All rules with how often each matched and struck; ``remaining`` is what is left."""
        return [
            to_json(each.rule)
            | {"number": number, "matched": each.matched, "struck": each.struck, "remaining": each.remaining}
            for number, each in self._armed.items()
        ]

    def struck(self, service: str, method: str, path: str, query: str = "") -> list[Rule]:
        """The rules that strike a call of a service; every match is counted, and so is every strike.

        Of the rules that decide a call's fate the oldest takes it. The others keep their strike for a later call.
        """
        striking: list[Rule] = []
        decided = False
        for each in self._armed.values():
            if not each.matches(service, method, path, query):
                continue
            each.matched += 1
            fateful = each.rule.action in _FATES
            if not each.due or (fateful and decided):
                continue
            each.struck += 1
            decided = decided or fateful
            striking.append(each.rule)
        return striking


def striking(faults: Faults, service: str) -> typedefs.Middleware:
    """The middleware that makes calls of a service misbehave as ``faults`` orders."""

    @web.middleware
    async def strike(request: web.Request, handler: typedefs.Handler) -> web.StreamResponse:
        struck = faults.struck(service, request.method, request.path, request.query_string)
        if not struck:
            return await handler(request)
        request[calls.FAULTS] = tuple(rule.action for rule in struck)
        if any(rule.action == STALE_READ for rule in struck):
            request[STALE] = True
        for rule in struck:
            await lab.sleep(faults.clock, rule.seconds if rule.action == DELAY else 0.0)
        fate = next((rule for rule in struck if rule.action in _FATES), None)
        return await (handler(request) if fate is None else _met(fate, request, handler))

    return strike


async def _met(fate: Rule, request: web.Request, handler: typedefs.Handler) -> web.StreamResponse:
    if fate.action == FAIL:
        return _failure(fate)
    if fate.action == DROP:
        return _hung_up(request)
    try:
        first = await handler(request)
    except web.HTTPException as reply:
        first = reply
    if fate.action == APPLY_THEN_DROP:
        return _hung_up(request)
    # As behind a proxy that lost the first reply and asked again. A stream has reached the client already.
    return first if first.prepared else await handler(request)


def _failure(rule: Rule) -> web.Response:
    headers = dict(rule.headers)
    text = isinstance(rule.body, str)
    if not any(name.lower() == "content-type" for name in headers):
        headers["Content-Type"] = "text/plain; charset=utf-8" if text else "application/json"
    body = (rule.body if text else json.dumps(rule.body)).encode()
    return web.Response(status=rule.status, body=body, headers=headers)


def _hung_up(request: web.Request) -> web.Response:
    """Cut the connection. The response goes nowhere: the server needs one to be done with the call."""
    request[calls.DROPPED] = True
    if request.transport is not None:
        request.transport.abort()
    return web.Response(status=444)
