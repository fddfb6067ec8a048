"""The time axis of a chart: hours in which nobody worked are folded away, and ticks fall on round numbers.

A cluster that failed in the evening and was resumed in the morning would otherwise be two slivers at the edges of an
empty page.
"""

from __future__ import annotations

import dataclasses
import datetime
import math
from collections.abc import Iterable, Sequence

_SECOND = (0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30)
_STEPS = (*_SECOND, *(60 * n for n in (1, 2, 5, 10, 15, 30)), *(3600 * n for n in (1, 2, 3, 6, 12)), 86400)
_FOLD_WIDTH = 36.0
_SHORTEST_FOLD = 60.0
_ROOM_PER_TICK = 68.0

Period = tuple[datetime.datetime, datetime.datetime]


@dataclasses.dataclass(frozen=True)
class Stretch:
    """A period of work and where it is drawn."""

    started: datetime.datetime
    ended: datetime.datetime
    left: float
    right: float

    @property
    def seconds(self) -> float:
        return (self.ended - self.started).total_seconds()


@dataclasses.dataclass(frozen=True)
class Tick:
    x: float
    label: str


@dataclasses.dataclass(frozen=True)
class Axis:
    """Stretches from left to right, with a fold between each two."""

    stretches: tuple[Stretch, ...]

    def x(self, at: datetime.datetime) -> float:
        """Where a moment is drawn."""
        for stretch in self.stretches:
            if at <= stretch.ended:
                share = (at - stretch.started).total_seconds() / stretch.seconds if stretch.seconds else 0.0
                return stretch.left + (stretch.right - stretch.left) * min(1.0, max(0.0, share))
        return self.stretches[-1].right

    @property
    def folds(self) -> list[tuple[Stretch, Stretch]]:
        return list(zip(self.stretches, self.stretches[1:], strict=False))

    def ticks(self) -> list[Tick]:
        """Round times since the start of each stretch, as many as have room."""
        found = []
        for stretch in self.stretches:
            step = _step(stretch)
            unit, divisor = ("s", 1) if step < 60 else ("min", 60) if step < 3600 else ("h", 3600)
            for number in range(int(stretch.seconds / step + 1e-9) + 1):
                x = self.x(stretch.started + datetime.timedelta(seconds=number * step))
                if number and stretch.right - x < _ROOM_PER_TICK / 3 and stretch is not self.stretches[-1]:
                    break  # its label would run into the fold
                found.append(Tick(x, f"{number * step / divisor:g} {unit}" if number else "0"))
        return found


def fit(periods: Iterable[Period], left: float, right: float) -> Axis:
    """An axis from ``left`` to ``right`` on which every moment of the periods has its place."""
    merged = _merged(sorted(periods))
    worked = sum((end - start).total_seconds() for start, end in merged)
    joined: list[Period] = []
    for start, end in merged:
        gap = (start - joined[-1][1]).total_seconds() if joined else 0.0
        if joined and gap < max(_SHORTEST_FOLD, worked / 10):
            joined[-1] = (joined[-1][0], end)
        else:
            joined.append((start, end))
    return Axis(tuple(_placed(joined, left, right)))


def _merged(periods: Sequence[Period]) -> list[Period]:
    found: list[Period] = []
    for start, end in periods:
        if found and start <= found[-1][1]:
            found[-1] = (found[-1][0], max(found[-1][1], end))
        else:
            found.append((start, max(start, end)))
    return found


def _placed(periods: Sequence[Period], left: float, right: float) -> Iterable[Stretch]:
    fold = min(_FOLD_WIDTH, (right - left) / 3 / len(periods))
    room = right - left - fold * (len(periods) - 1)
    seconds = [max((end - start).total_seconds(), 1e-3) for start, end in periods]
    # A short attempt beside a long one still gets enough room to be seen.
    least = min(40.0, room / len(periods) / 4)
    spare = room - least * len(periods)
    x = left
    for (start, end), length in zip(periods, seconds, strict=True):
        width = least + spare * length / sum(seconds)
        yield Stretch(start, end, x, x + width)
        x += width + fold


def _step(stretch: Stretch) -> float:
    most = max(1.0, (stretch.right - stretch.left) / _ROOM_PER_TICK)
    days = _STEPS[-1] * math.ceil(stretch.seconds / _STEPS[-1] / most)
    return next((step for step in _STEPS if stretch.seconds / step <= most), days)
