"""The `moorage` program, ended by SIGKILL at a chosen call to the engine or to its image daemon.

It takes one order per line (JSON) and answers with what became of it. Each order is obeyed in a fork of this process,
in which everything is loaded already: hundreds of runs would otherwise spend most of their time on imports. The product
knows nothing of it; its calls are met at the wire.
"""

from __future__ import annotations

import dataclasses
import gc
import importlib
import json
import os
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any

BEFORE, ACTED, REPLIED = PHASES = ("before-send", "after-commit", "after-reply")
_PLATFORM = ("wire", "upload", "infra", "destroy", "manifests", "preflight", "config")
_LOADED = (
    *("cli.main", "cli.outcome", "cli.create", "cli.destroy", "engine.runner", "installer.approving"),
    *(f"platforms.ovirt.{name}" for name in _PLATFORM),
)


@dataclasses.dataclass
class Calls:
    """Counts the calls; one of them is the last."""

    fatal: int = 0
    phase: str = ""
    listed: Path | None = None
    count: int = 0
    turn: threading.Lock = dataclasses.field(default_factory=threading.Lock)

    def begin(self, call: str) -> int:
        """Take a number for a call that is about to be sent."""
        with self.turn:
            self.count += 1
            number = self.count
            if self.listed is not None:
                with self.listed.open("a") as file:
                    file.write(f"{call}\n")
        self.reached(number, BEFORE)
        return number

    def reached(self, number: int, phase: str) -> None:
        if number != self.fatal or phase != self.phase:
            return
        if phase != REPLIED:
            _die()
        # Somewhere in what the caller does with the reply: which place, depends on the call's number.
        threading.Thread(target=lambda: (time.sleep(number * 7 % 20 / 1000), _die()), daemon=True).start()


def _die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def patch(calls: Calls) -> None:
    """Stand at the wire, to the engine and to the image daemon, and stop where the machines have started."""
    from moorage.installer import approving
    from moorage.platforms.ovirt import upload, wire

    class Watched(wire.Wire):
        """A connection that may be its owner's last."""

        number = 0

        def send(self, request: Any) -> Any:
            self.number = calls.begin(f"{request.method} {request.path}")
            return super().send(request)

        def _read_reponse(self, context: Any) -> Any:  # (the SDK's spelling)
            calls.reached(self.number, ACTED)
            response = super()._read_reponse(context)
            calls.reached(self.number, REPLIED)
            return response

        def _get_sso_response(self, url: str, params: Any = "") -> Any:
            number = calls.begin(f"POST {url.rpartition('/')[2]}")
            content = super()._get_sso_response(url, params)
            calls.reached(number, ACTED)
            calls.reached(number, REPLIED)
            return content

    ask = upload._Daemon._ask

    def watched_ask(self: Any, method: str, *rest: Any) -> None:
        number = calls.begin(f"{method} image")
        ask(self, method, *rest)
        calls.reached(number, ACTED)
        calls.reached(number, REPLIED)

    def infrastructure_is_enough(*_: Any) -> None:
        raise SystemExit(0)

    wire.Wire = Watched  # type: ignore[misc]
    upload._Daemon._ask = watched_ask  # type: ignore[method-assign]
    approving.letting_in = infrastructure_is_enough  # type: ignore[assignment]


def obey(order: dict[str, Any]) -> None:
    """Run one command as its own process; does not return."""
    with Path(order["said"]).open("wb") as said:
        for stream in (sys.stdout, sys.stderr):
            os.dup2(said.fileno(), stream.fileno())
    os.environ.update(order["environ"])
    fatal, _, phase = order.get("crash", "0:").partition(":")
    patch(Calls(int(fatal), phase, Path(order["calls"]) if order.get("calls") else None))
    from moorage.cli import main

    sys.argv = ["moorage", *order["words"]]
    try:
        main.entry()
    except SystemExit as end:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(int(end.code or 0))


def serve() -> None:
    for name in _LOADED:
        importlib.import_module(f"moorage.{name}")
    gc.freeze()
    for line in sys.stdin:
        child = os.fork()
        if not child:
            try:
                obey(json.loads(line))
            finally:
                os._exit(70)
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        print(json.dumps({"code": code}), flush=True)


if __name__ == "__main__":
    serve()
