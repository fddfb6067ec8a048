"""The etcd of a cluster, as far as it matters: who its members are, which of them are up, and whether they are enough.

Members come with their machines' static pods and are healthy while these run on a machine that can be reached. Without
a majority nothing can be read or written, whatever API server is asked; when machines come back it heals by itself.
"""

from __future__ import annotations

import base64
import dataclasses
from collections.abc import Callable, Iterable
from typing import Any

from moorage.lab.nodes import instance

Object = dict[str, Any]

BOOTSTRAP = "etcd-bootstrap"
POD = "etcd"
TIMED_OUT = "etcdserver: request timed out"


@dataclasses.dataclass(frozen=True)
class Member:
    """One member, on one machine: a machine of the same name with another disk is not it."""

    name: str
    machine: instance.Instance

    @property
    def healthy(self) -> bool:
        return self.machine.reachable and POD in self.machine.wire.listening


class Etcd:
    """The members of a cluster's etcd."""

    def __init__(self) -> None:
        self.members: dict[str, Member] = {}

    @property
    def healthy(self) -> list[Member]:
        return [member for member in self.members.values() if member.healthy]

    @property
    def has_quorum(self) -> bool:
        return len(self.healthy) > len(self.members) / 2

    def why_unavailable(self) -> str:
        """Why nothing can be stored at the moment; empty if it can."""
        return "" if self.has_quorum else TIMED_OUT

    def add(self, name: str, machine: instance.Instance) -> bool:
        """Take a member in, or say that it cannot be done now: members are changed by a majority, like all else."""
        if not self.members or self.has_quorum:
            self.members[name] = Member(name, machine)
            return True
        return False

    def remove(self, name: str) -> bool:
        """Take a member out, under the same condition."""
        if name in self.members and self.has_quorum:
            del self.members[name]
            return True
        return False

    @property
    def has_bootstrap(self) -> bool:
        return BOOTSTRAP in self.members

    def may_lose_bootstrap(self, *, highly_available: bool) -> bool:
        """Whether the members on masters are enough to go on alone; the bootstrap's own may be ill already."""
        ill = [member.name for member in self.members.values() if not member.healthy]
        enough = 4 if highly_available else 2
        return self.has_bootstrap and len(self.members) >= enough and ill in ([], [BOOTSTRAP])

    def status(self) -> str:
        """How the members are, in the operator's words."""
        ill = [member.name for member in self.members.values() if not member.healthy]
        if not ill:
            return f"{len(self.members)} members are available"
        told = ", ".join(f"{name} is unhealthy" for name in sorted(ill))
        return f"{len(self.members) - len(ill)} of {len(self.members)} members are available, {told}"


def endpoints(etcd: Etcd) -> Object:
    """The ConfigMap from which API servers learn where etcd is; the bootstrap's member is only mentioned."""
    masters = [member for member in etcd.members.values() if member.name != BOOTSTRAP]
    content: Object = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "etcd-endpoints", "namespace": "openshift-etcd"},
        "data": {_key(member.machine.address): member.machine.address for member in masters},
    }
    if etcd.has_bootstrap:
        address = etcd.members[BOOTSTRAP].machine.address
        content["metadata"]["annotations"] = {"alpha.installer.openshift.io/etcd-bootstrap": address}
    return content


def conditions(
    etcd: Etcd, *, highly_available: bool, condition: Callable[[str, bool, str, str], Object]
) -> Iterable[Object]:
    """What the etcd operator reports about its members."""
    ill = len(etcd.healthy) < len(etcd.members)
    quorum = etcd.has_quorum
    yield condition("EtcdMembersAvailable", quorum, "EtcdQuorate" if quorum else "NoQuorum", etcd.status())
    told = ("UnhealthyMembers", etcd.status()) if ill else ("AsExpected", "No unhealthy members found")
    yield condition("EtcdMembersDegraded", ill, *told)
    yield condition("EtcdMembersProgressing", False, "AsExpected", "No unstarted etcd members found")
    if not etcd.has_bootstrap:
        told = ("BootstrapAlreadyRemoved", "etcd-bootstrap member is already removed")
        yield condition("EtcdRunningInCluster", True, *told)
        yield condition(
            "EtcdBootstrapMemberRemoved", True, "BootstrapMemberRemoved", "etcd bootstrap member is removed"
        )
    elif etcd.may_lose_bootstrap(highly_available=highly_available):
        yield condition("EtcdRunningInCluster", True, "EnoughEtcdMembers", "enough members found")
    else:
        told = ("NotEnoughEtcdMembers", "still waiting for three healthy etcd members")
        yield condition("EtcdRunningInCluster", False, *told)


def _key(address: str) -> str:
    return base64.urlsafe_b64encode(address.encode()).decode().rstrip("=")
