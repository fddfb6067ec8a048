"""Calm: something that changed is believed only when it has stayed so for a while.

Nodes come and go while a cluster is built, and lists are sometimes stale. Every reload that follows from such a moment
is one that can go wrong, so a change has to be seen several times in a row, over some seconds.
"""

from __future__ import annotations

from typing import Generic, TypeVar

T = TypeVar("T")


class Steady(Generic[T]):
    """The value in force, and a newer one that has yet to prove itself. The first one of all is taken as it is."""

    def __init__(self, value: T | None = None, *, sightings: int = 3, seconds: float = 20.0) -> None:
        self.value = value
        self._sightings = sightings
        self._seconds = seconds
        self._candidate: T | None = None
        self._count = 0
        self._since = 0.0

    @property
    def pending(self) -> int:
        """How often in a row something else than the value in force has been seen."""
        return self._count

    def saw(self, value: T, now: float) -> bool:
        """Take note of what is seen at a moment; True when it comes into force by this."""
        if value == self.value:
            self._count = 0
            return False
        if self._count == 0 or value != self._candidate:
            self._candidate, self._count, self._since = value, 0, now
        self._count += 1
        if self.value is not None and (self._count < self._sightings or now - self._since < self._seconds):
            return False
        self.value, self._count = value, 0
        return True


class Switch:
    """On or off, by checks: on after ``rise`` good ones in a row, off after ``fall`` bad ones."""

    def __init__(self, on: bool = False, *, rise: int, fall: int) -> None:
        self.on = on
        self.against = 0
        self._rise = rise
        self._fall = fall

    def checked(self, good: bool) -> bool:
        """Take note of a check; True when it turns the switch."""
        self.against = 0 if good == self.on else self.against + 1
        if self.against < (self._fall if self.on else self._rise):
            return False
        self.on, self.against = good, 0
        return True
