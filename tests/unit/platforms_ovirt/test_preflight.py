"""The look at the engine before anything is made, told against the lab's engine: everything found, in one run."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from moorage.config import findings
from moorage.engine import errors
from moorage.installer import plan
from moorage.lab.ovirt import serving
from moorage.platforms.ovirt import capacity, clashes, preflight
from tests.unit.lab.ovirt import engine_world
from tests.unit.platforms_ovirt.preflight_world import INFRA, MARK, World


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with engine_world.started(tmp_path) as running:
        yield World(running, tmp_path)


def only(found: list[findings.Finding], field: str, severity: str = "error") -> findings.Finding:
    """The one finding there is."""
    assert [(each.field, each.severity) for each in found] == [(field, severity)], found
    return found[0]


def test_a_cluster_that_fits_has_no_finding_and_is_measured(world: World) -> None:
    report = world.inspect(world.cluster())

    assert report.findings == ()
    assert [(item.kind, item.name) for item in report.reused] == [
        ("cluster", "Default"),
        ("storage domain", "data"),
        ("network", "ovirtmgmt"),
        ("vNIC profile", "ovirtmgmt"),
    ]
    limits = {limit.name.partition(" ")[0]: limit for limit in report.limits}
    assert all(limit.fits for limit in report.limits)
    # bootstrap 8, masters and workers 16 GiB each, and a quarter on top of each
    assert limits["memory"].adds == 8 + 5 * 16 + 6 * 0.25
    assert limits["processor"].adds == 6 * 4
    assert limits["processor"].used == 2  # the neighbour's
    assert limits["storage"].adds == 2 * capacity.IMAGE_GIB + 6 * capacity.THIN_GIB
    assert "thin" in limits["storage"].name
    assert plan.objections(report) == ()


def test_it_takes_few_calls_and_only_reads(world: World) -> None:
    world.inspect(world.cluster())

    calls = [line for line in world.traced if "/sso/" not in line]
    assert len(calls) <= 16
    assert all(": GET " in line for line in calls)
    assert not any(world.running.served.password() in line for line in world.traced)


def test_refused_credentials_are_raised(world: World) -> None:
    world.sign_in(**{**world.running.served.config(), "ovirt_password": "wrong-password"})

    with pytest.raises(errors.Unauthorized) as raised:
        world.inspect(world.cluster())

    assert "ovirt_password" in raised.value.remedy
    assert "wrong-password" not in f"{raised.value} {raised.value.words}"


def test_an_engine_whose_certificate_is_not_checked_is_a_warning(world: World) -> None:
    config = world.running.served.config()
    world.sign_in(**{**config, "ovirt_ca_bundle": "", "ovirt_insecure": True})

    assert "not checked" in only(world.problems(world.cluster()), "platform.ovirt", "warning").message


def test_a_user_who_may_only_look_is_told_what_is_missing(world: World) -> None:
    viewer = serving.VIEWER
    password = world.running.served.password(viewer)
    world.sign_in(**{**world.running.served.config(), "ovirt_username": viewer, "ovirt_password": password})

    found = world.problems(world.cluster())

    assert {each.severity for each in found} == {"error"}
    missing = [each.message.partition("the permit ")[2].partition(":")[0] for each in found]
    assert missing == [
        "create_vm on the cluster",
        "create_disk on the storage domain",
        "tag_management on the system",
        "create_template on the data center",
        "manipulate_affinity_groups on the cluster",
    ]
    assert all("role" in each.remedy for each in found)


def test_a_template_of_ones_own_and_no_groups_need_fewer_permits(world: World) -> None:
    world.reshape(permissions={"admin@internal": ["login", "create_vm", "create_disk", "tag_management"]})

    found = world.problems(world.cluster({"template": "centos", "affinityGroups": []}, masters=1, workers=0))

    assert [each for each in found if "permit" in each.message] == []


def test_a_permission_on_another_cluster_does_not_count(world: World) -> None:
    inventory = world.running.engine.inventory
    permission = inventory.find("permissions", user=world.running.engine.permissions.user("admin@internal")["id"])[0]
    permission["cluster"] = {"id": world.id_of("clusters", "Edge")}

    assert "create_vm" in world.problems(world.cluster())[0].message

    permission["cluster"] = {"id": world.id_of("clusters", "Default")}
    lacking = [each.message.partition("the permit ")[2].split(" ")[0] for each in world.problems(world.cluster())]
    assert lacking == ["create_disk", "tag_management", "create_template"]


def test_every_place_that_does_not_exist_is_told_with_what_there_is(world: World) -> None:
    nowhere = "00000000-0000-4000-8000-00000000dead"

    found = world.problems(
        world.cluster(
            {
                "ovirt_storage_domain_id": nowhere,
                "vnicProfileID": nowhere,
                "template": nowhere,
                "defaultMachinePlatform": {"instanceTypeID": nowhere},
            }
        )
    )

    told = {each.field: each for each in found}
    assert set(told) == {
        "platform.ovirt.defaultMachinePlatform.instanceTypeID",
        "platform.ovirt.ovirt_storage_domain_id",
        "platform.ovirt.vnicProfileID",
        "platform.ovirt.template",
    }
    assert f"{world.id_of('storage_domains', 'data')} (data)" in told["platform.ovirt.ovirt_storage_domain_id"].remedy
    assert "(ovirtmgmt)" in told["platform.ovirt.vnicProfileID"].remedy


def test_without_its_cluster_only_that_is_told(world: World) -> None:
    nowhere = "00000000-0000-4000-8000-00000000dead"

    found = world.problems(world.cluster({"ovirt_cluster_id": nowhere}))

    assert found[0].field == "platform.ovirt.ovirt_cluster_id"
    assert "(Default)" in found[0].remedy
    assert "(Edge)" in found[0].remedy


@pytest.mark.parametrize(
    ("change", "field", "says"),
    [
        ({"ovirt_network_name": "storage"}, "vnicProfileID", "no vNIC profile of network storage"),
        ({"ovirt_network_name": "nonet"}, "ovirt_network_name", "has no network 'nonet'"),
        ({"ovirt_network_name": "storage", "vnicProfileID": ""}, "vnicProfileID", "2 vNIC profiles"),
    ],
)
def test_network_and_profile_must_belong_together(world: World, change: dict[str, Any], field: str, says: str) -> None:
    assert says in only(world.problems(world.cluster(change)), f"platform.ovirt.{field}").message


def test_the_only_profile_of_a_network_need_not_be_named(world: World) -> None:
    assert world.problems(world.cluster({"vnicProfileID": ""})) == []


@pytest.mark.parametrize("domain", ["iso", "export"])
def test_disks_go_to_data_domains_only(world: World, domain: str) -> None:
    cluster = world.cluster({"ovirt_storage_domain_id": world.id_of("storage_domains", domain)})

    finding = world.problems(cluster)[0]

    assert finding.field == "platform.ovirt.ovirt_storage_domain_id"
    assert f"of type {domain}" in finding.message
    assert finding.remedy == "data domains there: data, slow"


def test_a_domain_in_maintenance_is_of_no_use(world: World) -> None:
    world.reshape(storage={"data": {"status": "maintenance"}})

    finding = only(world.problems(world.cluster()), "platform.ovirt.ovirt_storage_domain_id")

    assert "data is maintenance" in finding.message
    assert "slow" in finding.remedy


def test_storage_that_is_too_small_breaks_its_limit(world: World) -> None:
    world.reshape(storage={"data": {"free_gib": 100}})

    report = world.inspect(world.cluster())
    storage = next(limit for limit in report.limits if limit.name.startswith("storage"))

    assert not storage.fits
    growth = only(list(report.findings), "platform.ovirt.ovirt_storage_domain_id", "warning")
    assert "may grow to 720 GiB" in growth.message


def test_disks_that_are_written_whole_count_whole(world: World) -> None:
    report = world.inspect(world.cluster(format="raw", clone=True))

    storage = next(limit for limit in report.limits if limit.name.startswith("storage"))
    assert storage.adds == 2 * capacity.IMAGE_GIB + 5 * 120 + capacity.THIN_GIB  # the bootstrap's is thin


def test_what_the_engine_keeps_free_is_not_given_away(world: World) -> None:
    world.reshape(storage={"data": {"free_gib": 1000}})
    storage = next(limit for limit in world.inspect(world.cluster()).limits if limit.name.startswith("storage"))

    assert storage.most - storage.used == pytest.approx(1000 - 5, abs=0.2)


def test_two_hosts_and_three_masters_are_explained_with_what_to_write(world: World) -> None:
    world.reshape(hosts={"Default": 2})
    cluster = world.cluster()

    finding = only(world.problems(cluster), "platform.ovirt.affinityGroups[0].enforcing")

    assert "the 3 machines of group 'controlplane' must run on different hosts" in finding.message
    assert "2 active" in finding.message
    assert "etcd has no majority" in finding.remedy
    # The YAML in the remedy is complete: written into the file, it is the answer.
    flow = finding.remedy.partition("affinityGroups: ")[2].partition("; it costs")[0]
    groups = yaml.safe_load(flow)
    assert [(group["name"], group["enforcing"]) for group in groups] == [("controlplane", False), ("compute", True)]
    relaxed = only(
        world.problems(world.cluster({"affinityGroups": groups})), "platform.ovirt.affinityGroups", "warning"
    )
    assert "3 control-plane machines run on 2 active hosts" in relaxed.message
    assert "etcd has no majority" in relaxed.message


def test_all_groups_that_are_too_large_are_relaxed_by_one_answer(world: World) -> None:
    world.reshape(hosts={"Default": 2})

    found = world.problems(world.cluster(workers=4))

    assert [each.field for each in found] == [
        "platform.ovirt.affinityGroups[0].enforcing",
        "platform.ovirt.affinityGroups[1].enforcing",
    ]
    assert all(each.remedy.count("enforcing: false") == 2 for each in found)


def test_hosts_that_rest_are_no_hosts(world: World) -> None:
    host = world.running.engine.inventory.all("hosts")[2]["name"]
    world.reshape(host_status={host: "maintenance"})

    finding = only(world.problems(world.cluster()), "platform.ovirt.affinityGroups[0].enforcing")

    assert f"1 more are not up: {host}" in finding.message


def test_masters_that_nothing_keeps_apart_are_a_warning(world: World) -> None:
    finding = only(world.problems(world.cluster({"affinityGroups": []})), "platform.ovirt.affinityGroups", "warning")

    assert "nothing keeps" in finding.message


def test_a_single_master_needs_no_company(world: World) -> None:
    assert world.problems(world.cluster({"affinityGroups": []}, masters=1, workers=0)) == []


def test_memory_that_is_not_there_breaks_its_limit(world: World) -> None:
    world.reshape(host_memory_gib=24)

    report = world.inspect(world.cluster())

    assert [limit.name for limit in report.limits if not limit.fits] == ["memory of the cluster's active hosts"]


def test_a_machine_larger_than_any_host_is_told(world: World) -> None:
    world.reshape(host_memory_gib=32, host_threads=8)

    found = world.problems(world.cluster(memoryMB=65536, cpu={"cores": 16}))

    fields = {each.field for each in found if each.severity == "error"}
    assert fields == {"platform.ovirt.defaultMachinePlatform.cpu", "platform.ovirt.defaultMachinePlatform.memoryMB"}


def test_processors_promised_twice_are_a_warning_and_no_limit(world: World) -> None:
    world.reshape(host_threads=4)

    report = world.inspect(world.cluster())

    assert (
        "26 processors of hosts with 12 threads"
        in only(list(report.findings), "platform.ovirt.ovirt_cluster_id", "warning").message
    )
    assert plan.objections(report) == report.findings


def test_an_instance_type_brings_its_own_size(world: World) -> None:
    large = world.id_of("instance_types", "XLarge")

    report = world.inspect(world.cluster({"defaultMachinePlatform": {"instanceTypeID": large}}))

    memory = next(limit for limit in report.limits if limit.name.startswith("memory"))
    assert memory.adds == 8 + 5 * 16 + 6 * 0.25


def test_names_that_others_have_are_all_told(world: World) -> None:
    world.add_vm(f"{INFRA}-master-0", "somebody's")
    world.add_vm(f"{INFRA}x-master-0", "another cluster's")
    cluster_id = world.id_of("clusters", "Default")
    world.add("tags", name=INFRA, description="")
    world.add("tags", name=f"{INFRA}-bootstrap", description=f"{MARK}9")
    world.add("templates", name=f"{INFRA}-rhcos", description="", status="ok", cluster={"id": cluster_id})
    world.add(
        "affinity_groups", name=f"{INFRA}-controlplane", description="", cluster={"id": cluster_id}, _vms=[], _hosts=[]
    )

    found = [each for each in world.problems(world.cluster()) if each.field == "metadata.name"]

    assert [each.message.partition(" exists")[0] for each in found] == [
        f"VM {INFRA}-master-0",
        f"template {INFRA}-rhcos",
        f"tag {INFRA}",
        f"tag {INFRA}-bootstrap",
        f"affinity group {INFRA}-controlplane",
    ]


def test_a_run_that_is_taken_up_again_minds_neither_its_machines_nor_its_addresses(world: World) -> None:
    fresh = world.inspect(world.cluster())
    world.add_vm(f"{INFRA}-master-0", MARK, up=True)
    world.add_vm(f"{INFRA}-master-1", MARK)
    world.add("tags", name=INFRA, description=MARK)
    with listening(world.address(200), 6443):
        again = world.inspect(world.cluster())

    assert again.findings == ()
    adds = {
        limit.name.split()[0]: (before.adds - limit.adds)
        for before, limit in zip(fresh.limits, again.limits, strict=True)
    }
    assert adds["memory"] == pytest.approx(16.25, abs=0.2)  # the one that runs
    assert adds["storage"] == pytest.approx(2 * capacity.THIN_GIB)  # both have their disks


@contextlib.contextmanager
def listening(address: str, port: int) -> Iterator[None]:
    with socket.create_server((address, port)):
        yield


def test_an_address_at_which_somebody_answers_is_not_free(world: World) -> None:
    with listening(world.address(201), 443):
        finding = only(world.problems(world.cluster()), "platform.ovirt.ingress_vips[0]")

    assert finding.message == f"{world.address(201)} is not free: somebody answers at port 443"


def test_a_template_must_fit_its_machines(world: World) -> None:
    report = world.inspect(world.cluster({"template": "centos"}, osDisk={"sizeGB": 5}))

    finding = next(each for each in report.findings if each.severity == "error")
    assert finding.field == "platform.ovirt.defaultMachinePlatform.osDisk.sizeGB"
    assert "disks only grow" in finding.message
    assert ("template", "centos") in [(item.kind, item.name) for item in report.reused]


def test_an_engine_that_is_too_old_is_told(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(preflight, "OLDEST", (4, 6))

    assert "4.6 or newer" in only(world.problems(world.cluster()), "platform.ovirt").message


@pytest.mark.parametrize(
    ("one", "other", "alike"),
    [
        ("10.0.0.1", "10.0.0.1", True),
        ("fd00::1", "fd00:0::1", True),
        ("10.0.0.1", "10.0.0.10", False),
        (None, "::1", False),
    ],
)
def test_addresses_are_compared_as_addresses(one: str | None, other: str, alike: bool) -> None:
    assert clashes.same(one, other) is alike
