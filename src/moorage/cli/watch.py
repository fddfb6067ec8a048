"""What a person sees while resources come and go: a live view on a terminal, plain lines everywhere else.

Both are told by the same events that the journal keeps, and every line is in the log file too. A view decides nothing:
it may come late or not at all, and the installation goes on.
"""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import os
import threading
from collections.abc import Iterator, Mapping
from typing import Literal

from moorage.cli import talk
from moorage.engine import clock as clocks
from moorage.engine import progress
from moorage.installer import durations

#: Cloud seconds without a line after which plain output says what is being waited for.
HEARTBEAT = 60.0
_TICKS = 4

Weight = Literal["step", "note", "problem"]
"""A step is shown by the live view itself; a note or a problem stays in the scrollback beside it."""


@dataclasses.dataclass
class Work:
    """Something under way: a resource, or a stage that waits."""

    name: str
    since: datetime.datetime
    doing: str
    retries: int = 0
    retrying: bool = False
    expected: float = 0.0

    def spent(self, now: datetime.datetime) -> float:
        return max(0.0, (now - self.since).total_seconds())

    def times(self, now: datetime.datetime) -> str:
        usual = f" of about {durations.words(self.expected)}" if self.expected else ""
        return f"{durations.words(self.spent(now))}{usual}"


@dataclasses.dataclass
class Scene:
    """All that is to be seen at a moment."""

    cluster: str = ""
    stage: str = ""
    since: datetime.datetime | None = None
    total: int = 0
    done: int = 0
    kept: int = 0
    adopted: int = 0
    retries: int = 0
    removed: int = 0
    rollback: bool = False
    running: dict[str, Work] = dataclasses.field(default_factory=dict)
    problems: dict[str, str] = dataclasses.field(default_factory=dict)
    slowest: tuple[str, float] = ("", 0.0)


@dataclasses.dataclass(frozen=True)
class Line:
    """One thing to say."""

    text: str
    weight: Weight = "step"


