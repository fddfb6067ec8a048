"""One process's attempt at a flow: what it keeps from earlier ones, what it does, and the account it gives.

The bodies of TaskFlow's tasks are here. They turn whatever happens to one resource into a journaled event and a
`Failure`, so that the scheduler beneath only ever learns that a task ended, or that nothing that needs it may start.
"""

from __future__ import annotations

import dataclasses
import logging
import math
import threading
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from moorage import errors as top
from moorage.engine import clock as clocks
from moorage.engine import context, critical, errors, graph, outputs, progress, resource, retry, secret, steps
from moorage.engine import journal as journals

log = logging.getLogger(__name__)

BUG = "this is a fault in the program, not in your settings: please report it with the log"


def _traces(entries: Iterable[journals.Entry]) -> dict[str, str]:
    """The resources that may exist according to the events, with the id the platform gave them, if it did."""
    found: dict[str, str] = {}
    for entry in entries:
        if entry.state in ("creating", "adopted"):
            found.setdefault(entry.resource, "")
        elif entry.state == "created":
            found[entry.resource] = entry.ident
        elif entry.state == "reverted":
            found.pop(entry.resource, None)
    return found


class Attempt:
    """One process's run of a flow; its methods are called by many workers at once where they say so."""

    def __init__(
        self,
        flow: str,
        things: graph.Things,
        journal: journals.Journal,
        clock: clocks.Clock,
        listeners: Iterable[progress.Listener],
        *,
        workers: int,
        timeout: float | None,
        backoff: retry.Backoff | None,
    ) -> None:
        self.flow = flow
        self.shape = graph.shape(things)
        self.number = 0
        self.outputs = journal.finished(flow)
        self.kept: tuple[str, ...] = ()
        self.failures: list[errors.Failure] = []
        self.left: dict[str, errors.Failure] = {}
        self._traces = _traces(journal.events(flow))
        self._things = {thing.name: thing for thing in things}
        self._needs = graph.needs_of(things)
        self._journal = journal
        self._clock = clock
        self._broadcast = progress.Broadcast(listeners)
        self._workers = workers
        self._deadline = clock.deadline(math.inf if timeout is None else timeout, f"flow {flow}")
        self._backoff = backoff
        self._begun: set[str] = set()
        self._forgotten: dict[str, str] = {}
        self._turn = threading.Lock()

    # -- before and after ------------------------------------------------------------------------------------------

    @property
    def unfinished(self) -> list[str]:
        return [name for name in self._things if name not in self.outputs]

    def reconcile(self, known: journals.Known | None, *, accept: bool) -> None:
        """Compare the journal's graph with today's; refuse, or drop the records that no longer fit."""
        if known is None:
            return
        touched = self.outputs.keys() | self._traces.keys()
        changed = graph.changes(known.graph, self.shape, touched)
        if changed and not accept:
            raise errors.GraphChanged(self.flow, list(changed.values()))
        # Whoever builds on a changed resource may hold an output that is no longer true.
        stale = (changed.keys() | graph.above(changed, self._needs)) & touched
        with self._journal.transaction():
            self._journal.forget(self.flow, stale)
            for name in sorted(stale):
                self.outputs.pop(name, None)
                self._forgotten[name] = changed.get(name, "something it needs changed")
        self.outputs = {name: record for name, record in self.outputs.items() if name in self._things}

    def open(self, *, rollback: bool) -> None:
        """Number the attempt and tell what is kept from earlier ones."""
        self.number = self._journal.begin(self.flow, self._clock.wall())
        self.kept = tuple(self.outputs)
        self._tell(
            progress.FlowStarted,
            "",
            attempt=self.number,
            total=len(self._things),
            kept=len(self.kept),
            rollback=rollback,
        )
        for name, reason in self._forgotten.items():
            self._tell(progress.Forgotten, name, reason=reason)
        for name in self.kept:
            self._broadcast(progress.Kept(self.flow, name, self._clock.wall()))

    def close(self, outcome: str) -> None:
        """Write down how the attempt ended."""
        self._tell(progress.FlowEnded, "", attempt=self.number, outcome=outcome)
        self._journal.end(self.flow, self.number, outcome, self._clock.wall())

    def failed(self) -> errors.FlowFailed:
        """The account of a flow that stopped."""
        touched = self._begun | self._traces.keys()
        return errors.FlowFailed(
            self.flow,
            self.failures,
            exists=[name for name in self._things if name in self.outputs],
            unfinished=[name for name in self.unfinished if name in touched],
            never_started=[name for name in self.unfinished if name not in touched],
        )

    def interrupted(self) -> errors.Interrupted:
        """The account of a flow that was asked to stop."""
        self.close("interrupted")
        done, total = len(self.outputs), len(self._things)
        also = "".join(f"; {failure}" for failure in self.failures)
        return errors.Interrupted(f"stopped at your request with {done} of {total} resources finished{also}")

    # -- forward ---------------------------------------------------------------------------------------------------

    def bring_up_all(self) -> None:
        """Run what is unfinished, until all of it is done or nothing more may start."""
        todo = set(self.unfinished)
        needs = {name: [need for need in self._needs[name] if need in todo] for name in self._things if name in todo}
        expected = {name: thing.expected for name, thing in self._things.items()}
        self._run(self.flow, needs, self._bring_up, critical.levels(self._needs, expected))

    def _bring_up(self, name: str) -> outputs.Record:
        """The body of one resource's task (called by workers)."""
        if self.failures or self._clock.stopping:
            raise errors.Halted
        thing = self._things[name]
        with self._turn:
            self._begun.add(name)
        begun = self._clock.now()
        self._tell(progress.Started, name)
        try:
            record = steps.bring_up(thing, self._inputs(thing), self._context(thing))
            self._journal.refuse_secrets(record, name)
        except errors.Interrupted:
            self._tell(progress.Stopped, name)
            raise errors.Halted from None
        except errors.JournalError:
            raise
        except Exception as error:  # noqa: BLE001 - a fault in a platform's code is that resource's failure
            failure = self._failure(thing, error)
            with self._turn:
                self.failures.append(failure)
            self._tell(progress.Failed, name, reason=failure.message, remedy=failure.remedy)
            raise errors.Halted from None
        with self._turn:
            self.outputs[name] = record
        self._tell(progress.Finished, name, seconds=self._clock.now() - begun)
        return record

    # -- backward --------------------------------------------------------------------------------------------------

    def roll_back(self, causes: Iterable[errors.Failure]) -> top.MoorageError:
        """Remove all that was made, users before what they use; returns the error that tells of it."""
        causes = tuple(causes)
        back = f"{self.flow}/rollback"
        self._journal.remember(self.flow, self.shape, phase="rollback", causes=causes)
        gone = {name for name, record in self._journal.finished(back).items() if not record["left"]}
        self._traces = _traces(self._journal.events(self.flow))
        # The time allowed for building may be over, and be the very reason for tearing down.
        self._deadline = self._clock.deadline(math.inf, f"rolling back {self.flow}")
        touched = self.outputs.keys() | self._traces.keys()
        todo = [name for name in self._things if name in touched and name not in gone]
        users = graph.reverse(self._needs)
        needs = {name: [user for user in users[name] if user in todo] for name in todo}
        self._run(back, needs, self._take_down, {})
        if self._clock.stopping:
            return self._stopped_rolling_back()
        with self._journal.transaction():
            self._journal.forget(self.flow)
            self._journal.forget(back)
            self._journal.remember(self.flow, self.shape, phase="forward")
        self.close("rolled-back")
        return errors.FlowFailed(self.flow, causes, rolled_back=True, left=list(self.left.values()))

    def _stopped_rolling_back(self) -> errors.Interrupted:
        self.close("interrupted")
        return errors.Interrupted(
            "stopped at your request while rolling back", remedy="run the same command again: it goes on rolling back"
        )

    def _take_down(self, name: str) -> outputs.Record:
        """The body of one resource's removal (called by workers); ends well even if the resource does not go."""
        if self._clock.stopping:
            raise errors.Halted
        thing = self._things[name]
        # What is still used will be refused however long one asks.
        patient = not self.left.keys() & set(graph.reverse(self._needs)[name])
        try:
            steps.take_down(thing, self._inputs(thing), self._context(thing), patient=patient)
        except errors.Interrupted:
            self._tell(progress.Stopped, name)
            raise errors.Halted from None
        except errors.JournalError:
            raise
        except Exception as error:  # noqa: BLE001 - whatever one removal does wrong, the others are still due
            failure = self._failure(thing, error)
            with self._turn:
                self.left[name] = failure
            self._tell(progress.Left, name, reason=failure.message)
            return {"left": True}
        self._tell(progress.Reverted, name)
        return {"left": False}

    # -- shared ----------------------------------------------------------------------------------------------------

    def _run(
        self,
        name: str,
        needs: graph.Needs,
        body: Callable[[str], outputs.Record],
        priorities: Mapping[str, float],
    ) -> None:
        if not needs:
            return
        # Loading TaskFlow takes longer than finding out that nothing is left to do.
        from moorage.engine import runner

        runner.run(name, needs, body, book=self._journal, workers=self._workers, priorities=priorities)

    def _inputs(self, thing: resource.Resource[Any]) -> outputs.Inputs:
        with self._turn:
            return outputs.Inputs(thing.name, {need: self.outputs[need] for need in thing.needs})

    def _context(self, thing: resource.Resource[Any]) -> context.Context:
        return context.Context(
            flow=self.flow,
            resource=thing.name,
            clock=self._clock,
            deadline=self._deadline.within(thing.timeout, thing.describe),
            intended=thing.name in self._traces,
            created_id=self._traces.get(thing.name) or None,
            backoff=self._backoff,
            emit=self._emit,
        )

    def _failure(self, thing: resource.Resource[Any], error: Exception) -> errors.Failure:
        if isinstance(error, errors.PlatformFailure):
            message, remedy = error.told(), error.remedy
        elif isinstance(error, top.MoorageError):
            message, remedy = error.message, error.remedy
        else:
            log.error("%s failed unexpectedly", thing.describe, exc_info=error)
            message, remedy = f"{type(error).__name__}: {error}", BUG
        return errors.Failure(thing.name, thing.kind, secret.scrub(message, self._journal.spellings), remedy)

    def _tell(self, event: Callable[..., progress.Event], name: str, **details: object) -> None:
        self._emit(event(self.flow, name, self._clock.wall(), **details))

    def _emit(self, event: progress.Event) -> None:
        """Journal an event, then broadcast it, both without secrets (called by workers)."""
        words: dict[str, Any] = {
            field.name: secret.scrub(getattr(event, field.name), self._journal.spellings)
            for field in dataclasses.fields(event)
            if isinstance(getattr(event, field.name), str)
        }
        event = dataclasses.replace(event, **words)
        self._journal.append(self.number, event)
        self._broadcast(event)
