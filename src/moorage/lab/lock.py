"""The lock of a lab's folder: whoever holds it is the lab there, and the kernel releases it however that ends."""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from collections.abc import Iterator
from pathlib import Path

from moorage import errors

_FILE = "lock"
# Who merely looks holds the lock too, for a moment.
_TRIES, _PAUSE = 20, 0.01


class LabRunning(errors.MoorageError):
    """A lab lives in the folder already."""


@contextlib.contextmanager
def alone(folder: Path) -> Iterator[None]:
    """Be the only lab in a folder."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    descriptor = os.open(folder / _FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        if not any(_taken(descriptor) for _ in range(_TRIES)):
            raise LabRunning(f"a lab runs in {folder} already", remedy="see: moorage lab status")
        yield
    finally:
        os.close(descriptor)


def _taken(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        time.sleep(_PAUSE)
        return False
    return True


def held(folder: Path) -> bool:
    """Whether a lab lives in a folder."""
    try:
        descriptor = os.open(folder / _FILE, os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False
