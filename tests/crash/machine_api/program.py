"""`moorage machine-api run`, ended by SIGKILL or stopped by SIGSTOP at a chosen call to the engine.

It takes one order per line (JSON); each is a life, a fork of this process in which everything is loaded already. It
says its process id when the life begins, and what became of it when it is over. The product knows nothing of it; its
calls are met at the wire. A place is a call by its kind, and when it is made: how many writes were sent before, so that
it does not matter how often something was looked at meanwhile.
"""

from __future__ import annotations

import dataclasses
import gc
import importlib
import json
import os
import re
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any

BEFORE, ACTED, REPLIED = PHASES = ("before-send", "after-commit", "after-reply")
#: Not an end: stopped with the call made up and checked, and not sent.
STOPPED = "stopped"
_LOADED = ("cli.main", "cli.machine_api", "cli.cluster_access", "machines.assembly", "platforms.ovirt.machine")
_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


@dataclasses.dataclass
class Calls:
    """Knows the place of each call; at one of them, something happens."""

    place: str = ""
    phase: str = ""
    listed: Path | None = None
    met: Path = Path(os.devnull)
    writes: int = 0
    turn: threading.Lock = dataclasses.field(default_factory=threading.Lock)

    def begin(self, method: str, path: str) -> str:
        """The place of a call that is about to be sent; empty unless it is the chosen one."""
        with self.turn:
            place = f"{self.writes} {method} {_UUID.sub('*', path)}"
            self.writes += method != "GET"
            if self.listed is not None:
                with self.listed.open("a") as file:
                    file.write(f"{place}\n")
            if place != self.place or self.met.exists():
                return ""
            self.met.touch()
        self.reached(place, BEFORE)
        self.reached(place, STOPPED)
        return place

    def reached(self, place: str, phase: str) -> None:
        if not place or phase != self.phase:
            return
        if phase == REPLIED:
            # Somewhere in what the caller does with the reply: which place, depends on the call.
            pause = sum(map(ord, place)) % 20 / 1000
            threading.Thread(target=lambda: (time.sleep(pause), _signal(signal.SIGKILL)), daemon=True).start()
            return
        _signal(signal.SIGSTOP if phase == STOPPED else signal.SIGKILL)


def _signal(number: signal.Signals) -> None:
    # To this very thread: sent to the process, another may take it, and this one goes on for a moment with its call.
    signal.pthread_kill(threading.get_ident(), number)


def patch(calls: Calls) -> None:
    """Stand at the wire to the engine."""
    from moorage.platforms.ovirt import wire

    class Watched(wire.Wire):
        """A connection that may be its owner's last."""

        place = ""

        def send(self, request: Any) -> Any:
            # Looks by name, tag or mark are different calls.
            search = str((request.query or {}).get("search", "")).partition("=")[0]
            self.place = calls.begin(request.method, f"{request.path}{'?' if search else ''}{search}")
            return super().send(request)

        def _read_reponse(self, context: Any) -> Any:  # (the SDK's spelling)
            calls.reached(self.place, ACTED)
            response = super()._read_reponse(context)
            calls.reached(self.place, REPLIED)
            return response

        def _get_sso_response(self, url: str, params: Any = "") -> Any:
            place = calls.begin("POST", url.rpartition("/")[2])
            content = super()._get_sso_response(url, params)
            calls.reached(place, ACTED)
            calls.reached(place, REPLIED)
            return content

    wire.Wire = Watched  # type: ignore[misc]


def obey(order: dict[str, Any]) -> int:
    """Live one life."""
    with Path(order["said"]).open("ab") as said:
        for stream in (sys.stdout, sys.stderr):
            os.dup2(said.fileno(), stream.fileno())
    os.environ.update(order["environ"])
    listed = Path(order["calls"]) if order["calls"] else None
    patch(Calls(order["place"], order["phase"], listed, Path(order["met"])))
    from moorage.cli import main

    return main.main(["machine-api", "run", *order["words"]])


def serve() -> None:
    for name in _LOADED:
        importlib.import_module(f"moorage.{name}")
    importlib.import_module("kubernetes")
    importlib.import_module("prometheus_client")
    gc.freeze()
    for line in sys.stdin:
        life = os.fork()
        if not life:
            code = 70
            try:
                code = obey(json.loads(line))
            finally:
                os._exit(code)
        print(json.dumps({"pid": life}), flush=True)
        print(json.dumps({"code": os.waitstatus_to_exitcode(os.waitpid(life, 0)[1])}), flush=True)


if __name__ == "__main__":
    serve()
