"""Where a fleet of machines is: an API for their Machines and Nodes, and an engine for their VMs, in one process.

Both are the lab's. Machines that boot are none of a cluster's, for a thousand nodes that live cost more than all that
is measured here (see `lab`): as soon as a guest tells its address, its Node is there, Ready, and known by that address.
The process serves until its stdin is closed, and answers every line there with what the engine was asked.

    python tests/bench/fleet_stage.py FOLDER SPEED MACHINES

With MACHINES there are so many from the beginning, which are Running, and say all there is to be said of them, so that
nobody who looks has anything to write.
"""

from __future__ import annotations

import asyncio
import base64
import collections
import contextlib
import dataclasses
import json
import re
import subprocess
import sys
import threading
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

import yaml  # noqa: E402 - run as a script, tests are not on the path
from ovirtsdk4 import types  # noqa: E402

from moorage.engine import clock as clocks  # noqa: E402
from moorage.lab import site as sites  # noqa: E402
from moorage.lab.nodes import payload  # noqa: E402
from moorage.lab.ovirt import guest, serving, shape, vm_life  # noqa: E402
from moorage.machines import conditions, objects  # noqa: E402
from moorage.platforms.ovirt import machine_steps, names  # noqa: E402
from tests.kube import cluster, embedded, pki, real  # noqa: E402

NAMESPACE = "openshift-machine-api"
INFRA = "bench-abcde"
GROUP = "machine.openshift.io"
USER_DATA = b'{"ignition":{"version":"3.2.0"}}'
START = 60.0
#: Real seconds between two looks at whose guests have told their addresses.
_EVERY = 0.1
_INSTALL_CONFIG = "platform: {ovirt: {api_vips: [127.0.0.100], ingress_vips: [127.0.0.101]}}"
_ID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")

Doc = dict[str, Any]


@dataclasses.dataclass(frozen=True)
class Told:
    """What the engine was asked so far, by method, path and status, and for how long; and how many Nodes there are."""

    calls: collections.Counter[str]
    seconds: float
    nodes: int


class Stage:
    """The process, as whoever has started it sees it; ``environ`` is how programs meet what it serves."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.pid = process.pid
        self._process = process
        self.environ: dict[str, str] = self._answer()

    def told(self) -> Told:
        assert self._process.stdin is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        found = self._answer()
        return Told(collections.Counter(found["calls"]), found["seconds"], found["nodes"])

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        found: dict[str, Any] = json.loads(self._process.stdout.readline())
        return found


@contextlib.contextmanager
def started(folder: Path, speed: float, machines: int = 0) -> Iterator[Stage]:
    folder.mkdir(parents=True)
    words = [sys.executable, __file__, str(folder), str(speed), str(machines)]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield Stage(process)
        finally:
            assert process.stdin is not None
            process.stdin.close()


# --- in the new process ------------------------------------------------------------------------------------------


class _Api(embedded.Embedded):
    """The lab's API, which lets us at its store."""

    def put(self, contents: list[Doc]) -> None:
        self._do(lambda: [self._kube.api.put(each) for each in contents] if self._kube else [])

    def _do(self, work: Callable[[], object]) -> None:
        async def done() -> None:
            work()

        assert self._loop is not None
        asyncio.run_coroutine_threadsafe(done(), self._loop).result(10 * START)


class _Asked:
    """Counts the engine's calls as they end."""

    def __init__(self, site: sites.Site) -> None:
        self.calls: collections.Counter[str] = collections.Counter()
        self.seconds = 0.0
        self._add = site.calls.add
        setattr(site.calls, "add", self.add)  # noqa: B010 - in the place of its own

    def add(self, service: str, request: Any, status: int | None, at: Any, seconds: float) -> None:
        path = request.path.removeprefix("/ovirt-engine/api")
        is_search = "search" in request.query
        self.calls[f"{request.method} {_ID.sub('…', path)}{'?search' if is_search else ''} {status}"] += 1
        self.seconds += seconds
        self._add(service, request, status, at, seconds)


