"""One process per directory: two installers at work on one journal would both be right and both be wrong.

The kernel's flock is the lock, so a dead holder's is free at once; the file's text only says who holds it. Where the
text names another host the file system may not share locks between machines, and guessing would be dangerous.
"""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import fcntl
import json
import os
import pathlib
import shlex
import sys
from collections.abc import Iterator

from moorage.engine import errors

FILE = ".moorage.lock"


@dataclasses.dataclass(frozen=True)
class Holder:
    """Who holds (or last held) the lock."""

    pid: int
    host: str
    command: str
    started: str

    def __str__(self) -> str:
        return f"`{self.command}` (process {self.pid} on {self.host}, since {self.started})"


def _ourselves() -> Holder:
    # Only the words before the first option: a value behind one may be a secret.
    program = pathlib.PurePath(sys.argv[0]).name
    words = ["moorage" if program == "__main__.py" else program, *sys.argv[1:]]
    plain = [word for index, word in enumerate(words) if not any(w.startswith("-") for w in words[: index + 1])]
    return Holder(
        pid=os.getpid(),
        host=os.uname().nodename,
        command=shlex.join(plain),
        started=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
    )


def _written(descriptor: int) -> Holder | None:
    """The holder named in the file; None if it is empty, being written, or not ours to read."""
    text = os.pread(descriptor, 4096, 0).decode(errors="replace")
    try:
        return Holder(**json.loads(text))
    except (ValueError, TypeError):
        return None


@contextlib.contextmanager
def held(directory: pathlib.Path, *, take_over: bool = False) -> Iterator[None]:
    """Hold the directory's lock; raise `Locked`, naming the holder, if someone else does.

    ``take_over`` is the user's word that the process on the other host is dead.
    """
    path = directory / FILE
    try:
        descriptor = os.open(path, os.O_CREAT | os.O_RDWR, 0o600)
    except OSError as error:
        remedy = f"check that you may write to {directory}, or name another directory with --dir"
        raise errors.Locked(f"cannot lock {directory}: {error.strerror}", remedy=remedy) from error
    try:
        _acquire(descriptor, path, take_over=take_over)
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, json.dumps(dataclasses.asdict(_ourselves())).encode(), 0)
        try:
            yield
        finally:
            os.ftruncate(descriptor, 0)
    finally:
        # Closing gives up the lock. The file stays: removing it would let two newcomers lock two different files.
        os.close(descriptor)


def _acquire(descriptor: int, path: pathlib.Path, *, take_over: bool) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        who = _written(descriptor) or "another process"
        raise errors.Locked(
            f"{path.parent} is in use by {who}", remedy="wait for it to end, or stop it, then try again"
        ) from None
    last = _written(descriptor)
    if last is not None and last.host != os.uname().nodename and not take_over:
        raise errors.Locked(
            f"{path.parent} was last used by {last}, which did not say that it ended",
            remedy=f"make sure that it is not running on {last.host}, then remove {path}",
        )
