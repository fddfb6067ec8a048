"""Disks of machines and templates: an attachment says how, and has the disk's own id.

A disk can be made while it is attached, or be there already. A machine must be down to lose a disk; one that runs may
get another. The engine does not copy: what is attached to one machine cannot be attached to the next.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from aiohttp import web

from moorage.lab.ovirt import disks, documents, faults, jobs, references

if TYPE_CHECKING:
    from moorage.lab.ovirt import engine as engines

Doc = dict[str, Any]

ATTACHING, DETACHING = "attach Virtual Disk", "detach Virtual Disk"
_INTERFACES = ("ide", "sata", "spapr_vscsi", "virtio", "virtio_scsi")


def routes(engine: engines.Engine) -> list[web.AbstractRouteDef]:
    """The attachments below machines and templates."""
    inventory = engine.inventory

    def listing(kind: str, whole: str) -> Any:
        async def listed(request: web.Request) -> documents.Reply:
            owner = inventory.get(kind, request.match_info["owner"])
            return documents.collection("disk_attachments", of(engine, whole, owner["id"]))

        return listed

    def showing(kind: str, whole: str) -> Any:
        async def one(request: web.Request) -> documents.Reply:
            owner = inventory.get(kind, request.match_info["owner"])
            return documents.entity("disk_attachment", _found(engine, whole, owner, request))

        return one

    async def add(request: web.Request) -> documents.Reply:
        vm = inventory.get("vms", request.match_info["owner"])
        asked = await documents.body(request, "disk_attachment")
        made, pending = attach(engine, vm, asked, jobs.correlation(request))
        return documents.created("disk_attachment", made, pending=pending)

    async def update(request: web.Request) -> documents.Reply:
        vm = inventory.get("vms", request.match_info["owner"])
        found = _found(engine, "vm", vm, request)
        asked = await documents.body(request, "disk_attachment")
        change(engine, vm, found, asked, jobs.correlation(request))
        return documents.entity("disk_attachment", found)

    async def remove(request: web.Request) -> documents.Reply:
        vm = inventory.get("vms", request.match_info["owner"])
        found = _found(engine, "vm", vm, request)
        detach_only = request.query.get("detach_only", "true").lower() != "false"
        detach(engine, vm, found, jobs.correlation(request), detach_only=detach_only)
        return documents.gone()

    made: list[web.AbstractRouteDef] = [
        web.post("/vms/{owner}/diskattachments", add),
        web.put("/vms/{owner}/diskattachments/{attachment}", update),
        web.delete("/vms/{owner}/diskattachments/{attachment}", remove),
    ]
    for kind, whole in (("vms", "vm"), ("templates", "template")):
        made.append(web.get(f"/{kind}/{{owner}}/diskattachments", listing(kind, whole)))
        made.append(web.get(f"/{kind}/{{owner}}/diskattachments/{{attachment}}", showing(kind, whole)))
    return made


def of(engine: engines.Engine, whole: str, identity: str) -> list[Doc]:
    """The attachments of a ``vm`` or a ``template``."""
    return engine.inventory.find("disk_attachments", **{whole: identity})


def disks_of(engine: engines.Engine, whole: str, identity: str) -> list[Doc]:
    """The disks of a ``vm`` or a ``template``."""
    return [engine.inventory.get("disks", each["disk"]["id"]) for each in of(engine, whole, identity)]


def bind(engine: engines.Engine, whole: str, identity: str, disk: Doc, asked: Doc) -> Doc:
    """Attach a disk as it was asked for."""
    return engine.inventory.add(
        "disk_attachments",
        {
            "id": disk["id"],
            "active": bool(asked.get("active", False)),
            "bootable": bool(asked.get("bootable", False)),
            "interface": asked.get("interface") or "virtio_scsi",
            "logical_name": "",
            "pass_discard": bool(asked.get("pass_discard", False)),
            "read_only": bool(asked.get("read_only", False)),
            "uses_scsi_reservation": bool(asked.get("uses_scsi_reservation", False)),
            "disk": {"id": disk["id"]},
            whole: {"id": identity},
        },
    )


def attach(engine: engines.Engine, vm: Doc, asked: Doc, correlation: str) -> tuple[Doc, bool]:
    """Give a machine another disk; the answer says whether the storage still works on it."""
    wanted = references.given(asked, "disk")
    doing = ATTACHING if wanted.get("id") else disks.ADDING
    _check(engine, vm, asked, doing)
    if not wanted.get("id"):
        if not wanted.get("name") and not wanted.get("alias"):
            wanted["name"] = f"{vm['name']}_Disk{len(of(engine, 'vm', vm['id'])) + 1}"
        disk = disks.described(engine, wanted, doing)
        disks.begin(engine, disk, correlation)
        return bind(engine, "vm", vm["id"], disk, asked), True
    disk = references.resolved(engine, "disks", wanted, "Disk")
    disks.check_free(engine, disk, doing)
    if disk["status"] == disks.ILLEGAL:
        raise faults.refused(doing, f"The following attached disks are in ILLEGAL status: {disk['name']}")
    if disks.attachments(engine, disk):
        raise faults.refused(doing, "The disk is already attached to VM.")
    return bind(engine, "vm", vm["id"], disk, asked), False


def _check(engine: engines.Engine, vm: Doc, asked: Doc, doing: str) -> None:
    interface = asked.get("interface")
    if interface is None:
        raise faults.incomplete("DiskAttachment", "add", "interface")
    if interface not in _INTERFACES:
        raise faults.invalid(f"The value '{interface}' isn't a valid disk interface")
    if "bootable" not in asked:
        raise faults.incomplete("DiskAttachment", "add", "bootable")
    engine.locks.check("vms", vm["id"], doing)
    for each in of(engine, "vm", vm["id"]) if asked["bootable"] else ():
        if each["bootable"]:
            name = engine.inventory.get("disks", each["disk"]["id"])["name"]
            raise faults.refused(doing, f"Disk {name} in VM {vm['name']} is already marked as boot.")


def change(engine: engines.Engine, vm: Doc, found: Doc, asked: Doc, correlation: str) -> None:
    """Change an attachment, or the disk through it."""
    engine.locks.check("vms", vm["id"], disks.EDITING)
    wanted = references.given(asked, "disk")
    if wanted:
        disk = engine.inventory.get("disks", found["disk"]["id"])
        disks.change(engine, disk, wanted, correlation)
    for field in ("active", "bootable", "read_only", "pass_discard", "interface"):
        if field not in asked or asked[field] == found.get(field):
            continue
        if field != "active" and vm["status"] != "down":
            raise faults.refused(disks.EDITING, "At least one of the VMs is not down.")
        found[field] = asked[field]


def detach(engine: engines.Engine, vm: Doc, found: Doc, correlation: str, *, detach_only: bool) -> None:
    """Take a disk from a machine, and remove it unless it shall stay."""
    doing = DETACHING if detach_only else disks.REMOVING
    engine.locks.check("vms", vm["id"], doing)
    disk = engine.inventory.get("disks", found["disk"]["id"])
    disks.check_free(engine, disk, doing)
    if vm["status"] != "down" and found["active"]:
        raise faults.refused(doing, f"The disk {disk['name']} is plugged to non-Down VMs: {vm['name']}")
    if detach_only:
        engine.inventory.remove("disk_attachments", found["id"])
    else:
        disks.drop(engine, disk, correlation)


def bootable(engine: engines.Engine, vm: Doc) -> bool:
    """Whether a machine has something to boot from."""
    return any(each["active"] for each in of(engine, "vm", vm["id"]))


def _found(engine: engines.Engine, whole: str, owner: Doc, request: web.Request) -> Doc:
    found = engine.inventory.get("disk_attachments", request.match_info["attachment"])
    if found.get(whole, {}).get("id") != owner["id"]:
        raise faults.missing()
    return found
