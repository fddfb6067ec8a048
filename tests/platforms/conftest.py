"""One place per platform and test; the file cloud is brought in as a platform of others would be."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from moorage.assets import keys
from tests.crash import harness
from tests.platforms import places


@pytest.fixture(autouse=True)
def _plugged_in(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MOORAGE_PLATFORMS", harness.PLUGIN)


@pytest.fixture(params=places.PLACES)
def any_place(request: pytest.FixtureRequest, tmp_path: Path, keyring: keys.Keyring) -> Iterator[places.Place]:
    """Each platform in turn."""
    with places.PLACES[request.param](tmp_path, keyring) as place:
        yield place


@pytest.fixture(params=places.BUILT)
def place(request: pytest.FixtureRequest, tmp_path: Path, keyring: keys.Keyring) -> Iterator[places.Place]:
    """Each platform in turn on which moorage makes the machines."""
    with places.PLACES[request.param](tmp_path, keyring) as place:
        yield place
