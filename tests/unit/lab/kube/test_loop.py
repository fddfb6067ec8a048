"""How controllers work: what they hear of, in which order they look, and what becomes of failures."""

from __future__ import annotations

import asyncio
import itertools
import logging

import pytest

from moorage.lab.kube import loop, problem, store
from tests.unit.lab.kube import controllers_world as worlds

KEY = worlds.WIDGETS.key


def _nothing() -> list[str]:
    return []


def test_a_key_heard_of_many_times_is_looked_at_once() -> None:
    async def told() -> None:
        world = worlds.World()
        seen: list[str] = []
        working = loop.Loop[str](world.api, "test", lambda key: seen.append(key), _nothing, pause=1)
        working.follow(KEY, lambda event: [event.name[1]])
        working.start()
        for number in range(5):
            world.widget("a", labels={"n": str(number)})
        await _until(lambda: working.idle and seen)
        assert seen == ["a"]
        await working.stop()

    worlds.story(told())


async def _until(true: object) -> None:
    async with asyncio.timeout(worlds.PATIENCE):
        while not true():
            await asyncio.sleep(0.002)


def test_it_begins_with_everything() -> None:
    async def told() -> None:
        world = worlds.World()
        seen: list[str] = []
        working = loop.Loop[str](world.api, "test", lambda key: seen.append(key), lambda: ["a", "b"])
        working.start()
        await _until(lambda: seen == ["a", "b"])
        await working.stop()

    worlds.story(told())


def test_the_earlier_of_two_times_counts() -> None:
    async def told() -> None:
        world = worlds.World()
        seen: list[tuple[str, float]] = []
        began = world.clock.now()
        working = loop.Loop[str](world.api, "test", lambda key: seen.append((key, world.clock.now() - began)), _nothing)
        working.start()
        working.offer("a", 60)
        working.offer("a", 20)
        working.offer("a", 90)
        # Offered last, so that their turns come later however long that took.
        working.offer("between", 40)
        working.offer("late", 100)
        await _until(lambda: len(seen) == 3)
        assert [key for key, _ in seen] == ["a", "between", "late"]
        assert seen[0][1] >= 20
        await working.stop()

    worlds.story(told())


def test_a_refusal_is_tried_again_ever_more_rarely_and_holds_nobody_up(caplog: pytest.LogCaptureFixture) -> None:
    async def told() -> None:
        world = worlds.World()
        tries: list[float] = []
        waits: list[float] = []
        others: list[str] = []

        class Noting(loop.Loop[str]):
            def offer(self, key: str, after: float | None = None) -> None:
                if key == "bad" and after is not None:
                    waits.append(after)
                super().offer(key, after)

        def reconcile(key: str) -> None:
            if key == "broken":
                raise ZeroDivisionError
            if key != "bad":
                others.append(key)
                return
            tries.append(world.clock.now())
            if len(tries) < 6:
                raise problem.conflict("", "widgets", key)

        working = Noting(world.api, "test", reconcile, lambda: ["bad", "broken", "good"])
        working.start()
        with caplog.at_level(logging.CRITICAL):
            await _until(lambda: len(tries) == 6)
        gaps = [later - earlier for earlier, later in itertools.pairwise(tries)]
        assert waits == [0.5, 1, 2, 4, 8]
        assert all(gap >= wait for gap, wait in zip(gaps, waits, strict=True))
        assert others == ["good"]
        await working.stop()

    worlds.story(told())


def test_a_loop_too_slow_for_its_watch_looks_at_everything_again() -> None:
    async def told() -> None:
        world = worlds.World()
        small = store.Store(keep=2)
        world.api.store = small
        seen: list[str] = []
        working = loop.Loop[str](
            world.api,
            "test",
            lambda key: seen.append(key),
            lambda: [name for _, name in small.names(KEY)],
        )
        working.follow(KEY, lambda event: [event.name[1]])
        working.start()
        for number in range(20):
            small.put(KEY, ("default", f"w{number:02}"), {"metadata": {"name": f"w{number:02}"}})
        await _until(lambda: len(seen) == 20)
        small.put(KEY, ("default", "later"), {"metadata": {"name": "later"}})
        await _until(lambda: "later" in seen)
        await working.stop()

    worlds.story(told())


def test_an_idle_loop_sleeps() -> None:
    async def told() -> None:
        world = worlds.World()
        working = loop.Loop[str](world.api, "test", lambda key: None, _nothing)
        working.follow(KEY, lambda event: [event.name[1]])
        working.start()
        for _ in range(100):  # turns of the event loop, in which it begins and finds nothing to do
            await asyncio.sleep(0)
        woken = 0
        running = asyncio.get_running_loop()
        original = running.call_soon

        def counting(*args: object, **kwargs: object) -> object:
            nonlocal woken
            woken += 1
            return original(*args, **kwargs)

        running.call_soon = counting
        await asyncio.sleep(0.05)
        # Our own sleep ends; nothing else stirs.
        assert woken <= 3
        await working.stop()

    worlds.story(told())


def test_without_its_store_a_cluster_stands_still_and_forgets_nothing() -> None:
    async def told() -> None:
        world = worlds.World()
        seen: list[str] = []
        asked = 0
        why = "etcdserver: request timed out"

        def available() -> str:
            nonlocal asked
            asked += 1
            return why

        world.api.available = available
        working = loop.Loop[str](world.api, "test", lambda key: seen.append(key), lambda: ["a"])
        working.follow(KEY, lambda event: [event.name[1]])
        working.start()
        await _until(lambda: asked)
        world.widget("b")
        # Asked now and then: as time flies here, a second of the cloud is not worth a look.
        await asyncio.sleep(0.2)
        assert seen == []
        assert 2 <= asked <= 6
        why = ""
        await _until(lambda: seen == ["a", "b"])
        await working.stop()

    worlds.story(told())
