"""Tickets: the right to read or write one image by its transfer URL, for a while.

The engine hands them out and renews them as long as a transfer goes on; whoever knows the URL may use it, nobody asks
for a password. What was transferred and when the client was last heard of is known by the ticket alone: the engine asks
it, and judges the transfer by that.
"""

from __future__ import annotations

import dataclasses
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from moorage.engine import clock as clocks
from moorage.lab.ovirt import images, timing

if TYPE_CHECKING:
    from moorage.lab.ovirt import engine as engines

READ, WRITE = "read", "write"


class NotAllowed(Exception):  # noqa: N818 - the daemon's answer, not a defect
    """A ticket does not let in."""


class LineCut(Exception):  # noqa: N818 - an order to hang up, not a defect
    """The connection dies here."""


@dataclasses.dataclass(eq=False)
class Ticket:
    """One right. ``mortal`` is asked after each piece: what it raises ends the call there.

    ``expected`` is how many bytes the client means to send, 0 where it has not said so.
    """

    id: str
    transfer: str
    size: int
    right: str
    content: images.Content
    clock: clocks.Clock
    expires: float
    heard: float
    cancelled: bool = False
    expected: int = 0
    done: images.Ranges = dataclasses.field(default_factory=images.Ranges)
    mortal: Callable[[Ticket], None] = lambda ticket: None
    _busy: int = 0

    @property
    def active(self) -> bool:
        """Whether somebody reads or writes at this moment."""
        return self._busy > 0

    @property
    def idle(self) -> float:
        """Cloud seconds since the client was last heard of."""
        return 0.0 if self.active else self.clock.now() - self.heard

    def touch(self) -> None:
        """The client was heard of."""
        self.heard = self.clock.now()
        self.expires = max(self.expires, self.heard + timing.TICKET)

    def moved(self, start: int, end: int) -> None:
        """Bytes have come or gone."""
        self.done.add(start, end)
        self.mortal(self)
        self.check()

    def check(self) -> None:
        if self.cancelled:
            raise NotAllowed(f"Transfer={self.transfer} was canceled")

    @contextmanager
    def used(self) -> Iterator[None]:
        """Somebody is at work."""
        self.check()
        self._busy += 1
        try:
            yield
        finally:
            self._busy -= 1
            self.touch()


class Tickets:
    """The tickets of one daemon."""

    def __init__(self, clock: clocks.Clock) -> None:
        self.clock = clock
        self._tickets: dict[str, Ticket] = {}

    def add(self, identity: str, transfer: str, size: int, right: str, content: images.Content) -> Ticket:
        """Let somebody in from now on."""
        now = self.clock.now()
        made = Ticket(identity, transfer, size, right, content, self.clock, now + timing.TICKET, now)
        self._tickets[identity] = made
        return made

    def extend(self, identity: str) -> None:
        """Let a ticket last on; it makes no client any livelier."""
        found = self._tickets.get(identity)
        if found is not None:
            found.expires = self.clock.now() + timing.TICKET

    def remove(self, identity: str) -> None:
        """Let nobody in any more, and end what goes on."""
        found = self._tickets.pop(identity, None)
        if found is not None:
            found.cancelled = True

    def find(self, identity: str) -> Ticket | None:
        return self._tickets.get(identity)

    def admit(self, identity: str, right: str) -> Ticket:
        """The ticket, if it gives the right."""
        found = self._tickets.get(identity)
        if found is None:
            raise NotAllowed(f"No such ticket {identity}")
        found.check()
        if found.expires <= self.clock.now():
            raise NotAllowed(f"Transfer={found.transfer} expired")
        # Who may write may read as well.
        if right == WRITE and found.right != WRITE:
            raise NotAllowed(f"Transfer={found.transfer} forbids {right}")
        return found

    def clear(self) -> None:
        for identity in list(self._tickets):
            self.remove(identity)


_known: weakref.WeakKeyDictionary[engines.Engine, Tickets] = weakref.WeakKeyDictionary()


def of(engine: engines.Engine) -> Tickets:
    """The tickets that an engine has handed out."""
    return _known.setdefault(engine, Tickets(engine.clock))
