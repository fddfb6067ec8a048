"""The lab's controls over its engine: the datacentre reshaped, neighbours settled, locks held, all of it undone."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from aiohttp import test_utils

from moorage.engine import clock as clocks
from moorage.lab import control, plain, sessions
from moorage.lab import site as sites
from moorage.lab.ovirt import engine as engines
from moorage.lab.ovirt import faults, shape

KEY = "key"
#: Real seconds for something to come about on a busy machine.
PATIENCE = 30.0


class World:
    """A site with an engine, and the lab's controls of both."""

    def __init__(self, site: sites.Site, engine: engines.Engine, client: test_utils.TestClient[Any, Any]) -> None:
        self.site = site
        self.engine = engine
        self._client = client

    async def order(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        headers = {"Authorization": f"Bearer {KEY}"}
        async with self._client.request(method, f"/lab{path}", json=body, headers=headers) as reply:
            return reply.status, await reply.json()

    async def done(self, method: str, path: str, body: Any = None) -> Any:
        status, answer = await self.order(method, path, body)
        assert status == 200, answer
        return answer

    def names(self, kind: str) -> list[str]:
        return [each["name"] for each in self.engine.inventory.all(kind)]


def story(tell: Any) -> None:
    async def run() -> None:
        site = sites.Site(clocks.Clock(200.0))
        await site.start()
        engine = engines.Engine(site)
        tokens = sessions.Sessions(site.clock, KEY)
        app = control.application(site, KEY, tokens, {"version": "0"}, lambda: None, engine)
        app[plain.PROVIDER] = plain.application(site, tokens)[plain.PROVIDER]
        try:
            async with test_utils.TestClient(test_utils.TestServer(app)) as client:
                await tell(World(site, engine, client))
        finally:
            await engine.stop()
            await site.stop()

    asyncio.run(run())


def test_a_new_lab_has_a_furnished_datacentre() -> None:
    async def tell(world: World) -> None:
        shown = await world.done("GET", "/ovirt")
        assert [each["name"] for each in shown["clusters"]] == ["Default", "Edge"]
        assert [each["name"] for each in shown["vms"]] == ["intranet"]
        assert [each["name"] for each in shown["templates"]] == ["Blank", "centos"]
        assert {each["type"] for each in shown["storage_domains"]} == {"data", "iso", "export"}
        assert (shown["down"], shown["locks"], shown["shape"]["agent"]) == (False, [], "normal")
        assert shown["vms"][0]["tags"] == []

    story(tell)


def test_hosts_storage_and_guests_are_reshaped() -> None:
    async def tell(world: World) -> None:
        await world.done(
            "PUT",
            "/ovirt",
            {
                "hosts": {"Default": 2, "Edge": 3},
                "host_threads": 16,
                "host_memory_gib": 32,
                "storage": {"data": {"free_gib": 10}, "slow": {"status": "maintenance"}},
                "guest": {"agent": "late"},
                "engine": {"restart_seconds": 90},
            },
        )
        assert world.names("hosts") == ["default-1", "default-2", "edge-1", "edge-2", "edge-3"]
        assert {each["memory"] for each in world.engine.inventory.all("hosts")} == {32 * shape.GIB}
        assert world.engine.inventory.all("hosts")[-1]["cpu"]["topology"]["cores"] == 16
        data, slow = world.engine.inventory.all("storage_domains")[:2]
        assert (data["available"], slow["status"]) == (10 * shape.GIB, "maintenance")
        assert (world.engine.shape.agent, world.engine.shape.restart_seconds) == ("late", 90)

    story(tell)


@pytest.mark.parametrize(
    "wrong",
    [
        [],
        {"nonsense": 1},
        {"hosts": {"Nowhere": 1}},
        {"hosts": {"Default": -1}},
        {"hosts": 3},
        {"host_threads": "many"},
        {"host_threads": True},
        {"storage": {"nothing": {"free_gib": 1}}},
        {"storage": {"data": {"size": 1}}},
        {"guest": {"agent": "chatty"}},
        {"permissions": {"nobody@internal": "all"}},
        {"permissions": {"admin@internal": "some"}},
        {"permissions": {"admin@internal": ["fly"]}},
    ],
)
def test_a_shape_that_makes_no_sense_changes_nothing(wrong: Any) -> None:
    async def tell(world: World) -> None:
        before = json.dumps((await world.done("GET", "/ovirt"))["hosts"])
        asked = {"host_threads": 1, **wrong} if isinstance(wrong, dict) else wrong
        status, answer = await world.order("PUT", "/ovirt", asked)
        assert (status, bool(answer["error"]), bool(answer["remedy"])) == (422, True, True)
        assert json.dumps((await world.done("GET", "/ovirt"))["hosts"]) == before

    story(tell)


def test_a_neighbour_moves_in_with_all_that_bears_its_mark() -> None:
    async def tell(world: World) -> None:
        settled = await world.done("POST", "/ovirt/foreign", {"infra_id": "other-abcde"})
        assert world.names("tags") == ["root", "other-abcde"]
        assert world.names("vms") == ["intranet", "other-abcde-master-0"]
        assert world.names("templates")[-1] == "other-abcde-rhcos"
        assert "other-abcde-rhcos" in world.names("disks")
        assert world.names("affinity_groups") == ["other-abcde-controlplane"]
        assert world.engine.inventory.get("vms", settled["vm"])["_tags"] == [settled["tag"]]
        assert (await world.order("POST", "/ovirt/foreign", {}))[0] == 422

    story(tell)


def test_somebody_else_holds_a_lock_for_a_while() -> None:
    async def tell(world: World) -> None:
        found = await world.done("POST", "/ovirt/lock", {"kind": "vms", "name": "intranet", "seconds": 3000})
        with pytest.raises(faults.Fault, match="VM is locked"):
            world.engine.locks.check("vms", found["id"])
        again, answer = await world.order("POST", "/ovirt/lock", {"kind": "vms", "name": "intranet", "seconds": 1})
        assert (again, "holds it already" in answer["error"]) == (422, True)
        before = world.site.clock.now()
        found = await world.done("POST", "/ovirt/lock", {"kind": "templates", "name": "centos", "seconds": 30})
        async with asyncio.timeout(PATIENCE):
            while world.engine.locks.held("templates", found["id"]):
                await asyncio.sleep(0.01)
        assert world.site.clock.now() - before >= 30
        assert (await world.order("POST", "/ovirt/lock", {"kind": "vms", "name": "x", "seconds": 1}))[0] == 422

    story(tell)


def test_the_engine_restarts_for_as_long_as_told() -> None:
    async def tell(world: World) -> None:
        token = world.engine.sessions.open("admin@internal")
        await world.done("POST", "/ovirt/restart", {"seconds": 3000})
        assert (world.engine.down, world.engine.sessions.user(token)) == (True, "")
        await world.done("POST", "/ovirt/restart", {"seconds": 0})
        assert not world.engine.down
        before = world.site.clock.now()
        await world.done("POST", "/ovirt/restart")
        assert before + 60 <= world.engine.down_until <= world.site.clock.now() + 60

    story(tell)


def test_tokens_expire_on_order_and_a_reset_furnishes_anew() -> None:
    async def tell(world: World) -> None:
        token = world.engine.sessions.open("admin@internal")
        assert (await world.done("POST", "/tokens/expire"))["expired"] == 1
        assert world.engine.sessions.user(token) == ""
        await world.done("POST", "/ovirt/foreign", {"infra_id": "other-abcde"})
        await world.done("POST", "/ovirt/lock", {"kind": "vms", "name": "intranet", "seconds": 3000})
        await world.done("PUT", "/ovirt", {"hosts": {"Default": 1}, "guest": {"agent": "never"}})
        world.engine.restart(3000)

        await world.done("POST", "/reset")

        assert world.names("vms") == ["intranet"]
        assert len(world.names("hosts")) == 5
        assert (world.engine.shape, world.engine.down, world.engine.locks.to_json()) == (shape.Shape(), False, [])

    story(tell)


def test_the_controls_want_the_key() -> None:
    async def tell(world: World) -> None:
        async with world._client.get("/lab/ovirt", headers={"Authorization": "Bearer wrong"}) as reply:
            assert reply.status == 401

    story(tell)
