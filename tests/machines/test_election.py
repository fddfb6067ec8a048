"""Who leads, against a server: never two, whatever their wires do, and never one whose lease ran out while it slept."""

from __future__ import annotations

import itertools
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from moorage.engine import clock as clocks
from moorage.machines.runtime import client as clients
from moorage.machines.runtime import connection, election, errors
from tests.kube import calls
from tests.kube import cluster as clusters
from tests.machines import cutting

PATIENCE = calls.PATIENCE
Unique = Callable[[str], str]


class Term:
    """When somebody who leads found that they do, in one stretch of leading."""

    def __init__(self) -> None:
        self.moments: list[float] = []


def test_no_two_lead_whatever_their_wires_do(
    client: clients.Client,
    namespace: str,
    unique: Unique,
    cut_wire: Callable[[], cutting.Wire],
    through: Callable[[str], Path],
) -> None:
    seed = random.randrange(1_000_000)
    print("seed", seed)
    chance = random.Random(seed)
    terms: list[Term] = []
    stop, name = threading.Event(), unique("lock")
    clock = clocks.Clock(speed=60)

    def lead(leading: election.Leading) -> None:
        term = Term()
        terms.append(term)
        while not stop.is_set():
            # The moment before the check is what that vouches for.
            moment = time.monotonic()
            leading.check()
            term.moments.append(moment)
            time.sleep(0.005)

    def stand(identity: str, wire: cutting.Wire) -> None:
        its = clients.Client(connection.from_kubeconfig(through(wire.url)), clock)
        while not stop.is_set():
            try:
                election.Election(its, name, namespace, identity, clock, shortest=0.0).run(lead, stop)
            except errors.NotLeader:
                continue

    wires = [cut_wire() for _ in range(3)]
    threads = [
        threading.Thread(target=stand, args=(f"candidate-{number}", wire), daemon=True)
        for number, wire in enumerate(wires)
    ]
    for thread in threads:
        thread.start()
    calls.eventually(lambda: terms, "somebody leads")
    until = time.monotonic() + 8
    while time.monotonic() < until:
        wire = chance.choice(wires)
        fault = chance.choice(["cut", "down", "mute", "lose"])
        if fault == "cut":
            wire.cut()
        elif fault == "down":
            wire.down = True
            wire.cut()
        elif fault == "mute":
            wire.muted.set()
        else:
            wire.losing = 0.3
        time.sleep(chance.uniform(0.1, 1.2))
        if chance.random() < 0.7:
            wire.down, wire.losing = False, 0.0
            wire.muted.clear()
    for wire in wires:
        wire.down, wire.losing = False, 0.0
        wire.muted.clear()
        wire.cut()
    before = time.monotonic()
    calls.eventually(lambda: any(term.moments and term.moments[-1] > before for term in terms), f"one leads ({seed})")
    stop.set()
    for thread in threads:
        thread.join(PATIENCE)

    spans = sorted((term.moments[0], term.moments[-1]) for term in terms if term.moments)
    for (_, end), (begin, _) in itertools.pairwise(spans):
        assert end <= begin, f"two led at the same time (seed {seed})"


@pytest.fixture
def candidates(
    client: clients.Client, cluster: clusters.Cluster, namespace: str, unique: Unique
) -> Iterator[Callable[[str], Process]]:
    made: list[Process] = []
    name = unique("lock")

    def start(identity: str) -> Process:
        made.append(Process(str(cluster.kubeconfig()), namespace, name, identity))
        return made[-1]

    yield start
    for process in made:
        process.kill()


class Process:
    """A candidate in a process of its own, and what it said."""

    def __init__(self, *words: str) -> None:
        command = [sys.executable, "-m", "tests.machines.candidate", *words]
        root = Path(__file__).parents[2]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=root)
        self.lines: list[tuple[float, str]] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            moment, _, what = line.strip().partition(" ")
            self.lines.append((float(moment), what))

    def said(self, what: str) -> bool:
        return any(words == what for _, words in self.lines)

    def moments(self, what: str) -> list[float]:
        return [moment for moment, words in self.lines if words == what]

    def signal(self, number: int) -> None:
        self._process.send_signal(number)

    def wait(self) -> int:
        code = self._process.wait(PATIENCE)
        self._reader.join(PATIENCE)
        return code

    def kill(self) -> None:
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()


def test_a_leader_that_was_stopped_past_its_lease_does_not_act_when_it_goes_on(
    candidates: Callable[[str], Process],
) -> None:
    first = candidates("first")
    calls.eventually(lambda: first.said("acts"), "the first leads")
    second = candidates("second")
    calls.eventually(lambda: second.said("stands"), "the second waits")
    assert not second.said("acts")

    first.signal(signal.SIGSTOP)
    calls.eventually(lambda: second.said("acts"), "the second leads")
    continued = time.monotonic()
    first.signal(signal.SIGCONT)
    assert first.wait() == 0

    assert first.lines[-2][1] == "does not lead"
    assert first.lines[-1][1] == "ended"
    acts = [moment for moment in first.moments("acts") if moment > continued]
    assert acts == [], "it acted after it had lost the lease"
    assert max(first.moments("acts")) < min(second.moments("acts"))
    last = second.moments("acts")[-1]
    calls.eventually(lambda: second.moments("acts")[-1] > last + 0.2, "the second goes on")
