"""The crash matrix on oVirt: killed at EVERY call to the engine, before it is sent, once it took effect, when answered.

The real commands run against a lab's engine, as far as the machines' start. Whatever call a creation dies at, the same
command ends with the very inventory of an undisturbed run; a destroy that dies is begun again and leaves what was there
before. Neighbours whose names resemble the cluster's must not lose anything.
"""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import itertools
import queue
import time
from collections.abc import Callable, Iterator
from concurrent import futures
from pathlib import Path

import pytest

from moorage.assets import keys
from tests.crash.ovirt import program, station

# Most of a trial's time is spent waiting for cloud time to pass.
STATIONS = 3


@dataclasses.dataclass(frozen=True)
class Clean:
    """What undisturbed runs do and leave."""

    calls: list[str]
    destroy_calls: list[str]
    portrait: station.Portrait


@dataclasses.dataclass(frozen=True)
class Trial:
    """One row of the matrix."""

    family: str
    name: str
    run: Callable[[station.Station, Clean], None]


def clean_run(here: station.Station) -> Clean:
    here.reset()
    assert here.create(listed=True) == 0, here.words()
    calls, portrait = here.calls.read_text().splitlines(), here.portrait()
    assert here.destroy(listed=True) == 0, here.words()
    assert here.leaks() == []
    return Clean(calls, here.calls.read_text().splitlines(), portrait)


def killed_both_ways(clean: Clean) -> Iterator[Trial]:
    """Every call of create; beside them, in turn, every call of destroy."""
    removals = itertools.cycle(_every(clean.destroy_calls))
    for crash in _every(clean.calls):
        removal = next(removals)

        def run(here: station.Station, clean: Clean, crash: str = crash, removal: str = removal) -> None:
            resumed(here, clean, crash)
            destroyed(here, removal)

        yield Trial("killed, resumed; killed, destroyed", f"{crash}, {removal}", run)


def killed_and_destroyed(clean: Clean) -> Iterator[Trial]:
    """What a creation left half made at each call, destroyed without ever having been completed."""
    phases = itertools.cycle(program.PHASES)
    for fatal in range(1, len(clean.calls) + 1):
        crash = f"{fatal}:{next(phases)}"

        def run(here: station.Station, _clean: Clean, crash: str = crash) -> None:
            assert here.create(crash=crash) in (station.KILLED, 0), here.words()
            destroyed(here)

        yield Trial("killed, destroyed half made", crash, run)


def killed_again_and_again(clean: Clean) -> Iterator[Trial]:
    phases = itertools.cycle(program.PHASES)
    for fatal in range(8, len(clean.calls), 8):
        crashes = [f"{place}:{next(phases)}" for place in (fatal, 1 + fatal % 9, 5)]

        def run(here: station.Station, clean: Clean, crashes: list[str] = crashes) -> None:
            resumed(here, clean, *crashes)
            destroyed(here)

        yield Trial("killed again during resume", ", ".join(crashes), run)


def _every(calls: list[str]) -> list[str]:
    """Every call in every phase; one that only reads in one of them, in turn: the engine is the same in all three."""
    phases = itertools.cycle(program.PHASES)
    return [
        f"{number}:{phase}"
        for number, call in enumerate(calls, 1)
        for phase in ([next(phases)] if call.startswith("GET ") else program.PHASES)
    ]


def resumed(here: station.Station, clean: Clean, *crashes: str) -> None:
    """Die at each place in turn, then go on undisturbed."""
    for crash in crashes:
        # A run that polls less often than the clean one may be complete before it gets there.
        assert here.create(crash=crash) in (station.KILLED, 0), f"create, {crash}: {here.words()}"
    assert here.create() == 0, f"create again: {here.words()}"
    now = here.portrait()
    for kind, wanted in clean.portrait.items():
        assert now[kind] == wanted, f"{kind}: {now[kind]}, and not {wanted}"


def destroyed(here: station.Station, *crashes: str) -> None:
    """The same for destroy; a cluster that is gone has no files of it left to begin again with."""
    for crash in crashes:
        assert here.destroy(crash=crash) in (station.KILLED, 0), f"destroy, {crash}: {here.words()}"
    if (here.scene.assets / "metadata.json").exists():
        assert here.destroy() == 0, f"destroy again: {here.words()}"
    assert here.leaks() == []


def test_no_crash_at_any_call_leaks_or_doubles_anything(
    tmp_path: Path, keyring: keys.Keyring, capfd: pytest.CaptureFixture[str]
) -> None:
    began = time.monotonic()
    with contextlib.ExitStack() as stack:
        stations: queue.Queue[station.Station] = queue.Queue()
        for number in range(STATIONS):
            stations.put(stack.enter_context(station.opened(tmp_path / str(number), keyring)))
        cleans = {id(here): clean_run(here) for here in list(stations.queue)}
        most = max(cleans.values(), key=lambda clean: (len(clean.calls), len(clean.destroy_calls)))
        families = (killed_both_ways, killed_and_destroyed, killed_again_and_again)
        matrix = [trial for family in families for trial in family(most)]

        def conduct(trial: Trial) -> str:
            here = stations.get()
            try:
                here.reset()
                trial.run(here, cleans[id(here)])
            except AssertionError as problem:
                # What the failed trial left is its own problem, and not the next one's.
                here.forgive()
                told = f"{trial.family}, {trial.name}: {problem}"
                with capfd.disabled():
                    print(f"\n{told}", flush=True)
                return told
            finally:
                stations.put(here)
            return ""

        with futures.ThreadPoolExecutor(STATIONS) as pool:
            problems = [problem for problem in pool.map(conduct, matrix) if problem]
    with capfd.disabled():
        print(_report(matrix, most, problems, time.monotonic() - began))
    assert not problems, "\n\n".join(problems)


def _report(matrix: list[Trial], clean: Clean, problems: list[str], seconds: float) -> str:
    lines = [f"{len(clean.calls)} calls in a clean run, {len(clean.destroy_calls)} in destroy"]
    lines += [f"{count:5} {family}" for family, count in collections.Counter(t.family for t in matrix).items()]
    leaks = sum("left:" in problem or "lost:" in problem for problem in problems)
    lines.append(f"{len(matrix)} trials, {len(problems)} failed, {leaks} leaks; {seconds:.0f} s")
    return "\n".join(["", *lines])
