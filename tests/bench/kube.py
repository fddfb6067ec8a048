"""The lab's Kubernetes API beside a real kube-apiserver: 10,000 Machines made, listed and watched by the same client.

Each server is a process of its own (the real one is two: kube-apiserver and etcd, which need not keep their disk in
step here); the client is in this process, counts bytes and lines, and parses nothing that it need not.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import json
import os
import ssl
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Sequence
from pathlib import Path

import aiohttp

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from tests.kube import cluster, embedded, objects, real  # noqa: E402 - run as a script, tests are not on the path

OBJECTS = 10_000
WATCHERS = 100
UPDATES = 1_000
WRITERS = 16
PAGE = 500
ROUNDS = 3
GROUP = "machine.openshift.io"
MACHINES = f"/apis/{GROUP}/v1beta1/namespaces/default/machines"
TICKS = os.sysconf("SC_CLK_TCK")


def definition() -> objects.Object:
    """machines.machine.openshift.io, with as much of a schema as a server has to check for every object."""
    text, open_object = {"type": "string"}, {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    condition = {
        "type": "object",
        "required": ["type", "status"],
        "properties": dict.fromkeys(("type", "status"), text),
    }
    address = {"type": "object", "properties": dict.fromkeys(("type", "address"), text)}
    taint = {"type": "object", "properties": dict.fromkeys(("key", "value", "effect"), text)}
    provider = {"type": "object", "properties": {"value": open_object}}
    spec = {"providerID": text, "providerSpec": provider, "taints": {"type": "array", "items": taint}}
    status = {
        "phase": text,
        "nodeRef": open_object,
        "addresses": {"type": "array", "items": address},
        "conditions": {"type": "array", "items": condition},
    }
    schema = {
        "type": "object",
        "properties": {
            "spec": {"type": "object", "properties": spec},
            "status": {"type": "object", "properties": status},
        },
    }
    version = {"name": "v1beta1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    names = {"plural": "machines", "singular": "machine", "kind": "Machine", "listKind": "MachineList"}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"machines.{GROUP}"},
        "spec": {
            "group": GROUP,
            "scope": "Namespaced",
            "names": names,
            "versions": [{**version, "subresources": {"status": {}}}],
        },
    }


def machine(number: int) -> objects.Object:
    """A Machine of about 2 kB."""
    value = {"image": "rhcos", "cores": 4, "memory": 16384, "userData": "x" * 1500}
    labels = {f"{GROUP}/cluster-api-cluster": "harbour", f"{GROUP}/cluster-api-machine-role": "worker"}
    return {
        "apiVersion": f"{GROUP}/v1beta1",
        "kind": "Machine",
        "metadata": {"name": f"harbour-worker-{number:05}", "labels": labels},
        "spec": {
            "providerID": f"lab:///{number}",
            "providerSpec": {"value": value},
            "taints": [{"key": "a", "value": "b", "effect": "NoSchedule"}],
        },
    }


@dataclasses.dataclass(frozen=True)
class Subject:
    """A server under test: where it is, how one gets in, and the processes it is made of."""

    name: str
    url: str
    ca: str
    certificate: str
    key: str
    processes: Sequence[int]

    def cpu(self) -> float:
        """CPU seconds spent so far."""
        stats = [Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split() for pid in self.processes]
        return sum(int(stat[11]) + int(stat[12]) for stat in stats) / TICKS

    def resident(self) -> float:
        """MiB of memory in use."""
        lines = [line for pid in self.processes for line in Path(f"/proc/{pid}/status").read_text().splitlines()]
        return sum(int(line.split()[1]) for line in lines if line.startswith("VmRSS:")) / 1024


@dataclasses.dataclass(frozen=True)
class Measure:
    """Something done ``times`` times in so many seconds of the wall, and of the server's CPU."""

    name: str
    times: int
    wall: float
    cpu: float
    resident: float


class Client:
    """What is done to either server."""

    def __init__(self, subject: Subject, session: aiohttp.ClientSession) -> None:
        self._subject = subject
        self._session = session
        self.measures: list[Measure] = []

    async def measure(self, name: str, times: int, action: Callable[[], Coroutine[None, None, None]]) -> None:
        wall, cpu = time.perf_counter(), self._subject.cpu()
        await action()
        wall, cpu = time.perf_counter() - wall, self._subject.cpu() - cpu
        self.measures.append(Measure(name, times, wall, cpu, self._subject.resident()))

    async def send(self, method: str, path: str, body: objects.Object, kind: str = "application/json") -> None:
        headers = {"Content-Type": kind}
        async with self._session.request(method, path, data=json.dumps(body), headers=headers) as answer:
            text = await answer.read()
            if answer.status >= 300:
                raise RuntimeError(f"{method} {path}: {answer.status} {text[:500]!r}")

    async def define(self) -> None:
        await self.send("POST", objects.DEFINITIONS, definition())
        for _ in range(200):
            async with self._session.get(MACHINES) as answer:
                if answer.status == 200:
                    return
            await asyncio.sleep(0.1)
        raise RuntimeError("the kind is not served")

    async def create(self) -> None:
        numbers = iter(range(OBJECTS))

        async def writer() -> None:
            for number in numbers:
                await self.send("POST", MACHINES, machine(number))

        await asyncio.gather(*(writer() for _ in range(WRITERS)))

    async def list_whole(self) -> None:
        for _ in range(ROUNDS):
            async with self._session.get(MACHINES) as answer:
                data = await answer.read()
                assert answer.status == 200
                assert data.count(b'"providerID"') >= OBJECTS

    async def list_pages(self) -> None:
        token, pages = "", 0
        while token or not pages:
            async with self._session.get(MACHINES, params={"limit": str(PAGE), "continue": token}) as answer:
                page = json.loads(await answer.read())
                assert answer.status == 200, page
                token, pages = page["metadata"].get("continue", ""), pages + 1
        assert pages == OBJECTS // PAGE

    async def fan_out(self) -> None:
        """All watchers hear of all updates."""
        async with self._session.get(MACHINES, params={"limit": "1"}) as answer:
            version = (await answer.json())["metadata"]["resourceVersion"]
        ready = [asyncio.Event() for _ in range(WATCHERS)]

        async def watcher(opened: asyncio.Event) -> None:
            heard = 0
            async with self._session.get(MACHINES, params={"watch": "1", "resourceVersion": version}) as answer:
                assert answer.status == 200
                opened.set()
                async for chunk in answer.content.iter_any():
                    heard += chunk.count(b"\n")
                    if heard >= UPDATES:
                        return
            raise RuntimeError(f"a watch ended after {heard} events")

        watchers = [asyncio.create_task(watcher(each)) for each in ready]
        await asyncio.gather(*(each.wait() for each in ready))
        numbers = iter(range(UPDATES))

        async def writer() -> None:
            for number in numbers:
                path = f"{MACHINES}/harbour-worker-{number:05}/status"
                await self.send("PATCH", path, {"status": {"phase": "Running"}}, "application/merge-patch+json")

        await asyncio.gather(*(writer() for _ in range(WRITERS)), *watchers)


