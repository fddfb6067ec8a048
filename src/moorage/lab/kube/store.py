"""The objects of a cluster and their history: what etcd is to a real one.

Every write gets the next revision. The last events of each kind are kept, so that a watch can begin in the past and a
list can be read as it was; what has been forgotten is `Compacted`, and whoever needs it has to list again. Objects are
never changed in place: an entry may be held by many readers. All methods are for the thread of one event loop.
"""

from __future__ import annotations

import asyncio
import bisect
import collections
import dataclasses
import json
import logging
from collections.abc import Callable
from typing import Any

from moorage.lab.kube import kinds

Object = dict[str, Any]
Name = tuple[str, str]
"""Namespace (empty for what belongs to the whole cluster) and name."""

ADDED = "ADDED"
MODIFIED = "MODIFIED"
DELETED = "DELETED"

KEPT_EVENTS = 4_000

# Made once: json.dumps with these arguments would make one for every object.
_ENCODER = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False)
_LOG = logging.getLogger(__name__)


class Compacted(Exception):  # noqa: N818 - a fact about the past, not a failure
    """The history does not reach back so far."""


@dataclasses.dataclass(frozen=True, slots=True)
class Entry:
    """An object as it was written at a revision, and the same as JSON; not to be changed."""

    object: Object
    data: bytes
    revision: int


@dataclasses.dataclass(frozen=True, slots=True)
class Event:
    """A write: ``entry`` is the object after it (for DELETED: as it was last), ``before`` what was there before.

    ``told`` holds the lines in which watchers were told of the event, so that a thousand of them cost one encoding.
    """

    type: str
    entry: Entry
    before: Entry | None
    name: Name
    told: dict[object, bytes] = dataclasses.field(default_factory=dict, compare=False, repr=False)


class _Shelf:
    """The objects of one kind."""

    def __init__(self, compacted: int = 0) -> None:
        self.entries: dict[Name, Entry] = {}
        self.order: list[Name] = []
        self.events: list[Event] = []
        # The number of events that came before the first one kept, and the revision up to which they are lost.
        self.forgotten = 0
        self.compacted = compacted
        self.waiters: set[asyncio.Future[None]] = set()

    def latest(self) -> int:
        """The revision of the last write."""
        return self.events[-1].entry.revision if self.events else self.compacted


def encoded(content: Any) -> bytes:
    """JSON as it is sent to clients."""
    return _ENCODER.encode(content).encode()


def _wake(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)


def copied(entry: Entry) -> Object:
    """The object, for somebody who means to change it."""
    found: Object = json.loads(entry.data)
    return found


