"""The law of all controllers together, tried on more and longer stories than `make test` has time for."""

from __future__ import annotations

from collections.abc import Callable

from tests.unit.machines import test_voyage, voyages
from tests.unit.machines.test_voyage import harbour as harbour


def test_many_voyages_end_with_as_many_as_are_wanted_and_no_wreck(
    record_property: Callable[[str, object], None],
) -> None:
    test_voyage.sail(voyages.Voyages, record_property, 30, 50)

    assert voyages.Ship.taken.total() >= 750


def test_passages_of_500_steps_meet_every_fault_and_end_so_too(
    record_property: Callable[[str, object], None],
) -> None:
    test_voyage.sail(voyages.Passage, record_property, 3, test_voyage.MOST + 80)

    assert voyages.Ship.longest >= test_voyage.MOST
    assert voyages.Ship.taken.total() >= 2 * test_voyage.MOST
    assert [what for what in voyages.MET if not voyages.Ship.fired[what]] == []
