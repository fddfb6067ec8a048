"""Files replaced as a whole, configs judged first, signals for the right process only."""

from __future__ import annotations

import signal
import subprocess
import time
from pathlib import Path

import pytest

from moorage.network import programs


def test_a_file_is_replaced_as_a_whole_with_its_mode(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "file"
    programs.write(path, "old", 0o600)
    with path.open() as held:
        programs.write(path, "new", 0o755)
        assert held.read() == "old", "who reads it now is not disturbed"

    assert path.read_text() == "new"
    assert path.stat().st_mode & 0o777 == 0o755
    assert [each.name for each in path.parent.iterdir()] == ["file"]


def test_a_file_that_cannot_be_written_stays_and_leaves_nothing_behind(tmp_path: Path) -> None:
    path = tmp_path / "file"
    programs.write(path, "old")

    with pytest.raises(UnicodeEncodeError):
        programs.write(path, "\udcff")

    assert path.read_text() == "old"
    assert [each.name for each in tmp_path.iterdir()] == ["file"]


def test_a_program_judges_what_would_be_written(tmp_path: Path) -> None:
    path = tmp_path / "config"
    judge = ("sh", "-c", 'grep -q good "$0" || { echo "one"; echo "line 1: bad" >&2; exit 3; }')

    assert programs.objection(judge, path, "good") == ""
    assert programs.objection(judge, path, "evil") == "one; line 1: bad"
    assert list(tmp_path.iterdir()) == []


def test_a_program_that_says_nothing_or_is_not_there_has_an_objection_all_the_same(tmp_path: Path) -> None:
    assert programs.objection(("false",), tmp_path / "x", "") == "false ended with 1"
    assert "cannot be asked" in programs.objection(("/no/such/program",), tmp_path / "x", "")


def test_signals_reach_the_program_of_the_pid_file_and_no_other(tmp_path: Path) -> None:
    path = tmp_path / "pid"
    with subprocess.Popen(["sleep", "60"]) as process:
        path.write_text(f"{process.pid}\n")
        while not Path(f"/proc/{process.pid}/cmdline").read_bytes():
            time.sleep(0.01)  # it has begun, and is yet to be given its words

        assert not programs.tell("keepalived", path, signal.SIGTERM), "that number is somebody else's now"
        assert process.poll() is None
        assert programs.tell("sleep", path, signal.SIGTERM)
        assert process.wait(10) == -signal.SIGTERM
    assert not programs.tell("sleep", path, signal.SIGTERM)


@pytest.mark.parametrize("text", ["", "x", "0", str(2**22 + 5)])
def test_a_pid_file_with_nonsense_is_nobody(tmp_path: Path, text: str) -> None:
    path = tmp_path / "pid"
    path.write_text(text)

    assert programs.pid("sleep", path) is None
    assert programs.pid("sleep", tmp_path / "none") is None
