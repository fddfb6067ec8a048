"""Listeners hear everything, one event at a time, and cannot hurt."""

from __future__ import annotations

import datetime
import threading

import toycloud

from moorage.engine import context, errors, flow, progress

AT = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)


def test_a_listener_that_breaks_does_not_silence_the_others(caplog):
    heard: list[progress.Event] = []

    def broken(_event: progress.Event) -> None:
        raise ZeroDivisionError("the bar is too narrow")

    progress.Broadcast([broken, heard.append])(progress.Started("infra", "a", AT))

    assert heard == [progress.Started("infra", "a", AT)]
    assert "the bar is too narrow" in caplog.text


def test_two_threads_are_never_in_a_listener_at_once():
    inside, most = 0, 0
    free = threading.Lock()

    def listener(_event: progress.Event) -> None:
        nonlocal inside, most
        with free:
            inside += 1
            most = max(most, inside)
        with free:
            inside -= 1

    broadcast = progress.Broadcast([listener])
    threads = [
        threading.Thread(target=lambda: [broadcast(progress.Started("infra", "a", AT)) for _ in range(200)])
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)

    assert most == 1


def test_the_story_of_one_resource_is_told_in_order_and_journaled_alike(cloud, journal, clock):
    cloud.before["create", "a"].append(toycloud.fails(errors.Transient("busy", words="HTTP 503")))
    cloud.unready["a"] = 2
    heard: list[progress.Event] = []

    flow.run(
        flow.Flow("infra", toycloud.things(cloud, {"a": ()})), journal=journal, clock=clock, listeners=[heard.append]
    )

    states = [event.state for event in heard]
    assert states == [
        "flow-started",
        "started",
        "creating",
        "retrying",
        "creating",
        "created",
        "waiting",
        "waiting",
        "finished",
        "flow-ended",
    ]
    assert [entry.state for entry in journal.events("infra")] == states
    entries = {entry.state: entry for entry in journal.events("infra")}
    assert "HTTP 503" in entries["retrying"].message
    assert entries["waiting"].waiting_for == "thing a to appear"
    assert entries["created"].ident == cloud.things["a"][0]


def test_saying_the_same_thing_twice_is_heard_once(clock):
    heard: list[progress.Event] = []
    ctx = context.Context(resource="a", clock=clock, deadline=clock.deadline(60), emit=heard.append)

    for what in ("the disk", "the disk", "the network", "the disk"):
        ctx.waiting(what)

    assert [event.waiting_for for event in heard] == ["the disk", "the network", "the disk"]
