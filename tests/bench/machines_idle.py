"""Ten thousand Machines that nobody touches: what our controllers cost, with a minimal kopf operator beside them.

Both follow the same objects on the same API at the same time. kopf is told of every change, and there is none. The
controllers look after every Machine's VM once in ten minutes. That round is measured by itself, told to begin sooner,
and so is the time in which nothing happens; ten minutes cost one round, and the rest of the time. What the engine is
asked is counted where it arrives.

    python tests/bench/machines_idle.py [machines]
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import fleet_stage
from processes import Figure, load, tell, used

from moorage.engine import clock as clocks
from moorage.platforms.ovirt import roll

MACHINES = 10_000
#: So often everything is looked at again, in seconds, and how soon while we look on: later than anything that was seen
#: in the round before is still believed. For the controllers time runs a little faster, lest that take long.
ROUND = 600.0
SOONER = roll.LONGEST + 10
SPEED = 3.0
PATIENCE = 600.0
#: Of a core; of the memory of the other; and of the calls that looks one by one would be.
MOST_CPU = 0.05
MOST_MEMORY = 1.0
MOST_CALLS = 0.1
_FOLLOWER = """
import kopf

@kopf.on.event("machine.openshift.io", "v1beta1", "machines")
def seen(**_):
    pass
"""
_CONTROLLERS = f"""
from moorage.cli import main
from moorage.machines.runtime import informer

