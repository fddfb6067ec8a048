"""A cache over a `memory.Memory` in the place of an informer: it is as old as its last ``step()``, so tests decide how
far it is behind."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable
from typing import Any

from moorage.machines.runtime import client as clients
from moorage.machines.runtime import informer, kinds
from tests.unit.machines import memory

Object = dict[str, Any]


class Followed:
    """What controllers ask of an informer; changes are told by ``step()``."""

    def __init__(self, api: memory.Memory, kind: kinds.Kind) -> None:
        self.kind = kind
        self._api = api
        self._known: dict[str, Object] = {}
        self._indexes: dict[str, Callable[[Object], Iterable[str]]] = {}
        self._handlers: list[Callable[[informer.Change], None]] = []

    def step(self) -> None:
        """Be up to date, and tell what has changed."""
        listed = [each for (kind, _, _), each in self._api.objects.items() if kind == str(self.kind)]
        before, self._known = self._known, {clients.key_of(each): copy.deepcopy(each) for each in listed}
        for key in {**before, **self._known}:
            old, new = before.get(key), self._known.get(key)
            for handler in self._handlers if old != new else ():
                handler(informer.Change(old, new))

    def get(self, key: str) -> Object | None:
        return self._known.get(key)

    def list(self) -> list[Object]:
        return list(self._known.values())

    def by_index(self, name: str, value: str) -> list[Object]:
        return [each for each in self._known.values() if value in list(self._indexes[name](each))]

    def add_index(self, name: str, function: Callable[[Object], Iterable[str]]) -> None:
        self._indexes[name] = function

    def on(self, handler: Callable[[informer.Change], None]) -> None:
        self._handlers.append(handler)


def informer_of(api: memory.Memory, kind: kinds.Kind) -> Any:
    return Followed(api, kind)
