"""Disks: made empty on a storage domain, or from others, and locked while the storage works on them.

A disk is OK when the storage has finished; its job ends at the engine's next look at its tasks, and until then the disk
is held. What it takes counts against its domain from the moment it was asked for.
"""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Any

from aiohttp import web

from moorage import lab
from moorage.lab.ovirt import documents, events, faults, images, jobs, polling, references, routing, space, timing

if TYPE_CHECKING:
    from moorage.lab.ovirt import engine as engines

Doc = dict[str, Any]

OK, LOCKED, ILLEGAL = "ok", "locked", "illegal"
ADDING, EDITING, REMOVING = "add Virtual Disk", "edit Virtual Disk", "remove Virtual Disk"
_FORMATS = ("cow", "raw")
_LARGEST = 8 * 1024**4


def routes(engine: engines.Engine) -> list[web.AbstractRouteDef]:
    """The collection of all disks."""
    inventory = engine.inventory

    async def listed(request: web.Request) -> documents.Reply:
        return documents.collection("disks", inventory.all("disks"))

    async def one(request: web.Request) -> documents.Reply:
        disk = inventory.get("disks", request.match_info["disk"])
        if request.query.get("all_content") == "true":
            # Whose it is takes the engine another query, and is told only to those who ask for all there is.
            disk = {**disk, "vms": [{"id": vm["id"]} for vm in machines(engine, disk)]}
        return documents.entity("disk", disk)

    async def add(request: web.Request) -> documents.Reply:
        asked = await documents.body(request, "disk")
        disk = described(engine, asked, ADDING)
        begin(engine, disk, jobs.correlation(request))
        return documents.created("disk", disk, pending=True)

    async def update(request: web.Request) -> documents.Reply:
        disk = inventory.get("disks", request.match_info["disk"])
        asked = await documents.body(request, "disk")
        change(engine, disk, asked, jobs.correlation(request))
        return documents.entity("disk", disk)

    async def remove(request: web.Request) -> documents.Reply:
        disk = inventory.get("disks", request.match_info["disk"])
        check_removable(engine, disk)
        drop(engine, disk, jobs.correlation(request))
        return documents.gone()

    return routing.served("/disks", "disk", listed=listed, add=add, one=one, update=update, remove=remove)


def described(engine: engines.Engine, asked: Doc, doing: str, domain: Doc | None = None) -> Doc:
    """A new disk as it was asked for, if it may be."""
    size = asked.get("provisioned_size")
    if size is None:
        raise faults.incomplete("Disk", "add", "provisionedSize")
    if size <= 0:
        raise faults.refused(doing, "Disk's provisioned size has to be greater than 0.", 400)
    if size > _LARGEST:
        raise faults.plain(f"Cannot create disk more than {_LARGEST // space.GIB} GiB")
    form = asked.get("format")
    if form is None:
        raise faults.incomplete("Disk", "add", "format")
    if form not in _FORMATS:
        raise faults.invalid(f"The value '{form}' isn't a valid disk format")
    if domain is None:
        wanted = references.items(asked, "storage_domains")
        domain = space.domain(engine, wanted[0] if wanted else {}, doing)
    disk = _blank(asked, domain, form, int(size))
    if disk["sparse"] is False and form == "cow":
        why = "Disk configuration (COW Preallocated backup-None) is incompatible with the storage domain type."
        raise faults.refused(doing, why)
    space.check(domain, space.initial(disk), doing)
    return disk


def _blank(asked: Doc, domain: Doc, form: str, size: int) -> Doc:
    name = str(asked.get("name") or asked.get("alias") or "")
    disk: Doc = {
        "id": str(asked.get("id") or uuid.uuid4()),
        "name": name,
        "alias": name,
        "description": str(asked.get("description", "")),
        "actual_size": 0,
        "backup": "none",
        "content_type": "data",
        "format": form,
        "image_id": str(uuid.uuid4()),
        "propagate_errors": False,
        "provisioned_size": size,
        "shareable": False,
        "sparse": bool(asked.get("sparse", form == "cow")),
        "status": OK,
        "storage_type": "image",
        "total_size": 0,
        "wipe_after_delete": bool(asked.get("wipe_after_delete", False)),
        "storage_domains": [{"id": domain["id"]}],
    }
    if form == "cow":
        disk["qcow_version"] = "qcow2_v3"
    if asked.get("initial_size"):
        disk["initial_size"] = int(asked["initial_size"])
    return disk


def begin(engine: engines.Engine, disk: Doc, correlation: str) -> None:
    """Let the storage make an empty disk."""
    if engine.inventory.has("disks", disk["id"]):
        known = engine.inventory.get("disks", disk["id"])
        why = f"The selected disk ID: {disk['id']} is already used by the following existing disk: {known['name']}."
        raise faults.refused(ADDING, why)
    held = [("disks", disk["id"])]
    polling.hold(engine, held, doing=ADDING)
    disk["status"] = LOCKED
    add(engine, disk, space.initial(disk))

    async def work() -> None:
        async with polling.finishing(engine, held):
            await lab.sleep(engine.clock, timing.drawn(timing.CREATE_DISK, "disk", disk["name"]))
            disk["status"] = OK
        engine.events.add(
            2021,
            events.NORMAL,
            f"The disk '{disk['name']}' was successfully added.",
            correlation_id=correlation,
        )

    engine.jobs.start(correlation, f"Creating Disk {disk['name']}", work())


