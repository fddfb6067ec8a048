"""What a Machine on oVirt is labelled with: its size as the type, its data centre as region, its cluster as zone."""

from __future__ import annotations

from typing import Any

import pytest
from ovirtsdk4 import types

from moorage.engine import errors
from moorage.platforms import contract
from moorage.platforms.ovirt import locations, machine, machine_steps
from tests.unit.platforms_ovirt import engine_place


def rename(place: engine_place.Place, kind: str, new: str) -> None:
    """Somebody gives the engine's first thing of a kind another name."""

    def change() -> None:
        found = place.running.engine.inventory.named(kind, "Default")
        assert found is not None
        found["name"] = new

    place.running.tell(change)


def test_a_data_centre_is_a_region_and_a_cluster_is_a_zone(place: engine_place.Place) -> None:
    wanted = place.machine()
    rename(place, "data_centers", "harbour")
    rename(place, "clusters", "pier-2")

    assert isinstance(place.actuator, contract.Locating)
    assert place.actuator.place(wanted) == contract.Place("harbour", "pier-2")


def test_a_cluster_is_looked_up_once_for_all_its_machines(place: engine_place.Place) -> None:
    wanted = place.machine()
    before = len(place.traced)

    for _ in range(3):
        assert place.actuator.place(wanted) == contract.Place("Default", "Default")

    assert [call for call in place.calls(before) if "/sso/" not in call] == [
        f"GET /clusters/{wanted.provider_spec['cluster_id']}"
    ]


def test_a_vm_is_where_it_is_whatever_its_spec_says_by_now(place: engine_place.Place) -> None:
    wanted = place.machine()
    place.actuator.create(wanted)
    edited = place.machine(cluster_id="00000000-0000-0000-0000-000000000000")
    for actuator in (place.actuator, machine.Actuator(place.client)):
        actuator.exists(edited)
        before = len(place.traced)

        assert actuator.place(edited) == contract.Place("Default", "Default")

        assert [call.rpartition("/")[0] for call in place.calls(before)] == ["GET /clusters"]


@pytest.mark.parametrize("name", ["pier 2", "Pférdehof", "-pier", "pier-", "p" * 64, ""])
def test_what_cannot_be_a_label_is_told_by_its_id(place: engine_place.Place, name: str) -> None:
    cluster = place.id("clusters", "Default")
    wanted = place.machine()
    rename(place, "clusters", name)

    assert place.actuator.place(wanted) == contract.Place("Default", cluster)


def test_a_cluster_that_cannot_be_seen_is_left_alone_for_a_while(place: engine_place.Place) -> None:
    wanted = place.machine(cluster_id="00000000-0000-0000-0000-000000000000")
    with pytest.raises(errors.NotFound):
        place.actuator.place(wanted)
    before = len(place.traced)

    assert place.actuator.place(wanted) == contract.Place()
    assert place.calls(before) == []


def test_it_is_looked_up_again_when_the_engine_may_have_recovered(place: engine_place.Place) -> None:
    wanted = place.machine()
    place.fault("fail", "GET", "**/clusters/*", status=503)
    with pytest.raises(errors.Transient):
        place.actuator.place(wanted)

    place.clock.sleep(locations.PAUSE)

    assert place.actuator.place(wanted) == contract.Place("Default", "Default")


def test_a_machine_without_a_readable_spec_has_no_place(place: engine_place.Place) -> None:
    for spec in ({}, {"cluster_id": ""}, {"cluster_id": 7}):
        assert place.actuator.place(contract.Machine("m", "i", "worker", spec, b"")) == contract.Place()


@pytest.mark.parametrize(
    ("topology", "memory", "told"),
    [
        ((4, 1, 1), 16 * machine_steps.GIB, "4cpu-16gib"),
        ((4, 2, 2), 16 * machine_steps.GIB, "16cpu-16gib"),
        ((4, 1, 1), 16 * machine_steps.GIB + 512 * machine_steps.MIB, "4cpu-16896mib"),
        ((None, None, None), 1 * machine_steps.GIB, "1cpu-1gib"),
        (None, 1 * machine_steps.GIB, ""),
        ((4, 1, 1), None, ""),
    ],
)
def test_the_type_is_what_the_vm_is_made_of(topology: Any, memory: int | None, told: str) -> None:
    shape = types.CpuTopology(**dict(zip(("cores", "sockets", "threads"), topology, strict=True))) if topology else None

    assert machine_steps.size(types.Vm(cpu=types.Cpu(topology=shape), memory=memory)) == told


def test_the_instance_tells_its_type(place: engine_place.Place) -> None:
    place.tagged()
    wanted = place.machine()
    place.actuator.create(wanted)

    found = place.actuator.exists(wanted)

    assert found is not None
    assert found.type == "8cpu-8gib"
