"""A user of the lab's oVirt engine: an install-config with what the engine has, two names, and moorage to be run."""

from __future__ import annotations

import dataclasses
import ipaddress
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from moorage.lab import boot_image, client
from tests.lab import rack

NAME, BASE = "harbour", "example.com"
DOMAIN = f"{NAME}.{BASE}"
MADE = ("vms", "templates", "disks", "tags", "affinity_groups")

_CONFIG = """\
apiVersion: v1
metadata:
  name: {name}
baseDomain: {base}
controlPlane:
  name: master
  replicas: {masters}
compute:
- name: worker
  replicas: {workers}
networking:
  machineNetwork:
  - cidr: {network}
platform:
  ovirt:
    ovirt_cluster_id: {cluster}
    ovirt_storage_domain_id: {storage}
    ovirt_network_name: ovirtmgmt
    vnicProfileID: {profile}
    api_vips: [{api}]
    ingress_vips: [{ingress}]
    networkImage: registry.example.com/moorage:1
{more}pullSecret: '{{"auths":{{"registry.example.com":{{"auth":"aGFyYm91cjptYXN0ZXI="}}}}}}'
"""


@dataclasses.dataclass
class Scene:
    """One cluster to be made in a lab."""

    lab: client.Lab
    folder: Path
    masters: int = 3
    workers: int = 2
    #: Further lines of the platform's section.
    more: str = ""
    environ: dict[str, str] = dataclasses.field(default_factory=dict)

    def __post_init__(self) -> None:
        self.assets = self.folder / "cluster"
        self.assets.mkdir(mode=0o700, parents=True)
        network = ipaddress.ip_network(self.lab.network)
        self.api, self.ingress = str(network[100]), str(network[101])
        image = self.folder / "coreos.qcow2"
        boot_image.write(image)
        self.environ = {
            "OPENSHIFT_INSTALL_OS_IMAGE_OVERRIDE": str(image),
            **self.lab.environment,
            client.FOLDER: str(self.lab.folder),
            **self.environ,
        }
        plain = client.Plain(self.lab)
        plain.zone(BASE)
        plain.record(f"api.{DOMAIN}", self.api)
        plain.record(f"*.apps.{DOMAIN}", self.ingress)
        self.configure()
        self.before = self.things()

    def configure(self) -> None:
        """Write the install-config."""
        text = _CONFIG.format(
            name=NAME,
            base=BASE,
            masters=self.masters,
            workers=self.workers,
            network=self.lab.network,
            cluster=self.id("clusters", "Default"),
            storage=self.id("storage_domains", "data"),
            profile=self.id("vnic_profiles", "ovirtmgmt"),
            api=self.api,
            ingress=self.ingress,
            more="".join(f"    {line}\n" for line in self.more.splitlines()),
        )
        (self.assets / "install-config.yaml").write_text(text)

    def inventory(self) -> dict[str, Any]:
        found: dict[str, Any] = self.lab.control("GET", "/lab/ovirt")
        return found

    def id(self, kind: str, name: str) -> str:
        return next(str(each["id"]) for each in self.inventory()[kind] if each["name"] == name)

    def things(self) -> dict[str, str]:
        """What somebody made on the engine: kind and name by id."""
        inventory = self.inventory()
        return {each["id"]: f"{kind}/{each['name']}" for kind in MADE for each in inventory.get(kind, ())}

    def left(self) -> list[str]:
        """What is there now and was not before."""
        return sorted(name for identity, name in self.things().items() if identity not in self.before)

    def command(self, *words: str) -> list[str]:
        return [sys.executable, "-m", "moorage", *words, "--dir", str(self.assets)]

    def moorage(self, *words: str, patience: float = 240.0, **environ: str) -> subprocess.CompletedProcess[str]:
        """The program as a user runs it, with what `lab env` prints."""
        return subprocess.run(
            self.command(*words),
            env={**os.environ, **self.environ, **environ},
            check=False,
            capture_output=True,
            text=True,
            timeout=rack.unhurried(self.lab, patience),
        )

    def begin(self, *words: str, **environ: str) -> subprocess.Popen[str]:
        """The program, while others act."""
        return subprocess.Popen(
            self.command(*words),
            env={**os.environ, **self.environ, **environ},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def control(self, method: str, path: str, body: object = None) -> Any:
        return self.lab.control(method, path, body)

    def calls(self, service: str = "ovirt") -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.control("GET", f"/lab/calls?service={service}")
        return found

    @property
    def infra_id(self) -> str:
        return str(json.loads((self.assets / "metadata.json").read_text())["infraID"])

    def consoles(self) -> str:
        """What all machines said: for whoever has to find out why a test failed."""
        names = [each["name"] for each in self.control("GET", "/lab")["machines"]]
        return "\n".join(f"== {each}\n{self.control('GET', f'/lab/machines/{each}/console')[-3000:]}" for each in names)
