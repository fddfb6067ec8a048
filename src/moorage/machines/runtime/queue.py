"""Which key is looked at next: each by one worker at a time, in the order they came, and never twice for one reason.

A key that is added while it waits is there already; one that is added while a worker has it comes once more after that
worker is done, at the end of the line, so that a key which never rests cannot keep the others waiting. A key may also
be added for later, or after a pause that grows with every failure. `Order` is the rule, without time or threads of its
own; `Queue` adds those.
"""

from __future__ import annotations

import collections
import dataclasses
import heapq
import itertools
import threading

from moorage.engine import clock as clocks
from moorage.machines.runtime import metrics

# Pauses after failures: of one key, and of all together, in cloud seconds.
FIRST_PAUSE = 0.005
LONGEST_PAUSE = 1000.0
PER_SECOND = 10.0
BURST = 100


class Order:
    """Who waits, who is worked on, and who comes later. Moments are numbers on any one clock."""

    def __init__(self) -> None:
        self.ready: collections.deque[str] = collections.deque()
        self.working: set[str] = set()
        # Keys with something to be done: in line, or to be put there when their worker is done.
        self._dirty: set[str] = set()
        # When each delayed key is due; entries of the heap that disagree with this were overtaken.
        self._due: dict[str, float] = {}
        self._later: list[tuple[float, int, str]] = []
        self._numbers = itertools.count()

    def add(self, key: str) -> bool:
        """Put a key in line; False if it need not be: it is there, or comes again anyway."""
        if key in self._dirty:
            return False
        self._dirty.add(key)
        if key in self.working:
            return False
        self.ready.append(key)
        return True

    def add_at(self, key: str, moment: float) -> bool:
        """Add a key when its moment comes; of several moments the first counts. True if that is the next of all."""
        if moment >= self._due.get(key, float("inf")):
            return False
        self._due[key] = moment
        heapq.heappush(self._later, (moment, next(self._numbers), key))
        return self._later[0][2] == key

    def advance(self, now: float) -> None:
        """Add every key whose moment has come."""
        while (moment := self.next_moment()) is not None and moment <= now:
            key = heapq.heappop(self._later)[2]
            del self._due[key]
            self.add(key)

    def next_moment(self) -> float | None:
        """When the next delayed key is due."""
        while self._later and self._due.get(self._later[0][2]) != self._later[0][0]:
            heapq.heappop(self._later)
        return self._later[0][0] if self._later else None

    def take(self) -> str | None:
        """The first in line, now being worked on; None if there is none."""
        if not self.ready:
            return None
        key = self.ready.popleft()
        self._dirty.discard(key)
        self.working.add(key)
        return key

    def done(self, key: str) -> bool:
        """A worker has let go of a key; True if that puts it in line again."""
        self.working.discard(key)
        if key in self._dirty:
            self.ready.append(key)
            return True
        return False

    @property
    def delayed(self) -> int:
        return len(self._due)


@dataclasses.dataclass
class Bucket:
    """Lets ``per_second`` through for long, and ``burst`` at once."""

    per_second: float = PER_SECOND
    burst: float = BURST
    _level: float | None = dataclasses.field(default=None, init=False)
    _at: float = dataclasses.field(default=0.0, init=False)

    def reserve(self, now: float) -> float:
        """Take one; how long to wait until it may be used."""
        filled = self.burst if self._level is None else self._level + (now - self._at) * self.per_second
        # Below zero the level is a debt: who comes next waits for longer.
        level = self._level = min(self.burst, filled) - 1
        self._at = now
        return max(0.0, -level / self.per_second)


