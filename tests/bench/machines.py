"""The machine-api with many machines: a thousand made from nothing, and ten thousand that are left alone.

A set of Machines is scaled from 0 to a thousand on a cluster in the lab, whose VMs are made by the lab's oVirt engine
and boot as nodes that join. The floor is the same VMs, made by as many threads as the controllers have workers, which
do nothing but ask the engine, while an administrator lets in whoever comes: so the floor has the platform's latency,
the load of the machine and the lab's work in it, and what is left is ours. Each side has a lab of its own, one after
the other. What is measured of idle Machines is in `machines_idle`.

    python tests/bench/machines.py [machines [speed [idle machines]]]
"""

from __future__ import annotations

import asyncio
import collections
import concurrent.futures
import contextlib
import dataclasses
import json
import os
import re
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

import machines_idle  # noqa: E402 - run as a script, tests are not on the path
import ovirtsdk4  # noqa: E402
import yaml  # noqa: E402
from ovirtsdk4 import types  # noqa: E402
from processes import load, tell, used  # noqa: E402

import lab as crowd  # noqa: E402
from moorage.lab import client  # noqa: E402
from moorage.machines import assembly  # noqa: E402
from tests.lab import administrator  # noqa: E402

MACHINES = 1_000
SPEED = 60.0
MASTERS = crowd.MASTERS
PATIENCE = 1_500.0
# Calls for each machine besides looks at its VM; see DESIGN.
MOST_CALLS = 4.0
SET = "bench"
NAMESPACE = "openshift-machine-api"
KIND = f"/apis/machine.openshift.io/v1beta1/namespaces/{NAMESPACE}"
GROUP = "machine.openshift.io"
_ID = r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
# Looks at a machine's own VM: by its id, or by its name before there is one.
_LOOK = re.compile(rf"/vms/{_ID}(\?|$)|/vms\?.*search=name")


def report(machines: int = MACHINES, speed: float = SPEED, idle: int = machines_idle.MACHINES) -> bool:
    """Print the figures; whether all came, with as many calls as we allow ourselves."""
    tell(f"{machines} Machines of a MachineSet in the lab at {speed:g} times", load())
    with tempfile.TemporaryDirectory(prefix="moorage-bench-") as folder:
        floor = _floor(Path(folder) / "floor", machines, speed)
        ours = _ours(Path(folder) / "ours", machines, speed)
    tell("from 0 to Running / VMs by bare calls", f"{ours.wall:.1f} s / {floor:.1f} s = {ours.wall / floor:.2f}")
    idled = machines_idle.report(idle)
    tell("", load())
    return ours.well and idled


@dataclasses.dataclass(frozen=True)
class Scaled:
    wall: float
    well: bool


# --- the stage ---------------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Stage:
    """A cluster of three masters, an engine with room for all, and the kubeconfig of an administrator."""

    lab: client.Lab
    assets: Path
    kubeconfig: Path
    infra_id: str

    def id(self, kind: str, name: str) -> str:
        found = self.lab.control("GET", "/lab/ovirt")[kind]
        return next(str(each["id"]) for each in found if each["name"] == name)