async def run(subject: Subject) -> list[Measure]:
    """All measures of one server."""
    async with connected(subject) as session:
        client = Client(subject, session)
        await client.define()
        await client.measure(f"create {OBJECTS} Machines", OBJECTS, client.create)
        await client.measure(f"list {OBJECTS} whole", ROUNDS, client.list_whole)
        await client.measure(f"list {OBJECTS} by {PAGE}", 1, client.list_pages)
        await client.measure(f"{WATCHERS} watchers, {UPDATES} updates", WATCHERS * UPDATES, client.fan_out)
        return client.measures


@contextlib.asynccontextmanager
async def connected(subject: Subject) -> AsyncIterator[aiohttp.ClientSession]:
    context = ssl.create_default_context(cafile=subject.ca)
    context.load_cert_chain(subject.certificate, subject.key)
    connector = aiohttp.TCPConnector(ssl=context, limit=0)
    timeout = aiohttp.ClientTimeout(total=None, sock_read=120)
    async with aiohttp.ClientSession(subject.url, connector=connector, timeout=timeout) as session:
        yield session


def _subject(name: str, made: cluster.Cluster, processes: Sequence[int]) -> Subject:
    kubeconfig = made.kubeconfig()
    pair = str(kubeconfig.with_suffix(".crt")), str(kubeconfig.with_suffix(".key"))
    return Subject(name, made.url, str(made.ca), *pair, processes)


@contextlib.contextmanager
def lab_subject() -> Iterator[Subject]:
    """The lab's server in a new process: this file, told to serve."""
    with tempfile.TemporaryDirectory() as folder:
        words = [sys.executable, __file__, "serve", folder]
        with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdin is not None
            assert process.stdout is not None
            yield Subject("lab", *json.loads(process.stdout.readline()), (process.pid,))
            process.stdin.close()


def serve(folder: Path) -> None:
    """For the new process: serve until the other side of stdin is closed."""
    with embedded.running(folder) as made:
        subject = _subject("lab", made, ())
        print(json.dumps([subject.url, subject.ca, subject.certificate, subject.key]), flush=True)
        sys.stdin.read()


@contextlib.contextmanager
def real_subject() -> Iterator[Subject]:
    with (
        tempfile.TemporaryDirectory() as folder,
        real.running(Path(folder), controllers=False) as (made, processes),
    ):
        yield _subject("real", made, [process.pid for process in processes.running.values()])


def missing() -> list[str]:
    """The real programs that are not here."""
    return [name for name in ("kube-apiserver", "kubectl", "etcd") if real.program(name) is None]


def report() -> None:
    """Measure both, and print a table."""
    found: dict[str, list[Measure]] = {}
    with lab_subject() as subject:
        found["lab"] = asyncio.run(run(subject))
    if lacking := missing():
        print(f"no real Kubernetes to compare with, for want of {', '.join(lacking)}: make conformance gets them")
    else:
        with real_subject() as subject:
            found["real"] = asyncio.run(run(subject))
    print(f"{'Kubernetes API':34} {'':5} {'each':>10} {'per second':>11} {'CPU':>8} {'memory':>9}")
    for rows in zip(*found.values(), strict=True):
        for name, row in zip(found, rows, strict=True):
            title = row.name if name == "lab" else ""
            each, rate = row.wall / row.times * 1000, row.times / row.wall
            print(f"{title:34} {name:5} {each:7.2f} ms {rate:11.0f} {row.cpu:6.1f} s {row.resident:5.0f} MiB")
        if len(rows) == 2:
            time_ratio, memory_ratio = rows[0].wall / rows[1].wall, rows[0].resident / rows[1].resident
            print(f"{'':34} lab / real: {time_ratio:.2f} of the time, {memory_ratio:.2f} of the memory")


if __name__ == "__main__":
    if sys.argv[1:2] == ["serve"]:
        serve(Path(sys.argv[2]))
    else:
        report()
