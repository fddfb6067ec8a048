"""A flow: a platform's resources, run in order of need, to the end or to an honest account of where it stopped.

Kill the process anywhere and run the flow again: what is recorded is kept, what was under way is looked up first. A
failure stops the flow and explains; with ``rollback`` everything made so far is removed again, last things first, past
whatever refuses to go.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any

from moorage.engine import attempts, graph, outputs, progress, resource, retry
from moorage.engine import clock as clocks
from moorage.engine import journal as journals


@dataclasses.dataclass(frozen=True)
class Flow:
    """A name (part of the journal's format) and the resources that shall exist."""

    name: str
    resources: tuple[resource.Resource[Any], ...]

    def __post_init__(self) -> None:
        graph.check(self.name, self.resources)

    @property
    def needs(self) -> dict[str, tuple[str, ...]]:
        return graph.needs_of(self.resources)

    @property
    def expected(self) -> dict[str, float]:
        return {thing.name: thing.expected for thing in self.resources}


@dataclasses.dataclass(frozen=True)
class Outcome:
    """A finished flow: every resource's output, and the names that an earlier attempt had finished."""

    flow: str
    attempt: int
    outputs: Mapping[str, outputs.Record]
    kept: tuple[str, ...] = ()


def run(
    flow: Flow,
    *,
    journal: journals.Journal,
    clock: clocks.Clock,
    listeners: Iterable[progress.Listener] = (),
    workers: int = 16,
    rollback: bool = False,
    accept_changes: bool = False,
    timeout: float | None = None,
    backoff: retry.Backoff | None = None,
) -> Outcome:
    """Bring the flow to its end, going on where an earlier attempt stopped.

    ``timeout`` (cloud seconds) bounds the whole run, beside each resource's own. ``accept_changes`` allows a journal
    of another graph: records that no longer fit are dropped and their things adopted by look-up. An interrupted
    roll-back is ended first, whatever is asked now: half-removed things are nothing to build on.
    """
    attempt = attempts.Attempt(
        flow.name, flow.resources, journal, clock, listeners, workers=workers, timeout=timeout, backoff=backoff
    )
    known = journal.known(flow.name)
    turned_back = known is not None and known.phase == "rollback"
    attempt.reconcile(known, accept=accept_changes and not turned_back)
    if known is not None and turned_back:
        attempt.open(rollback=True)
        raise attempt.roll_back(known.causes)
    journal.remember(flow.name, graph.shape(flow.resources), phase="forward")
    attempt.open(rollback=False)
    attempt.bring_up_all()
    if not attempt.unfinished:
        attempt.close("finished")
        return Outcome(flow.name, attempt.number, dict(attempt.outputs), attempt.kept)
    if clock.stopping:
        raise attempt.interrupted()
    if rollback:
        raise attempt.roll_back(attempt.failures)
    attempt.close("failed")
    raise attempt.failed()
