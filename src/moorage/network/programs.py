"""Bringing new configs to running programs: judged by the program itself first, replaced as a whole, then made known.

A config that its program refuses never takes the place of one that works. Programs are told by a signal to the process
in their pid file, which must be that program still: numbers of processes are used again.
"""

from __future__ import annotations

import dataclasses
import os
import signal
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from moorage.network import haproxy, keepalived, pods


@dataclasses.dataclass(frozen=True)
class Program:
    """A program: its config, the command that judges one (the path is added), and the signal to read it again."""

    name: str
    config: str
    judge: tuple[str, ...]
    pid_file: str
    reload: signal.Signals


KEEPALIVED = Program("keepalived", keepalived.PATH, ("keepalived", "-t", "-f"), pods.KEEPALIVED_PID, signal.SIGHUP)
HAPROXY = Program("haproxy", haproxy.PATH, ("haproxy", "-c", "-f"), pods.HAPROXY_PID, signal.SIGUSR2)
PROGRAMS = {each.config: each for each in (KEEPALIVED, HAPROXY)}


def write(path: Path, text: str, mode: int = 0o644) -> None:
    """Replace a file as a whole: whoever reads it sees the old or the new one, after a crash too."""
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fchmod(descriptor, mode)
            os.fsync(descriptor)
        os.replace(name, path)  # noqa: PTH105 - the name is a text already
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def objection(judge: Sequence[str], path: Path, text: str) -> str:
    """What the program has to say against a config; nothing, if it takes it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile("w", prefix=f".{path.name}.", dir=path.parent, encoding="utf-8") as candidate:
        candidate.write(text)
        candidate.flush()
        try:
            ended = subprocess.run(
                [*judge, candidate.name], capture_output=True, text=True, errors="replace", check=False, timeout=30
            )
        except (OSError, subprocess.TimeoutExpired) as problem:
            return f"{judge[0]} cannot be asked: {problem}"
    if ended.returncode == 0:
        return ""
    said = [line.strip() for line in (ended.stdout + ended.stderr).splitlines() if line.strip()]
    return "; ".join(said[-5:]) or f"{judge[0]} ended with {ended.returncode}"


def pid(name: str, pid_file: Path) -> int | None:
    """The process in a pid file, if it is the program of that name."""
    try:
        found = int(pid_file.read_text(encoding="ascii").split()[0])
        runs = Path(f"/proc/{found}/comm").read_text(encoding="utf-8", errors="replace").strip()
    except (OSError, ValueError, IndexError):
        return None
    return found if runs == name else None


def tell(name: str, pid_file: Path, what: signal.Signals) -> bool:
    """Send a signal; False if nobody is there."""
    found = pid(name, pid_file)
    if found is None:
        return False
    try:
        os.kill(found, what)
    except ProcessLookupError:
        return False
    return True
