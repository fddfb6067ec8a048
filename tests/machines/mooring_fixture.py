"""The fixture of stories about machines on the pier; it is for conformance tests, too."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from moorage.machines.runtime import client as clients
from tests.kube import cluster as clusters
from tests.machines import mooring, pier_side


@pytest.fixture
def moored(
    cluster: clusters.Cluster, client: clients.Client, tmp_path: Path
) -> Iterator[Callable[..., mooring.Mooring]]:
    """Makes a cluster on the pier, of which the caller says how it is."""
    mooring.settle_in(cluster)
    with contextlib.ExitStack() as open_:

        def make(*, strict: bool = False, lag: float = 0.0, speed: float = mooring.SPEED) -> mooring.Mooring:
            pier = open_.enter_context(pier_side.Pier(tmp_path / "pier", strict=strict, lag=lag).open())
            return mooring.Mooring(cluster, client, pier, tmp_path, speed)

        yield make
