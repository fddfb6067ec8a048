"""Templates: made from a machine that is down, whose disks are copied; machines are made from them.

While one is made, the machine it comes from is locked. It cannot go while machines stand on its disks.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from aiohttp import web

from moorage import lab
from moorage.lab.ovirt import (
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
    space,
    timing,
    vm_specs,
)

if TYPE_CHECKING:
    from moorage.lab.ovirt import engine as engines

Doc = dict[str, Any]

OK, LOCKED = "ok", "locked"
ADDING, EDITING, REMOVING = "add Template", "edit Template", "remove Template"
_COPIED: tuple[str, ...] = (
    "bios",
    "cluster",
    "cpu",
    "custom_properties",
    "high_availability",
    "initialization",
    "memory",
)
_COPIED += ("memory_policy", "os", "placement_policy", "stateless", "type")


def routes(engine: engines.Engine) -> list[web.AbstractRouteDef]:
    """The collection of templates."""
    inventory = engine.inventory

    async def listed(request: web.Request) -> documents.Reply:
        return documents.collection("templates", inventory.all("templates"))

    async def one(request: web.Request) -> documents.Reply:
        return documents.entity("template", inventory.get("templates", request.match_info["template"]))

    async def add(request: web.Request) -> documents.Reply:
        asked = await documents.body(request, "template")
        template = create(engine, asked, jobs.correlation(request))
        return documents.created("template", template, pending=True)

    async def update(request: web.Request) -> documents.Reply:
        template = inventory.get("templates", request.match_info["template"])
        asked = await documents.body(request, "template")
        change(engine, template, asked)
        return documents.entity("template", template)

    async def remove(request: web.Request) -> documents.Reply:
        template = inventory.get("templates", request.match_info["template"])
        drop(engine, template, jobs.correlation(request))
        return documents.gone()

    return routing.served("/templates", "template", listed=listed, add=add, one=one, update=update, remove=remove)


def create(engine: engines.Engine, asked: Doc, correlation: str) -> Doc:
    """Make a template of a machine."""
    source = references.given(asked, "vm")
    missing = [
        field for field, there in (("name", asked.get("name")), ("vm.id|name", references.named(source))) if not there
    ]
    if missing:
        raise faults.incomplete("Template", "add", *missing)
    name = str(asked["name"])
    vm_specs.check_name(name, ADDING)
    vm = references.resolved(engine, "vms", source, "Vm")
    if engine.inventory.named("templates", name) is not None:
        raise faults.name_in_use(ADDING, "Template")
    engine.locks.check("vms", vm["id"], ADDING)
    if vm["status"] != "down":
        raise faults.refused(ADDING, "VM is locked or still running, try again once VM is in the Down state.")
    bound = attachments.of(engine, "vm", vm["id"])
    for each in bound:
        disks.check_free(engine, engine.inventory.get("disks", each["disk"]["id"]), ADDING)
    plans = _plans(engine, asked, bound)
    template: Doc = {key: vm[key] for key in _COPIED if key in vm}
    template |= {
        "name": name,
        "description": str(asked.get("description", "")),
        "status": LOCKED,
        "creation_time": engine.clock.wall(),
        "version": {"version_name": "base version", "version_number": 1},
        "delete_protected": False,
        "_tags": [],
    }
    engine.inventory.add("templates", template)
    template["version"]["base_template"] = {"id": template["id"]}
    nics.copied(engine, ("vm", vm["id"]), "template", template["id"])
    copies.begin(engine, plans, "template", template["id"])
    _hold(engine, vm, template, plans)
    work = _make(engine, vm, template, plans, correlation)
    engine.jobs.start(correlation, f"Creating Template {name} from VM {vm['name']}", work)
    return template


def _plans(engine: engines.Engine, asked: Doc, bound: Sequence[Doc]) -> list[copies.Copy]:
    domain = None
    if references.named(references.given(asked, "storage_domain")):
        domain = space.domain(engine, asked["storage_domain"], ADDING)
    wishes = copies.wishes(references.given(asked, "vm"))
    return [
        copies.planned(engine, each, wishes.get(each["disk"]["id"], {}), ADDING, linked=False, domain=domain)
        for each in bound
    ]


def _hold(engine: engines.Engine, vm: Doc, template: Doc, plans: Sequence[copies.Copy]) -> None:
    polling.hold(engine, [("vms", vm["id"])], locks.LOCKED["vms"], doing=ADDING)
    polling.hold(engine, [("templates", template["id"])], doing=ADDING)
    vm["status"] = "image_locked"
    for each in plans:
        each.source["status"] = disks.LOCKED


async def _make(engine: engines.Engine, vm: Doc, template: Doc, plans: Sequence[copies.Copy], correlation: str) -> None:
    try:
        usual = timing.drawn(timing.CREATE_TEMPLATE, "template", template["name"])
        await copies.carry_out(engine, plans, max(usual, timing.copying(copies.total(plans), template["name"])))
        template["status"] = OK
        engine.events.add(
            51,
            events.NORMAL,
            f"Creation of Template {template['name']} from VM {vm['name']} has been completed.",
            correlation_id=correlation,
            template=template["id"],
        )
    except faults.Fault:
        copies.undo(engine, plans)
        nics.drop(engine, "template", template["id"])
        engine.inventory.remove("templates", template["id"])
        raise
    finally:
        vm["status"] = "down"
        for each in plans:
            each.source["status"] = disks.OK
        polling.release(engine, [("vms", vm["id"]), ("templates", template["id"])])


def change(engine: engines.Engine, template: Doc, asked: Doc) -> None:
    """Change a template's words."""
    engine.locks.check("templates", template["id"], EDITING)
    name = asked.get("name")
    if name and name != template["name"]:
        vm_specs.check_name(str(name), EDITING)
        if engine.inventory.named("templates", str(name)) is not None:
            raise faults.name_in_use(EDITING, "Template")
        template["name"] = str(name)
    for field in ("description", "comment"):
        if field in asked:
            template[field] = str(asked[field])


def drop(engine: engines.Engine, template: Doc, correlation: str) -> None:
    """Remove a template on which nothing stands."""
    if template["id"] == shape.BLANK:
        raise faults.refused(REMOVING, "Removing Blank Template is not allowed.")
    users = [each["name"] for each in engine.inventory.find("vms", template=template["id"])]
    if users:
        raise faults.plain(f"Cannot delete Template. Template is being used by the following VMs: {','.join(users)}.")
    engine.locks.check("templates", template["id"], REMOVING)
    own = attachments.disks_of(engine, "template", template["id"])
    for disk in own:
        disks.check_free(engine, disk, REMOVING)
    polling.hold(engine, [("templates", template["id"])], doing=REMOVING)
    template["status"] = LOCKED
    for disk in own:
        disk["status"] = disks.LOCKED
    engine.jobs.start(correlation, f"Removing Template {template['name']}", _remove(engine, template, own))


async def _remove(engine: engines.Engine, template: Doc, own: Sequence[Doc]) -> None:
    try:
        await lab.sleep(engine.clock, timing.drawn(timing.REMOVE, "template", template["name"]))
        for disk in own:
            disks.erase(engine, disk)
        nics.drop(engine, "template", template["id"])
        engine.inventory.remove("templates", template["id"])
    finally:
        polling.release(engine, [("templates", template["id"])])
