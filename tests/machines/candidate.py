"""A process that stands for election and, while it leads, acts; for stories that stop and continue it.

Each line it prints is a moment of the machine's monotonic clock, which all processes share, and what happened then.
"""

from __future__ import annotations

import sys
import threading
import time
from pathlib import Path

from moorage.engine import clock as clocks
from moorage.machines.runtime import client as clients
from moorage.machines.runtime import connection, election, errors


def tell(what: str, moment: float | None = None) -> None:
    print(f"{moment or time.monotonic():.6f} {what}", flush=True)


def act(leading: election.Leading) -> None:
    while True:
        # The moment before the check is what that vouches for: the process may be stopped right after it.
        moment = time.monotonic()
        try:
            leading.check()
        except errors.NotLeader:
            tell("does not lead")
            return
        tell("acts", moment)
        time.sleep(0.01)


def main(kubeconfig: str, namespace: str, name: str, identity: str) -> None:
    clock = clocks.Clock(speed=40)
    client = clients.Client(connection.from_kubeconfig(Path(kubeconfig)), clock)
    candidate = election.Election(client, name, namespace, identity, clock, shortest=0.0)
    tell("stands")
    try:
        candidate.run(act, threading.Event())
    except errors.NotLeader:
        tell("ended")


if __name__ == "__main__":
    main(*sys.argv[1:])
