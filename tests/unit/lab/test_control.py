"""The lab's controls over HTTP: guarded by its key, left alone by faults, and never on the record."""

from __future__ import annotations

import pytest

from tests.unit.lab.provider import KEY, World, machine, story


def test_nothing_without_the_key() -> None:
    async def tell(world: World) -> None:
        for key in ("", "wrong", f"{KEY}x", "caf\u00e9"):
            for method, path in (("GET", "/lab"), ("POST", "/lab/stop"), ("GET", "/lab/nothing")):
                status, answer = await world.order(method, path, key=key)
                assert (status, "key is wrong" in answer["error"]) == (401, True)
        assert world.stopped == []

    story(tell)


def test_how_it_fares() -> None:
    async def tell(world: World) -> None:
        await world.done("PUT", "/v1/machines/m", machine(power="off"))
        await world.done("PUT", "/v1/zones/example.com")
        await world.done("PUT", "/v1/records/a.example.com/A", {"values": ["127.0.0.1"]})
        await world.order("PUT", "/lab/quotas", {"machines": 7})
        await world.order("POST", "/lab/faults", {"action": "drop", "path": "/nowhere"})

        status, told = await world.order("GET", "/lab")

        assert status == 200
        assert told["version"] == "0"
        assert [(each["name"], each["state"]) for each in told["machines"]] == [("m", "off")]
        assert (told["clusters"], told["records"], told["calls"], told["faults"]) == ([], 1, 4, 1)
        assert told["quotas"] == {"machines": 7}
        assert told["time"].endswith("+00:00")
        assert KEY not in str(told)
        assert world.token not in str(told)

    story(tell)


def test_machines_are_struck_by_order() -> None:
    async def tell(world: World) -> None:
        await world.done("PUT", "/v1/machines/m", machine())
        for blow, state, connected in (
            ("partition", "booting", False),
            ("heal", "booting", True),
            ("kill", "off", True),
            ("kill", "off", True),
            ("start", "booting", True),
            ("reboot", "booting", True),
        ):
            status, told = await world.order("POST", f"/lab/machines/m/{blow}")
            assert (status, told["state"], told["connected"]) == (200, state, connected)
        status, text = await world.order("GET", "/lab/machines/m/console")
        assert (status, "link is down" in text, "power off" in text) == (200, True, True)
        status, answer = await world.order("POST", "/lab/machines/x/kill")
        assert (status, answer) == (404, {"error": "there is no machine x", "remedy": "machines: m"})
        assert (await world.order("GET", "/lab/machines/x/console"))[0] == 404
        assert (await world.order("POST", "/lab/machines/m/tickle"))[0] == 404

    story(tell)


def test_faults_are_ordered_shown_and_lifted() -> None:
    async def tell(world: World) -> None:
        rule = {"action": "fail", "service": "plain", "path": "/v1/machines", "status": 503}
        assert await world.order("POST", "/lab/faults", rule) == (200, {"number": 1})
        assert await world.order("POST", "/lab/faults", {"action": "drop", "path": "**"}) == (200, {"number": 2})
        _, shown = await world.order("GET", "/lab/faults")  # the rule for every path is not for the controls
        assert [(each["number"], each["action"], each["struck"]) for each in shown] == [(1, "fail", 0), (2, "drop", 0)]
        assert (await world.order("DELETE", "/lab/faults/2"))[0] == 200
        status, answer = await world.order("DELETE", "/lab/faults/2")
        assert (status, answer["error"]) == (404, "there is no fault rule 2")
        assert (await world.ask("GET", "/v1/machines"))[0] == 503
        assert (await world.order("DELETE", "/lab/faults"))[0] == 200
        assert (await world.ask("GET", "/v1/machines"))[0] == 200

    story(tell)


