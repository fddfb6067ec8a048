"""The lab as a process: found, started, stopped, killed and deserted; what it keeps secret, and where it listens."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import socket
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from moorage.lab import client, lock

SPEED = 300.0


@contextlib.contextmanager
def running(folder: Path, speed: float = SPEED) -> Iterator[client.Lab]:
    lab = client.start(folder, speed)
    try:
        yield lab
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(lab.pid, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):
            os.waitpid(lab.pid, 0)


def gone(lab: client.Lab) -> None:
    """Wait for the process to end, as its parent does."""
    with contextlib.suppress(ChildProcessError):
        os.waitpid(lab.pid, 0)


def sockets(pid: int) -> set[tuple[str, str]]:
    """What a process listens on: protocol and address, from the kernel's own tables."""
    links = [str(each.readlink()) for each in Path(f"/proc/{pid}/fd").iterdir() if each.is_symlink()]
    ours = {link[8:-1] for link in links if link.startswith("socket:[")}
    found = set()
    for protocol in ("tcp", "tcp6", "udp", "udp6"):
        for line in Path(f"/proc/{pid}/net/{protocol}").read_text().splitlines()[1:]:
            words = line.split()
            # 0A is a listening TCP socket, 07 a UDP one.
            if words[9] in ours and words[3] in ("0A", "07"):
                found.add((protocol, socket.inet_ntoa(bytes.fromhex(words[1].partition(":")[0])[::-1])))
    return found


def test_its_folder_is_its_own_and_its_key_stays_there(tmp_path: Path) -> None:
    with running(tmp_path / "deep" / "lab") as lab:
        folder = lab.folder
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        assert {each.name: stat.S_IMODE(each.stat().st_mode) for each in folder.iterdir()} == {
            "lab.json": 0o600,
            "lab.log": 0o600,
            "lock": 0o600,
            "ovirt-ca.pem": 0o600,
            "ovirt-config.yaml": 0o600,
        }
        about = json.loads((folder / "lab.json").read_text())
        assert about["key"] == lab.key
        assert len(lab.key) > 30
        assert lab.key not in json.dumps(lab.control("GET", "/lab"))
        client.Plain(lab).call("GET", "/v1/machines")
        for name in ("cmdline", "environ"):
            assert lab.key not in Path(f"/proc/{lab.pid}/{name}").read_text()
        client.stop(lab)
        gone(lab)
        assert lab.key not in (folder / "lab.log").read_text()
        assert sorted(each.name for each in folder.iterdir()) == ["lab.log", "lock"]


def test_it_listens_on_loopback_alone_and_stops_without_a_trace(tmp_path: Path) -> None:
    with running(tmp_path) as lab:
        plain = client.Plain(lab)
        plain.machine("m", b"{}")
        plain.balancer("front", [{"port": 7001, "members": []}])
        found = sockets(lab.pid)
        assert {protocol for protocol, _ in found} == {"tcp", "udp"}
        assert len(found) >= 4  # the claim, the names twice, the APIs, the balancer
        assert not [address for _, address in found if not address.startswith("127.")]

        client.stop(lab)
        gone(lab)
        assert not Path(f"/proc/{lab.pid}").exists()
        assert not lock.held(tmp_path)
        assert "the lab has stopped" in (tmp_path / "lab.log").read_text()
        with pytest.raises(client.NotThere, match="no lab runs"):
            client.find(tmp_path)
        client.stop(lab)  # who comes late finds it stopped


def test_it_stops_when_told_by_signal(tmp_path: Path) -> None:
    with running(tmp_path) as lab:
        os.kill(lab.pid, signal.SIGTERM)
        _, status = os.waitpid(lab.pid, 0)
        assert os.waitstatus_to_exitcode(status) == 0
        assert not (tmp_path / "lab.json").exists()


