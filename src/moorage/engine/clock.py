"""The one source of time: every sleep, timeout and deadline of the product is taken from a `Clock`.

A clock counts cloud seconds, which may pass N times faster than real ones (``MOORAGE_CLOCK_SPEED=N``), so that an hour
of provisioning can be tried in seconds. Processes that share a cloud share its date too, if they are told when its time
began to run faster (``MOORAGE_CLOCK_EPOCH``, in Unix seconds). The clock also carries the wish to stop: every sleeper
wakes at once and raises `Interrupted`, which is why nothing else in the product may sleep.
"""

from __future__ import annotations

import dataclasses
import datetime
import math
import os
import threading
import time
from collections.abc import Mapping

from moorage import errors as top
from moorage.engine import errors

SPEED = "MOORAGE_CLOCK_SPEED"
EPOCH = "MOORAGE_CLOCK_EPOCH"

# A socket does real work on a real machine however fast the cloud's time runs; below this a sped-up time-out would
# report a dead peer that is merely being scheduled.
SHORTEST_SOCKET_TIMEOUT = 5.0


def from_environment(environ: Mapping[str, str] | None = None) -> Clock:
    """A clock at the speed the environment asks for, or at the world's own."""
    text = (os.environ if environ is None else environ).get(SPEED, "").strip() or "1"
    try:
        speed = float(text)
    except ValueError:
        speed = math.nan
    if not (math.isfinite(speed) and speed > 0):
        raise top.ConfigError(f"{SPEED}={text!r} is not a positive number", remedy=f"unset {SPEED}, or set it to 1")
    return Clock(speed, _epoch((os.environ if environ is None else environ).get(EPOCH, "").strip()))


def _epoch(text: str) -> datetime.datetime | None:
    if not text:
        return None
    try:
        found = datetime.datetime.fromtimestamp(float(text), datetime.UTC)
    except (ValueError, OverflowError, OSError):
        found = None
    if found is None or found > datetime.datetime.now(datetime.UTC):
        raise top.ConfigError(f"{EPOCH}={text!r} is not a moment in the past", remedy=f"unset {EPOCH}")
    return found


class Clock:
    """Cloud time. Safe to share between threads."""

    def __init__(self, speed: float = 1.0, epoch: datetime.datetime | None = None) -> None:
        self.speed = speed
        self._stop = threading.Event()
        self._real_start = time.monotonic()
        real = datetime.datetime.now(datetime.UTC)
        self._wall_start = real if epoch is None else epoch + (real - epoch) * speed

    def now(self) -> float:
        """Cloud seconds since the clock was made; never runs backwards."""
        return (time.monotonic() - self._real_start) * self.speed

    def wall(self) -> datetime.datetime:
        """The date and time (UTC) that a person looking at this run would write beside ``now()``.

        At the world's own speed it is the system's, which may be set right at any moment, and goes on while a machine
        is paused: what lasts, or must be done in time, is measured by ``now()``.
        """
        if self.speed == 1.0:
            return datetime.datetime.now(datetime.UTC)
        return self._wall_start + datetime.timedelta(seconds=self.now())

    def sleep(self, seconds: float) -> None:
        """Let cloud seconds pass; raise `Interrupted` as soon as a stop is requested, or if it was already."""
        self.check()
        if seconds > 0:
            self._pass(seconds)
        self.check()

    def deadline(self, seconds: float, what: str = "") -> Deadline:
        """The moment ``seconds`` from now, by which ``what`` must be done."""
        return Deadline(clock=self, at=self.now() + seconds, seconds=seconds, what=what)

    def socket_timeout(self, seconds: float) -> float:
        """Real seconds to give a socket for what may take ``seconds`` of cloud time."""
        return max(seconds / self.speed, min(seconds, SHORTEST_SOCKET_TIMEOUT))

    def request_stop(self) -> None:
        """Wake every sleeper with `Interrupted`, and let no one sleep again."""
        self._stop.set()

    @property
    def stopping(self) -> bool:
        return self._stop.is_set()

    def check(self) -> None:
        """Raise `Interrupted` if a stop was requested."""
        if self.stopping:
            raise errors.Interrupted

    def _pass(self, seconds: float) -> None:
        self._stop.wait(seconds / self.speed)


@dataclasses.dataclass(frozen=True)
class Deadline:
    """A moment on a clock by which something must be done."""

    clock: Clock
    at: float
    seconds: float
    what: str = ""

    def remaining(self) -> float:
        """Cloud seconds left, 0 when it has passed."""
        return max(0.0, self.at - self.clock.now())

    @property
    def expired(self) -> bool:
        return self.clock.now() >= self.at

    def within(self, seconds: float, what: str = "") -> Deadline:
        """The earlier of this deadline and the one ``seconds`` from now."""
        inner = self.clock.deadline(seconds, what or self.what)
        return inner if inner.at < self.at else self

    def exceeded(self, *, resource: str = "", words: str = "") -> errors.DeadlineExceeded:
        """The error to raise when this deadline has passed."""
        return errors.DeadlineExceeded(
            f"{self.what or 'it'} took longer than {self.seconds:.0f} s", resource=resource, words=words
        )


class ManualClock(Clock):
    """A clock for tests: it stands still until someone sleeps on it or advances it.

    With ``auto`` (the default) a sleeper pushes the time forward itself, so a story of hours is told in microseconds.
    Without, sleepers block until ``advance`` has brought their moment; ``await_sleepers`` says when they are all abed.
    """

    def __init__(self, *, auto: bool = True, wall: datetime.datetime | None = None) -> None:
        super().__init__()
        self.auto = auto
        self.slept: list[float] = []
        self._time = 0.0
        self._sleeping = 0
        self._changed = threading.Condition()
        self._wall_start = wall or datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)

    def now(self) -> float:
        return self._time

    def wall(self) -> datetime.datetime:
        return self._wall_start + datetime.timedelta(seconds=self._time)

    def advance(self, seconds: float) -> None:
        """Bring the time forward and wake those whose moment has come."""
        with self._changed:
            self._time += seconds
            self._changed.notify_all()

    def await_sleepers(self, count: int, *, patience: float = 10.0) -> bool:
        """Block (in real time) until ``count`` threads sleep on this clock; False if they never did."""
        with self._changed:
            return self._changed.wait_for(lambda: self._sleeping >= count, timeout=patience)

    def request_stop(self) -> None:
        super().request_stop()
        with self._changed:
            self._changed.notify_all()

    def _pass(self, seconds: float) -> None:
        with self._changed:
            self.slept.append(seconds)
            if self.auto:
                self._time += seconds
                return
            until = self._time + seconds
            self._sleeping += 1
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._time >= until or self.stopping)
            self._sleeping -= 1
