"""The plain provider's balancers: made whole or not at all, and changed without cutting what did not change."""

from __future__ import annotations

import asyncio
import socket
from typing import Any

import pytest

from tests.unit.lab.provider import World, story


class Echo:
    """A member that says its own address."""

    def __init__(self, address: str, port: int) -> None:
        self.address, self.port = address, port

    async def __aenter__(self) -> Echo:
        self._server = await asyncio.start_server(self._answer, self.address, self.port)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while await reader.readline():
            writer.write(f"{self.address}\n".encode())
        writer.close()


async def asked(streams: tuple[asyncio.StreamReader, asyncio.StreamWriter]) -> str:
    streams[1].write(b"who\n")
    return (await streams[0].readline()).decode().strip()


def listener(port: int, *members: str, target: int = 0, **check: object) -> dict[str, object]:
    return {"port": port, "target": target or port, "members": list(members), "check": {"rise": 1, **check}}


async def healthy(world: World, name: str, count: int) -> dict[str, Any]:
    while True:
        shown = {each["name"]: each for each in await world.done("GET", "/v1/balancers")}[name]
        if sum(member["healthy"] for each in shown["listeners"] for member in each["members"]) == count:
            return dict(shown)
        await asyncio.sleep(0.01)


def test_a_balancer_changed_in_place_keeps_what_did_not_change() -> None:
    async def tell(world: World) -> None:
        first, second = world.site.allocate(), world.site.allocate()
        async with Echo(first, 7001), Echo(second, 7001):
            wanted = {"listeners": [listener(7001, first), listener(7002, first, target=7001)]}
            made = await world.done("PUT", "/v1/balancers/front", wanted)
            await healthy(world, "front", 2)
            lasting = await asyncio.open_connection(made["address"], 7001)
            brief = await asyncio.open_connection(made["address"], 7002)
            assert await asked(lasting) == await asked(brief) == first

            # When one listener gets another member, and the other one another check
            changed = {"listeners": [listener(7001, second), listener(7002, first, target=7001, interval=7)]}
            now = await world.done("PUT", "/v1/balancers/front", changed)
            assert now["address"] == made["address"]
            await healthy(world, "front", 2)

            # Then what runs through the first goes on, the second was made anew, and new connections go the new way
            assert await asked(lasting) == first
            with pytest.raises((OSError, asyncio.IncompleteReadError)):
                await brief[0].readexactly(1)
            fresh = await asyncio.open_connection(made["address"], 7001)
            assert await asked(fresh) == second
            for _, writer in (lasting, brief, fresh):
                writer.transport.abort()

    story(tell)


def test_the_same_balancer_twice_is_the_same() -> None:
    async def tell(world: World) -> None:
        member = world.site.allocate()
        wanted = {"listeners": [listener(7001, member, member)]}
        made = await world.done("PUT", "/v1/balancers/front", wanted)
        before = world.site.balancer.listeners()
        again = await world.done("PUT", "/v1/balancers/front", {**wanted, "address": made["address"]})

        assert again["address"] == made["address"]
        assert [each["port"] for each in again["listeners"]] == [7001]
        assert len(again["listeners"][0]["members"]) == 1
        assert world.site.balancer.listeners() == before
        await world.done("PUT", "/v1/balancers/front", {"listeners": []})
        assert world.site.balancer.listeners() == []
        await world.done("DELETE", "/v1/balancers/front")
        await world.done("DELETE", "/v1/balancers/front")
        assert await world.done("GET", "/v1/balancers") == []
        assert world.site.allocate(made["address"]) == made["address"]

    story(tell)


