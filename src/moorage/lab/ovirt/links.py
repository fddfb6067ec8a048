"""Where things are: which collection an element's entity lives in, and which collections lie below it.

An entity of its own is found by its id, as in ``/vms/123``; a part of another by both, as in ``/vms/123/nics/4``: such
a part names the whole it belongs to in its document.
"""

from __future__ import annotations

from typing import Any

API = "/ovirt-engine/api"

# Elements that are entities of their own, and the path of their collection.
TOP = {
    "affinity_label": "affinitylabels",
    "cluster": "clusters",
    "cpu_profile": "cpuprofiles",
    "data_center": "datacenters",
    "disk": "disks",
    "disk_profile": "diskprofiles",
    "event": "events",
    "group": "groups",
    "host": "hosts",
    "image_transfer": "imagetransfers",
    "instance_type": "instancetypes",
    "job": "jobs",
    "mac_pool": "macpools",
    "network": "networks",
    "operating_system": "operatingsystems",
    "role": "roles",
    "storage_domain": "storagedomains",
    "tag": "tags",
    "template": "templates",
    "user": "users",
    "vm": "vms",
    "vnic_profile": "vnicprofiles",
}

# Elements that are entities of those under another name.
_ALIASES = {
    "authenticated_user": "user",
    "blank_template": "template",
    "effective_user": "user",
    "original_template": "template",
    "owner": "user",
    "parent": "tag",
    "root_tag": "tag",
}

# Elements that are parts of others: of which, in order of preference, and in which collection below it.
_PARTS: dict[str, tuple[tuple[str, ...], str]] = {
    "affinity_group": (("cluster",), "affinitygroups"),
    "disk_attachment": (("vm", "template"), "diskattachments"),
    "graphics_console": (("vm", "template"), "graphicsconsoles"),
    "nic": (("vm", "template"), "nics"),
    "permission": (("user",), "permissions"),
    "permit": (("role",), "permits"),
    "reported_device": (("vm",), "reporteddevices"),
    "snapshot": (("vm",), "snapshots"),
    "step": (("job",), "steps"),
}

# Which collections lie below an entity, by the names that `follow` and links use.
BELOW: dict[str, tuple[str, ...]] = {
    "affinity_group": ("vms", "hosts", "vmlabels", "hostlabels"),
    "cluster": ("affinitygroups", "cpuprofiles", "networks", "permissions"),
    "data_center": ("clusters", "networks", "permissions", "storagedomains"),
    "disk": ("permissions",),
    "host": ("affinitylabels", "nics", "permissions", "tags"),
    "job": ("steps",),
    "network": ("permissions", "vnicprofiles"),
    "role": ("permits",),
    "storage_domain": ("disks", "permissions"),
    "template": ("diskattachments", "nics", "permissions", "tags"),
    "user": ("permissions", "roles", "tags"),
    "vm": (
        "affinitylabels",
        "diskattachments",
        "graphicsconsoles",
        "nics",
        "permissions",
        "reporteddevices",
        "snapshots",
        "tags",
    ),
}


# How collections are spelled as elements, where that differs from their paths.
SPELLED = {
    "affinitygroups": "affinity_groups",
    "affinitylabels": "affinity_labels",
    "cpuprofiles": "cpu_profiles",
    "diskattachments": "disk_attachments",
    "graphicsconsoles": "graphics_consoles",
    "hostlabels": "host_labels",
    "reporteddevices": "reported_devices",
    "storagedomains": "storage_domains",
    "vmlabels": "vm_labels",
    "vnicprofiles": "vnic_profiles",
}


def singular(tag: str) -> str:
    """What one of many is called; the word itself where it is not a plural."""
    if tag == "operation_systems":
        # The engine's own slip, which its SDKs share.
        return "operating_system"
    if tag.endswith("ies"):
        return f"{tag[:-3]}y"
    if tag.endswith("sses"):
        return tag[:-2]
    if tag.endswith("s") and not tag.endswith(("ss", "us")):
        return tag[:-1]
    return tag


def href(tag: str, doc: dict[str, Any]) -> str:
    """Where an entity is found; nothing for what has no place of its own."""
    if doc.get("href"):
        return str(doc["href"])
    if "id" not in doc:
        return ""
    tag = _ALIASES.get(tag, tag)
    if tag in TOP:
        return f"{API}/{TOP[tag]}/{doc['id']}"
    wholes, path = _PARTS.get(tag, ((), ""))
    for whole in wholes:
        found = doc.get(whole)
        if isinstance(found, dict) and "id" in found:
            return f"{API}/{TOP[whole]}/{found['id']}/{path}/{doc['id']}"
    return ""


def subcollections(tag: str, doc: dict[str, Any], at: str) -> list[tuple[str, str]]:
    """The links of an entity that is shown whole; a mere reference has none."""
    if not (set(doc) - {"id", "href"}):
        return []
    shown = {name.replace("_", "") for name, value in doc.items() if isinstance(value, list) and name[0] != "_"}
    return [(name, f"{at}/{name}") for name in BELOW.get(tag, ()) if name not in shown]
