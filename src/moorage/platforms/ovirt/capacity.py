"""Whether the machines fit: on the hosts' memory and processors, on the storage, and apart from each other.

Everything here computes on values that `preflight` has gathered. oVirt lets processors be promised many times over and
thin disks grow beyond what there is, so those are warnings; memory and hosts that must differ are hard limits.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Final

import yaml
from ovirtsdk4 import types

from moorage.config import findings, model
from moorage.platforms import contract
from moorage.platforms.ovirt import config as sections
from moorage.platforms.ovirt import places

MIB: Final = 1024**2
GIB: Final = 1024**3

# What the image of RHCOS holds, of the 16 GiB that it shows; while the template is made it is there twice.
IMAGE_GIB: Final = 3.0
# What a node writes on a thin disk in its first hours: the images it pulls, etcd, logs.
THIN_GIB: Final = 25.0
# What the emulator takes on a host besides a machine's memory.
OVERHEAD_MIB: Final = 256


@dataclasses.dataclass(frozen=True)
class Host:
    """A host that is up: its threads, its memory, and how much of that a new machine may take."""

    name: str
    threads: int
    memory: float
    free: float


@dataclasses.dataclass(frozen=True)
class Wanted:
    """Machines of one kind that are not running yet: how many, and what each needs."""

    what: str
    field: str
    count: int
    threads: int
    memory_mib: int
    disk_gib: float
    thin: bool
    groups: tuple[str, ...] = ()


def wanted(
    config: model.InstallConfig,
    bootstrap: sections.MachinePool,
    instance_types: Mapping[str, types.InstanceType],
    there: Mapping[str, int],
) -> tuple[Wanted, ...]:
    """All machines of the cluster, but those that are ``there``, by role."""
    found = [_wanted("bootstrap", "platform.ovirt", 1 - there.get("bootstrap", 0), bootstrap, None)]
    for role in places.ROLES:
        pool = sections.defaults(config, role)
        count = config.control_plane_replicas if role == "master" else config.worker_replicas
        kind = instance_types.get(pool.instance_type_id)
        found.append(_wanted(role, places.pool_field(config, role), count - there.get(role, 0), pool, kind))
    return tuple(each for each in found if each.count > 0)


def _wanted(what: str, field: str, count: int, pool: sections.MachinePool, kind: types.InstanceType | None) -> Wanted:
    threads = pool.cpu.total if pool.cpu is not None else 0
    memory = pool.memory_mb
    if kind is not None:
        topology = kind.cpu.topology if kind.cpu else None
        threads = _threads(topology)
        memory = (kind.memory or 0) // MIB
    size = float(pool.os_disk.size_gb) if pool.os_disk is not None else 0.0
    whole = pool.format == "raw" or pool.sparse is False
    return Wanted(what, field, count, threads, memory, size, not whole, tuple(pool.affinity_groups_names or ()))


def host(found: types.Host) -> Host:
    """A host of the engine's, as far as it matters here."""
    topology = found.cpu.topology if found.cpu else None
    memory = (found.memory or 0) / GIB
    free = memory if found.max_scheduling_memory is None else found.max_scheduling_memory / GIB
    return Host(found.name, _threads(topology), memory, free)


def _threads(topology: types.CpuTopology | None) -> int:
    if topology is None:
        return 0
    return (topology.sockets or 1) * (topology.cores or 1) * (topology.threads or 1)


def memory(hosts: Sequence[Host], machines: Sequence[Wanted], overcommit: int) -> contract.Limit:
    """All hosts' memory together, as far as the engine gives it away."""
    most = sum(each.memory for each in hosts) * max(100, overcommit) / 100
    free = min(most, sum(each.free for each in hosts))
    adds = sum(each.count * (each.memory_mib + OVERHEAD_MIB) for each in machines) / 1024
    return contract.Limit(
        "memory of the cluster's active hosts", _round(most - free), _round(adds), _round(most), "GiB"
    )


