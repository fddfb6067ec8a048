"""The life of a machine: it is scheduled to a host, launched, watched, and ended, by order or by itself.

The engine knows of a machine what its host tells it every few seconds. So a machine whose process dies is found to be
down a moment later, and one whose guest hangs stays up: without an agent in it nobody knows better.
"""

from __future__ import annotations

import weakref
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from aiohttp import web

from moorage import lab
from moorage.lab import site as sites
from moorage.lab.nodes import instance
from moorage.lab.ovirt import (
    attachments,
    disks,
    documents,
    events,
    faults,
    guest,
    jobs,
    nics,
    payload,
    references,
    scheduling,
    timing,
)

if TYPE_CHECKING:
    from moorage.lab.ovirt import engine as engines

Doc = dict[str, Any]

DOWN, WAITING, POWERING_UP, UP = "down", "wait_for_launch", "powering_up", "up"
POWERING_DOWN, REBOOTING = "powering_down", "reboot_in_progress"
_RUNNING = (WAITING, POWERING_UP, UP, POWERING_DOWN, REBOOTING)
_GUESTS = (POWERING_UP, UP, REBOOTING)
# However fast the cloud's time runs, hosts are not asked more often than this (real seconds).
_FASTEST_LOOK = 0.04

_machines: weakref.WeakKeyDictionary[engines.Engine, dict[str, instance.Instance]] = weakref.WeakKeyDictionary()


def routes(engine: engines.Engine) -> list[web.AbstractRouteDef]:
    """What can be done to a machine."""

    def doing(deed: Callable[[engines.Engine, Doc, Doc, str], Awaitable[None]]) -> Any:
        async def handler(request: web.Request) -> documents.Reply:
            vm = engine.inventory.get("vms", request.match_info["vm"])
            asked = await documents.body(request, "action") if request.can_read_body else {}
            await deed(engine, vm, asked, jobs.correlation(request))
            shown = {key: value for key, value in vm.items() if key in ("id", "status")}
            return documents.action({"vm": shown})

        return handler

    async def devices(request: web.Request) -> documents.Reply:
        vm = engine.inventory.get("vms", request.match_info["vm"])
        return documents.collection("reported_devices", reported(engine, vm))

    async def device(request: web.Request) -> documents.Reply:
        vm = engine.inventory.get("vms", request.match_info["vm"])
        for each in reported(engine, vm):
            if each["id"] == request.match_info["device"]:
                return documents.entity("reported_device", each)
        raise faults.missing()

    deeds = {"start": start, "stop": stop, "shutdown": shutdown, "reboot": reboot, "reset": reset}
    return [
        *(web.post(f"/vms/{{vm}}/{name}", doing(deed)) for name, deed in deeds.items()),
        web.post("/vms/{vm}/autopincpuandnumanodes", doing(pin)),
        web.get("/vms/{vm}/reporteddevices", devices),
        web.get("/vms/{vm}/reporteddevices/{device}", device),
    ]


def machine_of(engine: engines.Engine, vm: Doc) -> instance.Instance | None:
    """The machine of the site that a VM is, if it was ever started."""
    found = _machines.setdefault(engine, {}).get(vm["id"])
    return found if found is not None and engine.site.instances.get(found.name) is found else None


def reported(engine: engines.Engine, vm: Doc) -> list[Doc]:
    """The devices that the guest reports."""
    if vm["status"] not in (POWERING_UP, UP):
        return []
    return guest.devices(engine, vm, machine_of(engine, vm), nics.of(engine, "vm", vm["id"]))


async def start(engine: engines.Engine, vm: Doc, asked: Doc, correlation: str) -> None:
    """Run a machine on a host that will do."""
    doing = "run VM"
    engine.locks.check("vms", vm["id"], doing)
    if vm["status"] in _RUNNING:
        raise faults.refused(doing, "VM is running.")
    if vm["status"] != DOWN:
        raise faults.plain(f"Cannot {doing} because the VM is in {_title(vm['status'])} status.")
    for disk in attachments.disks_of(engine, "vm", vm["id"]):
        disks.check_free(engine, disk, doing)
        if disk["status"] == disks.ILLEGAL:
            raise faults.refused(doing, f"The following attached disks are in ILLEGAL status: {disk['name']}")
    if not attachments.bootable(engine, vm):
        todo = "\nAlternatives:\n- Create a disk for this VM, and rerun the VM."
        raise faults.plain(f"Cannot run VM without at least one bootable disk.{todo}")
    host = _scheduled(engine, vm)
    vm |= {"status": WAITING, "host": {"id": host.id}, "_run": vm.get("_run", 0) + 1}
    vm.pop("stop_time", None)
    vm.pop("stop_reason", None)
    _tell(engine, vm, 153, f"VM {vm['name']} was started by admin@internal-authz (Host: {host.name}).", correlation)
    engine.jobs.start(correlation, f"Launching VM {vm['name']}", _launch(engine, vm, int(vm["_run"])))


