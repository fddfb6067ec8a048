"""The renderer of a site: a real process that answers, fails and dies, and never holds anybody up."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

from moorage.engine import clock as clocks
from moorage.lab import site as sites
from moorage.lab.nodes import renderer

ECHO = """\
import json, os, sys, time
for line in sys.stdin:
    request = json.loads(line)
    what = request.get("do")
    if what == "die":
        print("out of ink", file=sys.stderr, flush=True)
        os._exit(3)
    if what == "hang":
        time.sleep(60)
    if what == "mute":
        os.close(1)
        time.sleep(60)
    if what == "rubbish":
        print("<html>", flush=True)
    elif what == "refuse":
        print(json.dumps({"error": "no address"}), flush=True)
    elif what == "numbers":
        print(json.dumps({"files": {"/a": 1}}), flush=True)
    else:
        print(json.dumps({"files": {"/pid": str(os.getpid()), "/name": request.get("name", "")}}), flush=True)
"""
STUBBORN = "import sys, time\nsys.stdin.close()\ntime.sleep(60)\n"


@pytest.fixture
def command(tmp_path: Path) -> list[str]:
    program = tmp_path / "render.py"
    program.write_text(ECHO)
    return [sys.executable, str(program)]


def story(tell: Callable[[sites.Site], Awaitable[None]]) -> None:
    asyncio.run(_told(tell))


async def _told(tell: Callable[[sites.Site], Awaitable[None]]) -> None:
    async with asyncio.timeout(20):
        await tell(sites.Site(clocks.Clock(1.0)))


@contextlib.asynccontextmanager
async def used(site: sites.Site, command: list[str]) -> AsyncIterator[renderer.Renderer]:
    async with renderer.used(site, command) as found:
        yield found


def alive(pid: int) -> bool:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, 0)
        return True
    return False


def test_one_process_answers_all_each_with_their_own(command: list[str]) -> None:
    async def tell(site: sites.Site) -> None:
        async with used(site, command) as one, used(site, command) as other:
            assert one is other
            found = await asyncio.gather(*(one.render({"name": f"n{number}"}) for number in range(100)))

        assert [each["/name"] for each in found] == [f"n{number}" for number in range(100)]
        assert len({each["/pid"] for each in found}) == 1

    story(tell)


def test_it_ends_with_its_last_user(command: list[str]) -> None:
    async def tell(site: sites.Site) -> None:
        async with used(site, command) as one:
            assert one.pid is None
            async with used(site, command):
                pid = int((await one.render({}))["/pid"])
            assert alive(pid)
            assert one.pid == pid

        assert not alive(pid)
        with pytest.raises(renderer.Failed, match="nobody uses it any more"):
            await one.render({})
        async with used(site, command) as later:
            assert int((await later.render({}))["/pid"]) != pid

    story(tell)


def test_one_that_does_not_end_is_made_to(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(renderer, "_END_SECONDS", 0.1)
    program = tmp_path / "stubborn.py"
    program.write_text(STUBBORN)

    async def tell(site: sites.Site) -> None:
        async with used(site, [sys.executable, str(program)]) as found:
            asking = asyncio.create_task(found.render({}))
            while found.pid is None:
                await asyncio.sleep(0.01)
            pid = found.pid
        assert not alive(pid)
        with pytest.raises(renderer.Failed, match="ended with status -9"):
            await asking

    story(tell)


@pytest.mark.parametrize(
    ("what", "words"),
    [
        ("refuse", "moorage node-network render: no address"),
        ("rubbish", "moorage node-network render: not an object of JSON: b'<html>"),
        ("numbers", "moorage node-network render: no files"),
    ],
)
def test_what_is_no_rendering_is_told_and_the_next_is_answered(command: list[str], what: str, words: str) -> None:
    async def tell(site: sites.Site) -> None:
        async with used(site, command) as found:
            with pytest.raises(renderer.Failed) as failed:
                await found.render({"do": what})
            assert words in str(failed.value)
            assert (await found.render({"name": "next"}))["/name"] == "next"

    story(tell)


@pytest.mark.parametrize("what", ["die", "mute"])
def test_all_who_waited_learn_of_its_death_and_it_comes_back(
    command: list[str], what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(renderer, "_RESTART_SECONDS", 0.2)
    monkeypatch.setattr(renderer, "_END_SECONDS", 0.5)

    async def tell(site: sites.Site) -> None:
        async with used(site, command) as found:
            first = (await found.render({}))["/pid"]
            results = await asyncio.gather(
                *(found.render({"do": what if number == 1 else ""}) for number in range(4)), return_exceptions=True
            )

            assert isinstance(results[0], dict)
            assert all(isinstance(each, renderer.Failed) for each in results[1:])
            if what == "die":
                assert str(results[3]) == "moorage node-network render ended with status 3: out of ink"
            assert (await found.render({}))["/pid"] != first

    story(tell)


def test_one_that_hangs_is_replaced(command: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(renderer, "_ANSWER_SECONDS", 0.5)
    monkeypatch.setattr(renderer, "_RESTART_SECONDS", 0.1)

    async def tell(site: sites.Site) -> None:
        async with used(site, command) as found:
            with pytest.raises(renderer.Failed, match=r"no answer within 0\.5 s"):
                await found.render({"do": "hang"})
            monkeypatch.setattr(renderer, "_ANSWER_SECONDS", 10.0)
            assert (await found.render({"name": "next"}))["/name"] == "next"

    story(tell)


def test_who_stops_waiting_takes_nobody_s_answer(command: list[str]) -> None:
    async def tell(site: sites.Site) -> None:
        async with used(site, command) as found:
            await found.render({})
            asking = [asyncio.create_task(found.render({"name": f"n{number}"})) for number in range(5)]
            await asyncio.sleep(0)
            asking[1].cancel()
            found_names = [(await each)["/name"] for number, each in enumerate(asking) if number != 1]

        assert found_names == ["n0", "n2", "n3", "n4"]

    story(tell)


def test_one_that_cannot_be_started_is_told_as_such() -> None:
    async def tell(site: sites.Site) -> None:
        async with used(site, ["/nonexistent/moorage"]) as found:
            with pytest.raises(renderer.Failed, match=r"cannot be started: .*No such file"):
                await found.render({})

    story(tell)


def test_it_is_the_product_s_own() -> None:
    async def tell(site: sites.Site) -> None:
        async with renderer.used(site) as found:
            with pytest.raises(renderer.Failed, match="moorage node-network render: "):
                await found.render({"settings": {}, "role": "master"})

    story(tell)
