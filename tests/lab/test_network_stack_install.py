"""A cluster on the product's own network services: virtual addresses, names and balancing are the nodes' own affair."""

from __future__ import annotations

import asyncio
import http.client
import ipaddress
import json
import ssl
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

from moorage.assets import ignition, objects
from moorage.installer import produce
from moorage.lab import client
from moorage.network import settings, stack
from tests.lab import administrator, rack

# Slower than it could be: where the machine is busy, bootkube must not run out of the cloud's time.
SPEED = 60.0
API, HTTPS = 6443, 443
MASTERS = ("master-0", "master-1", "master-2")
WORKERS = ("worker-0", "worker-1")


def stack_of(lab: client.Lab) -> settings.Settings:
    """The settings of a cluster in this lab: its virtual addresses are those that no machine is given."""
    network = ipaddress.ip_network(lab.network)
    machines = next(network.subnets(new_prefix=20))
    return settings.Settings(
        infra_id="harbour-abcde",
        cluster_domain=rack.DOMAIN,
        api_vips=(str(network[100]),),
        ingress_vips=(str(network[101]),),
        machine_networks=(str(machines),),
    )


def bring_stack(directory: Path, wanted: settings.Settings, make: Callable[..., produce.Produced]) -> None:
    """Extend the manifests and bootstrap.ign, as a platform that needs the network services does."""
    config = directory / "install-config.yaml"
    config.write_text(config.read_text() + "compute:\n- name: worker\n  replicas: 2\n")
    make(directory, produce.MANIFESTS)
    for name, manifest in stack.machine_configs(wanted).items():
        (directory / "openshift" / name).write_bytes(objects.to_yaml(manifest))
    for name, manifest in stack.cluster_manifests(wanted).items():
        (directory / "openshift" / name).write_bytes(objects.to_yaml(manifest))
    make(directory)
    path = directory / "bootstrap.ign"
    bootstrap = json.loads(path.read_bytes())
    for file in stack.bootstrap_files(wanted):
        contents = {"source": ignition.data_url(file.contents)}
        bootstrap["storage"]["files"].append(
            {"path": file.path, "mode": file.mode, "overwrite": True, "contents": contents}
        )
    path.write_text(json.dumps(bootstrap))


def answers(address: str, port: int, path: str, host: str = "") -> int:
    """The status that comes back from an address, 0 if none does."""
    anybody = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    anybody.check_hostname, anybody.verify_mode = False, ssl.CERT_NONE
    connection = http.client.HTTPSConnection(address, port, timeout=2, context=anybody)
    try:
        connection.request("GET", path, headers={"Host": host} if host else {})
        return connection.getresponse().status
    except (OSError, http.client.HTTPException):
        return 0
    finally:
        connection.close()


async def let_in(kubeconfig: Path, many: int) -> None:
    """Be the administrator until all nodes are Ready."""
    async with administrator.of(kubeconfig) as cluster, administrator.at_work(cluster) as nodes, asyncio.timeout(120):
        await nodes.until(many)


def masters(scene: rack.Rack, names: Iterable[str], router: str) -> list[str]:
    """The machines whose last word about a virtual router was that they are its master."""
    found = []
    for name in names:
        lines = scene.plain.console(name).splitlines()
        said = [line for line in lines if f"_{router}_4) Entering" in line or "power off" in line]
        if said and "Entering MASTER STATE" in said[-1]:
            found.append(name)
    return found


def holder(scene: rack.Rack, names: Iterable[str], router: str) -> str:
    """The one master, once the others have heard of it."""
    among = list(names)
    scene.until(lambda: len(masters(scene, among, router)) == 1, f"{router} has one master")
    return masters(scene, among, router)[0]


@pytest.mark.long
def test_a_cluster_comes_up_on_its_own_network_services(
    ready_dir: Path, make: Callable[..., produce.Produced], tmp_path: Path
) -> None:
    with rack.unhurried_lab(tmp_path / "lab", SPEED) as lab:
        # Given: names for the outside, and api-int for Ignition alone, which runs before anything of ours does.
        wanted = stack_of(lab)
        bring_stack(ready_dir, wanted, make)
        scene = rack.Rack(lab, ready_dir, workers=2, listeners=(), names=())
        scene.plain.zone("example.com")
        for name in ("api", "api-int"):
            scene.plain.record(f"{name}.{rack.DOMAIN}", wanted.api_vips[0])
        scene.plain.record(f"*.apps.{rack.DOMAIN}", wanted.ingress_vips[0])

        # When: the cluster is installed, and api-int is taken out of the DNS on the way.
        scene.power_on()
        bootstrapped = scene.moorage("wait-for", "bootstrap-complete")
        assert bootstrapped.returncode == 0, f"{bootstrapped.stderr}\n{scene.consoles()}"
        assert scene.says("bootstrap", "network-monitor: the API here failed 5 checks")
        scene.plain.delete_machine("bootstrap")
        del scene.addresses["bootstrap"]
        kubeconfig = tmp_path / "kubeconfig"
        kubeconfig.write_text(lab.control("GET", "/lab/kubeconfig"))
        asyncio.run(let_in(kubeconfig, len(MASTERS) + len(WORKERS)))
        scene.plain.call("DELETE", f"/v1/records/api-int.{rack.DOMAIN}/A")
        installed = scene.moorage("wait-for", "install-complete")

        # Then: it comes up, and each virtual address moves when the machine that has it dies.
        assert installed.returncode == 0, f"{installed.stderr}\n{scene.consoles()}"
        first = holder(scene, MASTERS, "API")
        scene.strike(first, "kill")
        scene.until(lambda: answers(wanted.api_vips[0], API, "/readyz") == 200, "the API is back")
        assert holder(scene, set(MASTERS) - {first}, "API") != first

        console = f"console-openshift-console.apps.{rack.DOMAIN}"
        scene.until(lambda: answers(wanted.ingress_vips[0], HTTPS, "/", console) == 200, "the ingress answers")
        router = holder(scene, (*MASTERS, *WORKERS), "INGRESS")
        scene.strike(router, "kill")
        scene.until(lambda: answers(wanted.ingress_vips[0], HTTPS, "/", console) == 200, "the ingress is back")
