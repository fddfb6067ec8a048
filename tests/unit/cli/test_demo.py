"""`moorage demo`: a whole cluster before one's eyes, nobody's files in danger, and a way on from where it fails."""

from __future__ import annotations

import argparse
import base64
import os
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509 import oid

from moorage import errors
from moorage.cli import demo, demo_requests, main, talk
from moorage.lab import client, lock


def moorage(*words: str, **environ: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "moorage", *words],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, **environ},
        stdin=subprocess.DEVNULL,
    )


@pytest.fixture
def root(tmp_path: Path) -> Iterator[Path]:
    """Where a demo may be; its lab is gone afterwards."""
    folder = tmp_path / "demo"
    yield folder
    if lock.held(folder / "lab"):
        client.stop(client.find(folder / "lab"))


def parsed(*words: str) -> argparse.Namespace:
    return main.parser(["demo"]).parse_args(["demo", *words])


def test_a_folder_with_somebody_elses_files_is_refused(root: Path) -> None:
    root.mkdir()
    (root / "thesis.txt").write_text("all of it")

    done = moorage("demo", "--dir", str(root))

    assert done.returncode == 1
    assert done.stderr.splitlines() == [
        f"error: {root} is not empty, and no demo made it",
        "next: name another folder: moorage demo --dir DIR",
    ]
    assert [each.name for each in root.iterdir()] == ["thesis.txt"]


def test_a_folder_that_cannot_be_is_named(root: Path) -> None:
    root.write_text("a file")
    with pytest.raises(errors.MoorageError, match="Not a directory") as refused:
        demo._clear(root)
    assert "--dir" in refused.value.remedy
    with pytest.raises(errors.MoorageError, match="Not a directory"):
        demo._clear(root / "below")


def test_what_an_earlier_demo_made_goes_and_what_the_user_put_there_stays(root: Path) -> None:
    demo._clear(root)
    assert stat.S_IMODE(root.stat().st_mode) == 0o700
    (root / "notes.txt").write_text("mine")
    (root / "cluster").mkdir()
    (root / "cluster" / "master.ign").touch()
    (root / "kubeconfig").touch()
    lab = client.start(root / "lab", 60.0)

    demo._clear(root)

    assert sorted(each.name for each in root.iterdir()) == [".moorage-demo", "notes.txt"]
    os.waitpid(lab.pid, 0)  # it has stopped, or this would wait


def test_a_step_that_fails_is_named_and_the_lab_left_to_be_looked_into(
    root: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(demo, "_MOORAGE", [sys.executable, "-c", "import sys; sys.exit(6)"])

    with pytest.raises(demo.StepFailed, match="moorage create install-config ended with 6") as failed:
        demo.run(parsed("--dir", str(root)), talk.Voice())

    assert failed.value.exit_code == 6
    hint = f"  export MOORAGE_LAB={root / 'lab'}\n  moorage lab status\n  moorage lab stop\n"
    assert capsys.readouterr().out.endswith(f"the lab still runs. Look into it, and stop it:\n{hint}")
    # And the hint leads to the lab
    status = moorage("lab", "status", MOORAGE_LAB=str(root / "lab"))
    assert (status.returncode, "the lab: process" in status.stdout) == (0, True)


def test_speeds_that_are_none() -> None:
    with pytest.raises(SystemExit):
        parsed("--speed", "0")


def test_a_cluster_comes_up_before_your_eyes(root: Path, tmp_path: Path) -> None:
    # Given a machine without kubectl
    bare = tmp_path / "bin"
    bare.mkdir()

    done = moorage("demo", "--dir", str(root), "--keep", PATH=str(bare))

    assert done.returncode == 0, done.stdout + done.stderr
    chapters = [line for line in done.stdout.splitlines() if line.startswith("# ")]
    assert [line[2] for line in chapters] == ["1", "2", "3", "4", "5", "6", "D"]
    assert "kubectl is not installed" in done.stdout
    names = [f"master-{number}" for number in range(3)] + [f"worker-{number}" for number in range(2)]
    rows = [line.split() for line in done.stdout.splitlines() if line.startswith(("master-", "worker-"))]
    assert [row[:2] for row in rows] == [[name, "Ready"] for name in names]
    assert f"export KUBECONFIG={root / 'kubeconfig'}" in done.stdout
    assert "<html" in (root / "timeline.html").read_text()
    for secret in ("kubeconfig", "pull-secret.json"):
        assert stat.S_IMODE((root / secret).stat().st_mode) == 0o600

    # Then the lab goes on, and says so
    status = moorage("lab", "status", MOORAGE_LAB=str(root / "lab"))
    assert "cluster harbour.example.com: installed\n" in status.stdout
    config = moorage("lab", "kubeconfig", "nowhere.example.com", MOORAGE_LAB=str(root / "lab"))
    assert config.stderr.splitlines()[1] == "next: there are harbour.example.com"


@pytest.mark.parametrize("code", [0, 3])
def test_kubectl_shows_the_nodes_where_there_is_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int) -> None:
    kubectl = tmp_path / "kubectl"
    kubectl.write_text(f'#!/bin/sh\necho "$*"\nexit {code}\n')
    kubectl.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    scene = demo.Demo(tmp_path, client.Lab(tmp_path, 1, 1.0, "", "", "", "", {}))
    if code:
        with pytest.raises(demo.StepFailed, match="get nodes ended with 3"):
            scene._nodes()
    else:
        assert scene._nodes() == f"--kubeconfig {tmp_path}/kubeconfig get nodes\n"


def test_nodes_that_are_not_ready_end_the_demo(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo.Demo, "_nodes", lambda _: "NAME STATUS\nmaster-0 Ready\nmaster-1 NotReady\n")
    told = client.Lab(root, 1, 1.0, "", "", "", "", {})
    with pytest.raises(errors.MoorageError, match="only 1 of 5 nodes are Ready"):
        demo.Demo(root, told).show()


# --- letting machines in ---


def request(name: str, common_name: str, **status: object) -> dict[str, Any]:
    subject = x509.Name([x509.NameAttribute(oid.NameOID.COMMON_NAME, common_name)])
    made = x509.CertificateSigningRequestBuilder().subject_name(subject)
    signed = made.sign(ec.generate_private_key(ec.SECP256R1()), hashes.SHA256())
    pem = signed.public_bytes(serialization.Encoding.PEM)
    return {"metadata": {"name": name}, "spec": {"request": base64.b64encode(pem).decode()}, "status": status}


def test_the_workers_are_let_in_nobody_else_is_and_a_bad_day_is_borne(monkeypatch: pytest.MonkeyPatch) -> None:
    over = threading.Event()
    items = [
        request("ours", "system:node:worker-0"),
        request("theirs", "system:node:intruder"),
        request("done", "system:node:worker-1", conditions=[{"type": "Approved"}]),
    ]
    answers: list[object] = [demo_requests.Refused("503"), ConnectionRefusedError(), {"items": items}]
    approved: list[str] = []

    def asked(path: Path, method: str, where: str, body: Any = None) -> dict[str, Any]:
        if method == "PUT":
            approved.append(where.split("/")[-2])
            assert body["status"]["conditions"][0]["type"] == "Approved"
            over.set()
            return {}
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer  # type: ignore[return-value]

    monkeypatch.setattr(demo_requests, "asked", asked)
    monkeypatch.setattr(demo_requests, "_EVERY", 0.001)
    demo_requests.approve(Path("kubeconfig"), ["worker-0", "worker-1"], over)

    assert approved == ["ours"]
