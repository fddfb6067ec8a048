"""Waiting on the cloud's clock for a time that a stop ends early.

A runtime has several ends (of the process, of leading, of one informer), where a clock has one; and it must not spin
where the clock runs a thousand times too fast, which is what the floor in real seconds is for.
"""

from __future__ import annotations

import threading

from moorage.engine import clock as clocks


def pause(clock: clocks.Clock, stop: threading.Event, seconds: float, *, floor: float = 0.0) -> bool:
    """Let cloud seconds pass, at least ``floor`` real ones; True as soon as it is told to stop."""
    return stop.wait(max(seconds / clock.speed, floor))
