"""An asset directory with all that was made for a cluster, for those who wait for it."""

from __future__ import annotations

import dataclasses
import shutil
from pathlib import Path

import pytest

from moorage.assets import keys
from tests.unit.installer import fake_cluster


@pytest.fixture(scope="module")
def pristine(tmp_path_factory: pytest.TempPathFactory, keyring: keys.Keyring) -> fake_cluster.Built:
    return fake_cluster.build(tmp_path_factory.mktemp("waiting") / "cluster", keyring)


@pytest.fixture
def built(pristine: fake_cluster.Built, tmp_path: Path) -> fake_cluster.Built:
    shutil.copytree(pristine.directory, tmp_path / "cluster")
    return dataclasses.replace(pristine, directory=tmp_path / "cluster")
