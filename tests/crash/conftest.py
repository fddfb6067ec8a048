"""A file cloud and a prepared asset directory for each test; the keys and the server's process are shared."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from moorage.assets import keys
from tests.crash import harness, trials


@pytest.fixture(scope="session")
def cloud(tmp_path_factory: pytest.TempPathFactory) -> Iterator[harness.Cloud]:
    with harness.running(tmp_path_factory.mktemp("filecloud")) as cloud:
        yield cloud


@pytest.fixture(scope="session")
def template(tmp_path_factory: pytest.TempPathFactory, keyring: keys.Keyring) -> Path:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MOORAGE_PLATFORMS", harness.PLUGIN)
        return harness.prepared(tmp_path_factory.mktemp("template") / "harbour", keyring)


@pytest.fixture
def site(tmp_path: Path, template: Path, cloud: harness.Cloud) -> harness.Site:
    """A cluster about to be made, on a cloud where neighbours of confusingly similar marks live."""
    site = harness.Site(harness.copied(template, tmp_path / "harbour"), cloud)
    cloud.reset(lag=1)
    cloud.neighbours(site.infra_id)
    return site


@pytest.fixture(scope="session")
def clean(tmp_path_factory: pytest.TempPathFactory, template: Path, cloud: harness.Cloud) -> trials.Clean:
    """The undisturbed installation that all others are measured against."""
    return trials.clean_run(template, tmp_path_factory.mktemp("clean"), cloud)