def test_a_lab_that_was_killed_is_known_to_be_dead_and_another_takes_its_place(tmp_path: Path) -> None:
    with running(tmp_path) as lab:
        os.kill(lab.pid, signal.SIGKILL)
        gone(lab)
        with pytest.raises(client.Died, match="has died") as died:
            client.find(tmp_path)
        assert died.value.remedy == "start a new one: moorage lab start"
        with running(tmp_path, 5.0) as second:
            assert (second.speed, second.key != lab.key) == (5.0, True)
            assert client.find(tmp_path) == second


def test_a_lab_whose_folder_is_gone_goes_too(tmp_path: Path) -> None:
    with running(tmp_path / "lab") as lab:
        shutil.rmtree(tmp_path / "lab")
        deadline = time.monotonic() + 10
        while os.waitpid(lab.pid, os.WNOHANG) == (0, 0):
            assert time.monotonic() < deadline
            time.sleep(0.02)
        assert not (tmp_path / "lab").exists()


OWNER = """
import sys, time
from pathlib import Path
from moorage.lab import client, owner
with owner.owned(Path(sys.argv[1])):
    print(client.start(Path(sys.argv[1]), 300.0).pid, flush=True)
    sys.stdin.readline()
"""


@contextlib.contextmanager
def somebody_with_a_lab(folder: Path) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """A process that owns a lab and waits for a word, and the lab's process."""
    with subprocess.Popen(
        [sys.executable, "-c", OWNER, str(folder)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as owner:
        assert owner.stdout
        lab = int(owner.stdout.readline())
        try:
            yield owner, lab
        finally:
            owner.kill()
            with contextlib.suppress(ProcessLookupError):
                os.kill(lab, signal.SIGKILL)


def until(true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_a_lab_dies_with_its_owner_and_makes_room_for_another(tmp_path: Path) -> None:
    with somebody_with_a_lab(tmp_path) as (owner, _):
        owner.kill()
        until(lambda: not lock.held(tmp_path))
        assert "whoever this lab was for has died" in (tmp_path / "lab.log").read_text()

    with running(tmp_path) as lab:
        time.sleep(2.5)  # it looks every second
        assert client.find(tmp_path).pid == lab.pid, "it was not made for whoever died"


def test_a_lab_lives_on_when_its_owner_ends_in_good_order(tmp_path: Path) -> None:
    with somebody_with_a_lab(tmp_path) as (owner, lab):
        owner.communicate("enough\n", timeout=30)
        assert owner.returncode == 0
        time.sleep(2.5)  # it looks every second
        assert client.find(tmp_path).pid == lab


def test_only_one_of_two_starters_has_a_lab(tmp_path: Path) -> None:
    with running(tmp_path) as lab:
        said = (tmp_path / "lab.log").read_text()
        with pytest.raises(client.LabProblem, match=r"a lab runs in .* already") as refused:
            client.start(tmp_path, SPEED)
        assert refused.value.remedy == "see: moorage lab status"
        assert client.find(tmp_path) == lab
        assert (tmp_path / "lab.log").read_text().startswith(said)  # the log of who lives there is not emptied


def test_labs_live_side_by_side(tmp_path: Path) -> None:
    with running(tmp_path / "a") as first, running(tmp_path / "b", 7.0) as second:
        assert first.network != second.network
        addresses = [client.Plain(lab).machine("m", b"{}") for lab in (first, second)]
        assert len(set(addresses)) == 2
        client.stop(first)
        assert [each["name"] for each in client.Plain(second).machines()] == ["m"]


def test_it_begins_when_its_environment_says(tmp_path: Path) -> None:
    with running(tmp_path, 500.0) as lab:
        assert sorted(lab.environment) == [
            "MOORAGE_CLOCK_EPOCH",
            "MOORAGE_CLOCK_SPEED",
            "MOORAGE_RESOLVER",
            "OVIRT_CONFIG",
        ]
        assert float(lab.environment["MOORAGE_CLOCK_SPEED"]) == 500
        assert 0 <= time.time() - float(lab.environment["MOORAGE_CLOCK_EPOCH"]) < 60
        address = lab.environment["MOORAGE_RESOLVER"].partition(":")[0]
        assert address.startswith("127.")


def test_why_it_does_not_start_is_told(tmp_path: Path) -> None:
    # Given a port that a cluster needs, and that somebody else holds on every address
    with socket.create_server(("0.0.0.0", 0)) as held:  # noqa: S104 - that is the story
        port = held.getsockname()[1]
        script = (
            f"import runpy, sys; from moorage.lab import site; site._CLUSTER_PORTS = ({port},);"
            f"sys.argv[1:] = [{str(tmp_path)!r}, '1']; runpy.run_module('moorage.lab', run_name='__main__')"
        )
        ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert ended.returncode == 1
    (tmp_path / "lab.log").write_text(f"something before\n{ended.stderr}")

    problem = client._not_started(tmp_path / "lab.log")

    taken = f"port {port} is taken on every address of this machine, so no cluster can come up here"
    assert problem.message == f"the lab did not start: {taken}"
    assert problem.remedy == f"stop what listens on it (see: ss -tlnp 'sport = {port}')"
    assert not lock.held(tmp_path)


def test_a_lab_that_crashes_at_once_leads_to_its_log(tmp_path: Path) -> None:
    for text, words in (("", "it said nothing"), ("Traceback\nValueError: x", "ValueError: x")):
        (tmp_path / "lab.log").write_text(text)
        problem = client._not_started(tmp_path / "lab.log")
        assert (problem.message, problem.remedy) == (f"the lab did not start: {words}", f"see {tmp_path / 'lab.log'}")


def test_a_folder_that_cannot_be(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(client.LabProblem, match=r"a lab cannot live in .*: Not a directory") as refused:
        client.start(tmp_path / "file" / "lab", SPEED)
    assert "MOORAGE_LAB" in refused.value.remedy


def test_a_description_nobody_understands(tmp_path: Path) -> None:
    for text in ("{", "[]", "{}", '{"pid": 1}'):
        (tmp_path / "lab.json").write_text(text)
        with pytest.raises(client.NotThere):
            client.find(tmp_path)
        with lock.alone(tmp_path), pytest.raises(client.LabProblem, match="is not ready"):
            client.find(tmp_path)


def test_looking_does_not_keep_anybody_from_starting(tmp_path: Path) -> None:
    over = threading.Event()

    def look() -> None:
        while not over.is_set():
            lock.held(tmp_path)

    (tmp_path / "lock").touch(mode=0o600)
    looking = threading.Thread(target=look)
    looking.start()
    try:
        for _ in range(50):
            with lock.alone(tmp_path):
                pass
    finally:
        over.set()
        looking.join()


@pytest.mark.parametrize(
    ("environ", "folder"),
    [
        ({"MOORAGE_LAB": "/a/b"}, "/a/b"),
        ({"MOORAGE_LAB": "x"}, str(Path("x").absolute())),
        ({"XDG_STATE_HOME": "/state"}, "/state/moorage/lab"),
        ({"MOORAGE_LAB": ""}, str(Path.home() / ".local/state/moorage/lab")),
    ],
)
def test_where_it_lives(environ: dict[str, str], folder: str) -> None:
    assert str(client.folder(environ)) == folder


def test_the_client_gets_a_new_token_when_the_old_one_has_run_out(tmp_path: Path) -> None:
    with running(tmp_path) as lab:
        plain = client.Plain(lab)
        plain.machine("m", b"{}", power="off")
        lab.control("POST", "/lab/tokens/expire")
        assert [each["name"] for each in plain.machines()] == ["m"]
        called = [(call["path"], call["status"]) for call in lab.control("GET", "/lab/calls")]
        assert called[-3:] == [("/v1/machines?after=", 401), ("/v1/tokens", 200), ("/v1/machines?after=", 200)]
        with pytest.raises(client.LabProblem, match=r"is no name \(422\)"):
            plain.machine("No/../Name", b"{}")
        lab.control("POST", "/lab/faults", {"action": "drop", "service": "plain"})
        with pytest.raises(client.LabProblem, match="does not answer") as dropped:
            plain.console("m")
        assert dropped.value.remedy == "see: moorage lab status"
