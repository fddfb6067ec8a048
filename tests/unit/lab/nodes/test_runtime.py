"""Pods on machines that are up, down, cut off or rebooted."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from moorage.lab.nodes import conditions, instance, runtime
from tests.unit.lab.nodes import node_world
from tests.unit.lab.nodes.node_world import World, until


def story(tell: Callable[[World, instance.Instance], Awaitable[None]]) -> None:
    async def told() -> None:
        async with node_world.world(signer=False) as world:
            machine = world.machine("worker-0")
            machine.state = instance.RUNNING
            world.cluster.put({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "worker-0"}, "spec": {}})
            addresses = [{"type": "InternalIP", "address": machine.address}]
            world.cluster.change("", "Node", "", "worker-0", lambda node: node["status"].update(addresses=addresses))
            world.cluster.spawn(runtime.run(world.cluster), "runtime")
            await asyncio.sleep(0)
            await tell(world, machine)

    asyncio.run(told())


def pod(world: World, name: str = "p") -> dict[str, Any]:
    return world.find("Pod", name, "default") or {}


def phase(world: World, name: str = "p") -> str:
    return str((pod(world, name).get("status") or {}).get("phase", ""))


async def a_while(world: World, seconds: float = 120.0) -> None:
    """Far longer than a pod takes to start or end."""
    begun = world.clock.now()
    await until(lambda: world.clock.now() > begun + seconds, "time")


def test_a_pod_on_a_live_node_runs_after_a_while() -> None:
    async def tell(world: World, machine: instance.Instance) -> None:
        begun = world.clock.now()
        world.pod("p", "worker-0", hostNetwork=True)
        world.pod("q", "worker-0")
        world.pod("unbound")
        await until(lambda: (phase(world), phase(world, "q")) == ("Running", "Running"), "they run")

        assert world.clock.now() - begun >= runtime.START_SECONDS
        assert conditions.true(pod(world), "Ready")
        assert pod(world)["status"]["podIP"] == machine.address
        assert pod(world, "q")["status"]["podIP"].startswith("10.128.")
        assert [each["name"] for each in pod(world)["status"]["containerStatuses"]] == ["c"]
        assert phase(world, "unbound") == "Pending"

    story(tell)


def test_a_deleted_pod_ends_and_leaves_nothing_behind() -> None:
    async def tell(world: World, machine: instance.Instance) -> None:
        world.pod("p", "worker-0")
        await until(lambda: phase(world) == "Running", "it runs")

        world.delete("Pod", "p", "default")
        assert pod(world)["metadata"]["deletionTimestamp"], "it is given the time to end"
        await until(lambda: pod(world) == {}, "it is gone")

        # Deleted before it ran, and made anew under the same name: a start of its own.
        world.pod("p", "worker-0")
        world.delete("Pod", "p", "default", grace=0)
        begun = world.clock.now()
        world.pod("p", "worker-0")
        await until(lambda: phase(world) == "Running", "the second runs")
        assert world.clock.now() - begun >= runtime.START_SECONDS

    story(tell)


def test_a_dead_node_neither_starts_nor_ends_anything() -> None:
    async def tell(world: World, machine: instance.Instance) -> None:
        world.pod("old", "worker-0")
        await until(lambda: phase(world, "old") == "Running", "it runs")

        await machine.power_off()
        world.pod("new", "worker-0")
        world.delete("Pod", "old", "default")
        await a_while(world)
        assert phase(world, "new") == "Pending"
        assert phase(world, "old") == "Running", "nobody can say that it has ended"

        machine.state = instance.RUNNING
        await until(lambda: phase(world, "new") == "Running" and pod(world, "old") == {}, "both, once it is back")

    story(tell)


def test_a_node_that_is_cut_off_says_nothing_and_its_pods_are_ready_again_after_it() -> None:
    async def tell(world: World, machine: instance.Instance) -> None:
        world.pod("p", "worker-0")
        await until(lambda: phase(world) == "Running", "it runs")
        before = pod(world)["status"]["startTime"]

        await machine.partition()
        world.cluster.change(
            "", "Pod", "default", "p", lambda each: conditions.put(each, "t", "Ready", "False", "NodeStatusUnknown", "")
        )
        await a_while(world)
        assert not conditions.true(pod(world), "Ready")

        await machine.heal()
        await until(lambda: conditions.true(pod(world), "Ready"), "ready again")
        assert pod(world)["status"]["startTime"] == before, "it was never restarted"

    story(tell)


def test_without_an_api_nothing_changes() -> None:
    async def tell(world: World, machine: instance.Instance) -> None:
        world.pod("p", "worker-0")
        await world.server.partition()
        await a_while(world)
        assert phase(world) == "Pending"

        await world.server.heal()
        await until(lambda: phase(world) == "Running", "it runs")

    story(tell)


def test_mirrors_run_but_their_readiness_is_others_affair() -> None:
    async def tell(world: World, machine: instance.Instance) -> None:
        world.cluster.put(
            {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {
                    "name": "p",
                    "namespace": "default",
                    "annotations": {"kubernetes.io/config.mirror": "0123"},
                },
                "spec": {"nodeName": "worker-0", "containers": [{"name": "c", "image": "i"}]},
            }
        )
        await until(lambda: phase(world) == "Running", "it runs")

        world.cluster.change(
            "", "Pod", "default", "p", lambda each: conditions.put(each, "t", "Ready", "False", "Crashed", "")
        )
        await a_while(world, 40)
        assert conditions.found(pod(world), "Ready")["reason"] == "Crashed"

    story(tell)


def test_a_pod_whose_node_nobody_knows_waits() -> None:
    async def tell(world: World, machine: instance.Instance) -> None:
        world.pod("p", "nowhere")
        await a_while(world, 60)

        assert phase(world) == "Pending"

    story(tell)
