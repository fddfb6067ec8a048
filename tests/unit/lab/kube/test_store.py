"""The store: one history of writes, read from the present, the past, and by many watchers at their own pace."""

from __future__ import annotations

import asyncio
import json
import logging
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from moorage.lab.kube import kinds, store

PODS: kinds.Key = ("", "pods")
NODES: kinds.Key = ("", "nodes")


def put(there: store.Store, name: str, namespace: str = "", key: kinds.Key = PODS, **content: Any) -> store.Entry:
    return there.put(key, (namespace, name), {"metadata": {"name": name, "namespace": namespace}, **content})


def shown(entries: list[store.Entry]) -> list[str]:
    return [entry.object["metadata"]["name"] for entry in entries]


def test_every_write_has_the_next_revision_whatever_its_kind() -> None:
    there = store.Store()

    revisions = [put(there, "a").revision, put(there, "n", key=NODES).revision, put(there, "a").revision]

    assert revisions == [2, 3, 4]
    assert json.loads(put(there, "b").data)["metadata"]["resourceVersion"] == "5"


def test_names_are_in_order_of_namespace_and_name() -> None:
    there = store.Store()
    for namespace, name in (("b", "x"), ("a-1", "y"), ("a", "z"), ("a", "b")):
        put(there, name, namespace)

    assert there.names(PODS) == [("a", "b"), ("a", "z"), ("a-1", "y"), ("b", "x")]
    assert there.names(PODS, "a") == [("a", "b"), ("a", "z")]
    assert shown(there.entries(PODS, "a-1")) == ["y"]


def test_what_is_removed_is_seen_once_more_with_the_revision_of_its_removal() -> None:
    there = store.Store()
    watch = there.watch(PODS)
    put(there, "a", size=1)

    there.remove(PODS, ("", "a"))

    added, deleted = watch.ready()
    assert (added.type, deleted.type) == ("ADDED", "DELETED")
    assert deleted.entry.object["size"] == 1
    assert deleted.entry.object["metadata"]["resourceVersion"] == "3"
    assert there.get(PODS, ("", "a")) is None
    assert there.remove(PODS, ("", "a")) is None


def test_a_watch_begins_after_the_revision_it_names_and_sees_one_kind() -> None:
    there = store.Store()
    put(there, "a")
    since = there.revision
    put(there, "n", key=NODES)
    put(there, "b")

    assert [event.name[1] for event in there.watch(PODS, since).ready()] == ["b"]


def test_history_that_was_forgotten_cannot_be_watched_or_listed() -> None:
    there = store.Store(keep=2)
    revisions = [put(there, f"p{number}").revision for number in range(8)]

    with pytest.raises(store.Compacted):
        there.watch(PODS, revisions[0])
    with pytest.raises(store.Compacted):
        there.entries(PODS, at=revisions[0])
    assert there.watch(PODS, revisions[-2]).ready()[0].name == ("", "p7")


def test_a_reader_that_falls_behind_is_told_so() -> None:
    there = store.Store(keep=2)
    slow, quick = there.watch(PODS), there.watch(PODS)
    for number in range(8):
        put(there, f"p{number}")
        quick.ready()

    with pytest.raises(store.Compacted):
        slow.ready()
    assert quick.ready() == []


def test_what_was_restored_cannot_be_watched_from_before_whatever_the_kind() -> None:
    there = store.Store()
    there.watch(NODES, 1)
    there.load(PODS, ("", "a"), {"metadata": {"name": "a", "resourceVersion": "70"}}, 70)

    for key in (PODS, NODES, ("", "secrets")):
        with pytest.raises(store.Compacted):
            there.watch(key, 69)
    assert put(there, "b").revision == 71


@settings(deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from("abcd"), st.booleans()), max_size=30),
    st.data(),
)
def test_a_list_of_the_past_is_what_a_list_was_then(writes: list[tuple[str, bool]], data: st.DataObject) -> None:
    there = store.Store()
    past = {there.revision: []}
    for name, keep in writes:
        put(there, name) if keep else there.remove(PODS, ("", name))
        past[there.revision] = [entry.data for entry in there.entries(PODS)]

    at = data.draw(st.sampled_from(sorted(past)))

    assert [entry.data for entry in there.entries(PODS, at=at)] == past[at]


def test_listeners_hear_of_writes_in_order_even_if_one_writes_on_hearing() -> None:
    there = store.Store()
    heard: list[tuple[str, int]] = []

    def react(key: kinds.Key, event: store.Event) -> None:
        if key == PODS and event.type == store.ADDED:
            put(there, event.name[1], seen=True)

    there.on_write = [react, lambda _, event: heard.append((event.type, event.entry.revision))]
    put(there, "a")

    assert heard == [("ADDED", 2), ("MODIFIED", 3)]


def test_a_failing_listener_harms_neither_the_write_nor_the_others(caplog: pytest.LogCaptureFixture) -> None:
    there = store.Store()
    heard: list[str] = []

    def fail(_key: kinds.Key, _event: store.Event) -> None:
        raise RuntimeError("broken")

    there.on_write = [fail, lambda _, event: heard.append(event.name[1])]
    with caplog.at_level(logging.ERROR):
        put(there, "a")

    assert heard == ["a"]
    assert "a listener failed" in caplog.text


def test_whoever_waits_wakes_when_something_is_written_when_time_is_up_and_when_closed() -> None:
    async def story() -> list[int]:
        there = store.Store()
        watch = there.watch(PODS)
        found = []
        waiting = asyncio.create_task(watch.wait())
        await asyncio.sleep(0)
        put(there, "a")
        await waiting
        found.append(len(watch.ready()))
        await watch.wait(0.001)
        found.append(len(watch.ready()))
        waiting = asyncio.create_task(watch.wait())
        await asyncio.sleep(0)
        watch.close()
        await waiting
        await watch.wait()
        return found

    assert asyncio.run(asyncio.wait_for(story(), 5)) == [1, 0]
