"""`moorage lab …` as its users type it: what it says, to people and to scripts, and what to do next when it fails."""

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
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from moorage.lab import client, lock

IDLE = b'{"ignition": {"version": "3.4.0"}}'


class Shell:
    """A user's shell, whose lab lives in ``folder``."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        clean = {name: value for name, value in os.environ.items() if not name.startswith("MOORAGE_")}
        self.environ = {**clean, "MOORAGE_LAB": str(folder)}

    def lab(self, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "moorage", "lab", *words],
            capture_output=True,
            text=True,
            check=False,
            env=self.environ,
            stdin=subprocess.DEVNULL,
        )

    def said(self, *words: str) -> str:
        """What a command that succeeds says, on either stream."""
        done = self.lab(*words)
        assert done.returncode == 0, done.stderr
        return done.stdout + done.stderr

    def refused(self, *words: str) -> list[str]:
        """The lines of a command that does not."""
        done = self.lab(*words)
        assert done.returncode == 1, done.stdout + done.stderr
        assert done.stdout == ""
        return done.stderr.splitlines()

    def told(self, *words: str) -> Any:
        done = self.lab(*words, "-o", "json")
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    def plain(self) -> client.Plain:
        return client.Plain(client.find(self.folder))

    def end(self) -> None:
        with contextlib.suppress(client.LabProblem):
            client.stop(client.find(self.folder))


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shell]:
    """One lab for the commands that leave it running."""
    shell = Shell(tmp_path_factory.mktemp("lab") / "it is here")
    shell.said("start", "--speed", "300")
    yield shell
    shell.end()


@pytest.fixture
def shell(shared: Shell) -> Shell:
    """The shared lab, emptied."""
    client.find(shared.folder).control("POST", "/lab/reset")
    return shared


@pytest.fixture
def alone(tmp_path: Path) -> Iterator[Shell]:
    """No lab yet."""
    shell = Shell(tmp_path / "lab")
    yield shell
    shell.end()


def test_from_start_to_stop(alone: Shell) -> None:
    began = time.monotonic()
    said = alone.said("start", "--speed", "77")
    assert time.monotonic() - began < 10
    assert "info: the lab is ready after " in said
    assert f"77 cloud seconds a second, in {alone.folder}" in said
    assert 'info: next: eval "$(moorage lab env)"' in said
    assert stat.S_IMODE(alone.folder.stat().st_mode) == 0o700
    pid = client.find(alone.folder).pid

    # Starting it twice changes nothing; at another speed it would have to
    assert "info: the lab runs already: " in alone.said("start")
    assert "info: the lab runs already: " in alone.said("start", "--speed", "77")
    assert alone.refused("start", "--speed", "78") == [
        "error: the lab runs already, at 77 cloud seconds a second",
        "next: stop it: moorage lab stop",
    ]
    assert client.find(alone.folder).pid == pid

    assert alone.said("stop") == "info: the lab has stopped\n"
    assert not lock.held(alone.folder)
    assert alone.said("stop") == f"info: no lab runs in {alone.folder}\n"


def test_without_a_lab_every_command_says_how_to_start_one(alone: Shell) -> None:
    for words in (["status"], ["env"], ["calls"], ["reset"], ["faults"], ["console", "m"], ["kubeconfig"]):
        assert alone.refused(*words) == [
            f"error: no lab runs in {alone.folder}",
            "next: start one: moorage lab start",
        ]
    assert not alone.folder.exists()


def test_a_lab_that_was_killed(alone: Shell) -> None:
    alone.said("start")
    os.kill(client.find(alone.folder).pid, signal.SIGKILL)
    while lock.held(alone.folder):
        time.sleep(0.01)

    assert alone.refused("status") == [
        f"error: the lab in {alone.folder} has died",
        "next: start a new one: moorage lab start",
    ]
    assert alone.said("stop") == f"info: the lab in {alone.folder} has died\n"
    assert not (alone.folder / "lab.json").exists()
    assert "is ready" in alone.said("start")
    assert alone.told("status")["machines"] == []


def test_two_labs_side_by_side(shell: Shell, alone: Shell) -> None:
    alone.said("start")
    here, there = shell.told("status"), alone.told("status")
    assert here["network"] != there["network"]
    assert here["speed"] != there["speed"]
    alone.said("stop")
    assert shell.told("status")["pid"] == here["pid"]


@pytest.mark.parametrize("speed", ["0", "-1", "nan", "inf", "fast", "1001"])
def test_speeds_that_are_none(alone: Shell, speed: str) -> None:
    done = alone.lab("start", "--speed", speed)
    assert done.returncode == 2
    assert "is not a number above 0 and up to 1000" in done.stderr
    assert not alone.folder.exists()


def test_status(shell: Shell) -> None:
    plain = shell.plain()
    address = plain.machine("m", IDLE, power="off")
    client.find(shell.folder).control("POST", "/lab/machines/m/partition")

    text = shell.said("status")
    assert "the lab: process " in text
    assert "300 cloud seconds a second, network 127." in text
    assert "; 2 calls, 0 fault rules, 0 records\n" in text
    assert text.endswith(f"machine m at {address}: off, cut off\n")
    told = shell.told("status")
    assert told["machines"][0]["name"] == "m"
    key = client.find(shell.folder).key
    assert key not in text + json.dumps(told)
    assert "key" not in told


def test_env_is_for_the_shell_to_evaluate(shell: Shell) -> None:
    script = 'eval "$("$0" -m moorage lab env)"; env'
    clean = {name: value for name, value in shell.environ.items() if not name.startswith("MOORAGE_CLOCK")}
    done = subprocess.run(["sh", "-c", script, sys.executable], env=clean, capture_output=True, text=True, check=True)
    have = dict(line.partition("=")[::2] for line in done.stdout.splitlines())

    lab = client.find(shell.folder)
    assert {name: have[name] for name in lab.environment} == lab.environment
    assert have["MOORAGE_LAB"] == str(shell.folder)  # with the blanks in it
    assert "export MOORAGE_LAB=" in shell.said("env")


def test_env_leaves_out_the_usual_folder(tmp_path: Path) -> None:
    usual = Shell(tmp_path / "moorage" / "lab")
    del usual.environ["MOORAGE_LAB"]
    usual.environ["XDG_STATE_HOME"] = str(tmp_path)
    try:
        usual.said("start")
        assert usual.folder.is_dir()
        text = usual.said("env")
        assert "MOORAGE_LAB" not in text
        assert "export MOORAGE_CLOCK_SPEED=60\n" in text
    finally:
        usual.end()


def test_reset(shell: Shell) -> None:
    shell.plain().machine("m", IDLE)
    assert shell.said("reset") == "info: the lab is empty\n"
    assert shell.told("status")["machines"] == []
    assert shell.told("calls") == []


def test_calls(shell: Shell) -> None:
    plain = shell.plain()
    plain.machine("m", IDLE, power="off")
    client.find(shell.folder).control("POST", "/lab/faults", {"action": "drop", "method": "DELETE"})
    with pytest.raises(client.LabProblem):
        plain.delete_machine("m")

    token, put, drop = shell.told("calls")
    assert (token["path"], put["path"], put["status"], put["who"]) == ("/v1/tokens", "/v1/machines/m", 200, "moorage")
    assert (drop["method"], drop["status"], drop["faults"]) == ("DELETE", None, ["drop"])
    lines = shell.said("calls", "--service", "plain", "--path", "/v1/machines/*").splitlines()
    assert [line.split()[2:] for line in lines] == [
        ["plain", "moorage:", "PUT", "/v1/machines/m", "->", "200", f"({put['seconds']:.1f}", "s)"],
        [
            "plain",
            "moorage:",
            "DELETE",
            "/v1/machines/m",
            "->",
            "no",
            "answer",
            f"({drop['seconds']:.1f}",
            "s)",
            "[drop]",
        ],
    ]
    assert [call["number"] for call in shell.told("calls", "--after", str(put["number"]))] == [drop["number"]]
    assert shell.told("calls", "--method", "PATCH") == []


def test_faults_of_apis(shell: Shell) -> None:
    assert shell.said("faults") == "info: no fault is in force\n"
    first = shell.said("faults", "add", "fail", "--path", "/v1/machines/*", "--status", "503", "--nth", "2")
    number = first.split()[2]
    assert f"lift it with: moorage lab faults remove {number}\n" in first
    shell.said("faults", "add", "delay", "--seconds", "3", "--service", "plain", "--times", "4")

    (fail, delay) = shell.told("faults")
    assert (fail["action"], fail["path"], fail["status"], fail["nth"], fail["remaining"]) == (
        "fail",
        "/v1/machines/*",
        503,
        2,
        1,
    )
    assert (delay["seconds"], delay["remaining"]) == (3, 4)
    text = shell.said("faults")
    assert f"{number} fail * * /v1/machines/*: from match 2, 1 more; matched 0, struck 0\n" in text
    assert shell.said("faults", "remove", number) == f"info: fault {number} is lifted\n"
    assert shell.refused("faults", "remove", number) == [
        f"error: there is no fault rule {number} (404)",
        "next: see: moorage lab faults",
    ]
    assert shell.refused("faults", "add", "drop", "--status", "500")[0] == "error: status says nothing about drop (422)"
    assert shell.said("faults", "clear") == "info: no fault is in force\n"
    assert shell.told("faults") == []


def test_faults_of_machines(shell: Shell) -> None:
    address = shell.plain().machine("m", IDLE)
    for blow, state in (
        ("partition", "booting, cut off"),
        ("heal", "booting"),
        ("kill", "off"),
        ("start", "booting"),
        ("reboot", "booting"),
    ):
        said = shell.said("faults", blow, "m").replace("running", "booting")  # as fast as it boots
        assert said == f"info: machine m at {address}: {state}\n"
    assert shell.refused("faults", "kill", "no such/machine") == [
        "error: there is no machine no such/machine (404)",
        "next: machines: m",
    ]
    assert "network: link is down\n" in shell.said("console", "m")
    assert shell.refused("console", "x")[0] == "error: there is no machine x (404)"


def test_quotas_and_tokens(shell: Shell) -> None:
    assert shell.said("faults", "quota", "machines=1", "records=0") == "info: quotas: machines=1, records=0\n"
    assert shell.told("status")["quotas"] == {"machines": 1, "records": 0}
    plain = shell.plain()
    plain.machine("a", IDLE, power="off")
    with pytest.raises(client.LabProblem, match="quota exceeded for machines"):
        plain.machine("b", IDLE)
    assert shell.said("faults", "quota", "machines=", "records=") == "info: quotas: none\n"
    plain.machine("b", IDLE, power="off")
    done = shell.lab("faults", "quota", "machines")
    assert (done.returncode, "'machines' is not THING=N" in done.stderr) == (2, True)
    assert shell.said("faults", "expire-tokens").endswith(" sessions have ended\n")
    plain.machine("a", IDLE, power="off")  # with a new token


def test_no_kubeconfig_without_a_cluster(shell: Shell) -> None:
    assert shell.refused("kubeconfig") == ["error: there is no cluster in the lab (404)", "next: run: moorage demo"]


def test_the_console_shows_what_ignition_says(shell: Shell) -> None:
    shell.plain().machine("m", b'{"ignition": {"version": "1.0.0"}}')
    while shell.told("status")["machines"][0]["state"] != "failed":
        time.sleep(0.05)
    assert "entering emergency mode\n" in shell.said("console", "m")


@pytest.mark.needs("root", "setpriv")
def test_who_may_not_have_low_ports_is_told_where_services_are(alone: Shell) -> None:
    less = [str(shutil.which("setpriv")), "--bounding-set=-net_bind_service", "--inh-caps=-net_bind_service"]
    started = subprocess.run(
        [*less, sys.executable, "-m", "moorage", "lab", "start"],
        env=alone.environ,
        capture_output=True,
        text=True,
        check=False,
    )
    assert started.returncode == 0, started.stderr
    assert "services of a port n below 1024 are at n + 10000\n" in alone.said("status")
    assert alone.told("status")["privileged"] is False
    front = alone.plain().balancer("front", [{"port": 443, "members": []}])
    # With nobody behind it the balancer hangs up, maybe before we are through; what matters is that it listens there.
    with contextlib.suppress(ConnectionResetError):
        socket.create_connection((front, 10443), timeout=5).close()


def test_an_image_to_boot_from_is_written_once(shell: Shell, tmp_path: Path) -> None:
    image = tmp_path / "coreos.qcow2"

    said = shell.said("image", str(image))

    assert image.read_bytes()[:4] == b"QFI\xfb"
    assert said == f"info: next: export OPENSHIFT_INSTALL_OS_IMAGE_OVERRIDE={image}\n"
    assert shell.refused("image", str(image)) == [f"error: {image}: File exists", "next: name another file"]
