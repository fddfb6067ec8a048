"""Machines are made from templates as the SDK asks, refused in the engine's words, changed and removed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from ovirtsdk4 import types

from moorage.lab.ovirt import timing
from tests.unit.lab.ovirt import engine_world, machines_world
from tests.unit.lab.ovirt.machines_world import GIB, MIB


@pytest.fixture
def world(tmp_path: Path) -> Iterator[machines_world.World]:
    with engine_world.started(tmp_path, machines_world.SPEED) as running:
        yield machines_world.World(running)


def test_a_machine_is_locked_while_its_disk_is_made(
    world: machines_world.World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(timing, "CREATE_THIN", machines_world.FOR_EVER)
    made = world.vms.add(machines_world.wanted("locked"))
    service = world.vms.vm_service(made.id)
    [attached] = service.disk_attachments_service().list()
    disk = world.disks.disk_service(attached.disk.id)

    assert (str(made.status), str(disk.get().status)) == ("image_locked", "locked")
    assert machines_world.refused(service.start) == (
        409,
        "[Cannot run VM: VM is locked. Please try again in a few minutes.]",
    )
    assert machines_world.refused(service.remove) == (
        409,
        "[Cannot remove VM: VM is locked. Please try again in a few minutes.]",
    )
    assert machines_world.refused(lambda: service.update(types.Vm(memory=GIB)))[0] == 409
    assert machines_world.refused(lambda: service.nics_service().add(types.Nic(name="nic1")))[0] == 409
    assert machines_world.refused(disk.remove)[1] == (
        "[Cannot remove Virtual Disk: The following disks are locked: centos. Please try again in a few minutes.]"
    )


def test_a_machine_is_what_it_was_asked_to_be(world: machines_world.World) -> None:
    made = world.vms.add(
        machines_world.wanted(
            "linked",
            type=types.VmType.HIGH_PERFORMANCE,
            memory=16 * GIB,
            memory_policy=types.MemoryPolicy(guaranteed=8 * GIB, max=32 * GIB, ballooning=False),
            cpu=types.Cpu(topology=types.CpuTopology(cores=4, sockets=2, threads=2)),
            custom_properties=[types.CustomProperty(name="hugepages", value="2048")],
            initialization=types.Initialization(custom_script=machines_world.IGNITION, host_name="linked"),
            os=types.OperatingSystem(type="rhcos_x64"),
        )
    )
    service = world.vms.vm_service(made.id)
    world.until(lambda: world.status(service) == "down")
    found = service.get()
    [attached] = service.disk_attachments_service().list(follow="disk")

    assert world.vms.list(search="name=linked")[0].id == made.id
    assert made.template.id == found.original_template.id
    assert (found.type, found.memory, found.memory_policy.guaranteed) == (
        types.VmType.HIGH_PERFORMANCE,
        16 * GIB,
        8 * GIB,
    )
    assert (found.cpu.topology.cores, found.cpu.topology.sockets, found.cpu.topology.threads) == (4, 2, 2)
    assert [(each.name, each.value) for each in found.custom_properties] == [("hugepages", "2048")]
    assert (found.initialization.custom_script, found.initialization.host_name) == (machines_world.IGNITION, "linked")
    assert (attached.disk.status, attached.disk.format, attached.disk.sparse) == (
        types.DiskStatus.OK,
        types.DiskFormat.COW,
        True,
    )
    assert attached.bootable
    assert attached.disk.provisioned_size == 10 * GIB


def test_a_clone_stands_alone_in_the_format_and_the_place_it_was_asked_for(world: machines_world.World) -> None:
    template = world.templates.list(search="name=centos")[0]
    [source] = world.templates.template_service(template.id).disk_attachments_service().list()
    slow = world.api.storage_domains_service().list(search="name=slow")[0]
    before = world.space("slow")

    service = world.vm(
        "alone",
        clone=True,
        disk_attachments=[
            types.DiskAttachment(
                disk=types.Disk(
                    id=source.disk.id,
                    format=types.DiskFormat.RAW,
                    sparse=False,
                    storage_domains=[types.StorageDomain(id=slow.id)],
                )
            )
        ],
    )

    [attached] = service.disk_attachments_service().list(follow="disk")
    assert service.get().template.id == "00000000-0000-0000-0000-000000000000"
    assert service.get().original_template.id == template.id
    assert (attached.disk.format, attached.disk.sparse) == (types.DiskFormat.RAW, False)
    assert [each.id for each in attached.disk.storage_domains] == [slow.id]
    assert attached.disk.name == "centos_alone"
    assert before - world.space("slow") == attached.disk.actual_size == 10 * GIB


def test_a_copy_takes_longer_the_more_there_is_to_copy(world: machines_world.World) -> None:
    def took(name: str, *, clone: bool) -> float:
        began = world.running.clock.now()
        world.vm(name, clone=clone)
        return world.running.clock.now() - began

    inventory = world.running.engine.inventory
    [template] = inventory.find("templates", name="centos")
    [attached] = inventory.find("disk_attachments", template=template["id"])
    inventory.get("disks", attached["id"])["actual_size"] = 60 * GIB

    assert took("linked", clone=False) >= timing.CREATE_THIN[0]
    assert took("copied", clone=True) >= 1.1 * 60 * GIB / timing.COPY_SPEED + timing.COPY_OVERHEAD[0]


WRONG: list[tuple[str, dict[str, Any], int, str]] = [
    ("a name that is taken", {"name": "intranet"}, 409, "The VM name is already in use, please choose a unique name"),
    ("a name with a blank", {"name": "two words"}, 400, "Can not add VM. The given name contains special characters."),
    ("a name without end", {"name": "x" * 256}, 400, "Cannot add VM. The given name is too long."),
    ("no such cluster", {"cluster": types.Cluster(name="nowhere")}, 404, "Entity not found: Cluster: name=nowhere"),
    ("no such template", {"template": types.Template(id="123")}, 404, "Entity not found: Template: id=123"),
    ("no cluster", {"cluster": None}, 400, "Vm [cluster.id|name] required for add"),
    ("no such instance type", {"instance_type": types.InstanceType(id="123")}, 404, "InstanceType: id=123"),
    (
        "more guaranteed than there is",
        {"memory": GIB, "memory_policy": types.MemoryPolicy(guaranteed=2 * GIB)},
        400,
        "Physical Memory Guaranteed cannot exceed Memory Size.",
    ),
    (
        "more than the most",
        {"memory": 2 * GIB, "memory_policy": types.MemoryPolicy(max=GIB, guaranteed=GIB)},
        400,
        "Memory size (2048MB) cannot exceed maximum memory size (1024MB).",
    ),
    (
        "too many processors",
        {"cpu": types.Cpu(topology=types.CpuTopology(cores=100, sockets=16, threads=1))},
        409,
        "Maximum number of CPUs exceeded.",
    ),
    (
        "a property nobody knows",
        {"custom_properties": [types.CustomProperty(name="colour", value="red")]},
        400,
        "custom properties are not configured by the system. The keys are: colour",
    ),
    (
        "a property of the wrong form",
        {"custom_properties": [types.CustomProperty(name="hugepages", value="many")]},
        400,
        "custom properties have illegal values. The keys are: hugepages",
    ),
    (
        "a thin disk that is raw",
        {"_disk": {"format": types.DiskFormat.RAW}},
        400,
        "Thin provisioned template disks can not be defined as Raw.",
    ),
    (
        "a thin disk elsewhere",
        {"_disk": {"storage_domains": [types.StorageDomain(name="slow")]}},
        409,
        "The selected Storage Domain does not contain the VM Template.",
    ),
]


def test_what_cannot_be_is_refused_in_the_engines_words_and_nothing_is_left(world: machines_world.World) -> None:
    template = world.templates.list(search="name=centos")[0]
    [source] = world.templates.template_service(template.id).disk_attachments_service().list()
    disks, seen = len(world.disks.list()), {}
    for title, fields, _, _ in WRONG:
        given = dict(fields)
        disk = given.pop("_disk", None)
        if disk is not None:
            given["disk_attachments"] = [types.DiskAttachment(disk=types.Disk(id=source.disk.id, **disk))]
        asked = machines_world.wanted("wrong")
        for key, value in given.items():
            setattr(asked, key, value)
        seen[title] = machines_world.refused(lambda asked=asked: world.vms.add(asked))

    for title, _, status, words in WRONG:
        assert seen[title][0] == status, (title, seen[title])
        assert words in seen[title][1], title
    assert [each.name for each in world.vms.list()] == ["intranet"]
    assert len(world.disks.list()) == disks


def test_an_instance_type_decides_about_processors_and_memory(world: machines_world.World) -> None:
    large = world.api.instance_types_service().list(search="name=Large")[0]

    made = world.vms.add(machines_world.wanted("typed", instance_type=types.InstanceType(id=large.id), memory=64 * GIB))

    assert (made.memory, made.cpu.topology.sockets) == (8 * GIB, 2)
    assert made.instance_type.id == large.id


def test_a_machine_without_disks_is_there_at_once(world: machines_world.World) -> None:
    made = world.vms.add(machines_world.wanted("bare", "Blank", memory=512 * MIB))
    service = world.vms.vm_service(made.id)

    assert (str(made.status), made.memory_policy.guaranteed) == ("down", 512 * MIB)
    assert "without at least one bootable disk" in machines_world.refused(service.start)[1]


def test_a_full_domain_ends_a_copy_halfway_and_nothing_of_it_stays(world: machines_world.World) -> None:
    before, disks = world.space(), len(world.disks.list())
    made = world.vms.add(machines_world.wanted("unlucky"), clone=True, query={"correlation_id": "copy"})
    service = world.vms.vm_service(made.id)
    domain = world.running.engine.inventory.named("storage_domains", "data")
    assert domain is not None
    left = domain["available"]
    world.running.tell(lambda: domain.update(available=0))

    world.until(lambda: not world.vms.list(search="name=unlucky"))
    world.until(lambda: world.api.jobs_service().list(search="correlation_id=copy")[0].status == types.JobStatus.FAILED)

    assert machines_world.refused(service.get)[0] == 404
    assert len(world.disks.list()) == disks
    assert 0 <= domain["available"] <= before - left
    assert machines_world.refused(lambda: world.vms.add(machines_world.wanted("next")))[1] == (
        "[Cannot add VM. Low disk space on Storage Domain data.]"
    )


def test_changes_are_all_or_nothing_and_few_while_it_runs(world: machines_world.World) -> None:
    service = world.started("changing")
    while_running = machines_world.refused(lambda: service.update(types.Vm(memory=8 * GIB, description="more")))
    service.update(types.Vm(description="it runs"))
    taken = machines_world.refused(lambda: service.update(types.Vm(name="intranet")))
    service.stop()
    world.until(lambda: world.status(service) == "down")
    service.update(types.Vm(name="changed", memory=8 * GIB))

    assert while_running[0] == 400
    assert "while the VM is not down" in while_running[1]
    assert taken == (409, "[Cannot edit VM. The VM name is already in use, please choose a unique name and try again.]")
    found = service.get()
    assert (found.name, found.memory, found.description) == ("changed", 8 * GIB, "it runs")
    assert found.memory_policy.max == 32 * GIB


def test_a_removed_machine_takes_its_disks_with_it_or_leaves_them(world: machines_world.World) -> None:
    before = world.space()
    kept, gone = world.vm("kept", clone=True), world.vm("gone")
    kept_disk = kept.disk_attachments_service().list()[0].id
    linked = machines_world.refused(lambda: gone.remove(detach_only=True))

    kept.remove(detach_only=True)
    gone.remove()
    world.until(lambda: [each.name for each in world.vms.list()] == ["intranet"])

    assert linked == (409, "[Cannot remove VM with detaching disks, VM is based from template.]")
    assert world.disks.disk_service(kept_disk).get().status == types.DiskStatus.OK
    assert world.space() == before - world.disks.disk_service(kept_disk).get().actual_size


def test_interfaces_have_a_profile_and_an_address_and_come_from_the_template(world: machines_world.World) -> None:
    profile = world.api.vnic_profiles_service().list()[0]
    service = world.vm("wired")
    nics = service.nics_service()
    nic = nics.add(types.Nic(name="nic1", vnic_profile=types.VnicProfile(id=profile.id)))
    taken = machines_world.refused(lambda: nics.add(types.Nic(name="nic1")))
    unknown = machines_world.refused(lambda: nics.add(types.Nic(name="nic2", vnic_profile=types.VnicProfile(id="123"))))
    other = nics.add(types.Nic(name="nic2"))
    nics.nic_service(other.id).remove()

    assert (nic.vnic_profile.id, nic.mac.address) == (profile.id, "56:6f:00:00:00:00")
    assert other.mac.address == "56:6f:00:00:00:01"
    assert taken == (409, "[Network interface name is already in use]")
    assert unknown[1] == "[Cannot add Interface. The specified VM network interface profile doesn't exist.]"
    assert [each.name for each in nics.list()] == ["nic1"]
