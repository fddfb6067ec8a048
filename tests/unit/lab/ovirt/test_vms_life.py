"""Machines start, run, reboot and end; the engine knows what their hosts tell, and their guests say."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from ovirtsdk4 import types

from moorage.lab.nodes import vrrp
from moorage.lab.ovirt import guest, payload, timing, vm_life
from tests.unit.lab.ovirt import engine_world, machines_world


@pytest.fixture
def world(tmp_path: Path) -> Iterator[machines_world.World]:
    with engine_world.started(tmp_path, machines_world.SPEED) as running:
        yield machines_world.World(running)


# Cloud seconds in which a machine comes up, and more.
LATER = 600.0
IGNITION: dict[str, Any] = {
    "os": types.OperatingSystem(type="rhcos_x64"),
    "initialization": types.Initialization(custom_script=machines_world.IGNITION),
}


def test_a_machine_lives_from_launch_to_removal(world: machines_world.World) -> None:
    service = world.vm("alive", **IGNITION)
    not_running = machines_world.refused(service.stop)
    service.start(use_initialization=True)
    running, removal = machines_world.refused(service.start), machines_world.refused(service.remove)
    world.until(lambda: world.status(service) == "up")
    host, machine = service.get().host.id, world.running.site.instances["alive"]
    address = machine.address
    service.shutdown()
    world.until(lambda: world.status(service) == "down")

    assert not_running == (409, "[Cannot stop VM. VM is not running.]")
    assert running == (409, "[Cannot run VM. VM is running.]")
    assert removal == (409, "[Cannot remove VM. VM is running.]")
    assert world.api.hosts_service().host_service(host).get().name.startswith("default-")
    assert (machine.state, service.get().host) == ("off", None)
    assert machine.user_data == machines_world.IGNITION.encode()

    service.start()
    world.until(lambda: world.status(service) == "up")
    assert world.running.site.instances["alive"].address == address
    service.stop()
    world.until(lambda: world.status(service) == "down")
    service.remove()
    world.until(lambda: not world.vms.list(search="name=alive"))
    assert "alive" not in world.running.site.instances
    assert world.running.site.instance_at(address) is None


@pytest.mark.parametrize(
    ("lasting", "deed", "status"),
    [
        ("WAIT_FOR_LAUNCH", "start", "wait_for_launch"),
        ("SHUTDOWN", "shutdown", "powering_down"),
        ("POWER_OFF", "stop", "powering_down"),
        ("POWER_OFF", "reboot", "reboot_in_progress"),
    ],
)
def test_what_goes_on_is_told_by_the_status(
    world: machines_world.World, monkeypatch: pytest.MonkeyPatch, lasting: str, deed: str, status: str
) -> None:
    service = world.vm("busy") if deed == "start" else world.started("busy", **IGNITION)
    monkeypatch.setattr(timing, lasting, machines_world.FOR_EVER)

    getattr(service, deed)()

    assert world.status(service) == status


def test_a_machine_that_dies_is_found_down_by_the_next_look_at_its_host(world: machines_world.World) -> None:
    service = world.started("doomed", **IGNITION)

    world.running.do(world.running.site.instances["doomed"].power_off())
    world.until(lambda: world.status(service) == "down")

    assert "Lost connection with qemu process" in world.api.events_service().list()[0].description
    service.start()
    world.until(lambda: world.status(service) == "up")


def test_a_reboot_keeps_the_disk_and_the_host(world: machines_world.World) -> None:
    service = world.started("again", **IGNITION)
    machine, host = world.running.site.instances["again"], service.get().host.id
    service.reboot()
    world.until(lambda: world.status(service) == "up" and any("power off" in line for line in machine.console))

    assert service.get().host.id == host
    assert len([line for line in machine.console if "Ignition finished" in line]) == 1


def test_a_guest_whose_boot_fails_stays_up_without_a_word(world: machines_world.World) -> None:
    broken = types.Initialization(custom_script='{"ignition":{"version":"9.9.9"}}')
    service = world.started("mute", os=types.OperatingSystem(type="rhcos_x64"), initialization=broken)
    machine = world.running.site.instances["mute"]
    world.until(lambda: machine.state == "failed")
    service.shutdown()
    world.until(lambda: world.status(service) == "up")

    assert service.reported_devices_service().list() == []
    service.stop()
    world.until(lambda: world.status(service) == "down")


def test_ignition_reaches_only_systems_that_the_engine_knows_to_use_it(world: machines_world.World) -> None:
    service = world.started("centos-like", initialization=types.Initialization(custom_script=machines_world.IGNITION))
    machine = world.running.site.instances["centos-like"]
    world.until(lambda: machine.state == "failed")

    assert machine.user_data.startswith(b"#cloud-config\n")
    assert world.status(service) == "up"


def test_a_script_that_is_no_json_keeps_a_machine_from_starting(world: machines_world.World) -> None:
    service = world.vm(
        "garbled", os=types.OperatingSystem(type="rhcos_x64"), initialization=types.Initialization(custom_script="{")
    )
    service.start()
    world.until(lambda: world.status(service) == "down")

    assert any(each.description.startswith("Failed to run VM garbled") for each in world.api.events_service().list())


def test_a_machine_with_nothing_to_do_idles(world: machines_world.World) -> None:
    world.started("idle")
    machine = world.running.site.instances["idle"]
    world.until(lambda: machine.state == "running")
    assert machine.provisioned is not None
    assert not machine.provisioned.files


def test_the_host_name_is_added_to_a_script_that_names_none() -> None:
    bare = {"os": {"type": "rhcos_x64"}, "initialization": {"custom_script": machines_world.IGNITION}}
    named = {**bare, "initialization": {**bare["initialization"], "host_name": "node-1"}}

    found = json.loads(payload.of(named))
    assert payload.of(bare) == machines_world.IGNITION.encode()
    assert [each["path"] for each in found["storage"]["files"]] == ["/etc/hostname"]
    assert found["storage"]["files"][0]["contents"]["source"] == "data:,node-1"
    assert json.loads(payload.of({**named, "initialization": {"host_name": "x"}}))["ignition"]["version"] == "2.3.0"


def test_the_agent_names_each_device_with_its_addresses(world: machines_world.World) -> None:
    profiles = world.api.vnic_profiles_service().list()
    service = world.vm("talking", **IGNITION)
    for number, profile in enumerate(profiles[:2], start=1):
        service.nics_service().add(types.Nic(name=f"nic{number}", vnic_profile=types.VnicProfile(id=profile.id)))
    service.start()
    world.until(lambda: bool(service.reported_devices_service().list()))
    found = {
        each.name: [ip.address for ip in each.ips if str(ip.version) == "v4"]
        for each in service.reported_devices_service().list()
    }
    machine = world.running.site.instances["talking"]

    assert found == {"ens3": [machine.address], "ens4": ["10.99.0.1"]}
    # For ever silent, if the lab wants it so.
    world.running.engine.shape.agent = guest.NEVER
    assert service.reported_devices_service().list() == []


@pytest.mark.parametrize(("agent", "waits"), [("normal", timing.GUEST_AGENT), (guest.LATE, timing.GUEST_AGENT_LATE)])
def test_an_agent_lets_time_pass_before_it_speaks(world: machines_world.World, agent: str, waits: timing.Range) -> None:
    world.running.engine.shape.agent = agent
    service = world.vm("waiting", **IGNITION)
    service.start()
    machine_runs = lambda: world.running.site.instances["waiting"].state == "running"  # noqa: E731
    world.until(lambda: "waiting" in world.running.site.instances and machine_runs())
    began = world.running.clock.now()
    world.until(lambda: bool(service.reported_devices_service().list()))

    # The clock was read a moment after the machine ran.
    assert world.running.clock.now() - began > waits[0] - 20


def test_virtual_addresses_are_reported_beside_the_machines_own_or_before_it(
    world: machines_world.World, monkeypatch: pytest.MonkeyPatch
) -> None:
    service = world.started("holder", **IGNITION)
    own = world.running.site.instances["holder"].address
    world.until(lambda: bool(service.reported_devices_service().list()))

    def addresses() -> list[str]:
        [device] = service.reported_devices_service().list()
        return [ip.address for ip in device.ips if str(ip.version) == "v4"]

    monkeypatch.setattr(vrrp.Link, "held_by", lambda *_: ["127.0.0.5"])
    beside = addresses()
    world.running.engine.shape.agent = guest.VIP_FIRST

    assert beside == [own, "127.0.0.5"]
    assert addresses() == ["127.0.0.5", own]


def test_pinning_needs_hosts_and_a_machine_that_is_down(world: machines_world.World) -> None:
    host = world.api.hosts_service().list(search="name=default-2")[0]
    service = world.vm("pinned")
    loose = machines_world.refused(lambda: service.auto_pin_cpu_and_numa_nodes(optimize_cpu_settings=True))
    policy = types.VmPlacementPolicy(affinity=types.VmAffinity.PINNED, hosts=[types.Host(id=host.id)])
    service.update(types.Vm(placement_policy=policy))
    service.auto_pin_cpu_and_numa_nodes(optimize_cpu_settings=True)
    service.start()
    world.until(lambda: world.status(service) == "up")

    assert loose == (409, "[Cannot edit VM. VM must be pinned to at least one host.]")
    assert service.get().host.id == host.id
    assert machines_world.refused(lambda: service.auto_pin_cpu_and_numa_nodes(optimize_cpu_settings=True))[0] == 409


def test_an_order_to_stop_that_comes_twice_does_not_end_the_next_run(
    world: machines_world.World, monkeypatch: pytest.MonkeyPatch
) -> None:
    service = world.started("twice", **IGNITION)
    engine = world.running.engine
    [vm] = engine.inventory.find("vms", name="twice")

    async def twice() -> None:
        await vm_life.stop(engine, vm, {}, "first")
        # The second one is carried out when the machine may be up again.
        await asyncio.sleep(0)
        monkeypatch.setattr(timing, "POWER_OFF", (LATER, LATER))
        await vm_life.stop(engine, vm, {}, "second")

    world.running.do(twice())
    world.until(lambda: world.status(service) == "down")
    service.start()
    world.until(lambda: world.status(service) == "up")
    jobs = world.api.jobs_service()
    world.until(lambda: [str(each.status) for each in jobs.list(search="correlation_id=second")] == ["finished"])

    assert world.status(service) == "up"


def test_what_goes_wrong_while_it_is_done_is_told_with_the_status_of_a_bad_request(
    world: machines_world.World, monkeypatch: pytest.MonkeyPatch
) -> None:
    service = world.vm("unlucky", **IGNITION)

    def broken(*_: object) -> None:
        raise RuntimeError("a bug")

    monkeypatch.setattr(vm_life, "_scheduled", broken)

    assert machines_world.refused(service.start) == (400, "[Internal Engine Error]")
