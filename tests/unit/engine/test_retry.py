"""Calls are repeated when it makes sense, at growing and polite intervals, and never past a deadline."""

from __future__ import annotations

import datetime

import hypothesis
import pytest
from hypothesis import strategies as st

from moorage.engine import errors, retry

NOON = datetime.datetime(2026, 3, 1, 12, 0, tzinfo=datetime.UTC)


def answers(*results: object):
    """A call that gives each result in turn; exceptions are raised."""
    left = list(results)

    def call() -> object:
        result = left.pop(0)
        if isinstance(result, BaseException):
            raise result
        return result

    return call


@pytest.mark.parametrize(
    "error",
    [errors.Transient("503"), errors.Ambiguous("no reply"), TimeoutError("read"), ConnectionResetError("reset")],
    ids=lambda error: type(error).__name__,
)
def test_what_may_pass_is_repeated(clock, error):
    assert retry.retry(answers(error, error, "done"), deadline=clock.deadline(600)) == "done"
    assert len(clock.slept) == 2


@pytest.mark.parametrize(
    "error",
    [errors.Terminal("no"), errors.NotFound("?"), errors.Conflict("!"), errors.Unauthorized("who?"), KeyError("bug")],
    ids=lambda error: type(error).__name__,
)
def test_what_will_not_pass_is_raised_at_once(clock, error):
    with pytest.raises(type(error)):
        retry.retry(answers(error, "done"), deadline=clock.deadline(600))

    assert clock.slept == []


def test_the_platforms_retry_after_is_obeyed_and_only_slightly_exceeded(clock):
    retry.retry(answers(errors.Transient("429", retry_after=120), "done"), deadline=clock.deadline(600))

    assert 120 <= clock.slept[0] <= 132


def test_a_deadline_that_would_pass_while_waiting_ends_it_at_once_with_the_platforms_words(clock):
    refusal = errors.Transient("busy", words="HTTP 429: slow down", retry_after=100)

    with pytest.raises(errors.DeadlineExceeded) as exceeded:
        retry.retry(answers(refusal), deadline=clock.deadline(60, "network"))

    assert clock.slept == []
    assert "HTTP 429: slow down" in exceeded.value.told()
    assert "network took longer than 60 s" in exceeded.value.told()


def test_one_call_can_be_given_less_time_than_the_stage(clock):
    def refuse() -> None:
        raise errors.Transient("busy")

    with pytest.raises(errors.DeadlineExceeded):
        retry.retry(refuse, deadline=clock.deadline(3600), seconds=30)

    assert clock.now() <= 30


def test_a_stop_ends_the_repetition(clock):
    def stop_and_refuse() -> None:
        clock.request_stop()
        raise errors.Transient("busy")

    with pytest.raises(errors.Interrupted):
        retry.retry(stop_and_refuse, deadline=clock.deadline(600))


def test_each_failed_try_is_reported(clock):
    reports: list[tuple[str, int]] = []

    retry.retry(
        answers(errors.Transient("first"), errors.Transient("second"), "done"),
        deadline=clock.deadline(600),
        on_retry=lambda failure, _delay, tries: reports.append((failure.message, tries)),
    )

    assert reports == [("first", 1), ("second", 2)]


@hypothesis.settings(deadline=None)
@hypothesis.given(tries=st.integers(1, 10_000), luck=st.floats(0, 1, exclude_max=True))
def test_delays_stay_between_half_and_all_of_a_growing_bound(tries, luck):
    backoff = retry.Backoff(first=1, factor=2, most=60, jitter=0.5)
    bound = min(60, 2 ** (min(tries, 20) - 1))

    assert bound / 2 <= backoff.delay(tries, chance=lambda: luck) <= bound


@pytest.mark.parametrize(
    ("header", "seconds"),
    [
        ("120", 120),
        (" 0 ", 0),
        ("Sun, 01 Mar 2026 12:02:00 GMT", 120),
        ("Sun, 01 Mar 2026 11:00:00 GMT", 0),
        ("Sunday, 01-Mar-26 12:00:30 GMT", 30),
        ("soon", None),
        ("-5", None),
        ("1.5", None),
        ("²", None),
        ("", None),
        (None, None),
    ],
)
def test_retry_after_is_read_in_seconds_and_as_a_date(header, seconds):
    assert retry.seconds_from(header, NOON) == seconds


def test_polling_looks_until_there_is_something_to_see(clock):
    assert retry.poll(answers(None, None, "up"), every=5, deadline=clock.deadline(600)) == "up"
    assert clock.slept == [5, 5]


def test_polling_survives_a_failed_look(clock):
    assert retry.poll(answers(None, errors.Transient("503"), "up"), every=5, deadline=clock.deadline(600)) == "up"


def test_polling_looks_a_last_time_when_the_deadline_is_reached(clock):
    looks: list[float] = []

    with pytest.raises(errors.DeadlineExceeded):
        retry.poll(lambda: looks.append(clock.now()), every=7, deadline=clock.deadline(10))

    assert looks == [0, 7, 10]


def test_false_is_an_answer_and_none_is_not(clock):
    assert retry.poll(answers(None, False), every=1, deadline=clock.deadline(10)) is False