def add(engine: engines.Engine, disk: Doc, size: int) -> None:
    """Take in a disk that takes so many bytes on its domain."""
    engine.inventory.add("disks", disk)
    space.take(engine, disk, size)
    space.promise(engine, disk, int(disk["provisioned_size"]))


def check_free(engine: engines.Engine, disk: Doc, doing: str) -> None:
    """Refuse to work on a disk on which somebody else does."""
    if disk["status"] == LOCKED:
        why = f"The following disks are locked: {disk['name']}. Please try again in a few minutes."
        raise faults.plain(f"Cannot {doing}: {why}")
    engine.locks.check("disks", disk["id"], doing)


def attachments(engine: engines.Engine, disk: Doc) -> list[Doc]:
    """Where a disk is attached."""
    return [each for each in engine.inventory.all("disk_attachments") if each["disk"]["id"] == disk["id"]]


def machines(engine: engines.Engine, disk: Doc) -> list[Doc]:
    """The VMs that have a disk."""
    found = [each["vm"]["id"] for each in attachments(engine, disk) if "vm" in each]
    return [engine.inventory.get("vms", each) for each in found if engine.inventory.has("vms", each)]


def check_removable(engine: engines.Engine, disk: Doc) -> None:
    """Refuse to remove a disk that somebody needs."""
    check_free(engine, disk, REMOVING)
    for vm in machines(engine, disk):
        engine.locks.check("vms", vm["id"], REMOVING)
        if vm["status"] != "down":
            raise faults.refused(REMOVING, f"The disk {disk['name']} is plugged to non-Down VMs: {vm['name']}")
    if any("template" in each for each in attachments(engine, disk)):
        based = [each["name"] for each in engine.inventory.all("disks") if each.get("_based_on") == disk["id"]]
        if based:
            raise faults.refused(REMOVING, f"The following Disk(s) are based on it: \n {', '.join(based)}.")
        raise faults.refused(REMOVING, "The image is the only remaining copy of a Template disk.")


def drop(engine: engines.Engine, disk: Doc, correlation: str) -> None:
    """Let the storage remove a disk; it is gone from its machines at once."""
    held = [("disks", disk["id"])]
    polling.hold(engine, held, doing=REMOVING)
    disk["status"] = LOCKED

    async def work() -> None:
        async with polling.finishing(engine, held):
            await lab.sleep(engine.clock, timing.drawn(timing.REMOVE, "disk", disk["name"]))
            erase(engine, disk)

    engine.jobs.start(correlation, f"Removing Disk {disk['name']} from Storage Domain", work())


def erase(engine: engines.Engine, disk: Doc) -> None:
    """A disk is gone, and all that hung on it."""
    for each in attachments(engine, disk):
        engine.inventory.remove("disk_attachments", each["id"])
    space.give_back(engine, disk)
    engine.inventory.remove("disks", disk["id"])
    images.contents(engine).pop(disk["id"], None)


def change(engine: engines.Engine, disk: Doc, asked: Doc, correlation: str) -> None:
    """Change what can be changed of a disk: its words at once, its size after a while."""
    check_free(engine, disk, EDITING)
    size = asked.get("provisioned_size")
    if size is not None and size != disk["provisioned_size"]:
        _grow(engine, disk, int(size), correlation)
    for field in ("name", "alias"):
        if asked.get(field):
            disk["name"] = disk["alias"] = str(asked[field])
    if "description" in asked:
        disk["description"] = str(asked["description"])


def _grow(engine: engines.Engine, disk: Doc, size: int, correlation: str) -> None:
    if size < disk["provisioned_size"]:
        raise faults.refused(EDITING, "New disk size must be larger than the current disk size.", 400)
    if size > _LARGEST:
        raise faults.plain(f"Cannot create disk more than {_LARGEST // space.GIB} GiB")
    for vm in machines(engine, disk):
        engine.locks.check("vms", vm["id"], EDITING)
    domain = space.domain(engine, disk["storage_domains"][0], EDITING)
    more = 0 if disk["sparse"] else size - int(disk["provisioned_size"])
    space.check(domain, more, EDITING)
    held = [("disks", disk["id"])]
    polling.hold(engine, held, doing=EDITING)
    disk["status"] = LOCKED

    async def work() -> None:
        async with polling.finishing(engine, held):
            try:
                await lab.sleep(engine.clock, timing.drawn(timing.RESIZE_DISK, "resize", disk["name"]))
                space.promise(engine, disk, size - int(disk["provisioned_size"]))
                disk["provisioned_size"] = size
                space.take(engine, disk, int(disk["actual_size"]) + more)
            finally:
                disk["status"] = OK
        engine.events.add(
            371,
            events.NORMAL,
            f"Size of the disk '{disk['name']}' was successfully updated.",
            correlation_id=correlation,
        )

    engine.jobs.start(correlation, f"Editing Virtual Disk {disk['name']}", work())
