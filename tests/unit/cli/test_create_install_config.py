"""`create install-config` without a terminal: answers of platforms, and what comes next."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from moorage.config import load
from moorage.platforms import registry
from tests.conftest import PULL_SECRET

ANSWERS = f"cluster_name: harbour\nbase_domain: example.com\npull_secret: '{PULL_SECRET}'\n"


def create(directory: Path, answers: str, *words: str, **environ: str) -> subprocess.CompletedProcess[str]:
    file = directory / "answers.yaml"
    file.write_text(answers)
    known = ("create", "install-config", "--dir", str(directory), "--answers", str(file))
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("MOORAGE_", "OVIRT_"))}
    return subprocess.run(
        [sys.executable, "-m", "moorage", *known, *words],
        capture_output=True,
        text=True,
        check=False,
        env={**clean, "HOME": str(directory), **environ},
        stdin=subprocess.DEVNULL,
    )


@pytest.mark.parametrize("by", ["flag", "environment", "file"])
def test_the_machines_network_is_an_answer_on_any_platform(tmp_path: Path, by: str) -> None:
    answers = ANSWERS + "platform: none\n" + ("machine_network: 192.168.7.0/24\n" if by == "file" else "")
    words = ("--machine-network", "192.168.7.0/24") if by == "flag" else ()
    environ = {"MOORAGE_MACHINE_NETWORK": "192.168.7.0/24"} if by == "environment" else {}

    done = create(tmp_path, answers, *words, **environ)

    assert done.returncode == 0, done.stderr
    config, _ = load.read(tmp_path / "install-config.yaml", registry.stanzas())
    assert [network.cidr for network in config.networking.machine_network] == ["192.168.7.0/24"]
    assert "next: moorage create manifests" in done.stderr


def test_an_answer_that_only_another_platform_asks_for_is_told_of(tmp_path: Path) -> None:
    done = create(tmp_path, ANSWERS + "platform: none\novirt_cluster: Default\n")

    assert done.returncode == 0, done.stderr
    assert "warning: ovirt_cluster is not a question of platform none: the answer is not used" in done.stderr


def test_an_answer_nobody_asks_for_has_a_nearest_match(tmp_path: Path) -> None:
    done = create(tmp_path, ANSWERS + "platform: ovirt\novirt_clutser: Default\n")

    assert done.returncode == 3
    assert "ovirt_clutser: is not a question" in done.stderr
    assert "did you mean `ovirt_cluster`?" in done.stderr
