"""Real processes that stand for containers: each has a private folder, a log, and an end that nothing can put off.

A process is started through a leash: a few lines that ask the kernel to kill it when the lab dies, however the lab
dies, and that then become the program itself. It sees none of the lab's own environment but what any program needs.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

# The parent may be gone before the kernel was asked: then nobody would ever end us.
_LEASH = """
import ctypes, os, signal, sys
PR_SET_PDEATHSIG = 1
if ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0) or os.getppid() != int(sys.argv[1]):
    os.kill(os.getpid(), signal.SIGKILL)
os.execv(sys.argv[2], sys.argv[2:])
"""
# What every program of this machine needs to run at all; credentials and addresses of the lab's user are none of it.
_INHERITED = ("PATH", "LANG", "LC_ALL", "LC_CTYPE", "LD_LIBRARY_PATH", "PYTHONPATH", "COVERAGE_PROCESS_START")
_LOGS_KEPT = 5
_LONGEST_LOG = 4 * 1024 * 1024


class Folder:
    """Where a container lives on our disk: its logs, which stay, and what it works with, which goes when it ends."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.work = path / "work"

    def prepare(self) -> None:
        """Make it, for nobody but us, and empty what the last process has left. OSError if it has no place any more."""
        self.clean()
        # Not whatever is above: where the lab's own folder was removed, nobody makes it anew.
        for each in (self.path.parent.parent, self.path.parent, self.path, self.work, self.work / "tmp"):
            each.mkdir(mode=0o700, exist_ok=True)

    def clean(self) -> None:
        shutil.rmtree(self.work, ignore_errors=True)

    def write(self, name: str, content: str) -> Path:
        """A private file for the process."""
        path = self.work / name
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
            file.write(content)
        return path

    def open_log(self, number: int) -> int:
        """A descriptor to write the log of the container's ``number``-th process to; the oldest logs go."""
        (self.path / f"{number - _LOGS_KEPT}.log").unlink(missing_ok=True)
        return os.open(self.path / f"{number}.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def log(self, number: int) -> str:
        """What that process has said, or the last of it if that is much."""
        try:
            with (self.path / f"{number}.log").open("rb") as file:
                file.seek(max(0, file.seek(0, os.SEEK_END) - _LONGEST_LOG))
                return file.read().decode("utf-8", "replace")
        except FileNotFoundError:
            return ""


def folder_name(*parts: str) -> str:
    """One folder name out of several names, none of which leads anywhere else."""
    return "_".join(re.sub(r"[^A-Za-z0-9.-]", "-", part).strip(".") for part in parts)


async def started(
    command: Sequence[str], environment: Mapping[str, str], folder: Folder, number: int
) -> asyncio.subprocess.Process:
    """Start a process. OSError if it cannot be had."""
    inherited = {name: os.environ[name] for name in _INHERITED if name in os.environ}
    own = {"HOME": str(folder.work), "TMPDIR": str(folder.work / "tmp"), "PYTHONUNBUFFERED": "1"}
    log = folder.open_log(number)
    try:
        return await asyncio.create_subprocess_exec(
            *(sys.executable, "-I", "-S", "-c", _LEASH, str(os.getpid()), *command),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env={**inherited, **environment, **own},
            cwd=folder.work,
            # Out of reach of what is typed where the lab was started: the lab ends it.
            start_new_session=True,
        )
    finally:
        os.close(log)


async def ended(process: asyncio.subprocess.Process, patience: float = 0.0) -> int:
    """End a process: ask it, wait some real seconds, and kill it. Whoever is in a hurry cancels, and it is killed."""
    try:
        if patience > 0 and process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                process.terminate()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(patience):
                    await process.wait()
    finally:
        kill(process)
    return await process.wait()


def kill(process: asyncio.subprocess.Process) -> None:
    if process.returncode is None:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
