"""Where machines start: the rules of the scheduler, and what the engine says when no host will do."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from ovirtsdk4 import types

from moorage.lab.ovirt import scheduling
from tests.unit.lab.ovirt import engine_world, machines_world
from tests.unit.lab.ovirt.machines_world import GIB

HOSTS = [scheduling.Host(f"h{number}", f"host-{number}", 64, 64 * GIB) for number in range(3)]
APART = scheduling.Group("apart", positive=False, enforcing=True, vms=frozenset({"a", "b", "c", "d"}))
TOGETHER = scheduling.Group("together", positive=True, enforcing=True, vms=frozenset({"a", "b"}))


def wanted(name: str = "a", memory: int = 16 * GIB, threads: int = 4, pinned: str = "") -> scheduling.Wanted:
    return scheduling.Wanted(name, memory, threads, frozenset({pinned} if pinned else ()))


def on(host: str, name: str, memory: int = 16 * GIB) -> scheduling.Running:
    return scheduling.Running(name, host, memory)


def complaint(filter_name: str, why: str) -> str:
    return f"did not satisfy internal filter {filter_name} because {why}."


REFUSED = [
    (wanted(threads=65), [], [], complaint("CPU", "it has an insufficient amount of CPU cores to run the VM")),
    (wanted(memory=64 * GIB), [], [], complaint("Memory", "its available memory is too low (64512 MB) to run the VM")),
    (
        wanted(),
        [on("h0", "b"), on("h1", "c"), on("h2", "d")],
        [APART],
        complaint("VmAffinityGroups", "it matched negative affinity rules "),
    ),
    (
        wanted(pinned="elsewhere"),
        [],
        [],
        complaint("PinToHost", "the host is not present in the pinning list."),
    ),
]


@pytest.mark.parametrize(("vm", "running", "groups", "words"), REFUSED)
def test_each_filter_names_every_host_that_it_took(
    vm: scheduling.Wanted, running: list[scheduling.Running], groups: list[scheduling.Group], words: str
) -> None:
    with pytest.raises(scheduling.Unschedulable) as caught:
        scheduling.choose(vm, HOSTS, running, groups)

    first, *rest = caught.value.lines
    assert first.endswith("There is no host that satisfies current scheduling constraints. See below for details:")
    assert rest == [f"The host host-{number} {words}" for number in range(3)]


def test_hosts_may_be_taken_by_different_filters() -> None:
    running = [on("h0", "x", 60 * GIB), on("h1", "b"), on("h2", "y", 60 * GIB)]

    with pytest.raises(scheduling.Unschedulable) as caught:
        scheduling.choose(wanted(), HOSTS, running, [APART])

    assert ["Memory" in line for line in caught.value.lines[1:]] == [True, False, True]
    assert "VmAffinityGroups" in caught.value.lines[2]


def test_without_hosts_there_is_another_word() -> None:
    with pytest.raises(scheduling.Unschedulable) as caught:
        scheduling.choose(wanted(), [], [], [])
    assert caught.value.lines == [
        "There are no hosts to use. Check that the cluster contains at least one host in Up state."
    ]


CHOSEN = [
    ("the emptiest host", [on("h0", "x"), on("h2", "y")], [], "h1"),
    ("the only one without another of the group", [on("h0", "b"), on("h1", "c")], [APART], "h2"),
    ("where the others are", [on("h1", "b")], [TOGETHER], "h1"),
    (
        "a crowded host, if the wish is not enforced",
        [on("h0", "b"), on("h1", "c"), on("h2", "d")],
        [scheduling.Group("soft", positive=False, enforcing=False, vms=APART.vms)],
        "h0",
    ),
    (
        "a fuller host, if that keeps them apart",
        [on("h0", "b"), on("h1", "c"), on("h2", "x", 40 * GIB)],
        [scheduling.Group("soft", positive=False, enforcing=False, vms=APART.vms)],
        "h2",
    ),
    (
        "a fuller host, to be with others by wish",
        [on("h1", "b", 40 * GIB)],
        [scheduling.Group("soft", positive=True, enforcing=False, vms=APART.vms)],
        "h1",
    ),
    ("a group of others is no matter", [on("h1", "x"), on("h2", "y")], [TOGETHER], "h0"),
]


@pytest.mark.parametrize(("why", "running", "groups", "host"), CHOSEN, ids=[each[0] for each in CHOSEN])
def test_the_best_host_is(
    why: str, running: list[scheduling.Running], groups: list[scheduling.Group], host: str
) -> None:
    assert scheduling.choose(wanted(), HOSTS, running, groups).id == host


@given(st.integers(1, 6), st.integers(1, 8))
def test_no_two_of_an_enforced_group_share_a_host_and_none_is_refused_needlessly(hosts: int, vms: int) -> None:
    there = [scheduling.Host(f"h{number}", f"host-{number}", 64, 256 * GIB) for number in range(hosts)]
    group = scheduling.Group("g", positive=False, enforcing=True, vms=frozenset(f"v{each}" for each in range(vms)))
    running: list[scheduling.Running] = []
    for number in range(vms):
        try:
            found = scheduling.choose(wanted(f"v{number}"), there, running, [group])
        except scheduling.Unschedulable:
            break
        running.append(on(found.id, f"v{number}"))

    assert len({each.host for each in running}) == len(running) == min(hosts, vms)


@pytest.fixture
def world(tmp_path: Path) -> Iterator[machines_world.World]:
    with engine_world.started(tmp_path, machines_world.SPEED) as running:
        yield machines_world.World(running)


def test_three_masters_do_not_fit_on_two_hosts_if_they_must_be_apart(world: machines_world.World) -> None:
    hosts = world.running.engine.inventory.find("hosts")
    hosts[2]["status"] = "maintenance"
    cluster = world.api.clusters_service().list(search="name=Default")[0]
    groups = world.api.clusters_service().cluster_service(cluster.id).affinity_groups_service()
    group = groups.add(
        types.AffinityGroup(
            name="controlplane",
            priority=5.0,
            vms_rule=types.AffinityRule(enabled=True, positive=False, enforcing=True),
        )
    )
    services = [world.vm(f"master-{number}", memory=8 * GIB) for number in range(3)]
    for service in services:
        groups.group_service(group.id).vms_service().add(types.Vm(id=service.get().id))
    for service in services[:2]:
        service.start()

    status, detail = machines_world.refused(services[2].start)

    assert status == 409
    assert detail == (
        "[Cannot run VM. There is no host that satisfies current scheduling constraints. See below for details:, "
        "The host default-1 did not satisfy internal filter VmAffinityGroups because it matched negative affinity "
        "rules ., The host default-2 did not satisfy internal filter VmAffinityGroups because it matched negative "
        "affinity rules .]"
    )
    assert world.status(services[2]) == "down"
    # Relaxed, the third one shares a host.
    groups.group_service(group.id).update(
        types.AffinityGroup(vms_rule=types.AffinityRule(enabled=True, positive=False, enforcing=False))
    )
    services[2].start()
    world.until(lambda: world.status(services[2]) == "up")


def test_memory_that_is_promised_is_not_promised_twice(world: machines_world.World) -> None:
    for host in world.running.engine.inventory.all("hosts"):
        host["memory"] = 16 * GIB
    first = [world.vm(f"big-{number}", memory=10 * GIB) for number in range(4)]
    for service in first[:3]:
        service.start()

    status, detail = machines_world.refused(first[3].start)

    assert status == 409
    assert "did not satisfy internal filter Memory because its available memory is too low" in detail
    first[0].stop()
    world.until(lambda: world.status(first[0]) == "down")
    first[3].start()


def test_a_cluster_without_hosts_runs_nothing(world: machines_world.World) -> None:
    for host in world.running.engine.inventory.all("hosts"):
        host["status"] = "maintenance"
    service = world.vm("homeless")

    assert machines_world.refused(service.start) == (400, f"[{scheduling.NO_HOSTS}]")
