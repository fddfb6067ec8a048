"""`moorage graph`: the asset graph, drawn."""

from __future__ import annotations

import argparse
from pathlib import Path

from moorage.cli import talk


def add(command: argparse.ArgumentParser, _: argparse.ArgumentParser) -> None:
    command.add_argument("-o", "--output", choices=("mermaid", "dot", "json"), default="mermaid")
    command.add_argument("--output-file", metavar="FILE", help="write there instead of to stdout")
    command.set_defaults(run=run)


def run(arguments: argparse.Namespace, voice: talk.Voice) -> int:
    from moorage.assets import drawing, store
    from moorage.installer import produce

    text = drawing.draw(produce.whole_graph(), arguments.output)
    if arguments.output_file:
        store.write_alone(Path(arguments.output_file), text.encode())
        voice.info(f"wrote {arguments.output_file}")
    else:
        print(text, end="")
    return 0
