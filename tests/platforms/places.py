"""The places that the conformance suite is run on: one entry per platform, each with its cloud and its controls.

A new platform adds one function here (a context manager that yields a `Place`) and its name to `PLACES`; the suite does
the rest.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from moorage.assets import keys
from moorage.engine import clock as clocks
from moorage.installer import produce
from moorage.lab import boot_image
from moorage.lab.ovirt import controls, payload
from moorage.platforms import contract
from tests.conftest import INSTALL_CONFIG
from tests.crash import harness
from tests.unit.lab.ovirt import engine_world

Inventory = list[dict[str, Any]]


@dataclasses.dataclass(frozen=True)
class Place:
    """A platform with a cloud behind it, and a cluster that shall go there."""

    name: str
    cluster: contract.Cluster
    around: contract.Surroundings
    #: All that exists, the things of others included, in a form that two equal clouds have in common.
    inventory: Callable[[], Inventory]
    #: Make things that bear another cluster's mark.
    settle_neighbour: Callable[[str], None]
    #: The same surroundings with credentials that nobody accepts.
    refused: Callable[[], contract.Surroundings]
    #: What the client's trace told.
    traced: list[str]

    @property
    def metadata(self) -> contract.Metadata:
        return contract.Metadata(self.name, self.cluster.infra_id, self.cluster.config.name)


def _cluster(
    folder: Path, config: str, ring: keys.Keyring, environ: Mapping[str, str] | None = None
) -> contract.Cluster:
    directory = harness.prepared(folder / "cluster", ring, config, environ)
    return produce.cluster(produce.produce(directory, ("boot_configs",), keys.KeySource(0), environ or {}))


@contextlib.contextmanager
def filecloud(folder: Path, ring: keys.Keyring) -> Iterator[Place]:
    """The file cloud of the crash tests, at its most inconvenient."""
    with harness.running(folder) as cloud:
        cloud.reset(lag=1)
        traced: list[str] = []
        around = contract.Surroundings(cloud.environ(), clocks.Clock(float(harness.SPEED)), traced.append)
        wrong = {**cloud.environ(), "FILECLOUD_TOKEN": "not-the-token"}
        yield Place(
            name="filecloud",
            cluster=_cluster(folder, harness.CONFIG, ring),
            around=around,
            refused=lambda: dataclasses.replace(around, environ=wrong),
            inventory=cloud.inventory,
            settle_neighbour=cloud.neighbour,
            traced=traced,
        )


@contextlib.contextmanager
def none(folder: Path, ring: keys.Keyring) -> Iterator[Place]:
    """Machines of the user's own: there is no cloud, so nothing can be there."""
    traced: list[str] = []
    around = contract.Surroundings({}, clocks.Clock(float(harness.SPEED)), traced.append)
    yield Place(
        name="none",
        cluster=_cluster(folder, INSTALL_CONFIG, ring),
        around=around,
        refused=lambda: around,
        inventory=list,
        settle_neighbour=lambda _infra_id: None,
        traced=traced,
    )


@contextlib.contextmanager
def ovirt(folder: Path, ring: keys.Keyring) -> Iterator[Place]:
    """The lab's oVirt engine, in the datacentre of a new lab."""
    with engine_world.started(folder, float(harness.SPEED)) as running:
        image, good, bad = folder / "boot.qcow2", folder / "ovirt-config.yaml", folder / "refused.yaml"
        boot_image.write(image)
        for path, change in ((good, {}), (bad, {"ovirt_password": "not-the-password"})):
            path.touch(mode=0o600)
            path.write_text(yaml.safe_dump(running.served.config() | change))
        environ = {"OVIRT_CONFIG": str(good), "XDG_CACHE_HOME": str(folder / "cache"), "HOME": str(folder)}
        traced: list[str] = []
        around = contract.Surroundings(environ, clocks.Clock(float(harness.SPEED)), traced.append)
        override = {"OPENSHIFT_INSTALL_OS_IMAGE_OVERRIDE": str(image)}
        built = _cluster(folder, _ovirt_config(running), ring, override)
        yield Place(
            name="ovirt",
            # The suite looks at what the platform does: machines that idle will do, and leave it the processor.
            cluster=dataclasses.replace(built, ignition=dict.fromkeys(built.ignition, payload.IDLE)),
            around=around,
            inventory=lambda: _ovirt_inventory(running),
            settle_neighbour=lambda infra_id: running.tell(lambda: _settle(running, infra_id)),
            refused=lambda: dataclasses.replace(around, environ={**environ, "OVIRT_CONFIG": str(bad)}),
            traced=traced,
        )


def _settle(running: engine_world.Running, infra_id: str) -> None:
    controls.neighbour(running.engine, infra_id)


def _ovirt_config(running: engine_world.Running) -> str:
    inventory = running.engine.inventory
    cluster, storage = inventory.named("clusters", "Default"), inventory.named("storage_domains", "data")
    profile = inventory.named("vnic_profiles", "ovirtmgmt")
    assert cluster
    assert storage
    assert profile
    network = running.site.network
    platform = {
        "ovirt_cluster_id": cluster["id"],
        "ovirt_storage_domain_id": storage["id"],
        "vnicProfileID": profile["id"],
        "api_vips": [str(network[200])],
        "ingress_vips": [str(network[201])],
    }
    config = yaml.safe_load(INSTALL_CONFIG)
    config["platform"] = {"ovirt": platform}
    config["compute"] = [{"name": "worker", "replicas": 2}]
    config["networking"] = {"machineNetwork": [{"cidr": str(network)}]}
    return yaml.safe_dump(config)


def _ovirt_inventory(running: engine_world.Running) -> Inventory:
    """What people see in the engine: machines and templates with their disks, loose disks, tags, groups."""
    engine = running.engine

    def found() -> Inventory:
        inventory = engine.inventory
        held = {each["disk"]["id"] for each in inventory.all("disk_attachments")}
        tags = {each["id"]: each["name"] for each in inventory.all("tags")}
        machines = {each["id"]: each["name"] for each in inventory.all("vms")}
        things = [
            {"kind": "vm", "name": each["name"], "tags": sorted(tags[tag] for tag in each.get("_tags", ()))}
            for each in inventory.all("vms")
        ]
        things += [{"kind": "template", "name": each["name"]} for each in inventory.all("templates")]
        things += [{"kind": "disk", "name": each["name"]} for each in inventory.all("disks") if each["id"] not in held]
        things += [{"kind": "tag", "name": name} for name in tags.values()]
        things += [
            {"kind": "group", "name": each["name"], "vms": sorted(machines[vm] for vm in each["_vms"])}
            for each in inventory.all("affinity_groups")
        ]
        return sorted(things, key=json.dumps)

    return running.tell(found)


PLACES = {"filecloud": filecloud, "none": none, "ovirt": ovirt}
"""Every platform."""

BUILT = ("filecloud", "ovirt")
"""The platforms on which moorage makes the machines."""
