"""The platform's side of the pier: what there is, who asked for what, and what happens to those who ask.

`Pier.order` names a call (the n-th of a verb for a machine) and a moment of it; there the caller is killed (-9), or its
call is held until the test lets it go. Two instances of one name are refused or, if ``strict`` is off, made: then they
are counted.
"""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import json
import os
import signal
import socketserver
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, Literal

#: Before the call is sent; sent, and done only after the caller's death; done, without a reply; after the reply.
MOMENTS: Final = ("unsent", "late", "done", "replied")
Moment = Literal["unsent", "late", "done", "replied"]
#: Real seconds that a call may be on its way after the death of whoever made it.
ON_ITS_WAY: Final = 0.4
PATIENCE: Final = 60.0


@dataclasses.dataclass(frozen=True)
class Call:
    """The n-th call of a verb for a machine."""

    verb: str
    number: int
    name: str


@dataclasses.dataclass
class Order:
    """What happens at a moment of a call: who makes it is killed or, with ``held``, waits until that is set."""

    moment: Moment
    held: threading.Event | None = None
    #: Set when the moment has come; by whom it was made.
    reached: threading.Event = dataclasses.field(default_factory=threading.Event)
    pid: int = 0

    def release(self) -> None:
        if self.held is not None:
            self.held.set()


@dataclasses.dataclass
class Vessel:
    """An instance; ``steps`` are the calls until it is up, and then until it is gone."""

    id: str
    name: str
    seen_from: float
    state: str = "building"
    steps: int = 2

    def told(self) -> dict[str, Any]:
        return {"id": self.id, "state": self.state, "address": f"10.0.0.{self.id.removeprefix('v-')}"}


class Pier:
    """``lag`` are the real seconds for which lists do not show a new instance."""

    def __init__(self, path: Path, *, strict: bool = False, lag: float = 0.0) -> None:
        self.path = path
        self.vessels: list[Vessel] = []
        self.made: collections.Counter[str] = collections.Counter()
        self.refused: collections.Counter[str] = collections.Counter()
        self.calls: list[Call] = []
        self.callers: dict[Call, int] = {}
        self.deaths = 0
        self._strict = strict
        self._lag = lag
        self._orders: dict[Call, Order] = {}
        self._turn = threading.RLock()
        pier = self

        class Handler(socketserver.StreamRequestHandler):
            def handle(self) -> None:
                pier._serve(self.rfile, self.wfile)

        self._server = socketserver.ThreadingUnixStreamServer(str(path), Handler)
        self._server.daemon_threads = True

    @contextlib.contextmanager
    def open(self) -> Iterator[Pier]:
        thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)
        thread.start()
        try:
            yield self
        finally:
            self._server.shutdown()
            for order in self._orders.values():
                order.release()
            self._server.server_close()

    # -- for stories -----------------------------------------------------------------------------------------------

    def order(self, call: Call, moment: Moment, *, hold: bool = False) -> Order:
        made = self._orders[call] = Order(moment, threading.Event() if hold else None)
        return made

    def names(self) -> list[str]:
        with self._turn:
            return sorted(each.name for each in self.vessels)

    def asked(self, name: str) -> list[Call]:
        """The calls for a machine so far."""
        with self._turn:
            return [each for each in self.calls if each.name == name]

    # -- a call ----------------------------------------------------------------------------------------------------

    def _serve(self, lines: Any, back: Any) -> None:
        asked = json.loads(lines.readline())
        order = self._received(asked)
        self._moment(order, "unsent", asked["pid"])
        if order is not None and order.held is None and order.moment == "unsent":
            return  # it never came
        if order is not None and order.moment == "late":
            self._kill(order, asked["pid"])
            time.sleep(ON_ITS_WAY)
        answer = self._act(asked)
        self._moment(order, "done", asked["pid"])
        with contextlib.suppress(OSError):
            back.write(json.dumps(answer).encode() + b"\n")
            back.flush()
            lines.readline()
            self._moment(order, "replied", asked["pid"])
            back.write(b"go\n")

    def _received(self, asked: dict[str, Any]) -> Order | None:
        """Note a call; says what is ordered for it."""
        with self._turn:
            verb, name = asked["verb"], asked["name"]
            call = Call(verb, 1 + sum(each.verb == verb for each in self.asked(name)), name)
            self.calls.append(call)
            self.callers[call] = asked["pid"]
            return self._orders.get(call)

    def _moment(self, order: Order | None, moment: str, pid: int) -> None:
        if order is None or order.moment != moment:
            return
        if order.held is None:
            self._kill(order, pid)
            return
        order.pid = pid
        order.reached.set()
        assert order.held.wait(PATIENCE), "the story has forgotten a call"

    def _kill(self, order: Order, pid: int) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        order.pid = pid
        order.reached.set()
        with self._turn:
            self.deaths += 1

    # -- what it does ----------------------------------------------------------------------------------------------

    def _act(self, asked: dict[str, Any]) -> dict[str, Any]:
        with self._turn:
            if asked["verb"] == "create":
                return self._create(asked["name"])
            found = self._look(asked["name"], asked["id"])
            if found is None:
                return {} if asked["verb"] == "exists" else {"refusal": "NotFound"}
            if asked["verb"] == "update":
                self._step(found, "building", "up")
            if asked["verb"] == "delete":
                self._leave(found)
            return {"instance": found.told()}

    def _create(self, name: str) -> dict[str, Any]:
        if self._strict and any(each.name == name for each in self.vessels):
            self.refused[name] += 1
            return {"refusal": "AlreadyExists"}
        self.made[name] += 1
        vessel = Vessel(f"v-{self.made.total()}", name, time.monotonic() + self._lag)
        self.vessels.append(vessel)
        return {"instance": vessel.told()}

    def _look(self, name: str, known: str) -> Vessel | None:
        shown = (each for each in self.vessels if each.name == name and each.seen_from <= time.monotonic())
        by_id = (each for each in self.vessels if f"pier://{each.id}" == known)
        return next(by_id if known else shown, None)

    def _step(self, vessel: Vessel, before: str, after: str) -> None:
        vessel.steps -= vessel.state == before
        if vessel.state == before and not vessel.steps:
            vessel.state = after

    def _leave(self, vessel: Vessel) -> None:
        if vessel.state != "leaving":
            vessel.state, vessel.steps = "leaving", 1
            return
        self._step(vessel, "leaving", "gone")
        if vessel.state == "gone":
            self.vessels.remove(vessel)