def serve(folder: Path, speed: float, machines: int) -> None:
    clock = clocks.Clock(speed)
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, daemon=True).start()
    host, authority = real.address(), pki.Authority()
    api = _Api(host, authority, clock)
    threading.Thread(target=api.run, daemon=True).start()
    assert api.started.wait(START), "the API did not start"
    people = cluster.Cluster("lab", folder, f"https://{host}:{api.port}", authority, "kubectl", api.compact)
    groups = (GROUP, "config.openshift.io")
    api.put([each for each in payload.definitions() if each["spec"]["group"] in groups])
    site, served = asyncio.run_coroutine_threadsafe(_engine(clock, machines), loop).result(10 * START)
    config = folder / "ovirt-config.yaml"
    config.touch(mode=0o600)
    config.write_text(yaml.safe_dump(served.config()))
    api.put([*_cluster(), *(_machine(served.engine, each) for each in served.engine.inventory.all("vms"))])
    # The history of how they came is of no interest to those who watch from now on.
    api.compact()
    asked, nodes = _Asked(site), _Nodes(served.engine, loop, api)
    if not machines:
        threading.Thread(target=nodes.follow, daemon=True).start()
    inventory = served.engine.inventory
    found = {
        "KUBECONFIG": str(people.kubeconfig()),
        "OVIRT_CONFIG": str(config),
        "BENCH_HOST": str(site.network[3]),
        "BENCH_CLUSTER": inventory.all("clusters")[0]["id"],
        "BENCH_TEMPLATE": inventory.named("templates", f"{INFRA}-rhcos")["id"],
        "BENCH_AFFINITY": inventory.named("affinity_groups", f"{INFRA}-compute")["id"],
    }
    print(json.dumps(found), flush=True)
    for _ in sys.stdin:
        told = {"calls": asked.calls, "seconds": asked.seconds, "nodes": len(nodes.names)}
        print(json.dumps(told), flush=True)


async def _engine(clock: clocks.Clock, machines: int) -> tuple[sites.Site, serving.Served]:
    site = sites.Site(clock)
    await site.start()
    served = serving.Served(site)
    await served.start()
    engine, inventory = served.engine, served.engine.inventory
    for each in inventory.all("vms"):
        inventory.remove("vms", each["id"])
    # What the installer leaves, and room for all on few hosts: the engine goes through all of them to start a VM.
    mark, where = names.mark(INFRA), inventory.all("clusters")[0]
    tag = inventory.add("tags", {"name": INFRA, "description": INFRA, "parent": {"id": shape.ROOT_TAG}})
    shape.add_template(engine, f"{INFRA}-rhcos", mark, machine_steps.COREOS)
    rule = {"enabled": True, "positive": False, "enforcing": False}
    group = {"name": f"{INFRA}-compute", "description": mark, "cluster": {"id": where["id"]}, "vms_rule": rule}
    inventory.add("affinity_groups", {**group, "hosts_rule": {**rule, "enabled": False}, "_vms": []})
    room = {"host_threads": 16_384, "host_memory_gib": 65_536, "hosts": {where["name"]: 2}}
    domains = {each["name"]: {"free_gib": 10_000_000} for each in inventory.all("storage_domains")}
    shape.change(engine, {**room, "storage": domains})
    if machines:
        guest.devices = _devices
    host = inventory.all("hosts")[0]["id"]
    for number in range(machines):
        shape.add_vm(engine, f"idle-{number:05}", mark, host=host, tags=[tag["id"]])
    return site, served


# --- the objects -------------------------------------------------------------------------------------------------


class _Nodes:
    """Makes the Node of every machine whose guest has told its address."""

    def __init__(self, engine: Any, loop: asyncio.AbstractEventLoop, api: _Api) -> None:
        self.names: set[str] = set()
        self._engine, self._loop, self._api = engine, loop, api

    def follow(self) -> None:
        pause = threading.Event()
        while not pause.wait(_EVERY):
            come = asyncio.run_coroutine_threadsafe(self._come(), self._loop).result(START)
            self._api.put([_node(name, address) for name, address in come.items()])
            self.names |= set(come)

    async def _come(self) -> dict[str, str]:
        come = {}
        for vm in self._engine.inventory.all("vms"):
            if vm["name"] not in self.names and vm["status"] == vm_life.UP:
                told = [ip["address"] for each in vm_life.reported(self._engine, vm) for ip in each["ips"]]
                if told:
                    come[vm["name"]] = told[0]
        return come


def _node(name: str, address: str) -> Doc:
    ready = {"type": "Ready", "status": "True", "reason": "KubeletReady", "lastTransitionTime": "2026-01-01T00:00:00Z"}
    addresses = [{"type": "InternalIP", "address": address}, {"type": "Hostname", "address": name}]
    kind = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}, "spec": {}}
    return {**kind, "status": {"addresses": addresses, "conditions": [ready]}}


