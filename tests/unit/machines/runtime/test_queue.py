"""The queue's laws: one worker to a key, nothing lost, nobody starved; tried with a hand-set clock and with threads."""

from __future__ import annotations

import collections
import threading
import time

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from moorage.engine import clock as clocks
from moorage.machines.runtime import queue as queues

KEYS = st.sampled_from("abc")
PATIENCE = 20.0


class Line(RuleBasedStateMachine):
    """A queue beside a plain account of what it owes: which keys were asked for since they were last given out."""

    def __init__(self) -> None:
        super().__init__()
        self.clock = clocks.ManualClock()
        self.queue = queues.Queue(self.clock)
        self.owed: set[str] = set()
        self.later: dict[str, float] = {}
        self.working: list[str] = []
        self.overtaken: collections.Counter[str] = collections.Counter()

    def _advance(self) -> None:
        for key in [key for key, moment in self.later.items() if moment <= self.clock.now()]:
            del self.later[key]
            self.owed.add(key)

    def _put_off(self, key: str, seconds: float) -> None:
        self.later[key] = min(self.later.get(key, float("inf")), self.clock.now() + seconds)

    @rule(key=KEYS)
    def add(self, key: str) -> None:
        self._advance()
        self.queue.add(key)
        self.owed.add(key)

    @rule(key=KEYS, seconds=st.floats(0.01, 10))
    def add_after(self, key: str, seconds: float) -> None:
        self._advance()
        self.queue.add_after(key, seconds)
        self._put_off(key, seconds)

    @rule(key=KEYS)
    def fail(self, key: str) -> None:
        self._advance()
        self._put_off(key, self.queue.add_rate_limited(key))

    @rule(key=KEYS)
    def forget(self, key: str) -> None:
        self.queue.forget(key)
        assert self.queue.failures(key) == 0

    @rule(seconds=st.floats(0, 20))
    def time_passes(self, seconds: float) -> None:
        self.clock.advance(seconds)

    @rule()
    def take(self) -> None:
        self._advance()
        waiting = self.owed - set(self.working)
        key = self.queue.get(patience=0)
        if key is None:
            assert not waiting, "a key was owed and nobody got it"
            return
        assert key in self.owed, "a key was given out that nobody asked for"
        assert key not in self.working, "two workers have one key"
        self.owed.discard(key)
        self.working.append(key)
        self.overtaken.pop(key, None)
        for other in waiting - {key}:
            self.overtaken[other] += 1
            # The other two may be before it, and one that was done may be in line again before it was.
            assert self.overtaken[other] <= 3, "a key is passed over again and again"

    @precondition(lambda self: self.working)
    @rule(data=st.data())
    def finish(self, data: st.DataObject) -> None:
        key = data.draw(st.sampled_from(self.working))
        self.working.remove(key)
        self.queue.done(key)

    @invariant()
    def counts_agree(self) -> None:
        assert self.queue.delayed >= len([key for key, at in self.later.items() if at > self.clock.now()])

    def teardown(self) -> None:
        """When everything ends, all that is owed comes out, each once."""
        for key in self.working:
            self.queue.done(key)
        self.clock.advance(100_000)
        self._advance()
        given: list[str] = []
        while (key := self.queue.get(patience=0)) is not None:
            given.append(key)
            self.queue.done(key)
        assert sorted(given) == sorted(self.owed)


TestLine = Line.TestCase
TestLine.settings = settings(max_examples=60, stateful_step_count=50, deadline=None)


@pytest.fixture
def queue() -> queues.Queue:
    return queues.Queue(clocks.Clock())


def _in_thread(queue: queues.Queue) -> tuple[threading.Thread, list[str | None]]:
    got: list[str | None] = []
    thread = threading.Thread(target=lambda: got.append(queue.get(patience=PATIENCE)), daemon=True)
    thread.start()
    return thread, got


def test_a_key_that_is_always_dirty_lets_the_others_through(queue: queues.Queue) -> None:
    for key in ("noisy", "b", "c"):
        queue.add(key)

    order = []
    for _ in range(4):
        key = queue.get(patience=0)
        assert key is not None
        order.append(key)
        queue.add("noisy")
        queue.done(key)

    assert order == ["noisy", "b", "c", "noisy"]


def test_what_is_added_while_it_is_worked_on_comes_once_more_and_not_before_that_is_done(queue: queues.Queue) -> None:
    queue.add("a")
    assert queue.get(patience=0) == "a"
    queue.add("a")
    queue.add("a")

    assert queue.get(patience=0) is None
    queue.done("a")
    assert queue.get(patience=0) == "a"
    queue.done("a")
    assert queue.get(patience=0) is None


