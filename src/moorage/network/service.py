"""The agent as a process: every duty in a thread of its own, until somebody says stop.

Trouble on the node is said and tried again; a defect of ours ends the process, so that the kubelet starts it anew and
shows that it did.
"""

from __future__ import annotations

import functools
import signal
import threading
from collections.abc import Callable

from moorage import errors as top
from moorage.engine import clock as clocks
from moorage.engine import errors
from moorage.network import agent, duties, host, mdns, view

Say = Callable[[str], None]

_REMIND_SECONDS = 600.0


def render_once(role: str, say: Say, node: host.Host | None = None) -> None:
    """Write the configs that follow from what is known now, and decide whether keepalived may start."""
    node = node or host.Host()
    once = agent.Agent(node.read_settings(), role, node, clocks.from_environment(), say)
    once.begin()
    once.step()
    if once.in_force is None:
        raise top.MoorageError(
            "this node has no address in the cluster's networks yet", remedy="the kubelet tries again by itself"
        )


def run(role: str, say: Say, node: host.Host | None = None, clock: clocks.Clock | None = None) -> None:
    """Look after the node until SIGTERM or SIGINT."""
    node, clock = node or host.Host(), clock or clocks.from_environment()
    for each in (signal.SIGTERM, signal.SIGINT):
        signal.signal(each, lambda *_: clock.request_stop())
    wanted = node.read_settings()
    main = agent.Agent(wanted, role, node, clock, say)
    beside: list[duties.Duty] = [main, duties.Sweep(wanted, node, say)]
    if role == view.MASTER:
        beside.append(duties.Redirect(wanted, node, say))
    if role == view.BOOTSTRAP:
        beside.append(duties.HandOver(node, say))
    if wanted.mdns:
        beside.append(mdns.Responder(lambda: main.in_force, say))
    defects: list[BaseException] = []
    threads = [
        threading.Thread(target=functools.partial(_attend, duty, clock, say, defects), name=type(duty).__name__)
        for duty in beside
    ]
    say(f"looking after this {role} node")
    for thread in threads:
        thread.start()
    for thread in threads:
        # A join without end would not let signals through.
        while thread.is_alive():
            thread.join(0.5)
    if defects:
        raise defects[0]
    say("stopped")


def _attend(duty: duties.Duty, clock: clocks.Clock, say: Say, defects: list[BaseException]) -> None:
    """Do one duty until the clock says stop; the same trouble is not worth a word every time."""
    last, said_at = "", 0.0
    try:
        while True:
            try:
                duty.step()
            except agent.TROUBLE as problem:
                trouble = f"{type(duty).__name__.lower()}: {problem}"
                if trouble != last or clock.now() - said_at >= _REMIND_SECONDS:
                    say(trouble)
                    last, said_at = trouble, clock.now()
            clock.sleep(duty.seconds)
    except errors.Interrupted:
        _end(duty, say)
    except BaseException as defect:
        defects.append(defect)
        clock.request_stop()
        raise


def _end(duty: duties.Duty, say: Say) -> None:
    try:
        duty.end()
    except agent.TROUBLE as problem:
        say(f"{type(duty).__name__.lower()}: {problem}")
