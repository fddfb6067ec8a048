"""etcd: who is a member, when a majority is there, and when the bootstrap's member may leave."""

from __future__ import annotations

import dataclasses
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moorage.lab.nodes import etcd, instance


@dataclasses.dataclass
class _Wire:
    listening: list[str]


class _Machine:
    """A machine that is up or not, and runs etcd or not."""

    def __init__(self, address: str, *, up: bool = True) -> None:
        self.address = address
        self.reachable = up
        self.wire = _Wire(["etcd"])


def machine(number: int, *, up: bool = True) -> instance.Instance:
    return cast(instance.Instance, _Machine(f"127.9.1.{number}", up=up))


def down(found: etcd.Etcd, *names: str) -> None:
    for name in names:
        cast(_Machine, found.members[name].machine).reachable = False


def born(masters: int) -> etcd.Etcd:
    found = etcd.Etcd()
    assert found.add(etcd.BOOTSTRAP, machine(1))
    for number in range(masters):
        assert found.add(f"master-{number}", machine(10 + number))
    return found


@given(st.lists(st.booleans(), min_size=1, max_size=7))
def test_it_works_exactly_while_more_than_half_of_its_members_do(ups: list[bool]) -> None:
    found = etcd.Etcd()
    for number, up in enumerate(ups):
        found.members[str(number)] = etcd.Member(str(number), machine(number, up=up))

    assert found.has_quorum == (2 * sum(ups) > len(ups))
    assert (found.why_unavailable() == "") == found.has_quorum


def test_without_members_there_is_nothing_to_use() -> None:
    assert etcd.Etcd().why_unavailable() == "etcdserver: request timed out"


def test_a_machine_that_is_up_but_does_not_run_etcd_does_not_count() -> None:
    found = born(0)
    cast(_Machine, found.members[etcd.BOOTSTRAP].machine).wire.listening.clear()

    assert not found.has_quorum


def test_it_heals_when_machines_come_back() -> None:
    found = born(3)
    assert found.remove(etcd.BOOTSTRAP)
    down(found, "master-0", "master-1")
    assert not found.has_quorum

    cast(_Machine, found.members["master-1"].machine).reachable = True

    assert found.has_quorum


def test_members_neither_come_nor_go_without_a_majority() -> None:
    found = born(1)
    down(found, etcd.BOOTSTRAP)

    assert not found.add("master-1", machine(11))
    assert not found.remove(etcd.BOOTSTRAP)
    assert set(found.members) == {etcd.BOOTSTRAP, "master-0"}


@pytest.mark.parametrize(
    ("masters", "ill", "highly_available", "may"),
    [
        (3, (), True, True),
        (2, (), True, False),
        (3, (etcd.BOOTSTRAP,), True, True),
        (3, ("master-1",), True, False),
        (3, (etcd.BOOTSTRAP, "master-1"), True, False),
        (1, (), False, True),
        (0, (), False, False),
    ],
)
def test_when_the_bootstrap_may_leave(masters: int, ill: tuple[str, ...], highly_available: bool, may: bool) -> None:
    found = born(masters)
    down(found, *ill)

    assert found.may_lose_bootstrap(highly_available=highly_available) == may


def reported(found: etcd.Etcd) -> dict[str, tuple[bool, str]]:
    told: dict[str, tuple[bool, str]] = {}

    def condition(kind: str, truth: bool, reason: str, _message: str) -> dict[str, object]:
        told[kind] = (truth, reason)
        return {}

    list(etcd.conditions(found, highly_available=True, condition=condition))
    return told


def test_the_operator_tells_how_far_it_is() -> None:
    found = born(2)
    assert reported(found)["EtcdRunningInCluster"] == (False, "NotEnoughEtcdMembers")
    assert "EtcdBootstrapMemberRemoved" not in reported(found)

    found.add("master-2", machine(12))
    assert reported(found)["EtcdRunningInCluster"] == (True, "EnoughEtcdMembers")

    found.remove(etcd.BOOTSTRAP)
    assert reported(found)["EtcdBootstrapMemberRemoved"] == (True, "BootstrapMemberRemoved")

    down(found, "master-2")
    assert reported(found)["EtcdMembersDegraded"] == (True, "UnhealthyMembers")
    assert reported(found)["EtcdMembersAvailable"] == (True, "EtcdQuorate")


def test_endpoints_are_the_masters_and_the_bootstrap_is_only_mentioned() -> None:
    found = born(2)

    content = etcd.endpoints(found)
    assert sorted(content["data"].values()) == ["127.9.1.10", "127.9.1.11"]
    assert content["metadata"]["annotations"] == {"alpha.installer.openshift.io/etcd-bootstrap": "127.9.1.1"}

    found.remove(etcd.BOOTSTRAP)
    assert "annotations" not in etcd.endpoints(found)["metadata"]
