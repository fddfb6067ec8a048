"""All that the engine knows of: entities by kind and id, in the order in which they came to be.

Kinds are the API's own plurals (``vms``, ``storage_domains``, ``affinity_groups``). Memberships are kept as ids in keys
of the engine's own: ``_tags`` of a VM, ``_vms`` and ``_hosts`` of an affinity group. Entities are changed in place. So
that a reader can be answered from a copy that lags behind (a fault on order), the inventory can remember how it was;
who reads inside `in_the_past` sees that.
"""

from __future__ import annotations

import contextlib
import contextvars
import copy
import uuid
from collections.abc import Iterator
from typing import Any

from moorage.lab.ovirt import faults

Doc = dict[str, Any]

_PAST: contextvars.ContextVar[bool] = contextvars.ContextVar("past", default=False)


@contextlib.contextmanager
def in_the_past() -> Iterator[None]:
    """Read what was remembered, while this lasts; changes made then go nowhere."""
    token = _PAST.set(True)
    try:
        yield
    finally:
        _PAST.reset(token)


class Inventory:
    """The entities of one engine."""

    def __init__(self) -> None:
        self._kinds: dict[str, dict[str, Doc]] = {}
        self._past: dict[str, dict[str, Doc]] | None = None

    def add(self, kind: str, doc: Doc) -> Doc:
        """Take in an entity, with an id of its own if it has none yet."""
        doc.setdefault("id", str(uuid.uuid4()))
        self._kinds.setdefault(kind, {})[doc["id"]] = doc
        return doc

    def get(self, kind: str, identity: str) -> Doc:
        """The entity of that id; a 404 if there is none."""
        found = self._of(kind).get(identity)
        if found is None:
            raise faults.missing()
        return found

    def has(self, kind: str, identity: str) -> bool:
        return identity in self._of(kind)

    def all(self, kind: str) -> list[Doc]:
        """All of a kind, in order of creation."""
        return list(self._of(kind).values())

    def find(self, kind: str, **fields: Any) -> list[Doc]:
        """Those of a kind whose fields have these values; ``cluster="id"`` means the entity it refers to."""
        return [each for each in self.all(kind) if all(_is(each.get(key), value) for key, value in fields.items())]

    def named(self, kind: str, name: str) -> Doc | None:
        """The first of a kind that has this very name."""
        return next(iter(self.find(kind, name=name)), None)

    def remove(self, kind: str, identity: str) -> None:
        """Let an entity go; one that is not there is gone already."""
        self._kinds.get(kind, {}).pop(identity, None)

    def kinds(self) -> list[str]:
        return list(self._kinds)

    def clear(self) -> None:
        self._kinds.clear()
        self._past = None

    def remember(self) -> None:
        """Keep how things are, for those who will read the past."""
        self._past = {kind: {key: _copied(doc) for key, doc in docs.items()} for kind, docs in self._kinds.items()}

    def _of(self, kind: str) -> dict[str, Doc]:
        there = self._past if _PAST.get() and self._past is not None else self._kinds
        return there.get(kind, {})


def _copied(doc: Doc) -> Doc:
    return {key: _own(value) if key.startswith("_") else copy.deepcopy(value) for key, value in doc.items()}


def _own(value: Any) -> Any:
    """What is the engine's own may be a running task, which has no copy; lists are of ids."""
    return list(value) if isinstance(value, list) else value


def _is(found: Any, wanted: Any) -> bool:
    if isinstance(found, dict) and not isinstance(wanted, dict):
        return bool(found.get("id") == wanted)
    return bool(found == wanted)
