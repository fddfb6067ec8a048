"""A cluster after its bootstrap: nodes, names and routers, and the operators that look at them."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

from moorage.lab import names
from moorage.lab.nodes import cluster as clusters
from moorage.lab.nodes import (
    conditions,
    instance,
    operands,
    operators,
    payload,
    router,
    runtime,
    static_pods,
)
from tests.unit.lab.nodes import node_world
from tests.unit.lab.nodes.node_world import World, until

Object = dict[str, Any]
APPS = f"apps.{node_world.DOMAIN}"
IMAGE = "quay.example.com/release:4.20.33-x86_64"


@dataclasses.dataclass
class Scene:
    """A cluster whose machines are up, and its operators, who look when they are told to."""

    world: World
    operators: operators.Operators
    skipped: float = 0.0

    @property
    def cluster(self) -> clusters.Cluster:
        return self.world.cluster

    async def look(self, seconds: float = 0.0) -> None:
        """Let time pass and the operators look, as often as it takes for one to build on another."""
        for _ in range(8):
            self.skipped += seconds / 8
            await self.operators.look()

    async def settled(self) -> None:
        """Wait for the routers, then for everybody's work."""
        await until(lambda: self.routers() or not self.operators.workers(), "routers run")
        await self.look(8000)

    def routers(self) -> list[str]:
        kind = self.cluster.api.kind("", "Pod")
        pods = [entry.object for entry in self.cluster.api.entries(kind, router.NAMESPACE)]
        deployment = self.cluster.find("apps", "Deployment", router.NAMESPACE, "router-default") or {}
        wanted = min(deployment["spec"]["replicas"], len(self.operators.workers()))
        running = sorted(pod["spec"]["nodeName"] for pod in pods if pod["status"]["phase"] == "Running")
        available = (deployment.get("status") or {}).get("availableReplicas", 0)
        return running if available >= wanted > 0 else []

    def condition(self, name: str, kind: str) -> Object:
        return conditions.found(self.cluster.find(operators.GROUP, "ClusterOperator", "", name) or {}, kind)

    def version(self) -> Object:
        return self.cluster.find(operators.GROUP, "ClusterVersion", "", "version") or {}

    def unavailable(self) -> set[str]:
        return {each.name for each in operators.OPERATORS if self.condition(each.name, "Available")["status"] != "True"}

    async def add_node(self, name: str, *roles: str) -> instance.Instance:
        """A machine that is up and Ready; masters run the control plane."""
        machine = self.world.machine(name)
        machine.state = instance.RUNNING
        labels = {f"node-role.kubernetes.io/{role}": "" for role in roles} | {"kubernetes.io/hostname": name}
        self.cluster.put({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels}, "spec": {}})
        status = {
            "addresses": [{"type": "InternalIP", "address": machine.address}],
            "allocatable": {"cpu": "4", "memory": "16Gi", "pods": "250"},
            "conditions": [{"type": "Ready", "status": "True"}],
        }
        self.cluster.change("", "Node", "", name, lambda node: node["status"].update(status))
        if "master" in roles:
            await run_control_plane(machine)
        return machine

    def set_ready(self, name: str, status: str) -> None:
        self.cluster.change("", "Node", "", name, lambda node: conditions.put(node, "t", "Ready", status, "", ""))


async def run_control_plane(machine: instance.Instance) -> None:
    for component in static_pods.CONTROL_PLANE:
        static_pods.place(component, machine)
        await machine.wire.serve(component.service, static_pods.Running)


@contextlib.asynccontextmanager
async def scene(
    monkeypatch: pytest.MonkeyPatch, masters: int = 3, workers: int = 2, **facts: Any
) -> AsyncIterator[Scene]:
    about = dataclasses.replace(node_world.ABOUT, control_plane_replicas=masters, **facts)
    async with node_world.world(about, signer=False) as world:
        for definition in payload.definitions():
            world.cluster.put(definition)
        for kind, name in (("ClusterVersion", "version"), ("Scheduler", "cluster")):
            spec = {"clusterID": "7"} if kind == "ClusterVersion" else {"mastersSchedulable": workers == 0}
            world.cluster.put(
                {"apiVersion": f"{operators.GROUP}/v1", "kind": kind, "metadata": {"name": name}, "spec": spec}
            )
        made = Scene(world, operators.Operators(world.cluster, "4.20.33", IMAGE))
        plain_now = world.clock.now
        with monkeypatch.context() as patch:
            patch.setattr(world.clock, "now", lambda: plain_now() + made.skipped)
            await world.cluster.kube.start_controllers()
            world.cluster.spawn(runtime.run(world.cluster), "runtime")
            for number in range(masters):
                await made.add_node(f"master-{number}", "master", "control-plane")
            machines = [await made.add_node(f"worker-{number}", "worker") for number in range(workers)]
            operands.prepare(world.cluster, made.operators.ingress)
            front = machines[0].address if machines else world.site.instances["master-0"].address
            world.site.zones.put(names.RecordSet(f"*.{APPS}", "A", (front,)))
            await made.operators.look()
            yield made


def story(tell: Callable[[Scene], Awaitable[None]], monkeypatch: pytest.MonkeyPatch, **shape: Any) -> None:
    async def told() -> None:
        async with scene(monkeypatch, **shape) as made:
            await tell(made)

    asyncio.run(told())
