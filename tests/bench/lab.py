"""A large cluster in the lab: three masters, then a thousand workers that boot, ask to be let in and become Ready.

Everything goes the way it goes for users: machines over the provider's API, requests approved over the cluster's own,
Nodes watched for what they report. The lab is a process of its own, so its memory and processor time are its own too.
Every connection is real, with TLS, through the balancer, which is why the processor and not the clock sets the pace:
at 60 a machine would be up in two seconds, in which its neighbours need the core anyway; a faster clock would only have
them wait for each other.

    python tests/bench/lab.py [workers [speed [idle seconds]]]
"""

from __future__ import annotations

import asyncio
import collections
import concurrent.futures
import contextlib
import dataclasses
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from moorage.lab import client  # noqa: E402 - run as a script, tests are not on the path
from tests.lab import administrator, rack  # noqa: E402

WORKERS = 1_000
SPEED = 60.0
MASTERS = 3
# Machines are switched on so many at a time, the next ones when all but half of those before are Ready.
BATCH = 200
IDLE_SECONDS = 60.0
PATIENCE = 600.0
TICKS = os.sysconf("SC_CLK_TCK")
# The most that we allow ourselves. What takes time is said beside the load of the machine, and judged by whoever reads.
MOST_BYTES = 1.5 * 2**30
CONFIG = """\
apiVersion: v1
baseDomain: example.com
metadata: {name: harbour}
compute: [{name: worker, replicas: 0}]
platform: {none: {}}
pullSecret: '{"auths":{"registry.example.com":{"auth":"YTpi"}}}'
"""


def report(workers: int = WORKERS, speed: float = SPEED, idle_seconds: float = IDLE_SECONDS) -> bool:
    """Print the figures; whether all nodes came and stayed, in the memory that we allow."""
    tell(f"{workers} workers join a cluster in the lab at {speed:g} times", load())
    with tempfile.TemporaryDirectory(prefix="moorage-bench-") as folder:
        assets = Path(folder) / "assets"
        assets.mkdir()
        began = time.perf_counter()
        lab = client.start(Path(folder) / "lab", speed)
        tell("lab start", f"{time.perf_counter() - began:6.2f} s wall")
        try:
            first = usage(lab)
            bring_up(lab, assets)
            tell("cluster up", usage(lab).since(first))
            nodes = asyncio.run(joined(lab, assets, workers, idle_seconds))
            last, told = usage(lab), lab.control("GET", "/lab")
        finally:
            client.stop(lab)
    well = nodes.count == workers + MASTERS and not nodes.flaps and told["clusters"][0]["state"] == "installed"
    tell(
        "Ready at the end", f"{nodes.count}; ceased to be: {len(nodes.flaps)}; cluster: {told['clusters'][0]['state']}"
    )
    small = last.peak <= MOST_BYTES
    tell("memory", f"{last.peak >> 20} MiB (at most {int(MOST_BYTES) >> 20}) {'ok' if small else 'MISSED'}")
    tell("", load())
    return well and small


def tell(name: str, figures: str) -> None:
    print(f"{name:50} {figures}", flush=True)


def load() -> str:
    return f"load average {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores"


# --- the lab's process -------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Usage:
    """What the lab has used so far, in real and cloud seconds, bytes and calls."""

    wall: float
    cpu: float
    peak: int
    cloud: float
    calls: int

    def since(self, before: Usage) -> str:
        wall, cpu, calls = self.wall - before.wall, self.cpu - before.cpu, self.calls - before.calls
        return (
            f"{wall:6.1f} s wall, {(self.cloud - before.cloud) / 60:.0f} cloud minutes,"
            f" CPU {cpu:.1f} s ({100 * cpu / wall:.0f} % of a core),"
            f" {calls} calls ({calls / wall:.0f}/s), {self.peak >> 20} MiB at most"
        )


def usage(lab: client.Lab) -> Usage:
    words = Path(f"/proc/{lab.pid}/stat").read_text().rpartition(")")[2].split()
    peak = re.search(r"^VmHWM:\s+(\d+) kB", Path(f"/proc/{lab.pid}/status").read_text(), re.MULTILINE)
    told = lab.control("GET", "/lab")
    cpu = (int(words[11]) + int(words[12])) / TICKS
    return Usage(time.perf_counter(), cpu, int(peak[1] if peak else 0) << 10, told["seconds"], told["calls"])


