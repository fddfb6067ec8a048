"""Destroying a cluster: what bears its mark on the platform goes, round after round, until nothing does.

Nothing but the platform is believed: neither a journal nor an earlier run's word. Single refusals do not stop the rest,
and it is a success only when two looks in a row, far enough apart for a lagging platform, find nothing.
"""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
from collections.abc import Callable, Iterator, Sequence
from concurrent import futures
from pathlib import Path

from moorage import errors as top
from moorage.assets import store
from moorage.engine import clock as clocks
from moorage.engine import errors, progress, retry, secret
from moorage.engine import journal as journals
from moorage.installer import aside
from moorage.platforms import contract, registry

#: Cloud seconds without anything going after which destroy gives up; a long-running removal counts as it ends.
PATIENCE = 1800.0
#: Cloud seconds after which it is over in any case: what grows again as fast as it is removed would never end.
LONGEST = 6 * 3600.0
#: Cloud seconds for the platform to accept a removal, and for the thing to be really gone then.
ASKING, GOING = 300.0, 1200.0
EVERY = 5.0

FLOW = "destroy cluster"
Tracer = Callable[[Sequence[secret.Secret]], Callable[[str], None]]


@dataclasses.dataclass(frozen=True)
class Destroyed:
    """A cluster (or its bootstrap) that is no more: what was removed just now, and where its files went."""

    infra_id: str
    removed: tuple[str, ...]
    rounds: int
    set_aside: Path | None = None
    spared: tuple[str, ...] = ()
    """What the cluster's users have stored and its machines had: it is still on the platform."""


@dataclasses.dataclass(frozen=True)
class Left:
    """Something that would not go, and what the platform said about it."""

    resource: str
    words: str

    def __str__(self) -> str:
        return f"{self.resource}: {self.words}"


class LeftBehind(top.MoorageError):
    """Not all of the cluster could be removed."""

    exit_code = top.INFRASTRUCTURE

    def __init__(self, infra_id: str, left: Sequence[Left], removed: Sequence[str], spared: Sequence[str] = ()) -> None:
        lines = "".join(f"\n  {item}" for item in left)
        lines += f"\n{kept(spared)}" if spared else ""
        super().__init__(
            f"{len(left)} of {infra_id} could not be removed ({len(removed)} were):{lines}",
            remedy="remove what is in the way, then run the same command again: it looks for all of it anew",
        )
        self.left = tuple(left)


def kept(spared: Sequence[str]) -> str:
    """What is said of data that stays."""
    return f"{', '.join(spared)}: not made by moorage, so kept; remove it if nobody needs the data"


def destroy(
    metadata: contract.Metadata,
    scope: contract.Scope,
    platform: contract.Destroy,
    around: contract.Surroundings,
    tell: progress.Listener,
    *,
    patience: float = PATIENCE,
    workers: int = 16,
) -> Destroyed:
    """Remove what ``platform`` finds of the cluster until it finds nothing; `LeftBehind` if some of it stays."""
    removal = _Removal(f"destroy {scope}", around.clock, tell, workers)
    limit = around.clock.deadline(patience, f"the removal of {metadata.infra_id}")
    end = around.clock.deadline(LONGEST, limit.what)
    empty = rounds = 0
    fewest: int | None = None
    while True:
        found = retry.retry(lambda: platform.discover(metadata, scope, around), deadline=limit)
        if not found:
            empty += 1
            if empty == 2:
                return Destroyed(metadata.infra_id, tuple(removal.gone), rounds, spared=tuple(removal.spared))
            around.clock.sleep(platform.SETTLE)
            continue
        empty, rounds, before = 0, rounds + 1, len(removal.gone)
        left = removal.round(found)
        # A stale list may show for long what is gone: only what never went before, or a shorter list, is progress.
        if len(removal.gone) > before or (fewest is not None and len(found) < fewest):
            limit = around.clock.deadline(patience, limit.what)
        if limit.expired or end.expired:
            raise LeftBehind(metadata.infra_id, left or removal.lingering(found), removal.gone, tuple(removal.spared))
        fewest = len(found) if fewest is None else min(fewest, len(found))
        around.clock.sleep(EVERY)


