"""`moorage machines`: every machine in a line, and what it waits for in a person's words."""

from __future__ import annotations

import contextlib
import dataclasses
import io
import json
import os
import pty
import signal
import subprocess
import sys
import termios
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from rich import console

from moorage.cli import cluster_access, machines, main
from moorage.engine import clock as clocks
from moorage.machines import overview
from moorage.machines.runtime import kinds
from tests.kube import calls, embedded
from tests.unit.machines import memory
from tests.unit.machines import test_approval as rules
from tests.unit.machines.test_overview import LINKED, NAME, NOW, SPACE, machine, node, of_set


def cluster() -> memory.Memory:
    api = memory.Memory(clocks.ManualClock(wall=NOW))
    up = {"providerStatus": {"instanceState": "up"}}
    api.put(kinds.MACHINE, of_set(machine(NAME, "Running", **LINKED, **up), "workers"))
    api.put(kinds.MACHINE, of_set(machine(rules.OTHER, "Provisioned", **up), "workers"))
    api.put(kinds.MACHINE, machine("berth-master-0", "Running", nodeRef={"name": "berth-master-0"}))
    api.put(kinds.NODE, node())
    counts = {"replicas": 2, "readyReplicas": 1}
    api.put(
        kinds.MACHINE_SET,
        {"metadata": {"name": "workers", "namespace": SPACE}, "spec": {"replicas": 3}, "status": counts},
    )
    return api


@pytest.fixture
def shown(monkeypatch: pytest.MonkeyPatch) -> memory.Memory:
    api = cluster()

    @contextlib.contextmanager
    def connected(*_: Any) -> Iterator[Any]:
        yield api

    monkeypatch.setattr(cluster_access, "connected", connected)
    monkeypatch.setattr(clocks, "from_environment", lambda: api.clock)
    return api


def test_a_plain_table_where_there_is_no_terminal(shown: memory.Memory, capsys: pytest.CaptureFixture[str]) -> None:
    assert main.main(["machines"]) == 0

    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "workers: 3 wanted, 2 there, 1 ready"
    assert lines[1].split() == ["SET", "MACHINE", "PHASE", "NODE", "INSTANCE", "AGE", "WAITS", "FOR"]
    assert lines[2].split()[:6] == ["-", "berth-master-0", "Running", "berth-master-0", "-", "20"]
    assert lines[3].split() == ["workers", NAME, "Running", NAME, "up", "20", "min"]
    assert lines[4].endswith("to become a node: it has not asked for a certificate yet")
    starts = {
        line.index(word) for line, word in zip(lines[1:5], ("PHASE", "Running", "Running", "Provisioned"), strict=True)
    }
    assert len(starts) == 1, "the columns are not straight"


def test_json_for_scripts(shown: memory.Memory, capsys: pytest.CaptureFixture[str]) -> None:
    assert main.main(["machines", "-o", "json"]) == 0

    found = json.loads(capsys.readouterr().out)
    assert found["sets"] == [{"name": "workers", "wanted": 3, "present": 2, "ready": 1}]
    assert found["machines"][1] == {
        "set": "workers",
        "machine": NAME,
        "phase": "Running",
        "node": NAME,
        "instance": "up",
        "seconds": 1200.0,
        "why": "",
    }


def test_a_cluster_without_machines_says_so(capsys: pytest.CaptureFixture[str], shown: memory.Memory) -> None:
    shown.objects.clear()

    assert main.main(["machines"]) == 0

    assert capsys.readouterr().out == "there are no machines\n"


def test_a_screen_shows_the_same_and_says_when_it_is_old() -> None:
    found = overview.overview([machine(phase="Failed", errorMessage="no [template] here")], [], [], [], NOW)
    screen = console.Console(file=io.StringIO(), width=140)

    screen.print(machines.drawn(found, silent=90))

    words = screen.file.getvalue()  # type: ignore[attr-defined]
    assert "no word from the cluster for 1 min 30 s" in words
    assert "no [template] here" in words, "what others wrote is no markup"


@pytest.mark.parametrize(
    ("width", "missing"),
    [
        (200, set()),
        (110, {"NODE"}),
        (80, {"NODE", "SET"}),
        (75, {"NODE", "SET", "AGE"}),
        (20, {"NODE", "SET", "AGE", "INSTANCE"}),
    ],
)
def test_a_narrow_screen_keeps_what_matters(width: int, missing: set[str]) -> None:
    waiting = machine(phase="Provisioning", lastOperation={"state": "Failed", "description": "no host has room"})
    found = overview.overview([of_set(waiting, "berth-x7k2p-worker-0")], [], [], [], NOW)
    (row,) = found.machines
    row = dataclasses.replace(row, node=row.machine, instance="image_locked")
    found = dataclasses.replace(found, machines=(row,))
    screen = console.Console(file=io.StringIO(), width=width)

    screen.print(machines.drawn(found, width=width))

    heading, *_ = screen.file.getvalue().splitlines()  # type: ignore[attr-defined]
    assert machines.fitting([machines.cells(row)], width) == [
        column for column, word in enumerate(machines.HEADINGS) if word not in missing
    ]
    if width >= 70:
        words = heading.replace(machines.HEADINGS[-1], "").split()
        assert words == [word for word in machines.HEADINGS[:-1] if word not in missing], "none is cut"


