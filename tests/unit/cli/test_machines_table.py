"""`moorage machines`: every machine in a line, and what it waits for in a person's words."""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
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
from moorage.machines import approval, overview
from moorage.machines.runtime import kinds
from tests.kube import calls, embedded
from tests.unit.machines import memory
from tests.unit.machines import test_approval as rules

SPACE, NAME = "openshift-machine-api", rules.NODE
NOW = rules.ASKED
MADE = memory.stamp(rules.MADE)


def machine(name: str = NAME, phase: str = "", *, deleted: bool = False, **status: Any) -> dict[str, Any]:
    metadata = {"name": name, "namespace": SPACE, "creationTimestamp": MADE}
    metadata |= {"deletionTimestamp": MADE, "finalizers": ["x"]} if deleted else {}
    return {"metadata": metadata, "spec": {}, "status": {**({"phase": phase} if phase else {}), **status}}


def of_set(found: dict[str, Any], name: str) -> dict[str, Any]:
    owner = {"kind": "MachineSet", "name": name, "controller": True}
    return {**found, "metadata": {**found["metadata"], "ownerReferences": [owner]}}


def node(status: str = "True", message: str = "", *, cordoned: bool = False) -> dict[str, Any]:
    ready = {"type": "Ready", "status": status, "message": message}
    spec = {"unschedulable": True} if cordoned else {}
    return {"metadata": {"name": NAME}, "spec": spec, "status": {"conditions": [ready]}}


def condition(kind: str, status: str, message: str) -> dict[str, str]:
    return {"type": kind, "status": status, "message": message}


LINKED = {"nodeRef": {"name": NAME}}


@pytest.mark.parametrize(
    ("found", "nodes", "why"),
    [
        (machine(), [], "for a controller to look at it: nobody has yet, so see whether moorage machine-api runs"),
        (
            machine(phase="Provisioning", lastOperation={"state": "Processing", "description": "waiting for its disk"}),
            [],
            "waiting for its disk",
        ),
        (
            machine(phase="Provisioning", lastOperation={"state": "Failed", "description": "the engine is locked"}),
            [],
            "the engine is locked",
        ),
        (
            machine(phase="Provisioning", conditions=[condition("InstanceExists", "False", "Instance not created")]),
            [],
            "Instance not created",
        ),
        (machine(phase="Provisioning"), [], "its instance to be complete"),
        (
            machine(phase="Provisioned", lastOperation={"state": "Successful", "description": "complete"}),
            [],
            "to become a node: it has not asked for a certificate yet",
        ),
        (machine(phase="Running", **LINKED), [node()], ""),
        (machine(phase="Running", **LINKED), [], f"node {NAME} is gone"),
        (
            machine(phase="Running", **LINKED),
            [node("Unknown", "it stopped posting")],
            "its node is not ready: it stopped posting",
        ),
        (machine(phase="Running", **LINKED), [node(cordoned=True)], "its node takes no pods: it is cordoned"),
        (
            machine(
                phase="Running", conditions=[condition("InstanceExists", "Unknown", "the engine is away")], **LINKED
            ),
            [node()],
            "the engine is away",
        ),
        (
            machine(phase="Provisioned", conditions=[condition("InstanceExists", "Unknown", "the engine is away")]),
            [],
            "the engine is away",
        ),
        (
            machine(conditions=[condition("InstanceExists", "Unknown", "label x is missing")]),
            [],
            "label x is missing",
        ),
        *(
            (
                machine(
                    phase="Running", deleted=deleted, conditions=[condition("Paused", "True", "ClusterAPI")], **LINKED
                ),
                [node()],
                "somebody else keeps it: ClusterAPI",
            )
            for deleted in (False, True)
        ),
        (machine(phase="Running", conditions=[condition("Paused", "False", "x")], **LINKED), [node()], ""),
        (machine(phase="Failed", errorMessage="no such template"), [], "no such template"),
        (
            machine(
                phase="Deleting",
                deleted=True,
                conditions=[condition("Drainable", "False", "blocked by: backup"), condition("Drained", "False", "no")],
            ),
            [],
            "blocked by: backup",
        ),
        (
            machine(
                phase="Deleting",
                deleted=True,
                conditions=[
                    condition("Drainable", "True", ""),
                    condition("Drained", "False", "pod a/b: a budget forbids it"),
                ],
            ),
            [],
            "pod a/b: a budget forbids it",
        ),
        (
            machine(phase="Deleting", deleted=True, conditions=[condition("Drained", "True", "")]),
            [],
            "its instance to be gone",
        ),
        (machine(phase="Running", deleted=True, **LINKED), [node()], "its instance to be gone"),
        (
            machine(
                phase="Deleting",
                deleted=True,
                lastOperation={"type": "Update", "state": "Processing", "description": "to be switched on"},
            ),
            [],
            "its instance to be gone",
        ),
        (
            machine(
                phase="Deleting",
                deleted=True,
                lastOperation={"type": "Delete", "state": "Failed", "description": "the engine is locked"},
            ),
            [],
            "the engine is locked",
        ),
        (
            machine(
                phase="Deleting",
                deleted=True,
                lastOperation={"type": "Delete", "state": "Successful", "description": "the engine removes it"},
            ),
            [],
            "the engine removes it",
        ),
        (
            machine(
                phase="Deleting",
                deleted=True,
                lastOperation={"type": "Delete", "state": "Processing", "description": "being removed"},
                conditions=[
                    {**condition("InstanceExists", "Unknown", "not found, but it reports"), "reason": "InstanceMissing"}
                ],
                **LINKED,
            ),
            [node()],
            "not found, but it reports",
        ),
        (
            machine(
                phase="Deleting",
                deleted=True,
                lastOperation={"type": "Delete", "state": "Failed", "description": "the engine is locked"},
                conditions=[{**condition("InstanceExists", "Unknown", "no answer"), "reason": "ErrorCheckingProvider"}],
            ),
            [],
            "the engine is locked",
        ),
        (
            machine(
                phase="Deleting",
                deleted=True,
                conditions=[
                    condition("Drained", "False", "pod a/b: a budget forbids it"),
                    {**condition("InstanceExists", "Unknown", "not found"), "reason": "InstanceMissing"},
                ],
            ),
            [],
            "pod a/b: a budget forbids it",
        ),
    ],
)
def test_what_a_machine_waits_for(found: dict[str, Any], nodes: list[dict[str, Any]], why: str) -> None:
    (row,) = overview.overview([found], [], nodes, [], NOW).machines

    assert row.why == why


