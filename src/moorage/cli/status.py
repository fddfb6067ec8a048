"""`moorage status`: how far a cluster is, from its journal; works beside a running create, and after a crash."""

from __future__ import annotations

import argparse
import dataclasses
import json
from pathlib import Path
from typing import TYPE_CHECKING

from moorage.cli import talk

if TYPE_CHECKING:
    from moorage.installer import status


def add(command: argparse.ArgumentParser, _: argparse.ArgumentParser) -> None:
    command.description = "Shows the stage, what is running, what failed, and for how long."
    command.add_argument("-o", "--output", choices=("text", "json"), default="text")
    command.set_defaults(run=run)


def run(arguments: argparse.Namespace, voice: talk.Voice) -> int:
    from moorage.engine import clock
    from moorage.installer import status

    found = status.read(Path(arguments.dir), clock.from_environment().wall())
    if arguments.output == "json":
        print(json.dumps(dataclasses.asdict(found), indent=1, default=lambda moment: moment.isoformat()))
    else:
        print("\n".join(_lines(found)))
    return 0


def _lines(found: status.Status) -> list[str]:
    from moorage.installer import durations

    runs = "" if found.runs == 1 else f", run {found.runs}"
    lines = [f"{found.cluster}: {found.story} {found.outcome} after {durations.words(found.seconds)}{runs}"]
    lines += [_line(item) for item in found.stages]
    if found.total:
        lines.append(f"resources: {found.done} of {found.total} done")
    return [*lines, *(_line(item) for item in found.resources)]


def _line(item: status.Item) -> str:
    from moorage.installer import durations

    said = item.message or (f"for {item.waiting_for}" if item.waiting_for else "")
    return f"  {item.name}: {item.state} ({durations.words(item.seconds)}){f', {said}' if said else ''}"
