"""A cluster and its machines: what may be used when, certificates it makes, and who is believed."""

from __future__ import annotations

import asyncio
import datetime
from collections.abc import Awaitable, Callable

import pytest
from cryptography import x509

from moorage.engine import clock as clocks
from moorage.lab import site as sites
from moorage.lab.nodes import cluster, credentials, etcd, facts, instance, renders, serving, signing, static_pods

DAY = credentials.DAY
ABOUT = facts.Facts(
    domain="harbour.example.com",
    infra_id="harbour-abcde",
    api_url="https://api.harbour.example.com:6443",
    api_int_url="https://api-int.harbour.example.com:6443",
    topology="HighlyAvailable",
    service_network="172.30.0.0/16",
    control_plane_replicas=3,
)
SIGNERS = {
    name: credentials.authority(name, 100 * DAY)
    for name in ("localhost-serving-signer", "service-network-serving-signer", "loadbalancer-serving-signer")
}
KUBELETS = credentials.authority("kubelet-signer", DAY)
KEY, PUBLIC = credentials.fresh_key()


def material() -> renders.ControlPlane:
    shown = credentials.serving(SIGNERS["localhost-serving-signer"], "x", ["localhost"], DAY)
    return renders.ControlPlane(
        serving=(shown,),
        client_authorities=KUBELETS.certificate,
        server_authorities=SIGNERS["localhost-serving-signer"].certificate,
        csr_signer=KUBELETS,
        token_keys=(PUBLIC,),
        token_signing_key=KEY,
        admin_kubeconfig="",
    )


def story(tell: Callable[[sites.Site, cluster.Cluster], Awaitable[None]]) -> None:
    async def told() -> None:
        site = sites.Site(clocks.Clock(1000))
        await site.start()
        found = cluster.Cluster(site, ABOUT, material())
        try:
            await tell(site, found)
        finally:
            await found.stop()
            await site.stop()

    asyncio.run(told())


async def born(site: sites.Site, found: cluster.Cluster) -> instance.Instance:
    """A bootstrap machine that runs etcd, the API server and the controller manager."""
    machine = instance.Instance(site, "bootstrap", b"")
    machine.state = instance.RUNNING
    found.bootstrap = machine
    found.etcd.add(etcd.BOOTSTRAP, machine)
    for component in (static_pods.ETCD, static_pods.API_SERVER, static_pods.CONTROLLER_MANAGER):
        static_pods.place(component, machine)
        await found.run(component, machine)
    for namespace in (renders.KUBE_APISERVER_OPERATOR, renders.CONFIG_MANAGED, "openshift-kube-apiserver"):
        found.put({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})
    return machine


def test_it_lives_while_somebody_serves_and_etcd_is_whole() -> None:
    async def tell(site: sites.Site, found: cluster.Cluster) -> None:
        assert not found.alive
        machine = await born(site, found)
        assert found.alive

        await machine.partition()
        assert (found.alive, found.api.available()) == (False, "etcdserver: request timed out")

        await machine.heal()
        assert found.alive

        await machine.power_off()
        assert not found.alive

    story(tell)


def test_what_lies_on_a_disk_is_started_again_and_what_was_taken_away_is_not() -> None:
    async def tell(site: sites.Site, found: cluster.Cluster) -> None:
        machine = await born(site, found)
        await found.end(static_pods.CONTROLLER_MANAGER, machine)
        await machine.power_off()
        machine.state = instance.RUNNING
        await machine.wire.open()

        await found.supervise(machine)
        assert machine.wire.listening == []  # a start takes its time
        while len(machine.wire.listening) < 2:
            await found.tick()
            await found.supervise(machine)

        assert sorted(machine.wire.listening) == ["etcd", "kube-apiserver"]

    story(tell)


def names_of(pair: credentials.Pair) -> list[str]:
    leaf = credentials.certificates(pair.certificate, "x")[0]
    found = leaf.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    return [*found.get_values_for_type(x509.DNSName), *map(str, found.get_values_for_type(x509.IPAddress))]


def give_signers(found: cluster.Cluster) -> None:
    for name, pair in SIGNERS.items():
        found.put(renders.tls_secret(renders.KUBE_APISERVER_OPERATOR, name, pair))


def test_masters_certificates_name_what_the_infrastructure_names() -> None:
    async def tell(site: sites.Site, found: cluster.Cluster) -> None:
        await born(site, found)
        with pytest.raises(serving.NoSigner, match='secret "service-network-serving-signer" not found'):
            found.certificates.pairs()

        give_signers(found)
        service, localhost, external, internal = found.certificates.pairs()

        assert "172.30.0.1" in names_of(service)
        assert "kubernetes.default.svc" in names_of(service)
        assert names_of(localhost) == ["localhost", "127.0.0.1"]
        assert names_of(external) == ["api.harbour.example.com"]
        assert names_of(internal) == ["api-int.harbour.example.com"]
        assert found.certificates.pairs() == (service, localhost, external, internal)
        assert not found.certificates.worn

    story(tell)


def test_old_certificates_are_replaced() -> None:
    async def tell(site: sites.Site, found: cluster.Cluster) -> None:
        await born(site, found)
        give_signers(found)
        # So short that two thirds of it are over as soon as it is made.
        short = serving.Certificates(found.api, ABOUT, datetime.timedelta(seconds=70))

        first = short.pairs()

        assert short.worn
        assert not {pair.certificate for pair in short.pairs()} & {pair.certificate for pair in first}

    story(tell)


def test_the_cluster_s_own_signer_is_believed_before_it_signs() -> None:
    async def tell(site: sites.Site, found: cluster.Cluster) -> None:
        machine = await born(site, found)
        manager = signing.ControllerManager(found)
        assert manager._signer() is KUBELETS

        found.put({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "openshift-kube-controller-manager"}})
        await manager.make_signer()

        own = manager._own[-1]
        assert own.certificate in found.access.client_ca
        assert KUBELETS.certificate in found.access.client_ca
        # As long as the bootstrap's controller manager runs, it is the one that signs.
        assert manager._signer() is KUBELETS
        await found.end(static_pods.CONTROLLER_MANAGER, machine)
        assert manager._signer() is None
        await manager.make_signer()
        assert manager._own == [own]

    story(tell)


def test_nothing_is_signed_without_etcd() -> None:
    async def tell(site: sites.Site, found: cluster.Cluster) -> None:
        machine = await born(site, found)
        manager = signing.ControllerManager(found)
        await manager.work()
        assert manager._tasks

        await machine.partition()
        await manager.work()

        assert manager._tasks == []

    story(tell)


def test_tokens_are_filled_once_their_account_is_there() -> None:
    async def tell(site: sites.Site, found: cluster.Cluster) -> None:
        await born(site, found)
        manager = signing.ControllerManager(found)
        metadata = {
            "name": "token",
            "namespace": "default",
            "annotations": {"kubernetes.io/service-account.name": "sailor"},
        }
        kind = "kubernetes.io/service-account-token"
        found.put({"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "type": kind})
        await manager.work()
        assert not signing.token_of(found.find("", "Secret", "default", "token"))

        account = {"name": "sailor", "namespace": "default"}
        found.put({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": account})
        await manager.work()

        assert signing.token_of(found.find("", "Secret", "default", "token")).count(".") == 2

    story(tell)
