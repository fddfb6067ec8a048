"""`moorage lab …`: a simulated datacentre on this machine, to install, break and heal clusters in."""

from __future__ import annotations

import argparse
import json
import math
import os
import shlex
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from moorage import errors
from moorage.cli import lab_faults, talk

if TYPE_CHECKING:
    from moorage.lab import client

DEFAULT_SPEED = 60.0


def add(command: argparse.ArgumentParser, shared: argparse.ArgumentParser) -> None:
    command.description = (
        "A simulated datacentre in a process of its own, on 127.0.0.0/8 only. It lives in $MOORAGE_LAB, or in "
        "~/.local/state/moorage/lab."
    )
    verbs = command.add_subparsers(title="what to do", metavar="WHAT", required=True)
    start = _verb(verbs, shared, "start", run_start, "start the lab, and return when it is ready")
    start.add_argument("--speed", type=speed, metavar="N", help=f"cloud seconds per real second ({DEFAULT_SPEED:g})")
    _verb(verbs, shared, "stop", run_stop, "stop the lab and everything in it")
    _json(_verb(verbs, shared, "status", run_status, "show the lab's machines, clusters and counts"))
    _verb(verbs, shared, "env", run_env, "print what to export, so that moorage meets the lab")
    _verb(verbs, shared, "reset", run_reset, "remove everything in the lab, which goes on running")
    calls = _json(_verb(verbs, shared, "calls", run_calls, "show the calls made to the lab's APIs"))
    calls.add_argument("--service", default="*", metavar="PATTERN", help="of which API, as in plain or 'kube/*'")
    calls.add_argument("--method", default="*", help="of which method")
    calls.add_argument("--path", default="*", metavar="PATTERN", help="of which path, as in '/v1/machines/*'")
    calls.add_argument("--after", type=int, default=0, metavar="NUMBER", help="after which call")
    lab_faults.add(verbs, shared)
    console = _verb(verbs, shared, "console", run_console, "show what a machine wrote on its console")
    console.add_argument("machine")
    image = _verb(verbs, shared, "image", run_image, "write a stand-in for the image that machines boot from")
    image.add_argument("file", type=Path, help="the qcow2 file to write; OPENSHIFT_INSTALL_OS_IMAGE_OVERRIDE names it")
    kubeconfig = _verb(verbs, shared, "kubeconfig", run_kubeconfig, "print a kubeconfig that kubectl can use from here")
    kubeconfig.add_argument("cluster", nargs="?", default="", help="which cluster, if there are several")


def _verb(verbs: Any, shared: argparse.ArgumentParser, name: str, run: Any, text: str) -> argparse.ArgumentParser:
    verb: argparse.ArgumentParser = verbs.add_parser(
        name, parents=[shared], help=text, description=f"{text[0].upper()}{text[1:]}."
    )
    verb.set_defaults(run=run)
    return verb


def _json(verb: argparse.ArgumentParser) -> argparse.ArgumentParser:
    verb.add_argument("-o", "--output", choices=("text", "json"), default="text", help="for people or for scripts")
    return verb


def speed(text: str) -> float:
    try:
        found = float(text)
    except ValueError:
        found = math.nan
    if not (math.isfinite(found) and 0 < found <= 1000):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number above 0 and up to 1000")
    return found


def running() -> client.Lab:
    """The lab that runs here."""
    from moorage.lab import client

    return client.find(client.folder(os.environ))


def run_start(arguments: argparse.Namespace, voice: talk.Voice) -> int:
    from moorage.lab import client

    where, began = client.folder(os.environ), time.monotonic()
    try:
        found = client.find(where)
    except client.LabProblem:
        found = client.start(where, arguments.speed or DEFAULT_SPEED)
        voice.info(f"the lab is ready after {time.monotonic() - began:.1f} s: {_about(found)}")
    else:
        if arguments.speed and arguments.speed != found.speed:
            raise errors.MoorageError(
                f"the lab runs already, at {found.speed:g} cloud seconds a second", remedy="stop it: moorage lab stop"
            )
        voice.info(f"the lab runs already: {_about(found)}")
    voice.info('next: eval "$(moorage lab env)"')
    return 0


