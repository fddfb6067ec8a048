"""What the things look like that a datacentre is furnished with: documents, with nothing done about them yet.

There is more in them than a client needs to know, as there is in those of a real engine.
"""

from __future__ import annotations

import datetime

from moorage.lab.ovirt import documents

GIB, _MIB = 1024**3, 1024**2
BLANK = "00000000-0000-0000-0000-000000000000"
ROOT_TAG = "00000000-0000-0000-0000-000000000000"

# Names, types and GiB; names and profiles; names, sockets and MiB; and the systems by the engine's own names.
STORAGE = (("data", "data", 2048), ("slow", "data", 500), ("iso", "iso", 100), ("export", "export", 500))
NETWORKS = (("ovirtmgmt", ("ovirtmgmt",)), ("storage", ("storage", "storage-trusted")))
INSTANCE_TYPES = (("Tiny", 1, 512), ("Small", 1, 2048), ("Medium", 2, 4096), ("Large", 2, 8192), ("XLarge", 4, 16384))
OPERATING_SYSTEMS = (
    "debian_9",
    "other",
    "other_linux",
    "rhcos_x64",
    "rhel_7x64",
    "rhel_8x64",
    "rhel_9x64",
    "sles_12",
    "windows_2022",
)
_VERSION = {"major": 4, "minor": 7}


def data_center(name: str) -> documents.Doc:
    return {
        "name": name,
        "description": "The default Data Center",
        "status": "up",
        "local": False,
        "storage_format": "v5",
        "quota_mode": "disabled",
        "version": dict(_VERSION),
        "supported_versions": [dict(_VERSION)],
    }


def cluster(name: str, center: str) -> documents.Doc:
    return {
        "name": name,
        "description": f"The {name} server cluster",
        "data_center": {"id": center},
        "cpu": {"architecture": "x86_64", "type": "Secure Intel Cascadelake Server Family"},
        "bios_type": "q35_sea_bios",
        "ballooning_enabled": True,
        "gluster_service": False,
        "virt_service": True,
        "ha_reservation": False,
        "memory_policy": {"over_commit": {"percent": 100}, "transparent_hugepages": {"enabled": True}},
        "threads_as_cores": False,
        "version": dict(_VERSION),
    }


def host(name: str, cluster_id: str, threads: int, memory_gib: int) -> documents.Doc:
    return {
        "name": name,
        "address": f"{name}.lab",
        "cluster": {"id": cluster_id},
        "status": "up",
        "type": "rhel",
        "os": {"type": "RHEL", "version": {"full_version": "9 - 1.el9"}},
        **capacity(threads, memory_gib),
    }


def capacity(threads: int, memory_gib: int) -> documents.Doc:
    """How much fits on a host."""
    return {
        "cpu": {"name": "Intel Xeon Processor", "topology": {"sockets": 1, "cores": threads, "threads": 1}},
        "memory": memory_gib * GIB,
        "max_scheduling_memory": (memory_gib - 1) * GIB,
    }


def storage_domain(name: str, kind: str, gib: int, center: str) -> documents.Doc:
    return {
        "name": name,
        "type": kind,
        "status": "active",
        "external_status": "ok",
        "master": name == "data",
        "storage": {"type": "nfs", "address": "nfs.lab", "path": f"/exports/{name}"},
        "storage_format": "v5" if kind == "data" else "v1",
        "available": gib * GIB,
        "used": 0,
        "committed": 0,
        "critical_space_action_blocker": 5,
        "warning_low_space_indicator": 10,
        "data_centers": [{"id": center}],
    }


def network(name: str, center: str, clusters: list[str]) -> documents.Doc:
    management = name == "ovirtmgmt"
    return {
        "name": name,
        "description": "Management Network" if management else "",
        "data_center": {"id": center},
        "mtu": 0,
        "stp": False,
        "usages": ["vm", "management", "display"] if management else ["vm"],
        "_clusters": clusters,
    }


def vnic_profile(name: str, network_id: str) -> documents.Doc:
    reference = {"network": {"id": network_id}}
    return {"name": name, **reference, "port_mirroring": False, "pass_through": {"mode": "disabled"}}


def instance_type(name: str, sockets: int, mib: int) -> documents.Doc:
    size = mib * _MIB
    return {
        "name": name,
        "description": f"{name} instance type",
        "memory": size,
        "memory_policy": {"guaranteed": size, "max": size, "ballooning": True},
        "cpu": {"topology": {"sockets": sockets, "cores": 1, "threads": 1}},
        "status": "ok",
    }


def _sizes(cores: int, mib: int) -> documents.Doc:
    size = mib * _MIB
    return {
        "memory": size,
        "memory_policy": {"guaranteed": size, "max": 4 * size, "ballooning": True},
        "cpu": {"architecture": "x86_64", "topology": {"sockets": 1, "cores": cores, "threads": 1}},
    }


def blank_template(now: datetime.datetime) -> documents.Doc:
    """The template that every engine has, and that belongs to no cluster."""
    named = {"id": BLANK, "name": "Blank", "description": "Blank template", "creation_time": now}
    return {**named, "status": "ok", "type": "server", "os": {"type": "other"}, **_sizes(1, 1024)}


def template(name: str, description: str, system: str, cluster_id: str, now: datetime.datetime) -> documents.Doc:
    named = {"name": name, "description": description, "creation_time": now, "cluster": {"id": cluster_id}}
    return {**named, "status": "ok", "type": "server", "os": {"type": system}, **_sizes(2, 4096)}


def vm(name: str, description: str, cluster_id: str, now: datetime.datetime) -> documents.Doc:
    """A machine of somebody else's, which is down."""
    return {
        "name": name,
        "description": description,
        "status": "down",
        "type": "server",
        "cluster": {"id": cluster_id},
        "template": {"id": BLANK},
        "original_template": {"id": BLANK},
        "os": {"type": "rhel_9x64", "boot": {"devices": ["hd"]}},
        "bios": {"type": "q35_sea_bios"},
        "origin": "ovirt",
        "creation_time": now,
        "delete_protected": False,
        "stateless": False,
        **_sizes(2, 4096),
        "_tags": [],
    }


def disk(name: str, gib: int, description: str, domain: str) -> documents.Doc:
    """A thin disk with a GiB in it."""
    return {
        "name": name,
        "alias": name,
        "description": description,
        "status": "ok",
        "format": "cow",
        "sparse": True,
        "storage_type": "image",
        "content_type": "data",
        "provisioned_size": gib * GIB,
        "total_size": GIB,
        "actual_size": GIB,
        "shareable": False,
        "wipe_after_delete": False,
        "propagate_errors": False,
        "storage_domains": [{"id": domain}],
    }


def attachment(whole: str, identity: str, disk_id: str) -> documents.Doc:
    """A disk in a machine or a template."""
    return {
        "id": disk_id,
        "disk": {"id": disk_id},
        whole: {"id": identity},
        "active": True,
        "bootable": True,
        "interface": "virtio_scsi",
        "pass_discard": False,
        "read_only": False,
    }
