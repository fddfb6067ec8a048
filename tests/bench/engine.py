"""Measure the engine: how close a flow comes to its critical path, and what the journal costs.

Run as a program: ``python tests/bench/engine.py``. Prints one figure per line and ends with 1 if one misses its mark.
"""

from __future__ import annotations

import dataclasses
import pathlib
import random
import resource as usage
import sys
import tempfile
import time
from collections.abc import Mapping
from typing import ClassVar

from moorage.engine import clock as clocks
from moorage.engine import context, critical, flow, outputs, resource
from moorage.engine import journal as journals

WORKERS = 16
CRITICAL_SECONDS = 5.0


@dataclasses.dataclass(frozen=True, kw_only=True)
class Nap(resource.Resource[Mapping[str, object]]):
    """A resource that takes exactly as long as it is expected to."""

    kind: ClassVar[str] = "nap"

    def lookup(self, inputs: outputs.Inputs, ctx: context.Context) -> Mapping[str, object] | None:
        return None

    def create(self, inputs: outputs.Inputs, ctx: context.Context) -> str | None:
        return f"id-{self.name}"

    def wait(self, inputs: outputs.Inputs, ctx: context.Context) -> Mapping[str, object]:
        ctx.waiting("the nap to end")
        ctx.sleep(self.expected)
        return {"id": f"id-{self.name}", "address": "192.0.2.1"}

    def delete(self, inputs: outputs.Inputs, output: Mapping[str, object], ctx: context.Context) -> None:
        return None


def layered(count: int, layers: int, seconds: float) -> tuple[Nap, ...]:
    """Resources in layers, each needing up to three of the layer before; the slowest chain takes ``seconds``."""
    chance = random.Random(20)
    width = count // layers
    naps: list[Nap] = []
    for number in range(count):
        before = [nap.name for nap in naps if nap.name.startswith(f"l{number // width - 1}-")]
        needs = tuple(chance.sample(before, min(len(before), chance.randint(1, 3)))) if before else ()
        naps.append(Nap(name=f"l{number // width}-{number}", needs=needs, expected=chance.uniform(0.1, 1.0)))
    drawn = flow.Flow("bench", tuple(naps))
    scale = seconds / critical.critical_path(drawn.needs, drawn.expected).seconds if seconds else 0.0
    return tuple(dataclasses.replace(nap, expected=nap.expected * scale) for nap in naps)


def timed(naps: tuple[Nap, ...], folder: pathlib.Path) -> tuple[float, float]:
    """The wall and CPU seconds of one run with a durable journal."""
    wall, cpu = time.perf_counter(), time.process_time()
    with journals.Journal(folder / "journal.db") as journal:
        flow.run(flow.Flow("bench", naps), journal=journal, clock=clocks.Clock(), workers=WORKERS)
    return time.perf_counter() - wall, time.process_time() - cpu


def main() -> int:
    started = time.perf_counter()
    from moorage.engine import runner

    assert runner
    print(f"loading TaskFlow                       {time.perf_counter() - started:8.3f} s")
    missed = []
    with tempfile.TemporaryDirectory(dir=pathlib.Path.cwd()) as name:
        folders = [pathlib.Path(name) / each for each in ("dag", "empty", "large")]
        for folder in folders:
            folder.mkdir()

        naps = layered(60, 6, CRITICAL_SECONDS)
        wall, cpu = timed(naps, folders[0])
        ratio = wall / CRITICAL_SECONDS
        print(f"60 resources, makespan                 {wall:8.3f} s, critical path {CRITICAL_SECONDS:.3f} s")
        print(f"60 resources, makespan / critical path {ratio:8.3f}   (at most 1.05)")
        print(f"60 resources, CPU                      {cpu / 60 * 1000:8.2f} ms per resource")
        missed += ["makespan"] if ratio > 1.05 else []

        wall, cpu = timed(layered(60, 6, 0.0), folders[1])
        print(f"60 resources that take no time         {wall / 60 * 1000:8.2f} ms per resource")

        large = layered(200, 10, 0.0)
        wall, cpu = timed(large, folders[2])
        print(f"200 resources that take no time        {wall:8.3f} s, {wall / 200 * 1000:.2f} ms per resource")
        wall, cpu = timed(large, folders[2])
        print(f"200 finished resources, run again      {wall:8.3f} s   (less than 1)")
        missed += ["resume"] if wall >= 1.0 else []
    print(f"peak memory                            {usage.getrusage(usage.RUSAGE_SELF).ru_maxrss / 1024:8.0f} MB")
    if missed:
        print("missed: " + ", ".join(missed))
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