def test_on_the_narrowest_screen_names_are_broken_so_that_the_reason_is_seen() -> None:
    name = "harbour-x7k2p-worker-0-abcde"
    reason = "no host has room"
    waiting = machine(name, "Provisioning", lastOperation={"state": "Failed", "description": reason})
    screen = console.Console(file=io.StringIO(), width=40)

    screen.print(machines.drawn(overview.overview([waiting], [], [], [], NOW), width=40))

    _, *body = screen.file.getvalue().splitlines()  # type: ignore[attr-defined]
    first = body[0].partition("Provisioning")[0]
    assert "".join(line[: len(first)].strip() for line in body) == name
    assert " ".join(" ".join(body).split("Provisioning")[1].split()).startswith("no host")
    assert all(word in " ".join(body) for word in reason.split())
    assert all(len(line) <= 40 for line in body)


def test_what_others_wrote_does_not_tear_the_table(shown: memory.Memory, capsys: pytest.CaptureFixture[str]) -> None:
    torn = machine("m", "Provisioning", lastOperation={"state": "Failed", "description": "no\nroom\t\x1b[2Jhere\x07\r"})
    shown.put(kinds.MACHINE, torn)

    assert main.main(["machines"]) == 0

    (line,) = [line for line in capsys.readouterr().out.split("\n") if " m " in line]
    assert line.endswith("no room [2Jhere")


@pytest.mark.needs("kubectl")
def test_on_a_terminal_it_follows_the_cluster_until_ctrl_c(tmp_path: Path) -> None:
    with embedded.running(tmp_path) as made:
        _serve_machines(made.admin)
        ours, theirs = pty.openpty()
        command = [sys.executable, "-m", "moorage", "machines", f"--kubeconfig={made.kubeconfig()}"]
        environ = {**os.environ, "TERM": "xterm", "COLUMNS": "160", "LINES": "40"}
        process = subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, env=environ)
        os.set_blocking(ours, False)
        screen = bytearray()

        def seen(words: bytes) -> bool:
            assert process.poll() is None, screen.decode(errors="replace")
            with contextlib.suppress(OSError):
                screen.extend(os.read(ours, 65536))
            return words in screen

        try:
            calls.eventually(lambda: seen(b"there are no machines"), "it draws", 30)
            body = {"apiVersion": "machine.openshift.io/v1beta1", "kind": "Machine", "spec": {}}
            body["metadata"] = {"name": "late-one", "namespace": SPACE}
            made.admin.post(f"/apis/machine.openshift.io/v1beta1/namespaces/{SPACE}/machines", body).got(201)
            calls.eventually(lambda: seen(b"late-one"), "it follows", 30)
            assert not _echoes(theirs), "what is typed would disturb the table"
            process.send_signal(signal.SIGINT)
            assert process.wait(20) == 0
            assert _echoes(theirs), "the terminal is left as it was found"
        finally:
            if process.poll() is None:
                process.kill()
            process.wait()
            os.close(ours)
            os.close(theirs)


def _echoes(terminal: int) -> bool:
    return bool(termios.tcgetattr(terminal)[3] & termios.ECHO)


@pytest.mark.needs("kubectl")
def test_a_cluster_without_the_machine_api_is_told_from_one_without_machines(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with embedded.running(tmp_path) as made:
        assert main.main(["machines", f"--kubeconfig={made.kubeconfig()}"]) == 1

    said = capsys.readouterr().err
    assert "this cluster has no machines.machine.openshift.io" in said
    assert "next: give the kubeconfig of another cluster" in said


def _serve_machines(admin: calls.Caller) -> None:
    from moorage.lab.nodes import payload

    for definition in payload.definitions():
        if str(definition["metadata"]["name"]).startswith(("machines.machine", "machinesets.machine")):
            admin.post("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", definition).got(201)
    admin.post("/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": SPACE}}).got(201)
    path = f"/apis/machine.openshift.io/v1beta1/namespaces/{SPACE}/machinesets"
    calls.eventually(lambda: admin.get(path).code == 200, "machines are served")
