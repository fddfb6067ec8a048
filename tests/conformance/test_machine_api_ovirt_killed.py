"""Machine controllers on oVirt, killed (-9) at EVERY call to the engine of one machine's making and of its removal.

The real command with the real actuator, against a lab's engine: before a call is sent, once it took effect, and when it
was answered. Those that come after make what an undisturbed run makes, and leave what was there before; the engine is
never made to make two.
"""

from __future__ import annotations

import itertools
from concurrent import futures
from pathlib import Path

import pytest

from tests.crash.machine_api import program, station, trials

pytestmark = pytest.mark.needs("kubectl")

# Most of a trial's time is spent waiting for cloud time to pass.
STATIONS = 2


def test_no_death_leaves_anything_behind_or_makes_it_twice(tmp_path: Path) -> None:
    with futures.ThreadPoolExecutor(STATIONS) as pool:
        told = [pool.submit(_share, tmp_path / f"station-{number}", number) for number in range(STATIONS)]
        shares = [each.result() for each in told]

    planned = {each for plan, _ in shares for each in plan}
    died = {each for _, found in shares for each in found}
    print(f"{len(died)} of {len(planned)} deaths: {sorted(planned - died, key=str)} were not met")
    kinds = {(death.place.split(" ", 1)[1], death.phase) for death in died}
    writes = ("POST token", "POST /vms", "POST /vms/*/tags", "POST /vms/*/start", "POST /vms/*/stop", "DELETE /vms/*")
    assert {(write, phase) for write in writes for phase in program.PHASES} <= kinds
    assert {death for death in planned if death.is_certain} <= died
    assert len(died) > 30


def _share(folder: Path, number: int) -> tuple[list[trials.Death], list[trials.Death]]:
    """One station's part of all deaths: those that it was to die, and those that it did."""
    with station.opened(folder) as here:
        clean = trials.clean_run(here)
        making, removing = (trials.deaths(places)[number::STATIONS] for places in (clean.making, clean.removing))
        died: list[trials.Death] = []
        for make, remove in itertools.zip_longest(making, removing):
            died += trials.told(here, clean, make, remove)
    return [*making, *removing], died
