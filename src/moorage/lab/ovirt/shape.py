"""The datacentre that a new lab has, and how the controls reshape it.

There is one data center with two clusters, storage of every type, two networks, and things of other people's: names and
lists are never empty. A change of shape touches what it names and nothing else; the rest goes on as it was.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from moorage import errors
from moorage.lab.ovirt import documents, furniture, permissions

if TYPE_CHECKING:
    from moorage.lab.ovirt import engine as engines

GIB, BLANK, ROOT_TAG = furniture.GIB, furniture.BLANK, furniture.ROOT_TAG
OPERATING_SYSTEMS = furniture.OPERATING_SYSTEMS
USERS = ("admin@internal", "viewer@internal")
_ROLES = {"all": permissions.SUPER_USER, "read-only": permissions.READ_ONLY}
AGENTS = ("normal", "late", "never", "vip-first")


class ShapeRefused(errors.MoorageError):
    """A datacentre cannot have this shape."""


@dataclasses.dataclass
class Shape:
    """What can be changed about the datacentre. ``agent`` says how guests tell their addresses, if they do."""

    threads: int = 64
    memory_gib: int = 256
    agent: str = "normal"
    restart_seconds: float = 60.0
    #: What befalls the next upload: see `transfers`.
    transfers: dict[str, Any] = dataclasses.field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        return dataclasses.asdict(self)


def furnish(engine: engines.Engine) -> None:
    """Put everything into an empty inventory."""
    inventory = engine.inventory
    center = inventory.add("data_centers", furniture.data_center("Default"))["id"]
    for name, count in (("Default", 3), ("Edge", 2)):
        cluster = inventory.add("clusters", furniture.cluster(name, center))
        inventory.add("cpu_profiles", {"name": name, "cluster": {"id": cluster["id"]}})
        _set_hosts(engine, name, count)
    for name, kind, gib in furniture.STORAGE:
        inventory.add("storage_domains", furniture.storage_domain(name, kind, gib, center))
    clusters = [each["id"] for each in inventory.all("clusters")]
    for name, profiles in furniture.NETWORKS:
        network = inventory.add("networks", furniture.network(name, center, clusters))
        for profile in profiles:
            inventory.add("vnic_profiles", furniture.vnic_profile(profile, network["id"]))
    for name, sockets, mib in furniture.INSTANCE_TYPES:
        inventory.add("instance_types", furniture.instance_type(name, sockets, mib))
    for name in OPERATING_SYSTEMS:
        inventory.add("operation_systems", {"name": name, "description": name, "architecture": "x86_64"})
    inventory.add("tags", {"id": ROOT_TAG, "name": "root", "description": "root"})
    inventory.add("templates", furniture.blank_template(engine.clock.wall()))
    _add_users(engine)
    _add_neighbours(engine)
    engine.events.add(1, "normal", "Starting oVirt Engine.")


def _add_users(engine: engines.Engine) -> None:
    known = engine.permissions
    known.add_role("SuperUser", "Roles management administrator", list(permissions.PERMITS), permissions.SUPER_USER)
    known.add_role("ReadOnlyAdmin", "Read Only Administrator Role", ["login"], permissions.READ_ONLY)
    for user, role in zip(USERS, _ROLES.values(), strict=True):
        known.add_user(user, role)


def _add_neighbours(engine: engines.Engine) -> None:
    """Somebody else's template, and a machine that runs."""
    add_template(engine, "centos", "CentOS Stream, by the people of the second floor")
    add_vm(engine, "intranet", "Somebody's", host=engine.inventory.all("hosts")[0]["id"])


def add_template(engine: engines.Engine, name: str, description: str, system: str = "rhel_9x64") -> str:
    """A template that is there already, with its disk. Its id."""
    cluster, now = engine.inventory.all("clusters")[0]["id"], engine.clock.wall()
    template = engine.inventory.add("templates", furniture.template(name, description, system, cluster, now))
    disk = add_disk(engine, name, 10, description)
    engine.inventory.add("disk_attachments", furniture.attachment("template", template["id"], disk["id"]))
    return str(template["id"])


def add_vm(
    engine: engines.Engine, name: str, description: str, *, host: str = "", tags: list[str] | None = None
) -> str:
    """A machine that is there without ever having been made: of the site it is none. Its id."""
    cluster, now = engine.inventory.all("clusters")[0]["id"], engine.clock.wall()
    vm = engine.inventory.add("vms", furniture.vm(name, description, cluster, now))
    vm["_tags"] = list(tags or [])
    if host:
        vm |= {"status": "up", "host": {"id": host}, "start_time": now}
    disk = add_disk(engine, f"{name}-disk", 40, description)
    engine.inventory.add("disk_attachments", furniture.attachment("vm", vm["id"], disk["id"]))
    return str(vm["id"])


def add_disk(engine: engines.Engine, name: str, size: int, description: str) -> documents.Doc:
    """A disk that is there already, on the first storage domain; the size is in GiB."""
    domain = engine.inventory.all("storage_domains")[0]
    disk = engine.inventory.add("disks", furniture.disk(name, size, description, domain["id"]))
    domain["available"] -= disk["actual_size"]
    domain["used"] += disk["actual_size"]
    domain["committed"] += disk["provisioned_size"]
    return disk


