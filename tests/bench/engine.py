"""Measure the engine: how close a flow comes to its critical path, and what the journal costs.

`run.py` prints these figures beside the others. Run as a program, this runs the large flow with a journal in the given
folder; the second time everything is finished already, which is how long it takes to find out that nothing is to do.
"""

from __future__ import annotations

import contextlib
import dataclasses
import pathlib
import random
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from typing import ClassVar

from moorage.engine import clock as clocks
from moorage.engine import context, critical, flow, outputs, resource
from moorage.engine import journal as journals

WORKERS = 16
ROUNDS = 3
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


@dataclasses.dataclass(frozen=True)
class Figure:
    """Seconds of ours, the seconds they are compared with, and the ratio allowed (None: told, not judged)."""

    name: str
    ours: float
    floor: float
    most: float | None


def commits(folder: pathlib.Path, count: int) -> None:
    """Durable commits and nothing else: what the disk asks for, whoever writes."""
    with contextlib.closing(sqlite3.connect(folder / "floor.db", isolation_level=None)) as database:
        database.execute("PRAGMA journal_mode=WAL")
        database.execute("PRAGMA synchronous=FULL")
        database.execute("CREATE TABLE IF NOT EXISTS events (id INTEGER PRIMARY KEY, what TEXT)")
        for _ in range(count):
            database.execute("INSERT INTO events (what) VALUES ('something happened')")


def figures() -> Iterator[Figure]:
    """All figures; they are taken on the disk of the current directory, since /tmp may be memory."""
    from moorage.engine import runner

    assert runner  # loaded beforehand: half a second once, in an installation of an hour
    with tempfile.TemporaryDirectory(dir=pathlib.Path.cwd()) as name:
        root = pathlib.Path(name)
        naps = layered(60, 6, CRITICAL_SECONDS)
        walls = [timed(naps, _folder(root, f"dag-{number}"))[0] for number in range(ROUNDS)]
        yield Figure("60-task flow / its critical path", statistics.median(walls), CRITICAL_SECONDS, 1.05)

        empty = layered(200, 10, 0.0)
        pairs = []
        for number in range(ROUNDS):
            wall, _cpu = timed(empty, _folder(root, f"empty-{number}"))
            started = time.perf_counter()
            commits(root, 200)
            pairs.append((wall / 200, (time.perf_counter() - started) / 200))
        ours, floor = (statistics.median(side) for side in zip(*pairs, strict=True))
        yield Figure("engine per task / one durable commit", ours, floor, None)

        finished = root / f"empty-{ROUNDS - 1}"
        again = [_whole_process(finished) for _ in range(ROUNDS)]
        yield Figure("finished 200-task flow run again / one second", statistics.median(again), 1.0, 1.0)


def _folder(root: pathlib.Path, name: str) -> pathlib.Path:
    folder = root / name
    folder.mkdir()
    return folder


def _whole_process(folder: pathlib.Path) -> float:
    """The seconds a new process takes, from its start to its end, to resume the flow in a folder."""
    started = time.perf_counter()
    subprocess.run([sys.executable, __file__, str(folder)], check=True)
    return time.perf_counter() - started


if __name__ == "__main__":
    timed(layered(200, 10, 0.0), pathlib.Path(sys.argv[1]))
