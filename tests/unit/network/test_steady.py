"""Nothing changes for a moment's sake."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from moorage.network import steady


def test_the_first_value_counts_at_once() -> None:
    calm: steady.Steady[str] = steady.Steady(sightings=3, seconds=20)

    assert calm.saw("a", 0)
    assert calm.value == "a"


def test_a_change_has_to_be_seen_often_enough_and_long_enough() -> None:
    calm = steady.Steady("a", sightings=3, seconds=20)

    assert [calm.saw("b", now) for now in (0, 1, 2, 19, 20, 21)] == [False, False, False, False, True, False]
    calm = steady.Steady("a", sightings=3, seconds=20)
    assert [calm.saw("b", now) for now in (0, 50, 51)] == [False, False, True]


def test_a_change_that_goes_back_begins_anew() -> None:
    calm = steady.Steady("a", sightings=2, seconds=10)

    calm.saw("b", 0)
    assert calm.pending == 1
    calm.saw("a", 5)
    assert calm.pending == 0
    assert not calm.saw("b", 20)
    assert not calm.saw("c", 40), "another change is another one"
    assert not calm.saw("b", 60)
    assert calm.value == "a"


@given(st.lists(st.booleans()), st.integers(1, 4), st.integers(1, 4))
def test_a_switch_turns_only_after_enough_checks_in_a_row(results: list[bool], rise: int, fall: int) -> None:
    switch = steady.Switch(rise=rise, fall=fall)
    for number, good in enumerate(results, 1):
        before = switch.on
        turned = switch.checked(good)
        assert turned == (switch.on != before)
        if turned:
            enough = rise if good else fall
            assert results[number - enough : number] == [good] * enough
        else:
            against = results[:number][-(fall if switch.on else rise) :]
            assert len(against) < (fall if switch.on else rise) or any(each == switch.on for each in against)
