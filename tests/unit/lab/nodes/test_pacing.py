"""Hearts beat as on real nodes at the world's own speed, and no faster than a processor can hear them at any other."""

from __future__ import annotations

from typing import cast

import pytest

from moorage.engine import clock as clocks
from moorage.lab import site as sites
from moorage.lab.nodes import instance, pacing


def _site(machines: int, speed: float) -> sites.Site:
    site = sites.Site(clocks.Clock(speed))
    site.instances = {str(number): cast("instance.Instance", None) for number in range(machines)}
    return site


@pytest.mark.parametrize("machines", [1, 40, 1000, 4000])
def test_at_the_worlds_own_speed_all_is_as_on_real_nodes(machines: int) -> None:
    site = _site(machines, 1.0)

    assert pacing.heartbeat(site) == pacing.HEARTBEAT
    assert pacing.report(site) == 300.0
    assert pacing.silence(site, 50.0) == 50.0


@pytest.mark.parametrize(("machines", "real_seconds"), [(1, 1.0), (50, 1.0), (100, 2.0), (500, 10.0), (1000, 10.0)])
def test_the_more_hearts_there_are_the_slower_each_beats(machines: int, real_seconds: float) -> None:
    site = _site(machines, 60.0)

    assert pacing.heartbeat(site) / 60.0 == pytest.approx(real_seconds)


@pytest.mark.parametrize("machines", [1, 300, 1000])
@pytest.mark.parametrize("speed", [1.0, 7.0, 60.0, 1000.0])
def test_nobody_is_taken_for_dead_before_several_beats_were_missed(machines: int, speed: float) -> None:
    site = _site(machines, speed)

    assert pacing.silence(site, 50.0) >= 5 * pacing.heartbeat(site)


def test_many_who_wait_to_be_let_in_ask_less_often_and_give_up_later() -> None:
    few, many = _site(3, 60.0), _site(1000, 60.0)

    assert pacing.question(few, 0.1, 3) == pytest.approx(0.1 * 60)
    assert pacing.question(many, 0.1, 1000) == pytest.approx(10.0 * 60)
    assert pacing.patience(few, 900.0, 20.0) == pytest.approx(1200.0)
    assert pacing.patience(many, 900.0, 20.0) == pytest.approx(6000.0)
