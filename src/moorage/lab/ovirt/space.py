"""Room on storage domains: who may take how much, and what is left.

The engine refuses what does not fit, and anything at all on a domain that is nearly full. What a disk really takes is
less than its size where it is thin, and grows as it is written.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from moorage.lab.ovirt import faults, references

if TYPE_CHECKING:
    from moorage.lab.ovirt import engine as engines

Doc = dict[str, Any]

GIB = 1024**3
# Below this nothing more is begun on a domain.
CRITICAL = 5 * GIB
# What an empty qcow2 image takes, and how much more one may take than what is in it.
EMPTY_COW = 1024**2
_COW_FACTOR = 1.1


def initial(disk: Doc) -> int:
    """What a new, empty disk takes at once."""
    size = int(disk["provisioned_size"])
    if not disk["sparse"]:
        return size if disk["format"] == "raw" else int(size * _COW_FACTOR)
    wanted = int(disk.get("initial_size") or 0)
    return max(wanted, EMPTY_COW if disk["format"] == "cow" else 0)


def of_copy(source: Doc, disk: Doc) -> int:
    """What a copy of a disk takes."""
    if disk["format"] == "raw" and not disk["sparse"]:
        return int(disk["provisioned_size"])
    return int(int(source.get("actual_size", 0)) * (_COW_FACTOR if disk["format"] == "cow" else 1))


def domain(engine: engines.Engine, reference: Doc, doing: str) -> Doc:
    """The data domain that is meant, if it can be used."""
    if not references.named(reference):
        raise faults.refused(doing, "Storage Domain hasn't been specified.", 400)
    kind = "storage_domains"
    identity = reference.get("id")
    if identity and not engine.inventory.has(kind, str(identity)):
        raise faults.refused(doing, "Storage Domain doesn't exist.", 400)
    found = references.resolved(engine, kind, reference, "StorageDomain")
    if found.get("type") != "data":
        raise faults.refused(doing, "Storage Domain type is illegal.", 409)
    if found.get("status", "active") != "active":
        todo = "\n-Please handle Storage Domain issues and retry the operation."
        raise faults.refused(doing, f"The relevant Storage Domain is inaccessible.{todo}")
    return found


def check(found: Doc, size: int, doing: str) -> None:
    """Refuse what does not fit on a domain."""
    free = int(found.get("available", 0))
    if free < CRITICAL or free < size:
        raise faults.refused(doing, f"Low disk space on Storage Domain {found['name']}.")


def take(engine: engines.Engine, disk: Doc, size: int) -> None:
    """Let a disk take so many bytes in all, more or fewer than before."""
    before = int(disk.get("actual_size", 0))
    disk["actual_size"] = disk["total_size"] = size
    for each in references.items(disk, "storage_domains"):
        if engine.inventory.has("storage_domains", each["id"]):
            there = engine.inventory.get("storage_domains", each["id"])
            there["available"] = max(0, int(there.get("available", 0)) - (size - before))
            there["used"] = max(0, int(there.get("used", 0)) + (size - before))


def promise(engine: engines.Engine, disk: Doc, size: int) -> None:
    """Note by how much more a disk may grow in the end; less, if it is a negative number."""
    for each in references.items(disk, "storage_domains"):
        if engine.inventory.has("storage_domains", each["id"]):
            there = engine.inventory.get("storage_domains", each["id"])
            there["committed"] = max(0, int(there.get("committed", 0)) + size)


def give_back(engine: engines.Engine, disk: Doc) -> None:
    """A disk goes."""
    take(engine, disk, 0)
    promise(engine, disk, -int(disk["provisioned_size"]))
