"""What the engine's tests share: a toy cloud, a clock that costs no time, and a journal in a scratch folder."""

from __future__ import annotations

import pathlib
import sys
from collections.abc import Iterator

import pytest

from moorage.engine import clock as clocks
from moorage.engine import journal as journals

# The toy cloud is also used by programs that the crash tests start and kill, so it is a module and not a fixture.
sys.path.insert(0, str(pathlib.Path(__file__).parent))

import toycloud


@pytest.fixture
def cloud() -> toycloud.Cloud:
    return toycloud.Cloud()


@pytest.fixture
def clock() -> clocks.ManualClock:
    return clocks.ManualClock()


@pytest.fixture
def journal(tmp_path: pathlib.Path) -> Iterator[journals.Journal]:
    with journals.Journal(tmp_path / "journal.db") as opened:
        yield opened
