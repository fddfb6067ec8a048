"""The rules of an install-config for oVirt: what no engine has to be asked for.

Whether the ids exist, the addresses are free and the hosts are enough is asked of the engine itself, by `preflight`.
Errors are what can never work; warnings are what works and will be regretted.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from moorage.config import findings, model, text, vip_rules

if TYPE_CHECKING:
    from moorage.platforms.ovirt import config as sections

_HERE: Final = "platform.ovirt"
_GROUP_NAME = re.compile(r"[A-Za-z0-9._-]{1,200}")
_IMAGE = re.compile(
    r"[a-z0-9.-]+(:[0-9]+)?(/[a-z0-9._-]+)+(:[A-Za-z0-9_][A-Za-z0-9._-]{0,127})?(@sha256:[0-9a-f]{64})?"
)
_PRIORITIES: Final = range(6)
_LEAST: Final[Mapping[str, tuple[int, int]]] = {"master": (4, 16384), "worker": (2, 8192)}
"""Processors and MiB below which OpenShift's own components starve."""
_LEAST_DISK: Final = 100
_MOST_PROCESSORS: Final = 710  # of one machine, in any cluster level of the engine


def platform(chosen: sections.Platform, config: model.InstallConfig) -> Iterator[findings.Finding]:
    """Ids, addresses and groups."""
    yield from _uuid(f"{_HERE}.ovirt_cluster_id", chosen.ovirt_cluster_id, "a cluster")
    yield from _uuid(f"{_HERE}.ovirt_storage_domain_id", chosen.ovirt_storage_domain_id, "a storage domain")
    if chosen.vnic_profile_id:
        yield from _uuid(f"{_HERE}.vnicProfileID", chosen.vnic_profile_id, "a vNIC profile")
    if not chosen.ovirt_network_name.strip():
        yield findings.Finding(f"{_HERE}.ovirt_network_name", "is empty", remedy="remove it for ovirtmgmt")
    if chosen.template.lower() == "blank":
        yield findings.Finding(
            f"{_HERE}.template",
            "Blank is the engine's empty template: machines made from it have no disk to boot from",
            remedy="remove the field, so that the boot image is uploaded, or name a template with RHCOS",
        )
    yield from _vips(chosen, config)
    yield from _groups(chosen)


def network_image(chosen: sections.Platform, default: str) -> Iterator[findings.Finding]:
    """The image is the user's to publish, as long as nobody else does."""
    field = f"{_HERE}.networkImage"
    if chosen.network_image == default:
        yield findings.Finding(
            field,
            f"{default} is not published: nodes that cannot pull it never carry the cluster's addresses",
            "warning",
            "build it from the Containerfile, push it where the nodes can pull it, and name it here",
        )
    elif not _IMAGE.fullmatch(chosen.network_image):
        yield findings.Finding(
            field,
            f"{chosen.network_image[:80]!r} is not an image reference",
            remedy="write <registry>/<repository>:<tag>, or @sha256:<digest> in place of the tag",
        )


def _uuid(field: str, value: str, what: str) -> Iterator[findings.Finding]:
    if not is_uuid(value):
        yield findings.Finding(
            field,
            f"{value[:60]!r} is not the id of {what}",
            remedy="an id is a UUID; moorage create install-config finds it by name",
        )


def is_uuid(value: str) -> bool:
    """Whether it is written as the engine writes its ids."""
    try:
        return str(uuid.UUID(value)) == value.lower()
    except ValueError:
        return False


def _vips(chosen: sections.Platform, config: model.InstallConfig) -> Iterator[findings.Finding]:
    api, ingress, dns = f"{_HERE}.api_vips", f"{_HERE}.ingress_vips", f"{_HERE}.dns_vips"
    taken = {api: chosen.api_vips}
    yield from vip_rules.vip_findings(api, chosen.api_vips, config)
    yield from vip_rules.vip_findings(ingress, chosen.ingress_vips, config, unlike=taken)
    taken = {**taken, ingress: chosen.ingress_vips}
    yield from vip_rules.vip_findings(dns, chosen.dns_vips, config, unlike=taken, required=False)


def _groups(chosen: sections.Platform) -> Iterator[findings.Finding]:
    seen: set[str] = set()
    for index, group in enumerate(chosen.affinity_groups):
        field = f"{_HERE}.affinityGroups[{index}]"
        if not _GROUP_NAME.fullmatch(group.name):
            yield findings.Finding(
                f"{field}.name",
                f"{group.name[:60]!r} is no name for a group",
                remedy="use letters, digits, '-', '_' and '.'",
            )
        elif group.name in seen:
            yield findings.Finding(f"{field}.name", f"there are two groups {group.name!r}", remedy="make it one")
        seen.add(group.name)
        if group.priority not in _PRIORITIES:
            yield findings.Finding(f"{field}.priority", f"is {group.priority}", remedy="use 0 (least) to 5 (most)")


