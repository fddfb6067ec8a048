"""Health, failures, connections and watches: what a server does over time."""

from __future__ import annotations

import asyncio
import json
import logging

import aiohttp
import pytest
from aiohttp import typedefs, web

from moorage.engine import clock as clocks
from moorage.lab import faults
from moorage.lab.kube import routes
from tests.unit.lab.kube import server_world as worlds


def test_health_depends_on_the_store_and_on_being_ready() -> None:
    async def story(client: worlds.Client) -> None:
        for path in ("/healthz", "/livez", "/readyz"):
            assert (await client.ask("GET", path, token=""))[:2] == (200, "ok")
        assert (await client.ask("GET", "/readyz/etcd"))[:2] == (200, "ok")
        assert (await client.ask("GET", "/readyz/nonsense"))[0] == 404
        client.server.ready = False
        assert [(await client.ask("GET", path))[0] for path in ("/readyz", "/livez")] == [500, 200]
        client.server.ready = True
        client.world.api.available = lambda: "etcdserver: request timed out"
        status, told, _ = await client.ask("GET", "/readyz?verbose")
        assert status == 500
        assert "[-]etcd failed: reason withheld\n" in told
        status, answer, _ = await client.ask("GET", worlds.MAPS)
        assert (status, answer["message"]) == (500, "etcdserver: request timed out")
        client.world.api.available = lambda: ""
        assert (await client.ask("GET", "/readyz?verbose"))[1].endswith("readyz check passed\n")

    worlds.tell(story)


def test_a_failure_of_ours_is_a_status_and_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    async def story(client: worlds.Client) -> None:
        def fail(*_: object) -> None:
            raise RuntimeError("boom")

        client.world.api.get = fail  # type: ignore[assignment,method-assign]
        status, answer, _ = await client.ask("GET", f"{worlds.MAPS}/a")
        assert (status, answer["reason"]) == (500, "InternalError")
        assert "RuntimeError: boom" in answer["message"]

    with caplog.at_level(logging.ERROR, routes.__name__):
        worlds.tell(story)
    assert "boom" in caplog.text


def test_a_stale_read_has_missed_the_last_write() -> None:
    ordered = faults.Faults(clocks.Clock())
    ordered.add(faults.Rule(faults.STALE_READ, method="GET", path="/api/**"))

    async def story(client: worlds.Client) -> None:
        client.world.map("a", k="1")
        client.world.change("a", k="2")
        assert (await client.ask("GET", f"{worlds.MAPS}/a"))[1]["data"] == {"k": "1"}
        client.world.map("b")
        assert (await client.ask("GET", f"{worlds.MAPS}/b"))[0] == 404
        _, listed, _ = await client.ask("GET", worlds.MAPS)
        assert [item["data"] for item in listed["items"]] == [{"k": "2"}]

    worlds.tell(story, middlewares=[faults.striking(ordered, "kube")])


def test_connections_are_kept_for_the_next_request() -> None:
    callers = []

    @web.middleware
    async def note(request: web.Request, handler: typedefs.Handler) -> web.StreamResponse:
        assert request.transport is not None
        callers.append(request.transport.get_extra_info("peername"))
        return await handler(request)

    async def story(client: worlds.Client) -> None:
        for _ in range(3):
            _, _, answer = await client.ask("GET", "/version")
            assert answer.headers["Server"] == "master-1"

    worlds.tell(story, middlewares=[note], identity="master-1")
    assert len(callers) == 3
    assert len(set(callers)) == 1


def test_a_watch_streams_events_and_ends_cleanly_when_the_server_stops() -> None:
    async def story(client: worlds.Client) -> None:
        world = client.world
        headers = {"Authorization": "Bearer admin"}
        async with client.session.get(
            f"{client.url}{worlds.MAPS}?watch=true&labelSelector=x", headers=headers
        ) as stream:
            assert stream.headers["Transfer-Encoding"] == "chunked"
            world.map("ignored")
            world.map("a", labels={"x": "y"})
            event = json.loads(await stream.content.readline())
            assert (event["type"], event["object"]["metadata"]["name"]) == ("ADDED", "a")
            stopping = asyncio.create_task(client.server.stop())
            assert await stream.content.read() == b""
            await stopping
        assert not client.server.streams
        with pytest.raises(aiohttp.ClientConnectionError):
            await client.ask("GET", "/version")

    worlds.tell(story)


def test_a_watch_ends_after_its_time_and_is_forgotten_when_its_client_leaves() -> None:
    async def story(client: worlds.Client) -> None:
        client.world.api.clock = clocks.Clock(100)
        status, body, _ = await client.ask("GET", f"{worlds.MAPS}?watch=1&timeoutSeconds=5")
        assert (status, body) == (200, "")
        headers = {"Authorization": "Bearer admin"}
        stream = await client.session.get(f"{client.url}{worlds.MAPS}?watch=1", headers=headers)
        assert len(client.server.streams) == 1
        stream.close()
        while client.server.streams:
            await asyncio.sleep(0.01)

    worlds.tell(story)


def test_a_reader_that_does_not_read_holds_up_neither_others_nor_the_end() -> None:
    async def story(client: worlds.Client) -> None:
        headers = {"Authorization": "Bearer admin"}
        lazy = await client.session.get(f"{client.url}{worlds.MAPS}?watch=1", headers=headers)
        eager = await client.session.get(f"{client.url}{worlds.MAPS}?watch=1", headers=headers)
        for number in range(30):
            client.world.map(f"m{number:02}", k="x" * 500_000)
            while (await eager.content.readchunk())[0][-1:] != b"\n":
                pass
        began = asyncio.get_running_loop().time()
        await client.server.stop()
        assert asyncio.get_running_loop().time() - began < 3
        lazy.close()

    worlds.tell(story)
