"""The plain provider over HTTP: what it makes, what it refuses and why, twice the same, and on its bad days."""

from __future__ import annotations

import asyncio
import datetime
from typing import Any

import pytest

from moorage.lab import calls
from tests.unit.lab import provider
from tests.unit.lab.provider import NOTHING, World, machine, story


def test_a_machine_is_made_once_and_found_again() -> None:
    async def tell(world: World) -> None:
        made = await world.done("PUT", "/v1/machines/master-0", machine())
        again = await world.done("PUT", "/v1/machines/master-0", machine())

        assert made == {**made, "name": "master-0", "state": "booting", "connected": True, "role": "", "services": []}
        assert again["address"] == made["address"]
        assert await world.done("GET", "/v1/machines/master-0") == again
        assert len(world.site.instances) == 1
        await world.done("DELETE", "/v1/machines/master-0")
        await world.done("DELETE", "/v1/machines/master-0")
        assert (await world.ask("GET", "/v1/machines/master-0"))[0] == 404
        assert world.site.instance_at(made["address"]) is None

    story(tell, speed=1.0)  # it boots for as long as the story lasts


def test_making_it_again_leaves_its_power_alone() -> None:
    async def tell(world: World) -> None:
        assert (await world.done("PUT", "/v1/machines/m", machine(power="off")))["state"] == "off"
        assert (await world.done("PUT", "/v1/machines/m", machine()))["state"] == "off"
        assert (await world.done("POST", "/v1/machines/m/on"))["state"] == "booting"
        assert (await world.done("PUT", "/v1/machines/m", machine(power="off")))["state"] == "booting"
        assert (await world.done("POST", "/v1/machines/m/reboot"))["state"] == "booting"
        assert (await world.done("POST", "/v1/machines/m/off"))["state"] == "off"
        assert "power off" in await world.done("GET", "/v1/machines/m/console")
        assert (await world.ask("POST", "/v1/machines/m/explode"))[0] == 404
        assert (await world.ask("POST", "/v1/machines/nobody/on"))[0] == 404
        assert (await world.ask("GET", "/v1/machines/nobody/console"))[0] == 404

    story(tell, speed=1.0)  # it boots for as long as the story lasts


@pytest.mark.parametrize(
    ("name", "body", "status", "words"),
    [
        ("m", {}, 422, "field 'userData' is missing"),
        ("m", machine(size=3), 422, "unknown field 'size'"),
        ("m", {"userData": "%%%"}, 422, "userData is not base64"),
        ("m", {"userData": "é"}, 422, "userData is not base64"),
        ("m", {"userData": 7}, 422, "userData is a text"),
        ("m", machine(address=None), 422, "address is a text"),
        ("m", machine(power="maybe"), 422, "power is on or off"),
        ("m", machine(address="10.0.0.1"), 422, "not an address of the lab"),
        ("m", machine(address="127.0.0.1"), 422, "not in that network"),
        ("m", machine(network="blue"), 422, "there is no network blue"),
        ("Master", machine(), 422, "'Master' is no name"),
        ("a" * 254, machine(), 422, "is no name"),
        ("m", "{", 400, "the body is not JSON"),
        ("m", b"\xff", 400, "the body is not JSON"),
        ("m", "[" * 100_000, 400, "the body is not JSON"),
        ("m", [], 400, "the body is not a JSON object"),
        ("m", None, 400, "the body is not JSON"),
    ],
)
def test_no_machine_for_bad_words(name: str, body: object, status: int, words: str) -> None:
    async def tell(world: World) -> None:
        got, answer = await world.ask("PUT", f"/v1/machines/{name}", body)

        assert (got, words in answer["error"]) == (status, True), answer
        assert world.site.instances == {}

    story(tell)


def test_another_machine_of_the_same_name_is_a_conflict() -> None:
    async def tell(world: World) -> None:
        await world.done("PUT", "/v1/networks/green")
        made = await world.done("PUT", "/v1/machines/m", machine())

        for other in (machine(b"other"), machine(address="127.1.1.1"), machine(network="green")):
            status, answer = await world.ask("PUT", "/v1/machines/m", other)
            assert (status, answer["error"]) == (409, "there is another machine called m")
        same = machine(address=made["address"], network="default")
        assert (await world.done("PUT", "/v1/machines/m", same))["address"] == made["address"]
        status, answer = await world.ask("PUT", "/v1/machines/n", machine(address=made["address"]))
        assert (status, answer["error"]) == (422, f"{made['address']} is taken")

    story(tell)