class Queue:
    """Keys for workers. Safe to share between threads; seconds are the clock's."""

    def __init__(self, clock: clocks.Clock, *, name: str = "", bucket: Bucket | None = None) -> None:
        self.clock = clock
        self.name = name
        self._order = Order()
        self._bucket = bucket or Bucket()
        self._failures: dict[str, int] = {}
        self._since: dict[str, float] = {}
        self._changed = threading.Condition()
        # Of the workers that wait, one watches the time; the others sleep until there is something to do.
        self._keeper: object | None = None
        self._shut = False
        self._depth = metrics.DEPTH.labels(name)
        self._waited = metrics.QUEUED.labels(name)

    def add(self, key: str) -> None:
        """Have a key looked at."""
        with self._changed:
            if not self._shut and self._order.add(key):
                self._lined_up(key)

    def add_after(self, key: str, seconds: float) -> None:
        """Have a key looked at in some seconds, or when it is due before that anyway."""
        if seconds <= 0:
            self.add(key)
            return
        with self._changed:
            # While all workers are busy nobody else puts in line what is due: this wish is for after that.
            self._advance()
            if not self._shut and self._order.add_at(key, self.clock.now() + seconds):
                # Whoever watches the time waits for too long now.
                self._keeper = None
                self._changed.notify()

    def add_rate_limited(self, key: str, *, at_least: float = 0.0) -> float:
        """Have a key looked at after its pause, which doubles each time until `forget`; returns the pause."""
        with self._changed:
            failures = self._failures.get(key, 0)
            self._failures[key] = failures + 1
            own = min(FIRST_PAUSE * 2.0 ** min(failures, 64), LONGEST_PAUSE)
            pause = max(own, self._bucket.reserve(self.clock.now()), at_least)
        self.add_after(key, pause)
        return pause

    def forget(self, key: str) -> None:
        """The key has no failures any more."""
        with self._changed:
            self._failures.pop(key, None)

    def failures(self, key: str) -> int:
        """How often the key was added with a pause since it was forgotten."""
        with self._changed:
            return self._failures.get(key, 0)

    def get(self, *, patience: float | None = None) -> str | None:
        """The next key, which is the caller's alone until `done`; waits for one.

        None when the queue is shut down, or when ``patience`` (in real seconds) is over.
        """
        until = None if patience is None else clocks.Clock().deadline(patience)
        with self._changed:
            while not self._shut:
                self._advance()
                key = self._order.take()
                if key is not None:
                    self._taken(key)
                    return key
                if until is not None and until.expired:
                    return None
                self._wait(None if until is None else until.remaining())
            return None

    def done(self, key: str) -> None:
        """The caller of `get` has finished with a key."""
        with self._changed:
            if self._order.done(key) and not self._shut:
                self._lined_up(key)

    def shut_down(self) -> None:
        """Give no key to anybody any more; workers end when they are done with what they have."""
        with self._changed:
            self._shut = True
            self._changed.notify_all()

    def wake(self) -> None:
        """Look at the clock again: for clocks that are set by hand."""
        with self._changed:
            self._keeper = None
            self._changed.notify_all()

    @property
    def shut(self) -> bool:
        return self._shut

    def __len__(self) -> int:
        """How many keys are in line."""
        with self._changed:
            return len(self._order.ready)

    @property
    def delayed(self) -> int:
        """How many keys come later."""
        with self._changed:
            return self._order.delayed

    def _advance(self) -> None:
        before = len(self._order.ready)
        now = self.clock.now()
        self._order.advance(now)
        for index in range(before, len(self._order.ready)):
            self._since.setdefault(self._order.ready[index], now)
        self._depth.set(len(self._order.ready))

    def _lined_up(self, key: str) -> None:
        self._since.setdefault(key, self.clock.now())
        self._depth.set(len(self._order.ready))
        self._changed.notify()

    def _taken(self, key: str) -> None:
        since = self._since.pop(key, None)
        if since is not None:
            self._waited.observe(self.clock.now() - since)
        self._depth.set(len(self._order.ready))
        # There may be more to do, or nobody left who watches the time.
        if self._order.ready or (self._keeper is None and self._order.next_moment() is not None):
            self._changed.notify()

    def _wait(self, longest: float | None) -> None:
        moment = self._order.next_moment()
        if moment is None or self._keeper is not None:
            self._changed.wait(longest)
            return
        me = self._keeper = object()
        try:
            pause = max(0.0, moment - self.clock.now()) / self.clock.speed
            self._changed.wait(pause if longest is None else min(pause, longest))
        finally:
            if self._keeper is me:
                self._keeper = None
