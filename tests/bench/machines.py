"""A thousand Machines from nothing: a MachineSet is scaled, its VMs are made by the lab's oVirt engine, and Nodes come.

The floor is the same VMs, completed by the same calls, which as many threads as the controllers have workers make by
the platform's own SDK, who do nothing else and know of nobody else; it ends when the last Node is there. So the floor
has the platform's latency, the load of the machine and the lab's work in it. Each side has a stage of its own, one
after the other (see `fleet_stage`).

    python tests/bench/machines.py [machines [speed]]
"""

from __future__ import annotations

import collections
import concurrent.futures
import contextlib
import dataclasses
import os
import re
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import fleet_stage
import ovirtsdk4
import yaml
from ovirtsdk4 import types
from processes import Figure, Others, load, tell, used

from moorage.engine import clock as clocks
from moorage.machines import assembly
from moorage.machines.runtime import client as clients
from moorage.machines.runtime import connection, informer, kinds

MACHINES = 1_000
#: The engine's own pace: sped up, it is the lab's processor that is measured.
SPEED = 1.0
PATIENCE = 900.0
#: What a VM takes besides looks at it: it is asked for, put into its group, tagged and started. A little more is for
#: what all share, as the sign-in.
CALLS = 4.0
MOST_CALLS = 1.02
MOST_WALL = 1.3
#: What others may use of the machine while time is measured.
MOST_OTHERS = 0.2
SET = "bench"
_LOOK = re.compile(r"GET /vms(/…|\?search) ")


@dataclasses.dataclass(frozen=True)
class Scaled:
    """How long it took in real seconds, for how many of a processor, and what was asked of the engine."""

    wall: float
    cpu: float
    told: fleet_stage.Told


def figures(machines: int = MACHINES, speed: float = SPEED) -> list[Figure]:
    """Have all come, both ways; tells what there is to tell besides."""
    tell(f"{machines} Machines from 0 to Running in the lab at {speed:g} times", load())
    others = Others()
    with tempfile.TemporaryDirectory(prefix="moorage-bench-") as folder:
        floor = _floor(Path(folder) / "floor", machines, speed)
        ours = _ours(Path(folder) / "ours", machines, speed)
    others.ours = floor.cpu + ours.cpu
    # The controllers and the API work on our side alone, so whoever else wants the processor delays that side more.
    crowded = f"not judged: others use {others.share:.0%} of this machine" if others.share > MOST_OTHERS else ""
    looks = sum(count for call, count in ours.told.calls.items() if _LOOK.match(call))
    tell("looks at its VM for each Machine", f"{looks / machines:.2f}; {load()}")
    each = (ours.told.calls.total() - looks) / machines
    return [
        Figure(
            f"{machines} Machines from 0 to Running / bare calls", ours.wall, floor.wall, MOST_WALL, unjudged=crowded
        ),
        Figure("other calls for each Machine / those it takes", each, CALLS, MOST_CALLS, "calls"),
    ]


# --- the floor ---------------------------------------------------------------------------------------------------


def _floor(folder: Path, machines: int, speed: float) -> Scaled:
    with fleet_stage.started(folder, speed) as stage:
        began = time.perf_counter()
        _by_bare_calls(stage, machines, speed)
        made = time.perf_counter() - began
        _until(lambda: stage.told().nodes >= machines, lambda: f"{stage.told().nodes} of {machines} Nodes")
        wall = time.perf_counter() - began
        told = f"all started after {made:.1f} s, all Nodes there after {wall:.1f} s; CPU of the lab"
        tell("bare calls", f"{told} {used(stage.pid).cpu:.1f} s")
        return Scaled(wall, used(stage.pid).cpu, stage.told())


def _by_bare_calls(stage: fleet_stage.Stage, machines: int, speed: float) -> None:
    """All VMs made, then all of them completed and started."""
    settings = yaml.safe_load(Path(stage.environ["OVIRT_CONFIG"]).read_text())
    bundle = Path(stage.environ["OVIRT_CONFIG"]).with_name("ca.pem")
    bundle.write_text(settings["ovirt_ca_bundle"])
    mine = threading.local()

    def api() -> Any:
        if not hasattr(mine, "connection"):
            mine.connection = ovirtsdk4.Connection(
                url=settings["ovirt_url"],
                username=settings["ovirt_username"],
                password=settings["ovirt_password"],
                ca_file=str(bundle),
            )
        return mine.connection.system_service()

    def make(name: str) -> str:
        wanted = types.Vm(
            name=name,
            cluster=types.Cluster(id=stage.environ["BENCH_CLUSTER"]),
            template=types.Template(id=stage.environ["BENCH_TEMPLATE"]),
            initialization=types.Initialization(custom_script=fleet_stage.USER_DATA.decode(), host_name=name),
        )
        return str(api().vms_service().add(wanted).id)

    def complete(vm_id: str) -> None:
        groups = api().clusters_service().cluster_service(stage.environ["BENCH_CLUSTER"]).affinity_groups_service()
        groups.group_service(stage.environ["BENCH_AFFINITY"]).vms_service().add(types.Vm(id=vm_id))
        vm = api().vms_service().vm_service(vm_id)
        vm.tags_service().add(types.Tag(name=fleet_stage.INFRA))
        while True:
            try:
                vm.start(use_initialization=True)
            except ovirtsdk4.Error:
                # Its disk is not ready yet.
                time.sleep(5.0 / speed)
            else:
                return

    with concurrent.futures.ThreadPoolExecutor(assembly.WORKERS) as pool:
        made = list(pool.map(make, [f"bare-{number:04}" for number in range(machines)]))
        list(pool.map(complete, made))