def _devices(_engine: object, vm: Doc, _machine: object, _nics: object) -> list[Doc]:
    """What a guest tells, where machines are there without ever having been made, and so have none."""
    ips = [{"address": _address(vm["name"]), "version": "v4"}]
    return [{"id": str(uuid.uuid5(uuid.UUID(vm["id"]), "br-ex")), "name": "br-ex", "type": "network", "ips": ips}]


def _address(name: str) -> str:
    number = int(name.rpartition("-")[2])
    return f"10.{number >> 16}.{number >> 8 & 255}.{number & 255}"


def _cluster() -> list[Doc]:
    told = {"infrastructureName": INFRA, "platformStatus": {"type": "oVirt"}, "platform": "oVirt"}
    infrastructure = {"apiVersion": "config.openshift.io/v1", "kind": "Infrastructure", "metadata": {"name": "cluster"}}
    config = {"name": "cluster-config-v1", "namespace": "kube-system"}
    secret = {"name": "worker-user-data", "namespace": NAMESPACE}
    data = {"userData": base64.b64encode(USER_DATA).decode(), "disableTemplating": base64.b64encode(b"true").decode()}
    return [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}},
        {**infrastructure, "spec": {"platformSpec": {"type": "oVirt"}}, "status": told},
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": config, "data": {"install-config": _INSTALL_CONFIG}},
        {"apiVersion": "v1", "kind": "Secret", "metadata": secret, "data": data},
    ]


def _machine(engine: Any, vm: Doc) -> Doc:
    """The Machine of a VM that is there, with all that the controllers would say of it."""
    where = engine.inventory.all("clusters")[0]
    center = next(each for each in engine.inventory.all("data_centers") if each["id"] == where["data_center"]["id"])
    topology = types.CpuTopology(**vm["cpu"]["topology"])
    size = machine_steps.size(types.Vm(cpu=types.Cpu(topology=topology), memory=vm["memory"]))
    value = {
        "apiVersion": "ovirtproviderconfig.machine.openshift.io/v1beta1",
        "kind": "OvirtMachineProviderSpec",
        "cluster_id": where["id"],
        "template_name": f"{INFRA}-rhcos",
        "userDataSecret": {"name": "worker-user-data"},
    }
    meta = {
        "name": vm["name"],
        "namespace": NAMESPACE,
        "labels": {
            objects.CLUSTER_LABEL: INFRA,
            f"{GROUP}/cluster-api-machine-role": "worker",
            objects.TYPE_LABEL: size,
            objects.REGION_LABEL: center["name"],
            objects.ZONE_LABEL: where["name"],
        },
        "annotations": {objects.STATE_ANNOTATION: "up"},
        "finalizers": [objects.FINALIZER],
    }
    spec = {"providerID": names.provider_id(vm["id"]), "providerSpec": {"value": value}}
    kind = {"apiVersion": f"{GROUP}/v1beta1", "kind": "Machine"}
    return {**kind, "metadata": meta, "spec": spec, "status": _status(engine, vm)}


def _status(engine: Any, vm: Doc) -> Doc:
    name, now = vm["name"], conditions.stamp(engine.clock.wall())
    true = {"status": "True", "lastTransitionTime": now}
    made = {"type": conditions.MACHINE_CREATED, "reason": conditions.CREATE_SUCCEEDED, **true}
    done = {"type": "Create", "state": "Successful", "description": "the instance is complete", "lastUpdated": now}
    named = ({"type": kind, "address": name} for kind in ("Hostname", "InternalDNS"))
    held = (conditions.DRAINABLE, conditions.INSTANCE_EXISTS, conditions.TERMINABLE)
    return {
        "phase": "Running",
        "nodeRef": {"kind": "Node", "name": name, "uid": vm["id"]},
        "lastUpdated": now,
        "addresses": [{"type": "InternalIP", "address": _address(name)}, *named],
        "conditions": [{"type": kind, **true} for kind in held],
        "providerStatus": {"instanceId": vm["id"], "instanceState": "up", "conditions": [made]},
        "lastOperation": done,
    }


if __name__ == "__main__":
    serve(Path(sys.argv[1]), float(sys.argv[2]), int(sys.argv[3]))
