"""A node whose pods' programs really run, with a stand-in that tells of itself in place of the real ones."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from moorage.lab.nodes import conditions, instance, program_life, programs, runtime
from tests.unit.lab.nodes import node_world
from tests.unit.lab.nodes.node_world import World, until

Object = dict[str, Any]

NODE = "master-0"
STAND_IN = (sys.executable, str(Path(__file__).with_name("stand_in_program.py")))
CONTAINER: Object = {
    "name": "machine-controllers",
    "image": "i",
    "command": ["moorage", "machine-api", "run", "--platform=ovirt", "--metrics-address=:8086", "--leader-elect"],
    "env": [
        {"name": "POD_NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
        {"name": "GREETING", "value": "ahoy"},
        {"name": "TMPDIR", "value": "/tmp"},
    ],
    "ports": [{"name": "metrics", "containerPort": 8086}],
}
PROBE = {"httpGet": {"path": "/readyz", "port": "metrics"}, "periodSeconds": 10, "timeoutSeconds": 5}


class Story:
    """A node, the pods on it, and what the stand-in has told of itself."""

    def __init__(self, world: World, machine: instance.Instance, folder: Path) -> None:
        self.world = world
        self.machine = machine
        self.folder = folder

    @property
    def api(self) -> Any:
        return self.world.cluster.api

    def pod(self, name: str = "p", **container: Any) -> None:
        self.world.pod(name, NODE, containers=[{**CONTAINER, **container}], serviceAccountName="default")

    def manner(self, word: str) -> None:
        (self.folder / "manner").write_text(word)

    def starts(self) -> list[Object]:
        path = self.folder / "starts"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    async def started(self, number: int = 1) -> Object:
        await until(lambda: len(self.starts()) >= number, f"start {number}")
        return self.starts()[number - 1]

    def found(self, name: str = "p") -> Object:
        return self.world.find("Pod", name, "default") or {}

    def container(self, name: str = "p") -> Object:
        listed = (self.found(name).get("status") or {}).get("containerStatuses") or [{}]
        return dict(listed[0])

    def ready(self, name: str = "p") -> bool:
        return conditions.true(self.found(name), "Ready")

    def log(self, name: str = "p", *, previous: bool = False) -> str:
        return str(self.api.pod_log("default", name, "", previous=previous))


def alive(pid: int) -> bool:
    """Whether it runs: one that is dead and that nobody has looked after yet does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


def tell(
    tmp_path: Path, told: Callable[[Story], Awaitable[None]], *, command: tuple[str, ...] = STAND_IN, allow: bool = True
) -> None:
    async def run() -> None:
        async with node_world.world(signer=False) as world:
            (tmp_path / "story").mkdir()
            if allow:
                environment = {"STORY": str(tmp_path / "story"), "MOORAGE_CLOCK_SPEED": f"{node_world.SPEED:g}"}
                programs.allow(world.site, tmp_path / "pods", environment, command)
            machine = world.machine(NODE, "master")
            machine.state = instance.RUNNING
            world.cluster.put({"apiVersion": "v1", "kind": "Node", "metadata": {"name": NODE}, "spec": {}})
            addresses = [{"type": "InternalIP", "address": machine.address}]
            world.cluster.change("", "Node", "", NODE, lambda node: node["status"].update(addresses=addresses))
            await world.cluster.kube.start_controllers()
            world.cluster.spawn(runtime.run(world.cluster), "runtime")
            await until(lambda: world.find("ServiceAccount", "default", "default"), "an account")
            await told(Story(world, machine, tmp_path / "story"))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(program_life, "_FASTEST_RESTART", 0.02)
        patch.setattr(program_life, "_FASTEST_PROBE", 0.02)
        patch.setattr(program_life, "_FASTEST_LOOK", 0.02)
        # The pause's default was taken when the module was read.
        patch.setattr(program_life.Life._pause, "__defaults__", (0.02,))
        # None of the user's own belongings reaches a pod.
        patch.setenv("OVIRT_CONFIG", "/somewhere")
        asyncio.run(run())
