"""`moorage machine-api run`: the controllers that keep, scale and heal a cluster's machines, until they are stopped.

Inside a cluster it runs as the Deployment that the installer brings; outside, a kubeconfig is all it needs.
"""

from __future__ import annotations

import argparse
import sys

from moorage.cli import cluster_access, talk

_LEVELS = {"debug": "DEBUG", "info": "INFO", "warn": "WARNING", "error": "ERROR"}


def add(command: argparse.ArgumentParser, shared: argparse.ArgumentParser) -> None:
    verbs = command.add_subparsers(metavar="VERB", dest="verb", required=True)
    run_verb = verbs.add_parser(
        "run",
        parents=[shared],
        help="keep a cluster's machines as its objects say, until stopped",
        description="Makes, completes, heals and removes machines as the cluster's Machine, MachineSet and "
        "MachineHealthCheck objects say, and lets their nodes in.",
    )
    cluster_access.add_flag(run_verb)
    run_verb.add_argument("--platform", default="", metavar="NAME", help="default: what the cluster says it stands on")
    run_verb.add_argument(
        "--metrics-address", default="", metavar="ADDRESS", help="serve /healthz, /readyz and /metrics at HOST:PORT"
    )
    run_verb.add_argument(
        "--leader-elect",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="act only while holding the cluster's lease (default); without, be sure to run alone",
    )
    run_verb.add_argument(
        "--workers", type=_count, default=None, metavar="N", help="machines to work on at the same time (default: 10)"
    )
    run_verb.set_defaults(run=run)


def _count(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and int(text) > 0):
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of 1 or more")
    return int(text)


def run(arguments: argparse.Namespace, _: talk.Voice) -> int:
    import logging
    import threading

    from moorage.engine import clock as clocks
    from moorage.engine import interrupt

    cluster_access.require_extra()
    from moorage.machines import assembly

    log_to_stderr(arguments.log_level)
    log = logging.getLogger("moorage")
    stop = threading.Event()

    def asked_to_stop() -> None:
        log.info("stopping: what is under way is finished first")
        stop.set()

    assembled: list[assembly.Assembly] = []

    def leave_nothing() -> None:
        for each in assembled:
            each.close()

    clock = clocks.from_environment()
    # The signals stop a clock of their own: ours goes on until what is under way is finished.
    asking = interrupt.stops(clocks.Clock(), notice=asked_to_stop, at_once=leave_nothing)
    with asking, cluster_access.connected(arguments, clock) as client:
        found = assembly.discover(client, arguments.platform)
        controllers = assembly.Assembly(
            client,
            found,
            elect=arguments.leader_elect,
            metrics_address=arguments.metrics_address,
            workers=arguments.workers or assembly.WORKERS,
        )
        assembled.append(controllers)
        controllers.run(stop)
    log.info("stopped")
    return 0


def log_to_stderr(level: str) -> None:
    """Plain lines for whoever collects them, in UTC."""
    import logging
    import time

    handler = logging.StreamHandler(sys.stderr)
    form = logging.Formatter("%(asctime)s %(levelname)s %(message)s", "%Y-%m-%dT%H:%M:%SZ")
    form.converter = time.gmtime
    handler.setFormatter(form)
    root = logging.getLogger("moorage")
    root.handlers[:] = [handler]
    root.propagate = False
    root.setLevel(_LEVELS[level])
