"""Tags: names that users put on machines, in a tree below one root; a search for a tag finds those below it too.

A VM keeps the ids of its tags in ``_tags``.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from aiohttp import web

from moorage.lab.ovirt import documents, faults, links, shape

if TYPE_CHECKING:
    from moorage.lab.ovirt import engine as engines

_NAME = re.compile(r"[A-Za-z0-9_-]{1,50}")
_BEARERS = ("vms", "hosts", "templates")


def with_descendants(engine: engines.Engine, identities: set[str]) -> set[str]:
    """These tags and all below them."""
    found = set(identities)
    while True:
        more = {
            each["id"] for each in engine.inventory.all("tags") if each.get("parent", {}).get("id") in found
        } - found
        if not more:
            return found
        found |= more


def routes(engine: engines.Engine) -> list[web.AbstractRouteDef]:
    handlers = _Tags(engine)
    bearers = "|".join(_BEARERS)
    return [
        web.get("/tags", handlers.listed),
        web.post("/tags", handlers.add),
        web.get("/tags/{tag}", handlers.one),
        web.put("/tags/{tag}", handlers.update),
        web.delete("/tags/{tag}", handlers.remove),
        web.get(f"/{{kind:{bearers}}}/{{bearer}}/tags", handlers.of),
        web.post(f"/{{kind:{bearers}}}/{{bearer}}/tags", handlers.assign),
        web.get(f"/{{kind:{bearers}}}/{{bearer}}/tags/{{tag}}", handlers.assigned),
        web.delete(f"/{{kind:{bearers}}}/{{bearer}}/tags/{{tag}}", handlers.unassign),
    ]


class _Tags:
    def __init__(self, engine: engines.Engine) -> None:
        self._engine = engine
        self._inventory = engine.inventory

    async def listed(self, request: web.Request) -> documents.Reply:
        return documents.collection("tags", self._inventory.all("tags"))

    async def one(self, request: web.Request) -> documents.Reply:
        return documents.entity("tag", self._inventory.get("tags", request.match_info["tag"]))

    async def add(self, request: web.Request) -> documents.Reply:
        asked = await documents.body(request, "tag")
        if not asked.get("name"):
            raise faults.incomplete("Tag", "add", "name")
        self._check_name(asked["name"])
        parent = asked.get("parent") or {}
        if parent.get("name"):
            parent = self._inventory.named("tags", parent["name"]) or {"id": ""}
        above = self._inventory.get("tags", parent.get("id") or shape.ROOT_TAG)
        tag = self._inventory.add(
            "tags",
            {
                "name": asked["name"],
                "description": asked.get("description", ""),
                "parent": {"id": above["id"]},
            },
        )
        return documents.created("tag", tag)

    async def update(self, request: web.Request) -> documents.Reply:
        tag = self._writable(request)
        asked = await documents.body(request, "tag")
        if asked.get("name", tag["name"]) != tag["name"]:
            self._check_name(asked["name"])
        above = (asked.get("parent") or {}).get("id")
        if above is not None:
            self._inventory.get("tags", above)
            if above in with_descendants(self._engine, {tag["id"]}):
                raise faults.plain("Operation canceled, recursive Tag hierarchy cannot be defined.")
            tag["parent"] = {"id": above}
        tag |= {key: asked[key] for key in ("name", "description") if key in asked}
        return documents.entity("tag", tag)

    async def remove(self, request: web.Request) -> documents.Reply:
        """A tag goes with all below it, and from everything that bears it."""
        tag = self._writable(request)
        gone = with_descendants(self._engine, {tag["id"]})
        for kind in _BEARERS:
            for bearer in self._inventory.all(kind):
                bearer["_tags"] = [each for each in bearer.get("_tags", ()) if each not in gone]
        for identity in gone:
            self._inventory.remove("tags", identity)
        return documents.gone()

    async def of(self, request: web.Request) -> documents.Reply:
        found = self._bearer(request).get("_tags", ())
        return documents.collection("tags", [self._shown(request, identity) for identity in found])

    async def assigned(self, request: web.Request) -> documents.Reply:
        identity = request.match_info["tag"]
        if identity not in self._bearer(request).get("_tags", ()):
            raise faults.missing()
        return documents.entity("tag", self._shown(request, identity))

    async def assign(self, request: web.Request) -> documents.Reply:
        """Put a tag on: by its id or its name. One that is on already stays."""
        bearer = self._bearer(request)
        asked = await documents.body(request, "tag")
        if not (asked.get("id") or asked.get("name")):
            raise faults.incomplete("Tag", "add", "id|name")
        if asked.get("id"):
            tag = self._inventory.get("tags", asked["id"])
        else:
            named = self._inventory.named("tags", asked["name"])
            if named is None:
                raise faults.missing()
            tag = named
        held = bearer.setdefault("_tags", [])
        if tag["id"] not in held:
            held.append(tag["id"])
        return documents.created("tag", self._shown(request, tag["id"]))

    async def unassign(self, request: web.Request) -> documents.Reply:
        bearer, identity = self._bearer(request), request.match_info["tag"]
        if identity not in bearer.get("_tags", ()):
            raise faults.missing()
        bearer["_tags"].remove(identity)
        return documents.gone()

    def _bearer(self, request: web.Request) -> documents.Doc:
        return self._inventory.get(request.match_info["kind"], request.match_info["bearer"])

    def _shown(self, request: web.Request, identity: str) -> documents.Doc:
        """An assigned tag: found below what bears it, and naming it."""
        kind, bearer = request.match_info["kind"], request.match_info["bearer"]
        tag = self._inventory.get("tags", identity)
        return {**tag, "href": f"{links.API}/{kind}/{bearer}/tags/{identity}", kind[:-1]: {"id": bearer}}

    def _writable(self, request: web.Request) -> documents.Doc:
        tag = self._inventory.get("tags", request.match_info["tag"])
        self._engine.locks.check("tags", tag["id"], "edit Tag")
        if tag["id"] == shape.ROOT_TAG:
            raise faults.plain("Cannot edit readonly tag")
        return tag

    def _check_name(self, name: str) -> None:
        if not _NAME.fullmatch(name):
            raise faults.plain(
                "Invalid tag name. Only letters, numbers, '-', and '_' are valid characters.", status=400
            )
        if self._inventory.named("tags", name) is not None:
            raise faults.plain("The specified Tag name already exists.")
