"""The helpers of the lab's stories: how fast a lab may run, what a program has said, and controllers that are stopped.

They are tried by themselves, as a story in which they fail tells of a busy computer and of nothing else.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.lab import fleet_scene, rack


@pytest.mark.parametrize(
    ("load", "beside", "cores", "speed"),
    [
        pytest.param(0.5, "1", {0, 1}, 60.0, id="nobody else"),
        pytest.param(0.5, None, {0, 1}, 60.0, id="not with others at all"),
        pytest.param(4.0, "1", {0, 1}, 60.0, id="as busy as it may be"),
        pytest.param(8.0, "1", {0, 1}, 30.0, id="twice as busy"),
        pytest.param(8.0, "1", {0, 1, 2, 3}, 60.0, id="on twice the cores"),
        pytest.param(2.0, "1", {5}, 60.0, id="on one of many cores"),
        pytest.param(4.0, "1", {5}, 30.0, id="twice as busy on one of many cores"),
        pytest.param(0.0, "8", {0, 1}, 30.0, id="others have just begun"),
        pytest.param(99.0, "8", {0, 1}, 10.0, id="the slowest"),
    ],
)
def test_a_lab_is_as_fast_as_this_process_can_follow(
    load: float, beside: str | None, cores: set[int], speed: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "getloadavg", lambda: (load, 0.0, 0.0))
    monkeypatch.setattr(os, "sched_getaffinity", lambda _process: cores)
    monkeypatch.delenv("PYTEST_XDIST_WORKER_COUNT", raising=False)
    if beside is not None:
        monkeypatch.setenv("PYTEST_XDIST_WORKER_COUNT", beside)

    assert rack.bearable(60.0) == speed


def said_by(code: str) -> subprocess.Popen[str]:
    return subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)


def test_nothing_of_what_a_program_says_is_lost() -> None:
    with said_by(r"import sys; sys.stdout.write('one\ntwo\nthree\n')") as process:
        assert rack.heard(process, "one") == "one\n"

        assert rack.rest(process, 60) == "two\nthree\n"
    assert process.returncode == 0


def test_a_program_that_does_not_end_is_told_with_what_it_said() -> None:
    with said_by(r"import time; print('one\ntwo', flush=True); time.sleep(600)") as process:
        rack.heard(process, "one")

        with pytest.raises(AssertionError, match=r"it did not end within 2 s:\ntwo\n"):
            rack.rest(process, 2)
    assert process.returncode == -signal.SIGKILL


#: The first lives, as many as is said, lose their lease whatever they are told; the others end as they are told to.
LIFE = """
import pathlib, signal, sys, time
marks, losing, code = pathlib.Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
life = len(list(marks.iterdir()))
(marks / str(life)).touch()
signal.signal(signal.SIGTERM, signal.SIG_IGN if life < losing else lambda *_: sys.exit(code))
print("at work", flush=True)
if life < losing:
    print("error: this process leads no longer: the lease is over", flush=True)
    sys.exit(1)
time.sleep(600)
"""


def controllers(folder: Path, losing: int, code: int) -> fleet_scene.Controllers:
    (marks := folder / "lives").mkdir()
    words = [sys.executable, "-c", LIFE, str(marks), str(losing), str(code)]
    scene = SimpleNamespace(folder=folder, environ={}, command=lambda *_: words)
    return fleet_scene.Controllers(scene, folder / "kubeconfig")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("losing", "code", "found", "lives"),
    [
        pytest.param(0, 0, 0, {1}, id="it ends well"),
        pytest.param(0, 5, 5, {1}, id="it ends badly"),
        pytest.param(1, 0, 0, {2}, id="the next one ends well"),
        pytest.param(1, 5, 5, {2}, id="the next one ends badly"),
        pytest.param(99, 0, 1, {3, 4}, id="nobody keeps a lease"),
    ],
)
def test_controllers_that_lose_their_lease_as_they_are_stopped_are_stopped_in_their_next_life(
    tmp_path: Path, losing: int, code: int, found: int, lives: set[int]
) -> None:
    stopped = controllers(tmp_path, losing, code)
    stopped.start()

    assert stopped.stop() == found
    assert len(list((tmp_path / "lives").iterdir())) in lives
