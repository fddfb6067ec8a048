"""What happened to a cluster's resources, gathered from the journal's events into attempts and bars of time.

An attempt whose process died left events without an end. Its bars are cut off at its last sign of life, so that a
crash looks like what it was and not like hours of work.
"""

from __future__ import annotations

import dataclasses
import datetime
import os
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from moorage.engine import critical
from moorage.engine import journal as journals

#: What became of a resource in an attempt, with the words for a person.
STATES: Mapping[str, str] = {
    "finished": "made",
    "adopted": "found and adopted",
    "resumed": "begun earlier, made here",
    "running": "under way",
    "failed": "failed",
    "stopped": "stopped by the user",
    "cut": "cut off, the process died",
    "reverted": "removed again",
    "left": "could not be removed",
}
_OVER = {"finished", "failed", "stopped", "reverted", "left"}
_BACKWARD = {"deleting", "reverted", "left"}


@dataclasses.dataclass(frozen=True)
class Try:
    """One process's attempt. ``outcome`` is the journal's word, or "cut off" if the process died."""

    number: int
    outcome: str
    pid: int
    started: datetime.datetime
    ended: datetime.datetime
    #: Its place among all attempts of the journal, whatever their clocks said.
    order: int

    @property
    def seconds(self) -> float:
        return max(0.0, (self.ended - self.started).total_seconds())


@dataclasses.dataclass(frozen=True)
class Bar:
    """One resource's time in one attempt; ``state`` is a key of `STATES`."""

    resource: str
    attempt: int
    state: str
    started: datetime.datetime
    ended: datetime.datetime
    #: What was waited for, in order.
    waits: tuple[str, ...] = ()
    #: What the platform said: failed tries, and why it ended.
    messages: tuple[str, ...] = ()
    retries: int = 0
    ident: str = ""
    #: It was removed, or should have been.
    backward: bool = False
    #: What was made here was removed and made anew later: it no longer counts.
    superseded: bool = False

    @property
    def seconds(self) -> float:
        return max(0.0, (self.ended - self.started).total_seconds())

    @property
    def counts(self) -> bool:
        """Whether the resource, as it stands or stood last, took this time to make."""
        return not (self.backward or self.superseded)


Timed = TypeVar("Timed", Try, Bar)


@dataclasses.dataclass(frozen=True)
class Stage:
    """One flow of the journal."""

    name: str
    tries: tuple[Try, ...]
    bars: tuple[Bar, ...]
    kinds: Mapping[str, str]
    path: critical.Path
    #: Resources that no attempt has begun.
    waiting: tuple[str, ...]

    @property
    def started(self) -> datetime.datetime:
        return min([attempt.started for attempt in self.tries] + [bar.started for bar in self.bars])

    @property
    def ended(self) -> datetime.datetime:
        return max([attempt.ended for attempt in self.tries] + [bar.ended for bar in self.bars])

    @property
    def worked(self) -> float:
        """The seconds in which a process was at work on it."""
        return sum(attempt.seconds for attempt in self.tries)

    def decisive(self, bar: Bar) -> bool:
        """Whether the bar belongs to the critical path."""
        return bar.counts and bar.resource in self.path.names


def process_exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True


def read(
    journal: journals.Journal,
    *,
    now: datetime.datetime | None = None,
    alive: Callable[[int], bool] = process_exists,
) -> tuple[Stage, ...]:
    """Every flow that was ever begun, oldest first."""
    now = now or datetime.datetime.now(datetime.UTC)
    stages = [_stage(journal, flow, now, alive) for flow in journal.flows()]
    return tuple(sorted(_in_turn([stage for stage in stages if stage.tries]), key=lambda stage: stage.started))


def _in_turn(stages: Sequence[Stage]) -> list[Stage]:
    """The stages with each process's times after those of the process before it.

    They are that already, unless the clock ran faster than the world's: then a process that came a minute later seems
    to have worked within the hours of the one before.
    """
    processes: dict[int, list[Try]] = {}
    for attempt in sorted((attempt for stage in stages for attempt in stage.tries), key=lambda attempt: attempt.order):
        processes.setdefault(attempt.pid, []).append(attempt)
    later: dict[int, datetime.timedelta] = {}
    free = datetime.datetime.min.replace(tzinfo=datetime.UTC)
    for pid, tries in processes.items():
        later[pid] = max(free - min(attempt.started for attempt in tries), datetime.timedelta(0))
        free = max(attempt.ended for attempt in tries) + later[pid]
    return [_moved(stage, {attempt.number: later[attempt.pid] for attempt in stage.tries}) for stage in stages]


def _moved(stage: Stage, later: Mapping[int, datetime.timedelta]) -> Stage:
    def moved(thing: Timed, by: datetime.timedelta) -> Timed:
        return dataclasses.replace(thing, started=thing.started + by, ended=thing.ended + by)

    return dataclasses.replace(
        stage,
        tries=tuple(moved(attempt, later[attempt.number]) for attempt in stage.tries),
        bars=tuple(sorted((moved(bar, later[bar.attempt]) for bar in stage.bars), key=_order)),
    )


