"""A stand-in for the client and the server behind it: objects with versions, a history, and faults on order.

`Server` keeps what a real one would; `Server.list` and `Server.watch` answer as `client.Client` does, and each answer
may be made to fail before or in its midst, which the laws of the informer are tried with.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import Any

from moorage.engine import clock as clocks
from moorage.machines.runtime import client, errors, kinds

Object = dict[str, Any]


class Server:
    """``faults`` are met one by each call: "list" (refused by ``refusal``), or for a watch "refused", "forbidden",
    "drop-N" (after N events), "gone", "bookmark" and "silent" (for three minutes, after what there is to tell)."""

    def __init__(self, clock: clocks.Clock) -> None:
        self.clock = clock
        self.objects: dict[str, Object] = {}
        self.history: list[tuple[int, client.Event]] = []
        self.revision = 1
        self.forgotten = 0
        self.faults: list[str] = []
        self.refusal: errors.ApiError = errors.Unavailable("no list today")
        self.lists = 0
        self._uids = 0

    def put(self, name: str, value: int = 0) -> None:
        """Create or change an object."""
        self.revision += 1
        old = self.objects.get(name)
        if old is None:
            self._uids += 1
        uid = old["metadata"]["uid"] if old else f"uid-{self._uids}"
        meta = {"name": name, "namespace": "ns", "uid": uid, "resourceVersion": str(self.revision), "managedFields": []}
        self.objects[name] = new = {"metadata": meta, "spec": {"value": value}}
        self._note(client.MODIFIED if old else client.ADDED, new)

    def remove(self, name: str) -> None:
        old = self.objects.pop(name, None)
        if old is not None:
            self.revision += 1
            gone = copy.deepcopy(old)
            gone["metadata"]["resourceVersion"] = str(self.revision)
            self._note(client.DELETED, gone)

    def forget(self) -> None:
        """Lose the history, as a server does after some minutes."""
        self.forgotten = self.revision
        self.history.clear()

    def restore(self) -> None:
        """Come back from a backup: with other objects under versions that were counted before."""
        self.revision = max(1, self.revision - 3)
        self.history.clear()
        self.forgotten = self.revision

    def state(self) -> dict[str, Object]:
        found = copy.deepcopy(self.objects)
        for obj in found.values():
            obj["metadata"].pop("managedFields")
        return {f"ns/{name}": obj for name, obj in found.items()}

    def _note(self, kind: str, obj: Object) -> None:
        self.history.append((self.revision, client.Event(kind, copy.deepcopy(obj))))

    # As client.Client has them.

    def list(
        self, kind: kinds.Kind, ns: str = "", *, labels: str = "", each: Callable[[Object], Object] = lambda obj: obj
    ) -> tuple[list[Object], str]:
        self.lists += 1
        if self.faults and self.faults[0] == "list":
            self.faults.pop(0)
            raise self.refusal
        return [each(copy.deepcopy(obj)) for obj in self.objects.values()], str(self.revision)

    def watch(self, kind: kinds.Kind, revision: str, ns: str = "", *, labels: str = "", seconds: float = 0) -> Events:
        return Events(self, int(revision), self.faults.pop(0) if self.faults else "")


class Events:
    """A watch that ends when all that has happened is told."""

    def __init__(self, server: Server, revision: int, fault: str) -> None:
        self.server = server
        self.revision = revision
        self.fault = fault
        self.opened = False
        self.heard = server.clock.now()

    def close(self) -> None:
        pass

    def __iter__(self) -> Iterator[client.Event]:
        if self.fault == "refused":
            raise errors.Unavailable("no watch today")
        if self.fault == "forbidden":
            raise errors.Forbidden("no watch for you", code=403)
        self.opened, self.heard = True, self.server.clock.now()
        if self.revision > self.server.revision:
            raise errors.Unavailable("Too large resource version", code=504)
        if self.fault == "gone" or self.revision < self.server.forgotten:
            raise errors.Gone("too old")
        left = int(self.fault.removeprefix("drop-")) if self.fault.startswith("drop-") else -1
        for revision, event in [*self.server.history]:
            if revision <= self.revision:
                continue
            if left == 0:
                raise errors.Unavailable("cut")
            left -= 1
            yield copy.deepcopy(event)
        if self.fault == "bookmark":
            meta = {"resourceVersion": str(self.server.revision), "creationTimestamp": None}
            yield client.Event(client.BOOKMARK, {"metadata": meta})
        if self.fault == "silent":
            self.server.clock.sleep(180)
        else:
            self.heard = self.server.clock.now()
