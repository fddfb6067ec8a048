"""Workers: each key to its end, failures with growing pauses and without noise, and an end that leaves nothing half."""

from __future__ import annotations

import logging
import threading

import pytest

from moorage.engine import clock as clocks
from moorage.engine import errors as engine_errors
from moorage.machines.runtime import controller as controllers
from moorage.machines.runtime import errors, metrics
from moorage.machines.runtime import queue as queues

PATIENCE = 20.0


@pytest.fixture
def queue() -> queues.Queue:
    return queues.Queue(clocks.ManualClock())


def count(name: str, result: str) -> float:
    found = metrics.REGISTRY.get_sample_value(
        "controller_runtime_reconcile_total", {"controller": name, "result": result}
    )
    return found or 0.0


def failing(failure: Exception) -> controllers.Reconcile:
    def reconcile(_key: str) -> controllers.Result:
        raise failure

    return reconcile


def test_a_key_comes_again_when_its_result_says_so(queue: queues.Queue) -> None:
    controller = controllers.Controller("again", lambda _: controllers.Result(30.0), queue)

    controller.step("a")

    clock = queue.clock
    assert isinstance(clock, clocks.ManualClock)
    clock.advance(29.9)
    assert queue.get(patience=0) is None
    clock.advance(0.2)
    assert queue.get(patience=0) == "a"
    assert count("again", "requeue_after") == 1


def test_a_key_that_is_done_does_not_come_again_and_its_failures_are_forgotten(queue: queues.Queue) -> None:
    queue.add_rate_limited("a")
    queue.clock.advance(1)  # type: ignore[attr-defined]
    assert queue.get(patience=0) == "a"

    controllers.Controller("done", lambda _: controllers.DONE, queue).step("a")
    queue.done("a")

    assert (len(queue), queue.delayed, queue.failures("a")) == (0, 0, 0)
    assert count("done", "success") == 1


def test_a_failure_is_tried_again_after_a_pause_that_grows(queue: queues.Queue) -> None:
    controller = controllers.Controller("failing", failing(errors.Unavailable("away")), queue)

    for _ in range(3):
        controller.step("a")

    assert queue.failures("a") == 3
    assert queue.delayed == 1
    assert count("failing", "error") == 3


def test_a_server_that_says_when_to_come_back_is_left_alone_until_then(queue: queues.Queue) -> None:
    controllers.Controller("told", failing(errors.TooManyRequests("busy", retry_after=9.0)), queue).step("a")

    queue.clock.advance(8.9)  # type: ignore[attr-defined]
    assert queue.get(patience=0) is None
    queue.clock.advance(0.2)  # type: ignore[attr-defined]
    assert queue.get(patience=0) == "a"


def test_a_failure_is_told_once_until_its_words_change(queue: queues.Queue, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    outcomes: list[Exception | None] = [
        errors.Unavailable("away"),
        errors.Unavailable("away"),
        errors.Unavailable("still away"),
        errors.Conflict("somebody was quicker"),
        None,
        errors.Conflict("somebody was quicker"),
        None,
        errors.Unavailable("away"),
    ]

    def reconcile(_key: str) -> controllers.Result:
        outcome = outcomes.pop(0)
        if outcome is not None:
            raise outcome
        return controllers.DONE

    controller = controllers.Controller("words", reconcile, queue)
    for _ in range(len(outcomes)):
        controller.step("a")

    told = [record.message.partition(" (again")[0] for record in caplog.records]
    assert told == [
        "words: a: Unavailable: away",
        "words: a: Unavailable: still away",
        "words: a works again",
        "words: a: Unavailable: away",
    ]


def test_a_platforms_own_words_and_what_to_do_are_in_the_log(
    queue: queues.Queue, caplog: pytest.LogCaptureFixture
) -> None:
    refused = engine_errors.Unauthorized("the engine refuses us", words="account is locked", remedy="unlock it")
    controllers.Controller("refused", failing(refused), queue).step("a")

    (record,) = caplog.records
    assert record.message.startswith("refused: a: Unauthorized: the engine refuses us: account is locked (again in ")
    assert record.message.endswith(" s); next: unlock it")


def test_a_bug_is_told_with_its_trace_and_a_refusal_without(
    queue: queues.Queue, caplog: pytest.LogCaptureFixture
) -> None:
    controllers.Controller("bug", failing(KeyError("x")), queue).step("a")
    controllers.Controller("refusal", failing(errors.Invalid("x")), queue).step("a")

    assert [bool(record.exc_info) for record in caplog.records] == [True, False]


def test_who_leads_no_longer_says_so_quietly_and_keeps_the_key(
    queue: queues.Queue, caplog: pytest.LogCaptureFixture
) -> None:
    controllers.Controller("late", failing(errors.NotLeader("not me")), queue).step("a")

    assert queue.delayed == 1
    assert not caplog.records


def test_a_clock_that_is_stopped_ends_a_reconcile_without_another(queue: queues.Queue) -> None:
    controllers.Controller("stopped", failing(engine_errors.Interrupted()), queue).step("a")

    assert queue.delayed == 0


def test_stopping_waits_for_what_is_under_way_and_begins_nothing_else() -> None:
    queue = queues.Queue(clocks.Clock())
    begun, may_end, ended = threading.Event(), threading.Event(), []

    def reconcile(key: str) -> controllers.Result:
        begun.set()
        assert may_end.wait(PATIENCE)
        ended.append(key)
        return controllers.DONE

    controller = controllers.Controller("stop", reconcile, queue, workers=1)
    queue.add("a")
    queue.add("b")
    stop = threading.Event()
    run = threading.Thread(target=controller.run, args=(stop,), daemon=True)
    run.start()
    assert begun.wait(PATIENCE)

    stop.set()
    while not queue.shut:
        pass
    assert run.is_alive()
    may_end.set()
    run.join(PATIENCE)

    assert ended == ["a"]
    assert not run.is_alive()
    assert not controller.alive


def test_a_key_is_given_back_for_the_next_time_even_after_a_failure() -> None:
    queue = queues.Queue(clocks.Clock())
    times, twice = [], threading.Event()

    def reconcile(key: str) -> controllers.Result:
        times.append(key)
        if len(times) == 1:
            raise errors.Unavailable("away")
        twice.set()
        return controllers.DONE

    controller = controllers.Controller("twice", reconcile, queue)
    controller.start()
    queue.add("a")

    assert twice.wait(PATIENCE)
    assert controller.stop(PATIENCE) == []


def test_a_worker_that_does_not_end_is_named() -> None:
    queue = queues.Queue(clocks.Clock())
    begun, never = threading.Event(), threading.Event()

    def stuck(_key: str) -> controllers.Result:
        begun.set()
        never.wait(PATIENCE)
        return controllers.DONE

    controller = controllers.Controller("stuck", stuck, queue)
    queue.add("a")
    controller.start()
    assert begun.wait(PATIENCE)

    assert controller.stop(patience=0.05) == ["stuck-0"]
    never.set()


def test_several_workers_take_different_keys_at_the_same_time() -> None:
    queue = queues.Queue(clocks.Clock())
    together = threading.Barrier(3)

    def reconcile(_key: str) -> controllers.Result:
        together.wait(PATIENCE)
        return controllers.DONE

    controller = controllers.Controller("crew", reconcile, queue, workers=3)
    for key in "abc":
        queue.add(key)
    controller.start()

    assert controller.stop(PATIENCE) == []
    assert not together.broken
