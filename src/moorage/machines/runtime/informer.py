"""A cache of all objects of a kind that follows the server, and tells whoever asked what has changed.

One thread lists everything, page by page, then watches from that moment on. When the connection breaks it goes on from
the last version it saw; when the server has forgotten that version, or was away for long, it lists again and compares,
so that what was deleted meanwhile is told as deleted. Objects in the cache are shared: who changes one changes a copy.
"""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from moorage.engine import errors as engine_errors
from moorage.engine import retry
from moorage.machines.runtime import client as clients
from moorage.machines.runtime import errors, kinds, metrics, pauses

Object = clients.Object
Objects = clients.Objects
Index = Callable[[Object], Iterable[str]]

# Cloud seconds: the longest that one watch lasts, and for how long a broken one is taken up where it ended. A server
# that was away for longer may have come back from a backup, with versions that say nothing about ours.
_LONGEST_WATCH = 600.0
_LONG_OUTAGE = 60.0
# Within these another one is open after one that ended, unless something is wrong.
_REOPENED = 10.0
_BACKOFF = retry.Backoff(first=0.8, factor=2.0, most=30.0)
# For how long a server that asks for it is left alone, at most: one that says "tomorrow" is wrong.
_LONGEST_PAUSE = 60.0
# Real seconds, whatever the speed of the clock: nothing is gained by connecting, or telling all again, more often.
_SHORTEST_WATCH = 10.0
_SHORTEST_RESYNC = 5.0
# After these a watch was a good one, though it broke and had nothing to tell.
_LASTED = 10.0

_log = logging.getLogger(__name__)


class Change(NamedTuple):
    """What became of an object: ``old`` is None for a new one, ``new`` for one that is gone.

    Both are the same object when nothing has changed and all are told again (resync).
    """

    old: Object | None
    new: Object | None

    @property
    def object(self) -> Object:
        """As it is, or was last."""
        if self.new is not None:
            return self.new
        if self.old is None:
            raise ValueError("a change of nothing")
        return self.old

    @property
    def key(self) -> str:
        return clients.key_of(self.object)


Handler = Callable[[Change], None]


def shared(new: Any, like: Any) -> Any:
    """``new``, with each part that ``like`` has too taken from there, so that it is kept once.

    Ten thousand machines of a set differ in a few lines. Parts are the same only if they would be sent as the same
    text: 1 is not true, though they are equal.
    """
    if type(new) is not type(like):
        return new
    if isinstance(new, dict):
        same = len(new) == len(like)
        for key, value in new.items():
            other = like.get(key)
            kept = new[key] = shared(value, other)
            same = same and kept is other and (other is not None or key in like)
        return like if same else new
    if isinstance(new, list):
        same = len(new) == len(like)
        for place, (value, other) in enumerate(zip(new, like, strict=False)):
            kept = new[place] = shared(value, other)
            same = same and kept is other
        return like if same else new
    return like if new == like else new