async def stop(engine: engines.Engine, vm: Doc, asked: Doc, correlation: str) -> None:
    """Cut a machine's power."""
    doing = "stop VM"
    engine.locks.check("vms", vm["id"], doing)
    if vm["status"] not in _RUNNING:
        raise faults.refused(doing, "VM is not running.")
    vm["status"] = POWERING_DOWN
    _tell(engine, vm, 33, f"VM {vm['name']} powered off by admin@internal-authz.", correlation)
    engine.jobs.start(correlation, f"Powering off VM {vm['name']}", _power_off(engine, vm, vm.get("_run", 0)))


async def shutdown(engine: engines.Engine, vm: Doc, asked: Doc, correlation: str) -> None:
    """Ask the guest to shut down."""
    doing = "shutdown VM"
    engine.locks.check("vms", vm["id"], doing)
    if vm["status"] not in _GUESTS:
        raise faults.refused(doing, "VM is not running.")
    vm["status"] = POWERING_DOWN
    engine.jobs.start(correlation, f"Shutting down VM {vm['name']}", _shut_down(engine, vm))


async def reboot(engine: engines.Engine, vm: Doc, asked: Doc, correlation: str) -> None:
    """Let a machine boot again; its disk stays as it is."""
    doing = "reboot VM"
    engine.locks.check("vms", vm["id"], doing)
    if vm["status"] not in (UP, POWERING_UP):
        raise faults.plain(f"Cannot {doing} because the VM is in {_title(vm['status'])} status.")
    vm["status"] = REBOOTING
    vm.pop("_running_since", None)
    engine.jobs.start(correlation, f"Rebooting VM {vm['name']}", _boot_again(engine, vm))


async def reset(engine: engines.Engine, vm: Doc, asked: Doc, correlation: str) -> None:
    """As reboot, without asking the guest."""
    await reboot(engine, vm, asked, correlation)


async def pin(engine: engines.Engine, vm: Doc, asked: Doc, correlation: str) -> None:
    """Fit a machine's processors to those of the hosts it is pinned to."""
    doing = "edit VM"
    engine.locks.check("vms", vm["id"], doing)
    if vm["status"] != DOWN:
        raise faults.plain("Cannot edit VM because the VM is in Up status.")
    if not references.items(vm.get("placement_policy", {}), "hosts"):
        raise faults.refused(doing, "VM must be pinned to at least one host.")
    vm["cpu_pinning_policy"] = "resize_and_pin_numa" if asked.get("optimize_cpu_settings") else "manual"


def _scheduled(engine: engines.Engine, vm: Doc) -> scheduling.Host:
    inventory, cluster = engine.inventory, vm["cluster"]["id"]
    hosts = [_host(each) for each in inventory.find("hosts", cluster=cluster) if each["status"] == "up"]
    running = [
        scheduling.Running(each["id"], each["host"]["id"], _needed(each))
        for each in inventory.all("vms")
        if each["status"] in _RUNNING and "host" in each
    ]
    pinned = frozenset(
        each["id"]
        for each in references.items(vm.get("placement_policy", {}), "hosts")
        if vm["placement_policy"].get("affinity") == "pinned"
    )
    threads = scheduling.threads_of(vm["cpu"]["topology"])
    wanted = scheduling.Wanted(vm["id"], _needed(vm), threads, pinned)
    try:
        return scheduling.choose(wanted, hosts, running, _groups(engine, cluster))
    except scheduling.Unschedulable as problem:
        status = 400 if problem.lines == [scheduling.NO_HOSTS] else 409
        raise faults.Fault(status, faults.FAILED, f"[{', '.join(problem.lines)}]") from problem


def _host(doc: Doc) -> scheduling.Host:
    return scheduling.Host(doc["id"], doc["name"], scheduling.threads_of(doc["cpu"]["topology"]), int(doc["memory"]))


def _needed(vm: Doc) -> int:
    """What a machine takes of its host's memory for certain."""
    return int(vm.get("memory_policy", {}).get("guaranteed", vm["memory"]))


def _groups(engine: engines.Engine, cluster: str) -> list[scheduling.Group]:
    found = []
    for each in engine.inventory.find("affinity_groups", cluster=cluster):
        rule = references.given(each, "vms_rule")
        if rule.get("enabled", True) and rule:
            found.append(
                scheduling.Group(
                    name=str(each["name"]),
                    positive=bool(rule.get("positive")),
                    enforcing=bool(rule.get("enforcing")),
                    vms=frozenset(each.get("_vms", ())),
                    priority=float(each.get("priority") or 0),
                )
            )
    return found


