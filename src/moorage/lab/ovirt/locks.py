"""Who works on what: an operation holds the things it changes, and whoever else wants them is told to come again.

The engine's words depend on what is held: a VM whose images are being made is *locked*, anything else that an operation
holds has a *related operation in progress*. Clones of one template share it; whoever would change it waits for all.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator
from typing import TYPE_CHECKING

from moorage.lab.ovirt import faults

if TYPE_CHECKING:
    from moorage.lab.ovirt import engine as engines

IN_PROGRESS = "Related operation is currently in progress. Please try again later."
LOCKED = {
    "vms": "VM is locked. Please try again in a few minutes.",
    "disks": "Disk is locked. Please try again later.",
}
_WORDS = {"vms": "VM", "disks": "Virtual Disk", "templates": "Template", "tags": "Tag"}


@dataclasses.dataclass
class _Held:
    why: str
    shared: bool
    count: int = 1


class Locks:
    """What is held now."""

    def __init__(self, engine: engines.Engine) -> None:
        self._engine = engine
        self._held: dict[tuple[str, str], _Held] = {}

    def held(self, kind: str, identity: str) -> bool:
        return (kind, identity) in self._held

    def hold(self, kind: str, identity: str, why: str = IN_PROGRESS, *, shared: bool = False, doing: str = "") -> None:
        """Take hold of a thing, or be refused because somebody else has it. ``why`` is what others will be told."""
        there = self._held.get((kind, identity))
        if there is None:
            self._held[kind, identity] = _Held(why, shared)
        elif there.shared and shared:
            there.count += 1
        else:
            self.check(kind, identity, doing)

    def release(self, kind: str, identity: str) -> None:
        """Let go; what is not held stays free."""
        there = self._held.get((kind, identity))
        if there is not None:
            there.count -= 1
            if there.count == 0:
                del self._held[kind, identity]

    @contextlib.contextmanager
    def holding(
        self, kind: str, identity: str, why: str = IN_PROGRESS, *, shared: bool = False, doing: str = ""
    ) -> Iterator[None]:
        """Hold a thing while something is done."""
        self.hold(kind, identity, why, shared=shared, doing=doing)
        try:
            yield
        finally:
            self.release(kind, identity)

    def check(self, kind: str, identity: str, doing: str = "", *, shared: bool = False) -> None:
        """Refuse (409) to touch what is held; ``doing`` is like `run VM`."""
        there = self._held.get((kind, identity))
        if there is None or (shared and there.shared):
            return
        doing = doing or f"edit {_WORDS.get(kind, kind)}"
        # The engine writes these with a colon, and the other with a full stop.
        joint = ":" if there.why in LOCKED.values() else "."
        raise faults.plain(f"Cannot {doing}{joint} {there.why}")

    def to_json(self) -> list[dict[str, str]]:
        return [{"kind": kind, "id": identity, "why": there.why} for (kind, identity), there in self._held.items()]

    def clear(self) -> None:
        self._held.clear()