# --- ours --------------------------------------------------------------------------------------------------------


def _ours(folder: Path, machines: int, speed: float) -> Scaled:
    with fleet_stage.started(folder, speed) as stage, _controllers(stage, folder, speed) as process:
        api = clients.Client(connection.from_kubeconfig(Path(stage.environ["KUBECONFIG"])), clocks.Clock())
        with _followed(api) as phases:
            api.create(kinds.MACHINE_SET, _set(stage))
            _until(lambda: _is_seen(api), lambda: "the controllers do not look at the set")
            cpu, lab_cpu, before = used(process.pid).cpu, used(stage.pid).cpu, used(process.pid).resident
            began = time.perf_counter()
            api.patch(kinds.MACHINE_SET, SET, fleet_stage.NAMESPACE, {"spec": {"replicas": machines}})
            _until(lambda: phases.now()["Running"] >= machines, lambda: f"{phases.now()} of {machines}")
            wall = time.perf_counter() - began
            last, told = used(process.pid), stage.told()
        for phase, (first, end) in phases.entered.items():
            tell(f"Machines entered {phase or 'the cluster'}", f"{first - began:.1f} to {end - began:.1f} s")
        tell("CPU", f"of the controllers {last.cpu - cpu:.1f} s, of the lab {used(stage.pid).cpu - lab_cpu:.1f} s")
        each = (last.peak - before) / machines * 1000
        tell(
            "memory of the controllers", f"{last.peak >> 20} MiB at most, {int(each) >> 20} MiB for each 1,000 Machines"
        )
        for call, count in told.calls.most_common(10):
            tell("", f"{count:7} {call}")
        return Scaled(wall, last.cpu + used(stage.pid).cpu, told)


@contextlib.contextmanager
def _controllers(stage: fleet_stage.Stage, folder: Path, speed: float) -> Iterator[subprocess.Popen[bytes]]:
    words = ["-m", "moorage", "machine-api", "run", "--kubeconfig", stage.environ["KUBECONFIG"], "--no-leader-elect"]
    environ = {**os.environ, **stage.environ, clocks.SPEED: str(speed)}
    with (folder / "controllers.log").open("wb") as log:
        process = subprocess.Popen([sys.executable, *words, "--log-level", "error"], env=environ, stderr=log)
    try:
        yield process
    finally:
        process.terminate()
        process.wait(60)
        if said := (folder / "controllers.log").read_text().splitlines():
            tell("the controllers said", f"{len(said)} lines, the last: {said[-1][:200]}")


class _Phases:
    """The phase of every Machine, as the API tells, and when machines entered each: the first one, and the last."""

    def __init__(self) -> None:
        self._phases: dict[str, str] = {}
        self.entered: dict[str, tuple[float, float]] = {}

    def now(self) -> collections.Counter[str]:
        return collections.Counter(self._phases.values())

    def changed(self, change: informer.Change) -> None:
        phase = ((change.new or {}).get("status") or {}).get("phase", "")
        if self._phases.get(change.key) != phase:
            self._phases[change.key] = phase
            now = time.perf_counter()
            self.entered[phase] = (self.entered.get(phase, (now, now))[0], now)


@contextlib.contextmanager
def _followed(api: clients.Client) -> Iterator[_Phases]:
    phases, machines = _Phases(), informer.Informer(api, kinds.MACHINE, namespace=fleet_stage.NAMESPACE)
    machines.on(phases.changed)
    machines.start()
    try:
        yield phases
    finally:
        machines.stop()


def _is_seen(api: clients.Client) -> bool:
    found = api.get(kinds.MACHINE_SET, SET, fleet_stage.NAMESPACE)
    return bool((found.get("status") or {}).get("observedGeneration"))


def _until(true: Callable[[], bool], why: Callable[[], str]) -> None:
    end = time.monotonic() + PATIENCE
    while not true():
        if time.monotonic() > end:
            raise SystemExit(why())
        time.sleep(0.2)


def _set(stage: fleet_stage.Stage) -> dict[str, Any]:
    group = fleet_stage.GROUP
    labels = {f"{group}/cluster-api-cluster": fleet_stage.INFRA, f"{group}/cluster-api-machineset": SET}
    # As the installer writes it for workers, of a template whose disk is as large as wanted.
    value = {
        "apiVersion": "ovirtproviderconfig.machine.openshift.io/v1beta1",
        "kind": "OvirtMachineProviderSpec",
        "cluster_id": stage.environ["BENCH_CLUSTER"],
        "template_name": f"{fleet_stage.INFRA}-rhcos",
        "cpu": {"sockets": 1, "cores": 4, "threads": 1},
        "memory_mb": 16384,
        "guaranteed_memory_mb": 16384,
        "type": "server",
        "affinity_groups_names": [f"{fleet_stage.INFRA}-compute"],
        "userDataSecret": {"name": "worker-user-data"},
    }
    return {
        "metadata": {"name": SET, "namespace": fleet_stage.NAMESPACE},
        "spec": {
            "replicas": 0,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": {"providerSpec": {"value": value}}},
        },
    }


if __name__ == "__main__":
    given = [kind(word) for kind, word in zip((int, float), sys.argv[1:], strict=False)]
    found = figures(*given)
    for figure in found:
        tell(figure.name, str(figure))
    sys.exit(1 if any(each.missed for each in found) else 0)
