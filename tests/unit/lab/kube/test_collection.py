"""The garbage collector: who goes with whom, in which order, and who is left alone."""

from __future__ import annotations

from moorage.lab.kube import collection
from tests.unit.lab.kube import controllers_world as worlds

Object = worlds.Object


def test_dependants_follow_their_owner_in_the_background() -> None:
    async def told() -> None:
        world = worlds.World()
        collector = collection.Collector(world.api, world.index)
        owner = world.widget("owner")
        child = world.widget("child", owner)
        world.widget("grandchild", child)
        world.widget("stranger")
        async with worlds.working(collector):
            world.delete("Widget", "owner")
            assert world.find("Widget", "owner") is None
            await world.until(lambda: world.names("Widget") == ["stranger"])

    worlds.story(told())


def test_a_dependant_stays_as_long_as_one_owner_is_left() -> None:
    async def told() -> None:
        world = worlds.World()
        collector = collection.Collector(world.api, world.index)
        first, second = world.widget("first"), world.widget("second")
        world.widget("child", first, second)
        async with worlds.working(collector):
            world.delete("Widget", "first")
            await world.until(lambda: len((world.find("Widget", "child") or {})["metadata"]["ownerReferences"]) == 1)
            assert world.get("Widget", "child")["metadata"]["ownerReferences"][0]["name"] == "second"
            world.delete("Widget", "second")
            await world.until(lambda: world.names("Widget") == [])

    worlds.story(told())


def test_an_owner_of_the_same_name_but_another_uid_is_absent() -> None:
    async def told() -> None:
        world = worlds.World()
        collector = collection.Collector(world.api, world.index)
        former = world.widget("owner")
        world.delete("Widget", "owner")
        world.widget("owner")
        world.widget("child", former)
        async with worlds.working(collector):
            await world.until(lambda: world.names("Widget") == ["owner"])

    worlds.story(told())


def test_a_dependant_written_after_its_owner_went_goes_too() -> None:
    async def told() -> None:
        world = worlds.World()
        collector = collection.Collector(world.api, world.index)
        owner = world.widget("owner")
        async with worlds.working(collector):
            world.delete("Widget", "owner")
            await world.rest(collector)
            world.widget("late", owner)
            await world.until(lambda: world.names("Widget") == [])

    worlds.story(told())


def test_what_cannot_be_judged_is_left_alone() -> None:
    async def told() -> None:
        world = worlds.World()
        collector = collection.Collector(world.api, world.index)
        owner = world.widget("owner")
        world.delete("Widget", "owner")
        world.put("example.com/v1", "ClusterWidget", "wide", metadata={"ownerReferences": [worlds.owned_by(owner)]})
        unknown = {**worlds.owned_by(owner), "kind": "Gadget"}
        world.put("example.com/v1", "Widget", "odd", metadata={"ownerReferences": [unknown]})
        async with worlds.working(collector):
            await world.rest(collector)
        assert (world.names("ClusterWidget"), world.names("Widget")) == (["wide"], ["odd"])

    worlds.story(told())


def test_in_the_foreground_an_owner_waits_for_those_that_block_it() -> None:
    async def told() -> None:
        world = worlds.World()
        collector = collection.Collector(world.api, world.index)
        owner = world.widget("owner")
        world.widget("held", owner, finalizers=["example.com/hold"])
        world.widget("free", owner)
        async with worlds.working(collector):
            world.delete("Widget", "owner", "Foreground")
            await world.until(lambda: world.names("Widget") == ["held", "owner"])
            await world.rest(collector)
            assert world.get("Widget", "owner")["metadata"]["finalizers"] == ["foregroundDeletion"]
            world.change("Widget", "held", lambda content: content["metadata"].pop("finalizers"))
            await world.until(lambda: world.names("Widget") == [])

    worlds.story(told())


def test_one_that_does_not_block_does_not_hold_its_owner_up() -> None:
    async def told() -> None:
        world = worlds.World()
        collector = collection.Collector(world.api, world.index)
        owner = world.widget("owner")
        world.widget("held", owner, blocks=False, finalizers=["example.com/hold"])
        async with worlds.working(collector):
            world.delete("Widget", "owner", "Foreground")
            await world.until(lambda: world.names("Widget") == ["held"])

    worlds.story(told())


def test_the_foreground_reaches_grandchildren_first() -> None:
    async def told() -> None:
        world = worlds.World()
        collector = collection.Collector(world.api, world.index)
        owner = world.widget("owner")
        child = world.widget("child", owner)
        world.widget("grandchild", child, finalizers=["example.com/hold"])
        async with worlds.working(collector):
            world.delete("Widget", "owner", "Foreground")
            await world.until(lambda: world.get("Widget", "grandchild")["metadata"].get("deletionTimestamp"))
            assert world.names("Widget") == ["child", "grandchild", "owner"]
            world.change("Widget", "grandchild", lambda content: content["metadata"].pop("finalizers"))
            await world.until(lambda: world.names("Widget") == [])

    worlds.story(told())


def test_orphans_are_let_go_of() -> None:
    async def told() -> None:
        world = worlds.World()
        collector = collection.Collector(world.api, world.index)
        owner = world.widget("owner")
        world.widget("child", owner)
        async with worlds.working(collector):
            world.delete("Widget", "owner", "Orphan")
            await world.until(lambda: world.names("Widget") == ["child"])
            await world.rest(collector)
        assert "ownerReferences" not in world.get("Widget", "child")["metadata"]

    worlds.story(told())


def test_a_circle_does_not_wait_for_itself() -> None:
    async def told() -> None:
        world = worlds.World()
        collector = collection.Collector(world.api, world.index)
        first = world.widget("first")
        second = world.widget("second", first)
        world.change(
            "Widget", "first", lambda content: content["metadata"].update(ownerReferences=[worlds.owned_by(second)])
        )
        async with worlds.working(collector):
            world.delete("Widget", "first", "Foreground")
            await world.until(lambda: world.names("Widget") == [])

    worlds.story(told())


def test_a_collector_that_begins_late_finds_what_was_left() -> None:
    async def told() -> None:
        world = worlds.World()
        owner, parent = world.widget("owner"), world.widget("parent")
        world.widget("child", owner)
        world.widget("offspring", parent)
        world.delete("Widget", "owner")
        world.delete("Widget", "parent", "Foreground")
        async with worlds.working(collection.Collector(world.api, world.index)):
            await world.until(lambda: world.names("Widget") == [])

    worlds.story(told())


def test_a_write_of_something_unowned_costs_the_collector_nothing() -> None:
    async def told() -> None:
        world = worlds.World()
        collector = collection.Collector(world.api, world.index)
        for number in range(50):
            world.widget(f"w{number}")
        async with worlds.working(collector):
            for number in range(50):
                world.change("Widget", f"w{number}", lambda content: content.update(spec={"a": 1}))
            await world.rest(collector)
        assert collector.loop.turns == 0

    worlds.story(told())
