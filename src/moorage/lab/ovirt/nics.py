"""Network interfaces of machines and templates: each is on a network by a vNIC profile, and has an address of its own.

Hardware addresses come from one pool, in order. What an interface is called inside the guest is another matter: see
`guest`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from aiohttp import web

from moorage.lab.ovirt import documents, faults, references, routing

if TYPE_CHECKING:
    from moorage.lab.ovirt import engine as engines

Doc = dict[str, Any]

ADDING, EDITING, REMOVING = "add Interface", "edit Interface", "remove Interface"
_INTERFACES = ("e1000", "e1000e", "pci_passthrough", "rtl8139", "rtl8139_virtio", "spapr_vlan", "virtio")
_POOL = 0x566F00000000


def routes(engine: engines.Engine) -> list[web.AbstractRouteDef]:
    """The interfaces below machines and templates."""
    made: list[web.AbstractRouteDef] = []
    for kind, whole in (("vms", "vm"), ("templates", "template")):
        made += _routes(engine, kind, whole)
    return made


def _routes(engine: engines.Engine, kind: str, whole: str) -> list[web.AbstractRouteDef]:
    inventory = engine.inventory

    def owner(request: web.Request) -> Doc:
        return inventory.get(kind, request.match_info["owner"])

    def nic(request: web.Request) -> Doc:
        found = inventory.get("nics", request.match_info["nic"])
        if found.get(whole, {}).get("id") != owner(request)["id"]:
            raise faults.missing()
        return found

    async def listed(request: web.Request) -> documents.Reply:
        return documents.collection("nics", of(engine, whole, owner(request)["id"]))

    async def one(request: web.Request) -> documents.Reply:
        return documents.entity("nic", nic(request))

    async def add(request: web.Request) -> documents.Reply:
        asked = await documents.body(request, "nic")
        engine.locks.check(kind, owner(request)["id"], ADDING)
        return documents.created("nic", bind(engine, whole, owner(request), asked))

    async def update(request: web.Request) -> documents.Reply:
        found, asked = nic(request), await documents.body(request, "nic")
        engine.locks.check(kind, owner(request)["id"], EDITING)
        _change(engine, whole, owner(request), found, asked)
        return documents.entity("nic", found)

    async def remove(request: web.Request) -> documents.Reply:
        found = nic(request)
        engine.locks.check(kind, owner(request)["id"], REMOVING)
        if owner(request).get("status") not in ("down", "ok") and found["plugged"]:
            raise faults.refused(REMOVING, "The VM Network Interface is plugged to a running VM.")
        inventory.remove("nics", found["id"])
        return documents.gone()

    at = f"/{kind}/{{owner}}/nics"
    return routing.served(at, "nic", listed=listed, add=add, one=one, update=update, remove=remove)


def of(engine: engines.Engine, whole: str, identity: str) -> list[Doc]:
    """The interfaces of a ``vm`` or a ``template``."""
    return engine.inventory.find("nics", **{whole: identity})


def bind(engine: engines.Engine, whole: str, owner: Doc, asked: Doc) -> Doc:
    """Give a machine or a template another interface."""
    name = str(asked.get("name") or "")
    if not name:
        raise faults.incomplete("Nic", "add", "name")
    _check_name(engine, whole, owner, name)
    interface = asked.get("interface", "virtio")
    if interface not in _INTERFACES:
        raise faults.invalid(f"The value '{interface}' isn't a valid interface type")
    doc: Doc = {
        "name": name,
        "interface": interface,
        "linked": bool(asked.get("linked", True)),
        "plugged": bool(asked.get("plugged", True)),
        "synced": True,
        whole: {"id": owner["id"]},
    }
    profile = _profile(engine, asked, ADDING)
    if profile is not None:
        doc["vnic_profile"] = {"id": profile["id"]}
        doc["network"] = {"id": profile["network"]["id"]}
    if whole == "vm":
        doc["mac"] = {"address": references.given(asked, "mac").get("address") or _next_mac(engine)}
    return engine.inventory.add("nics", doc)


def copied(engine: engines.Engine, source: tuple[str, str], whole: str, identity: str) -> None:
    """Give a machine the interfaces of a template, or a template those of a machine."""
    for nic in of(engine, *source):
        kept = {key: value for key, value in nic.items() if key not in ("id", "vm", "template", "mac")}
        made = {**kept, whole: {"id": identity}}
        if whole == "vm":
            made["mac"] = {"address": _next_mac(engine)}
        engine.inventory.add("nics", made)


def drop(engine: engines.Engine, whole: str, identity: str) -> None:
    """The owner goes, and its interfaces with it."""
    for nic in of(engine, whole, identity):
        engine.inventory.remove("nics", nic["id"])


def _change(engine: engines.Engine, whole: str, owner: Doc, nic: Doc, asked: Doc) -> None:
    if asked.get("name") and asked["name"] != nic["name"]:
        _check_name(engine, whole, owner, str(asked["name"]))
        nic["name"] = str(asked["name"])
    if "vnic_profile" in asked:
        profile = _profile(engine, asked, EDITING)
        nic.pop("vnic_profile", None)
        nic.pop("network", None)
        if profile is not None:
            nic["vnic_profile"] = {"id": profile["id"]}
            nic["network"] = {"id": profile["network"]["id"]}
    for field in ("interface", "linked", "plugged"):
        nic[field] = asked.get(field, nic[field])


def _check_name(engine: engines.Engine, whole: str, owner: Doc, name: str) -> None:
    if any(each["name"] == name for each in of(engine, whole, owner["id"])):
        raise faults.plain("Network interface name is already in use")


def _profile(engine: engines.Engine, asked: Doc, doing: str) -> Doc | None:
    reference = references.given(asked, "vnic_profile")
    if not references.named(reference):
        return None
    identity = reference.get("id")
    if identity and not engine.inventory.has("vnic_profiles", identity):
        raise faults.refused(doing, "The specified VM network interface profile doesn't exist.", 400)
    return references.resolved(engine, "vnic_profiles", reference, "VnicProfile")


def _next_mac(engine: engines.Engine) -> str:
    taken = {each["mac"]["address"] for each in engine.inventory.all("nics") if "mac" in each}
    number = _POOL
    while (found := ":".join(f"{byte:02x}" for byte in number.to_bytes(6, "big"))) in taken:
        number += 1
    return found
