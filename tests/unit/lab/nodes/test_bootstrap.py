"""A cluster is born: from the product's own bootstrap.ign to an API that answers, and what keeps it from that."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from moorage.engine import clock as clocks
from moorage.lab import site as sites
from moorage.lab.nodes import api_client, credentials, instance, network, static_pods
from tests.unit.lab.nodes.node_world import until

Object = dict[str, Any]

SPEED = 400.0
TLS = "/opt/openshift/tls"


@contextlib.asynccontextmanager
async def datacentre() -> AsyncIterator[sites.Site]:
    site = sites.Site(clocks.Clock(SPEED))
    await site.start()
    try:
        yield site
    finally:
        await site.stop()


def said(machine: instance.Instance, words: str) -> bool:
    return any(words in line for line in machine.console)


def edited(content: bytes, **files: bytes | None) -> bytes:
    """bootstrap.ign with some files of tls/ replaced or (None) left out; names with _ for - and the last ."""
    document = json.loads(content)
    wanted = {f"{TLS}/{name.replace('__', '.').replace('_', '-')}": data for name, data in files.items()}
    kept = []
    for file in document["storage"]["files"]:
        if file["path"] in wanted:
            data = wanted[file["path"]]
            if data is None:
                continue
            file["contents"] = {"source": "data:;base64," + base64.b64encode(data).decode()}
        kept.append(file)
    document["storage"]["files"] = kept
    return json.dumps(document).encode()


def story(tell: Callable[[sites.Site], Awaitable[None]]) -> None:
    async def told() -> None:
        async with datacentre() as site:
            await tell(site)

    asyncio.run(told())


def test_the_api_answers_to_the_administrator_and_masters_get_their_config(cluster_dir: Path) -> None:
    async def tell(site: sites.Site) -> None:
        machine = instance.Instance(site, "bootstrap", (cluster_dir / "bootstrap.ign").read_bytes())
        await machine.power_on()
        await until(lambda: said(machine, 'Created "worker.machineconfigpool.yaml"'), "manifests")

        # The administrator's kubeconfig leads to the machine by name, as a record would.
        async def record(_name: str) -> list[str]:
            return [machine.address]

        wire = network.Wire(site, site.allocate())
        wire.resolvers.insert(0, record)
        admin = api_client.from_kubeconfig(wire, (cluster_dir / "auth" / "kubeconfig").read_bytes())
        infrastructure = await admin.get("/apis/config.openshift.io/v1/infrastructures/cluster")
        assert infrastructure["status"]["apiServerURL"] == "https://api.harbour.example.com:6443"
        version = await admin.get("/apis/config.openshift.io/v1/clusterversions/version")
        assert version["spec"]["overrides"]
        pointer = json.loads((cluster_dir / "master.ign").read_bytes())
        source = pointer["ignition"]["config"]["merge"][0]["source"]
        authority = pointer["ignition"]["security"]["tls"]["certificateAuthorities"][0]["source"]
        trust = network.trusting(base64.b64decode(authority.partition(",")[2]).decode())
        accept = {"Accept": "application/vnd.coreos.ignition+json;version=3.5.0, */*;q=0.1"}
        config = await wire.request("GET", source, headers=accept, tls=trust)
        assert config.status == 200
        paths = [file["path"] for file in json.loads(config.body)["storage"]["files"]]
        assert "/etc/kubernetes/kubeconfig" in paths
        assert not said(machine, "warnings.go"), "the product's manifests hold fields that nobody knows"
        # Whoever shows no certificate is nobody, and may not read.
        nobody = api_client.Client(wire, admin.server, admin.authority)
        with pytest.raises(api_client.Refused, match="forbidden"):
            await nobody.get("/api/v1/nodes")
        await wire.close()

    story(tell)


@pytest.mark.parametrize(
    ("files", "words"),
    [
        ({"kube_apiserver_lb_server__crt": None}, f"open {TLS}/kube-apiserver-lb-server.crt: no such file"),
        ({"kubelet_signer__key": b"paper"}, "kubelet-signer.key: failed to parse private key"),
        ({"machine_config_server__key": None}, f"open {TLS}/machine-config-server.key: no such file"),
    ],
)
def test_a_broken_file_is_named_and_no_api_comes_up(
    cluster_dir: Path, files: dict[str, bytes | None], words: str
) -> None:
    async def tell(site: sites.Site) -> None:
        content = edited((cluster_dir / "bootstrap.ign").read_bytes(), **files)
        machine = instance.Instance(site, "bootstrap", content)
        await machine.power_on()

        await until(lambda: said(machine, "Scheduled restart job"), "bootkube fails")

        assert said(machine, words)
        assert not said(machine, "API is up")
        assert site.clusters == {}

    story(tell)


def test_an_expired_certificate_is_served_and_refused_by_bootkube_itself(cluster_dir: Path) -> None:
    dead = credentials.authority("dead", credentials.DAY / 86400)
    pair = credentials.serving(dead, "system:kube-apiserver", ["localhost"], credentials.DAY)

    async def tell(site: sites.Site) -> None:
        content = edited(
            (cluster_dir / "bootstrap.ign").read_bytes(),
            kube_apiserver_localhost_server__crt=pair.certificate.encode(),
            kube_apiserver_localhost_server__key=pair.key.encode(),
        )
        machine = instance.Instance(site, "bootstrap", content)
        await machine.power_on()

        await until(lambda: said(machine, "failed to fetch discovery"), "cluster-bootstrap refuses it")

        assert said(machine, "warning: /opt/openshift/tls/kube-apiserver-localhost-server.crt: x509: certificate has")
        assert not said(machine, 'Created "')

    story(tell)


def test_a_rebooted_bootstrap_goes_on_where_it_was(cluster_dir: Path) -> None:
    async def tell(site: sites.Site) -> None:
        machine = instance.Instance(site, "bootstrap", (cluster_dir / "bootstrap.ign").read_bytes())
        await machine.power_on()
        await until(lambda: said(machine, 'Created "worker.machineconfigpool.yaml"'), "manifests")
        [cluster] = site.clusters.values()
        before = cluster.find("config.openshift.io", "Infrastructure", "", "cluster")

        await machine.power_off()
        assert not cluster.alive
        assert cluster.api.available() == "etcdserver: request timed out"
        machine.console.clear()
        await machine.power_on()
        await until(lambda: said(machine, 'Skipped "worker.machineconfigpool.yaml"'), "manifests found again")

        assert list(site.clusters.values()) == [cluster]
        assert cluster.find("config.openshift.io", "Infrastructure", "", "cluster") == before
        assert not said(machine, "stage api-bootstrap: start")
        assert cluster.alive
        assert static_pods.runs(static_pods.MACHINE_CONFIG_SERVER, machine)

    story(tell)


def test_names_that_do_not_resolve_are_told_and_no_reason_to_stop(cluster_dir: Path) -> None:
    async def tell(site: sites.Site) -> None:
        machine = instance.Instance(site, "bootstrap", (cluster_dir / "bootstrap.ign").read_bytes())
        await machine.power_on()

        await until(lambda: said(machine, "API is up"), "the API")

        assert said(machine, "warning: resolve-api-url failed: lookup api.harbour.example.com on")

    story(tell)