def processors(hosts: Sequence[Host], machines: Sequence[Wanted], used: int) -> contract.Limit:
    """All hosts' threads, and how many the machines have been promised."""
    most = sum(each.threads for each in hosts)
    adds = sum(each.count * each.threads for each in machines)
    return contract.Limit("processor threads of the cluster's active hosts", used, adds, most)


def storage(domain: types.StorageDomain, machines: Sequence[Wanted], *, upload: bool) -> contract.Limit:
    """The storage domain, with thin disks as large as they will soon be."""
    used = (domain.used or 0) / GIB
    # The engine begins nothing on a domain that has no more than this left.
    kept = float(domain.critical_space_action_blocker or 0)
    most = used + (domain.available or 0) / GIB - kept
    disks = sum(each.count * _soon(each) for each in machines)
    adds = disks + (2 * IMAGE_GIB if upload else 0)
    thin = any(each.thin for each in machines)
    name = f"storage domain {domain.name}" + (f" (thin disks taken for {THIN_GIB:g} GiB each)" if thin else "")
    return contract.Limit(name, _round(used), _round(adds), _round(max(used, most)), "GiB")


def _soon(machine: Wanted) -> float:
    return min(machine.disk_gib, THIN_GIB) if machine.thin else machine.disk_gib


def _round(number: float) -> float:
    return round(number, 1)


def growth(domain: types.StorageDomain, machines: Sequence[Wanted]) -> Iterator[findings.Finding]:
    """Thin disks that may grow beyond what there is."""
    free = (domain.available or 0) / GIB
    whole = sum(each.count * each.disk_gib for each in machines)
    if whole > free and any(each.thin for each in machines):
        yield findings.Finding(
            f"{places.HERE}.ovirt_storage_domain_id",
            f"the machines' disks are thin and may grow to {whole:g} GiB together; {free:.0f} GiB are free in "
            f"{domain.name}",
            "warning",
            "watch the domain: when it is full the engine pauses the machines; or choose smaller disks",
        )


def promises(limit: contract.Limit, overcommit: int) -> Iterator[findings.Finding]:
    """What is promised more than once."""
    if not limit.fits:
        yield findings.Finding(
            f"{places.HERE}.ovirt_cluster_id",
            f"the machines there get {limit.used + limit.adds:g} processors of hosts with {limit.most:g} threads: "
            "the engine starts them all the same, but under load they wait for each other",
            "warning",
            "etcd suffers first: give the hosts less to do, or the machines fewer processors",
        )
    if overcommit > 100:
        yield findings.Finding(
            f"{places.HERE}.ovirt_cluster_id",
            f"the engine's cluster gives away {overcommit} % of its hosts' memory",
            "warning",
            "hosts that swap stop etcd: see that the machines' memory is really there",
        )


def sizes(hosts: Sequence[Host], machines: Sequence[Wanted]) -> Iterator[findings.Finding]:
    """Machines that no host is large enough for, and those for which there is room only in pieces."""
    if not hosts:
        return
    sound = True
    for each in machines:
        needs = (each.memory_mib + OVERHEAD_MIB) / 1024
        if each.threads > max(host.threads for host in hosts):
            sound = False
            yield findings.Finding(
                f"{each.field}.cpu",
                f"a {each.what} has {each.threads} processors, more than any host of the cluster has threads",
                remedy=f"use {max(host.threads for host in hosts)} at most",
            )
        if needs > max(host.free for host in hosts):
            sound = False
            roomiest = max(hosts, key=lambda host: host.free)
            yield findings.Finding(
                f"{each.field}.memoryMB",
                f"a {each.what} needs {needs:.1f} GiB of one host, and the roomiest ({roomiest.name}) has "
                f"{roomiest.free:.1f} GiB free",
                remedy="use less, or move other machines away",
            )
    total = sum(each.count * (each.memory_mib + OVERHEAD_MIB) for each in machines) / 1024
    if sound and total <= sum(host.free for host in hosts) and not packed(hosts, machines):
        yield findings.Finding(
            f"{places.HERE}.ovirt_cluster_id",
            "the hosts have memory enough together, but it seems in pieces too small for all the machines",
            "warning",
            "move other machines together, or give these less memory",
        )