class Store:
    """All objects by kind and name. ``on_write`` is told every event, for whoever keeps a copy elsewhere."""

    def __init__(self, keep: int = KEPT_EVENTS) -> None:
        self.revision = 1
        self.on_write: list[Callable[[kinds.Key, Event], None]] = []
        self._keep = keep
        self._shelves: dict[kinds.Key, _Shelf] = {}
        # The history before this revision was lost with the process that wrote it.
        self._loaded = 0
        self._untold: collections.deque[tuple[kinds.Key, Event]] = collections.deque()
        self._telling = False

    def get(self, key: kinds.Key, name: Name) -> Entry | None:
        shelf = self._shelves.get(key)
        return None if shelf is None else shelf.entries.get(name)

    def names(self, key: kinds.Key, namespace: str = "") -> list[Name]:
        """The names in order; those of one namespace, or all."""
        order = self._shelf(key).order
        if not namespace:
            return list(order)
        first = bisect.bisect_left(order, (namespace, ""))
        return order[first : bisect.bisect_left(order, (namespace + "\0", ""))]

    def entries(self, key: kinds.Key, namespace: str = "", at: int = 0) -> list[Entry]:
        """The objects in order of their names, now or as they were at revision ``at``; `Compacted` if that is lost."""
        shelf = self._shelf(key)
        if at and (at > self.revision or at < shelf.compacted or at < shelf.latest()):
            return self._entries_at(key, namespace, at)
        entries = shelf.entries
        return [entries[name] for name in self.names(key, namespace)]

    def earlier(self, key: kinds.Key) -> int:
        """The revision just before the last write of this kind: what a reader sees who has not heard of it."""
        shelf = self._shelf(key)
        return max(shelf.compacted, 1, shelf.latest() - 1) if shelf.events else self.revision

    def count(self, key: kinds.Key) -> int:
        return len(self._shelf(key).entries)

    def keys(self) -> list[kinds.Key]:
        """The kinds of which there are objects."""
        return [key for key, shelf in self._shelves.items() if shelf.entries]

    def put(self, key: kinds.Key, name: Name, content: Object) -> Entry:
        """Write an object, new or not; the caller has made sure that it may. ``content`` is the store's from now on."""
        shelf = self._shelf(key)
        before = shelf.entries.get(name)
        entry = self._entry(content)
        shelf.entries[name] = entry
        if before is None:
            bisect.insort(shelf.order, name)
        self._tell(key, shelf, Event(ADDED if before is None else MODIFIED, entry, before, name))
        return entry

    def remove(self, key: kinds.Key, name: Name, content: Object | None = None) -> Entry | None:
        """Take an object away; watchers see it one last time, as ``content`` if given. None if it was not there."""
        shelf = self._shelf(key)
        before = shelf.entries.pop(name, None)
        if before is None:
            return None
        del shelf.order[bisect.bisect_left(shelf.order, name)]
        entry = self._entry(copied(before) if content is None else content)
        self._tell(key, shelf, Event(DELETED, entry, before, name))
        return entry

    def load(self, key: kinds.Key, name: Name, content: Object, revision: int) -> None:
        """Put back an object kept elsewhere, at the revision it had, before anybody watches."""
        shelf = self._shelf(key)
        if name not in shelf.entries:
            bisect.insort(shelf.order, name)
        shelf.entries[name] = Entry(content, encoded(content), revision)
        self.restore(revision)

    def restore(self, revision: int) -> None:
        """Go on after a revision reached elsewhere; what came before it cannot be watched any more."""
        self.revision = self._loaded = max(self.revision, revision)
        for shelf in self._shelves.values():
            shelf.compacted = self._loaded

    def watch(self, key: kinds.Key, since: int | None = None) -> Watch:
        """Events after revision ``since``, or from now on; `Compacted` if some of them are lost."""
        return Watch(self._shelf(key), self.revision if since is None else since)

    def _shelf(self, key: kinds.Key) -> _Shelf:
        if key not in self._shelves:
            self._shelves[key] = _Shelf(self._loaded)
        return self._shelves[key]

    def _entry(self, content: Object) -> Entry:
        self.revision += 1
        content["metadata"]["resourceVersion"] = str(self.revision)
        return Entry(content, encoded(content), self.revision)

    def _tell(self, key: kinds.Key, shelf: _Shelf, event: Event) -> None:
        shelf.events.append(event)
        # Forgotten in big pieces: cutting the head off a list costs as much as the list is long.
        if len(shelf.events) > 2 * self._keep:
            cut = len(shelf.events) - self._keep
            shelf.compacted = shelf.events[cut - 1].entry.revision
            del shelf.events[:cut]
            shelf.forgotten += cut
        for waiter in shelf.waiters:
            _wake(waiter)
        shelf.waiters.clear()
        self._untold.append((key, event))
        if not self._telling:
            self._tell_all()

    def _tell_all(self) -> None:
        """Tell everybody of every event in order: who writes on being told must not overtake what others wait for."""
        self._telling = True
        try:
            while self._untold:
                key, event = self._untold.popleft()
                for tell in list(self.on_write):
                    try:
                        tell(key, event)
                    except Exception:  # noqa: BLE001 - the write has happened, and one listener's trouble is not others'
                        _LOG.exception("told of a write of %s %s, a listener failed", key, event.name)
        finally:
            self._telling = False

    def _entries_at(self, key: kinds.Key, namespace: str, at: int) -> list[Entry]:
        shelf = self._shelf(key)
        if at < shelf.compacted or at > self.revision:
            raise Compacted
        entries = dict(shelf.entries)
        for event in reversed(shelf.events):
            if event.entry.revision <= at:
                break
            if event.before is None:
                entries.pop(event.name, None)
            else:
                entries[event.name] = event.before
        return [entries[name] for name in sorted(entries) if not namespace or name[0] == namespace]


class Watch:
    """A reader of one kind's events: `ready` takes what has happened, `wait` sleeps until more has."""

    def __init__(self, shelf: _Shelf, since: int) -> None:
        if since < shelf.compacted:
            raise Compacted
        self._shelf = shelf
        place = bisect.bisect_right(shelf.events, since, key=lambda event: event.entry.revision)
        self._place = shelf.forgotten + place
        self.closed = False
        self._waiter: asyncio.Future[None] | None = None

    def ready(self) -> list[Event]:
        """The events since the last call; `Compacted` if the reader was so slow that some are gone."""
        place = self._place - self._shelf.forgotten
        if place < 0:
            raise Compacted
        found = self._shelf.events[place:]
        self._place += len(found)
        return found

    async def wait(self, seconds: float | None = None) -> None:
        """Return when there is something to read, at once if there is already, or after real ``seconds``."""
        if self.closed or self._place < self._shelf.forgotten + len(self._shelf.events):
            return
        loop = asyncio.get_running_loop()
        self._waiter = waiter = loop.create_future()
        self._shelf.waiters.add(waiter)
        alarm = None if seconds is None else loop.call_later(seconds, _wake, waiter)
        try:
            await waiter
        finally:
            self._shelf.waiters.discard(waiter)
            if alarm is not None:
                alarm.cancel()

    def close(self) -> None:
        """Let whoever waits return; nobody will wait on this watch any more."""
        self.closed = True
        if self._waiter is not None:
            _wake(self._waiter)