def _stage(journal: journals.Journal, flow: str, now: datetime.datetime, alive: Callable[[int], bool]) -> Stage:
    entries = journal.events(flow)
    tries = _tries(journal.attempts(flow), entries, now, alive)
    bars = _bars(entries, {attempt.number: attempt for attempt in tries})
    known = journal.known(flow)
    graph = {} if known is None else {name: entry for name, entry in known.graph.items() if isinstance(entry, Mapping)}
    needs = {name: [need for need in entry.get("needs", ()) if need in graph] for name, entry in graph.items()}
    spent: dict[str, float] = {}
    for bar in bars:
        if bar.counts:
            spent[bar.resource] = spent.get(bar.resource, 0.0) + bar.seconds
    begun = {name: wanted for name, wanted in needs.items() if name in spent}
    chain = critical.critical_path({name: [n for n in wanted if n in begun] for name, wanted in begun.items()}, spent)
    return Stage(
        name=flow,
        tries=tries,
        bars=bars,
        kinds={name: str(entry.get("kind", "")) for name, entry in graph.items()},
        path=chain,
        waiting=tuple(name for name in graph if name not in {bar.resource for bar in bars}),
    )


def _tries(
    attempts: Sequence[journals.Attempt],
    entries: Sequence[journals.Entry],
    now: datetime.datetime,
    alive: Callable[[int], bool],
) -> tuple[Try, ...]:
    found, before = [], 0
    for attempt in attempts:
        signs = [attempt.started, *(entry.at for entry in entries if entry.attempt == attempt.attempt)]
        outcome, ended = attempt.outcome, attempt.finished
        if ended is None:
            # Only the latest can be at work: a process takes the lock of a dead one, never that of a living one.
            at_work = attempt is attempts[-1] and alive(attempt.pid)
            outcome, ended = ("running", max(now, *signs)) if at_work else ("cut off", max(signs))
        order = min((entry.id for entry in entries if entry.attempt == attempt.attempt), default=before)
        before = max((entry.id for entry in entries if entry.attempt == attempt.attempt), default=before)
        found.append(Try(attempt.attempt, outcome, attempt.pid, attempt.started, ended, order))
    return tuple(found)


def _bars(entries: Sequence[journals.Entry], tries: Mapping[int, Try]) -> tuple[Bar, ...]:
    gathered: list[list[journals.Entry]] = []
    open_now: dict[tuple[int, str], list[journals.Entry]] = {}
    for entry in entries:
        if not entry.resource or entry.state == "forgotten" or entry.attempt not in tries:
            continue
        key = (entry.attempt, entry.resource)
        if key not in open_now:
            open_now[key] = []
            gathered.append(open_now[key])
        open_now[key].append(entry)
        if entry.state in _OVER:
            del open_now[key]
    seen: set[str] = set()
    found = []
    for group in gathered:
        bar = _bar(group, tries[group[0].attempt], resumed=group[0].resource in seen)
        (seen.discard if bar.state in ("finished", "reverted") else seen.add)(bar.resource)
        found.append(bar)
    return _superseded(found)


def _superseded(bars: Sequence[Bar]) -> tuple[Bar, ...]:
    """The bars, with those marked that a later roll-back undid and a later attempt repeated."""
    found: list[Bar] = []
    repeated: dict[str, bool] = {}  # of the bars looked at so far, from the last: True once a removal came before one
    for bar in reversed(bars):
        if bar.backward:
            repeated.update({bar.resource: True} if bar.resource in repeated else {})
        else:
            bar = dataclasses.replace(bar, superseded=repeated.setdefault(bar.resource, False))
        found.append(bar)
    return tuple(reversed(found))


def _order(bar: Bar) -> tuple[datetime.datetime, datetime.datetime, str]:
    return (bar.started, bar.ended, bar.resource)


def _bar(group: Sequence[journals.Entry], attempt: Try, *, resumed: bool) -> Bar:
    last, states = group[-1], [entry.state for entry in group]
    over = last.state in _OVER
    if not over:
        state = "running" if attempt.outcome == "running" else "cut"
    elif last.state != "finished":
        state = last.state
    else:
        state = "adopted" if "adopted" in states else "resumed" if resumed else "finished"
    return Bar(
        resource=last.resource,
        attempt=last.attempt,
        state=state,
        started=group[0].at,
        ended=last.at if over else max(attempt.ended, last.at),
        waits=tuple(dict.fromkeys(entry.waiting_for for entry in group if entry.waiting_for)),
        messages=tuple(dict.fromkeys(entry.message for entry in group if entry.message)),
        retries=states.count("retrying"),
        ident=next((entry.ident for entry in group if entry.ident), ""),
        backward=not _BACKWARD.isdisjoint(states),
    )