def run_stop(arguments: argparse.Namespace, voice: talk.Voice) -> int:
    from moorage.lab import client

    try:
        found = running()
    except client.Died as problem:
        # What it left behind is a key to nothing.
        for name in (client.DESCRIPTION, client.OVIRT_CONFIG, client.OVIRT_CA):
            (client.folder(os.environ) / name).unlink(missing_ok=True)
        voice.info(problem.message)
        return 0
    except client.NotThere as problem:
        voice.info(problem.message)
        return 0
    client.stop(found)
    voice.info("the lab has stopped")
    return 0


def run_status(arguments: argparse.Namespace, voice: talk.Voice) -> int:
    told = running().control("GET", "/lab")
    if arguments.output == "json":
        print(json.dumps(told, indent=1))
        return 0
    print(f"the lab: process {told['pid']}, {told['speed']:g} cloud seconds a second, network {told['network']}")
    print(f"cloud time {told['time']}; {told['calls']} calls, {told['faults']} fault rules, {told['records']} records")
    if not told["privileged"]:
        print("ports 80 and 443 cannot be listened on: services of a port n below 1024 are at n + 10000")
    print(f"oVirt engine: {told['ovirt']['url']} ({told['ovirt']['username']}, see: moorage lab env)")
    for cluster in told["clusters"]:
        print(f"cluster {cluster['name']}: {cluster['state']}")
    for machine in told["machines"]:
        cut = "" if machine["connected"] else ", cut off"
        role = f" ({machine['role']})" if machine["role"] else ""
        print(f"machine {machine['name']}{role} at {machine['address']}: {machine['state']}{cut}")
    return 0


def run_env(arguments: argparse.Namespace, voice: talk.Voice) -> int:
    from moorage.lab import client

    found = running()
    usual = client.folder({name: value for name, value in os.environ.items() if name != client.FOLDER})
    elsewhere = {} if found.folder == usual else {client.FOLDER: str(found.folder)}
    for name, value in {**elsewhere, **found.environment}.items():
        print(f"export {name}={shlex.quote(value)}")
    return 0


def run_reset(arguments: argparse.Namespace, voice: talk.Voice) -> int:
    running().control("POST", "/lab/reset")
    voice.info("the lab is empty")
    return 0


def run_calls(arguments: argparse.Namespace, voice: talk.Voice) -> int:
    from urllib import parse

    query = parse.urlencode({name: getattr(arguments, name) for name in ("service", "method", "path", "after")})
    found = running().control("GET", f"/lab/calls?{query}")
    if arguments.output == "json":
        print(json.dumps(found, indent=1))
        return 0
    for call in found:
        struck = f" [{', '.join(call['faults'])}]" if call["faults"] else ""
        result = "no answer" if call["status"] is None else call["status"]
        program = "".join(f" by {name}" for name in call["agent"].split()[:1] if name != call["who"])
        print(
            f"{call['number']:6} {call['at']} {call['service']} {call['who']}{program}: {call['method']} {call['path']}"
            f" -> {result} ({call['seconds']:.1f} s){struck}"
        )
    return 0


def run_console(arguments: argparse.Namespace, voice: talk.Voice) -> int:
    from moorage.lab import client

    sys.stdout.write(running().control("GET", f"/lab/machines/{client.quoted(arguments.machine)}/console"))
    return 0


def run_image(arguments: argparse.Namespace, voice: talk.Voice) -> int:
    from moorage.lab import boot_image

    try:
        with arguments.file.open("xb") as file:
            file.write(boot_image.content())
    except OSError as problem:
        raise errors.MoorageError(f"{arguments.file}: {problem.strerror}", remedy="name another file") from problem
    voice.info(f"next: export OPENSHIFT_INSTALL_OS_IMAGE_OVERRIDE={shlex.quote(str(arguments.file.absolute()))}")
    return 0


def run_kubeconfig(arguments: argparse.Namespace, voice: talk.Voice) -> int:
    from urllib import parse

    sys.stdout.write(running().control("GET", f"/lab/kubeconfig?cluster={parse.quote(arguments.cluster)}"))
    return 0


def _about(found: client.Lab) -> str:
    return f"network {found.network}, {found.speed:g} cloud seconds a second, in {_short(found.folder)}"


def _short(path: Path) -> str:
    try:
        return f"~/{path.relative_to(Path.home())}"
    except ValueError:
        return str(path)
