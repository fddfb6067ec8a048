"""One process per directory, and the second learns who the first is."""

from __future__ import annotations

import json
import os
import pathlib
import socket
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator

import pytest

from moorage.engine import errors, lock

PROGRAM = pathlib.Path(__file__).with_name("lockholder.py")
Start = Callable[[], "subprocess.Popen[str]"]


@pytest.fixture
def start(tmp_path: pathlib.Path) -> Iterator[Start]:
    """Starts a process that tries to hold the lock; its first line of output says whether it does."""
    children: list[subprocess.Popen[str]] = []

    def begin() -> subprocess.Popen[str]:
        command = [sys.executable, PROGRAM, tmp_path, "--token", "hunter2"]
        children.append(subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True))
        return children[-1]

    yield begin
    for child in children:
        child.kill()
        child.communicate()


def test_a_second_process_is_told_who_holds_the_lock(tmp_path, start):
    holder = start()
    assert holder.stdout.readline() == "held\n"

    with pytest.raises(errors.Locked) as locked, lock.held(tmp_path):
        pass

    assert f"process {holder.pid} on {socket.gethostname()}" in locked.value.message
    assert "lockholder.py" in locked.value.message
    assert "hunter2" not in locked.value.message


def test_of_two_processes_at_once_one_works_and_one_is_refused(start):
    both = [start(), start()]

    lines = sorted(child.stdout.readline() for child in both)

    assert ["held\n" in lines, sum("is in use by" in line for line in lines)] == [True, 1]


def test_a_dead_holders_lock_is_free(tmp_path, start):
    holder = start()
    assert holder.stdout.readline() == "held\n"
    holder.kill()
    holder.wait()

    with lock.held(tmp_path):
        written = json.loads((tmp_path / lock.FILE).read_text())

    assert written["pid"] == os.getpid()


def test_a_lock_given_up_can_be_taken_again(tmp_path):
    for _ in range(2):
        with lock.held(tmp_path):
            assert stat.S_IMODE((tmp_path / lock.FILE).stat().st_mode) == 0o600

    assert (tmp_path / lock.FILE).read_text() == ""


def test_a_lock_left_by_another_host_is_not_guessed_about(tmp_path):
    left = {
        "pid": 4711,
        "host": "elsewhere",
        "command": "moorage create cluster",
        "started": "2026-01-01T00:00:00+00:00",
    }
    (tmp_path / lock.FILE).write_text(json.dumps(left))

    with pytest.raises(errors.Locked, match="process 4711 on elsewhere") as locked, lock.held(tmp_path):
        pass

    assert str(tmp_path / lock.FILE) in locked.value.remedy
    with lock.held(tmp_path, take_over=True):
        assert "elsewhere" not in (tmp_path / lock.FILE).read_text()


@pytest.mark.parametrize("text", ["", "{", "[]", '{"pid": 1}', "null"])
def test_a_text_that_makes_no_sense_does_not_lock(tmp_path, text):
    (tmp_path / lock.FILE).write_text(text)

    with lock.held(tmp_path):
        pass


def test_a_folder_that_is_not_there_is_said_so(tmp_path):
    with pytest.raises(errors.Locked, match="cannot lock"), lock.held(tmp_path / "nowhere"):
        pass
