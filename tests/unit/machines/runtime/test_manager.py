"""The manager: nothing is reconciled before all caches are full and this process leads, or after it is to stop."""

from __future__ import annotations

import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from typing import Any, cast

import pytest

from moorage.engine import clock as clocks
from moorage.machines.runtime import client as clients
from moorage.machines.runtime import controller, election, errors, informer, kinds, manager, queue
from tests.unit.machines.runtime import server as servers

PATIENCE = 20.0


class Run:
    """A manager over one kind, whose controller notes what it reconciles; ``gate`` holds each reconcile."""

    def __init__(self, elected: Any = None, address: str = "", patience: float = PATIENCE) -> None:
        self.server = servers.Server(clocks.Clock())
        self.manager = manager.Manager(election=elected, metrics_address=address, patience=patience)
        self.queue = queue.Queue(self.server.clock)
        self.seen: list[str] = []
        self.first, self.gate, self.stop = threading.Event(), threading.Event(), threading.Event()
        self.refused = threading.Event()
        self.gate.set()
        cache = informer.Informer(cast("clients.Client", self.server), kinds.MACHINE)
        cache.on(lambda change: self.queue.add(change.key))
        self.manager.add_informer(cache)
        self.manager.add_controller(controller.Controller("all", self.reconcile, self.queue))
        self.failure: Exception | None = None
        self.thread = threading.Thread(target=self._run, daemon=True)

    def _run(self) -> None:
        try:
            self.manager.run(self.stop)
        except Exception as failure:  # noqa: BLE001 - the story looks at it
            self.failure = failure

    def reconcile(self, key: str) -> controller.Result:
        self.first.set()
        assert self.gate.wait(PATIENCE)
        try:
            self.manager.check()
        except errors.NotLeader:
            self.refused.set()
            raise
        self.seen.append(key)
        return controller.DONE

    def ended(self) -> None:
        self.stop.set()
        self.thread.join(PATIENCE)
        assert not self.thread.is_alive()


class Elected:
    """An election that is won when the story says so."""

    def __init__(self) -> None:
        self.won = threading.Event()
        self.leading = election.Leading(clocks.Clock(), 1000.0, 0.0)
        self.released = False

    def run(self, lead: Any, stop: threading.Event) -> None:
        assert self.won.wait(PATIENCE)
        lead(self.leading)
        self.leading.check()
        self.released = True


def test_a_process_alone_leads_when_its_caches_are_full() -> None:
    run = Run()
    run.server.put("a")
    with pytest.raises(errors.NotLeader):
        run.manager.check()

    run.thread.start()
    assert run.first.wait(PATIENCE)
    run.ended()

    assert run.seen == ["ns/a"]
    assert run.failure is None


def test_nothing_is_reconciled_before_the_election_is_won() -> None:
    elected = Elected()
    run = Run(elected)
    run.server.put("a")
    run.thread.start()
    until = time.monotonic() + PATIENCE
    while len(run.queue) != 1 and not run.first.is_set():
        assert time.monotonic() < until, "the cache is never warm"
        time.sleep(0.01)
    assert not run.first.wait(0.3)

    elected.won.set()
    assert run.first.wait(PATIENCE)
    run.ended()

    assert elected.released


def test_nothing_is_reconciled_before_the_caches_are_full() -> None:
    run = Run()
    run.server.put("a")
    empty = servers.Server(clocks.Clock())
    empty.faults += ["list"] * 1000
    run.manager.add_informer(informer.Informer(cast("clients.Client", empty), kinds.NODE))
    run.thread.start()

    assert not run.first.wait(0.5)
    run.ended()

    assert run.failure is None


def test_a_reconcile_under_way_is_finished_before_the_lease_is_given_back() -> None:
    elected = Elected()
    elected.won.set()
    run = Run(elected)
    run.gate.clear()
    run.server.put("a")
    run.thread.start()
    assert run.first.wait(PATIENCE)

    run.stop.set()
    run.thread.join(0.3)
    assert not elected.released
    run.gate.set()
    run.ended()

    assert run.seen == ["ns/a"]
    assert elected.released


def test_when_the_lease_is_lost_the_process_ends_and_what_was_under_way_does_not_act() -> None:
    elected = Elected()
    elected.won.set()
    run = Run(elected)
    run.gate.clear()
    run.server.put("a")
    run.thread.start()
    assert run.first.wait(PATIENCE)

    elected.leading.lost.set()
    run.gate.set()
    run.thread.join(PATIENCE)

    assert not run.thread.is_alive()
    assert isinstance(run.failure, errors.NotLeader)
    assert run.seen == []
    assert not elected.released


@pytest.mark.parametrize("elected", [Elected, lambda: None], ids=["elected", "alone"])
def test_who_is_late_does_not_act_any_more_and_the_lease_is_not_given_back(elected: Callable[[], Any]) -> None:
    """The next one would lead while a worker of this one is about to call the platform."""
    won = elected()
    if won is not None:
        won.won.set()
    run = Run(won, patience=0.1)
    run.gate.clear()
    run.server.put("a")
    run.thread.start()
    assert run.first.wait(PATIENCE)

    run.ended()
    run.gate.set()

    assert run.refused.wait(PATIENCE)
    assert run.seen == []
    if won is not None:
        assert not won.released
        assert isinstance(run.failure, errors.NotLeader)
        assert "all-0" in str(run.failure), "it says whom it did not wait for any longer"


def test_all_controllers_together_have_one_patience() -> None:
    """A kubelet counts once, however many there are."""
    given: list[float] = []

    class Stuck(controller.Controller):
        def stop(self, patience: float = 30.0) -> list[str]:
            given.append(patience)
            time.sleep(patience)
            return [self.name]

    run = Run(patience=0.2)
    for name in ("one", "two", "three"):
        run.manager.add_controller(Stuck(name, run.reconcile, queue.Queue(run.server.clock)))
    run.server.put("a")
    run.thread.start()
    assert run.first.wait(PATIENCE)
    run.ended()

    assert 0.0 < given[0] <= 0.2
    assert given[1:] == [0.0, 0.0]


def test_it_tells_whether_it_is_healthy_and_ready() -> None:
    run = Run(address="127.0.0.1:0")
    run.server.faults += ["list"] * 1000
    run.server.put("a")
    run.thread.start()
    while run.manager.serving is None or not run.manager.serving.port:
        pass
    url = f"http://127.0.0.1:{run.manager.serving.port}"

    def asked(path: str) -> int:
        try:
            with urllib.request.urlopen(url + path, timeout=PATIENCE) as answer:  # noqa: S310 - our own
                return int(answer.status)
        except urllib.error.HTTPError as refusal:
            return refusal.code

    assert asked("/readyz") == 500
    assert asked("/healthz") == 200
    run.server.faults.clear()
    assert run.first.wait(PATIENCE)
    assert asked("/readyz") == 200
    run.ended()
