"""A demo that is killed, in the middle of a command or between two: nothing outlives it, and nothing stops the next."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from moorage.cli import demo
from moorage.lab import client, lock
from tests.lab import rack


def processes(folder: Path) -> dict[int, str]:
    """Everything that runs with something of a folder on its command line, but for those that watch it."""
    found = {}
    for each in Path("/proc").iterdir():
        if each.name.isdigit():
            with contextlib.suppress(OSError):
                words = (each / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                if f"{folder}/" in f"{words.strip()}/":
                    found[int(each.name)] = words
    return found


@pytest.fixture
def root(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "demo"
    yield folder
    if lock.held(folder / "lab"):
        client.stop(client.find(folder / "lab"))


def begun(root: Path, *words: str) -> subprocess.Popen[str]:
    """The demo, told to be no faster than this computer can follow."""
    speed = f"{rack.bearable(demo.SPEED):g}"
    return subprocess.Popen(
        [sys.executable, "-m", "moorage", "demo", "--dir", str(root), "--speed", speed, *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        stdin=subprocess.DEVNULL,
        text=True,
    )


def killed(process: subprocess.Popen[str], root: Path) -> None:
    """End it as a power cut would, and see that nobody is left."""
    assert len(processes(root)) > 1, "the lab, and whoever is at work"
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert process.stdout
    process.stdout.close()
    end = time.monotonic() + 60
    while left := processes(root):
        assert time.monotonic() < end, left
        time.sleep(0.1)


@pytest.mark.long
def test_one_that_is_killed_while_it_creates_takes_all_with_it(root: Path) -> None:
    running = begun(root)
    rack.heard(running, "infrastructure")

    killed(running, root)

    again = begun(root)
    rack.heard(again, "# 4. ")
    rack.heard(again, "made by the cluster itself")
    killed(again, root)


@pytest.mark.long
@pytest.mark.parametrize("words", ["# 8. ", "# 10. "], ids=["heals", "goes"])
def test_one_that_is_killed_on_day_2_leaves_room_for_the_next(root: Path, words: str) -> None:
    running = begun(root)
    rack.heard(running, words)
    killed(running, root)

    again = begun(root)
    rack.heard(again, "infrastructure finished")
    os.kill(again.pid, signal.SIGINT)
    rest = rack.rest(again, 120)

    assert "the lab still runs" in rest, "whoever stops it may look into it"
    assert lock.held(root / "lab")
