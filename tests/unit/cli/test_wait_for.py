"""`moorage wait-for` as a real program: what it says, what it prints for scripts, how it ends."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from moorage.assets import keys
from moorage.cli import talk, wait_for
from moorage.installer import waiting
from tests.unit.installer import fake_cluster
from tests.unit.installer.fake_cluster import API, A, Zone
from tests.unit.installer.waiting_world import READY

# An hour of cloud time in a few seconds.
FAST = {"MOORAGE_CLOCK_SPEED": "1000"}


@pytest.fixture(scope="module")
def pristine(tmp_path_factory: pytest.TempPathFactory, keyring: keys.Keyring) -> fake_cluster.Built:
    return fake_cluster.build(tmp_path_factory.mktemp("wait-for") / "cluster", keyring)


@pytest.fixture
def built(pristine: fake_cluster.Built, tmp_path: Path) -> fake_cluster.Built:
    shutil.copytree(pristine.directory, tmp_path / "cluster")
    return dataclasses.replace(pristine, directory=tmp_path / "cluster")


@contextlib.contextmanager
def cluster(built: fake_cluster.Built, shown: Mapping[str, Any], folder: Path) -> Iterator[dict[str, str]]:
    """A cluster that stands still, and the environment in which to run the program."""
    with (
        fake_cluster.serving(lambda: shown, built, folder) as api,
        fake_cluster.naming(Zone([(API, A, api.address)])) as environ,
    ):
        yield {**os.environ, **environ, **FAST, "HOME": "/nonexistent"}


def command(event: str, built: fake_cluster.Built, *flags: str) -> list[str]:
    return [sys.executable, "-m", "moorage", "wait-for", event, "--dir", str(built.directory), *flags]


def run(words: list[str], environ: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(words, capture_output=True, text=True, check=False, env=environ, timeout=120)


def test_the_bootstrap_is_complete(built: fake_cluster.Built, tmp_path: Path) -> None:
    with cluster(built, READY, tmp_path) as environ:
        done = run(command("bootstrap-complete", built), environ)

    assert done.returncode == 0, done.stderr
    assert done.stdout == ""
    assert "the bootstrap is complete" in done.stderr
    assert f"next: moorage wait-for install-complete --dir {built.directory}" in done.stderr


def test_the_installation_ends_in_what_a_person_needs(built: fake_cluster.Built, tmp_path: Path) -> None:
    password = (built.directory / "auth" / "kubeadmin-password").read_text()

    with cluster(built, READY, tmp_path) as environ:
        done = run(command("install-complete", built), environ)

    assert done.returncode == 0, done.stderr
    assert "console: https://console.apps.example.com" in done.stderr
    assert f"the password in {built.directory}/auth/kubeadmin-password" in done.stderr
    assert f"export KUBECONFIG={built.directory}/auth/kubeconfig" in done.stderr
    log = (built.directory / ".moorage.log").read_text()
    assert "export KUBECONFIG" in log
    assert password not in done.stderr + log


def test_where_to_see_what_workers_wait_for_is_this_cluster(capsys: pytest.CaptureFixture[str]) -> None:
    files = Path("harbour/auth/kubeconfig"), Path("harbour/auth/kubeadmin-password")
    installed = waiting.Installed("https://api", "", "4.20.1", *files, missing="1 of 2 workers is a Node")

    wait_for.summary(installed, Path("harbour"), talk.Voice())

    assert "1 of 2 workers is a Node; see: moorage machines --once --dir harbour\n" in capsys.readouterr().err


def test_a_script_gets_json(built: fake_cluster.Built, tmp_path: Path) -> None:
    with cluster(built, READY, tmp_path) as environ:
        done = run(command("install-complete", built, "-o", "json"), environ)

    told = json.loads(done.stdout)
    assert (told["event"], told["complete"], told["version"]) == ("install-complete", True, "4.20.1")
    assert told["consoleURL"] == "https://console.apps.example.com"
    assert Path(told["kubeadminPasswordFile"]).is_file()


def test_a_wait_in_vain_says_what_is_missing_and_what_to_type(built: fake_cluster.Built, tmp_path: Path) -> None:
    with cluster(built, {**READY, waiting.ETCD: 404}, tmp_path) as environ:
        done = run(command("bootstrap-complete", built, "-o", "json"), environ)

    assert done.returncode == 5
    assert "error: the bootstrap's etcd member has not been removed after 10 min" in done.stderr
    assert f"then run: moorage wait-for bootstrap-complete --dir {built.directory}" in done.stderr
    told = json.loads(done.stdout)
    assert (told["complete"], told["stage"], told["exitCode"]) == (False, "etcd", 5)


@pytest.mark.parametrize(
    ("shown", "code"),
    [({waiting.INGRESS_AUTHORITY: 404}, 6), ({"/apis/config.openshift.io/v1/clusteroperators": {"items": []}}, 7)],
)
def test_exit_codes_of_an_installation(
    shown: Mapping[str, Any], code: int, built: fake_cluster.Built, tmp_path: Path
) -> None:
    with cluster(built, {**READY, **shown}, tmp_path) as environ:
        assert run(command("install-complete", built), environ).returncode == code


def test_ctrl_c_ends_the_wait_with_8(built: fake_cluster.Built, tmp_path: Path) -> None:
    with cluster(built, {"/version": 503}, tmp_path) as environ:
        slow = {**environ, "MOORAGE_CLOCK_SPEED": "1"}
        words = command("bootstrap-complete", built)
        with subprocess.Popen(words, stderr=subprocess.PIPE, text=True, env=slow) as process:
            assert process.stderr is not None
            first = process.stderr.readline()
            process.send_signal(signal.SIGINT)
            rest = process.communicate(timeout=30)[1]

    assert "waiting for the Kubernetes API: the API answers 503" in first
    assert process.returncode == 8
    assert "run the same command again" in rest


def test_a_directory_without_a_cluster(tmp_path: Path) -> None:
    words = [sys.executable, "-m", "moorage", "wait-for", "install-complete", "--dir", str(tmp_path)]

    done = run(words, {**os.environ, "HOME": "/nonexistent"})

    assert done.returncode == 1
    assert "there is no" in done.stderr
    assert "next: run: moorage create ignition-configs" in done.stderr