@pytest.mark.parametrize(
    ("path", "method", "body", "status"),
    [
        ("/lab/faults", "POST", "{", 400),
        ("/lab/faults", "POST", {"action": "explode"}, 422),
        ("/lab/faults", "POST", {"action": "drop", "colour": "red"}, 422),
        ("/lab/faults", "POST", [], 422),
        ("/lab/quotas", "PUT", "{", 400),
        ("/lab/quotas", "PUT", [], 400),
        ("/lab/quotas", "PUT", {"machines": -1}, 422),
        ("/lab/calls?after=x", "GET", None, 400),
        ("/lab/kubeconfig", "GET", None, 404),
    ],
)
def test_bad_orders_are_refused_with_words(path: str, method: str, body: object, status: int) -> None:
    async def tell(world: World) -> None:
        got, answer = await world.order(method, path, body)
        assert (got, bool(answer["error"])) == (status, True)
        assert world.site.faults.to_json() == []
        assert world.site.quotas.limits == {}

    story(tell)


def test_calls_are_shown_by_pattern_and_forgotten() -> None:
    async def tell(world: World) -> None:
        await world.done("PUT", "/v1/machines/a", machine())
        await world.done("GET", "/v1/machines")
        await world.done("DELETE", "/v1/machines/a")

        async def shown(query: str) -> list[str]:
            return [f"{each['method']} {each['path']}" for each in (await world.order("GET", f"/lab/calls?{query}"))[1]]

        assert len(await shown("")) == 4
        assert await shown("path=/v1/machines/*") == ["PUT /v1/machines/a", "DELETE /v1/machines/a"]
        assert await shown("method=GET&service=plain") == ["GET /v1/machines"]
        assert await shown("after=3") == ["DELETE /v1/machines/a"]
        assert await shown("service=kube/*") == []
        assert (await world.order("DELETE", "/lab/calls"))[0] == 200
        assert await shown("") == []

    story(tell)


def test_quotas_and_tokens() -> None:
    async def tell(world: World) -> None:
        assert await world.order("PUT", "/lab/quotas", {"machines": 0}) == (200, {"machines": 0})
        assert (await world.ask("PUT", "/v1/machines/m", machine()))[0] == 403
        assert await world.order("GET", "/lab/quotas") == (200, {"machines": 0})
        assert await world.order("PUT", "/lab/quotas", {"machines": None}) == (200, {})
        assert (await world.ask("PUT", "/v1/machines/m", machine()))[0] == 200
        assert await world.order("POST", "/lab/tokens/expire") == (200, {"expired": 1})
        assert (await world.ask("GET", "/v1/machines"))[0] == 401

    story(tell)


@pytest.mark.parametrize(("query", "kept"), [("", False), ("?calls=keep", True)])
def test_reset_leaves_an_empty_lab(query: str, kept: bool) -> None:
    async def tell(world: World) -> None:
        await world.done("PUT", "/v1/machines/m", machine())
        await world.done("PUT", "/v1/zones/example.com")
        await world.done("PUT", "/v1/records/a.example.com/A", {"values": ["127.0.0.1"]})
        front = await world.done("PUT", "/v1/balancers/front", {"listeners": [{"port": 7001}]})
        await world.order("POST", "/lab/faults", {"action": "stale-read"})

        assert (await world.order("POST", f"/lab/reset{query}"))[0] == 200

        assert bool(world.site.calls.calls()) == kept
        for path in ("records", "balancers"):
            assert await world.done("GET", f"/v1/{path}") == []
        assert (await world.done("GET", "/v1/machines"))["items"] == []
        # And nothing of the past shines through.
        await world.order("POST", "/lab/faults", {"action": "stale-read"})
        assert (await world.done("GET", "/v1/machines"))["items"] == []
        assert await world.done("GET", "/v1/balancers") == []
        again = await world.done(
            "PUT", "/v1/balancers/front", {"address": front["address"], "listeners": [{"port": 7001}]}
        )
        assert again["address"] == front["address"]

    story(tell)


def test_the_order_to_stop_is_passed_on() -> None:
    async def tell(world: World) -> None:
        assert (await world.order("POST", "/lab/stop"))[0] == 200
        assert world.stopped == [True]

    story(tell)
