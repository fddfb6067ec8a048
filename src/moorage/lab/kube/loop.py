"""How a controller works: it hears which objects may need work, and brings each to its wanted state, one at a time.

Loops are level-triggered: what is heard only says where to look, and what is done follows from what the store holds at
that moment. A key that is heard of many times before its turn is looked at once. Kinds are followed on the store's
watches; a loop that was too slow for its watch looks at everything again, so nothing is ever missed. Delays are in the
cloud's seconds, and nobody polls. While the store cannot be used, all keys wait.
"""

from __future__ import annotations

import asyncio
import contextlib
import heapq
import itertools
import logging
from collections.abc import Callable, Hashable, Iterable
from typing import TYPE_CHECKING, Generic, TypeVar

from moorage import lab
from moorage.lab.kube import kinds, problem, store

if TYPE_CHECKING:
    from moorage.lab.kube import api as apis

K = TypeVar("K", bound=Hashable)

_log = logging.getLogger(__name__)
_FIRST_RETRY = 0.5
_LONGEST_RETRY = 60.0
# Other tasks of the process get their turn after so many keys.
_AT_ONCE = 20
# Cloud seconds, and at least so many real ones, between two looks whether the store can be used again.
_STORE_RETRY, _STORE_RETRY_REAL = 1.0, 0.05


class Loop(Generic[K]):
    """One controller: ``reconcile`` brings a key to its wanted state and says after how many seconds to look again.

    ``everything`` names all keys there may be work for: what to begin with. ``pause`` is how long after it was heard of
    a key has its turn.
    """

    def __init__(
        self,
        api: apis.Api,
        name: str,
        reconcile: Callable[[K], float | None],
        everything: Callable[[], Iterable[K]],
        *,
        pause: float = 0.0,
    ) -> None:
        self.name = name
        # How many keys were looked at; for whoever measures.
        self.turns = 0
        self._api = api
        self._reconcile = reconcile
        self._everything = everything
        self._pause = pause
        self._followed: list[tuple[kinds.Key, Callable[[store.Event], Iterable[K]]]] = []
        self._overheard: list[Callable[[kinds.Key, store.Event], Iterable[K]]] = []
        self._heap: list[tuple[float, int, K]] = []
        self._due: dict[K, float] = {}
        self._failures: dict[K, int] = {}
        self._count = itertools.count()
        self._work = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []

    def follow(self, key: kinds.Key, keys: Callable[[store.Event], Iterable[K]]) -> None:
        """Hear of the events of a kind; ``keys`` says what to look at because of one."""
        self._followed.append((key, keys))

    def overhear(self, keys: Callable[[kinds.Key, store.Event], Iterable[K]]) -> None:
        """Hear of every write of every kind, in the midst of it: ``keys`` has to be quick."""
        self._overheard.append(keys)

    def offer(self, key: K, after: float | None = None) -> None:
        """Look at a key after some seconds (the loop's own pause if not said), or earlier if it is due earlier."""
        due = self._api.clock.now() + (self._pause if after is None else after)
        known = self._due.get(key)
        if known is not None and known <= due:
            return
        self._due[key] = due
        heapq.heappush(self._heap, (due, next(self._count), key))
        if self._heap[0][2] == key:
            self._work.set()

    def start(self) -> None:
        """Begin to work, in tasks of the running event loop."""
        if self._tasks:
            return
        self._work = asyncio.Event()
        if self._overheard:
            self._api.on_written.append(self._hear)
        for key, keys in self._followed:
            # Watched from this very moment: a task of its own begins later, and would miss what happens until then.
            listening = self._listen(key, self._api.store.watch(key), keys)
            self._tasks.append(asyncio.create_task(listening, name=f"{self.name}: {key[1]}"))
        for each in self._everything():
            self.offer(each)
        self._tasks.append(asyncio.create_task(self._run(), name=self.name))

    async def stop(self) -> None:
        """End after the key at hand."""
        with contextlib.suppress(ValueError):
            self._api.on_written.remove(self._hear)
        tasks, self._tasks = self._tasks, []
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._heap.clear()
        self._due.clear()

    @property
    def idle(self) -> bool:
        """Whether there is nothing to look at now or later."""
        return not self._due

    def _hear(self, key: kinds.Key, event: store.Event) -> None:
        for keys in self._overheard:
            for each in keys(key, event):
                self.offer(each)

    async def _listen(self, key: kinds.Key, watch: store.Watch, keys: Callable[[store.Event], Iterable[K]]) -> None:
        while True:
            await watch.wait()
            try:
                for event in watch.ready():
                    for each in keys(event):
                        self.offer(each)
            except store.Compacted:
                watch = self._api.store.watch(key)
                for each in self._everything():
                    self.offer(each)

    async def _run(self) -> None:
        while True:
            await self._until_due()
            while self._api.available():
                # Without its store a cluster stands still: no controller hears an answer to what it asks.
                clock = self._api.clock
                await lab.sleep(clock, max(_STORE_RETRY, _STORE_RETRY_REAL * clock.speed))
            for _ in range(_AT_ONCE):
                key = self._take()
                if key is None:
                    break
                self._turn(key)
            await asyncio.sleep(0)

    async def _until_due(self) -> None:
        while True:
            self._work.clear()
            while self._heap and self._due.get(self._heap[0][2]) != self._heap[0][0]:
                heapq.heappop(self._heap)
            clock = self._api.clock
            left = (self._heap[0][0] - clock.now()) / clock.speed if self._heap else None
            if left is not None and left <= 0:
                return
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(left):
                    await self._work.wait()

    def _take(self) -> K | None:
        while self._heap and self._heap[0][0] <= self._api.clock.now():
            due, _, key = heapq.heappop(self._heap)
            if self._due.get(key) == due:
                del self._due[key]
                return key
        return None

    def _turn(self, key: K) -> None:
        self.turns += 1
        try:
            again = self._reconcile(key)
        except problem.Problem as refusal:
            failures = self._failures[key] = self._failures.get(key, 0) + 1
            _log.info("%s: %s: %s", self.name, key, refusal.message)
            self.offer(key, min(_FIRST_RETRY * 2 ** (failures - 1), _LONGEST_RETRY))
            return
        except Exception:  # noqa: BLE001 - a defect in one key must not end the work on all others
            failures = self._failures[key] = self._failures.get(key, 0) + 1
            _log.exception("%s: %s", self.name, key)
            self.offer(key, min(_FIRST_RETRY * 2 ** min(failures, 7), _LONGEST_RETRY))
            return
        self._failures.pop(key, None)
        if again is not None:
            self.offer(key, again)
