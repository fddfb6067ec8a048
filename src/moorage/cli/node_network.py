"""`moorage node-network`: what runs on a node to keep virtual addresses, names and balancing in step with the cluster.

People use `status`; the static pod of the nodes uses the others.
"""

from __future__ import annotations

import argparse
import sys

from moorage.cli import talk

_ROLES = ("bootstrap", "master", "worker")


def add(command: argparse.ArgumentParser, shared: argparse.ArgumentParser) -> None:
    verbs = command.add_subparsers(metavar="VERB", dest="verb", required=True)

    run_verb = verbs.add_parser("run", help="look after this node's services until stopped", parents=[shared])
    run_verb.add_argument("--role", choices=_ROLES, required=True, help="what the node is")
    run_verb.set_defaults(run=run)

    render_verb = verbs.add_parser("render", help="write this node's configs, once", parents=[shared])
    which = render_verb.add_mutually_exclusive_group(required=True)
    which.add_argument("--role", choices=_ROLES, help="what the node is")
    which.add_argument(
        "--batch",
        action="store_true",
        help="write nothing: answer requests on stdin with the files, a line of JSON for a line of JSON",
    )
    render_verb.set_defaults(run=render)

    status_verb = verbs.add_parser("status", help="what was rendered here, and why", parents=[shared])
    status_verb.add_argument("-o", "--output", choices=("text", "json"), default="text")
    status_verb.set_defaults(run=status)


def run(arguments: argparse.Namespace, _: talk.Voice) -> int:
    from moorage.network import service

    service.run(arguments.role, say)
    return 0


def render(arguments: argparse.Namespace, _: talk.Voice) -> int:
    if arguments.batch:
        from moorage.network import rendering

        for line in sys.stdin:
            print(rendering.answer(line), flush=True)
        return 0
    from moorage.network import service

    service.render_once(arguments.role, say)
    return 0


def status(arguments: argparse.Namespace, _: talk.Voice) -> int:
    import json

    from moorage.network import status as statuses

    found = statuses.read()
    print(json.dumps(found, indent=1) if arguments.output == "json" else statuses.text(found))
    return 0


def say(text: str) -> None:
    """A line of the pod's log."""
    import time

    print(f"{time.strftime('%Y-%m-%dT%H:%M:%SZ', time.gmtime())} {text}", flush=True)
