"""Nodes and machines of a small cluster, and the controller that looks after the nodes."""

from __future__ import annotations

from typing import Any

from moorage.engine import clock as clocks
from moorage.engine import errors as platform_errors
from moorage.machines import credentials, nodelink, nodes, objects
from moorage.machines.runtime import errors, kinds, queue
from moorage.platforms import contract
from tests.unit.machines import followed, memory, yard

SPACE, INFRA = "openshift-machine-api", "berth-x7k2p"
WAITS = {"key": nodes.UNINITIALIZED, "value": "true", "effect": "NoSchedule"}


def machine(name: str = "m-1", *, provider: str = "yard://i-1", linked: str = "uid-n") -> dict[str, Any]:
    addresses = [{"type": "InternalIP", "address": "10.0.0.1"}, {"type": "InternalDNS", "address": name}]
    status: dict[str, Any] = {"addresses": addresses}
    if linked:
        status["nodeRef"] = {"kind": "Node", "name": name, "uid": linked}
    labels = {objects.ZONE_LABEL: "quay-1", objects.REGION_LABEL: "north", objects.TYPE_LABEL: "large"}
    metadata = {"name": name, "namespace": SPACE, "labels": labels}
    return {"metadata": metadata, "spec": {"providerID": provider} if provider else {}, "status": status}


def node(
    name: str = "m-1", *, ready: str = "True", provider: str = "", taints: list[Any] | None = None, of: str = ""
) -> dict[str, Any]:
    spec: dict[str, Any] = {"providerID": provider} if provider else {}
    if taints:
        spec["taints"] = taints
    annotations = {objects.MACHINE_ANNOTATION: of} if of else {}
    conditions = [{"type": "DiskPressure", "status": "False"}, {"type": "Ready", "status": ready}]
    return {
        "metadata": {"name": name, "uid": "uid-n", "annotations": annotations},
        "spec": spec,
        "status": {"conditions": conditions, "addresses": [{"type": "Hostname", "address": name}]},
    }


class Keyring:
    """Credentials that a test may change by putting another actuator in the scene's."""

    def __init__(self, scene: Scene) -> None:
        self._scene = scene
        self.refusals = 0

    def current(self) -> contract.Actuator:
        return self._scene.actuator

    def blot(self, failure: platform_errors.PlatformFailure) -> None:
        failure.args = (failure.message.replace("s3cr3t", "***"),)

    def refused(self) -> None:
        self.refusals += 1


class Scene:
    def __init__(self) -> None:
        self.clock = clocks.ManualClock()
        self.api = memory.Memory(self.clock)
        self.yard = yard.Yard(self.clock, building=0)
        self.actuator: contract.Actuator = self.yard
        self.keyring = Keyring(self)
        self.nodes = followed.informer_of(self.api, kinds.NODE)
        self.machines = followed.informer_of(self.api, kinds.MACHINE)
        nodelink.index(self.machines)
        nodelink.index_nodes(self.nodes)
        self.told: list[str] = []
        self.leads = True
        self.keys = queue.Queue(self.clock)
        self.kept = nodes.Nodes(
            self.api,  # type: ignore[arg-type]
            self.nodes,
            self.machines,
            credentials.Rotating(self.keyring),  # type: ignore[arg-type]
            nodes.Place(INFRA, ("10.0.0.5",), SPACE),
            source=self.keyring.current,
            clock=self.clock,
            tell=self.told.append,
            check=self.check,
        )
        self.kept.feed(self.keys)

    def check(self) -> None:
        if not self.leads:
            raise errors.NotLeader("this process leads no longer")

    def has(self, *things: dict[str, Any]) -> None:
        for thing in things:
            self.api.put(kinds.MACHINE if "namespace" in thing["metadata"] else kinds.NODE, thing)

    def afloat(self, name: str = "m-1") -> None:
        """Its instance is there."""
        self.yard.create(contract.Machine(name, INFRA, "worker", {}, b""))

    def reconcile(self, name: str = "m-1") -> float | None:
        self.nodes.step()
        self.machines.step()
        return self.kept.reconcile(name).requeue_after

    def node(self, name: str = "m-1") -> dict[str, Any] | None:
        return self.api.have(kinds.NODE, name)

    def twice(self) -> None:
        """Look, and look again when it asked to."""
        again = self.reconcile()
        self.clock.advance(again or 0.0)
        self.reconcile()
