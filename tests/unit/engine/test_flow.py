"""A flow runs its resources in order of need, keeps what is finished, and stops with an honest account."""

from __future__ import annotations

import logging
import pathlib
import sqlite3
import threading

import pytest
import toycloud

from moorage import errors as top
from moorage.engine import clock as clocks
from moorage.engine import errors, flow, progress, secret
from moorage.engine import journal as journals


def run(resources: tuple[toycloud.Thing, ...], journal: journals.Journal, clock: clocks.Clock, **options: object):
    return flow.run(flow.Flow("infra", resources), journal=journal, clock=clock, **options)


def test_every_resource_is_made_once_and_after_what_it_needs(cloud, journal, clock):
    outcome = run(toycloud.harbour(cloud), journal, clock)

    assert cloud.inventory() == toycloud.names(toycloud.harbour(cloud))
    made = cloud.made("create")
    assert made.index("network") < made.index("balancer") < made.index("master")
    assert made.index("image") < made.index("bootstrap") < made.index("master")
    assert outcome.outputs["master"]["on"] == [outcome.outputs["bootstrap"]["id"], outcome.outputs["balancer"]["id"]]
    assert outcome.kept == ()


def test_independent_resources_are_made_at_the_same_time(cloud, journal, clock):
    meeting = threading.Barrier(3, timeout=10)
    for name in ("a", "b", "c"):
        cloud.before["create", name].append(lambda: meeting.wait() and None)

    run(toycloud.things(cloud, {"a": (), "b": (), "c": ()}), journal, clock)

    assert cloud.inventory() == {"a": 1, "b": 1, "c": 1}


def test_a_finished_flow_runs_again_without_a_single_call(cloud, journal, clock):
    first = run(toycloud.harbour(cloud), journal, clock)
    cloud.calls.clear()

    again = run(toycloud.harbour(cloud), journal, clock)

    assert cloud.calls == []
    assert again.outputs == first.outputs
    assert set(again.kept) == set(first.outputs)


def test_a_failure_stops_the_flow_and_says_what_failed_exists_and_never_started(cloud, journal, clock):
    cloud.before["create", "bootstrap"].append(
        toycloud.fails(
            errors.Terminal("cannot create", words="quota exceeded: 0 of 4 CPUs left", remedy="ask for more CPUs")
        )
    )

    with pytest.raises(errors.FlowFailed) as failed:
        run(toycloud.harbour(cloud), journal, clock)

    story = failed.value
    assert [failure.resource for failure in story.failures] == ["bootstrap"]
    assert "quota exceeded: 0 of 4 CPUs left" in story.message
    assert "ask for more CPUs" in story.remedy
    assert "run the same command again" in story.remedy
    assert {"network", "image"} <= set(story.exists)
    assert "bootstrap" in story.unfinished
    assert "master" in story.never_started
    told = [*story.exists, *story.unfinished, *story.never_started]
    assert sorted(told) == sorted(thing.name for thing in toycloud.harbour(cloud))
    assert story.exit_code == top.INFRASTRUCTURE
    assert journal.attempts("infra")[-1].outcome == "failed"


def test_after_the_cause_is_gone_the_same_flow_goes_on(cloud, journal, clock):
    cloud.before["create", "bootstrap"].append(toycloud.fails(errors.Terminal("quota")))
    with pytest.raises(errors.FlowFailed):
        run(toycloud.harbour(cloud), journal, clock)
    cloud.calls.clear()

    outcome = run(toycloud.harbour(cloud), journal, clock)

    assert cloud.inventory() == toycloud.names(toycloud.harbour(cloud))
    assert "network" in outcome.kept
    assert "network" not in cloud.made("find")


