"""Watches: what they tell, in which words, and when they end."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from moorage.engine import clock as clocks
from moorage.lab.kube import store, views, watching
from tests.unit.lab.kube.api_world import OLD_WIDGETS, WIDGETS, Refused, World

Told = list[tuple[str, str]]


@pytest.fixture
def world() -> World:
    return World()


def watch(world: World, kind: Any = None, view: views.View | None = None, **wanted: Any) -> watching.Stream:
    asked = watching.Wanted(**{"namespace": "default", **wanted})
    return watching.Stream(world.api, kind or world.maps, asked, view or views.View())


def lines(stream: watching.Stream) -> list[dict[str, Any]]:
    return [json.loads(line) for line in stream.lines().splitlines()]


def told(stream: watching.Stream) -> Told:
    return [(line["type"], line["object"]["metadata"].get("name", "")) for line in lines(stream)]


def test_a_watch_from_a_version_tells_what_happened_since(world: World) -> None:
    world.map("a")
    since = str(world.store.revision)
    world.map("b")
    stream = watch(world, resource_version=since)
    world.change("b", k="1")
    world.delete("b")

    assert told(stream) == [("ADDED", "b"), ("MODIFIED", "b"), ("DELETED", "b")]
    assert told(stream) == []


@pytest.mark.parametrize("version", ["", "0"])
def test_a_watch_from_nowhere_begins_with_what_is_there(world: World, version: str) -> None:
    world.map("b")
    world.map("a")
    stream = watch(world, resource_version=version)
    world.map("c")

    assert told(stream) == [("ADDED", "a"), ("ADDED", "b"), ("ADDED", "c")]


def test_a_watch_from_the_future_tells_nothing_of_what_comes_before_it(world: World) -> None:
    stream = watch(world, resource_version=str(world.store.revision + 2))
    for name in "abc":
        world.map(name)

    assert told(stream) == [("ADDED", "c")]


def test_a_watch_sees_its_own_namespace_or_all(world: World) -> None:
    here, everywhere = watch(world), watch(world, namespace="")
    world.map("a")
    world.map("b", namespace="other")

    assert told(here) == [("ADDED", "a")]
    assert told(everywhere) == [("ADDED", "a"), ("ADDED", "b")]


def test_what_enters_or_leaves_the_choice_is_added_or_deleted(world: World) -> None:
    world.map("a", labels={"colour": "red"}, k="old")
    stream = watch(world, labels="colour=red")
    stream.lines()
    world.change("a", labels={"colour": "blue"}, k="new")
    left = lines(stream)
    world.change("a", labels={"colour": "red"}, k="new")
    world.change("a", labels={"colour": "red"}, k="newer")
    world.delete("a")
    world.map("b", labels={"colour": "blue"})

    assert [(line["type"], line["object"]["data"]["k"]) for line in left] == [("DELETED", "old")]
    assert int(left[0]["object"]["metadata"]["resourceVersion"]) > 1
    assert told(stream) == [("ADDED", "a"), ("MODIFIED", "a"), ("DELETED", "a")]


def test_a_single_object_is_watched_by_its_name(world: World) -> None:
    stream = watch(world, fields="metadata.name=a")
    world.map("a")
    world.map("b")
    world.delete("a")

    assert told(stream) == [("ADDED", "a"), ("DELETED", "a")]


def test_the_version_left_behind_says_what_was_left(world: World) -> None:
    world.map("a", labels={"colour": "red"})
    stream = watch(world, labels="colour=red")
    stream.lines()
    changed = world.change("a", labels={"colour": "blue"})

    assert lines(stream)[0]["object"]["metadata"]["resourceVersion"] == str(changed.revision)


def test_a_version_too_old_is_an_error_in_the_stream_and_its_end() -> None:
    world = World(keep=2)
    since = str(world.store.revision)
    for number in range(9):
        world.map(f"m{number}")
    stream = watch(world, resource_version=since)
    (error,) = lines(stream)
    assert (error["type"], error["object"]["code"], error["object"]["reason"]) == ("ERROR", 410, "Expired")
    assert error["object"]["message"].startswith(f"too old resource version: {since} (")
    assert stream.over


def test_a_watch_that_falls_behind_is_told_so_and_ends() -> None:
    world = World(keep=2)
    stream = watch(world)
    for number in range(9):
        world.map(f"m{number}")

    assert [(line["type"], line["object"]["code"]) for line in lines(stream)] == [("ERROR", 410)]
    assert stream.over


def test_bookmarks_come_every_minute_and_before_the_end_if_wanted(world: World) -> None:
    stream, without = watch(world, bookmarks=True, seconds=100), watch(world, seconds=100)
    world.clock.advance(59)
    assert told(stream) == []
    world.clock.advance(2)
    (mark,) = lines(stream)
    world.clock.advance(36)
    assert told(stream) == []
    world.clock.advance(2)

    assert mark["type"] == "BOOKMARK"
    assert mark["object"] == {
        "kind": "ConfigMap",
        "apiVersion": "v1",
        "metadata": {"resourceVersion": str(world.store.revision), "creationTimestamp": None},
    }
    assert [kind for kind, _ in told(stream)] == ["BOOKMARK"]
    assert told(without) == []
    world.clock.advance(2)
    assert stream.over


def test_the_end_of_what_is_there_is_marked_if_that_was_asked_for(world: World) -> None:
    world.map("a")
    asked = {"send_initial": True, "match": "NotOlderThan", "bookmarks": True}
    first, mark = lines(watch(world, **asked))
    silent = watch(world, **{**asked, "send_initial": False})

    assert (first["type"], mark["type"]) == ("ADDED", "BOOKMARK")
    assert mark["object"]["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}
    assert lines(silent) == []


@pytest.mark.parametrize(
    ("wanted", "words"),
    [
        ({"send_initial": True}, "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan"),
        ({"match": "NotOlderThan"}, "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided"),
    ],
)
def test_options_that_do_not_go_together_are_refused(world: World, wanted: dict[str, Any], words: str) -> None:
    with Refused(422, "Invalid", words):
        watch(world, **wanted)
    with Refused(500, "", "strconv.ParseUint"):
        watch(world, resource_version="x")


def test_a_thousand_watchers_cost_one_encoding(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    streams = [watch(world) for _ in range(1000)]
    encodings: list[str] = []
    one = views.one

    def counted(*arguments: Any, **named: Any) -> bytes:
        encodings.append("one")
        return one(*arguments, **named)

    monkeypatch.setattr(views, "one", counted)
    world.map("a")

    assert {stream.lines() for stream in streams} == {streams[0].lines() or watch(world).lines()}
    assert len(encodings) == 2


def test_watches_of_other_forms_and_versions_say_so(world: World) -> None:
    plain = watch(world, WIDGETS)
    table = watch(world, WIDGETS, views.View(views.TABLE))
    partial = watch(world, WIDGETS, views.View(views.PARTIAL))
    old = watch(world, OLD_WIDGETS)
    world.widget("w", {"size": 3})
    world.widget("v", {"size": 4})

    first, second = lines(table)
    assert first["object"]["rows"][0]["cells"] == ["w", 3]
    assert [column["name"] for column in first["object"]["columnDefinitions"]] == ["Name", "Size"]
    assert second["object"]["columnDefinitions"] is None
    assert [line["object"]["kind"] for line in lines(partial)] == ["PartialObjectMetadata"] * 2
    assert [line["object"]["apiVersion"] for line in lines(old)] == ["example.com/v1beta1"] * 2
    assert [line["object"]["apiVersion"] for line in lines(plain)] == ["example.com/v1"] * 2


def test_a_watch_sleeps_until_something_happens_or_it_is_closed() -> None:
    async def story() -> list[Told]:
        world = World()
        world.api.clock = clocks.Clock()
        stream = watch(world, seconds=60)
        found = []
        sleeping = asyncio.create_task(stream.wait())
        await asyncio.sleep(0)
        world.map("a")
        await sleeping
        found.append(told(stream))
        sleeping = asyncio.create_task(stream.wait())
        await asyncio.sleep(0)
        stream.close()
        await sleeping
        assert stream.over
        return found

    assert asyncio.run(asyncio.wait_for(story(), 5)) == [[("ADDED", "a")]]


def test_time_runs_by_the_clouds_clock() -> None:
    async def story() -> float:
        world = World()
        world.api.clock = clocks.Clock(1000)
        stream = watch(world, seconds=100)
        began = asyncio.get_running_loop().time()
        while not stream.over:
            await stream.wait()
        return asyncio.get_running_loop().time() - began

    assert asyncio.run(asyncio.wait_for(story(), 5)) < 2


def test_events_hold_their_lines_for_others(world: World) -> None:
    stream = watch(world)
    raw = world.store.watch(world.maps.key)
    world.map("a")
    stream.lines()

    (event,) = raw.ready()
    assert event.type == store.ADDED
    assert len(event.told) == 1