def packed(hosts: Sequence[Host], machines: Sequence[Wanted]) -> bool:
    """Whether the machines fit when each, the largest first, goes where most is free, as the engine does it."""
    free = {host.name: host.free for host in hosts}
    for each in sorted(machines, key=lambda machine: -machine.memory_mib):
        for _ in range(each.count):
            roomiest = max(free, key=lambda name: free[name])
            free[roomiest] -= (each.memory_mib + OVERHEAD_MIB) / 1024
            if free[roomiest] < 0:
                return False
    return True


def apart(config: model.InstallConfig, hosts: Sequence[Host], resting: Collection[str]) -> Iterator[findings.Finding]:
    """Machines that must not share a host, against the hosts there are; and what it means where they may."""
    platform = sections.settings(config)
    counts = {"master": config.control_plane_replicas, "worker": config.worker_replicas}
    members = {role: set(sections.defaults(config, role).affinity_groups_names or ()) for role in places.ROLES}
    crowded = []
    for index, group in enumerate(platform.affinity_groups):
        size = sum(counts[role] for role in places.ROLES if group.name in members[role])
        if group.enforcing and size > len(hosts):
            crowded.append((index, group, size))
    relaxed = _relaxed(platform, {group.name for _, group, _ in crowded})
    for index, group, size in crowded:
        resting_too = f" ({len(resting)} more are not up: {', '.join(sorted(resting)[:5])})" if resting else ""
        yield findings.Finding(
            f"{places.HERE}.affinityGroups[{index}].enforcing",
            f"the {size} machines of group {group.name!r} must run on different hosts, and the cluster has "
            f"{len(hosts)} active{resting_too}: {size - len(hosts)} would never start",
            remedy=f"bring hosts up, or let machines share them with platform.ovirt.affinityGroups: {relaxed}"
            + (f"; it costs: {_shared(counts['master'], len(hosts))}" if group.name in members["master"] else ""),
        )
    if not crowded and counts["master"] > 1:
        yield from _masters_together(platform, members["master"], counts["master"], len(hosts))


def _masters_together(
    platform: sections.Platform, groups: Collection[str], masters: int, hosts: int
) -> Iterator[findings.Finding]:
    if any(group.enforcing for group in platform.affinity_groups if group.name in groups):
        return
    field = f"{places.HERE}.affinityGroups"
    if 0 < hosts < masters:
        yield findings.Finding(
            field,
            f"{masters} control-plane machines run on {hosts} active host{'s' if hosts > 1 else ''}, so that some "
            f"share one: {_shared(masters, hosts)}",
            "warning",
            f"add hosts up to {masters} and set enforcing: true to be rid of this",
        )
    elif hosts and not groups:
        yield findings.Finding(
            field,
            "nothing keeps the control-plane machines on different hosts: if the engine puts two of them on one, its "
            "failure stops the cluster",
            "warning",
            "leave affinityGroups out: its default keeps them apart",
        )


def _shared(masters: int, hosts: int) -> str:
    together = math.ceil(masters / hosts) if hosts else masters
    if masters - together > masters // 2:
        return f"{together} control-plane machines on one host; if it fails, the cluster lives on without them"
    return (
        f"{together} of {masters} control-plane machines on one host; if that host fails, etcd has no majority and the "
        "cluster's API stands still until the host is back"
    )


def _relaxed(platform: sections.Platform, names: Collection[str]) -> str:
    """The groups as they would have to be written, on one line of YAML."""
    groups = [
        {
            "name": group.name,
            "priority": group.priority,
            "enforcing": group.enforcing and group.name not in names,
        }
        for group in platform.affinity_groups
    ]
    return str(yaml.safe_dump(groups, default_flow_style=True, sort_keys=False, width=10_000)).strip()