async def _launch(engine: engines.Engine, vm: Doc, run: int) -> None:
    await lab.sleep(engine.clock, timing.drawn(timing.WAIT_FOR_LAUNCH, "launch", vm["name"]))
    if not _is(engine, vm, WAITING, run):
        return
    try:
        machine = _housed(engine, vm)
        await machine.power_on()
    except (payload.Unreadable, sites.SiteRefused) as problem:
        _ended(engine, vm, str(problem))
        _tell(engine, vm, 54, f"Failed to run VM {vm['name']} (User: admin@internal-authz).", "", events.ERROR)
        raise faults.plain(str(problem)) from problem
    vm |= {"status": POWERING_UP, "start_time": engine.clock.wall(), "_launched": engine.clock.now()}
    vm.pop("_running_since", None)
    engine.spawn(_watch(engine, vm, machine, run))


def _housed(engine: engines.Engine, vm: Doc) -> instance.Instance:
    """The machine of the site that the VM is: its address is given once, when it starts for the first time."""
    data = payload.of(vm)
    machine = machine_of(engine, vm)
    if machine is None:
        # Machines of other providers live on the same site, and may have the name already.
        name = vm["name"] if vm["name"] not in engine.site.instances else f"{vm['name']}.{vm['id'][:8]}"
        machine = _machines.setdefault(engine, {})[vm["id"]] = instance.Instance(engine.site, name, data)
    elif machine.provisioned is None:
        machine.user_data = data
    return machine


async def _watch(engine: engines.Engine, vm: Doc, machine: instance.Instance, run: int) -> None:
    """See what a machine does, as its host tells, until it ends."""
    while True:
        await lab.sleep(engine.clock, max(timing.HOST_REFRESH, _FASTEST_LOOK * engine.clock.speed))
        if vm.get("_run") != run or vm["status"] == DOWN or not engine.inventory.has("vms", vm["id"]):
            return
        if machine.state == instance.OFF and vm["status"] in (POWERING_UP, UP):
            _ended(engine, vm, "Lost connection with qemu process.")
            words = f"VM {vm['name']} is down with error. Exit message: Lost connection with qemu process."
            _tell(engine, vm, 119, words, "", events.ERROR)
            return
        if machine.state == instance.RUNNING:
            vm.setdefault("_running_since", engine.clock.now())
        if vm["status"] == POWERING_UP and _is_up(engine, vm, machine):
            vm["status"] = UP


def _is_up(engine: engines.Engine, vm: Doc, machine: instance.Instance) -> bool:
    """A guest counts as up when it is known to run, or was given enough time: a host cannot see its boot fail."""
    waited = engine.clock.now() - float(vm["_launched"])
    return machine.state == instance.RUNNING or waited >= timing.POWERING_UP


async def _power_off(engine: engines.Engine, vm: Doc, run: int) -> None:
    await lab.sleep(engine.clock, timing.drawn(timing.POWER_OFF, "off", vm["name"]))
    if vm["status"] != POWERING_DOWN or vm.get("_run", 0) != run:
        # Somebody else's order was faster, and the machine may have been started again since.
        return
    machine = machine_of(engine, vm)
    if machine is not None:
        await machine.power_off()
    _ended(engine, vm)


async def _shut_down(engine: engines.Engine, vm: Doc) -> None:
    await lab.sleep(engine.clock, timing.drawn(timing.SHUTDOWN, "shutdown", vm["name"]))
    if vm["status"] != POWERING_DOWN:
        return
    machine = machine_of(engine, vm)
    if machine is not None and machine.state != instance.RUNNING and machine.state != instance.OFF:
        # Nobody in there hears the button.
        vm["status"] = UP
        return
    await _power_off(engine, vm, vm.get("_run", 0))
    _tell(engine, vm, 61, f"VM {vm['name']} is down. Exit message: User shut down from within the guest", "")


async def _boot_again(engine: engines.Engine, vm: Doc) -> None:
    await lab.sleep(engine.clock, timing.drawn(timing.POWER_OFF, "reboot", vm["name"]))
    machine = machine_of(engine, vm)
    if vm["status"] != REBOOTING:
        return
    if machine is not None:
        await machine.reboot()
    vm |= {"status": POWERING_UP if machine is not None else UP, "_launched": engine.clock.now()}


def _ended(engine: engines.Engine, vm: Doc, why: str = "") -> None:
    vm |= {"status": DOWN, "stop_time": engine.clock.wall()}
    for key in ("host", "start_time", "_running_since", "_launched"):
        vm.pop(key, None)
    if why:
        vm["stop_reason"] = why


async def forget(engine: engines.Engine, vm: Doc) -> None:
    """A VM is removed: its machine goes, and the address with it."""
    machine = machine_of(engine, vm)
    _machines.setdefault(engine, {}).pop(vm["id"], None)
    if machine is not None:
        await machine.delete()


def _is(engine: engines.Engine, vm: Doc, status: str, run: int) -> bool:
    return vm["status"] == status and vm.get("_run") == run and engine.inventory.has("vms", vm["id"])


def _title(status: str) -> str:
    return "".join(word.capitalize() for word in status.split("_"))


def _tell(engine: engines.Engine, vm: Doc, code: int, words: str, correlation: str, how: str = events.NORMAL) -> None:
    engine.events.add(code, how, words, correlation_id=correlation, vm=vm["id"])