def _set_hosts(engine: engines.Engine, cluster: str, count: int) -> None:
    """Let a cluster have so many hosts: the last ones go, new ones come behind them."""
    found, shape = _named(engine, "clusters", cluster), engine.shape
    hosts = engine.inventory.find("hosts", cluster=found["id"])
    for host in hosts[count:]:
        engine.inventory.remove("hosts", host["id"])
    for number in range(len(hosts) + 1, count + 1):
        name = f"{cluster.lower()}-{number}"
        engine.inventory.add("hosts", furniture.host(name, found["id"], shape.threads, shape.memory_gib))


def change(engine: engines.Engine, asked: object) -> None:
    """Reshape the datacentre as a document of the controls says; nothing happens if any of it makes no sense."""
    changes = _checked(asked)
    for kind, key in (("clusters", "hosts"), ("hosts", "host_status"), ("storage_domains", "storage")):
        for name in changes.get(key, {}):
            _named(engine, kind, name)
    shape = engine.shape
    shape.threads = changes.get("host_threads", shape.threads)
    shape.memory_gib = changes.get("host_memory_gib", shape.memory_gib)
    shape.agent = changes.get("guest", {}).get("agent", shape.agent)
    shape.restart_seconds = changes.get("engine", {}).get("restart_seconds", shape.restart_seconds)
    shape.transfers = changes.get("transfers", shape.transfers)
    for cluster, count in changes.get("hosts", {}).items():
        _set_hosts(engine, cluster, count)
    for host in engine.inventory.all("hosts"):
        host |= furniture.capacity(shape.threads, shape.memory_gib)
    for name, status in changes.get("host_status", {}).items():
        _named(engine, "hosts", name)["status"] = status
    for name, wanted in changes.get("storage", {}).items():
        domain = _named(engine, "storage_domains", name)
        if "free_gib" in wanted:
            domain["available"] = int(wanted["free_gib"] * GIB)
        domain["status"] = wanted.get("status", domain["status"])
    for principal, permits in changes.get("permissions", {}).items():
        _permit(engine, principal, permits)


def _permit(engine: engines.Engine, principal: str, permits: str | list[str]) -> None:
    user = engine.permissions.user(principal)
    if user is None:
        return
    if isinstance(permits, str):
        engine.permissions.grant(user, _ROLES[permits])
    else:
        engine.permissions.limit(user, permits)


def _named(engine: engines.Engine, kind: str, name: str) -> documents.Doc:
    found = engine.inventory.named(kind, name)
    if found is None:
        known = ", ".join(each["name"] for each in engine.inventory.all(kind))
        raise ShapeRefused(f"there is no {name} among the {kind}", remedy=f"there are {known}")
    return found


# What a change may say: names of the user's own are a star.
_FORM: Mapping[str, Any] = {
    "hosts": {"*": int},
    "host_threads": int,
    "host_memory_gib": int,
    "host_status": {"*": str},
    "storage": {"*": {"free_gib": (int, float), "status": str}},
    "permissions": {"*": (str, list)},
    "guest": {"agent": str},
    "engine": {"restart_seconds": (int, float)},
    "transfers": {"die_at": (int, float), "disk": str, "seconds": (int, float)},
}


def _checked(asked: object) -> dict[str, Any]:
    if not isinstance(asked, dict):
        raise ShapeRefused("the shape is a JSON object", remedy="see docs/lab.md")
    _match(asked, _FORM, "")
    agent = asked.get("guest", {}).get("agent", "normal")
    if agent not in AGENTS:
        raise ShapeRefused(f"guest.agent: {agent!r} is unknown", remedy=f"use one of {', '.join(AGENTS)}")
    for principal, permits in asked.get("permissions", {}).items():
        if principal not in USERS:
            raise ShapeRefused(f"there is no user {principal}", remedy=f"users: {', '.join(USERS)}")
        known = [permits in _ROLES] if isinstance(permits, str) else [each in permissions.PERMITS for each in permits]
        if not all(known):
            raise ShapeRefused(
                f"permissions.{principal}: {permits!r} has what is none",
                remedy=f"use {', '.join(_ROLES)}, or a list of {', '.join(permissions.PERMITS)}",
            )
    return asked


def _match(asked: object, form: Any, path: str) -> None:
    if not isinstance(form, Mapping):
        if isinstance(asked, bool) or not isinstance(asked, form) or (isinstance(asked, int | float) and asked < 0):
            raise ShapeRefused(f"{path}: {asked!r} makes no sense", remedy="see docs/lab.md")
        return
    if not isinstance(asked, dict):
        raise ShapeRefused(f"{path} is a JSON object", remedy="see docs/lab.md")
    for key, value in asked.items():
        inner = form.get(key, form.get("*"))
        if inner is None:
            raise ShapeRefused(f"there is no {path}{key}", remedy=f"there are {', '.join(form)}")
        _match(value, inner, f"{path}{key}." if isinstance(inner, Mapping) else f"{path}{key}")
