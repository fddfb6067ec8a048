"""Many workers join a cluster at once and stay: what `make bench` measures with a thousand, in small."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from pathlib import Path

from moorage.installer import produce
from tests.lab import administrator, rack

SPEED = 120.0
MASTERS, WORKERS = 3, 40
# Real seconds: for all to be Ready, on a busy machine; and several heartbeats for each of them.
PATIENCE, WATCHED = 120.0, 4.0
MOST_MEGABYTES = 350


def test_forty_workers_join_and_stay_ready(
    ready_dir: Path, make: Callable[..., produce.Produced], tmp_path: Path
) -> None:
    make(ready_dir)
    with rack.running_lab(tmp_path / "lab", SPEED) as lab:
        scene = rack.Rack(lab, ready_dir, masters=MASTERS)
        scene.power_on()
        bootstrapped = scene.moorage("wait-for", "bootstrap-complete")
        assert bootstrapped.returncode == 0, f"{bootstrapped.stderr}\n{scene.consoles()}"
        kubeconfig = tmp_path / "kubeconfig"
        kubeconfig.write_text(lab.control("GET", "/lab/kubeconfig"))

        nodes = asyncio.run(_joined(scene, kubeconfig))

        assert nodes.count == MASTERS + WORKERS
        assert nodes.flaps == []
        assert _peak_megabytes(lab.pid) < MOST_MEGABYTES


async def _joined(scene: rack.Rack, kubeconfig: Path) -> administrator.Nodes:
    """The Nodes, all Ready and then watched for a while."""
    user_data = (scene.assets / "worker.ign").read_bytes()
    async with administrator.of(kubeconfig) as cluster, administrator.at_work(cluster) as nodes:
        for number in range(WORKERS):
            await asyncio.to_thread(scene.plain.machine, f"worker-{number}", user_data)
        async with asyncio.timeout(PATIENCE):
            await nodes.until(MASTERS + WORKERS)
        # That nothing happens can only be seen by looking on.
        await asyncio.sleep(WATCHED)
        return nodes


def _peak_megabytes(process: int) -> int:
    found = re.search(r"^VmHWM:\s+(\d+) kB", Path(f"/proc/{process}/status").read_text(), re.MULTILINE)
    assert found
    return int(found[1]) // 1024
