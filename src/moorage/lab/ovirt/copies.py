"""Disks made from disks: linked ones that hold only what changes, and copies that stand alone.

A copy takes its room as it goes, so a domain may turn out too small when half of it is done: then all of it goes again,
and whatever was to be made with it.
"""

from __future__ import annotations

import dataclasses
import uuid
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from moorage import lab
from moorage.lab.ovirt import attachments, disks, faults, images, references, space

if TYPE_CHECKING:
    from moorage.lab.ovirt import engine as engines

Doc = dict[str, Any]

_STEPS = 8
_KEPT: tuple[str, ...] = (
    "alias",
    "backup",
    "content_type",
    "description",
    "format",
    "name",
    "propagate_errors",
    "provisioned_size",
)
_KEPT += ("qcow_version", "shareable", "sparse", "storage_domains", "storage_type", "wipe_after_delete")


@dataclasses.dataclass(frozen=True)
class Copy:
    """One disk to be made, of which, and how many bytes it will take; ``linked`` ones stay tied to their source."""

    source: Doc
    disk: Doc
    attachment: Doc
    size: int
    linked: bool = False


def wishes(asked: Doc) -> dict[str, Doc]:
    """What somebody wants of the disks to be made, by the id of the one that each is made of."""
    disks_ = (references.given(each, "disk") for each in references.items(asked, "disk_attachments"))
    return {str(disk["id"]): disk for disk in disks_ if disk.get("id")}


def planned(
    engine: engines.Engine, bound: Doc, wanted: Doc, doing: str, *, linked: bool, domain: Doc | None = None
) -> Copy:
    """The disk to be made of an attached one, as somebody wants it."""
    source = engine.inventory.get("disks", bound["disk"]["id"])
    disk: Doc = {key: source[key] for key in _KEPT if key in source}
    disk |= {"id": str(uuid.uuid4()), "image_id": str(uuid.uuid4()), "actual_size": 0, "total_size": 0}
    disk["status"] = disks.LOCKED
    if wanted.get("name") or wanted.get("alias"):
        disk["name"] = disk["alias"] = str(wanted.get("name") or wanted.get("alias"))
    form = wanted.get("format", "cow" if linked else source["format"])
    if form not in ("cow", "raw"):
        raise faults.invalid(f"The value '{form}' isn't a valid disk format")
    if linked and form != "cow":
        raise faults.refused(doing, "Thin provisioned template disks can not be defined as Raw.", 400)
    disk["format"] = form
    disk["sparse"] = True if linked else bool(wanted.get("sparse", source["sparse"] if form == "cow" else False))
    if form == "cow" and not disk["sparse"]:
        why = "Disk configuration (COW Preallocated backup-None) is incompatible with the storage domain type."
        raise faults.refused(doing, why)
    home = source["storage_domains"][0]
    places = references.items(wanted, "storage_domains")
    there = domain or space.domain(engine, places[0] if places else home, doing)
    if linked and there["id"] != home["id"]:
        raise faults.refused(doing, "The selected Storage Domain does not contain the VM Template.")
    disk["storage_domains"] = [{"id": there["id"]}]
    if linked:
        disk["_based_on"] = source["id"]
    size = space.EMPTY_COW if linked else space.of_copy(source, disk)
    space.check(there, size, doing)
    return Copy(source, disk, bound, size, linked)


def begin(engine: engines.Engine, copies: Sequence[Copy], whole: str, identity: str) -> None:
    """Take the disks in, locked and empty, as those of a ``vm`` or a ``template``."""
    for each in copies:
        disks.add(engine, each.disk, 0)
        attachments.bind(engine, whole, identity, each.disk, each.attachment)


def total(copies: Sequence[Copy]) -> int:
    """How many bytes have to be copied."""
    return sum(each.size for each in copies if not each.linked)


async def carry_out(engine: engines.Engine, copies: Sequence[Copy], seconds: float) -> None:
    """Let the storage work on all of them at once, for that long."""
    for step in range(1, _STEPS + 1):
        await lab.sleep(engine.clock, seconds / _STEPS)
        for each in copies:
            _take(engine, each, each.size * step // _STEPS)
    contents = images.contents(engine)
    for each in copies:
        each.disk["status"] = disks.OK
        if each.source["id"] in contents:
            contents[each.disk["id"]] = contents[each.source["id"]]


def _take(engine: engines.Engine, copy: Copy, size: int) -> None:
    domain = engine.inventory.get("storage_domains", copy.disk["storage_domains"][0]["id"])
    if size - copy.disk["actual_size"] > domain["available"]:
        raise faults.plain(f"Volume creation failed: No space left on Storage Domain {domain['name']}")
    space.take(engine, copy.disk, size)


def undo(engine: engines.Engine, copies: Sequence[Copy]) -> None:
    """Nothing has come of it."""
    for each in copies:
        disks.erase(engine, each.disk)
