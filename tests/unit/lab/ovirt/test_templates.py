"""Templates are made of machines that are down, and stay while machines stand on them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from ovirtsdk4 import types

from moorage.lab.ovirt import timing
from tests.unit.lab.ovirt import engine_world, machines_world
from tests.unit.lab.ovirt.machines_world import GIB


@pytest.fixture
def world(tmp_path: Path) -> Iterator[machines_world.World]:
    with engine_world.started(tmp_path, machines_world.SPEED) as running:
        yield machines_world.World(running)


def made_of(world: machines_world.World, vm: str, name: str) -> types.Template:
    found = world.vms.list(search=f"name={vm}")[0]
    return world.templates.add(types.Template(name=name, description="by us", vm=types.Vm(id=found.id)))


def test_machine_and_disks_are_locked_while_a_template_is_made_of_them(
    world: machines_world.World, monkeypatch: pytest.MonkeyPatch
) -> None:
    vm = world.vm("source")
    monkeypatch.setattr(timing, "CREATE_TEMPLATE", machines_world.FOR_EVER)
    template = made_of(world, "source", "young")
    service = world.templates.template_service(template.id)

    assert (str(template.status), world.status(vm)) == ("locked", "image_locked")
    assert machines_world.refused(vm.start)[1] == "[Cannot run VM: VM is locked. Please try again in a few minutes.]"
    assert machines_world.refused(service.remove)[1] == (
        "[Cannot remove Template. Related operation is currently in progress. Please try again later.]"
    )
    assert machines_world.refused(lambda: world.vms.add(machines_world.wanted("too-soon", "young")))[0] == 409
    assert machines_world.refused(lambda: made_of(world, "source", "other"))[0] == 409


def test_a_template_has_the_disks_interfaces_and_sizes_of_its_machine(world: machines_world.World) -> None:
    vm = world.vm("source", memory=2 * GIB, os=types.OperatingSystem(type="rhcos_x64"))
    vm.nics_service().add(types.Nic(name="nic1", vnic_profile=world.api.vnic_profiles_service().list()[0]))
    began = world.running.clock.now()
    template = made_of(world, "source", "whole")
    service = world.templates.template_service(template.id)
    world.until(lambda: service.get().status == types.TemplateStatus.OK)
    took = world.running.clock.now() - began
    vm.remove()
    copy = world.vm("copy", template="whole")

    assert took >= timing.CREATE_TEMPLATE[0]
    [disk] = service.disk_attachments_service().list(follow="disk")
    assert (disk.bootable, disk.disk.provisioned_size, disk.disk.status) == (True, 10 * GIB, types.DiskStatus.OK)
    assert [each.name for each in service.nics_service().list()] == ["nic1"]
    found = copy.get()
    assert (found.memory, found.os.type, found.template.id) == (2 * GIB, "rhcos_x64", template.id)
    assert [each.name for each in copy.nics_service().list()] == ["nic1"]


def test_a_template_stays_while_linked_machines_need_it(world: machines_world.World) -> None:
    world.vm("source", clone=True)
    template = made_of(world, "source", "needed")
    service = world.templates.template_service(template.id)
    world.until(lambda: service.get().status == types.TemplateStatus.OK)
    linked = [world.vm(name, template="needed") for name in ("one", "two")]
    world.vm("alone", template="needed", clone=True)
    before = world.space()

    refused = machines_world.refused(service.remove)
    for each in linked:
        each.remove()
    world.until(lambda: not world.vms.list(search="name=one or name=two"))
    size = sum(each.disk.actual_size for each in service.disk_attachments_service().list(follow="disk"))
    service.remove()
    world.until(lambda: not world.templates.list(search="name=needed"))

    assert refused == (409, "[Cannot delete Template. Template is being used by the following VMs: one,two.]")
    assert world.space() > before + size
    assert [each.name for each in world.vms.list(search="name=alone")] == ["alone"]


def test_a_template_cannot_be_made_of_a_machine_that_runs_or_under_a_name_that_is_taken(
    world: machines_world.World,
) -> None:
    running = machines_world.refused(lambda: made_of(world, "intranet", "live"))
    world.vm("source")
    taken = machines_world.refused(lambda: made_of(world, "source", "centos"))
    nameless = machines_world.refused(lambda: world.templates.add(types.Template(vm=types.Vm(id="1"))))

    assert running == (
        409,
        "[Cannot add Template. VM is locked or still running, try again once VM is in the Down state.]",
    )
    assert taken[1] == (
        "[Cannot add Template. The Template name is already in use, please choose a unique name and try again.]"
    )
    assert nameless == (400, "Template [name] required for add")
    assert sorted(each.name for each in world.templates.list()) == ["Blank", "centos"]


def test_the_blank_template_stays(world: machines_world.World) -> None:
    blank = world.templates.list(search="name=Blank")[0]
    assert machines_world.refused(world.templates.template_service(blank.id).remove) == (
        409,
        "[Cannot remove Template. Removing Blank Template is not allowed.]",
    )
