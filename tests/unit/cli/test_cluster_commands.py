"""`create cluster`, `plan`, `destroy` and `status` where there is no cloud: refusals that show the way, exit codes."""

from __future__ import annotations

import argparse
import functools
import json
from pathlib import Path
from typing import cast

import pytest

from moorage.cli import destroy, talk
from moorage.installer import destroy as removals
from moorage.installer import metadata
from tests.unit.cli import program

moorage = functools.partial(program.moorage, MOORAGE_CLOCK_SPEED="1000")


@pytest.mark.parametrize("words", [("create", "cluster"), ("plan",)])
def test_where_the_machines_are_the_users_the_commands_to_use_are_named(
    asset_dir: Path, words: tuple[str, ...]
) -> None:
    done = moorage(*words, "--dir", asset_dir)

    assert done.returncode == 1
    for command in ("create ignition-configs", "wait-for bootstrap-complete", "wait-for install-complete"):
        assert f"moorage {command}" in done.stderr
    assert not (asset_dir / ".moorage_state.json").exists()


def test_a_cluster_needs_an_install_config(tmp_path: Path) -> None:
    done = moorage("create", "cluster", "--dir", tmp_path)

    assert done.returncode == 3
    assert "moorage create install-config" in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_nothing_of_ours_is_on_no_platform_and_the_directory_is_cleared(tmp_path: Path) -> None:
    (tmp_path / "metadata.json").write_text('{"infraID": "harbour-abcde", "clusterName": "harbour", "none": {}}')

    done = moorage("destroy", "cluster", "-o", "json", "--dir", tmp_path)
    again = moorage("destroy", "cluster", "--dir", tmp_path)

    assert done.returncode == again.returncode == 0, done.stderr + again.stderr
    told = json.loads(done.stdout)
    assert (told["infraID"], told["removed"]) == ("harbour-abcde", [])
    assert (Path(told["setAside"]) / "metadata.json").exists()
    assert "nothing on platform none bears its mark" in again.stderr


def test_another_clusters_directory_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "metadata.json").write_text('{"infraID": "marina-abcde", "clusterName": "marina", "none": {}}')

    done = moorage("destroy", "cluster", "--infra-id", "harbour-abcde", "--platform", "none", "--dir", tmp_path)

    assert done.returncode == 0, done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["metadata.json"]


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        ((), 1, "there is no"),
        (("--infra-id", "harbour-abcde"), 3, "add --platform"),
        (("--platform", "none"), 3, "add --infra-id"),
        (("--infra-id", "harbour-abcde", "--platform", "nome"), 1, "did you mean `none`?"),
        (("--infra-id", "harbour", "--platform", "none"), 3, "is no infraID"),
    ],
)
def test_destroy_must_know_what_and_where(tmp_path: Path, words: tuple[str, ...], code: int, message: str) -> None:
    done = moorage("destroy", "cluster", *words, "--dir", tmp_path)

    assert done.returncode == code
    assert message in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_status_of_nothing(tmp_path: Path) -> None:
    done = moorage("status", "--dir", tmp_path)

    assert done.returncode == 1
    assert "there is no journal" in done.stderr


@pytest.mark.parametrize(("rounds", "words"), [(1, "2 removed in 1 round, "), (3, "2 removed in 3 rounds, ")])
def test_what_went_is_counted(rounds: int, words: str) -> None:
    class Voice:
        said = ""

        def info(self, text: str) -> None:
            self.said += text

    voice = Voice()
    known = metadata.named("harbour-abcde", "none")
    done = removals.Destroyed(known.infra_id, ("tag", "vm"), rounds)

    destroy._summary(argparse.Namespace(scope="cluster", output="text"), cast(talk.Voice, voice), known, done)

    assert voice.said == f"harbour-abcde is gone: {words}nothing is left"


def test_data_that_destroy_keeps_is_named_last(capsys: pytest.CaptureFixture[str]) -> None:
    known = metadata.named("harbour-abcde", "none")
    done = removals.Destroyed(known.infra_id, ("vm",), 1, spared=("disk pvc-1 (1 GiB)", "disk pvc-2 (2 GiB)"))

    destroy._summary(argparse.Namespace(scope="cluster", output="json"), talk.Voice(), known, done)

    said = capsys.readouterr()
    assert json.loads(said.out)["kept"] == ["disk pvc-1 (1 GiB)", "disk pvc-2 (2 GiB)"]
    *_, counted, kept = said.err.splitlines()
    assert "nothing is left" not in counted
    assert "disk pvc-1 (1 GiB), disk pvc-2 (2 GiB): not made by moorage" in kept
