"""Events: what a person sees below an object in ``oc describe``, told once and counted when it happens again.

An event that repeats is counted in memory and written again at most every few minutes, so that a machine that is tried
for hours makes a handful of writes. Telling is a courtesy: no work fails because an event could not be written.
"""

from __future__ import annotations

import collections
import dataclasses
import logging
import threading
import uuid
from collections.abc import Mapping
from typing import Any, Final, Literal

from moorage.engine import clock as clocks
from moorage.machines import conditions, objects
from moorage.machines.runtime import client as clients
from moorage.machines.runtime import errors, kinds

Type = Literal["Normal", "Warning"]

NORMAL: Final = "Normal"
WARNING: Final = "Warning"

#: Cloud seconds between two writes of the same event.
PAUSE: Final = 300.0
_REMEMBERED: Final = 4096
_LONGEST: Final = 1024

_log = logging.getLogger(__name__)


@dataclasses.dataclass
class _Told:
    name: str
    count: int
    written: float


class Recorder:
    """Tells events in the name of ``component``. Safe to share between threads."""

    def __init__(self, client: clients.Client, clock: clocks.Clock, component: str) -> None:
        self._client = client
        self._clock = clock
        self._component = component
        self._turn = threading.Lock()
        self._told: collections.OrderedDict[tuple[str, ...], _Told] = collections.OrderedDict()

    def event(self, thing: Mapping[str, Any], type: Type, reason: str, message: str) -> None:
        """Tell that something happened to an object."""
        message = message if len(message) <= _LONGEST else f"{message[: _LONGEST - 1]}…"
        key = (objects.uid(thing) or objects.key(thing), type, reason, message)
        with self._turn:
            told = self._told.get(key)
            if told is not None:
                self._told.move_to_end(key)
                told.count += 1
                if self._clock.now() - told.written < PAUSE:
                    return
                told.written = self._clock.now()
        try:
            if told is None or not self._again(thing, told):
                self._remember(key, self._tell(thing, type, reason, message))
        except errors.ApiError as refused:
            _log.debug("event %s of %s was not written: %s", reason, objects.key(thing), refused)

    def _tell(self, thing: Mapping[str, Any], type: Type, reason: str, message: str) -> str:
        now = conditions.stamp(self._clock.wall())
        name = f"{objects.name(thing)[:200]}.{uuid.uuid4().hex[:16]}"
        subject = {
            "apiVersion": thing.get("apiVersion"),
            "kind": thing.get("kind"),
            "name": objects.name(thing),
            "namespace": objects.namespace(thing),
            "uid": objects.uid(thing),
            "resourceVersion": objects.revision(thing),
        }
        self._client.create(
            kinds.EVENT,
            {
                "metadata": {"name": name, "namespace": _where(thing)},
                "involvedObject": {field: value for field, value in subject.items() if value},
                "type": type,
                "reason": reason,
                "message": message,
                "source": {"component": self._component},
                "reportingComponent": self._component,
                "reportingInstance": self._component,
                "firstTimestamp": now,
                "lastTimestamp": now,
                "count": 1,
            },
        )
        return name

    def _again(self, thing: Mapping[str, Any], told: _Told) -> bool:
        """Bring the count up to date; False if the event was forgotten by the API, which keeps them for hours."""
        change = {"count": told.count, "lastTimestamp": conditions.stamp(self._clock.wall())}
        try:
            self._client.patch(kinds.EVENT, told.name, _where(thing), change)
        except errors.NotFound:
            return False
        return True

    def _remember(self, key: tuple[str, ...], name: str) -> None:
        with self._turn:
            self._told[key] = _Told(name, 1, self._clock.now())
            while len(self._told) > _REMEMBERED:
                self._told.popitem(last=False)


def _where(thing: Mapping[str, Any]) -> str:
    return objects.namespace(thing) or "default"