@contextlib.contextmanager
def _stage(folder: Path, machines: int, speed: float) -> Iterator[Stage]:
    assets = folder / "assets"
    assets.mkdir(parents=True)
    lab = client.start(folder / "lab", speed)
    try:
        crowd.bring_up(lab, assets)
        infra_id = json.loads((assets / "metadata.json").read_text())["infraID"]
        # Room for all; what the installer leaves on an engine: the template, the tag, the affinity group.
        room = {"host_threads": 512, "host_memory_gib": 4096, "hosts": {"Default": 3 + machines // 100}}
        lab.control("PUT", "/lab/ovirt", {**room, "storage": {"data": {"free_gib": 1_000_000}}})
        lab.control("POST", "/lab/ovirt/foreign", {"infra_id": infra_id})
        path = assets / "lab-kubeconfig"
        path.write_text(lab.control("GET", "/lab/kubeconfig"))
        yield Stage(lab, assets, path, infra_id)
    finally:
        client.stop(lab)


async def _nodes(nodes: administrator.Nodes, count: int) -> None:
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(PATIENCE):
            await nodes.until(count)


# --- the floor ---------------------------------------------------------------------------------------------------


def _floor(folder: Path, machines: int, speed: float) -> float:
    """Real seconds from the first call until all nodes are Ready."""
    with _stage(folder, machines, speed) as stage:
        return asyncio.run(_bare(stage, machines))


async def _bare(stage: Stage, machines: int) -> float:
    async with administrator.of(stage.kubeconfig) as cluster, administrator.at_work(cluster) as nodes:
        began, before = time.perf_counter(), crowd.usage(stage.lab)
        await asyncio.to_thread(_make, stage, machines)
        tell("floor: all VMs are started", f"{time.perf_counter() - began:.1f} s wall")
        await _nodes(nodes, MASTERS + machines)
        if nodes.count < MASTERS + machines:
            raise SystemExit(f"only {nodes.count} nodes are Ready, by bare calls")
        wall = time.perf_counter() - began
        tell("floor: all nodes are Ready", crowd.usage(stage.lab).since(before))
    return wall


def _make(stage: Stage, machines: int) -> None:
    """All VMs made, then all of them started, by as many threads as the controllers have workers."""
    settings = yaml.safe_load(Path(stage.lab.environment["OVIRT_CONFIG"]).read_text())
    user_data = (stage.assets / "worker.ign").read_text()
    template, where = stage.id("templates", f"{stage.infra_id}-rhcos"), stage.id("clusters", "Default")
    mine = threading.local()

    def vms() -> Any:
        if not hasattr(mine, "connection"):
            mine.connection = ovirtsdk4.Connection(
                url=settings["ovirt_url"],
                username=settings["ovirt_username"],
                password=settings["ovirt_password"],
                ca_file=str(stage.lab.folder / client.OVIRT_CA),
            )
        return mine.connection.system_service().vms_service()

    def make(name: str) -> str:
        start = types.Initialization(custom_script=user_data, host_name=name)
        wanted = types.Vm(
            name=name, cluster=types.Cluster(id=where), template=types.Template(id=template), initialization=start
        )
        return str(vms().add(wanted).id)

    def start(identity: str) -> None:
        while True:
            try:
                vms().vm_service(identity).start(use_initialization=True)
            except ovirtsdk4.Error:
                # Its disk is not ready yet.
                time.sleep(1.0 / stage.lab.speed)
            else:
                return

    with concurrent.futures.ThreadPoolExecutor(assembly.WORKERS) as pool:
        made = list(pool.map(make, [f"bare-{number:04}" for number in range(machines)]))
        list(pool.map(start, made))


# --- ours --------------------------------------------------------------------------------------------------------


def _ours(folder: Path, machines: int, speed: float) -> Scaled:
    with _stage(folder, machines, speed) as stage, _controllers(stage, folder) as process:
        return asyncio.run(_scaled(stage, machines, process))


@contextlib.contextmanager
def _controllers(stage: Stage, folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    words = [sys.executable, "-m", "moorage", "machine-api", "run", "--platform", "ovirt", "--log-level", "warn"]
    # Alone, and so without a lease, which a process that gets no processor for two seconds would lose at this speed.
    words.append("--no-leader-elect")
    environ = {**os.environ, **stage.lab.environment, client.FOLDER: str(stage.lab.folder)}
    with (folder / "controllers.log").open("wb") as log:
        process = subprocess.Popen([*words, "--kubeconfig", str(stage.kubeconfig)], env=environ, stderr=log)
    try:
        yield process
    finally:
        process.terminate()
        process.wait(60)
        told = (folder / "controllers.log").read_text()
        if told:
            tell("the controllers said", f"{told.count(chr(10))} lines, the last: {told.splitlines()[-1][:200]}")


async def _scaled(stage: Stage, machines: int, process: subprocess.Popen[bytes]) -> Scaled:
    async with administrator.of(stage.kubeconfig) as cluster, _followed(cluster) as (phases, nodes):
        await cluster.ask("POST", f"{KIND}/machinesets", _set(stage, 0))
        await _elected(cluster)
        calls = _EngineCalls(stage.lab)
        counting = asyncio.create_task(calls.follow())
        cpu, before = used(process.pid).cpu, crowd.usage(stage.lab)
        began = time.perf_counter()
        await cluster.ask("PUT", f"{KIND}/machinesets/{SET}/scale", _scale(machines))
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(PATIENCE):
                await phases.until(machines)
        wall = time.perf_counter() - began
        await _nodes(nodes, MASTERS + machines)
        took = time.perf_counter() - began
        told = used(process.pid)
        counting.cancel()
        await asyncio.to_thread(calls.take)
        for phase, moments in phases.entries.items():
            tell(
                f"Machines entered {phase or 'the cluster'}", f"{moments[0] - began:.1f} to {moments[-1] - began:.1f} s"
            )
        tell("all Machines are Running", f"{wall:.1f} s wall; all Nodes Ready after {took:.1f} s")
        tell("the lab meanwhile", crowd.usage(stage.lab).since(before))
        tell("the controllers", f"CPU {told.cpu - cpu:.1f} s, {told.peak >> 20} MiB at most")
        few = calls.tell(machines)
        tell("Running at the end", f"{phases.count} of {machines}; Failed: {phases.failed}")
        return Scaled(max(wall, took), phases.count == machines and not phases.failed and few)


async def _elected(cluster: administrator.Cluster) -> None:
    """Wait until the controllers have looked at the set."""
    for _ in range(600):
        found = await cluster.ask("GET", f"{KIND}/machinesets/{SET}")
        if (found.get("status") or {}).get("observedGeneration"):
            return
        await asyncio.sleep(0.1)
    raise SystemExit("the controllers do not look at the set")


def _set(stage: Stage, replicas: int) -> dict[str, Any]:
    labels = {f"{GROUP}/cluster-api-cluster": stage.infra_id, f"{GROUP}/cluster-api-machineset": SET}
    # As the installer writes it for workers, of a template whose disk is as large as wanted.
    value = {
        "apiVersion": "ovirtproviderconfig.machine.openshift.io/v1beta1",
        "kind": "OvirtMachineProviderSpec",
        "cluster_id": stage.id("clusters", "Default"),
        "template_name": f"{stage.infra_id}-rhcos",
        "storage_domain_id": stage.id("storage_domains", "data"),
        "cpu": {"sockets": 1, "cores": 4, "threads": 1},
        "memory_mb": 16384,
        "guaranteed_memory_mb": 16384,
        "type": "server",
        "affinity_groups_names": [f"{stage.infra_id}-controlplane"],
        "credentialsSecret": {"name": "ovirt-credentials"},
        "userDataSecret": {"name": "worker-user-data"},
    }
    return {
        "apiVersion": f"{GROUP}/v1beta1",
        "kind": "MachineSet",
        "metadata": {"name": SET, "namespace": NAMESPACE},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": {"providerSpec": {"value": value}}},
        },
    }


def _scale(replicas: int) -> dict[str, Any]:
    meta = {"name": SET, "namespace": NAMESPACE}
    return {"apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": meta, "spec": {"replicas": replicas}}


class _Phases:
    """The phase of every Machine of the set, as the API tells."""

    def __init__(self) -> None:
        self._phases: dict[str, str] = {}
        self._changed = asyncio.Event()
        #: Moments at which machines were seen in a phase for the first time, by phase.
        self.entries: dict[str, list[float]] = collections.defaultdict(list)

    @property
    def count(self) -> int:
        return sum(phase == "Running" for phase in self._phases.values())

    @property
    def failed(self) -> int:
        return sum(phase == "Failed" for phase in self._phases.values())

    async def follow(self, cluster: administrator.Cluster) -> None:
        async for machine in cluster.objects(f"{KIND}/machines"):
            if f"{GROUP}/cluster-api-machineset" in (machine["metadata"].get("labels") or {}):
                name, phase = machine["metadata"]["name"], (machine.get("status") or {}).get("phase", "")
                if self._phases.get(name) != phase:
                    self._phases[name] = phase
                    self.entries[phase].append(time.perf_counter())
                    self._changed.set()

    async def until(self, count: int) -> None:
        while self.count < count:
            self._changed.clear()
            await self._changed.wait()


@contextlib.asynccontextmanager
async def _followed(cluster: administrator.Cluster) -> AsyncIterator[tuple[_Phases, administrator.Nodes]]:
    """Machines and Nodes, followed; nobody but the controllers lets anybody in."""
    phases, nodes = _Phases(), administrator.Nodes()
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(work) for work in (phases.follow(cluster), nodes.follow(cluster))]
        try:
            yield phases, nodes
        finally:
            for task in tasks:
                task.cancel()


class _EngineCalls:
    """What was asked of the engine, by what it was: the lab forgets, so ask in time."""

    def __init__(self, lab: client.Lab) -> None:
        self._lab = lab
        self._after = 0
        self._after = max((call["number"] for call in self._asked()), default=0)
        self._kinds: collections.Counter[str] = collections.Counter()
        self._looks = self._others = 0
        self._seconds = 0.0

    def _asked(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self._lab.control("GET", f"/lab/calls?service=ovirt&after={self._after}")
        return found

    def take(self) -> None:
        for call in self._asked():
            self._after = call["number"]
            path = call["path"].removeprefix("/ovirt-engine/api")
            is_look = call["method"] == "GET" and _LOOK.search(path) is not None
            self._looks += is_look
            self._others += not is_look
            self._seconds += call["seconds"]
            plain = re.sub(_ID, "…", path.partition("?")[0])
            self._kinds[f"{call['method']:6} {plain} {call['status']}"] += 1

    async def follow(self) -> None:
        while True:
            await asyncio.to_thread(self.take)
            await asyncio.sleep(2)

    def tell(self, machines: int) -> bool:
        """Say how many there were for each machine; whether few enough."""
        each, looks = self._others / machines, self._looks / machines
        few = each <= MOST_CALLS + 0.1
        verdict = f"(at most {MOST_CALLS:g}, and 0.1 for what all share) {'ok' if few else 'MISSED'}"
        tell("calls of the engine for each Machine", f"{each:.2f} {verdict}; looks at its VM: {looks:.2f}")
        answered = self._seconds / self._lab.speed
        tell("the engine's own time to answer", f"{answered:.1f} s, by {assembly.WORKERS} at once")
        for name, count in self._kinds.most_common(14):
            tell("", f"{count:7} {name}")
        return few


if __name__ == "__main__":
    given = [kind(word) for kind, word in zip((int, float, int), sys.argv[1:], strict=False)]
    sys.exit(0 if report(*given) else 1)
