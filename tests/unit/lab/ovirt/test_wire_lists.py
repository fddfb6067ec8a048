"""Lists of the engine, as the vendor's SDK asks for them: searched, paged, cut, and with links followed."""

from __future__ import annotations

import contextlib
from typing import Any

import hypothesis
import ovirtsdk4
import pytest
from hypothesis import strategies
from ovirtsdk4 import types

from moorage.lab.ovirt import controls, faults, searching
from tests.unit.lab.ovirt import engine_world


def names(found: list[Any]) -> list[str]:
    return [each.name for each in found]


@pytest.fixture
def neighbours(running: engine_world.Running) -> engine_world.Running:
    """Two clusters of other people's, one of which begins like the other."""
    for infra_id in ("alpha-x1", "alpha-x10"):
        running.tell(lambda infra_id=infra_id: controls.neighbour(running.engine, infra_id))
    return running


@pytest.mark.parametrize(
    ("search", "wanted"),
    [
        ("", ["alpha-x1-master-0", "alpha-x10-master-0", "intranet"]),
        ("name=intranet", ["intranet"]),
        ("name=INTRANET", ["intranet"]),
        ('name="intranet"', ["intranet"]),
        ("name=intra", []),
        ("name=intra*", ["intranet"]),
        ("name=alpha-x1*", ["alpha-x1-master-0", "alpha-x10-master-0"]),
        ("name=*-master-*", ["alpha-x1-master-0", "alpha-x10-master-0"]),
        ("tag=alpha-x1", ["alpha-x1-master-0"]),
        ("tag=alpha-*", ["alpha-x1-master-0", "alpha-x10-master-0"]),
        ("tag=nobody", []),
        ("tag!=alpha-x1", ["alpha-x10-master-0", "intranet"]),
        ("name=intranet or tag=alpha-x10", ["alpha-x10-master-0", "intranet"]),
        ("name=alpha* and tag=alpha-x10", ["alpha-x10-master-0"]),
        ("cluster=Default and name!=intranet", ["alpha-x1-master-0", "alpha-x10-master-0"]),
        ("cluster.name=Default status=up", ["alpha-x1-master-0", "alpha-x10-master-0", "intranet"]),
        ("Clusters.name = Edge", []),
        ("datacenter=Default and name=intranet", ["intranet"]),
        ("status=down", []),
        ("intranet", ["intranet"]),
        ("memory>=4294967296 sortby name desc", ["intranet", "alpha-x10-master-0", "alpha-x1-master-0"]),
        ("memory<4294967296", []),
        ('description="moorage: alpha-x1"', ["alpha-x1-master-0"]),
        ("page 1", ["alpha-x1-master-0", "alpha-x10-master-0", "intranet"]),
        ("page 2", []),
    ],
)
def test_machines_are_found_by_what_is_known_of_them(
    neighbours: engine_world.Running, search: str, wanted: list[str]
) -> None:
    vms = neighbours.connect().system_service().vms_service()
    assert names(vms.list(search=search)) == wanted


def test_case_matters_to_those_who_say_so(api: Any) -> None:
    assert names(api.vms_service().list(search="name=Intranet", case_sensitive=True)) == []
    assert names(api.vms_service().list(search="name=intranet", case_sensitive=True)) == ["intranet"]


@pytest.mark.parametrize("search", ["name=", "=x", 'name="open', "name==x"])
def test_a_search_that_makes_no_sense_is_refused(api: Any, search: str) -> None:
    with pytest.raises(ovirtsdk4.Error, match="cannot be understood") as refused:
        api.vms_service().list(search=search)
    assert refused.value.code == 400


def test_pages_are_as_long_as_the_most_that_is_asked_for(api: Any, running: engine_world.Running) -> None:
    tags = api.tags_service()
    for number in range(5):
        tags.add(types.Tag(name=f"t{number}"))
    assert names(tags.list(max=2)) == ["root", "t0"]
    pages = [names(api.hosts_service().list(search=f"page {page}", max=2)) for page in (1, 2, 3, 4)]
    assert pages == [["default-1", "default-2"], ["default-3", "edge-1"], ["edge-2"], []]


def test_a_page_has_a_hundred_unless_told_otherwise(running: engine_world.Running) -> None:
    for number in range(150):
        running.tell(lambda number=number: running.engine.inventory.add("networks", {"name": f"n{number:03}"}))
    networks = running.connect().system_service().networks_service()
    assert len(networks.list(search="name=n*")) == 150
    assert len(networks.list(search="name=n* page 1")) == 100
    assert len(networks.list(search="name=n* page 2")) == 50


