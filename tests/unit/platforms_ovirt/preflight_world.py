"""An engine that a cluster shall go to, for the look that is taken before anything is made."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from moorage.assets import values
from moorage.config import emit, findings, load
from moorage.lab.ovirt import shape
from moorage.platforms import contract, registry
from moorage.platforms.ovirt import preflight
from tests.unit.lab.ovirt import engine_world

INFRA = "demo-x7k2p"
MARK = f"moorage: {INFRA}"
RELEASE = values.Release("4.20.0", "stable", "quay.io/x@sha256:1", "", "amd64", "stable-4.20")


class World:
    """An engine with a user's credentials file, and the install-config that fits it."""

    def __init__(self, running: engine_world.Running, folder: Path) -> None:
        self.running = running
        self.file = folder / "ovirt-config.yaml"
        self.traced: list[str] = []
        self.sign_in(**running.served.config())

    def sign_in(self, **content: Any) -> None:
        self.file.touch(mode=0o600)
        self.file.write_text(yaml.safe_dump(content))

    def id_of(self, kind: str, name: str) -> str:
        found = self.running.engine.inventory.named(kind, name)
        assert found is not None
        return str(found["id"])

    def add(self, kind: str, **fields: Any) -> dict[str, Any]:
        return self.running.tell(lambda: self.running.engine.inventory.add(kind, fields))

    def add_vm(self, name: str, description: str, *, up: bool = False) -> None:
        self.add(
            "vms",
            name=name,
            description=description,
            status="up" if up else "down",
            cluster={"id": self.id_of("clusters", "Default")},
            cpu={"topology": {"sockets": 1, "cores": 4, "threads": 1}},
            _tags=[],
        )

    def reshape(self, **changes: Any) -> None:
        self.running.tell(lambda: shape.change(self.running.engine, changes))

    def address(self, number: int) -> str:
        return str(self.running.site.network[number])

    def cluster(
        self, platform: dict[str, Any] | None = None, masters: int = 3, workers: int = 2, **pool: Any
    ) -> contract.Cluster:
        settings = {
            "ovirt_cluster_id": self.id_of("clusters", "Default"),
            "ovirt_storage_domain_id": self.id_of("storage_domains", "data"),
            "vnicProfileID": self.id_of("vnic_profiles", "ovirtmgmt"),
            "api_vips": [self.address(200)],
            "ingress_vips": [self.address(201)],
            "networkImage": "registry.example.com/moorage:1",
            **({"defaultMachinePlatform": pool} if pool else {}),
            **(platform or {}),
        }
        written = {
            "apiVersion": "v1",
            "metadata": {"name": "demo"},
            "baseDomain": "example.com",
            "pullSecret": '{"auths":{"registry.example.com":{"auth":"dXNlcjpwYXNz"}}}',
            "controlPlane": {"name": "master", "replicas": masters},
            "compute": [{"name": "worker", "replicas": workers}],
            "networking": {"machineNetwork": [{"cidr": str(self.running.site.network)}]},
            "platform": {"ovirt": settings},
        }
        config = load.parse(emit.dump(written), registry.stanzas())[0]
        endpoints = values.Endpoints("demo.example.com", "api", "api-int", "", (), (), ())
        return contract.Cluster(config, values.ClusterID(INFRA, "u"), RELEASE, endpoints, {})

    def inspect(self, cluster: contract.Cluster) -> contract.Report:
        self.traced.clear()
        around = contract.Surroundings({"OVIRT_CONFIG": str(self.file)}, self.running.clock, self.traced.append)
        return preflight.inspect(cluster, around)

    def problems(self, cluster: contract.Cluster) -> list[findings.Finding]:
        return list(self.inspect(cluster).findings)
