"""Tokens: had for the right key alone, good for an hour of the cloud's time, and ended by order."""

from __future__ import annotations

import pytest

from moorage.engine import clock as clocks
from moorage.lab import sessions


@pytest.fixture
def clock() -> clocks.ManualClock:
    return clocks.ManualClock()


def opened(tokens: sessions.Sessions) -> str:
    token = tokens.open("the key")
    assert token is not None
    return token


def test_a_token_is_had_for_the_key_and_runs_out(clock: clocks.ManualClock) -> None:
    tokens = sessions.Sessions(clock, "the key")
    token = opened(tokens)

    assert tokens.valid(token)
    clock.advance(sessions.SECONDS - 1)
    assert tokens.valid(token)
    clock.advance(1)
    assert not tokens.valid(token)


@pytest.mark.parametrize("key", ["", "the ke", "the key ", "THE KEY", "\udcff"])
def test_no_token_for_another_key(clock: clocks.ManualClock, key: str) -> None:
    tokens = sessions.Sessions(clock, "the key")

    assert tokens.open(key) is None
    assert not tokens.valid("")
    assert not tokens.valid(key)


def test_all_tokens_end_by_order_and_new_ones_are_good(clock: clocks.ManualClock) -> None:
    tokens = sessions.Sessions(clock, "the key")
    opened(tokens)
    clock.advance(sessions.SECONDS)
    old = [opened(tokens), opened(tokens)]

    assert tokens.expire() == 2  # the first had run out by itself
    assert not any(map(tokens.valid, old))
    assert tokens.valid(opened(tokens))
    assert tokens.expire() == 1
    assert tokens.expire() == 0
