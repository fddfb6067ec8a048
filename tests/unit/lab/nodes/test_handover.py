"""A cluster moves to its masters and lives there: what is seen of it, and what it survives."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509

from moorage.engine import clock as clocks
from moorage.lab import balancer, names
from moorage.lab import site as sites
from moorage.lab.nodes import api_client, cluster, credentials, etcd, instance, network, static_pods
from tests.unit.lab.nodes.node_world import until

Object = dict[str, Any]

SPEED = 400.0
DOMAIN = "harbour.example.com"
CONTROL_PLANE = static_pods.CONTROL_PLANE
MASTERS = ("master-0", "master-1", "master-2")


async def furnish(site: sites.Site, directory: Path) -> dict[str, instance.Instance]:
    """Machines, a balancer in front of them, and the names that lead to it: what a user of platform none provides."""
    roles = {"bootstrap": "bootstrap", **dict.fromkeys(MASTERS, "master")}
    machines = {
        name: instance.Instance(site, name, (directory / f"{role}.ign").read_bytes()) for name, role in roles.items()
    }
    front = site.allocate()
    for port in (6443, 22623):
        site.balancer.add_pool(str(port), balancer.Check(interval=10))
        for machine in machines.values():
            site.balancer.add_member(str(port), balancer.Member(machine.address, port))
        await site.balancer.add_listener(front, port, str(port))
    site.zones.hold(DOMAIN)
    for name in ("api", "api-int"):
        site.zones.put(names.RecordSet(f"{name}.{DOMAIN}", "A", (front,)))
    for machine in machines.values():
        await machine.power_on()
    return machines


def condition(content: Object | None, kind: str) -> Object:
    conditions = ((content or {}).get("status") or {}).get("conditions") or ()
    return next((each for each in conditions if each["type"] == kind), {})


def served(machine: instance.Instance, authority: str, name: str) -> Callable[[], x509.Certificate]:
    """The certificate that the machine's API server shows for a name."""

    def shown() -> x509.Certificate:
        context = ssl.create_default_context(cadata=authority)
        with (
            contextlib.closing(socket.create_connection((machine.address, 6443), timeout=10)) as line,
            context.wrap_socket(line, server_hostname=name) as secure,
        ):
            return x509.load_der_x509_certificate(secure.getpeercert(True) or b"")

    return shown


async def moved(site: sites.Site, machines: dict[str, instance.Instance]) -> cluster.Cluster:
    """The cluster once it stands on its masters, with the bootstrap's member gone."""
    await until(lambda: site.clusters, "a cluster")
    [found] = site.clusters.values()
    await until(lambda: found.handed_over and not found.etcd.has_bootstrap, "the hand-over")
    everywhere = [(component, machines[name]) for component in static_pods.CONTROL_PLANE for name in MASTERS]
    await until(lambda: all(static_pods.runs(*each) for each in everywhere), "all parts on all masters")
    return found


def test_a_cluster_moves_to_its_masters_and_survives_what_they_suffer(cluster_dir: Path) -> None:
    async def tell() -> None:
        site = sites.Site(clocks.Clock(SPEED))
        await site.start()
        try:
            machines = await furnish(site, cluster_dir)
            found = await moved(site, machines)
            await _it_stands_alone(found, machines, cluster_dir)
            await _it_needs_a_majority(found, machines, cluster_dir)
        finally:
            await site.stop()

    asyncio.run(tell())


