"""`moorage explain installconfig.<path>`: what a field is for, from the model itself."""

from __future__ import annotations

import argparse
import json

from moorage.cli import talk


def add(command: argparse.ArgumentParser, _: argparse.ArgumentParser) -> None:
    command.add_argument("path", help="installconfig, or a field such as installconfig.networking.clusterNetwork")
    command.add_argument("-o", "--output", choices=("text", "json"), default="text")
    command.set_defaults(run=run)


def run(arguments: argparse.Namespace, _: talk.Voice) -> int:
    import dataclasses

    from moorage.config import explain
    from moorage.platforms import registry

    description = explain.describe(arguments.path, registry.stanzas())
    if arguments.output == "json":
        print(json.dumps(dataclasses.asdict(description), indent=1))
    else:
        print(explain.render(description))
    return 0