@pytest.mark.parametrize(
    ("asked_for", "words"),
    [
        ({"listeners": {}}, "listeners is a list"),
        ({"listeners": [7]}, "a listener is an object with a port"),
        ({"listeners": [{}]}, "a listener is an object with a port"),
        ({"listeners": [{"port": 1, "colour": "red"}]}, "a listener is an object with a port"),
        ({"listeners": [{"port": 0}]}, "numbers from 1 to 65535"),
        ({"listeners": [{"port": "80"}]}, "numbers from 1 to 65535"),
        ({"listeners": [{"port": True}]}, "numbers from 1 to 65535"),
        ({"listeners": [{"port": 80, "target": 65536}]}, "numbers from 1 to 65535"),
        ({"listeners": [{"port": 80, "members": "x"}]}, "members is a list"),
        ({"listeners": [{"port": 80, "members": [1]}]}, "members is a list"),
        ({"listeners": [{"port": 80, "members": ["10.0.0.1"]}]}, "not an address of the lab"),
        ({"listeners": [{"port": 80}, {"port": 80}]}, "listener 80 is there twice"),
        ({"listeners": [{"port": 80, "check": 5}]}, "check is an object"),
        ({"listeners": [{"port": 80, "check": {"colour": 5}}]}, "check is an object"),
        ({"listeners": [{"port": 80, "check": {"interval": "5"}}]}, "seconds from above 0"),
        ({"listeners": [{"port": 80, "check": {"timeout": 0}}]}, "seconds from above 0"),
        ({"listeners": [{"port": 80, "check": {"rise": 1.5}}]}, "rise and fall are whole numbers"),
        ({"listeners": [{"port": 80, "check": {"path": 5}}]}, "a check has a path"),
        ({"listeners": [{"port": 8080, "check": {"path": "readyz"}}]}, "is no path"),
        ({"listeners": [], "address": 7}, "address is a text"),
        ({"listeners": [], "address": "10.0.0.1"}, "not an address of the lab"),
        ({}, "field 'listeners' is missing"),
    ],
)
def test_no_balancer_for_bad_words(asked_for: object, words: str) -> None:
    async def tell(world: World) -> None:
        status, answer = await world.ask("PUT", "/v1/balancers/front", asked_for)

        assert (status, words in answer["error"]) == (422, True), answer
        assert await world.done("GET", "/v1/balancers") == []
        assert world.site.balancer.listeners() == []

    story(tell)


def test_a_bad_change_changes_nothing() -> None:
    async def tell(world: World) -> None:
        member = world.site.allocate()
        made = await world.done("PUT", "/v1/balancers/front", {"listeners": [listener(7001, member)]})
        bad = {"listeners": [listener(7002, member), listener(7001, "10.0.0.1")]}
        assert (await world.ask("PUT", "/v1/balancers/front", bad))[0] == 422
        moved = {"listeners": [], "address": member}
        status, answer = await world.ask("PUT", "/v1/balancers/front", moved)
        assert (status, answer["error"]) == (409, f"balancer front has another address: {made['address']}")
        (now,) = await world.done("GET", "/v1/balancers")
        assert [each["port"] for each in now["listeners"]] == [7001]
        assert [state.port for state in world.site.balancer.listeners()] == [7001]

    story(tell)


def test_a_port_that_is_taken() -> None:
    async def tell(world: World) -> None:
        address = world.site.allocate()
        world.site.release(address)
        with socket.create_server((address, 7002)):
            wanted = {"address": address, "listeners": [listener(7001), listener(7002)]}
            status, answer = await world.ask("PUT", "/v1/balancers/front", wanted)

            assert (status, f"cannot listen on {address}:7002" in answer["error"]) == (422, True)
            assert answer["remedy"]
            assert await world.done("GET", "/v1/balancers") == []  # made whole, or not at all
            assert world.site.balancer.listeners() == []
        made = await world.done("PUT", "/v1/balancers/front", wanted)
        assert [each["port"] for each in made["listeners"]] == [7001, 7002]

    story(tell)


def test_two_who_change_a_balancer_at_once_do_not_meet() -> None:
    async def tell(world: World) -> None:
        await world.open()
        member = world.site.allocate()
        bodies = [{"listeners": [listener(7001 + n % 2, member, interval=5 + n)]} for n in range(6)]
        done = await asyncio.gather(*(world.ask("PUT", "/v1/balancers/front", body) for body in bodies))
        assert [status for status, _ in done] == [200] * 6
        assert len(world.site.balancer.listeners()) == 1

    story(tell)
