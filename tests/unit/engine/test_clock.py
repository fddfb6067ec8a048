"""Time can be sped up, stood still, and cut short."""

from __future__ import annotations

import datetime
import threading
import time
import types

import pytest

from moorage import errors as top
from moorage.engine import clock as clocks
from moorage.engine import errors


def test_a_fast_clock_counts_cloud_seconds_and_sleeps_real_ones():
    clock = clocks.Clock(speed=1000)
    real = time.monotonic()

    clock.sleep(50)

    assert clock.now() >= 50
    assert time.monotonic() - real < 5


def test_the_wall_clock_moves_with_cloud_time():
    clock = clocks.Clock(speed=100_000)
    before = clock.wall()

    clock.sleep(3600)

    assert clock.wall() - before >= datetime.timedelta(hours=1)
    assert clock.wall().tzinfo is datetime.UTC


@pytest.mark.parametrize(
    ("environ", "speed"),
    [({}, 1.0), ({clocks.SPEED: ""}, 1.0), ({clocks.SPEED: "600"}, 600.0), ({clocks.SPEED: " 0.5 "}, 0.5)],
)
def test_the_environment_sets_the_speed(environ, speed):
    assert clocks.from_environment(environ).speed == speed


@pytest.mark.parametrize("text", ["fast", "0", "-3", "nan", "inf"])
def test_a_senseless_speed_is_refused_by_name(text):
    with pytest.raises(top.ConfigError, match=clocks.SPEED):
        clocks.from_environment({clocks.SPEED: text})


@pytest.mark.parametrize(
    ("speed", "seconds", "timeout"),
    [(1, 60, 60), (10, 60, 6), (1000, 60, 5), (1000, 2, 2)],
)
def test_a_socket_keeps_enough_real_time_at_any_speed(speed, seconds, timeout):
    assert clocks.Clock(speed=speed).socket_timeout(seconds) == timeout


@pytest.mark.parametrize("clock", [clocks.Clock(), clocks.ManualClock(auto=False)], ids=["real", "manual"])
def test_a_stop_wakes_every_sleeper_at_once(clock):
    asleep, woken = threading.Barrier(3), []

    def sleeper() -> None:
        asleep.wait(10)
        with pytest.raises(errors.Interrupted):
            clock.sleep(3600)
        woken.append(True)

    threads = [threading.Thread(target=sleeper) for _ in range(2)]
    for thread in threads:
        thread.start()
    asleep.wait(10)
    clock.request_stop()
    for thread in threads:
        thread.join(10)

    assert woken == [True, True]


def test_no_one_falls_asleep_after_a_stop():
    clock = clocks.ManualClock()
    clock.request_stop()

    with pytest.raises(errors.Interrupted) as stopped:
        clock.sleep(1)

    assert clock.slept == []
    assert stopped.value.exit_code == top.INTERRUPT


def test_a_deadline_counts_down_and_passes():
    clock = clocks.ManualClock()
    deadline = clock.deadline(10, "the berth")

    clock.advance(4)
    assert deadline.remaining() == 6
    assert not deadline.expired
    clock.advance(7)
    assert deadline.remaining() == 0
    assert deadline.expired
    assert "the berth took longer than 10 s" in deadline.exceeded().message


@pytest.mark.parametrize(("inner", "expected"), [(5, 5), (50, 10)])
def test_an_inner_deadline_never_reaches_past_the_outer_one(inner, expected):
    deadline = clocks.ManualClock().deadline(10)

    assert deadline.within(inner).remaining() == expected


def test_a_manual_clock_wakes_only_those_whose_moment_has_come():
    clock = clocks.ManualClock(auto=False)
    order: list[str] = []

    def sleeper(name: str, seconds: float) -> None:
        clock.sleep(seconds)
        order.append(name)

    threads = {
        name: threading.Thread(target=sleeper, args=(name, seconds)) for name, seconds in {"a": 5, "b": 9}.items()
    }
    for thread in threads.values():
        thread.start()
    assert clock.await_sleepers(2)

    clock.advance(5)
    threads["a"].join(10)
    assert order == ["a"]
    clock.advance(4)
    threads["b"].join(10)
    assert order == ["a", "b"]


def test_two_processes_that_know_the_epoch_agree_on_the_date() -> None:
    epoch = datetime.datetime.now(datetime.UTC) - datetime.timedelta(seconds=10)
    environ = {"MOORAGE_CLOCK_SPEED": "1000", "MOORAGE_CLOCK_EPOCH": str(epoch.timestamp())}

    first, second = clocks.from_environment(environ), clocks.from_environment(environ)

    assert first.wall() <= second.wall()
    assert second.wall() - epoch > datetime.timedelta(seconds=10_000)


@pytest.mark.parametrize("hours", [5, -5], ids=["paused, or set forward", "set back"])
def test_at_the_worlds_speed_the_date_is_the_systems_though_it_was_wrong_before(
    monkeypatch: pytest.MonkeyPatch, hours: float
) -> None:
    """A virtual machine that is paused wakes with the date set right, and its other clock where that stood."""
    clock = clocks.Clock()
    before, now = clock.wall(), clock.now()

    class Later(datetime.datetime):
        @classmethod
        def now(cls, tz: datetime.tzinfo | None = None) -> datetime.datetime:  # type: ignore[override]
            return datetime.datetime.now(tz) + datetime.timedelta(hours=hours)

    monkeypatch.setattr(
        clocks, "datetime", types.SimpleNamespace(datetime=Later, UTC=datetime.UTC, timedelta=datetime.timedelta)
    )

    assert clock.wall() - before == pytest.approx(datetime.timedelta(hours=hours), abs=datetime.timedelta(minutes=1))
    assert clock.wall().tzinfo is datetime.UTC
    assert 0 <= clock.now() - now < 60, "deadlines know nothing of it"


@pytest.mark.parametrize("text", ["soon", "1e300", "99999999999"])
def test_an_epoch_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(top.ConfigError, match="is not a moment in the past"):
        clocks.from_environment({"MOORAGE_CLOCK_EPOCH": text})
