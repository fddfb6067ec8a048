"""`moorage create install-config`: a few questions, or none at all when flags, environment or a file answer them."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import Any

from moorage import errors
from moorage.cli import talk

_FLAGS = {
    "cluster_name": ("NAME", "the cluster's name"),
    "base_domain": ("DOMAIN", "the DNS domain it lives in"),
    "platform": ("PLATFORM", "where it goes"),
    "pull_secret": ("@FILE", "file that holds the pull secret (never the secret itself: others can see it)"),
    "ssh_key": ("KEY|@FILE", "public key that may log in to the nodes"),
    "control_plane_replicas": ("N", "number of control-plane machines (default: 3)"),
    "worker_replicas": ("N", "number of workers (default: 3)"),
}


def add(kinds: Any, shared: argparse.ArgumentParser) -> None:
    text = "ask a few questions and write install-config.yaml"
    command = kinds.add_parser(
        "install-config",
        parents=[shared],
        help=text,
        description="Ask a few questions and write install-config.yaml.",
        epilog="Each answer may also come from the environment (MOORAGE_CLUSTER_NAME, …) or from --answers.",
    )
    for key, (metavar, help_text) in _FLAGS.items():
        command.add_argument(f"--{key.replace('_', '-')}", metavar=metavar, help=help_text)
    command.add_argument("--answers", metavar="FILE", type=Path, help="YAML file with answers, such as cluster_name: x")
    command.set_defaults(run=run)


def run(arguments: argparse.Namespace, voice: talk.Voice) -> int:
    from moorage.assets import store
    from moorage.config import load, survey
    from moorage.platforms import registry

    path = Path(arguments.dir) / "install-config.yaml"
    store.refuse_unwritable(path.parent)
    if path.exists():
        raise errors.ConfigError(
            f"{path} exists already and is not overwritten",
            remedy=f"edit it and run: moorage validate --dir {arguments.dir}; or name another directory with --dir",
        )
    stanzas = registry.stanzas()
    questions = survey.questions(stanzas, survey.ssh_key_choices(Path.home() / ".ssh"))
    flags = {key: getattr(arguments, key) for key in _FLAGS}
    _refuse_secrets(questions, flags)
    answers = survey.gather(questions, flags=flags, environ=os.environ, answers_file=arguments.answers)
    if sys.stdin.isatty() and sys.stderr.isatty():
        from prompt_toolkit import output

        # Questions are talk, not data: they go where the rest of our talk goes.
        asker = survey.questionary_asker(output=output.create_output(stdout=sys.stderr))
        answers = survey.ask(questions, asker, answers)
    answers = survey.settle(questions, answers)
    text = survey.yaml_text(survey.build(answers))
    _, warnings = load.parse(text, stanzas, source=str(path))
    store.write_alone(path, text.encode())
    for warning in warnings:
        voice.finding(str(path), warning)
    voice.info(f"wrote {path}")
    voice.info(f"next: moorage create manifests{'' if arguments.dir == '.' else f' --dir {arguments.dir}'}")
    return 0


def _refuse_secrets(questions: Any, flags: dict[str, str | None]) -> None:
    """A command line is readable by every user of the machine and ends up in shell histories."""
    for question in questions:
        given = flags.get(question.key)
        if question.kind == "password" and given is not None and not given.startswith("@"):
            flag = f"--{question.key.replace('_', '-')}"
            raise errors.ConfigError(
                f"{flag} takes a file: a secret does not belong on a command line",
                remedy=f"put it into a file of mode 0600 and give {flag} @FILE",
            )