def test_pauses_double_up_to_the_longest_and_begin_anew_when_forgotten() -> None:
    clock = clocks.ManualClock()
    queue = queues.Queue(clock, bucket=queues.Bucket(per_second=1e9, burst=1e9))

    pauses = [queue.add_rate_limited("a") for _ in range(20)]

    assert pauses[:4] == [0.005, 0.01, 0.02, 0.04]
    assert pauses[-1] == 1000.0
    queue.forget("a")
    assert queue.add_rate_limited("a") == 0.005


def test_many_failures_together_are_spread_by_the_bucket() -> None:
    queue = queues.Queue(clocks.ManualClock())

    pauses = [queue.add_rate_limited(f"key-{number}") for number in range(300)]

    assert max(pauses[:100]) == 0.005
    assert pauses[299] == pytest.approx(20.0)


def test_the_bucket_fills_again_but_never_above_its_burst() -> None:
    bucket = queues.Bucket(per_second=10, burst=2)
    assert [bucket.reserve(0), bucket.reserve(0), bucket.reserve(0)] == pytest.approx([0, 0, 0.1])

    assert [bucket.reserve(1000.0) for _ in range(3)] == pytest.approx([0, 0, 0.1])


def test_a_delayed_key_wakes_a_worker_that_sleeps(queue: queues.Queue) -> None:
    thread, got = _in_thread(queue)
    queue.add_after("a", 0.05)

    thread.join(PATIENCE)
    assert got == ["a"]


def test_a_shorter_delay_wakes_whoever_waits_for_a_longer_one(queue: queues.Queue) -> None:
    queue.add_after("late", 1000)
    thread, got = _in_thread(queue)
    queue.add_after("soon", 0.02)

    thread.join(PATIENCE)
    assert got == ["soon"]


def test_a_shorter_delay_is_kept_whoever_of_those_who_wait_is_woken(queue: queues.Queue) -> None:
    waiting = [_asleep(queue) for _ in range(2)]
    queue.add_after("late", 1000)
    time.sleep(0.05)
    queue.add_after("soon", 0.02)

    deadline = time.monotonic() + PATIENCE
    while not any(got for _, got in waiting) and time.monotonic() < deadline:
        time.sleep(0.01)
    took = time.monotonic() - deadline + PATIENCE
    queue.shut_down()
    assert {got[0] for _, got in waiting if got} >= {"soon"}
    assert took < PATIENCE / 2


def test_of_two_delays_of_a_key_the_shorter_counts(queue: queues.Queue) -> None:
    clock = clocks.ManualClock()
    queue = queues.Queue(clock)
    queue.add_after("a", 1)
    queue.add_after("a", 9)

    clock.advance(1)

    assert queue.get(patience=0) == "a"
    clock.advance(100)
    queue.done("a")
    assert queue.get(patience=0) is None


def test_when_the_one_who_watches_the_time_leaves_with_a_key_another_takes_over(queue: queues.Queue) -> None:
    queue.add_after("later", 0.4)
    waiting = [_asleep(queue) for _ in range(2)]
    queue.add("now")

    for thread, _ in waiting:
        thread.join(PATIENCE / 2)
    assert sorted(str(got[0]) for _, got in waiting if got) == ["later", "now"]


def _asleep(queue: queues.Queue) -> tuple[threading.Thread, list[str | None]]:
    """A thread that waits for a key, and has had time to begin to."""
    found = _in_thread(queue)
    time.sleep(0.05)
    return found


def test_shutting_down_wakes_everybody_with_nothing(queue: queues.Queue) -> None:
    waiting = [_in_thread(queue) for _ in range(3)]
    queue.shut_down()
    queue.add("too late")

    for thread, got in waiting:
        thread.join(PATIENCE)
        assert got == [None]


def test_many_threads_work_on_many_keys_without_meeting() -> None:
    queue = queues.Queue(clocks.Clock(100), bucket=queues.Bucket(1e6, 1e6))
    keys = [f"key-{number}" for number in range(20)]
    wanted = dict.fromkeys(keys, 0)
    seen = dict.fromkeys(keys, 0)
    at_work: set[str] = set()
    met: list[str] = []
    guard = threading.Lock()

    def work() -> None:
        while (key := queue.get()) is not None:
            with guard:
                if key in at_work:
                    met.append(key)
                at_work.add(key)
                mine = wanted[key]
            time.sleep(0)
            with guard:
                at_work.discard(key)
                seen[key] = max(seen[key], mine)
            queue.done(key)

    workers = [threading.Thread(target=work, daemon=True) for _ in range(6)]
    for worker in workers:
        worker.start()
    for round_ in range(1, 101):
        for number, key in enumerate(keys):
            with guard:
                wanted[key] = round_
            [queue.add, lambda each: queue.add_after(each, 0.1), queue.add_rate_limited][number % 3](key)
            queue.forget(key)
    deadline = time.monotonic() + PATIENCE
    while seen != wanted and time.monotonic() < deadline:
        time.sleep(0.01)
    queue.shut_down()
    for worker in workers:
        worker.join(PATIENCE)

    assert not met
    assert seen == wanted, "the last wish for each key was seen by a worker"