def test_siblings_in_flight_finish_when_one_fails(cloud, journal, clock):
    in_flight, failed = threading.Event(), threading.Event()
    cloud.before["create", "slow"].append(lambda: in_flight.set() or (failed.wait(10) and None))

    def fail_while_slow_is_in_flight() -> None:
        in_flight.wait(10)
        raise errors.Terminal("no")

    cloud.before["create", "bad"].append(fail_while_slow_is_in_flight)

    def listener(event: progress.Event) -> None:
        if isinstance(event, progress.Failed):
            failed.set()

    with pytest.raises(errors.FlowFailed) as stopped:
        run(
            toycloud.things(cloud, {"slow": (), "bad": (), "after-slow": ("slow",)}),
            journal,
            clock,
            listeners=[listener],
        )

    assert stopped.value.exists == ("slow",)
    assert stopped.value.never_started == ("after-slow",)
    assert set(journal.finished("infra")) == {"slow"}


def test_what_waits_for_a_free_worker_does_not_start_after_a_failure(cloud, journal, clock):
    cloud.before["create", "a"].append(toycloud.fails(errors.Terminal("no")))
    resources = toycloud.things(cloud, dict.fromkeys("abcdef", ()))
    first = toycloud.Thing(name="a", cloud=cloud, expected=100.0)

    with pytest.raises(errors.FlowFailed) as stopped:
        run((first, *resources[1:]), journal, clock, workers=1)

    assert cloud.made("create") == ["a"]
    assert stopped.value.never_started == ("b", "c", "d", "e", "f")


def test_the_longest_chain_goes_first_when_workers_are_few(cloud, journal, clock):
    short = toycloud.Thing(name="short", cloud=cloud, expected=1.0)
    long = toycloud.Thing(name="long", cloud=cloud, expected=5.0)
    behind = toycloud.Thing(name="behind", needs=("long",), cloud=cloud, expected=600.0)

    run((short, long, behind), journal, clock, workers=1)

    assert cloud.made("create")[0] == "long"


def test_two_failures_are_both_told(cloud, journal, clock):
    meeting = threading.Barrier(2, timeout=10)
    for name in "ab":

        def fail(name: str = name) -> None:
            meeting.wait()
            raise errors.Terminal(f"{name} is refused")

        cloud.before["create", name].append(fail)

    with pytest.raises(errors.FlowFailed) as failed:
        run(toycloud.things(cloud, {"a": (), "b": ()}), journal, clock)

    assert {failure.message for failure in failed.value.failures} == {"a is refused", "b is refused"}


def test_a_fault_in_a_platforms_code_is_that_resources_failure(cloud, journal, clock, caplog):
    cloud.before["create", "a"].append(toycloud.fails(KeyError("flavor")))

    with caplog.at_level(logging.ERROR), pytest.raises(errors.FlowFailed) as failed:
        run(toycloud.things(cloud, {"a": ()}), journal, clock)

    assert failed.value.failures[0].message == "KeyError: 'flavor'"
    assert "report it" in failed.value.remedy
    assert "Traceback" in caplog.text


def test_a_failure_is_not_logged_as_a_crash_of_the_scheduler(cloud, journal, clock, caplog):
    cloud.before["create", "a"].append(toycloud.fails(errors.Terminal("no")))

    with pytest.raises(errors.FlowFailed):
        run(toycloud.things(cloud, {"a": ()}), journal, clock)

    assert caplog.records == []


def test_a_resource_that_takes_too_long_fails_with_what_it_waited_for(cloud, journal, clock):
    cloud.unready["a"] = 10_000

    with pytest.raises(errors.FlowFailed) as failed:
        run(toycloud.things(cloud, {"a": ()}, timeout=60.0), journal, clock)

    assert "waiting for a to be ready took longer than 60 s" in failed.value.message


def test_the_whole_flow_has_a_deadline_too(cloud, journal, clock):
    cloud.unready["a"] = 10_000

    with pytest.raises(errors.FlowFailed) as failed:
        run(toycloud.things(cloud, {"a": ()}), journal, clock, timeout=20.0)

    assert clock.now() <= 21
    assert "took longer than 20 s" in failed.value.message


