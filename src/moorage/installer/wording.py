"""How much is said at once: sentences about many things, of a length that a person reads.

A cluster that is not ready lacks a lot, and most of it for one reason: that is told once, with all whom it concerns.
What passes by while somebody waits is cut to a line; the whole is kept for the error that may come of it.
"""

from __future__ import annotations

import collections
import shlex
from collections.abc import Hashable, Iterable, Sequence
from pathlib import Path
from typing import Final, TypeVar

Reason = TypeVar("Reason", bound=Hashable)

LONGEST_MESSAGE: Final = 240
#: What is left of a line of 300 characters when it has said who waits, for what, and for how long.
LONGEST_GLANCE: Final = 220
#: The first sentence leaves room for a second one, which often is the cause; no part is cut to less than these.
_LONGEST_FIRST: Final = 120
_SHORTEST_PART: Final = 60
_MOST_LISTED: Final = 6
_BETWEEN: Final = "; "


def command(words: str, root: Path) -> str:
    """A command to be typed after ours: for the same asset directory, from the same place."""
    return words if str(root) == "." else f"{words} --dir {shlex.quote(str(root))}"


def joined(*parts: str) -> str:
    """Sentences one after the other, without those that say nothing."""
    return _BETWEEN.join(part for part in parts if part)


def short(text: str, longest: int = LONGEST_MESSAGE) -> str:
    """In one line, and not longer than that."""
    text = " ".join(text.split())
    return text if len(text) <= longest else f"{text[: longest - 1].rstrip()}…"


def cut(told: Sequence[str], what: str) -> list[str]:
    """The first few, and how many more there are."""
    if len(told) <= _MOST_LISTED:
        return list(told)
    return [*told[:_MOST_LISTED], f"and {len(told) - _MOST_LISTED} more {what}"]


def together(told: Iterable[tuple[str, Reason]]) -> dict[Reason, list[str]]:
    """Whom each reason concerns, in the order in which they were first told."""
    found: dict[Reason, list[str]] = collections.defaultdict(list)
    for name, reason in told:
        found[reason].append(name)
    return dict(found)


def glance(missing: str) -> str:
    """As much of it as can be read while it passes: the first sentences, and how many there are besides."""
    if len(missing) <= LONGEST_GLANCE:
        return missing
    parts = missing.split(_BETWEEN)
    if len(parts) == 1:
        return short(missing, LONGEST_GLANCE)
    shown = [short(parts[0], _LONGEST_FIRST)]
    for number, part in enumerate(parts[1:], 2):
        room = LONGEST_GLANCE - len(joined(*shown, _besides(len(parts) - number))) - len(_BETWEEN)
        if len(part) > room and room < _SHORTEST_PART:
            break
        shown.append(short(part, room))
    return joined(*shown, _besides(len(parts) - len(shown)))


def _besides(count: int) -> str:
    return f"and {count} more" if count else ""
