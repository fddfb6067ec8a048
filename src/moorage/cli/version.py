"""`moorage version`: this program, and the release it installs."""

from __future__ import annotations

import argparse
import json

import moorage
from moorage.cli import talk


def add(command: argparse.ArgumentParser, _: argparse.ArgumentParser) -> None:
    command.add_argument("-o", "--output", choices=("text", "json"), default="text")
    command.set_defaults(run=run)


def run(arguments: argparse.Namespace, _: talk.Voice) -> int:
    import os
    import platform

    from moorage.assets import releases

    architecture = {"x86_64": "amd64", "aarch64": "arm64"}.get(platform.machine(), platform.machine())
    if architecture not in releases.RPM_ARCHITECTURES:
        architecture = "amd64"
    release = releases.choose(architecture, os.environ)
    if arguments.output == "json":
        told = {"moorage": moorage.__version__, "release": release.version, "releaseImage": release.pull_spec}
        print(json.dumps({**told, "architecture": architecture}))
    else:
        print(f"moorage {moorage.__version__}\nrelease {release.version} ({architecture})\nimage {release.pull_spec}")
    return 0
