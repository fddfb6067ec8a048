"""What happens in a flow, as it happens: small frozen events for whoever wants to show or log them.

The journal keeps the same events, so a later `timeline` tells the story the screen told. A listener is any callable;
it is called from worker threads but never by two at once, and an exception in it is logged and forgotten: a broken
progress bar must not break an installation.
"""

from __future__ import annotations

import dataclasses
import datetime
import logging
import threading
from collections.abc import Callable, Iterable
from typing import ClassVar

log = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True)
class Event:
    """Something happened to a resource of a flow. ``state`` is the word the journal keeps for it.

    A ``durable`` event is on disk before the flow goes on; the others are by the next commit, which saves many.
    """

    state: ClassVar[str] = ""
    durable: ClassVar[bool] = True

    flow: str
    resource: str
    at: datetime.datetime

    @property
    def message(self) -> str:
        return ""

    @property
    def waiting_for(self) -> str:
        return ""

    @property
    def ident(self) -> str:
        return ""


@dataclasses.dataclass(frozen=True)
class FlowStarted(Event):
    """An attempt begins; ``kept`` of the ``total`` resources are finished already. ``resource`` is empty."""

    state = "flow-started"
    durable = False
    attempt: int
    total: int
    kept: int
    rollback: bool = False


@dataclasses.dataclass(frozen=True)
class FlowEnded(Event):
    """The attempt is over: ``outcome`` is finished, failed, interrupted or rolled-back. ``resource`` is empty."""

    state = "flow-ended"
    durable = False
    attempt: int
    outcome: str


@dataclasses.dataclass(frozen=True)
class Kept(Event):
    """The resource was finished by an earlier attempt and is left alone."""

    state = "kept"
    durable = False


@dataclasses.dataclass(frozen=True)
class Started(Event):
    """Work on the resource begins."""

    state = "started"
    durable = False


@dataclasses.dataclass(frozen=True)
class Creating(Event):
    """The create call is about to be sent: from here on the resource may exist, whatever happens."""

    state = "creating"


@dataclasses.dataclass(frozen=True)
class Created(Event):
    """The platform said yes; ``id`` is what it calls the thing, where it says so."""

    state = "created"
    durable = False
    id: str = ""

    @property
    def ident(self) -> str:
        return self.id


@dataclasses.dataclass(frozen=True)
class Adopted(Event):
    """The resource was found on the platform and taken over instead of being created."""

    state = "adopted"
    durable = False


@dataclasses.dataclass(frozen=True)
class Waiting(Event):
    """The resource is being waited for, and this is what for."""

    state = "waiting"
    what: str

    @property
    def waiting_for(self) -> str:
        return self.what


@dataclasses.dataclass(frozen=True)
class Retrying(Event):
    """A call failed in a way that may pass; it is repeated after ``delay`` seconds."""

    state = "retrying"
    reason: str
    delay: float
    tries: int

    @property
    def message(self) -> str:
        return f"{self.reason} (try {self.tries}, again in {self.delay:.0f} s)"


@dataclasses.dataclass(frozen=True)
class Finished(Event):
    """The resource is there, and its output is recorded."""

    state = "finished"
    durable = False
    seconds: float


@dataclasses.dataclass(frozen=True)
class Failed(Event):
    """Work on the resource ended with an error."""

    state = "failed"
    reason: str
    remedy: str = ""

    @property
    def message(self) -> str:
        return self.reason


@dataclasses.dataclass(frozen=True)
class Stopped(Event):
    """Work on the resource was cut short by the user's wish to stop; it goes on in the next run."""

    state = "stopped"


@dataclasses.dataclass(frozen=True)
class Deleting(Event):
    """The resource is being removed."""

    state = "deleting"


@dataclasses.dataclass(frozen=True)
class Reverted(Event):
    """The resource is gone."""

    state = "reverted"


@dataclasses.dataclass(frozen=True)
class Left(Event):
    """The resource could not be removed and is still there."""

    state = "left"
    reason: str

    @property
    def message(self) -> str:
        return self.reason


@dataclasses.dataclass(frozen=True)
class Forgotten(Event):
    """The record of the resource was dropped because the graph changed and the user accepted that."""

    state = "forgotten"
    reason: str

    @property
    def message(self) -> str:
        return self.reason


Listener = Callable[[Event], None]


class Broadcast:
    """Tells every listener of every event, one event at a time."""

    def __init__(self, listeners: Iterable[Listener] = ()) -> None:
        self._listeners = tuple(listeners)
        self._turn = threading.RLock()

    def __call__(self, event: Event) -> None:
        with self._turn:
            for listener in self._listeners:
                try:
                    listener(event)
                except Exception:
                    log.warning("a progress listener failed on %s", event, exc_info=True)
