"""`moorage validate`: every problem of an install-config at once, for people and for scripts."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from moorage import errors
from moorage.cli import talk


def add(command: argparse.ArgumentParser, _: argparse.ArgumentParser) -> None:
    command.add_argument("file", nargs="?", help="file to check, - for stdin (default: install-config.yaml in --dir)")
    command.add_argument("-o", "--output", choices=("text", "json"), default="text")
    command.set_defaults(run=run)


def run(arguments: argparse.Namespace, voice: talk.Voice) -> int:
    import dataclasses

    from moorage.config import findings, load
    from moorage.platforms import registry

    path = Path(arguments.file) if arguments.file else Path(arguments.dir) / "install-config.yaml"
    source, content = (
        ("stdin", sys.stdin.buffer.read()) if arguments.file == "-" else (str(path), load.read_bytes(path))
    )
    found = load.check(content, registry.stanzas())
    broken = [finding for finding in found if finding.severity == "error"]
    if arguments.output == "json":
        keys = ("field", "line", "message", "severity", "remedy")
        plain = [dataclasses.asdict(finding) for finding in found]
        print(json.dumps([{key: finding[key] for key in keys} for finding in plain], indent=1))
    else:
        for finding in found:
            voice.finding(source, finding)
        if broken:
            voice.error(findings.count(source, found))
        else:
            voice.info(f"{source} is valid")
    return errors.INSTALL_CONFIG if broken else 0
