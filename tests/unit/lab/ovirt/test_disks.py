"""Disks are made, grown and removed; they take room, and are held longer than their status says."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from ovirtsdk4 import types

from moorage.lab.ovirt import timing
from tests.unit.lab.ovirt import engine_world, machines_world
from tests.unit.lab.ovirt.machines_world import GIB, MIB

IN_PROGRESS = "Related operation is currently in progress. Please try again later."


@pytest.fixture
def world(tmp_path: Path) -> Iterator[machines_world.World]:
    with engine_world.started(tmp_path, machines_world.SPEED) as running:
        yield machines_world.World(running)


def test_a_disk_is_locked_while_the_storage_makes_it(
    world: machines_world.World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(timing, "CREATE_DISK", machines_world.FOR_EVER)
    made = world.disks.add(world.disk_wanted("new"), query={"correlation_id": "new"})
    service = world.disks.disk_service(made.id)
    [job] = world.api.jobs_service().list(search="correlation_id=new")

    assert service.get().status == types.DiskStatus.LOCKED
    assert job.status == types.JobStatus.STARTED
    assert machines_world.refused(service.remove) == (
        409,
        "[Cannot remove Virtual Disk: The following disks are locked: new. Please try again in a few minutes.]",
    )


def test_a_disk_says_ok_before_its_job_ends_and_is_held_until_then(
    world: machines_world.World, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The engine's next look is far away.
    monkeypatch.setattr(timing, "ASYNC_POLL", 20_000.0)
    made = world.disks.add(world.disk_wanted("early"), query={"correlation_id": "early"})
    service = world.disks.disk_service(made.id)
    world.until(lambda: service.get().status == types.DiskStatus.OK)
    [job] = world.api.jobs_service().list(search="correlation_id=early")

    assert job.status == types.JobStatus.STARTED
    assert machines_world.refused(service.remove) == (409, f"[Cannot remove Virtual Disk. {IN_PROGRESS}]")
    attachments = world.vm("waiting", template="Blank").disk_attachments_service()
    attachment = types.DiskAttachment(
        disk=types.Disk(id=made.id), interface=types.DiskInterface.VIRTIO, bootable=True, active=True
    )
    assert machines_world.refused(lambda: attachments.add(attachment)) == (
        409,
        f"[Cannot attach Virtual Disk. {IN_PROGRESS}]",
    )


def test_after_its_job_a_disk_is_free(world: machines_world.World) -> None:
    made = world.disks.add(world.disk_wanted("free"), query={"correlation_id": "free"})
    service = world.disks.disk_service(made.id)
    jobs = world.api.jobs_service()
    world.until(lambda: jobs.list(search="correlation_id=free")[0].status == types.JobStatus.FINISHED)

    assert service.get().status == types.DiskStatus.OK
    service.remove()
    world.until(lambda: not world.disks.list(search="name=free"))


@pytest.mark.parametrize(
    ("form", "sparse", "initial", "taken"),
    [("cow", None, None, MIB), ("cow", True, 3 * GIB, 3 * GIB), ("raw", True, None, 0), ("raw", False, None, 20 * GIB)],
)
def test_a_disk_takes_room_from_its_domain(
    world: machines_world.World, form: str, sparse: bool | None, initial: int | None, taken: int
) -> None:
    before = world.space()
    service = world.disk("roomy", 20 * GIB, form=form, sparse=sparse, initial_size=initial)

    assert before - world.space() == taken
    assert service.get().actual_size == taken
    service.remove()
    world.until(lambda: not world.disks.list(search="name=roomy"))
    assert world.space() == before


REFUSED: list[tuple[dict[str, Any], int, str]] = [
    ({"size": 0}, 400, "Disk's provisioned size has to be greater than 0."),
    ({"size": 9 * 1024 * GIB}, 409, "Cannot create disk more than 8192 GiB"),
    ({"form": "raw", "sparse": False, "size": 3 * 1024 * GIB}, 409, "Low disk space on Storage Domain data."),
    ({"domain": "iso"}, 409, "Storage Domain type is illegal."),
    ({"domain": "nowhere"}, 404, "Entity not found: StorageDomain: name=nowhere"),
    ({"sparse": False}, 409, "is incompatible with the storage domain type."),
]


def test_disks_that_cannot_be_are_refused(world: machines_world.World) -> None:
    before, space = len(world.disks.list()), world.space()
    for fields, status, words in REFUSED:
        asked = world.disk_wanted("no", **fields)
        found = machines_world.refused(lambda asked=asked: world.disks.add(asked))
        assert found[0] == status, found
        assert words in found[1]
    incomplete = types.Disk(name="no", format=types.DiskFormat.COW)

    assert machines_world.refused(lambda: world.disks.add(incomplete))[1] == "Disk [provisionedSize] required for add"
    assert (len(world.disks.list()), world.space()) == (before, space)


def test_a_domain_that_is_nearly_full_takes_nothing_more(world: machines_world.World) -> None:
    [domain] = world.running.engine.inventory.find("storage_domains", name="data")
    domain["available"] = 4 * GIB

    assert machines_world.refused(lambda: world.disks.add(world.disk_wanted("small"))) == (
        409,
        "[Cannot add Virtual Disk. Low disk space on Storage Domain data.]",
    )


def test_a_disk_of_a_template_hands_name_and_description_down_and_says_whose_it_is_if_asked(
    world: machines_world.World,
) -> None:
    [source] = world.disks.list(search="name=centos")
    vm = world.vm("heir")
    [attached] = vm.disk_attachments_service().list()
    disk = world.disks.disk_service(attached.disk.id)

    heir, whole = disk.get(), disk.get(all_content=True)

    assert (heir.name, heir.description) == (source.name, source.description)
    assert (heir.vms or [], [each.id for each in whole.vms]) == ([], [vm.get().id])
    assert not world.disks.disk_service(source.id).get(all_content=True).vms


def test_a_disk_grows_through_its_machine_and_never_shrinks(world: machines_world.World) -> None:
    vm = world.vm("growing")
    attachments = vm.disk_attachments_service()
    [attached] = attachments.list()
    disk = world.disks.disk_service(attached.disk.id)
    service = attachments.attachment_service(attached.id)

    service.update(types.DiskAttachment(disk=types.Disk(provisioned_size=120 * GIB)))
    world.until(lambda: disk.get().provisioned_size == 120 * GIB)
    world.free(disk)
    smaller = machines_world.refused(
        lambda: service.update(types.DiskAttachment(disk=types.Disk(provisioned_size=GIB)))
    )

    assert smaller == (400, "[Cannot edit Virtual Disk. New disk size must be larger than the current disk size.]")
    assert disk.get().provisioned_size == 120 * GIB


def test_nothing_else_happens_to_a_disk_that_grows(
    world: machines_world.World, monkeypatch: pytest.MonkeyPatch
) -> None:
    vm = world.vm("growing")
    attachments = vm.disk_attachments_service()
    [attached] = attachments.list()
    service = attachments.attachment_service(attached.id)
    monkeypatch.setattr(timing, "RESIZE_DISK", machines_world.FOR_EVER)
    larger = types.DiskAttachment(disk=types.Disk(provisioned_size=120 * GIB))
    service.update(larger)

    locked = "The following disks are locked: centos. Please try again in a few minutes."
    assert machines_world.refused(vm.start) == (409, f"[Cannot run VM: {locked}]")
    assert machines_world.refused(lambda: service.update(larger)) == (409, f"[Cannot edit Virtual Disk: {locked}]")
    assert machines_world.refused(vm.remove) == (409, f"[Cannot remove VM: {locked}]")


def test_a_disk_is_attached_to_one_machine_and_can_be_taken_off(world: machines_world.World) -> None:
    disk = world.disk("portable")
    first, second = world.vm("first", template="Blank"), world.vm("second", template="Blank")
    asked = types.DiskAttachment(
        disk=types.Disk(id=disk.get().id), interface=types.DiskInterface.VIRTIO_SCSI, bootable=True, active=True
    )
    attachments = first.disk_attachments_service()

    made = attachments.add(asked)
    twice = machines_world.refused(lambda: second.disk_attachments_service().add(asked))
    first.start()
    world.until(lambda: world.status(first) == "up")
    in_use = machines_world.refused(attachments.attachment_service(made.id).remove)
    gone = machines_world.refused(disk.remove)
    first.stop()
    world.until(lambda: world.status(first) == "down")
    attachments.attachment_service(made.id).remove()
    second.disk_attachments_service().add(asked)

    assert (made.id, made.bootable, made.active) == (disk.get().id, True, True)
    assert twice == (409, "[Cannot attach Virtual Disk. The disk is already attached to VM.]")
    plugged = "The disk portable is plugged to non-Down VMs: first"
    assert in_use == (409, f"[Cannot detach Virtual Disk. {plugged}]")
    assert gone == (409, f"[Cannot remove Virtual Disk. {plugged}]")
    assert attachments.list() == []
    assert [each.id for each in second.disk_attachments_service().list()] == [disk.get().id]


def test_a_disk_is_made_while_it_is_attached_and_goes_with_its_attachment(world: machines_world.World) -> None:
    vm = world.vm("growing")
    attachments = vm.disk_attachments_service()
    second = types.DiskAttachment(
        disk=world.disk_wanted("", 5 * GIB), interface=types.DiskInterface.VIRTIO, bootable=False, active=True
    )
    boot = types.DiskAttachment(disk=second.disk, interface=second.interface, bootable=True)

    made = attachments.add(second)
    disk = world.disks.disk_service(made.disk.id)
    world.free(disk)
    [name] = [each.name for each in world.disks.list() if each.id == made.disk.id]
    two_boots = machines_world.refused(lambda: attachments.add(boot))
    attachments.attachment_service(made.id).remove(detach_only=False)
    world.until(lambda: len(attachments.list()) == 1)

    assert name == "growing_Disk2"
    assert two_boots == (409, "[Cannot add Virtual Disk. Disk centos in VM growing is already marked as boot.]")
    world.until(lambda: machines_world.refused(disk.get)[0] == 404)


def test_a_machine_goes_with_every_disk_that_it_has_but_those_that_may_be_shared(world: machines_world.World) -> None:
    vm = world.vm("going")
    disks = {name: world.disk(name) for name in ("own", "shared")}
    for name, disk in disks.items():
        attached = types.DiskAttachment(
            disk=types.Disk(id=disk.get().id), interface=types.DiskInterface.VIRTIO_SCSI, bootable=False, active=True
        )
        vm.disk_attachments_service().add(attached)
        found = world.running.engine.inventory.get("disks", disk.get().id)
        world.running.tell(lambda found=found, name=name: found.update(shareable=name == "shared"))

    vm.remove()

    world.until(lambda: world.running.engine.inventory.named("vms", "going") is None)
    assert machines_world.refused(disks["own"].get)[0] == 404
    assert disks["shared"].get().status == types.DiskStatus.OK


def test_a_disk_that_stands_upon_a_templates_can_be_taken_off(world: machines_world.World) -> None:
    vm = world.vm("linked")
    [attachment] = vm.disk_attachments_service().list()

    vm.disk_attachments_service().attachment_service(attachment.id).remove(detach_only=True)

    assert vm.disk_attachments_service().list() == []
    assert world.disks.disk_service(attachment.id).get().status == types.DiskStatus.OK