class Informer:
    """The objects of a kind, in one namespace or all, that bear ``labels``; ``resync`` is in cloud seconds."""

    def __init__(
        self,
        client: clients.Client,
        kind: kinds.Kind,
        *,
        namespace: str = "",
        labels: str = "",
        resync: float = 600.0,
    ) -> None:
        self.kind = kind
        self._client = client
        self._clock = client.clock
        self._namespace = namespace
        self._labels = labels
        self._resync = max(resync, _SHORTEST_RESYNC * self._clock.speed)
        self._objects: dict[str, Object] = {}
        # The object that was decoded last: in a list, the neighbour of the next.
        self._last: Object = {}
        self._indexes: dict[str, tuple[Index, dict[str, set[str]]]] = {}
        self._handlers: list[Handler] = []
        # Guards the cache; the other is held while changes are told, so that they are told in order.
        self._guard = threading.Lock()
        self._telling = threading.RLock()
        self._filled = threading.Event()
        self._stop = threading.Event()
        self._watch: clients.Watch | None = None
        self._thread: threading.Thread | None = None
        self._revision = ""
        self._resynced = self._heard = self._left = self._clock.now()
        self._failures = 0
        self._forgotten = False
        self._words = ""

    # What others ask.

    @property
    def synced(self) -> bool:
        """Whether the cache has been filled once."""
        return self._filled.is_set()

    def wait_synced(self, patience: float | None = None) -> bool:
        """Wait until the cache is filled; False if it is not within ``patience`` (real seconds)."""
        return self._filled.wait(patience)

    def get(self, key: str) -> Object | None:
        """The object ``namespace/name`` (or ``name``), as last heard of."""
        with self._guard:
            return self._objects.get(key)

    def list(self) -> Objects:
        """All objects, in no order."""
        with self._guard:
            return [*self._objects.values()]

    def by_index(self, name: str, value: str) -> Objects:
        """The objects for which the index ``name`` gives ``value``."""
        with self._guard:
            keys = self._indexes[name][1].get(value, ())
            return [self._objects[key] for key in keys]

    def __len__(self) -> int:
        return len(self._objects)

    # What others order.

    def add_index(self, name: str, function: Index) -> None:
        """Keep an index: ``function`` gives the values under which an object is found."""
        with self._guard:
            entries: dict[str, set[str]] = {}
            self._indexes[name] = (function, entries)
            for key, obj in self._objects.items():
                for value in self._values(function, obj):
                    entries.setdefault(value, set()).add(key)

    def on(self, handler: Handler) -> None:
        """Tell every change to ``handler``, beginning with what is there. It is called by one thread at a time."""
        with self._telling:
            with self._guard:
                present = [*self._objects.values()]
            self._handlers.append(handler)
            for obj in present:
                self._call(handler, Change(None, obj))

    def start(self) -> None:
        """Begin to follow the server, in a thread."""
        self._thread = threading.Thread(target=self._follow, name=f"informer-{self.kind.plural}", daemon=True)
        self._thread.start()

    def stop(self, patience: float = 5.0) -> None:
        """Cease to follow; what is cached stays. An open watch ends at once, a call under way when it is answered."""
        self._stop.set()
        watch = self._watch
        if watch is not None:
            watch.close()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(patience)

    @property
    def alive(self) -> bool:
        """Whether the thread that follows the server does."""
        return self._thread is not None and self._thread.is_alive()

    @property
    def silent_for(self) -> float:
        """Cloud seconds since the server last said something; 0 while a watch is open, which bears no long silence."""
        watch, now = self._watch, self._clock.now()
        follows = (watch is not None and watch.opened) or now - self._left < _REOPENED
        return 0.0 if follows else now - self._heard

    # Following.

    def _follow(self) -> None:
        while not self._stop.is_set():
            try:
                seconds = self.follow_once()
            except engine_errors.Interrupted:
                return
            if seconds:
                pauses.pause(self._clock, self._stop, seconds, floor=0.05)

    def follow_once(self) -> float:
        """List if that is necessary, and watch until the watch ends; for how long to leave the server alone then."""
        try:
            if not self._revision or self._clock.now() - self._left > _LONG_OUTAGE:
                self._relist()
            quiet = self._follow_watch()
            self._tell_again()
        except errors.Gone:
            # Forgotten: the next round lists again, at once if that helps.
            self._revision, again = "", self._forgotten
            self._forgotten = True
            return self._pause() if again else 0.0
        except errors.ApiError as failure:
            return self._failed(failure)
        except engine_errors.Interrupted:
            raise
        except Exception:  # noqa: BLE001 - a cache that nobody fills any more would be believed for ever
            _log.exception("the informer of %s has a bug; it lists again", self.kind)
            self._revision = ""
            return self._pause()
        # A watch that ends at once, with nothing to tell, is ended by something between us and the server.
        return self._pause() if quiet else 0.0

    def _tell_again(self) -> None:
        """Resync, if it is time: a change that a controller has missed by a fault of its own is not missed for ever."""
        if self._clock.now() - self._resynced >= self._resync:
            self._resynced = self._clock.now()
            for obj in self.list():
                self._tell(Change(obj, obj))

    def _failed(self, failure: errors.ApiError) -> float:
        if not isinstance(failure, errors.Unavailable | errors.TooManyRequests) or failure.code == 504:
            # Whatever the server has against this version (504: it is none of its own yet), a list does not need it.
            self._revision = ""
        if str(failure) != self._words:
            self._words = str(failure)
            _log.warning("the informer of %s: %s", self.kind, failure)
        return self._pause(failure.retry_after)

    def _pause(self, retry_after: float | None = None) -> float:
        """Our own pause, or the server's if that is longer: to obey one that always says "at once" is to spin."""
        self._failures += 1
        own = _BACKOFF.delay(self._failures)
        return own if retry_after is None else min(_LONGEST_PAUSE, max(own, _BACKOFF.delay(1, retry_after)))

    def _relist(self) -> None:
        metrics.RELISTS.labels(self.kind.plural).inc()
        found, revision = self._client.list(self.kind, self._namespace, labels=self._labels, each=self._slim)
        present = {clients.key_of(obj) for obj in found}
        for obj in found:
            self._put(obj)
        with self._guard:
            gone = [obj for key, obj in self._objects.items() if key not in present]
        for obj in gone:
            self._drop(obj)
        self._revision = revision
        self._heard = self._left = self._clock.now()
        self._filled.set()

    def _follow_watch(self) -> bool:
        """Take what happens until the watch ends; True if that was at once, and nothing had happened."""
        seconds = min(_LONGEST_WATCH, self._resync) * random.uniform(0.5, 1.0)  # noqa: S311 - spreads the load
        seconds = max(seconds, _SHORTEST_WATCH * self._clock.speed)
        watch = self._client.watch(self.kind, self._revision, self._namespace, labels=self._labels, seconds=seconds)
        # It connects after stop() knows of it, so that one of the two sees the other.
        self._watch = watch
        events, began = 0, time.monotonic()
        try:
            for event in () if self._stop.is_set() else watch:
                events += 1
                self._take(event)
                self._recovered()
                self._tell_again()
        finally:
            if watch.opened:
                # An outage begins when a watch breaks off, however long that had nothing to tell.
                self._left = self._clock.now()
                self._heard = watch.heard
                if time.monotonic() - began >= _LASTED:
                    self._recovered()
            self._watch = None
        quiet = not events and time.monotonic() - began < 1.0
        if not quiet:
            self._recovered()
        return quiet

    def _recovered(self) -> None:
        """It follows: a list alone is no sign of that."""
        self._failures, self._forgotten = 0, False
        if self._words:
            self._words = ""
            _log.info("the informer of %s follows again", self.kind)

    def _take(self, event: clients.Event) -> None:
        obj = event.object
        if event.type == clients.DELETED:
            self._drop(obj)
        elif event.type in (clients.ADDED, clients.MODIFIED):
            self._put(self._slim(obj))
        # After what it stands for is in the cache: who goes on from here has seen that.
        self._revision = obj["metadata"]["resourceVersion"]

    def _slim(self, obj: Object) -> Object:
        """Without what nobody here asks for, and with what it has in common with others shared."""
        # Who wrote which field is a third of an object.
        obj["metadata"].pop("managedFields", None)
        with self._guard:
            like = self._objects.get(clients.key_of(obj), self._last)
        self._last = obj
        shared(obj, like)
        return obj

    def _put(self, obj: Object) -> None:
        key = clients.key_of(obj)
        with self._guard:
            old = self._objects.get(key)
        if old is not None and old["metadata"]["uid"] != obj["metadata"]["uid"]:
            # The end of the one and the beginning of the other fell into a gap.
            self._drop(old)
            old = None
        # All of it, and not its version alone: a server that came back from a backup counts versions a second time.
        if old == obj:
            return
        with self._guard:
            self._objects[key] = obj
            self._reindex(key, old, obj)
        self._tell(Change(old, obj))

    def _drop(self, obj: Object) -> None:
        key = clients.key_of(obj)
        with self._guard:
            old = self._objects.pop(key, None)
            if old is not None:
                self._reindex(key, old, None)
        if old is not None:
            self._tell(Change(obj if obj["metadata"]["uid"] == old["metadata"]["uid"] else old, None))

    def _reindex(self, key: str, old: Object | None, new: Object | None) -> None:
        for function, entries in self._indexes.values():
            before = self._values(function, old)
            after = self._values(function, new)
            for value in before - after:
                entries[value].discard(key)
                if not entries[value]:
                    del entries[value]
            for value in after - before:
                entries.setdefault(value, set()).add(key)

    def _values(self, function: Index, obj: Object | None) -> set[str]:
        try:
            return set() if obj is None else set(function(obj))
        except Exception:  # noqa: BLE001 - one malformed object must not keep the others out of the cache
            _log.exception("an index of %s cannot read an object", self.kind)
            return set()

    def _tell(self, change: Change) -> None:
        with self._telling:
            for handler in self._handlers:
                self._call(handler, change)

    def _call(self, handler: Handler, change: Change) -> None:
        try:
            handler(change)
        except Exception:  # noqa: BLE001 - the others want to know all the same
            _log.exception("a handler of %s failed for %s", self.kind, change.key)
