"""`moorage destroy cluster|bootstrap`: everything that bears the cluster's mark goes, and nothing else."""

from __future__ import annotations

import argparse
import json
import os
from pathlib import Path
from typing import TYPE_CHECKING

from moorage import errors
from moorage.cli import create_cluster, talk

if TYPE_CHECKING:
    from moorage.installer import destroy
    from moorage.platforms import contract


def add(command: argparse.ArgumentParser, shared: argparse.ArgumentParser) -> None:
    scopes = command.add_subparsers(title="what to destroy", metavar="WHAT", required=True)
    for scope, text in (("cluster", "remove everything that the cluster owns"), ("bootstrap", "remove the bootstrap")):
        kind = scopes.add_parser(scope, parents=[shared], help=text, description=f"{text.capitalize()}.")
        kind.add_argument("--infra-id", metavar="ID", help="the cluster's mark, if its directory is lost")
        kind.add_argument("--platform", metavar="NAME", help="where it is; needed with --infra-id")
        kind.add_argument("-o", "--output", choices=("text", "json"), default="text")
        kind.set_defaults(run=run, scope=scope)


def run(arguments: argparse.Namespace, voice: talk.Voice) -> int:
    from moorage.cli import watch
    from moorage.engine import clock as clocks
    from moorage.installer import calls, destroy
    from moorage.platforms import contract

    root, known = _cluster(arguments)
    if root is not None:
        voice.log_to(root)
    clock = clocks.from_environment()
    around = contract.Surroundings(os.environ, clock, voice.debug)
    with create_cluster.interruptible(voice, clock), watch.listener(voice, cluster=known.infra_id, clock=clock) as seen:
        done = destroy.destroy_from(
            root, known, arguments.scope, around, lambda secrets: calls.tracer(voice, secrets), seen
        )
    _summary(arguments, voice, known, done)
    return 0


def _cluster(arguments: argparse.Namespace) -> tuple[Path | None, contract.Metadata]:
    """The directory to keep in step, if there is one, and all that is known of the cluster."""
    from moorage.installer import aside, metadata

    root = Path(arguments.dir)
    if arguments.infra_id is None:
        if arguments.platform is not None:
            raise errors.ConfigError("--platform says where to look, but not for what", remedy="add --infra-id")
        aside.finish(root)
        return root, metadata.found_in(root)
    if arguments.platform is None:
        raise errors.ConfigError("--infra-id alone does not say where to look", remedy="add --platform")
    named = metadata.named(arguments.infra_id, arguments.platform)
    if (root / metadata.FILE).exists():
        # The directory may be that cluster's own, and then knows more, or any other one that must stay as it is.
        here = metadata.read(root / metadata.FILE)
        if (here.infra_id, here.platform) == (named.infra_id, named.platform):
            return root, here
    return None, named


def _summary(
    arguments: argparse.Namespace, voice: talk.Voice, known: contract.Metadata, done: destroy.Destroyed
) -> None:
    what = known.infra_id if arguments.scope == "cluster" else f"the bootstrap of {known.infra_id}"
    if arguments.output == "json":
        aside = str(done.set_aside) if done.set_aside else None
        told = {"infraID": known.infra_id, "removed": list(done.removed), "kept": list(done.spared), "setAside": aside}
        print(json.dumps(told, indent=1))
    if done.removed:
        rounds = "1 round" if done.rounds == 1 else f"{done.rounds} rounds"
        left = "its users' data is left" if done.spared else "nothing is left"
        voice.info(f"{what} is gone: {len(done.removed)} removed in {rounds}, {left}")
    else:
        voice.info(f"nothing of {what} is there: nothing on platform {known.platform} bears its mark")
    if done.set_aside:
        voice.info(f"its files are in {done.set_aside}; install-config.yaml stays for the next one")
    if done.spared:
        from moorage.installer import destroy

        voice.warn(destroy.kept(done.spared))