class Watch:
    """Follows the events of flows (it is a `progress.Listener`) and the waits between them (`say`)."""

    def __init__(
        self, voice: talk.Voice, expected: Mapping[str, float], cluster: str, clock: clocks.Clock, *, live: bool
    ) -> None:
        self.scene = Scene(cluster=cluster)
        self._voice = voice
        self._expected = expected
        self._clock = clock
        self._live = live
        self._lag = datetime.timedelta(0)
        self._waited: Work | None = None
        self._said = clock.now()
        self._turn = threading.RLock()

    def __call__(self, event: progress.Event) -> None:
        with self._turn:
            # The events' own clock is the one that counts; ours only tells how long ago the last one was.
            self._lag = event.at - self._clock.wall()
            self._end_wait()
            self._enter(event.flow, event.at)
            line = self._follow(event)
        if line is not None:
            self._speak(line)

    def say(self, stage: str, waiting_for: str, seconds: float) -> None:
        """A wait outside of flows goes on; whoever waits calls this on every change and once a minute."""
        with self._turn:
            self._end_wait()
            now = self.now()
            since = now - datetime.timedelta(seconds=seconds)
            self._enter(stage, since)
            self._waited = Work(stage, since, _awaited(waiting_for))
            self.scene.running[stage] = self._waited
            line = Line(f"{stage}: {self._waited.doing} ({self._waited.times(now)})")
        self._speak(line)

    def beat(self) -> None:
        """Say what is being waited for, if nothing has been said for long."""
        with self._turn:
            now = self.now()
            # A wait has a heartbeat of its own.
            works = [work for work in self.scene.running.values() if work is not self._waited]
            if not works or self._clock.now() - self._said < HEARTBEAT:
                return
            told = "; ".join(f"{work.name}: {work.doing} ({work.times(now)})" for work in works)
            done = f"{self._count()} done, " if self.scene.total else ""
            line = Line(f"{done}still at work on {told}")
        self._speak(line)

    def now(self) -> datetime.datetime:
        """The present by the clock of those who report."""
        return self._clock.wall() + self._lag

    @contextlib.contextmanager
    def held(self) -> Iterator[Scene]:
        """The scene, standing still while it is drawn."""
        with self._turn:
            yield self.scene

    def _speak(self, line: Line) -> None:
        """Must be called without holding the turn: the live view holds the screen while it asks for the scene."""
        self._said = self._clock.now()
        if line.weight == "problem":
            self._voice.warn(line.text)
        elif line.weight == "note" or not self._live:
            self._voice.info(line.text)
        else:
            self._voice.debug(line.text)

    def _enter(self, stage: str, at: datetime.datetime) -> None:
        """Turn to another stage, unless it is the one on show."""
        if stage != self.scene.stage:
            self.scene = Scene(cluster=self.scene.cluster, stage=stage, since=at)

    def _end_wait(self) -> None:
        """A wait says when it goes on, not when it is over: that is when something else is heard of."""
        if self._waited is not None:
            self.scene.running.pop(self._waited.name, None)
            self._waited = None

    def _count(self) -> str:
        return f"{self.scene.done} of {self.scene.total}"

    # -- one event after the other -----------------------------------------------------------------------------------

    def _follow(self, event: progress.Event) -> Line | None:
        match event:
            case progress.FlowStarted():
                return self._flow_started(event)
            case progress.FlowEnded():
                return self._flow_ended(event)
            case progress.Kept():
                return None
            case progress.Finished() | progress.Failed() | progress.Stopped() | progress.Reverted() | progress.Left():
                return self._over(event, self.scene.running.pop(event.resource, None))
            case progress.Forgotten():
                return Line(f"{event.resource}: its record is dropped, {event.reason}; what exists is looked up again")
            case _:
                return self._under_way(event)

    def _flow_started(self, event: progress.FlowStarted) -> Line:
        self.scene = Scene(
            cluster=self.scene.cluster,
            stage=event.flow,
            since=event.at,
            total=event.total,
            done=event.kept,
            kept=event.kept,
            rollback=event.rollback,
        )
        if event.rollback:
            return Line(f"{event.flow}: going on with the roll-back of an earlier run", "note")
        if event.kept or event.attempt > 1:
            return Line(f"{event.flow}: attempt {event.attempt}, {self._count()} resources are there already", "note")
        return Line(f"{event.flow}: {event.total} resources to make")

    def _flow_ended(self, event: progress.FlowEnded) -> Line:
        scene = self.scene
        scene.running.clear()
        spent = (event.at - scene.since).total_seconds() if scene.since else 0.0
        parts = [f"{self._count()} resources done"]
        parts += [f"{scene.kept} by earlier runs"] if scene.kept else []
        parts += [f"{scene.adopted} adopted"] if scene.adopted else []
        parts += [f"{scene.removed} removed again"] if scene.removed else []
        parts += [f"{scene.retries} call{'s' * (scene.retries > 1)} repeated"] if scene.retries else []
        parts += [f"failed: {', '.join(scene.problems)}"] if scene.problems else []
        name, seconds = scene.slowest
        parts += [f"longest {name} with {durations.words(seconds)}"] if name else []
        return Line(
            f"{event.flow} {event.outcome.replace('-', ' ')} after {durations.words(spent)}: {', '.join(parts)}", "note"
        )

    def _under_way(self, event: progress.Event) -> Line | None:
        name = event.resource
        work = self.scene.running.get(name)
        if work is None:
            work = Work(name, event.at, "looking for it", expected=self._expected.get(name, 0.0))
            self.scene.running[name] = work
        work.retrying = isinstance(event, progress.Retrying)
        match event:
            case progress.Started():
                usual = f", takes about {durations.words(work.expected)}" if work.expected else ""
                return Line(f"{name}: started{usual}")
            case progress.Creating():
                work.doing = "asking for it"
            case progress.Created():
                work.doing = "asked for"
            case progress.Adopted():
                self.scene.adopted += 1
                work.doing = "found, adopted"
                return Line(f"{name}: found on the platform and adopted")
            case progress.Waiting():
                work.doing = _awaited(event.what)
                return Line(f"{name}: {work.doing} ({work.times(event.at)})")
            case progress.Retrying():
                self.scene.retries += 1
                work.retries += 1
                work.doing = event.message
                return Line(f"{name}: {event.message}")
            case progress.Deleting():
                work.expected, self.scene.rollback = 0.0, self.scene.total > 0
                work.doing = "removing it"
                return Line(f"{name}: removing it")
        return None

    def _over(self, event: progress.Event, work: Work | None) -> Line:
        name = event.resource
        spent = work.spent(event.at) if work else 0.0
        if spent > self.scene.slowest[1]:
            self.scene.slowest = (name, spent)
        times = durations.words(spent)
        if work and work.expected:
            times += f", expected {durations.words(work.expected)}"
        match event:
            case progress.Finished():
                self.scene.done += 1
                return Line(f"{name}: done in {times} ({self._count()} done)")
            case progress.Reverted():
                self.scene.removed += 1
                return Line(f"{name}: gone")
            case progress.Stopped():
                return Line(f"{name}: stopped after {durations.words(spent)}; the next run goes on from here")
            case progress.Left():
                self.scene.problems[name] = f"could not be removed: {event.reason}"
            case _:
                self.scene.problems[name] = f"failed after {durations.words(spent)}: {event.message}"
        return Line(f"{name}: {self.scene.problems[name]}", "problem")


def _awaited(what: str) -> str:
    return f"waiting for {what}"


def is_live(voice: talk.Voice) -> bool:
    """Whether there is a screen to draw on, and a person who wants to see it."""
    return voice.stream.isatty() and os.environ.get("TERM", "") not in ("", "dumb") and voice.shows("info")


@contextlib.contextmanager
def listener(
    voice: talk.Voice,
    expected: Mapping[str, float] | None = None,
    *,
    cluster: str = "",
    clock: clocks.Clock | None = None,
) -> Iterator[Watch]:
    """Show events until the block ends; hand what is yielded to `flow.run`, and its ``say`` to the waits.

    ``expected`` are the seconds that resources usually take, by name; it may be filled later.
    """
    clock = clock or clocks.from_environment()
    live = is_live(voice)
    watch = Watch(voice, {} if expected is None else expected, cluster, clock, live=live)
    if live:
        from moorage.cli import live_view

        with live_view.shown(watch, voice):
            yield watch
        return
    over = threading.Event()
    pulse = threading.Thread(target=_pulse, args=(watch, over, HEARTBEAT / _TICKS / clock.speed), daemon=True)
    pulse.start()
    try:
        yield watch
    finally:
        over.set()
        pulse.join()


def _pulse(watch: Watch, over: threading.Event, every: float) -> None:
    while not over.wait(every):
        watch.beat()
