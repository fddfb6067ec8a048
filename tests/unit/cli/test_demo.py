"""`moorage demo`: a whole cluster before one's eyes, nobody's files in danger, and a way on from where it fails."""

from __future__ import annotations

import argparse
import os
import re
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from moorage import errors
from moorage.cli import demo, main, talk
from moorage.lab import client, lock
from tests.lab import rack


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


def lab_stub(folder: Path) -> client.Lab:
    """A lab that nobody asks anything."""
    return client.Lab(folder, 1, 1.0, "127.16.0.0/16", "", "", "", {}, {})


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


@pytest.mark.long
def test_a_cluster_comes_up_before_your_eyes(root: Path, tmp_path: Path) -> None:
    # Given a machine without kubectl
    bare = tmp_path / "bin"
    bare.mkdir()

    done = moorage("demo", "--dir", str(root), "--keep", "--speed", f"{rack.bearable(demo.SPEED):g}", PATH=str(bare))

    assert done.returncode == 0, done.stdout + done.stderr
    chapters = [line for line in done.stdout.splitlines() if line.startswith("# ")]
    assert [line.split()[1].rstrip(".") for line in chapters] == [*"123456789", "Done"]
    assert "kubectl is not installed" in done.stdout
    rows = [
        line.split() for line in done.stdout.splitlines() if re.match(r"harbour-\w{5}-(master|worker)-\S+ +\w+ ", line)
    ]
    ready = [(row[0].split("-")[2], row[1]) for row in rows if row[1] in ("Ready", "NotReady")]
    assert ready == [("master", "Ready")] * 3 + [("worker", "Ready")] * 2
    assert re.search(
        r"^4 of 4 workers are at work .*^(\S+) is no more; in its place there is (?!\1)\S+$",
        done.stdout,
        re.MULTILINE | re.DOTALL,
    )
    assert re.search(
        r"^1 of 1 workers are at work .*^\S+-worker-0: 1 wanted, 1 there, 1 ready$",
        done.stdout,
        re.MULTILINE | re.DOTALL,
    )
    assert f"export KUBECONFIG={root / 'kubeconfig'}" in done.stdout
    assert "<html" in (root / "timeline.html").read_text()
    for secret in ("kubeconfig", "pull_secret", "ovirt_password", "ovirt-config.yaml", "answers.yaml"):
        assert stat.S_IMODE((root / secret).stat().st_mode) == 0o600
    password = (root / "ovirt_password").read_text()
    assert password not in done.stdout + done.stderr

    # Then the lab goes on, and says so
    status = moorage("lab", "status", MOORAGE_LAB=str(root / "lab"))
    assert "cluster harbour.example.com: installed\n" in status.stdout
    config = moorage("lab", "kubeconfig", "nowhere.example.com", MOORAGE_LAB=str(root / "lab"))
    assert config.stderr.splitlines()[1] == "next: there are harbour.example.com"


def test_what_destroy_leaves_behind_ends_the_demo(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scene = demo.Demo(root, lab_stub(root))
    monkeypatch.setattr(demo.Demo, "_moorage", lambda *_: None)
    monkeypatch.setattr(demo.Demo, "_things", lambda _: ["vms/forgotten (1)"])
    with pytest.raises(errors.MoorageError, match="1 resources are left: vms/forgotten"):
        scene.destroy()


@pytest.mark.parametrize("code", [0, 3])
def test_kubectl_shows_the_nodes_where_there_is_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int) -> None:
    kubectl = tmp_path / "kubectl"
    kubectl.write_text(f'#!/bin/sh\necho "$*"\nexit {code}\n')
    kubectl.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    scene = demo.Demo(tmp_path, lab_stub(tmp_path))
    if code:
        with pytest.raises(demo.StepFailed, match="get nodes ended with 3"):
            scene._nodes()
    else:
        assert scene._nodes() == f"--kubeconfig {tmp_path}/kubeconfig get nodes\n"


def test_nodes_that_are_not_ready_end_the_demo(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo, "_output", lambda *_: "")
    root.mkdir()
    monkeypatch.setattr(demo.Demo, "_nodes", lambda _: "NAME STATUS\nmaster-0 Ready\nmaster-1 NotReady\n")
    with pytest.raises(errors.MoorageError, match="only 1 of 5 nodes are Ready"):
        demo.Demo(root, lab_stub(root)).show()
