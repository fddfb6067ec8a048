"""Ten thousand Machines that nobody touches: what our controllers cost, with a minimal kopf operator beside them.

Both follow the same objects on the same API at the same time; the Machines are Running, and their VMs are on an engine
of the lab, in the same process as the API. The controllers look at every VM once in ten minutes; kopf does nothing at
all. So that this need not take ten minutes, time runs faster for the API and for us, and what we use is divided by the
time that has passed for us; kopf, which knows nothing of that, is judged by the world's time.

    python tests/bench/machines_idle.py [machines]
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import datetime
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

import yaml  # noqa: E402 - run as a script, tests are not on the path
from processes import load, tell, used  # noqa: E402

from moorage.engine import clock as clocks  # noqa: E402
from moorage.lab import site as sites  # noqa: E402
from moorage.lab.nodes import payload  # noqa: E402
from moorage.lab.ovirt import serving, shape  # noqa: E402
from moorage.machines.runtime import client as clients  # noqa: E402
from moorage.machines.runtime import connection, kinds  # noqa: E402
from tests.kube import embedded, objects  # noqa: E402

MACHINES = 10_000
SPEED = 2.0
# Cloud seconds: so often everything is looked at again. As many rounds are measured, after all have settled.
ROUND = 600.0
ROUNDS = 1
PATIENCE = 600.0
MOST_CPU = 0.05
WRITERS = 8
NAMESPACE = "openshift-machine-api"
INFRA = "bench-abcde"
GROUP = "machine.openshift.io"
_INSTALL_CONFIG = "platform: {ovirt: {api_vips: [127.0.0.100], ingress_vips: [127.0.0.101]}}"
_OPERATOR = """
import kopf

@kopf.on.event("machine.openshift.io", "v1beta1", "machines")
def seen(**_):
    pass
