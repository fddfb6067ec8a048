"""The engine's diary: what happened, newest first, each entry with a number that only grows.

Who reads it from time to time asks for what came after the last number seen (``from=``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aiohttp import web

from moorage.lab.ovirt import documents, faults

if TYPE_CHECKING:
    from moorage.lab.ovirt import engine as engines

NORMAL, WARNING, ERROR = "normal", "warning", "error"
_KEPT = 5000


class Events:
    """What happened; the entities are in the inventory."""

    def __init__(self, engine: engines.Engine) -> None:
        self._engine = engine
        self._last = 0

    def add(
        self, code: int, severity: str, description: str, *, correlation_id: str = "", **links: str
    ) -> documents.Doc:
        """Write an entry; ``links`` are ids of what it is about, as in ``vm="123"``."""
        self._last += 1
        event: documents.Doc = {
            "id": str(self._last),
            "code": code,
            "severity": severity,
            "description": description,
            "time": self._engine.clock.wall(),
            "origin": "oVirt",
            "custom_id": -1,
            "flood_rate": 30,
        }
        if correlation_id:
            event["correlation_id"] = correlation_id
        event |= {name: {"id": identity} for name, identity in links.items()}
        if self._last > _KEPT:
            self._engine.inventory.remove("events", str(self._last - _KEPT))
        return self._engine.inventory.add("events", event)


def routes(engine: engines.Engine) -> list[web.AbstractRouteDef]:
    inventory = engine.inventory

    async def listed(request: web.Request) -> documents.Reply:
        after = request.query.get("from", "0")
        if not after.isdigit():
            raise faults.invalid(f"The value '{after}' isn't a valid integer")
        found = [each for each in inventory.all("events") if int(each["id"]) > int(after)]
        return documents.collection("events", reversed(found))

    async def one(request: web.Request) -> documents.Reply:
        return documents.entity("event", inventory.get("events", request.match_info["event"]))

    return [web.get("/events", listed), web.get("/events/{event}", one)]
