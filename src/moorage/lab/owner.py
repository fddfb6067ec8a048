"""A lab that lives no longer than somebody who needs it, however that one ends.

Usually a lab outlives whoever started it. One that was made for a single purpose has an owner: a process that holds a
lock on a file in its folder. The kernel lets go of the lock when the process dies, even by a kill that it never hears
of, and the lab then finds a file that nobody holds. Whoever wants the lab to go on takes the file away.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

_FILE = "owner"


@contextlib.contextmanager
def owned(folder: Path) -> Iterator[None]:
    """Let the lab of a folder die with us. Whoever gets to the end of this, or out of it by an error, lets it live."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    draft = folder / f"{_FILE}.{os.getpid()}"
    descriptor = os.open(draft, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        # Under its name only when it is held: nobody is to find it otherwise.
        draft.replace(folder / _FILE)
        yield
    finally:
        if _is_there(folder, descriptor):
            (folder / _FILE).unlink(missing_ok=True)
        os.close(descriptor)


def is_orphaned(folder: Path) -> bool:
    """Whether a lab's owner has died."""
    try:
        descriptor = os.open(folder / _FILE, os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # One that let go in good order took the file away before.
        return _is_there(folder, descriptor)
    except BlockingIOError:
        return False
    finally:
        os.close(descriptor)


def bury(folder: Path) -> None:
    """Forget an owner that has died: the next lab of that folder was not made for it."""
    if is_orphaned(folder):
        (folder / _FILE).unlink(missing_ok=True)


def _is_there(folder: Path, descriptor: int) -> bool:
    try:
        return os.path.samestat((folder / _FILE).stat(), os.fstat(descriptor))
    except FileNotFoundError:
        return False