class _Removal:
    """The rounds of one destroy, and what has gone in them."""

    def __init__(self, flow: str, clock: clocks.Clock, tell: progress.Listener, workers: int) -> None:
        self.gone: list[str] = []
        #: In the order in which it was come upon; a step that is repeated comes upon the same again.
        self.spared: dict[str, None] = {}
        self._flow = flow
        self._clock = clock
        self._tell = progress.Broadcast([tell])
        self._workers = workers

    def round(self, found: Sequence[contract.Remnant]) -> list[Left]:
        """Remove stage after stage, all of a stage at once; what would not go is returned with the reason."""
        left: list[Left] = []
        for stage in sorted({remnant.stage for remnant in found}):
            self._clock.check()
            # What something stuck still uses will be refused however long one asks.
            patient = not left
            here = [remnant for remnant in found if remnant.stage == stage]
            with futures.ThreadPoolExecutor(max_workers=self._workers, thread_name_prefix="destroy") as pool:
                words = list(pool.map(lambda remnant, patient=patient: self._remove(remnant, patient), here))
            self._clock.check()
            for remnant, said in zip(here, words, strict=True):
                self.spared.update(dict.fromkeys(remnant.spared))
                if said:
                    left.append(Left(_label(remnant), said))
                elif _label(remnant) not in self.gone:
                    self.gone.append(_label(remnant))
        return left

    def lingering(self, found: Sequence[contract.Remnant]) -> list[Left]:
        """What the platform goes on listing although it says of each that it is gone."""
        return [Left(_label(remnant), "is still listed, though it was removed") for remnant in found]

    def _remove(self, remnant: contract.Remnant, patient: bool) -> str:
        """Remove one thing (called by workers); the platform's words if it stays, nothing if it is gone."""
        label = _label(remnant)
        self._report(progress.Deleting, label)
        try:
            self._until_gone(remnant, patient)
        except errors.Interrupted:
            self._report(progress.Stopped, label)
            return "stopped"
        except Exception as problem:  # noqa: BLE001 - whatever one removal does wrong, the others are still due
            words = _words(problem)
            self._report(progress.Left, label, reason=words)
            return words
        self._report(progress.Reverted, label)
        return ""

    def _until_gone(self, remnant: contract.Remnant, patient: bool) -> None:
        deadline = self._clock.deadline(GOING, f"the removal of {_label(remnant)}")

        def ask() -> None:
            try:
                remnant.remove()
            except errors.NotFound:
                return
            except errors.Conflict as conflict:
                if not patient:
                    raise
                # In use, most often by something whose removal has not quite ended.
                raise errors.Transient(conflict.message, words=conflict.words) from conflict

        def gone() -> bool | None:
            try:
                return None if remnant.present() else True
            except errors.NotFound:
                return True

        retry.retry(ask, deadline=deadline, seconds=ASKING)
        retry.poll(gone, every=EVERY, deadline=deadline)

    def _report(self, event: Callable[..., progress.Event], label: str, **details: object) -> None:
        self._tell(event(self._flow, label, self._clock.wall(), **details))


def _label(remnant: contract.Remnant) -> str:
    return f"{remnant.kind} {remnant.name}"


def _words(problem: Exception) -> str:
    if isinstance(problem, errors.PlatformFailure):
        return problem.told()
    return problem.message if isinstance(problem, top.MoorageError) else f"{type(problem).__name__}: {problem}"


def destroy_from(
    root: Path | None,
    known: contract.Metadata,
    scope: contract.Scope,
    around: contract.Surroundings,
    tracer: Tracer,
    tell: progress.Listener,
) -> Destroyed:
    """Destroy, and keep the asset directory (if there is one) in step: locked meanwhile, cleared afterwards."""
    platform = registry.destroy(known.platform)
    secrets = platform.secrets(known, around)
    around = dataclasses.replace(around, trace=tracer(secrets))
    if root is None:
        return destroy(known, scope, platform, around, tell)
    with store.opened(root) as directory:
        with _journaled(root, f"destroy {scope}", secrets, around.clock, tell) as told:
            done = destroy(known, scope, platform, around, told)
        if scope == "bootstrap":
            return done
        moment = datetime.datetime.now(datetime.UTC)
        return dataclasses.replace(done, set_aside=aside.set_aside(directory, known.infra_id, moment))


@contextlib.contextmanager
def _journaled(
    root: Path, flow: str, secrets: Sequence[secret.Secret], clock: clocks.Clock, tell: progress.Listener
) -> Iterator[progress.Listener]:
    """The listener, with the cluster's journal listening too, if there is one that can be used.

    That a destroy has begun must be on record before anything goes: what the journal calls finished may be gone.
    """
    try:
        journal = journals.Journal(root / aside.JOURNAL, secrets=secrets, create=False)
    except errors.JournalError:
        yield tell  # destroy needs no journal, and a missing or damaged one is set aside like any other
        return
    with journal:
        with journal.transaction():
            journal.remember(flow, {}, phase="forward")
            number = journal.begin(flow, clock.wall())

        def both(event: progress.Event) -> None:
            journal.append(number, event)
            tell(event)

        outcome = "failed"
        try:
            yield both
            outcome = "finished"
        except errors.Interrupted:
            outcome = "interrupted"
            raise
        finally:
            journal.end(flow, number, outcome, clock.wall())