def test_a_machine_that_asks_to_be_let_in_says_by_which_request() -> None:
    (row,) = overview.overview([machine(phase="Provisioned")], [], [], [rules.client()], NOW).machines

    assert row.why == "to be let in: request csr-7 is pending"


@pytest.mark.parametrize("has_asked", [True, False])
def test_a_machine_that_is_too_old_to_be_let_in_by_itself_says_so(has_asked: bool) -> None:
    """It may have waited for room on a host for hours; what comes then is refused, and only a person can help."""

    def told(after: datetime.timedelta) -> str:
        moment, request = rules.MADE + approval.LATEST + after, rules.client()
        request["metadata"]["creationTimestamp"] = memory.stamp(moment)
        requests = [request] if has_asked else []
        return overview.overview([machine(phase="Provisioned")], [], [], requests, moment).machines[0].why

    in_time, too_late = told(datetime.timedelta()), told(datetime.timedelta(seconds=1))

    why = (
        "be let in: request csr-7 is pending" if has_asked else "become a node: it has not asked for a certificate yet"
    )
    assert in_time == f"to {why}"
    assert too_late.startswith(f"to {why}, too late for a machine of more than 2 h; if it is yours: oc adm certificate")
    assert (" approve csr-7" in too_late) == has_asked


def test_a_request_that_came_in_time_is_not_too_late_however_long_it_waits() -> None:
    """The controllers may have been down, or the platform silent: they will judge it by when it was made."""
    (row,) = overview.overview(
        [machine(phase="Provisioned")], [], [], [rules.client()], rules.MADE + approval.LATEST * 2
    ).machines

    assert row.why == "to be let in: request csr-7 is pending"


def test_a_request_that_was_decided_is_waited_for_no_more() -> None:
    request = rules.client()
    request["status"] = {"conditions": [{"type": "Approved", "status": "True"}]}
    (row,) = overview.overview([machine(phase="Provisioned")], [], [], [request], NOW).machines

    assert "request" not in row.why


def test_a_machine_that_is_just_made_is_given_a_minute() -> None:
    found = overview.overview([machine()], [], [], [], rules.MADE + datetime.timedelta(seconds=30))

    assert found.machines[0].why == "for a controller to look at it"


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
