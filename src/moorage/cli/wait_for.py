"""`moorage wait-for bootstrap-complete|install-complete`: watch a cluster come up, and hear what it lacks if not."""

from __future__ import annotations

import argparse
import json
import os
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

from moorage.cli import talk

if TYPE_CHECKING:
    from moorage.engine import clock as clocks
    from moorage.installer import waiting

_BOOTSTRAP = "bootstrap-complete"
_INSTALL = "install-complete"


def add(command: argparse.ArgumentParser, shared: argparse.ArgumentParser) -> None:
    kinds = command.add_subparsers(title="what to wait for", metavar="WHAT", required=True)
    _event(kinds, shared, _BOOTSTRAP, run_bootstrap, "wait until the bootstrap machine is not needed any more")
    _event(kinds, shared, _INSTALL, run_install, "wait until the cluster is installed and at rest")


def _event(kinds: Any, shared: argparse.ArgumentParser, name: str, run: Any, text: str) -> None:
    kind = kinds.add_parser(name, parents=[shared], help=text, description=f"{text[0].upper()}{text[1:]}.")
    kind.add_argument("-o", "--output", choices=("text", "json"), default="text", help="summary for people or scripts")
    kind.set_defaults(run=run)


def run_bootstrap(arguments: argparse.Namespace, voice: talk.Voice) -> int:
    from moorage.installer import awaited, durations, waiting

    def wait(clock: clocks.Clock) -> dict[str, object]:
        with awaited.journaled(Path(arguments.dir), "bootstrap", clock, _sayer(voice)) as say:
            waiting.bootstrap_complete(Path(arguments.dir), clock, os.environ, say)
        voice.info(f"the bootstrap is complete after {durations.words(clock.now())}; its machine may go")
        voice.info(f"next: {_command(_INSTALL, arguments.dir)}")
        return {}

    return _waited(arguments, voice, _BOOTSTRAP, wait)


def run_install(arguments: argparse.Namespace, voice: talk.Voice) -> int:
    from moorage.installer import awaited, durations, waiting

    def wait(clock: clocks.Clock) -> dict[str, object]:
        with awaited.journaled(Path(arguments.dir), "install", clock, _sayer(voice)) as say:
            installed = waiting.install_complete(Path(arguments.dir), clock, os.environ, say)
        voice.info(f"{installed.version or 'the cluster'} is installed after {durations.words(clock.now())}")
        summary(installed, Path(arguments.dir), voice)
        return {
            "version": installed.version,
            "apiURL": installed.api_url,
            "consoleURL": installed.console_url,
            "kubeconfig": str(installed.kubeconfig.absolute()),
            "kubeadminPasswordFile": str(installed.kubeadmin_password.absolute()),
            "degraded": list(installed.degraded),
            "missing": installed.missing,
        }

    return _waited(arguments, voice, _INSTALL, wait)


def _waited(arguments: argparse.Namespace, voice: talk.Voice, event: str, wait: Any) -> int:
    """Wait with Ctrl-C in good order; a script gets its JSON whether the wait ended well or not."""
    from moorage import errors
    from moorage.engine import clock as clocks
    from moorage.engine import interrupt

    directory = Path(arguments.dir)
    if directory.is_dir():
        voice.log_to(directory)
    clock = clocks.from_environment()
    try:
        with interrupt.stops(clock, notice=lambda: voice.info("stopping; once more to stop at once")):
            told = wait(clock)
    except errors.MoorageError as problem:
        if problem.exit_code in (errors.BOOTSTRAP, errors.INSTALL, errors.OPERATORS):
            again = f"then run: {_command(event, arguments.dir)}"
            problem.remedy = f"{problem.remedy}; {again}" if problem.remedy else again
        _report(
            arguments,
            event,
            clock,
            complete=False,
            stage=getattr(problem, "stage", None),
            error=problem.message,
            remedy=problem.remedy,
            exitCode=problem.exit_code,
        )
        raise
    _report(arguments, event, clock, complete=True, **told)
    return 0


def _report(
    arguments: argparse.Namespace, event: str, clock: clocks.Clock, *, complete: bool, **details: object
) -> None:
    if arguments.output == "json":
        told = {"event": event, "complete": complete, "seconds": round(clock.now(), 1), **details}
        print(json.dumps(told, indent=1), flush=True)


def summary(installed: waiting.Installed, root: Path, voice: talk.Voice) -> None:
    from moorage.installer import wording

    for complaint in installed.degraded:
        voice.warn(complaint)
    if installed.missing:
        see = wording.command("moorage machines --once", root)
        voice.warn(f"the cluster works, but {installed.missing}; see: {see}")
    if installed.console_url:
        voice.info(f"console: {installed.console_url}")
        voice.info(f"log in as kubeadmin with the password in {installed.kubeadmin_password.absolute()}")
    else:
        voice.info("there is no console to open")
    voice.info(f"export KUBECONFIG={shlex.quote(str(installed.kubeconfig.absolute()))}")


def _sayer(voice: talk.Voice) -> waiting.Say:
    from moorage.installer import durations

    def say(_stage: str, waiting_for: str, seconds: float) -> None:
        voice.info(f"waiting for {waiting_for} ({durations.words(seconds)})")

    return say


def _command(event: str, directory: str) -> str:
    from moorage.installer import wording

    return wording.command(f"moorage wait-for {event}", Path(directory))
