"""`moorage lab faults …`: make the lab's APIs and machines misbehave, on order."""

from __future__ import annotations

import argparse
import json
from typing import Any

from moorage.cli import talk

_ACTIONS = ("fail", "delay", "drop", "apply-then-drop", "duplicate", "stale-read")
_BLOWS = {
    "kill": "cut a machine's power",
    "start": "switch a machine on",
    "reboot": "switch a machine off and on again",
    "partition": "cut a machine's network line",
    "heal": "mend a machine's network line",
}


def add(verbs: Any, shared: argparse.ArgumentParser) -> None:
    text = "show, order and lift faults of the lab's APIs and machines"
    faults = verbs.add_parser("faults", parents=[shared], help=text, description=f"{text[0].upper()}{text[1:]}.")
    faults.add_argument("-o", "--output", choices=("text", "json"), default="text", help="for people or for scripts")
    faults.set_defaults(run=run_list)
    kinds = faults.add_subparsers(title="what to do", metavar="WHAT")
    _add_rule(kinds.add_parser("add", parents=[shared], help="order a fault of an API"))
    remove = kinds.add_parser("remove", parents=[shared], help="lift one fault")
    remove.add_argument("number", type=int)
    remove.set_defaults(run=run_remove)
    kinds.add_parser("clear", parents=[shared], help="lift all faults").set_defaults(run=run_clear)
    for name, words in _BLOWS.items():
        blow = kinds.add_parser(name, parents=[shared], help=words)
        blow.add_argument("machine")
        blow.set_defaults(run=run_blow, blow=name)
    quota = kinds.add_parser("quota", parents=[shared], help="limit how many of a thing may exist")
    quota.add_argument("limits", nargs="+", type=_limit, metavar="THING=N", help="machines=3; machines= lifts it")
    quota.set_defaults(run=run_quota)
    kinds.add_parser("expire-tokens", parents=[shared], help="end all sessions at once").set_defaults(run=run_expire)


def _add_rule(rule: argparse.ArgumentParser) -> None:
    rule.add_argument("action", choices=_ACTIONS)
    rule.add_argument("--service", help="of which API, as in plain or 'kube/*' (default: any)")
    rule.add_argument("--method", help="of which method (default: any)")
    rule.add_argument("--path", help="of which path; * within one segment, ** for anything (default: any)")
    rule.add_argument("--nth", type=int, help="strike the n-th matching call alone (default: every one)")
    rule.add_argument("--times", type=int, dest="remaining", help="how many calls to strike")
    rule.add_argument("--status", type=int, help="what to fail with")
    rule.add_argument("--body", help="what to say when failing")
    rule.add_argument("--seconds", type=float, help="how long to delay, in cloud time")
    rule.set_defaults(run=run_add)


def _limit(text: str) -> tuple[str, int | None]:
    name, separator, number = text.partition("=")
    if not (name and separator and (number == "" or number.isdigit())):
        raise argparse.ArgumentTypeError(f"{text!r} is not THING=N")
    return name, int(number) if number else None


def run_list(arguments: argparse.Namespace, voice: talk.Voice) -> int:
    found = _control("GET", "/lab/faults")
    if arguments.output == "json":
        print(json.dumps(found, indent=1))
        return 0
    for rule in found:
        left = "every" if rule["remaining"] is None else f"{rule['remaining']} more"
        print(
            f"{rule['number']:4} {rule['action']} {rule['service']} {rule['method']} {rule['path']}: from match"
            f" {rule['nth']}, {left}; matched {rule['matched']}, struck {rule['struck']}"
        )
    if not found:
        voice.info("no fault is in force")
    return 0


def run_add(arguments: argparse.Namespace, voice: talk.Voice) -> int:
    fields = ("action", "service", "method", "path", "nth", "remaining", "status", "body", "seconds")
    asked = {name: getattr(arguments, name) for name in fields}
    answer = _control("POST", "/lab/faults", {name: value for name, value in asked.items() if value is not None})
    voice.info(f"fault {answer['number']} is in force; lift it with: moorage lab faults remove {answer['number']}")
    return 0


def run_remove(arguments: argparse.Namespace, voice: talk.Voice) -> int:
    _control("DELETE", f"/lab/faults/{arguments.number}")
    voice.info(f"fault {arguments.number} is lifted")
    return 0


def run_clear(arguments: argparse.Namespace, voice: talk.Voice) -> int:
    _control("DELETE", "/lab/faults")
    voice.info("no fault is in force")
    return 0


def run_blow(arguments: argparse.Namespace, voice: talk.Voice) -> int:
    from moorage.lab import client

    machine = _control("POST", f"/lab/machines/{client.quoted(arguments.machine)}/{arguments.blow}")
    cut = "" if machine["connected"] else ", cut off"
    voice.info(f"machine {machine['name']} at {machine['address']}: {machine['state']}{cut}")
    return 0


def run_quota(arguments: argparse.Namespace, voice: talk.Voice) -> int:
    limits = _control("PUT", "/lab/quotas", dict(arguments.limits))
    voice.info("quotas: " + (", ".join(f"{name}={limit}" for name, limit in sorted(limits.items())) or "none"))
    return 0


def run_expire(arguments: argparse.Namespace, voice: talk.Voice) -> int:
    voice.info(f"{_control('POST', '/lab/tokens/expire')['expired']} sessions have ended")
    return 0


def _control(method: str, path: str, body: object = None) -> Any:
    from moorage.cli import lab

    return lab.running().control(method, path, body)