def test_a_requested_stop_wakes_the_waiting_and_starts_nothing_new(cloud, journal):
    clock = clocks.ManualClock(auto=False)
    cloud.unready["network"] = 1
    result: list[BaseException] = []

    def installer() -> None:
        with pytest.raises(errors.Interrupted) as stopped:
            run(toycloud.things(cloud, {"network": (), "master": ("network",)}), journal, clock)
        result.append(stopped.value)

    worker = threading.Thread(target=installer)
    worker.start()
    assert clock.await_sleepers(1)
    clock.request_stop()
    worker.join(10)

    assert "0 of 2" in str(result[0])
    assert result[0].exit_code == top.INTERRUPT
    assert cloud.inventory() == {"network": 1}
    assert journal.attempts("infra")[-1].outcome == "interrupted"
    assert [entry.state for entry in journal.events("infra") if entry.resource == "network"][-1] == "stopped"

    outcome = run(toycloud.things(cloud, {"network": (), "master": ("network",)}), journal, clocks.ManualClock())
    assert cloud.inventory() == {"network": 1, "master": 1}
    assert outcome.attempt == 2


def test_what_waits_for_a_free_worker_does_not_start_after_a_stop(cloud, journal, clock):
    cloud.after["create", "a"].append(clock.request_stop)
    first = toycloud.Thing(name="a", cloud=cloud, expected=100.0)

    with pytest.raises(errors.Interrupted):
        run((first, toycloud.Thing(name="b", cloud=cloud)), journal, clock, workers=1)

    assert [entry for entry in journal.events("infra") if entry.resource == "b"] == []
    assert "created" in [entry.state for entry in journal.events("infra") if entry.resource == "a"]


def test_a_journal_that_can_no_longer_be_written_ends_the_flow_with_that_error(cloud, journal, clock, monkeypatch):
    def disk_full() -> None:
        raise sqlite3.OperationalError("database or disk is full")

    cloud.after["create", "a"].append(lambda: monkeypatch.setattr(journal, "_commit", disk_full))

    with pytest.raises(errors.JournalError, match="database or disk is full"):
        run(toycloud.things(cloud, {"a": (), "b": ("a",)}), journal, clock)

    assert cloud.made("create") == ["a"]


def test_no_secret_reaches_the_journal_the_error_or_a_listener(cloud, clock, tmp_path: pathlib.Path):
    token = "hunter2-s3cr3t/with+signs"
    heard: list[progress.Event] = []
    cloud.before["create", "a"].append(toycloud.fails(errors.Transient("busy", words=f"token {token} throttled")))
    cloud.before["create", "a"].append(toycloud.fails(errors.Terminal(f"GET https://x/?t={token}: refused")))

    with journals.Journal(tmp_path / "journal.db", secrets=[secret.Secret(token)]) as journal:
        with pytest.raises(errors.FlowFailed) as failed:
            run(toycloud.things(cloud, {"a": ()}), journal, clock, listeners=[heard.append])
        written = b"".join(path.read_bytes() for path in tmp_path.iterdir())

    assert b"throttled" in written
    assert token.encode() not in written
    assert token not in str(heard)
    assert token not in failed.value.message
    assert "(secret)" in failed.value.message


@pytest.mark.parametrize("wrapped", [True, False])
def test_an_output_that_holds_a_secret_is_refused(clock, tmp_path: pathlib.Path, wrapped: bool):
    token = "hunter2-s3cr3t"

    class Leaky(toycloud.Thing):
        def _output(self, ident, inputs):
            return {"id": ident, "login": {"password": secret.Secret(token) if wrapped else f"pw={token}"}}

    with journals.Journal(tmp_path / "journal.db", secrets=[secret.Secret(token)]) as journal:
        with pytest.raises(errors.FlowFailed) as failed:
            run((Leaky(name="a", cloud=toycloud.Cloud()),), journal, clock)
        written = b"".join(path.read_bytes() for path in tmp_path.iterdir())

    assert "a.login.password holds a secret" in failed.value.message
    assert token.encode() not in written
