"""What the engine holds on to after the work is done: until its next look at asynchronous tasks, it knows of no end.

A disk says that it is OK as soon as the storage has finished, but whoever uses it then is told that a related operation
is in progress, for up to ten seconds more. That is how programs fail which trust a status alone.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import AsyncIterator, Iterable
from typing import TYPE_CHECKING

from moorage import lab
from moorage.lab.ovirt import locks, timing

if TYPE_CHECKING:
    from moorage.lab.ovirt import engine as engines

Held = tuple[str, str]

# Things are let go a little before the job says that it has ended, never after.
_BEFORE = 0.3


def until_look(engine: engines.Engine) -> float:
    """Cloud seconds to the engine's next look."""
    now = engine.clock.now()
    return math.ceil(now / timing.ASYNC_POLL) * timing.ASYNC_POLL - now


def hold(engine: engines.Engine, held: Iterable[Held], why: str = locks.IN_PROGRESS, *, doing: str = "") -> None:
    """Take hold of several things, or of none if one of them is held by somebody else."""
    wanted = list(held)
    for kind, identity in wanted:
        engine.locks.check(kind, identity, doing)
    for kind, identity in wanted:
        engine.locks.hold(kind, identity, why, doing=doing)


def release(engine: engines.Engine, held: Iterable[Held]) -> None:
    for kind, identity in held:
        engine.locks.release(kind, identity)


def release_at_look(engine: engines.Engine, held: Iterable[Held]) -> None:
    """Let go of things when the engine looks the next time."""
    engine.spawn(_release_in(engine, list(held), until_look(engine) - _BEFORE))


async def _release_in(engine: engines.Engine, held: list[Held], seconds: float) -> None:
    await lab.sleep(engine.clock, seconds)
    release(engine, held)


@contextlib.asynccontextmanager
async def finishing(engine: engines.Engine, held: Iterable[Held]) -> AsyncIterator[None]:
    """Around the work of a job that holds things: they are let go at the look after it, or at once if it fails."""
    wanted = list(held)
    try:
        yield
    except BaseException:
        release(engine, wanted)
        raise
    release_at_look(engine, wanted)
