"""`moorage`: finds the command and has it run.

`--help` is the first thing anybody types and must be there at once, so it is written without loading anything; a
command's module is imported only when its word is on the command line.
"""

from __future__ import annotations

import atexit
import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse
    from collections.abc import Container, Sequence

COMMANDS = {
    "create": "make an install-config, manifests, Ignition configs or a whole cluster",
    "plan": "show every resource that create cluster would make, without making any",
    "status": "how far create cluster or destroy cluster is",
    "wait-for": "wait until a cluster's bootstrap or installation is complete",
    "destroy": "remove a cluster, or its bootstrap machine, without a trace",
    "validate": "check an install-config without changing anything",
    "timeline": "draw when each resource was made, retried, failed or removed",
    "explain": "describe a field of the install-config",
    "graph": "draw the asset graph",
    "machines": "show a cluster's machines: phase, node, instance, and what each waits for",
    "machine-api": "run the controllers that keep, scale and heal a cluster's machines",
    "node-network": "on a node: keep its virtual addresses, names and balancing in step with the cluster",
    "lab": "start, look into and break a simulated datacentre on this machine",
    "demo": "install a cluster in the lab, before your eyes",
    "version": "print the version and the release it installs",
    "completion": "print a completion script for your shell",
}
"""What there is, in the order `--help` shows it; the module of a command has its name."""

_FLAGS = {
    "-h, --help": "show this, or with a command what it takes",
    "--dir DIR": "asset directory (default: .)",
    "--log-level LEVEL": "what is said on the terminal: debug, info, warn or error (default: info)",
}
_DIRS = {"demo": "folder of the demo (default: moorage-demo)", "lab": ""}
"""What `--dir` is for commands that mean no asset directory by it: the lab's have none, and take it without a word."""
_LEVELS = ("debug", "info", "warn", "error")


def overview() -> str:
    """The text of `moorage --help`."""

    def table(rows: dict[str, str]) -> str:
        return "".join(f"  {name:19} {text}\n" for name, text in rows.items())

    return (
        "usage: moorage [--dir DIR] [--log-level LEVEL] COMMAND …\n\n"
        "Installs and runs OpenShift/OKD clusters where mainstream installers no longer do.\n\n"
        f"commands:\n{table(COMMANDS)}\noptions:\n{table(_FLAGS)}\nStart with: moorage create install-config\n"
    )


def parser(words: Container[str] = COMMANDS) -> argparse.ArgumentParser:
    """The command tree, complete for the commands in ``words``. Global flags are taken before and after the verb."""
    import argparse
    import importlib

    class Root(argparse.ArgumentParser):
        def format_help(self) -> str:
            return overview()

    root = Root(prog="moorage", allow_abbrev=False)
    _global_flags(root, ".", "info")
    verbs = root.add_subparsers(metavar="COMMAND", dest="command", required=True, parser_class=argparse.ArgumentParser)
    for name, text in COMMANDS.items():
        shared = argparse.ArgumentParser(add_help=False)
        directory = _DIRS.get(name, _FLAGS["--dir DIR"])
        _global_flags(shared, argparse.SUPPRESS, argparse.SUPPRESS, directory or argparse.SUPPRESS)
        command = verbs.add_parser(name, help=text, parents=[shared])
        if name in words:
            importlib.import_module(f"moorage.cli.{name.replace('-', '_')}").add(command, shared)
    return root


def _global_flags(to: argparse.ArgumentParser, directory: str, level: str, what: str = _FLAGS["--dir DIR"]) -> None:
    to.add_argument("--dir", default=directory, metavar="DIR", help=what)
    to.add_argument("--log-level", default=level, choices=_LEVELS, metavar="LEVEL", help=_FLAGS["--log-level LEVEL"])


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; the exit code tells scripts what kind of thing went wrong."""
    words = sys.argv[1:] if argv is None else argv
    if list(words) in (["-h"], ["--help"]):
        print(overview(), end="")
        return 0
    arguments = parser(words).parse_args(words)
    from moorage.cli import outcome

    return outcome.of(arguments)


def entry() -> None:
    """The program. It ends when the work is done: taking the interpreter apart first would cost a tenth of a second."""
    code = main()
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except OSError:
        code = code or 1  # the reader has gone
    # Promised farewells are kept: a session in somebody's engine would live on for hours.
    atexit._run_exitfuncs()
    os._exit(code)
