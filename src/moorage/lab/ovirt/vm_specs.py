"""What a machine shall be: a request's document laid over the template and the instance type, and checked.

All of it computes on documents. Sizes are bytes, as in the API; the engine's complaints speak of megabytes.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from moorage.lab.ovirt import faults, references, scheduling, shape

if TYPE_CHECKING:
    from moorage.lab.ovirt import engine as engines

Doc = dict[str, Any]

MIB = 1024**2
ADDING, EDITING = "add VM", "edit VM"
TYPES = ("desktop", "high_performance", "server")
# Custom properties that every engine knows, and what they may be.
_PROPERTIES = {
    "hugepages": re.compile(r"[0-9]+"),
    "mdev_type": re.compile(r".*"),
    "sap_agent": re.compile(r"true|false"),
    "sndbuf": re.compile(r"[0-9]+"),
    "vhost": re.compile(r".*"),
    "viodiskcache": re.compile(r"none|writeback|writethrough"),
}
_NAME = re.compile(r"[\w.+-]+")
_LONGEST_NAME = 255
_MOST_CPUS, _MOST_SOCKETS, _MOST_CORES, _MOST_THREADS = 710, 16, 254, 8
_MOST_MEMORY = 6 * 1024**4
_COPIED: tuple[str, ...] = (
    "bios",
    "cpu",
    "custom_properties",
    "high_availability",
    "initialization",
    "memory",
    "memory_policy",
    "os",
)
_COPIED += ("type",)
_WORDS = ("description", "comment")
# What can be changed while a machine runs; the rest waits for it to be down.
_WHILE_RUNNING = frozenset({"name", "description", "comment", "high_availability", "delete_protected"})


def check_name(name: str, doing: str) -> None:
    """Refuse what no machine may be called."""
    if len(name) > _LONGEST_NAME:
        raise faults.refused(doing, "The given name is too long.", 400)
    if not _NAME.fullmatch(name):
        why = "Only lower-case and upper-case letters, numbers, '_', '-', '.' are allowed."
        raise faults.plain(f"Can not {doing}. The given name contains special characters. {why}", 400)


def built(engine: engines.Engine, asked: Doc, template: Doc, cluster: Doc) -> Doc:
    """The machine that a request asks for; its disks and interfaces are another matter."""
    vm: Doc = {key: _copy(template[key]) for key in _COPIED if key in template}
    vm |= {
        "name": str(asked["name"]),
        "status": "down",
        "cluster": {"id": cluster["id"]},
        "template": {"id": template["id"]},
        "original_template": {"id": template["id"]},
        "origin": "ovirt",
        "stateless": False,
        "delete_protected": bool(asked.get("delete_protected", False)),
        "run_once": False,
        "next_run_configuration_exists": False,
        "placement_policy": {"affinity": "migratable"},
        "_tags": [],
    }
    kind = references.given(asked, "instance_type")
    if references.named(kind):
        found = references.resolved(engine, "instance_types", kind, "InstanceType")
        # What an instance type says holds, whatever else was asked for.
        asked = {key: value for key, value in asked.items() if key not in ("cpu", "memory", "memory_policy")}
        vm |= {key: _copy(found[key]) for key in ("cpu", "memory", "memory_policy") if key in found}
        vm["instance_type"] = {"id": found["id"]}
    overlay(engine, vm, asked, ADDING)
    check(vm, ADDING)
    return vm


def overlay(engine: engines.Engine, vm: Doc, asked: Doc, doing: str) -> None:
    """Lay what was asked for over what is there."""
    for field in _WORDS:
        if field in asked:
            vm[field] = str(asked[field])
    if "type" in asked:
        if asked["type"] not in TYPES:
            raise faults.invalid(f"The value '{asked['type']}' isn't a valid VM type, expected {', '.join(TYPES)}")
        vm["type"] = asked["type"]
    if "os" in asked and isinstance(asked["os"], dict):
        vm["os"] = {"boot": {"devices": ["hd"]}, **vm.get("os", {}), **asked["os"]}
        # A system that the engine does not know is just another one to it.
        vm["os"]["type"] = vm["os"].get("type") if vm["os"].get("type") in shape.OPERATING_SYSTEMS else "other"
    _overlay_cpu(vm, asked)
    _overlay_memory(vm, asked)
    if "custom_properties" in asked:
        vm["custom_properties"] = _properties(references.items(asked, "custom_properties"), doing)
    if isinstance(asked.get("initialization"), dict):
        vm["initialization"] = {**vm.get("initialization", {}), **asked["initialization"]}
    if isinstance(asked.get("placement_policy"), dict):
        vm["placement_policy"] = _placement(engine, asked["placement_policy"])
    for field in ("high_availability", "bios"):
        if isinstance(asked.get(field), dict):
            vm[field] = {**vm.get(field, {}), **asked[field]}
    if "delete_protected" in asked:
        vm["delete_protected"] = bool(asked["delete_protected"])


def _overlay_cpu(vm: Doc, asked: Doc) -> None:
    cpu = asked.get("cpu")
    if not isinstance(cpu, dict):
        return
    there = vm.setdefault("cpu", {"architecture": "x86_64"})
    topology = {**there.get("topology", {}), **(cpu.get("topology") or {})}
    vm["cpu"] = {**there, **cpu, "topology": topology}


def _overlay_memory(vm: Doc, asked: Doc) -> None:
    """Memory, and what follows from it where nothing else is said."""
    policy = asked["memory_policy"] if isinstance(asked.get("memory_policy"), dict) else {}
    if "memory" in asked:
        vm["memory"] = int(asked["memory"])
        vm["memory_policy"] = {
            "ballooning": vm.get("memory_policy", {}).get("ballooning", True),
            "guaranteed": vm["memory"],
            "max": 4 * vm["memory"],
        }
    vm["memory_policy"] = {**vm.get("memory_policy", {}), **policy}


def _properties(asked: list[Doc], doing: str) -> list[Doc]:
    names = [str(each.get("name", "")) for each in asked]
    unknown = [name for name in names if name not in _PROPERTIES]
    if unknown:
        why = "if some of the specified custom properties are not configured by the system. The keys are"
        raise faults.plain(f"Cannot {doing} {why}: {', '.join(unknown)}", 400)
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        why = "if some of the specified custom properties appear more than once. The keys are"
        raise faults.plain(f"Cannot {doing} {why}: {', '.join(twice)}", 400)
    wrong = [each["name"] for each in asked if not _PROPERTIES[each["name"]].fullmatch(str(each.get("value", "")))]
    if wrong:
        why = "if some of the specified custom properties have illegal values. The keys are"
        raise faults.plain(f"Cannot {doing} {why}: {', '.join(wrong)}", 400)
    return [{"name": each["name"], "value": str(each.get("value", ""))} for each in asked]


def _placement(engine: engines.Engine, asked: Doc) -> Doc:
    hosts = [references.resolved(engine, "hosts", each, "Host") for each in references.items(asked, "hosts")]
    affinity = asked.get("affinity", "migratable")
    if affinity not in ("migratable", "pinned", "user_migratable"):
        raise faults.invalid(f"The value '{affinity}' isn't a valid VM affinity")
    return {"affinity": affinity, **({"hosts": [{"id": each["id"]} for each in hosts]} if hosts else {})}


def check(vm: Doc, doing: str) -> None:
    """Refuse what cannot be."""
    topology = vm["cpu"]["topology"]
    limits = (("sockets", _MOST_SOCKETS, "sockets"), ("cores", _MOST_CORES, "CPU cores per socket"))
    for part, most, word in (*limits, ("threads", _MOST_THREADS, "threads per CPU core")):
        if int(topology.get(part, 1)) < 1:
            raise faults.plain(f"{part}: must be greater than or equal to 1", 400)
        if int(topology.get(part, 1)) > most:
            raise faults.refused(doing, f"Maximum number of {word} exceeded.")
    if scheduling.threads_of(topology) > _MOST_CPUS:
        raise faults.refused(doing, "Maximum number of CPUs exceeded.")
    memory, policy = int(vm["memory"]), vm["memory_policy"]
    if memory < MIB:
        raise faults.plain("The memory of a VM has to be at least 1 MB.", 400)
    if memory > _MOST_MEMORY:
        raise faults.refused(doing, "Memory size exceeds supported limit for given cluster version.")
    if int(policy.get("guaranteed", 0)) > memory:
        raise faults.refused(doing, "Physical Memory Guaranteed cannot exceed Memory Size.", 400)
    most = int(policy.get("max", memory))
    if memory > most:
        sizes = f"Memory size ({memory // MIB}MB) cannot exceed maximum memory size ({most // MIB}MB)."
        raise faults.refused(doing, sizes, 400)


def update(engine: engines.Engine, vm: Doc, asked: Doc) -> None:
    """Change a machine, all of it or nothing; one that runs cannot be changed in everything."""
    draft: Doc = _copy(vm)
    name = asked.get("name")
    if name and name != vm["name"]:
        check_name(str(name), EDITING)
        if engine.inventory.named("vms", str(name)) is not None:
            raise faults.name_in_use(EDITING, "VM")
        draft["name"] = str(name)
    overlay(engine, draft, asked, EDITING)
    check(draft, EDITING)
    changed = {key for key in draft if draft[key] != vm.get(key)}
    if vm["status"] != "down" and changed - _WHILE_RUNNING:
        why = "There was an attempt to change VM values while the VM is not down."
        raise faults.plain(f"{why} Please shut down the VM in order to modify these properties.", 400)
    vm |= {key: draft[key] for key in changed}


def _copy(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _copy(each) for key, each in value.items()}
    return [_copy(each) for each in value] if isinstance(value, list) else value