def test_networks() -> None:
    async def tell(world: World) -> None:
        green = await world.done("PUT", "/v1/networks/green")
        assert await world.done("PUT", "/v1/networks/green") == green
        assert [each["name"] for each in await world.done("GET", "/v1/networks")] == ["default", "green"]
        made = await world.done("PUT", "/v1/machines/m", machine(network="green"))
        status, answer = await world.ask("DELETE", "/v1/networks/green")
        assert (status, answer["error"]) == (422, f"network green is in use: {made['address']}")
        await world.done("DELETE", "/v1/machines/m")
        await world.done("DELETE", "/v1/networks/green")
        await world.done("DELETE", "/v1/networks/green")
        assert (await world.ask("PUT", "/v1/networks/Gr%20n"))[0] == 422

    story(tell)


def test_machines_come_in_pages() -> None:
    async def tell(world: World) -> None:
        for number in range(5):
            await world.done("PUT", f"/v1/machines/m{number}", machine(power="off"))

        first = await world.done("GET", "/v1/machines?limit=2")
        second = await world.done("GET", f"/v1/machines?limit=2&after={first['after']}")
        third = await world.done("GET", f"/v1/machines?limit=2&after={second['after']}")

        names = [each["name"] for page in (first, second, third) for each in page["items"]]
        assert names == [f"m{number}" for number in range(5)]
        assert "after" not in third
        assert "after" not in await world.done("GET", "/v1/machines?limit=5")
        for bad in ("0", "-1", "x", "1.5", ""):
            assert (await world.ask("GET", f"/v1/machines?limit={bad}"))[0] == 400

    story(tell)


def test_names() -> None:
    async def tell(world: World) -> None:
        status, answer = await world.ask("PUT", "/v1/records/api.example.com/A", {"values": ["127.0.0.9"]})
        assert (status, "lies in no zone" in answer["error"]) == (422, True)
        await world.done("PUT", "/v1/zones/example.com")
        await world.done("PUT", "/v1/zones/example.com")
        wanted = {"values": ["127.0.0.9"], "ttl": 30}
        made = await world.done("PUT", "/v1/records/*.apps.example.com/A", wanted)
        assert made == {"name": "*.apps.example.com", "kind": "A", **wanted}
        assert await world.done("PUT", "/v1/records/*.apps.example.com/A", wanted) == made
        assert await world.done("GET", "/v1/records") == [made]
        assert await world.site.resolve("x.apps.example.com") == ["127.0.0.9"]
        await world.done("DELETE", "/v1/records/*.apps.example.com/A")
        await world.done("DELETE", "/v1/records/*.apps.example.com/A")
        await world.done("PUT", "/v1/records/api.example.com/A", wanted)
        await world.done("DELETE", "/v1/zones/example.com")
        await world.done("DELETE", "/v1/zones/example.com")
        assert await world.done("GET", "/v1/records") == []

    story(tell)


@pytest.mark.parametrize(
    ("path", "body", "words"),
    [
        ("/v1/records/a.example.com/A", {"values": "127.0.0.1"}, "values is a list of texts"),
        ("/v1/records/a.example.com/A", {"values": [7]}, "values is a list of texts"),
        ("/v1/records/a.example.com/A", {"values": []}, "one value at least"),
        ("/v1/records/a.example.com/A", {"values": ["127.0.0.1"], "ttl": "1"}, "ttl is a whole number"),
        ("/v1/records/a.example.com/A", {"values": ["127.0.0.1"], "ttl": True}, "ttl is a whole number"),
        ("/v1/records/a.example.com/A", {"values": ["127.0.0.1"], "ttl": -1}, "out of range"),
        ("/v1/records/a.example.com/A", {"values": ["not an address"]}, "cannot be the value of A"),
        ("/v1/records/a.example.com/MX", {"values": ["x"]}, "no MX records here"),
        ("/v1/records/a..example.com/A", {"values": ["127.0.0.1"]}, "not a name"),
        ("/v1/zones/a..b", {}, "not a name"),
    ],
)
def test_no_record_for_bad_words(path: str, body: object, words: str) -> None:
    async def tell(world: World) -> None:
        await world.done("PUT", "/v1/zones/example.com")
        status, answer = await world.ask("PUT", path, body)

        assert (status, words in answer["error"]) == (422, True), answer
        assert world.site.zones.records() == []

    story(tell)


