"""Affinity groups: machines that must, or should, run together or apart; they belong to a cluster.

The machines and hosts of a group are kept as ids in ``_vms`` and ``_hosts``; a machine that goes leaves its groups.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aiohttp import web

from moorage.lab.ovirt import documents, faults

if TYPE_CHECKING:
    from moorage.lab.ovirt import engine as engines

_FIELDS = ("name", "description", "priority", "positive", "enforcing", "vms_rule", "hosts_rule")
_RULE = {"enabled": False, "positive": True, "enforcing": False}
_MEMBERS = {"vms": ("vm", "VM"), "hosts": ("host", "Host")}


def leave(engine: engines.Engine, vm: str) -> None:
    """Take a machine that goes out of every group."""
    for group in engine.inventory.all("affinity_groups"):
        group["_vms"] = [each for each in group["_vms"] if each != vm]


def routes(engine: engines.Engine) -> list[web.AbstractRouteDef]:
    handlers = _Groups(engine)
    at = "/clusters/{cluster}/affinitygroups"
    members = f"{at}/{{group}}/{{kind:{'|'.join(_MEMBERS)}}}"
    return [
        web.get(at, handlers.listed),
        web.post(at, handlers.add),
        web.get(f"{at}/{{group}}", handlers.one),
        web.put(f"{at}/{{group}}", handlers.update),
        web.delete(f"{at}/{{group}}", handlers.remove),
        web.get(members, handlers.members),
        web.post(members, handlers.join),
        web.delete(f"{members}/{{member}}", handlers.leave),
        web.get(f"{at}/{{group}}/{{labels:vmlabels|hostlabels}}", handlers.labels),
    ]


class _Groups:
    def __init__(self, engine: engines.Engine) -> None:
        self._engine = engine
        self._inventory = engine.inventory

    async def listed(self, request: web.Request) -> documents.Reply:
        cluster = self._cluster(request)
        return documents.collection("affinity_groups", self._inventory.find("affinity_groups", cluster=cluster["id"]))

    async def one(self, request: web.Request) -> documents.Reply:
        return documents.entity("affinity_group", self._group(request))

    async def add(self, request: web.Request) -> documents.Reply:
        cluster = self._cluster(request)
        asked = await documents.body(request, "affinity_group")
        if not asked.get("name"):
            raise faults.incomplete("AffinityGroup", "add", "name")
        self._check_name(asked["name"], "add Affinity Group")
        group: documents.Doc = {
            "name": asked["name"],
            "description": asked.get("description", ""),
            "cluster": {"id": cluster["id"]},
            "priority": asked.get("priority", 1.0),
            "broken": False,
            "vms_rule": dict(_RULE),
            "hosts_rule": dict(_RULE),
            "_vms": [],
            "_hosts": [],
        }
        self._apply(group, asked)
        for kind in _MEMBERS:
            for member in asked.get(kind) or ():
                self._take_in(group, kind, member, "add Affinity Group")
        return documents.created("affinity_group", self._inventory.add("affinity_groups", group))

    async def update(self, request: web.Request) -> documents.Reply:
        group = self._group(request)
        asked = await documents.body(request, "affinity_group")
        if asked.get("name", group["name"]) != group["name"]:
            self._check_name(asked["name"], "edit Affinity Group")
        self._apply(group, {key: asked[key] for key in _FIELDS if key in asked})
        return documents.entity("affinity_group", group)

    async def remove(self, request: web.Request) -> documents.Reply:
        group = self._group(request)
        self._engine.locks.check("affinity_groups", group["id"], "remove Affinity Group")
        self._inventory.remove("affinity_groups", group["id"])
        return documents.gone()

    async def members(self, request: web.Request) -> documents.Reply:
        kind = request.match_info["kind"]
        found = [self._inventory.get(kind, identity) for identity in self._group(request)[f"_{kind}"]]
        return documents.collection(kind, found)

    async def join(self, request: web.Request) -> documents.Reply:
        group, kind = self._group(request), request.match_info["kind"]
        tag = _MEMBERS[kind][0]
        member = self._take_in(group, kind, await documents.body(request, tag), "edit Affinity Group")
        return documents.created(tag, self._inventory.get(kind, member))

    async def leave(self, request: web.Request) -> documents.Reply:
        group, kind, member = self._group(request), request.match_info["kind"], request.match_info["member"]
        if member not in group[f"_{kind}"]:
            raise faults.missing()
        group[f"_{kind}"].remove(member)
        return documents.gone()

    async def labels(self, request: web.Request) -> documents.Reply:
        """Affinity labels are not part of this engine, so no group has any."""
        self._group(request)
        return documents.collection("affinity_labels", [])

    def _cluster(self, request: web.Request) -> documents.Doc:
        return self._inventory.get("clusters", request.match_info["cluster"])

    def _group(self, request: web.Request) -> documents.Doc:
        cluster = self._cluster(request)
        group = self._inventory.get("affinity_groups", request.match_info["group"])
        if group["cluster"]["id"] != cluster["id"]:
            raise faults.missing()
        return group

    def _apply(self, group: documents.Doc, asked: documents.Doc) -> None:
        """Set what is asked; the two old fields are the rule for machines in other words."""
        for rule in ("vms_rule", "hosts_rule"):
            if isinstance(asked.get(rule), dict):
                group[rule] |= {key: asked[rule][key] for key in _RULE if key in asked[rule]}
        for key in ("positive", "enforcing"):
            if key in asked and "vms_rule" not in asked:
                group["vms_rule"] |= {key: asked[key], "enabled": True}
        group |= {key: asked[key] for key in ("name", "description", "priority") if key in asked}
        group |= {key: group["vms_rule"][key] for key in ("positive", "enforcing") if group["vms_rule"]["enabled"]}

    def _take_in(self, group: documents.Doc, kind: str, asked: documents.Doc, doing: str) -> str:
        _, word = _MEMBERS[kind]
        if not (asked.get("id") or asked.get("name")):
            raise faults.incomplete(word, "add", "id|name")
        identity = asked.get("id") or (self._inventory.named(kind, asked["name"]) or {}).get("id", "")
        if not self._inventory.has(kind, identity):
            raise faults.refused(doing, f"Provided {word} is invalid (does not exist).", 400)
        if self._inventory.get(kind, identity)["cluster"]["id"] != group["cluster"]["id"]:
            raise faults.refused(doing, f"Provided {word} resides in another Cluster.", 400)
        if identity in group[f"_{kind}"]:
            raise faults.refused(doing, f"Duplicate {word}.", 400)
        group[f"_{kind}"].append(identity)
        return str(identity)

    def _check_name(self, name: str, doing: str) -> None:
        # One name is for one group in the whole engine, whichever cluster it is of.
        if self._inventory.named("affinity_groups", name) is not None:
            raise faults.refused(doing, "Affinity Group name already exists.", 400)