async def _it_stands_alone(found: cluster.Cluster, machines: dict[str, instance.Instance], directory: Path) -> None:
    # What the installer waits for is there.
    assert (found.find("", "ConfigMap", "kube-system", "bootstrap") or {})["data"] == {"status": "complete"}
    await until(
        lambda: condition(found.find("operator.openshift.io", "Etcd", "", "cluster"), "EtcdBootstrapMemberRemoved"),
        "the etcd operator's word",
    )
    operator = found.find("operator.openshift.io", "KubeAPIServer", "", "cluster") or {}
    assert [each["currentRevision"] for each in operator["status"]["nodeStatuses"]] == [1, 1, 1]
    endpoints = found.find("", "ConfigMap", "openshift-etcd", "etcd-endpoints") or {}
    assert sorted(endpoints["data"].values()) == sorted(machines[name].address for name in MASTERS)
    # The bootstrap is not needed for anything any more.
    assert machines["bootstrap"].wire.listening == ["etcd"]
    version = found.find("config.openshift.io", "ClusterVersion", "", "version") or {}
    assert not version["spec"].get("overrides")
    await machines["bootstrap"].delete()
    assert found.alive
    # The masters show certificates of their own, signed by the signers the cluster was given.
    admin = api_client.from_kubeconfig(network.Wire(found.site, found.site.allocate()), _kubeconfig(directory))
    shown = await asyncio.to_thread(served(machines["master-0"], admin.authority, f"api-int.{DOMAIN}"))
    life = shown.not_valid_after_utc - shown.not_valid_before_utc
    assert life == 30 * credentials.DAY
    # From now on nodes' certificates are signed by a signer of the cluster's own.
    own = (found.find("", "Secret", "openshift-kube-controller-manager", "csr-signer") or {})["data"]["tls.crt"]
    assert own
    bundle = (found.find("", "ConfigMap", "openshift-config-managed", "kubelet-serving-ca") or {})["data"]
    assert len(credentials.certificates(bundle["ca-bundle.crt"], "bundle")) == 2


async def _it_needs_a_majority(found: cluster.Cluster, machines: dict[str, instance.Instance], directory: Path) -> None:
    wire = network.Wire(found.site, found.site.allocate())
    admin = api_client.from_kubeconfig(wire, _kubeconfig(directory))

    await machines["master-0"].partition()
    assert found.alive
    assert machines["master-0"] not in found.servers()
    await until(
        lambda: (
            condition(found.find("operator.openshift.io", "Etcd", "", "cluster"), "EtcdMembersDegraded").get("status")
            == "True"
        ),
        "the loss is noticed",
    )

    await machines["master-1"].power_off()
    assert not found.alive
    # The last API server still answers, but has nothing to answer with.
    direct = network.Wire(found.site, found.site.allocate())

    async def last(_name: str) -> list[str]:
        return [machines["master-2"].address]

    direct.resolvers.insert(0, last)
    with pytest.raises(api_client.Refused, match="etcdserver: request timed out") as refused:
        await api_client.from_kubeconfig(direct, _kubeconfig(directory)).get("/api/v1/nodes")
    assert refused.value.status == 500
    await direct.close()

    await machines["master-0"].heal()
    assert found.alive
    await until(
        lambda: static_pods.runs(static_pods.API_SERVER, machines["master-0"]), "the API server of a mended line"
    )
    await machines["master-1"].power_on()
    await until(
        lambda: all(static_pods.runs(each, machines["master-1"]) for each in static_pods.CONTROL_PLANE),
        "what ran on a master runs again after its reboot",
    )
    assert len(found.etcd.healthy) == len(found.etcd.members) == 3
    assert etcd.BOOTSTRAP not in found.etcd.members
    assert len((await admin.get("/api/v1/nodes"))["items"]) == 3
    await wire.close()


def _kubeconfig(directory: Path) -> bytes:
    return (directory / "auth" / "kubeconfig").read_bytes()


def test_a_bootstrap_that_dies_too_early_leaves_no_cluster(cluster_dir: Path) -> None:
    async def tell() -> None:
        site = sites.Site(clocks.Clock(SPEED))
        await site.start()
        try:
            machines = await furnish(site, cluster_dir)
            await until(lambda: any("registered node" in line for line in machines["master-0"].console), "a Node")
            [found] = site.clusters.values()

            await machines["bootstrap"].power_off()

            assert not found.alive
            # Far longer than the operators would have needed.
            await asyncio.sleep(600 / SPEED)
            assert not any(static_pods.placed(each, machines[name]) for each in CONTROL_PLANE for name in MASTERS)
            assert found.find("", "ConfigMap", "kube-system", "bootstrap") is None
        finally:
            await site.stop()

    asyncio.run(tell())