"""


def report(machines: int = MACHINES) -> bool:
    """Print the figures; whether we are as idle as we want to be."""
    tell(f"{machines} idle Machines, at {SPEED:g} times", load())
    with tempfile.TemporaryDirectory(prefix="moorage-bench-") as name, _stage(Path(name), machines) as environ:
        folder = Path(name)
        operator = folder / "follower.py"
        operator.write_text(_OPERATOR)
        kubeconfig = environ["KUBECONFIG"]
        address = f"{environ['BENCH_HOST']}:18086"
        ours_words = [sys.executable, "-m", "moorage", "machine-api", "run", "--kubeconfig", kubeconfig]
        kopf_words = [sys.executable, "-m", "kopf", "run", "--quiet", "--standalone", "-n", NAMESPACE, str(operator)]
        faster = {**environ, clocks.SPEED: str(SPEED)}
        with (
            _process(
                [*ours_words, "--metrics-address", address, "--log-level", "warn", "--no-leader-elect"],
                faster,
                folder / "ours",
            ) as ours,
            _process(kopf_words, environ, folder / "kopf") as kopf,
        ):
            return _measured(machines, ours, kopf, address)


def _measured(machines: int, ours: int, kopf: int, address: str) -> bool:
    began = time.perf_counter()
    _until(lambda: _reconciled(address) >= machines, ours, "all Machines to be looked at")
    _until(lambda: _quiet(ours) and _quiet(kopf), ours, "both to be quiet")
    first = {"ours": used(ours), "kopf": used(kopf)}
    settled = f"all looked at once after {time.perf_counter() - began:.0f} s"
    tell("until both are quiet", f"{settled}: CPU ours {first['ours'].cpu:.1f} s, kopf {first['kopf'].cpu:.1f} s")
    seen, start = _reconciled(address), time.perf_counter()
    time.sleep(ROUND * ROUNDS / SPEED)
    # A round that is under way belongs to what is measured.
    _until(lambda: _quiet(ours), ours, "the round to end")
    wall, again = time.perf_counter() - start, _reconciled(address) - seen
    last = {"ours": used(ours), "kopf": used(kopf)}
    spent = {name: last[name].cpu - first[name].cpu for name in last}
    # However many rounds fell into the time that was measured: each is one in ten minutes.
    rounds = max(1.0, round(again / machines))
    share = {"ours": spent["ours"] / (rounds * ROUND), "kopf": spent["kopf"] / wall}
    told = f"{again} looks at VMs in {wall:.0f} s, CPU {spent['ours']:.1f} s"
    few = share["ours"] <= MOST_CPU and again >= machines
    tell("machine-api run, with a round of looks", told)
    verdict = f"(at most {MOST_CPU:.0%}) {'ok' if few else 'MISSED'}"
    tell("CPU of a core: ours / kopf", f"{share['ours']:.2%} {verdict} / {share['kopf']:.2%}")
    tell("memory: ours / kopf", f"{last['ours'].resident >> 20} MiB / {last['kopf'].resident >> 20} MiB")
    return few


def _reconciled(address: str) -> float:
    """How often a Machine was looked at, as the controllers tell."""
    try:
        text = urllib.request.urlopen(f"http://{address}/metrics", timeout=30).read().decode()
    except OSError:
        return 0.0
    lines = [line for line in text.splitlines() if line.startswith("controller_runtime_reconcile_total{")]
    return sum(float(line.rpartition(" ")[2]) for line in lines if 'controller="machine"' in line)


def _quiet(pid: int) -> bool:
    """Whether a process rests: next to nothing in two seconds."""
    before = used(pid).cpu
    time.sleep(2.0)
    return used(pid).cpu - before < 0.1


def _until(true: Any, pid: int, what: str) -> None:
    end = time.monotonic() + PATIENCE
    while not true():
        # A process that has ended waits for us to ask how, and has no memory any more.
        if time.monotonic() > end or not used(pid).resident:
            raise SystemExit(f"never: {what} ({used(pid)})")
        time.sleep(0.5)


@contextlib.contextmanager
def _process(words: list[str], environ: dict[str, str], log: Path) -> Iterator[int]:
    with log.open("wb") as file:
        process = subprocess.Popen(words, env=environ, stdout=file, stderr=file)
    try:
        yield process.pid
    finally:
        process.terminate()
        process.wait(60)
        said = log.read_text().splitlines()
        if process.returncode or len(said) > 20:
            tell(f"{log.name} said", f"{len(said)} lines, ended {process.returncode}: {' | '.join(said[-2:])[:300]}")


# --- the stage ---------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def _stage(folder: Path, machines: int) -> Iterator[dict[str, str]]:
    """The API and the engine in a process of their own; the environment in which they are met."""
    home = folder / "stage"
    home.mkdir()
    words = [sys.executable, __file__, "serve", str(home), str(machines)]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        found = json.loads(process.stdout.readline())
        try:
            yield {**os.environ, **found}
        finally:
            process.stdin.close()


def serve(folder: Path, machines: int) -> None:
    """For the new process: serve until the other side of stdin is closed."""
    clock = clocks.Clock(SPEED)
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, daemon=True).start()
    with embedded.running(folder, clock) as made:
        site, served = asyncio.run_coroutine_threadsafe(_engine(clock), loop).result(60)
        config = folder / "ovirt-config.yaml"
        config.touch(mode=0o600)
        config.write_text(yaml.safe_dump(served.config()))
        for definition in payload.definitions():
            if definition["spec"]["group"] in (GROUP, "config.openshift.io"):
                made.admin.post(objects.DEFINITIONS, definition).got(201)
        api = clients.Client(connection.from_kubeconfig(made.kubeconfig()), clock)
        asyncio.run_coroutine_threadsafe(_populated(served.engine, machines), loop).result(600)
        vms = [each["id"] for each in served.engine.inventory.all("vms") if each["name"].startswith("idle-")]
        _wait_served(api)
        _fill(api, vms)
        found = {"KUBECONFIG": str(made.kubeconfig()), "OVIRT_CONFIG": str(config), "BENCH_HOST": str(site.network[3])}
        print(json.dumps(found), flush=True)
        sys.stdin.read()
        asyncio.run_coroutine_threadsafe(served.stop(), loop).result(60)


async def _engine(clock: clocks.Clock) -> tuple[sites.Site, serving.Served]:
    site = sites.Site(clock)
    await site.start()
    served = serving.Served(site)
    await served.start()
    return site, served


async def _populated(engine: Any, machines: int) -> None:
    tag = engine.inventory.add("tags", {"name": INFRA, "description": INFRA, "parent": {"id": shape.ROOT_TAG}})
    host = engine.inventory.all("hosts")[0]["id"]
    for number in range(machines):
        shape.add_vm(engine, f"idle-{number:05}", f"moorage: {INFRA}", host=host, tags=[tag["id"]])


def _wait_served(api: clients.Client) -> None:
    for kind in (kinds.MACHINE, kinds.INFRASTRUCTURE):
        for _ in range(100):
            try:
                api.list(kind)
            except clients.NotFound:
                time.sleep(0.1)
            else:
                break


def _fill(api: clients.Client, vms: list[str]) -> None:
    api.create(kinds.NAMESPACE, {"metadata": {"name": NAMESPACE}})
    told = {"infrastructureName": INFRA, "platformStatus": {"type": "oVirt"}, "platform": "oVirt"}
    api.create(kinds.INFRASTRUCTURE, {"metadata": {"name": "cluster"}, "spec": {"platformSpec": {"type": "oVirt"}}})
    api.patch(kinds.INFRASTRUCTURE, "cluster", "", {"status": told}, subresource="status")
    config = {"metadata": {"name": "cluster-config-v1", "namespace": "kube-system"}}
    api.create(kinds.CONFIG_MAP, {**config, "data": {"install-config": _INSTALL_CONFIG}})
    with concurrent.futures.ThreadPoolExecutor(WRITERS) as pool:
        list(pool.map(lambda each: _machine(api, *each), enumerate(vms)))


def _machine(api: clients.Client, number: int, vm: str) -> None:
    """A Machine that is Running, and of which there is nothing to be said that it does not say already."""
    name = f"idle-{number:05}"
    address = f"10.{number >> 16}.{number >> 8 & 255}.{number & 255}"
    labels = {f"{GROUP}/cluster-api-cluster": INFRA, f"{GROUP}/cluster-api-machine-role": "worker"}
    value = {
        "apiVersion": "ovirtproviderconfig.machine.openshift.io/v1beta1",
        "kind": "OvirtMachineProviderSpec",
        "cluster_id": "1",
        "template_name": f"{INFRA}-rhcos",
        "userDataSecret": {"name": "worker-user-data"},
    }
    meta = {
        "name": name,
        "namespace": NAMESPACE,
        "labels": labels,
        "annotations": {f"{GROUP}/instance-state": "up"},
        "finalizers": [f"machine.{GROUP}"],
    }
    spec = {"providerID": f"ovirt://{vm}", "providerSpec": {"value": value}}
    api.create(kinds.MACHINE, {"metadata": meta, "spec": spec})
    api.patch(kinds.MACHINE, name, NAMESPACE, {"status": _status(name, vm, address)}, subresource="status")


def _status(name: str, vm: str, address: str) -> dict[str, Any]:
    now = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    true = {"status": "True", "lastTransitionTime": now}
    return {
        "phase": "Running",
        "nodeRef": {"kind": "Node", "name": name, "uid": vm},
        "lastUpdated": now,
        "addresses": [
            {"type": "InternalIP", "address": address},
            {"type": "Hostname", "address": name},
            {"type": "InternalDNS", "address": name},
        ],
        "conditions": [{"type": kind, **true} for kind in ("Drainable", "InstanceExists", "Terminable")],
        "providerStatus": {
            "instanceId": vm,
            "instanceState": "up",
            "conditions": [{"type": "MachineCreated", "reason": "MachineCreationSucceeded", "message": "", **true}],
        },
        "lastOperation": {
            "type": "Create",
            "state": "Successful",
            "description": "the instance is complete",
            "lastUpdated": now,
        },
    }


if __name__ == "__main__":
    if sys.argv[1:2] == ["serve"]:
        serve(Path(sys.argv[2]), int(sys.argv[3]))
    else:
        sys.exit(0 if report(*map(int, sys.argv[1:])) else 1)
