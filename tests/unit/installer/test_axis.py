"""The axis of a timeline: nights are folded away, ticks fall on round times, and time runs from left to right."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moorage.installer import axis, durations
from tests.unit.installer.pasts import moment


def test_a_night_between_two_attempts_is_folded_away() -> None:
    fitted = axis.fit([(moment(0), moment(600)), (moment(50_000), moment(50_300))], 0, 1000)

    ((before, after),) = fitted.folds
    assert after.left - before.right < 50
    assert fitted.x(moment(300)) == pytest.approx((before.left + before.right) / 2)
    assert before.right - before.left > after.right - after.left


def test_a_short_pause_is_left_as_it_is() -> None:
    fitted = axis.fit([(moment(0), moment(600)), (moment(630), moment(900))], 0, 1000)

    assert fitted.folds == []
    assert fitted.x(moment(450)) == pytest.approx(500)


@pytest.mark.parametrize(
    ("seconds", "labels"),
    [
        (4, ["0", "0.5 s", "1 s"]),
        (45, ["0", "5 s", "10 s"]),
        (600, ["0", "1 min", "2 min"]),
        (5400, ["0", "10 min", "20 min"]),
        (10 * 3600, ["0", "1 h", "2 h"]),
    ],
)
def test_ticks_fall_on_round_times(seconds: float, labels: list[str]) -> None:
    fitted = axis.fit([(moment(0), moment(seconds))], 262, 1122)

    assert [tick.label for tick in fitted.ticks()][:3] == labels


@given(
    st.lists(
        st.tuples(st.floats(0, 1e6), st.floats(0, 1e5)).map(lambda two: (moment(two[0]), moment(two[0] + two[1]))),
        min_size=1,
        max_size=40,
    )
)
def test_time_runs_from_left_to_right(periods: list[axis.Period]) -> None:
    fitted = axis.fit(periods, 200, 1100)

    moments = sorted(at for period in periods for at in period)
    places = [fitted.x(at) for at in moments]

    assert places == sorted(places)
    assert places[0] >= 200 - 1e-6
    assert places[-1] <= 1100 + 1e-6
    ticks = [tick.x for tick in fitted.ticks()]
    assert ticks == sorted(ticks)
    assert len(ticks) < 60


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (-1, "0 s"),
        (0.42, "0.4 s"),
        (9.97, "10 s"),
        (59.7, "1 min"),
        (192, "3 min 12 s"),
        (3599.6, "1 h"),
        (3900, "1 h 5 min"),
        (200_000, "2 d 8 h"),
    ],
)
def test_durations_in_words(seconds: float, words: str) -> None:
    assert durations.words(seconds) == words