def pool(field: str, pool: sections.MachinePool, groups: Sequence[str]) -> Iterator[findings.Finding]:
    """One place that says something of machines, as it is written."""
    if pool.instance_type_id:
        yield from _uuid(f"{field}.instanceTypeID", pool.instance_type_id, "an instance type")
        for name, given in (("cpu", pool.cpu is not None), ("memoryMB", pool.memory_mb != 0)):
            if given:
                yield findings.Finding(
                    f"{field}.{name}",
                    "is given together with instanceTypeID, which decides it already",
                    remedy=f"remove {name}, or instanceTypeID",
                )
    yield from _numbers(field, pool)
    for index, name in enumerate(pool.affinity_groups_names or ()):
        where = f"{field}.affinityGroupsNames[{index}]"
        if name not in groups:
            listed = f"use {text.one_of(groups)}" if groups else f"there are none: add it to {_HERE}.affinityGroups"
            yield findings.Finding(
                where, f"there is no group {name[:60]!r}", remedy=text.suggestion(name, groups) or listed
            )
        elif name in (pool.affinity_groups_names or ())[:index]:
            yield findings.Finding(where, f"{name!r} is listed twice", remedy="remove one")


def _numbers(field: str, pool: sections.MachinePool) -> Iterator[findings.Finding]:
    if pool.cpu is not None:
        parts = (("cores", pool.cpu.cores), ("sockets", pool.cpu.sockets), ("threads", pool.cpu.threads))
        wrong = [(name, number) for name, number in parts if number < 1]
        for name, number in wrong:
            yield findings.Finding(f"{field}.cpu.{name}", f"is {number}", remedy="use 1 or more")
        if not wrong and pool.cpu.total > _MOST_PROCESSORS:
            yield findings.Finding(
                f"{field}.cpu",
                f"makes {pool.cpu.total} processors; a machine of oVirt has {_MOST_PROCESSORS} at most",
                remedy="cores, sockets and threads are multiplied: use less of one",
            )
    if pool.memory_mb < 0:
        yield findings.Finding(f"{field}.memoryMB", f"is {pool.memory_mb}", remedy="use a number such as 16384")
    if pool.os_disk is not None and pool.os_disk.size_gb < 1:
        yield findings.Finding(
            f"{field}.osDisk.sizeGB", f"is {pool.os_disk.size_gb}", remedy="use a number such as 120"
        )


def machines(field: str, role: str, made: sections.MachinePool) -> Iterator[findings.Finding]:
    """What the machines of a role come out as."""
    yield from _disk(field, made)
    yield from _size(field, role, made)
    yield from _tuning(field, made)


def _disk(field: str, pool: sections.MachinePool) -> Iterator[findings.Finding]:
    if pool.format == "cow" and pool.sparse is False:
        yield findings.Finding(
            f"{field}.sparse", "a cow disk always grows as it is written", remedy="write format: raw, or sparse: true"
        )
    if pool.clone is False and (pool.format == "raw" or pool.sparse is False):
        name = "format" if pool.format == "raw" else "sparse"
        yield findings.Finding(
            f"{field}.{name}",
            "the disk is not copied from the template but layered on it, and such a layer is always cow and sparse",
            remedy=f"set clone: true, or remove {name}",
        )


def _size(field: str, role: str, pool: sections.MachinePool) -> Iterator[findings.Finding]:
    processors, memory = _LEAST[role]
    if pool.cpu is not None and pool.cpu.total < processors:
        yield _small(f"{field}.cpu", f"{pool.cpu.total} processors", f"{processors} or more")
    if pool.cpu is not None and pool.memory_mb < memory:
        yield _small(f"{field}.memoryMB", f"{pool.memory_mb} MiB", f"{memory} or more")
    if pool.os_disk is not None and pool.os_disk.size_gb < _LEAST_DISK:
        yield _small(f"{field}.osDisk.sizeGB", f"{pool.os_disk.size_gb} GiB", f"{_LEAST_DISK} or more")


def _small(field: str, has: str, remedy: str) -> findings.Finding:
    return findings.Finding(
        field, f"{has} are less than OpenShift's minimum for such machines", "warning", f"use {remedy}"
    )


def _tuning(field: str, pool: sections.MachinePool) -> Iterator[findings.Finding]:
    pinned = pool.auto_pinning_policy == "resize_and_pin"
    page = pool.hugepages // 1024
    if page and pool.memory_mb % page:
        yield findings.Finding(
            f"{field}.memoryMB",
            f"{pool.memory_mb} MiB is not a whole number of huge pages of {page} MiB",
            remedy=f"use {-(-pool.memory_mb // page) * page}",
        )
    if pinned:
        yield findings.Finding(
            f"{field}.autoPinningPolicy",
            "the engine fits the processors to those of the host and pins them: the machines cannot migrate, and go "
            "off when their host is maintained",
            "warning",
            "use none unless you measured that you need it",
        )
    if pool.vm_type == "high_performance" and not pinned and not pool.hugepages:
        yield findings.Finding(
            f"{field}.vmType",
            "high_performance without huge pages and pinning is a server without a console",
            "warning",
            "add hugepages: 1048576 (the hosts must have them) or autoPinningPolicy: resize_and_pin, or use server",
        )
