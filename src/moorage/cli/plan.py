"""`moorage plan`: all that `create cluster` would make, before anything exists."""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import TYPE_CHECKING

from moorage import errors
from moorage.cli import talk

if TYPE_CHECKING:
    from moorage.platforms import contract

_STATE = ".moorage_state.json"


def add(command: argparse.ArgumentParser, _: argparse.ArgumentParser) -> None:
    command.description = (
        "Shows every resource in order, with its expected time, the limits it touches and what is reused."
    )
    command.add_argument("-o", "--output", choices=("text", "json", "mermaid", "dot"), default="text")
    command.set_defaults(run=run)


def run(arguments: argparse.Namespace, voice: talk.Voice) -> int:
    root = Path(arguments.dir)
    configured = (root / "install-config.yaml").exists()
    if configured:
        voice.log_to(root)
    from moorage.assets import keys

    source = keys.KeySource(len(keys.NAMES) if configured and not (root / _STATE).exists() else 0)

    from moorage.engine import clock as clocks
    from moorage.installer import calls, plan, produce
    from moorage.platforms import contract, registry

    clock = clocks.from_environment()
    wanted = produce.wish(root)
    infra = registry.infra(wanted.config.platform.name)
    # No files: only the state, so that the names shown are those that create will use.
    produced = produce.produce(root, ("boot_configs",), source)
    cluster = produce.cluster(produced)
    around = contract.Surroundings(os.environ, clock, voice.debug)
    around = contract.Surroundings(os.environ, clock, calls.tracer(voice, infra.secrets(cluster, around)))
    infrastructure = infra.declare(cluster, around)
    report, unknown = _inspected(cluster, around)
    finished = _finished(root, infrastructure.name)
    later = plan.later(cluster)
    made = plan.make(infrastructure, report, produced.config, later=later, finished=finished, unknown=unknown)
    print(plan.render(made, arguments.output))
    return 0 if made.feasible else errors.INSTALL_CONFIG


def _inspected(cluster: contract.Cluster, around: contract.Surroundings) -> tuple[contract.Report | None, str]:
    """The look at the platform, or why there was none: a plan needs no credentials."""
    from moorage.installer import preflight

    try:
        return preflight.look(cluster, around, patience=30.0), ""
    except errors.MoorageError as problem:
        return None, problem.message


def _finished(root: Path, flow: str) -> set[str]:
    from moorage.engine import journal
    from moorage.installer import aside

    if not (root / aside.JOURNAL).exists():
        return set()
    with journal.Journal(root / aside.JOURNAL, create=False) as opened:
        return set(opened.finished(flow))