def test_quotas_stop_what_is_new_and_nothing_else() -> None:
    async def tell(world: World) -> None:
        await world.done("PUT", "/v1/zones/example.com")
        makes: dict[str, tuple[str, Any]] = {
            "machines": ("/v1/machines/m{}", machine()),
            "records": ("/v1/records/m{}.example.com/A", {"values": ["127.0.0.9"]}),
            "balancers": ("/v1/balancers/m{}", {"listeners": []}),
        }
        world.site.quotas.set(dict.fromkeys(makes, 1))
        for thing, (path, body) in makes.items():
            await world.done("PUT", path.format(0), body)
            status, answer = await world.ask("PUT", path.format(1), body)
            assert (status, answer["error"]) == (403, f"quota exceeded for {thing}: 1 of 1 used, 1 more wanted")
            await world.done("PUT", path.format(0), body)  # what is there already is not one more
            await world.done("DELETE", path.format(0))
            await world.done("PUT", path.format(1), body)

    story(tell)


# --- who may ---


def test_no_call_without_a_token() -> None:
    async def tell(world: World) -> None:
        for token in ("", "wrong", provider.KEY):
            status, answer = await world.provider("GET", "/v1/machines", token=token)
            assert (status, answer["remedy"]) == (401, "get a new one: POST /v1/tokens")
        for body, status in (({"key": "wrong"}, 401), ({}, 422), ({"key": 7}, 422), ("{", 400)):
            assert (await world.provider("POST", "/v1/tokens", body))[0] == status
        assert (await world.provider("POST", "/v1/tokens", '{"key": "\\ud800"}'))[0] == 401

    story(tell)


def test_a_token_runs_out_and_another_one_is_had() -> None:
    async def tell(world: World) -> None:
        await world.open()
        assert (await world.ask("GET", "/v1/machines"))[0] == 200
        while (status := (await world.ask("GET", "/v1/machines"))[0]) == 200:
            await asyncio.sleep(0.02)
        assert status == 401
        await world.open()
        assert (await world.ask("GET", "/v1/machines"))[0] == 200
        world.tokens.expire()
        assert (await world.ask("GET", "/v1/machines"))[0] == 401

    story(tell, session_seconds=300.0)


# --- bad days ---


async def strike(world: World, **rule: object) -> None:
    status, answer = await world.order("POST", "/lab/faults", {"nth": 1, "service": "plain", **rule})
    assert status == 200, answer


def test_faults_strike_it() -> None:
    async def tell(world: World) -> None:
        path, body = "/v1/machines/m", machine()
        await strike(world, action="fail", method="PUT", path="/v1/machines/*", status=503, body={"error": "busy"})
        assert await world.ask("PUT", path, body) == (503, {"error": "busy"})
        await strike(world, action="drop", path="/v1/machines/*")
        assert (await world.ask("PUT", path, body))[0] == NOTHING
        assert world.site.instances == {}
        await strike(world, action="apply-then-drop", path="/v1/machines/*")
        assert (await world.ask("PUT", path, body))[0] == NOTHING
        assert list(world.site.instances) == ["m"]
        await strike(world, action="duplicate", path="/v1/machines/*")
        assert (await world.ask("PUT", path, body))[0] == 200
        assert list(world.site.instances) == ["m"]
        await strike(world, action="duplicate", method="DELETE", path="/v1/machines/*")
        assert (await world.ask("DELETE", path))[0] == 200

    story(tell)


