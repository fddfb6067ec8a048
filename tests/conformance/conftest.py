"""One asset directory for all real programs, made by the command as a user would run it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import INSTALL_CONFIG


def run_moorage(directory: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "moorage", *words, "--dir", str(directory)], capture_output=True, text=True, check=True
    )


@pytest.fixture(scope="session")
def cluster_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An asset directory with everything in it."""
    directory = tmp_path_factory.mktemp("harbour")
    (directory / "install-config.yaml").write_text(INSTALL_CONFIG)
    run_moorage(directory, "create", "manifests")
    run_moorage(directory, "create", "ignition-configs")
    return directory
