"""The engine and the SDK as fixtures; what they are is in `engine_world`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import ovirtsdk4
import pytest

from tests.unit.lab.ovirt import engine_world


@pytest.fixture
def running(tmp_path: Path) -> Iterator[engine_world.Running]:
    """An engine of the test's own, in the datacentre that a new lab has."""
    with engine_world.started(tmp_path) as found:
        yield found


@pytest.fixture
def connection(running: engine_world.Running) -> ovirtsdk4.Connection:
    return running.connect()


@pytest.fixture
def api(connection: ovirtsdk4.Connection) -> Any:
    """The SDK's root service."""
    return connection.system_service()
