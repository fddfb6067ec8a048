"""The stages of a story, kept in the journal beside the flows, so that resume, status and timeline see them.

A stage is journaled like a resource of a flow of its own, but its error reaches the top as it is: the stage decides
the exit code.
"""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
from collections.abc import Callable, Iterator, Mapping, Sequence

from moorage import errors as top
from moorage.engine import clock as clocks
from moorage.engine import errors, progress
from moorage.engine import journal as journals

Say = Callable[[str, str, float], None]


@dataclasses.dataclass(frozen=True)
class Told(progress.Event):
    """Something worth remembering happened while a stage waited; it goes on waiting."""

    state = "waiting"
    durable = False
    sentence: str

    @property
    def message(self) -> str:
        return self.sentence


def graph(names: Sequence[str], about: str) -> dict[str, object]:
    """The stages as the journal keeps a graph: each needs the one before, and knows whose stage it is."""
    before: list[list[str]] = [[], *([name] for name in names[:-1])]
    return {name: {"kind": "stage", "needs": needs, "of": about} for name, needs in zip(names, before, strict=True)}


def about(journal: journals.Journal, flow: str) -> str:
    """What the recorded stages are about; empty if there are none."""
    known = journal.known(flow)
    first = next(iter(known.graph.values()), None) if known else None
    return str(first.get("of", "")) if isinstance(first, Mapping) else ""


def last_states(journal: journals.Journal, flow: str, names: Sequence[str]) -> dict[str, str]:
    """The last journaled state of each stage that was ever begun.

    A stage that failed takes back what came after it: what those built on may have been rolled back since.
    """
    found: dict[str, str] = {}
    for entry in journal.events(flow):
        if entry.state == "failed":
            found = _before(entry.resource, found, names)
        if entry.resource:
            found[entry.resource] = entry.state
    return found


def _before(stage: str, states: Mapping[str, str], names: Sequence[str]) -> dict[str, str]:
    later = names[names.index(stage) + 1 :] if stage in names else ()
    return {name: state for name, state in states.items() if name not in later}


class Stages:
    """One process's way through the stages of a story."""

    def __init__(
        self, flow: str, names: Sequence[str], about: str, journal: journals.Journal, clock: clocks.Clock
    ) -> None:
        self.before = last_states(journal, flow, names)
        self._flow = flow
        self._journal = journal
        self._clock = clock
        self._present = ""
        with journal.transaction():
            journal.remember(flow, graph(names, about), phase="forward")
            self._number = journal.begin(flow, clock.wall())

    def done(self, name: str) -> bool:
        """Whether an earlier run finished the stage."""
        return self.before.get(name) == "finished"

    def begun(self, name: str) -> bool:
        """Whether an earlier run got as far as the stage."""
        return name in self.before

    @contextlib.contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Journal the beginning and the end of a stage, whatever end it is."""
        begun = self._clock.now()
        self._append(progress.Started, name)
        self._present = name
        try:
            self._clock.check()
            yield
        except errors.Interrupted:
            self._append(progress.Stopped, name)
            self.end("interrupted")
            raise
        except Exception as problem:
            reason = (
                problem.message if isinstance(problem, top.MoorageError) else f"{type(problem).__name__}: {problem}"
            )
            self._append(progress.Failed, name, reason=reason)
            self.end("failed")
            raise
        finally:
            self._present = ""
        self._append(progress.Finished, name, seconds=self._clock.now() - begun)

    def finished(self, name: str, began: datetime.datetime, at: float) -> None:
        """Journal a stage that was over before there was a journal; ``began`` and ``at`` are the clock's two times."""
        self._append(progress.Started, name, when=began)
        self._append(progress.Finished, name, seconds=self._clock.now() - at)

    def heard(self, name: str, say: Say) -> Say:
        """``say``, with the journal listening."""
        last = ""

        def both(stage: str, waiting_for: str, seconds: float) -> None:
            nonlocal last
            if waiting_for != last:
                last = waiting_for
                self._append(progress.Waiting, name, what=waiting_for)
            say(stage, waiting_for, seconds)

        return both

    def tell(self, sentence: str) -> None:
        """Journal something that happened in the present stage, from any thread; between stages there is none."""
        if self._present:
            self._append(Told, self._present, sentence=sentence)

    def end(self, outcome: str) -> None:
        """Close this run's entry."""
        self._journal.end(self._flow, self._number, outcome, self._clock.wall())

    def _append(
        self,
        event: Callable[..., progress.Event],
        name: str,
        *,
        when: datetime.datetime | None = None,
        **details: object,
    ) -> None:
        # In a transaction of its own: the end of a stage must be on disk before the next one changes anything.
        with self._journal.transaction():
            self._journal.append(self._number, event(self._flow, name, when or self._clock.wall(), **details))
