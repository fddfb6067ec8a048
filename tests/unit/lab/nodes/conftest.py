"""What stories about machines share: the files that the product writes for one cluster, made once."""

from __future__ import annotations

from pathlib import Path

import pytest

from moorage.assets import keys, store
from tests import conftest


@pytest.fixture(scope="session")
def cluster_dir(tmp_path_factory: pytest.TempPathFactory, keyring: keys.Keyring) -> Path:
    """An asset directory after `create ignition-configs`: three masters, platform none. Not to be written to."""
    directory = tmp_path_factory.mktemp("cluster")
    (directory / "install-config.yaml").write_text(conftest.INSTALL_CONFIG)
    with store.opened(directory) as opened:
        opened.commit(store.State(kept={"keyring": keyring.to_state()}), {})
    conftest.make(directory)
    return directory
