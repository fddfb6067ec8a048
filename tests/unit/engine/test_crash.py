"""Whatever the moment of its death, the next run reaches the inventory of a run that was never disturbed."""

from __future__ import annotations

import json
import pathlib
import subprocess
import sys
import tempfile
from collections.abc import Iterator

import pytest

PROGRAM = pathlib.Path(__file__).with_name("crashes.py")


@pytest.fixture
def folder(tmp_path: pathlib.Path) -> Iterator[pathlib.Path]:
    """A folder in memory where there is one: SIGKILL spares the kernel, so a disk would add nothing but time."""
    memory = pathlib.Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else tmp_path) as name:
        yield pathlib.Path(name)


@pytest.mark.parametrize(
    ("story", "every", "kills"),
    [
        pytest.param("forward", 1, 90, id="building: every boundary"),
        pytest.param("rollback", 5, 30, id="building, failing and rolling back: every fifth boundary"),
    ],
)
def test_killed_anywhere_the_next_run_puts_things_right(folder, story, every, kills):
    done = subprocess.run(
        [sys.executable, PROGRAM, folder, story, str(every)], capture_output=True, text=True, timeout=300, check=False
    )

    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["problems"] == []
    assert report["killed"] >= kills
