"""How long a flow takes at best, and which resources decide it.

`plan` asks before anything runs, with the seconds each resource is expected to take; `timeline` asks afterwards, with
the seconds the journal saw. The engine asks too: of all that could start, what the longest chain hangs on goes first.
"""

from __future__ import annotations

import dataclasses
import datetime
import heapq
from collections.abc import Iterable, Mapping

from moorage.engine import graph, journal


@dataclasses.dataclass(frozen=True)
class Path:
    """The chain of resources that takes longest, first to last, and the seconds it takes."""

    names: tuple[str, ...]
    seconds: float


@dataclasses.dataclass(frozen=True)
class Span:
    """One resource's time in one attempt. ``state`` is the last event's; ``finished`` is None while it goes on."""

    resource: str
    attempt: int
    state: str
    started: datetime.datetime
    finished: datetime.datetime | None
    message: str = ""
    waiting_for: str = ""

    @property
    def seconds(self) -> float:
        # A date may have been set back meanwhile.
        return max(0.0, (self.finished - self.started).total_seconds()) if self.finished else 0.0


_LAST = frozenset({"finished", "failed", "stopped", "reverted", "left", "forgotten"})


def levels(needs: graph.Needs, seconds: Mapping[str, float]) -> dict[str, float]:
    """For each resource, the seconds from its start to the end of the longest chain that begins with it."""
    users = graph.reverse(needs)
    found: dict[str, float] = {}
    for name in reversed(graph.order(needs)):
        found[name] = seconds.get(name, 0.0) + max((found[user] for user in users[name]), default=0.0)
    return found


def critical_path(needs: graph.Needs, seconds: Mapping[str, float]) -> Path:
    """The chain that decides how long the flow takes however many workers there are."""
    left = levels(needs, seconds)
    if not left:
        return Path((), 0.0)
    users = graph.reverse(needs)
    chain = [max(left, key=lambda name: left[name])]
    while users[chain[-1]]:
        chain.append(max(users[chain[-1]], key=lambda name: left[name]))
    return Path(tuple(chain), left[chain[0]])


def makespan(needs: graph.Needs, seconds: Mapping[str, float], workers: int) -> float:
    """The seconds the whole flow takes with so many workers, starting what the longest chain hangs on first."""
    left, users = levels(needs, seconds), graph.reverse(needs)
    missing = {name: len(wanted) for name, wanted in needs.items()}
    ready = [(-left[name], name) for name, count in missing.items() if not count]
    heapq.heapify(ready)
    busy: list[tuple[float, str]] = []
    now = 0.0
    while ready or busy:
        while ready and len(busy) < workers:
            _, name = heapq.heappop(ready)
            heapq.heappush(busy, (now + seconds.get(name, 0.0), name))
        now, done = heapq.heappop(busy)
        for user in users[done]:
            missing[user] -= 1
            if not missing[user]:
                heapq.heappush(ready, (-left[user], user))
    return now


def spans(entries: Iterable[journal.Entry]) -> list[Span]:
    """The journal's events, gathered into spans, attempt after attempt, in order of their start.

    There is one for each resource and attempt, and another one if the attempt also rolled the resource back.
    """
    found: list[Span] = []
    latest: dict[tuple[int, str], int] = {}
    for entry in entries:
        if not entry.resource:
            continue
        key = (entry.attempt, entry.resource)
        before = found[latest[key]] if key in latest and found[latest[key]].finished is None else None
        over = entry.state in _LAST
        if before is None:
            latest[key] = len(found)
            found.append(Span(entry.resource, entry.attempt, entry.state, entry.at, None))
        found[latest[key]] = Span(
            resource=entry.resource,
            attempt=entry.attempt,
            state=entry.state,
            started=before.started if before else entry.at,
            finished=entry.at if over else None,
            message=entry.message or (before.message if before and over else ""),
            waiting_for=entry.waiting_for,
        )
    # By attempt first: the wall's clock may have been set back between two runs.
    return sorted(found, key=lambda span: (span.attempt, span.started, span.resource))


def observed(seen: Iterable[Span]) -> dict[str, float]:
    """The seconds each resource took, over all attempts that worked on it."""
    found: dict[str, float] = {}
    for span in seen:
        found[span.resource] = found.get(span.resource, 0.0) + span.seconds
    return found