informer.Informer.__init__.__kwdefaults__["resync"] = {SOONER}
informer._LONGEST_WATCH = 20.0
main.entry()
"""


def figures(machines: int = MACHINES) -> list[Figure]:
    """Let them rest, and both look on; tells what there is to tell besides."""
    tell(f"{machines} idle Machines", load())
    with (
        tempfile.TemporaryDirectory(prefix="moorage-bench-") as name,
        fleet_stage.started(Path(name) / "stage", SPEED, machines) as stage,
    ):
        folder, address = Path(name), f"{stage.environ['BENCH_HOST']}:18086"
        (folder / "follower.py").write_text(_FOLLOWER)
        (folder / "controllers.py").write_text(_CONTROLLERS)
        run = ["machine-api", "run", "--kubeconfig", stage.environ["KUBECONFIG"], "--no-leader-elect"]
        ours = ["controllers.py", *run, "--metrics-address", address, "--log-level", "warn"]
        kopf = ["-m", "kopf", "run", "--quiet", "--standalone", "-n", fleet_stage.NAMESPACE, "follower.py"]
        with (
            _process(ours, {**stage.environ, clocks.SPEED: str(SPEED)}, folder, "ours") as our_process,
            _process(kopf, stage.environ, folder, "kopf") as kopf_process,
        ):
            return _measured(machines, stage, our_process, kopf_process, address)


def _measured(machines: int, stage: fleet_stage.Stage, ours: int, kopf: int, address: str) -> list[Figure]:
    began = time.perf_counter()
    _until(lambda: _reconciled(address) >= machines, ours, "all Machines to be looked at")
    _until(lambda: _is_quiet(ours) and _is_quiet(kopf), ours, "both to be quiet")
    tell(
        "until both are quiet",
        f"{time.perf_counter() - began:.0f} s, {stage.told().calls.total()} calls of the engine,"
        f" CPU {used(ours).cpu:.1f} s, kopf {used(kopf).cpu:.1f} s",
    )
    before = used(ours).cpu
    seen, scrape = _reconciled(address), used(ours).cpu - before
    start, cpu, kopf_cpu, calls = time.perf_counter(), used(ours).cpu, used(kopf).cpu, stage.told().calls.total()
    rested, rest_cpu = _rested(stage, ours, calls)
    rest = (rest_cpu - cpu) / max(1.0, rested - start)
    # To ask how far they are is work for whoever is measured, which is not counted.
    asked = [_reconciled(address)]
    while asked[-1] < seen + machines and time.perf_counter() - rested < PATIENCE:
        time.sleep(5.0)
        asked.append(_reconciled(address))
    rounds = (asked[-1] - seen) / machines
    wall, round_calls = time.perf_counter() - rested, stage.told().calls.total() - calls
    each = (used(ours).cpu - rest_cpu - scrape * len(asked) - rest * wall) / rounds
    kopf_share = (used(kopf).cpu - kopf_cpu) / (time.perf_counter() - start)
    told = f"CPU {each:.1f} s, {round_calls / rounds:.0f} calls ({rounds:.2f} rounds)"
    tell("a round of looks", f"{told}; in between {rest:.2%} of a core; to tell the metrics once {scrape:.2f} s")
    tell("CPU of a core beside it: kopf", f"{kopf_share:.2%}; {load()}")
    mib = 2.0**20
    found = [
        Figure(f"CPU of a core, {machines} idle Machines / most", each / ROUND + rest, MOST_CPU, 1.0, ""),
        Figure("memory / kopf", used(ours).resident / mib, used(kopf).resident / mib, MOST_MEMORY, "MiB"),
        Figure("calls of the engine in ten minutes / one by one", round_calls / rounds, machines, MOST_CALLS, "calls"),
    ]
    # A program has a size of its own, whatever it keeps: among few Machines that says nothing about these.
    return [figure for figure in found if machines >= MACHINES or figure.unit != "MiB"]


def _reconciled(address: str) -> float:
    """How often a Machine was looked at, as the controllers tell."""
    try:
        text = urllib.request.urlopen(f"http://{address}/metrics", timeout=30).read().decode()
    except OSError:
        return 0.0
    lines = [line for line in text.splitlines() if line.startswith("controller_runtime_reconcile_total{")]
    return sum(float(line.rpartition(" ")[2]) for line in lines if 'controller="machine"' in line)


def _rested(stage: fleet_stage.Stage, pid: int, calls: int) -> tuple[float, float]:
    """Wait for the next round: the last moment before the engine was asked, and the CPU seconds until then."""
    end = time.perf_counter() + PATIENCE
    last = time.perf_counter(), used(pid).cpu
    while stage.told().calls.total() == calls:
        last = time.perf_counter(), used(pid).cpu
        if last[0] > end:
            raise SystemExit("never: the Machines to be looked at once more")
        time.sleep(2.0)
    return last


def _is_quiet(pid: int) -> bool:
    """Whether a process rests: next to nothing in two seconds."""
    before = used(pid).cpu
    time.sleep(2.0)
    return used(pid).cpu - before < 0.1


def _until(true: Callable[[], bool], pid: int, what: str) -> None:
    end = time.monotonic() + PATIENCE
    while not true():
        # A process that has ended waits for us to ask how, and has no memory any more.
        if time.monotonic() > end or not used(pid).resident:
            raise SystemExit(f"never: {what} ({used(pid)})")
        # Seldom, as every look at the metrics is work for whoever is measured.
        time.sleep(2.0)


@contextlib.contextmanager
def _process(words: list[str], environ: dict[str, str], folder: Path, name: str) -> Iterator[int]:
    log = folder / f"{name}.log"
    with log.open("wb") as file:
        process = subprocess.Popen(
            [sys.executable, *words], env={**os.environ, **environ}, cwd=folder, stdout=file, stderr=file
        )
    try:
        yield process.pid
    finally:
        process.terminate()
        process.wait(60)
        said = log.read_text().splitlines()
        if process.returncode or len(said) > 20:
            tell(f"{name} said", f"{len(said)} lines, ended {process.returncode}: {' | '.join(said[-2:])[:300]}")


if __name__ == "__main__":
    judged = figures(*map(int, sys.argv[1:]))
    for figure in judged:
        tell(figure.name, str(figure))
    sys.exit(1 if any(each.missed for each in judged) else 0)
