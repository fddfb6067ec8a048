"""Controllers that are killed (-9) at calls to the platform; tests/conformance tries each moment of each call."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.machines import deaths, mooring


@pytest.mark.long
def test_no_death_makes_an_instance_twice_or_leaves_one_behind(
    moored: Callable[..., mooring.Mooring], unique: Callable[[str], str]
) -> None:
    deaths.tell(moored(lag=deaths.LAG, speed=deaths.SPEED), unique("plain"), deaths.sample)
