"""A machine that is made and removed by controllers that die at a call to the engine, and by those that come after."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
from collections.abc import Iterator

from tests.crash.machine_api import program, station


@dataclasses.dataclass(frozen=True)
class Clean:
    """The places at which lives that are left alone call the engine, and what they make."""

    making: list[str]
    removing: list[str]
    portrait: station.Object


@dataclasses.dataclass(frozen=True)
class Death:
    """Where a life ends."""

    place: str
    phase: str

    @property
    def is_certain(self) -> bool:
        """Whether every life comes by: it depends on chance who looks first, not who writes."""
        return " GET " not in self.place


def clean_run(here: station.Station) -> Clean:
    with _living(here, 1, listed=True):
        here.until(here.is_provisioned, "the machine is there")
        portrait = here.portrait()
    making = here.places()
    with _living(here, 0, listed=True):
        here.until(lambda: not here.machines(), "the machine is gone")
    assert here.leaks() == []
    assert portrait["phase"] == "Provisioned"
    return Clean(making, here.places(), portrait)


def deaths(places: list[str]) -> list[Death]:
    """Every call in every phase; one that only reads in one of them, in turn: the engine is the same in all three."""
    phases = itertools.cycle(program.PHASES)
    return [
        Death(place, phase) for place in places for phase in ([next(phases)] if " GET " in place else program.PHASES)
    ]


def told(here: station.Station, clean: Clean, making: Death | None, removing: Death | None) -> list[Death]:
    """From none to one, to none again; says which deaths were died. A life without a death is the one before it."""
    died = []
    since = here.last_call()
    here.scale(1)
    if making is not None and _died(here, making, here.is_provisioned):
        died.append(making)
    with _living(here, 1):
        here.until(here.is_provisioned, f"the machine is there, {making}")
        assert here.portrait() == clean.portrait, f"{making}\n{here.words()}"
        if removing is None:
            here.scale(0)
            here.until(lambda: not here.machines(), f"the machine is gone, {making}")
    here.scale(0)
    if removing is not None:
        if _died(here, removing, lambda: not here.machines()):
            died.append(removing)
        with _living(here, 0):
            here.until(lambda: not here.machines(), f"the machine is gone, {removing}")
    assert here.leaks() == [], f"{making}, {removing}\n{here.words()}"
    # Not even for a moment were there two.
    assert len([status for status in here.made(since) if status.startswith("2")]) == 1, f"{making}, {removing}"
    return died


def _died(here: station.Station, death: Death, is_done: station.Condition) -> bool:
    """Live until that death; False if the work was done without coming by."""
    life = here.live(death.place, death.phase)
    try:
        here.until(lambda: life.code is not None or is_done(), f"{death}")
        if life.code is None and death.is_certain:
            here.until(lambda: life.code is not None, f"{death}, with all done")
    finally:
        life.kill()
    return life.code == station.KILLED and here.was_met()


@contextlib.contextmanager
def _living(here: station.Station, replicas: int, *, listed: bool = False) -> Iterator[None]:
    here.scale(replicas)
    life = here.live(listed=listed)
    try:
        yield
        assert life.code is None, f"they ended by themselves\n{here.words()}"
    finally:
        life.kill()
