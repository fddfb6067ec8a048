"""The lab's engine, and the product's own way to it: surroundings, a client, machines as a cluster wants them."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import yaml
from ovirtsdk4 import types

from moorage.assets import releases
from moorage.engine import clock as clocks
from moorage.engine import context, outputs, progress
from moorage.lab import boot_image, faults
from moorage.lab.ovirt import shape
from moorage.platforms import contract
from moorage.platforms.ovirt import client as clients
from moorage.platforms.ovirt import infra, machine, names, template
from tests.unit.lab.ovirt import engine_world

INFRA = "harbour-x7k2p"
GROUP = f"{INFRA}-controlplane"
IGNITION = b'{"ignition":{"version":"3.2.0"}}'


@dataclasses.dataclass
class Place:
    """An engine and a cluster that shall go there."""

    running: engine_world.Running
    around: contract.Surroundings
    folder: Path
    traced: list[str]
    told: list[progress.Event] = dataclasses.field(default_factory=list)

    def __post_init__(self) -> None:
        self.client = clients.Client(self.around)
        self.actuator = machine.Actuator(self.client)

    @property
    def clock(self) -> clocks.Clock:
        return self.around.clock

    # -- the engine's side -------------------------------------------------------------------------------------------

    def all(self, kind: str) -> list[dict[str, Any]]:
        return self.running.tell(lambda: [dict(each) for each in self.running.engine.inventory.all(kind)])

    def doc(self, kind: str, name: str) -> dict[str, Any] | None:
        return next((each for each in self.all(kind) if each["name"] == name), None)

    def change(self, kind: str, name: str, **fields: Any) -> None:
        """Somebody changes a thing behind our back."""

        def change() -> None:
            found = self.running.engine.inventory.named(kind, name)
            assert found is not None
            found.update(fields)

        self.running.tell(change)

    def fault(self, action: str, method: str = "*", path: str = "**", **more: Any) -> None:
        """Order the lab to misbehave, once unless told otherwise."""
        document = {"action": action, "method": method, "path": path, "nth": 1, **more}
        self.running.tell(lambda: self.running.site.faults.add(faults.from_json(document)))

    def group(self, name: str = GROUP, *, enforcing: bool = True) -> None:
        """An affinity group, as the flow makes it before the VMs."""
        wanted = types.AffinityGroup(
            name=name,
            description=names.mark(INFRA),
            vms_rule=types.AffinityRule(enabled=True, positive=False, enforcing=enforcing),
        )
        cluster = self.id("clusters", "Default")
        self.client.call(
            "make a group",
            lambda api: api.clusters_service().cluster_service(cluster).affinity_groups_service().add(wanted),
        )

    def foreign_vm(self, name: str, description: str = "somebody else's") -> str:
        return str(self.running.tell(lambda: shape.add_vm(self.running.engine, name, description)))

    def id(self, kind: str, name: str) -> str:
        found = self.doc(kind, name)
        assert found is not None, f"there is no {name} among the {kind}"
        return str(found["id"])

    def calls(self, since: int = 0) -> list[str]:
        """What the client asked for, in order: method and path."""
        return [" ".join(line.split(": ")[-1].split(" ")[:2]).split("?")[0] for line in self.traced[since:]]

    def writes(self, since: int = 0) -> list[str]:
        """The changes that were asked for; a start that the engine was too busy for is asked for again."""
        lines = zip(self.calls(since), self.traced[since:], strict=True)
        made = [call for call, line in lines if not (call.endswith("/start") and line.endswith("-> 409"))]
        return [each for each in made if not each.startswith("GET") and "/sso/" not in each]

    # -- the cluster's side ------------------------------------------------------------------------------------------

    def machine(self, name: str = "master-0", role: str = "master", **spec: Any) -> contract.Machine:
        wanted: dict[str, object] = {
            "apiVersion": "ovirtproviderconfig.machine.openshift.io/v1beta1",
            "kind": "OvirtMachineProviderSpec",
            "cluster_id": self.id("clusters", "Default"),
            "template_name": "somebodys-rhcos",
            "storage_domain_id": self.id("storage_domains", "data"),
            "cpu": {"sockets": 1, "cores": 4, "threads": 2},
            "memory_mb": 8192,
            "guaranteed_memory_mb": 8192,
            "os_disk": {"size_gb": 120},
            "type": "server",
            "clone": False,
            **spec,
        }
        return contract.Machine(f"{INFRA}-{name}", INFRA, role, wanted, IGNITION)

    def ctx(self, resource: str = "it", seconds: float = 7200.0, **more: Any) -> context.Context:
        return context.Context(
            resource=resource,
            clock=self.clock,
            deadline=self.clock.deadline(seconds, resource),
            emit=self.told.append,
            **more,
        )

    def waits(self) -> list[str]:
        return [each.what for each in self.told if isinstance(each, progress.Waiting)]

    def tag(self) -> infra.Tag:
        return infra.Tag(name="tag", client=self.client, infra_id=INFRA, tag=names.tag(INFRA))

    def template(self, image: Path | None = None) -> template.Template:
        path = image or self.folder / "boot.qcow2"
        if image is None and not path.exists():
            boot_image.write(path)
        return template.Template(
            name="template",
            client=self.client,
            environ=self.around.environ,
            infra_id=INFRA,
            image=releases.BootImage(str(path)),
            cluster_id=self.id("clusters", "Default"),
            storage_domain_id=self.id("storage_domains", "data"),
            network="ovirtmgmt",
        )

    def tagged(self) -> None:
        """The cluster's tags exist, as the flow has them before any VM."""
        for tag in (names.tag(INFRA), names.bootstrap_tag(INFRA)):
            infra.Tag(name="tag", client=self.client, infra_id=INFRA, tag=tag).create(NO_INPUTS, self.ctx())

    def until_ready(self, machine: contract.Machine, seconds: float = 9000.0) -> contract.Instance:
        """Come again and again, as a flow or a controller does."""

        def ready() -> contract.Instance | None:
            found = self.actuator.update(machine)
            return found if found.ready else None

        return self.ctx(machine.name, seconds).poll(ready, what="it", every=5.0)

    def until(self, condition: Callable[[], bool], seconds: float | None = None) -> None:
        self.running.until(condition, seconds)


NO_INPUTS = outputs.Inputs("it", {})


@contextlib.contextmanager
def started(folder: Path, speed: float = engine_world.SPEED) -> Iterator[Place]:
    with engine_world.started(folder, speed) as running:
        running.tell(lambda: shape.add_template(running.engine, "somebodys-rhcos", "of the user's", "rhcos_x64"))
        path = folder / "ovirt-config.yaml"
        path.touch(mode=0o600)
        path.write_text(yaml.safe_dump(running.served.config()))
        environ = {"OVIRT_CONFIG": str(path), "XDG_CACHE_HOME": str(folder / "cache")}
        traced: list[str] = []
        place = Place(running, contract.Surroundings(environ, clocks.Clock(speed), traced.append), folder, traced)
        try:
            yield place
        finally:
            place.client.close()
