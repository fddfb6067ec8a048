"""The whole crash matrix: killed at EVERY call to the cloud, before it is sent, once it took effect, after its reply.

Each run must go on to exactly the inventory of an undisturbed one, and destroy must then leave exactly what was there
before, however little it has to go by. `make test` tries a sample of it (tests/crash).
"""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import itertools
import queue
from collections.abc import Callable, Iterator
from concurrent import futures
from pathlib import Path

import pytest

from moorage.assets import keys
from tests.crash import harness, trials
from tests.crash.filecloud import client, server

# Half of a trial's time is spent waiting for cloud time to pass, so that two cores are busy with three.
WORKERS = 3


@dataclasses.dataclass(frozen=True)
class Trial:
    """One row of the matrix."""

    family: str
    name: str
    run: Callable[[harness.Site, trials.Clean], None]
    failing: bool = False


def killed_once(clean: trials.Clean) -> Iterator[Trial]:
    ways = itertools.cycle(["", *trials.WAYS])
    for fatal, phase in itertools.product(range(1, len(clean.calls) + 1), client.PHASES):
        crash, how = f"{fatal}:{phase}", next(ways)

        def run(site: harness.Site, clean: trials.Clean, crash: str = crash, how: str = how) -> None:
            trials.resumed(site, clean, crash)
            trials.destroyed(site, clean, how)

        yield Trial("killed, resumed, destroyed", f"{crash}, {how}", run)


def killed_in_resume(clean: trials.Clean) -> Iterator[Trial]:
    phases = itertools.cycle(client.PHASES)
    for fatal in range(4, len(clean.calls), 6):
        crashes = tuple(f"{place}:{next(phases)}" for place in (fatal, 1 + fatal % 9, 3))

        def run(site: harness.Site, clean: trials.Clean, crashes: tuple[str, ...] = crashes) -> None:
            trials.resumed(site, clean, *crashes)
            trials.destroyed(site, clean)

        yield Trial("killed again during resume", str(crashes), run)


def killed_in_rollback(clean: trials.Clean) -> Iterator[Trial]:
    phases = itertools.cycle(client.PHASES)
    for fatal in range(30, clean.rollback_calls, 3):
        crashes = (f"{fatal}:{next(phases)}", f"{1 + fatal % 11}:{next(phases)}")

        def run(site: harness.Site, clean: trials.Clean, crashes: tuple[str, ...] = crashes) -> None:
            trials.rolled_back(site, clean, *crashes)

        yield Trial("killed during roll-back", str(crashes), run, failing=True)


def killed_in_destroy(clean: trials.Clean) -> Iterator[Trial]:
    phases = itertools.cycle(client.PHASES)
    middle = len(clean.calls) // 2
    for fatal in range(1, clean.destroy_calls, 3):
        crash = f"{fatal}:{next(phases)}"

        def run(site: harness.Site, clean: trials.Clean, crash: str = crash) -> None:
            assert site.create(crash=f"{middle}:after-commit").code in (trials.KILLED, 0)
            assert site.destroy(crash=crash).code in (trials.KILLED, 0)
            trials.destroyed(site, clean, "twice")

        yield Trial("killed during destroy", crash, run)


def misbehaving(clean: trials.Clean) -> Iterator[Trial]:
    creates = [number for number, call in enumerate(clean.calls, 1) if " POST " in call]
    for kind, place in itertools.product(server.FAULTS, [1, *creates[::3], len(clean.calls) - 3]):

        def run(site: harness.Site, clean: trials.Clean, kind: str = kind, place: int = place) -> None:
            site.cloud.admin("faults", {place: kind, place + 5: kind})
            trials.resumed(site, clean)
            site.cloud.admin("faults", {3: kind, 12: kind, 25: kind})
            trials.destroyed(site, clean)

        yield Trial("cloud misbehaves", f"{kind} at {place}", run)


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory, keyring: keys.Keyring) -> Path:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MOORAGE_PLATFORMS", harness.PLUGIN)
        return harness.prepared(tmp_path_factory.mktemp("template") / "harbour", keyring)


def test_no_crash_at_any_call_leaks_or_doubles_anything(
    tmp_path: Path, template: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    with contextlib.ExitStack() as stack:
        stations: queue.Queue[tuple[Path, harness.Cloud]] = queue.Queue()
        for number in range(WORKERS):
            folder = tmp_path / str(number)
            folder.mkdir()
            stations.put((folder, stack.enter_context(harness.running(folder))))
        clean = trials.clean_run(template, *stations.queue[0])
        families = (killed_once, killed_in_resume, killed_in_rollback, killed_in_destroy, misbehaving)
        matrix = [trial for family in families for trial in family(clean)]

        def conduct(trial: Trial) -> str:
            folder, cloud = stations.get()
            try:
                site = (trials.failing if trial.failing else trials.fresh)(template, folder, cloud)
                trial.run(site, clean)
            except AssertionError as problem:
                return f"{trial.family}, {trial.name}: {problem}"
            finally:
                stations.put((folder, cloud))
            return ""

        with futures.ThreadPoolExecutor(WORKERS) as pool:
            problems = [problem for problem in pool.map(conduct, matrix) if problem]
    leaks = sum("too much:" in problem for problem in problems)
    with capfd.disabled():
        print(_report(matrix, clean, f"{len(matrix)} trials, {len(problems)} failed, {leaks} leaks"))
    assert not problems, "\n\n".join(problems)


def _report(matrix: list[Trial], clean: trials.Clean, total: str) -> str:
    lines = [f"{len(clean.calls)} calls in a clean run, {clean.destroy_calls} in destroy"]
    lines += [f"{count:5} {family}" for family, count in collections.Counter(t.family for t in matrix).items()]
    return "\n".join(["", *lines, total])