def test_storage_and_hosts_of_a_cluster(api: Any) -> None:
    storage, hosts = api.storage_domains_service(), api.hosts_service()
    assert names(storage.list(search="cluster.name=Edge")) == ["data", "export", "iso", "slow"]
    assert names(storage.list(search="cluster.name=Edge and type=data and status=active")) == ["data", "slow"]
    assert names(storage.list(search="datacenter=Default and name=slow")) == ["slow"]
    assert names(hosts.list(search="cluster=Edge")) == ["edge-1", "edge-2"]
    assert names(api.data_centers_service().list(search="Clusters.name=Edge")) == ["Default"]
    assert names(api.data_centers_service().list(search="Clusters.name=Nowhere")) == []


def test_the_status_of_storage_is_told_where_it_is_used(api: Any) -> None:
    [center] = api.data_centers_service().list()
    assert {each.status for each in api.storage_domains_service().list()} == {None}
    used = api.data_centers_service().data_center_service(center.id).storage_domains_service().list()
    assert {each.name: each.status for each in used}["data"] == types.StorageDomainStatus.ACTIVE
    [data] = [each for each in used if each.name == "data"]
    assert data.type == types.StorageDomainType.DATA
    assert data.available + data.used == 2048 * 1024**3


def test_networks_lead_to_their_profiles(api: Any) -> None:
    [cluster] = api.clusters_service().list(search="name=Default")
    shown = api.clusters_service().cluster_service(cluster.id).get(follow="networks")
    assert sorted(names(shown.networks)) == ["ovirtmgmt", "storage"]
    [storage] = [each for each in shown.networks if each.name == "storage"]
    profiles = api.networks_service().network_service(storage.id).vnic_profiles_service().list()
    assert sorted(names(profiles)) == ["storage", "storage-trusted"]
    assert {each.network.id for each in profiles} == {storage.id}
    assert len(api.vnic_profiles_service().list()) == 3
    [center] = api.data_centers_service().list()
    below = api.data_centers_service().data_center_service(center.id)
    assert names(below.clusters_service().list()) == ["Default", "Edge"]


def test_links_are_followed_as_deep_as_asked(neighbours: engine_world.Running) -> None:
    vms = neighbours.connect().system_service().vms_service()
    [vm] = vms.list(search="name=alpha-x1-master-0", follow="disk_attachments.disk,nics,tags,cluster.data_center")
    assert [each.disk.name for each in vm.disk_attachments] == ["alpha-x1-master-0-disk"]
    assert vm.disk_attachments[0].disk.provisioned_size == 40 * 1024**3
    assert names(vm.tags) == ["alpha-x1"]
    assert list(vm.nics) == []
    assert (vm.cluster.name, vm.cluster.data_center.name) == ("Default", "Default")
    # and without, they are only links
    [vm] = vms.list(search="name=alpha-x1-master-0")
    assert (vm.disk_attachments.href, list(vm.disk_attachments)) == (f"{vm.href}/diskattachments", [])
    assert (vm.cluster.name, vm.cluster.href) == (None, f"/ovirt-engine/api/clusters/{vm.cluster.id}")


def test_the_sdk_follows_the_links_itself(neighbours: engine_world.Running) -> None:
    connection = neighbours.connect()
    [vm] = connection.system_service().vms_service().list(search="name=alpha-x1-master-0")
    assert names(connection.follow_link(vm.tags)) == ["alpha-x1"]
    assert connection.follow_link(vm.cluster).name == "Default"


def test_a_link_that_leads_nowhere_spoils_the_answer(api: Any) -> None:
    with pytest.raises(ovirtsdk4.Error, match="Problem fetching 'nonsense' from Cluster") as refused:
        api.clusters_service().list(follow="nonsense")
    assert refused.value.code == 500


def test_instance_types_have_sizes(api: Any) -> None:
    sizes = {each.name: (each.memory, each.cpu.topology.sockets) for each in api.instance_types_service().list()}
    assert sizes["Large"] == (8192 * 1024**2, 2)


_WORDS = strategies.text("abAB*-_. ", min_size=1, max_size=12)


@hypothesis.given(value=_WORDS, name=strategies.text("abAB-_. ", max_size=12))
def test_a_quoted_value_is_found_if_it_is_the_name_whatever_it_holds(value: str, name: str) -> None:
    query = searching.parsed(f'name="{value}"')
    assert query.any_of == ((searching.Term("name", "=", value),),)
    exact = searching.parsed(f'name="{name}"') if name else None
    assert exact is None or exact.any_of[0][0].value == name


@hypothesis.given(strategies.text(max_size=40))
def test_any_search_is_read_or_refused(text: str) -> None:
    with contextlib.suppress(faults.Fault):
        assert isinstance(searching.parsed(text), searching.Query)
