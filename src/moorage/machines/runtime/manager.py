"""Puts the pieces together: caches follow the server, and when they are full and this process is elected, controllers
work.

The caches of a process that waits to be elected are warm, so that it takes over at once. The end comes in the opposite
order: workers finish what they have begun, then the lease is given back, and only then the caches cease to follow. A
worker that does not finish keeps the lease from being given back: nobody may lead while it is at work.
"""

from __future__ import annotations

import logging
import threading
import time
from typing import Protocol

from moorage.machines.runtime import controller as controllers
from moorage.machines.runtime import election as elections
from moorage.machines.runtime import informer as informers
from moorage.machines.runtime import serving

# Real seconds between two looks at whether this process still leads. What is left of a reconcile after that ends at its
# next check; a call that is on its way is waited for, since nobody else would hear what it made.
_LOOK = 0.5
# How long a cache may be without its server before the process is not ready, in cloud seconds.
_SILENCE = 300.0

_log = logging.getLogger(__name__)


class Leadership(Protocol):
    """What controllers are given to check."""

    def check(self) -> None: ...

    def end(self, why: str) -> None: ...


class Manager:
    """Runs controllers over informers. Without an ``election`` this process leads by itself.

    ``metrics_address`` is where it tells about itself, if anywhere; ``patience`` is how many real seconds the
    reconciles that are under way may take to end, all of them together.
    """

    def __init__(
        self, *, election: elections.Election | None = None, metrics_address: str = "", patience: float = 30.0
    ) -> None:
        self._informers: list[informers.Informer] = []
        self._controllers: list[controllers.Controller] = []
        self._election = election
        self._address = metrics_address
        self._patience = patience
        self._leading: Leadership | None = None
        self._working = False
        self.serving: serving.Serving | None = None

    def add_informer(self, informer: informers.Informer) -> None:
        """Have a cache follow the server, before any controller works."""
        self._informers.append(informer)

    def add_controller(self, controller: controllers.Controller) -> None:
        """Have a controller work while this process leads."""
        self._controllers.append(controller)

    def check(self) -> None:
        """Raise `NotLeader` unless this process surely leads: what reconcilers call before a write to a platform."""
        if self._leading is None:
            raise elections.NotLeader("this process does not lead")
        self._leading.check()

    def run(self, stop: threading.Event) -> None:
        """Work until told to stop; raises `NotLeader` if the leadership was lost, for the process to begin anew."""
        try:
            for informer in self._informers:
                informer.start()
            # After them: one that has not begun looks like one that has ended.
            if self._address:
                self.serving = serving.Serving(self._address, self._healthy(), self._ready())
                self.serving.start()
            if not self._synced(stop):
                return
            if self._election is None:
                self._lead(elections.Always(), stop)
            else:
                self._election.run(lambda leading: self._lead(leading, stop), stop)
        finally:
            for informer in self._informers:
                informer.stop()
            if self.serving is not None:
                self.serving.stop()

    def _synced(self, stop: threading.Event) -> bool:
        """Wait until every cache is full: a controller that sees half of the machines makes the other half again."""
        for informer in self._informers:
            while not informer.wait_synced(_LOOK):
                if stop.is_set():
                    return False
        return True

    def _lead(self, leading: Leadership, stop: threading.Event) -> None:
        self._leading = leading
        try:
            for controller in self._controllers:
                controller.start()
            self._working = True
            while not stop.wait(_LOOK):
                leading.check()
        finally:
            self._working = False
            late = ", ".join(self._end_controllers())
            if late:
                _log.warning("still at work, and left behind: %s", late)
                # Whoever it is may be about to act: not here any more, and nobody else before the lease is over.
                leading.end(f"it ends although {late} had not finished")

    def _end_controllers(self) -> list[str]:
        """The workers that are late. A kubelet counts a process's seconds once, however many controllers it has."""
        # All of them first: none may take a new key while another is waited for.
        for controller in self._controllers:
            controller.queue.shut_down()
        deadline = time.monotonic() + self._patience
        return [
            name for controller in self._controllers for name in controller.stop(max(0.0, deadline - time.monotonic()))
        ]

    def _healthy(self) -> dict[str, serving.Check]:
        checks: dict[str, serving.Check] = {f"informer-{each.kind.plural}": _follows(each) for each in self._informers}
        for controller in self._controllers:
            checks[f"controller-{controller.name}"] = self._works(controller)
        return checks

    def _ready(self) -> dict[str, serving.Check]:
        return {f"informer-{each.kind.plural}": _synced(each) for each in self._informers}

    def _works(self, controller: controllers.Controller) -> serving.Check:
        return lambda: "a worker has ended" if self._working and not controller.alive else ""


def _follows(informer: informers.Informer) -> serving.Check:
    return lambda: "" if informer.alive else "its thread has ended"


def _synced(informer: informers.Informer) -> serving.Check:
    def check() -> str:
        if not informer.synced:
            return "not listed yet"
        silent = informer.silent_for
        return f"no word from the server for {silent:.0f} s" if silent > _SILENCE else ""

    return check
