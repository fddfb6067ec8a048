"""Virtual machines: made from a template, linked to it or as a copy; looked at, changed and removed.

A machine whose disks are being made is locked, and says so to whoever wants anything of it. What is made from a
template without a copy needs it for as long as it lives.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from aiohttp import web

from moorage import lab
from moorage.lab.ovirt import (
    affinity,
    attachments,
    copies,
    disks,
    documents,
    events,
    faults,
    jobs,
    locks,
    nics,
    polling,
    references,
    routing,
    shape,
    timing,
    vm_life,
    vm_specs,
)

if TYPE_CHECKING:
    from moorage.lab.ovirt import engine as engines

Doc = dict[str, Any]

DOWN, LOCKED = "down", "image_locked"
REMOVING = "remove VM"


def routes(engine: engines.Engine) -> list[web.AbstractRouteDef]:
    """The collection of machines."""
    inventory = engine.inventory

    async def listed(request: web.Request) -> documents.Reply:
        return documents.collection("vms", inventory.all("vms"))

    async def one(request: web.Request) -> documents.Reply:
        return documents.entity("vm", inventory.get("vms", request.match_info["vm"]))

    async def add(request: web.Request) -> documents.Reply:
        asked = await documents.body(request, "vm")
        clone = asked_for(request, "clone")
        vm = create(engine, asked, jobs.correlation(request), clone=clone)
        return documents.created("vm", vm, pending=vm["status"] == LOCKED)

    async def update(request: web.Request) -> documents.Reply:
        vm = inventory.get("vms", request.match_info["vm"])
        asked = await documents.body(request, "vm")
        engine.locks.check("vms", vm["id"], vm_specs.EDITING)
        vm_specs.update(engine, vm, asked)
        return documents.entity("vm", vm)

    async def remove(request: web.Request) -> documents.Reply:
        vm = inventory.get("vms", request.match_info["vm"])
        detach_only, force = asked_for(request, "detach_only"), asked_for(request, "force")
        drop(engine, vm, jobs.correlation(request), detach_only=detach_only, force=force)
        return documents.gone()

    return routing.served("/vms", "vm", listed=listed, add=add, one=one, update=update, remove=remove)


def asked_for(request: web.Request, name: str) -> bool:
    """Whether a parameter of the query, or of the path as in ``vms;clone=true``, is set."""
    value = request.query.get(name)
    return value is not None and value.lower() in ("", "true", "1")


def create(engine: engines.Engine, asked: Doc, correlation: str, *, clone: bool) -> Doc:
    """Make a machine as it was asked for; its disks follow."""
    doing = vm_specs.ADDING
    if not references.named(references.given(asked, "cluster")):
        raise faults.incomplete("Vm", "add", "cluster.id|name")
    if not asked.get("name"):
        raise faults.incomplete("Vm", "add", "name")
    if not references.named(references.given(asked, "template")):
        raise faults.incomplete("Vm", "add", "template.id|name")
    cluster = references.resolved(engine, "clusters", asked["cluster"], "Cluster")
    template = references.resolved(engine, "templates", asked["template"], "Template")
    name = str(asked["name"])
    vm_specs.check_name(name, doing)
    if engine.inventory.named("vms", name) is not None:
        raise faults.name_in_use(doing, "VM")
    engine.locks.check("templates", template["id"], doing, shared=True)
    if template["status"] != "ok":
        raise faults.plain("Template's Image is locked (temporarily).")
    vm = vm_specs.built(engine, asked, template, cluster)
    plans = _plans(engine, asked, template, doing, linked=not clone)
    vm |= {"creation_time": engine.clock.wall(), "status": LOCKED if plans else DOWN}
    if clone:
        # The template's part in it ends with the copy.
        vm["template"] = {"id": shape.BLANK}
    engine.inventory.add("vms", vm)
    nics.copied(engine, ("template", template["id"]), "vm", vm["id"])
    copies.begin(engine, plans, "vm", vm["id"])
    if plans:
        held = [("vms", vm["id"])]
        polling.hold(engine, held, locks.LOCKED["vms"])
        engine.locks.hold("templates", template["id"], shared=True)
        work = _make(engine, vm, plans, template, correlation)
        engine.jobs.start(correlation, f"Creating VM {name} from Template {template['name']}", work)
    else:
        _tell(engine, vm, 34, f"VM {name} was created by admin@internal-authz.", correlation)
    return vm


def _plans(engine: engines.Engine, asked: Doc, template: Doc, doing: str, *, linked: bool) -> list[copies.Copy]:
    wishes = copies.wishes(asked)
    bound = attachments.of(engine, "template", template["id"])
    unknown = wishes.keys() - {each["disk"]["id"] for each in bound}
    if unknown:
        raise references.not_found(f"Disk: id={min(unknown)}")
    made = [copies.planned(engine, each, wishes.get(each["disk"]["id"], {}), doing, linked=linked) for each in bound]
    for each in made:
        # Linked disks are called as the template's, and described so too; copies bear the machine's name besides.
        if not linked:
            each.disk["name"] = each.disk["alias"] = f"{each.disk['name']}_{asked['name']}"
    return made


async def _make(engine: engines.Engine, vm: Doc, plans: Sequence[copies.Copy], template: Doc, correlation: str) -> None:
    try:
        await copies.carry_out(engine, plans, _duration(plans, vm["name"]))
    except faults.Fault:
        copies.undo(engine, plans)
        nics.drop(engine, "vm", vm["id"])
        engine.inventory.remove("vms", vm["id"])
        _tell(
            engine, vm, 39, f"Failed to create VM {vm['name']} (User: admin@internal-authz).", correlation, events.ERROR
        )
        raise
    else:
        vm["status"] = DOWN
        _tell(engine, vm, 53, f"VM {vm['name']} creation has been completed.", correlation)
    finally:
        polling.release(engine, [("vms", vm["id"]), ("templates", template["id"])])


def _duration(plans: Sequence[copies.Copy], name: str) -> float:
    if all(each.linked for each in plans):
        return timing.drawn(timing.CREATE_THIN, "vm", name)
    return timing.copying(copies.total(plans), "vm", name)


def drop(engine: engines.Engine, vm: Doc, correlation: str, *, detach_only: bool, force: bool) -> None:
    """Remove a machine, with all disks that are attached to it unless all of them shall stay."""
    engine.locks.check("vms", vm["id"], REMOVING)
    if vm.get("delete_protected"):
        why = "Delete protection is enabled. In order to delete, disable Delete protection first."
        raise faults.refused(REMOVING, why)
    if vm["status"] != DOWN:
        raise faults.refused(REMOVING, "VM is running.")
    own = attachments.disks_of(engine, "vm", vm["id"])
    if not force:
        for disk in own:
            disks.check_free(engine, disk, REMOVING)
    if detach_only and any(disk.get("_based_on") for disk in own):
        raise faults.plain("Cannot remove VM with detaching disks, VM is based from template.")
    held = [("vms", vm["id"])]
    polling.hold(engine, held, locks.LOCKED["vms"], doing=REMOVING)
    vm["status"] = LOCKED
    # Whatever is attached goes along, data or not; only what several machines may share is left.
    going = [] if detach_only else [disk for disk in own if not disk["shareable"]]
    for disk in going:
        disk["status"] = disks.LOCKED
    work = _remove(engine, vm, going, correlation)
    engine.jobs.start(correlation, f"Removing VM {vm['name']}", work)


async def _remove(engine: engines.Engine, vm: Doc, going: Sequence[Doc], correlation: str) -> None:
    try:
        await lab.sleep(engine.clock, timing.drawn(timing.REMOVE, "vm", vm["name"]))
        await vm_life.forget(engine, vm)
        for disk in going:
            disks.erase(engine, disk)
        for each in attachments.of(engine, "vm", vm["id"]):
            engine.inventory.remove("disk_attachments", each["id"])
        nics.drop(engine, "vm", vm["id"])
        affinity.leave(engine, vm["id"])
        engine.inventory.remove("vms", vm["id"])
        _tell(engine, vm, 113, f"VM {vm['name']} was successfully removed.", correlation)
    finally:
        polling.release(engine, [("vms", vm["id"])])


def _tell(engine: engines.Engine, vm: Doc, code: int, words: str, correlation: str, how: str = events.NORMAL) -> None:
    engine.events.add(code, how, words, correlation_id=correlation, vm=vm["id"])
