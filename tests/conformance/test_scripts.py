"""Every script of the bootstrap node, read by shellcheck: the very bytes that run."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

import moorage.assets
from moorage.assets import bootstrap

FOLDER = Path(moorage.assets.__file__).parent / "bootstrap_files"
SCRIPTS = (*bootstrap.SCRIPTS, *bootstrap.LIBRARY, bootstrap.GENERATOR)


@pytest.mark.needs("shellcheck")
@pytest.mark.parametrize("name", SCRIPTS)
def test_shellcheck_has_nothing_to_say(name: str) -> None:
    done = subprocess.run(
        ["shellcheck", "--external-sources", "--severity=style", "--source-path=SCRIPTDIR", FOLDER / name],
        capture_output=True,
        text=True,
    )

    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.needs("shellcheck")
def test_shellcheck_would_have_something_to_say(tmp_path: Path) -> None:
    bad = tmp_path / "bad.sh"
    bad.write_text("#!/bin/bash\nrm -rf $1/*\n")

    assert subprocess.run(["shellcheck", bad], capture_output=True).returncode == 1


@pytest.mark.parametrize("name", SCRIPTS)
def test_bash_can_parse_it(name: str) -> None:
    done = subprocess.run(["bash", "-n", FOLDER / name], capture_output=True, text=True)

    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("name", SCRIPTS)
def test_every_exception_from_the_linter_is_for_one_rule_and_says_why(name: str) -> None:
    disabled = [line for line in (FOLDER / name).read_text().splitlines() if "shellcheck disable" in line]

    assert all(re.search(r"disable=SC\d{4}  # \S", line) for line in disabled), disabled


def test_every_script_in_the_folder_is_installed() -> None:
    found = {path.name for path in FOLDER.iterdir() if path.read_bytes().startswith((b"#!", b"# shellcheck shell"))}

    assert found == set(SCRIPTS)
