"""`moorage timeline`: what took how long, what failed and what went on, as one page to look at or to send."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from moorage import errors
from moorage.cli import talk

_PAGE = "timeline.html"


def add(command: argparse.ArgumentParser, _: argparse.ArgumentParser) -> None:
    command.description = "Draw what happened when, also while it goes on or after a failure."
    command.add_argument(
        "-o", "--output", choices=("html", "json"), default="html", help="a page, or facts for scripts"
    )
    command.add_argument(
        "--output-file", metavar="FILE", help=f"where to write (default: {_PAGE} in the asset directory; json: stdout)"
    )
    command.set_defaults(run=run)


def run(arguments: argparse.Namespace, voice: talk.Voice) -> int:
    from moorage.assets import store
    from moorage.engine import clock as clocks
    from moorage.engine import journal as journals
    from moorage.installer import metadata, timeline

    root = Path(arguments.dir)
    now = clocks.from_environment().wall()
    path = root / metadata.JOURNAL
    if not path.exists():
        raise errors.StoreError(
            f"there is no timeline: {root} has no journal ({metadata.JOURNAL})",
            remedy="moorage create cluster begins one; if it was run elsewhere, name that directory with --dir",
        )
    with journals.Journal(path, create=False) as journal:
        if arguments.output == "json":
            text = json.dumps(timeline.summary(journal, now=now), indent=1) + "\n"
        else:
            text = timeline.page(journal, title=_cluster(root / metadata.FILE), now=now)
    if arguments.output == "json" and not arguments.output_file:
        print(text, end="")
        return 0
    target = Path(arguments.output_file) if arguments.output_file else root / _PAGE
    store.write_alone(target, text.encode())
    voice.info(f"wrote {target}")
    return 0


def _cluster(path: Path) -> str:
    """The cluster's name as its metadata gives it; the page does without if there is none."""
    try:
        known = json.loads(path.read_text())
    except (OSError, ValueError):
        return ""
    if not isinstance(known, dict):
        return ""
    name, infra_id = known.get("clusterName"), known.get("infraID")
    return f"{name} ({infra_id})" if name and infra_id else str(name or infra_id or "")
