"""The lab's controls over its engine: reshape the datacentre, settle neighbours in it, hold locks, restart it.

They are for people and tests who run the lab, under ``/lab/ovirt``, behind the lab's key.
"""

from __future__ import annotations

import datetime
from typing import Any

from aiohttp import web

from moorage import errors, lab
from moorage.lab.ovirt import documents, faults, locks, shape
from moorage.lab.ovirt import engine as engines


class ControlRefused(errors.MoorageError):
    """The engine cannot be made to do this."""


def routes(engine: engines.Engine) -> list[web.AbstractRouteDef]:
    controls = _Controls(engine)
    return [
        web.get("/lab/ovirt", controls.show),
        web.put("/lab/ovirt", controls.reshape),
        web.post("/lab/ovirt/foreign", controls.settle),
        web.post("/lab/ovirt/lock", controls.lock),
        web.post("/lab/ovirt/restart", controls.restart),
    ]


def shown(engine: engines.Engine) -> dict[str, Any]:
    """All that the engine knows of, for people; what is its own stays its own, except who bears which tags."""
    inventory = engine.inventory
    kinds = {kind: [_plain(each) for each in inventory.all(kind)] for kind in inventory.kinds()}
    return {"shape": engine.shape.to_json(), "down": engine.down, "locks": engine.locks.to_json(), **kinds}


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        kept = {key: each for key, each in value.items() if not key.startswith("_") or key in ("_tags", "_vms")}
        return {key.removeprefix("_"): _plain(each) for key, each in kept.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    return documents.moment(value) if isinstance(value, datetime.datetime) else value


async def _asked(request: web.Request, **fields: tuple[type, ...]) -> dict[str, Any]:
    """The JSON object in a request, with these fields and no others; those that may be None may be left out."""
    try:
        found = await request.json() if request.can_read_body else {}
    except ValueError as problem:
        raise ControlRefused(f"the body is not JSON: {problem}") from problem
    if not isinstance(found, dict) or set(found) - set(fields):
        raise ControlRefused("the body is not an object of what is asked for", remedy=f"fields: {', '.join(fields)}")
    wrong = [name for name, kinds in fields.items() if not isinstance(found.get(name), kinds)]
    if wrong:
        raise ControlRefused(f"missing, or of the wrong kind: {', '.join(wrong)}", remedy="see docs/lab.md")
    return found


class _Controls:
    def __init__(self, engine: engines.Engine) -> None:
        self._engine = engine

    async def show(self, request: web.Request) -> web.Response:
        return web.json_response(shown(self._engine))

    async def reshape(self, request: web.Request) -> web.Response:
        try:
            asked = await request.json()
        except ValueError as problem:
            raise ControlRefused(f"the body is not JSON: {problem}") from problem
        shape.change(self._engine, asked)
        return web.json_response(self._engine.shape.to_json())

    async def settle(self, request: web.Request) -> web.Response:
        """Another cluster moves in, with everything that bears its mark."""
        asked = await _asked(request, infra_id=(str,))
        return web.json_response(neighbour(self._engine, asked["infra_id"]))

    async def lock(self, request: web.Request) -> web.Response:
        """Somebody else works on a thing for a while."""
        asked = await _asked(request, kind=(str,), name=(str,), seconds=(int, float))
        engine, kind = self._engine, asked["kind"]
        found = engine.inventory.named(kind, asked["name"])
        if found is None:
            raise ControlRefused(f"there is no {asked['name']} among the {kind}", remedy="see: GET /lab/ovirt")
        try:
            engine.locks.hold(kind, found["id"], locks.LOCKED.get(kind, locks.IN_PROGRESS))
        except faults.Fault as wrong:
            raise ControlRefused(f"somebody holds it already: {wrong.detail}") from wrong
        engine.spawn(self._let_go(kind, found["id"], asked["seconds"]))
        return web.json_response({"id": found["id"]})

    async def _let_go(self, kind: str, identity: str, seconds: float) -> None:
        await lab.sleep(self._engine.clock, seconds)
        self._engine.locks.release(kind, identity)

    async def restart(self, request: web.Request) -> web.Response:
        asked = await _asked(request, seconds=(int, float, type(None)))
        seconds = asked.get("seconds")
        self._engine.restart(self._engine.shape.restart_seconds if seconds is None else seconds)
        return web.json_response({})


def neighbour(engine: engines.Engine, infra_id: str) -> dict[str, str]:
    """A cluster of somebody else's: its tag, machine, template with a disk, and affinity group. Their ids by kind."""
    inventory, mark = engine.inventory, f"moorage: {infra_id}"
    cluster = inventory.all("clusters")[0]["id"]
    tag = inventory.add("tags", {"name": infra_id, "description": mark, "parent": {"id": shape.ROOT_TAG}})
    vm = shape.add_vm(engine, f"{infra_id}-master-0", mark, host=inventory.all("hosts")[0]["id"], tags=[tag["id"]])
    template = shape.add_template(engine, f"{infra_id}-rhcos", mark, system="rhcos_x64")
    group = inventory.add(
        "affinity_groups",
        {
            "name": f"{infra_id}-controlplane",
            "description": mark,
            "cluster": {"id": cluster},
            "priority": 5.0,
            "broken": False,
            "positive": False,
            "enforcing": False,
            "vms_rule": {"enabled": True, "positive": False, "enforcing": False},
            "hosts_rule": {"enabled": False, "positive": True, "enforcing": False},
            "_vms": [vm],
            "_hosts": [],
        },
    )
    return {"tag": tag["id"], "vm": vm, "template": template, "affinity_group": group["id"]}
