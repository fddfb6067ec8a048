"""Controllers that are killed (-9) at every moment of every call to the platform, of a create and of a delete."""

from __future__ import annotations

from collections.abc import Callable

from tests.kube.conftest import cluster as cluster
from tests.kube.conftest import unique as unique
from tests.machines import deaths, mooring
from tests.machines.conftest import client as client
from tests.machines.conftest import machine_kinds as machine_kinds
from tests.machines.mooring_fixture import moored as moored


def test_no_death_makes_an_instance_twice_or_leaves_one_behind(
    moored: Callable[..., mooring.Mooring], unique: Callable[[str], str]
) -> None:
    deaths.tell(moored(lag=deaths.LAG, speed=deaths.SPEED), unique("plain"), deaths.everywhere)
