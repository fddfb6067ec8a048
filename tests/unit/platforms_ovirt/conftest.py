"""Engines for these tests: one with a cluster that shall go there, and one with somebody's home to survey from."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.lab.ovirt import engine_world
from tests.unit.platforms_ovirt import engine_place
from tests.unit.platforms_ovirt.survey_world import Run


@pytest.fixture
def place(tmp_path: Path) -> Iterator[engine_place.Place]:
    with engine_place.started(tmp_path) as found:
        yield found


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[engine_world.Running]:
    """One engine for the tests of this file, which is given back as it was found."""
    with engine_world.started(tmp_path_factory.mktemp("engine")) as found:
        yield found


@pytest.fixture
def running(shared: engine_world.Running) -> Iterator[engine_world.Running]:
    yield shared
    shared.tell(shared.site.faults.clear)


@pytest.fixture
def run(running: engine_world.Running, tmp_path: Path) -> Run:
    running.tell(running.engine.sessions.clear)
    home = tmp_path / "home"
    home.mkdir()
    return Run(running, home)
