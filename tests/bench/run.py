"""`make bench`: the ratios we hold ourselves to, each against its floor in the same run; exits 1 if one is missed.

Times vary with what else a machine does, so the two sides of a ratio are measured in turn and compared by their
medians: load hits both.
"""

from __future__ import annotations

import dataclasses
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import engine
import machines_idle
import ovirt
from processes import tell

import kube
import lab
import machines

ROOT = Path(__file__).resolve().parents[2]
MOORAGE = Path(sys.executable).parent / "moorage"
CONFIG = """\
apiVersion: v1
baseDomain: example.com
metadata: {name: bench}
platform: {none: {}}
pullSecret: '{"auths":{"registry.example.com":{"auth":"YTpi"}}}'
"""
KEYS_ALONE = "from moorage.assets import keys; s = keys.KeySource(len(keys.NAMES)); [s.take() for _ in keys.NAMES]"


def run(*words: str | Path) -> None:
    subprocess.run(words, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def seconds(action: Callable[[], None]) -> float:
    started = time.perf_counter()
    action()
    return time.perf_counter() - started


def in_turn(ours: Callable[[], None], floor: Callable[[], None], rounds: int) -> tuple[float, float]:
    """Medians of both, measured alternately after one warm-up each."""
    ours()
    floor()
    pairs = [(seconds(ours), seconds(floor)) for _ in range(rounds)]
    return statistics.median(a for a, _ in pairs), statistics.median(b for _, b in pairs)


def ignition_configs() -> None:
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "install-config.yaml").write_text(CONFIG)
        run(MOORAGE, "create", "ignition-configs", "--dir", folder)


def main() -> int:
    rows = []

    def row(name: str, ours: float, floor: float, most: float | None) -> None:
        ratio = ours / floor
        missed = most is not None and ratio > most
        rows.append({"name": name, "ours": ours, "floor": floor, "ratio": ratio, "most": most, "missed": missed})
        verdict = "" if most is None else f"  (at most {most}) {'MISSED' if missed else 'ok'}"
        print(f"{name:50} {ours * 1000:8.1f} ms / {floor * 1000:8.1f} ms = {ratio:5.2f}{verdict}", flush=True)

    print(f"{os.cpu_count()} cores, Python {sys.version.split()[0]}")
    row(
        "moorage --help / bare python",
        *in_turn(lambda: run(MOORAGE, "--help"), lambda: run(sys.executable, "-c", "pass"), 31),
        3.0,
    )
    row(
        "create ignition-configs / its RSA keys alone",
        *in_turn(ignition_configs, lambda: run(sys.executable, "-c", KEYS_ALONE), 21),
        1.3,
    )
    for figure in engine.figures():
        row(figure.name, figure.ours, figure.floor, figure.most)
    kube.report()
    cluster = ovirt.report()
    crowd = lab.report()
    for each in (*machines.figures(), *machines_idle.figures()):
        rows.append({**dataclasses.asdict(each), "ratio": each.ratio, "missed": each.missed})
        tell(each.name, str(each))
    if "-o" in sys.argv:
        print(json.dumps(rows))
    return 1 if not (crowd and cluster) or any(each["missed"] for each in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
