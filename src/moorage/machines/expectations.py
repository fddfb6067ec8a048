"""What a controller has asked for and its cache has not shown yet.

A cache lags behind. Whoever counts machines in it right after making one would make another: so what is asked for is
noted here before the call, struck out when the cache has seen it, and while anything stands nothing more is asked for.
Creations are known by name (an event may overtake the reply that tells the uid), deletions by uid (a name may be taken
again). What is never seen is given up after a while, so that a lost event does not stop a set for good.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any, Final

from moorage.engine import clock as clocks

Object = Mapping[str, Any]

#: Cloud seconds; Kubernetes' own controllers wait as long.
PATIENCE: Final = 300.0


class Expectations:
    """Shared by workers, which expect, and informers, which observe."""

    def __init__(self, clock: clocks.Clock, patience: float = PATIENCE) -> None:
        self._clock = clock
        self._patience = patience
        self._lock = threading.Lock()
        #: By the set's key: what is awaited, and since when.
        self._awaited: dict[str, dict[str, float]] = {}
        self._owners: dict[str, str] = {}

    def expect_creation(self, owner: str, namespace: str, name: str) -> None:
        self._expect(owner, _creation(namespace, name))

    def expect_deletion(self, owner: str, uid: str) -> None:
        self._expect(owner, _deletion(uid))

    def give_up_creation(self, namespace: str, name: str) -> None:
        """The call failed: nothing will be seen, or a look at the API itself must tell."""
        self._strike(_creation(namespace, name))

    def give_up_deletion(self, uid: str) -> None:
        self._strike(_deletion(uid))

    def observe(self, old: Object | None, new: Object | None) -> None:
        """Something changed in the cache, which shows it already."""
        for found in filter(None, (old, new)):
            meta = found["metadata"]
            self._strike(_creation(str(meta.get("namespace", "")), str(meta["name"])))
            if new is None or meta.get("deletionTimestamp"):
                self._strike(_deletion(str(meta.get("uid", ""))))

    def outstanding(self, owner: str) -> float:
        """Cloud seconds for which the owner may still have to wait; 0 if it need not."""
        with self._lock:
            now = self._clock.now()
            for entry, since in list(self._awaited.get(owner, {}).items()):
                if now - since >= self._patience:
                    self._remove(entry)
            waiting = self._awaited.get(owner, {}).values()
            return max((since + self._patience - now for since in waiting), default=0.0)

    def forget(self, owner: str) -> None:
        """The owner is gone."""
        with self._lock:
            for entry in list(self._awaited.get(owner, {})):
                self._remove(entry)

    def _expect(self, owner: str, entry: str) -> None:
        with self._lock:
            self._remove(entry)
            self._awaited.setdefault(owner, {})[entry] = self._clock.now()
            self._owners[entry] = owner

    def _strike(self, entry: str) -> None:
        with self._lock:
            self._remove(entry)

    def _remove(self, entry: str) -> None:
        owner = self._owners.pop(entry, None)
        if owner is None:
            return
        entries = self._awaited[owner]
        entries.pop(entry, None)
        if not entries:
            del self._awaited[owner]


def _creation(namespace: str, name: str) -> str:
    return f"+{namespace}/{name}"


def _deletion(uid: str) -> str:
    return f"-{uid}"