class Calls:
    """Counts the calls of the lab's APIs by kind: method and path without names. The lab forgets, so ask in time."""

    def __init__(self, lab: client.Lab) -> None:
        self._lab = lab
        self._after = 0
        self.counts: collections.Counter[str] = collections.Counter()

    def take(self) -> None:
        for call in self._lab.control("GET", f"/lab/calls?after={self._after}"):
            self._after = call["number"]
            self.counts[f"{call['method']:6} {_kind(call['path'])} {call['status']}"] += 1

    async def follow(self) -> None:
        while True:
            await asyncio.to_thread(self.take)
            await asyncio.sleep(10)


def _kind(path: str) -> str:
    plain, _, query = path.partition("?")
    plain = re.sub(r"/(namespaces|machines|nodes|leases|certificatesigningrequests|pods)/[^/]+", r"/\1/…", plain)
    plain = re.sub(r"^/apis?(/[a-z0-9.-]+)?/v\w+/(namespaces/…/)?", "", plain)
    return plain + ("?watch" if "watch=" in query else "")


# --- the story ---------------------------------------------------------------------------------------------------


def bring_up(lab: client.Lab, assets: Path) -> None:
    """A cluster of three masters that do all the work."""
    (assets / "install-config.yaml").write_text(CONFIG)
    scene = rack.Rack(lab, assets, masters=MASTERS)
    _done(scene.moorage("create", "ignition-configs"))
    scene.power_on()
    _done(scene.moorage("wait-for", "bootstrap-complete"))
    scene.balance(bootstrap=False)
    scene.plain.delete_machine("bootstrap")
    _done(scene.moorage("wait-for", "install-complete"))


def _done(finished: subprocess.CompletedProcess[str]) -> None:
    if finished.returncode:
        raise SystemExit(f"{' '.join(finished.args[2:])}: {finished.stderr[-1500:]}")


async def joined(lab: client.Lab, assets: Path, workers: int, idle_seconds: float) -> administrator.Nodes:
    """Switch the workers on, follow them until all are Ready, and look on for a while."""
    path = assets / "lab-kubeconfig"
    path.write_text(lab.control("GET", "/lab/kubeconfig"))
    user_data = (assets / "worker.ign").read_bytes()
    async with administrator.of(path) as cluster, administrator.at_work(cluster) as nodes, _counted(lab):
        began = await asyncio.to_thread(usage, lab)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(PATIENCE):
                for first in range(0, workers, BATCH):
                    await nodes.until(MASTERS + max(0, first - BATCH // 2))
                    await asyncio.to_thread(switch_on, lab, user_data, range(first, min(first + BATCH, workers)))
                await nodes.until(MASTERS + workers)
        ended = await asyncio.to_thread(usage, lab)
        tell(f"first worker on until {nodes.count} Nodes are Ready", ended.since(began))
        await asyncio.sleep(idle_seconds)
        tell("idle", (await asyncio.to_thread(usage, lab)).since(ended))
    return nodes


def switch_on(lab: client.Lab, user_data: bytes, numbers: range) -> None:
    """Some machines, over a few connections at once."""

    def work(mine: range) -> None:
        plain = client.Plain(lab)
        for number in mine:
            plain.machine(f"worker-{number}", user_data)

    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        list(pool.map(work, [numbers[place::4] for place in range(4)]))


@contextlib.asynccontextmanager
async def _counted(lab: client.Lab) -> AsyncIterator[None]:
    """Tell at the end which calls were made."""
    calls = Calls(lab)
    counting = asyncio.create_task(calls.follow())
    try:
        yield
    finally:
        counting.cancel()
        await asyncio.gather(counting, return_exceptions=True)
    await asyncio.to_thread(calls.take)
    for name, count in calls.counts.most_common(16):
        tell("", f"{count:7} {name}")


if __name__ == "__main__":
    given = [kind(word) for kind, word in zip((int, float, float), sys.argv[1:], strict=False)]
    sys.exit(0 if report(*given) else 1)