def test_a_stale_reader_sees_machines_as_they_were() -> None:
    async def tell(world: World) -> None:
        async def stale(path: str) -> tuple[int, Any]:
            await strike(world, action="stale-read", method="GET", path="**")
            return await world.ask("GET", path)

        async def names() -> list[str]:
            return [each["name"] for each in (await stale("/v1/machines"))[1]["items"]]

        assert (await stale("/v1/machines"))[1] == {"items": []}  # nothing has changed yet
        await world.done("PUT", "/v1/machines/a", machine(power="off"))
        await world.done("PUT", "/v1/machines/b", machine(power="off"))
        assert await names() == ["a"]
        assert (await stale("/v1/machines/b"))[0] == 404
        assert (await stale("/v1/machines/a"))[0] == 200
        await world.done("PUT", "/v1/machines/b", machine(power="off"))  # no change
        assert await names() == ["a"]

        await world.done("POST", "/v1/machines/b/on")
        assert (await stale("/v1/machines/b"))[1]["state"] == "off"
        assert (await world.done("GET", "/v1/machines/b"))["state"] != "off"
        await world.done("DELETE", "/v1/machines/a")
        assert await names() == ["a", "b"]
        assert (await stale("/v1/machines/a"))[1]["name"] == "a"
        assert (await world.ask("GET", "/v1/machines/a"))[0] == 404

    story(tell)


def test_a_stale_reader_sees_names_and_balancers_as_they_were() -> None:
    async def tell(world: World) -> None:
        async def stale(path: str) -> Any:
            await strike(world, action="stale-read", method="GET", path="**")
            return await world.done("GET", path)

        await world.done("PUT", "/v1/zones/example.com")
        await world.done("PUT", "/v1/records/a.example.com/A", {"values": ["127.0.0.1"]})
        await world.done("PUT", "/v1/records/b.example.com/A", {"values": ["127.0.0.2"]})
        assert [each["name"] for each in await stale("/v1/records")] == ["a.example.com"]
        await world.done("PUT", "/v1/records/a.example.com/A", {"values": ["127.0.0.3"]})
        assert [each["values"] for each in await stale("/v1/records")] == [["127.0.0.1"], ["127.0.0.2"]]
        await world.done("PUT", "/v1/records/a.example.com/A", {"values": ["127.0.0.3"]})  # the same: no change
        assert [each["values"] for each in await stale("/v1/records")] == [["127.0.0.1"], ["127.0.0.2"]]
        await world.done("DELETE", "/v1/zones/example.com")
        assert len(await stale("/v1/records")) == 2
        assert await world.done("GET", "/v1/records") == []

        await world.done("PUT", "/v1/balancers/front", {"listeners": []})
        assert await stale("/v1/balancers") == []
        await world.done("DELETE", "/v1/balancers/front")
        assert [each["name"] for each in await stale("/v1/balancers")] == ["front"]

    story(tell)


def test_every_call_is_on_record() -> None:
    async def tell(world: World) -> None:
        await world.provider("GET", "/v1/machines")
        await world.open()
        await world.done("PUT", "/v1/machines/m", machine())
        await strike(world, action="apply-then-drop", method="DELETE")
        await world.ask("DELETE", "/v1/machines/m")
        await strike(world, action="delay", seconds=30.0)
        await world.ask("GET", "/v1/records?x=1")
        await world.ask("GET", "/v1/nothing")

        found = world.site.calls.calls(service="plain")
        assert [(c.who, c.method, c.path, c.status, c.faults) for c in found] == [
            ("a-test", "GET", "/v1/machines", 401, ()),
            ("a-test", "POST", "/v1/tokens", 200, ()),
            ("a-test", "PUT", "/v1/machines/m", 200, ()),
            ("a-test", "DELETE", "/v1/machines/m", None, ("apply-then-drop",)),
            ("a-test", "GET", "/v1/records?x=1", 200, ("delay",)),
            ("a-test", "GET", "/v1/nothing", 404, ()),
        ]
        slow: calls.Call = found[4]
        assert slow.seconds >= 30  # the cloud's
        assert abs(slow.at - world.site.clock.wall()) < datetime.timedelta(hours=2)
        assert not any(provider.KEY in str(call) or world.token in str(call) for call in found)

    story(tell)
