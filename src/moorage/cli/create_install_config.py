"""`moorage create install-config`: a few questions, or none at all when flags, environment or a file answer them."""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from moorage import errors
from moorage.cli import talk

if TYPE_CHECKING:
    from moorage.config import findings, survey
    from moorage.platforms import contract

_FLAGS = {
    "cluster_name": ("NAME", "the cluster's name"),
    "base_domain": ("DOMAIN", "the DNS domain it lives in"),
    "platform": ("PLATFORM", "where it goes"),
    "pull_secret": ("@FILE", "file that holds the pull secret (never the secret itself: others can see it)"),
    "ssh_key": ("KEY|@FILE", "public key that may log in to the nodes"),
    "control_plane_replicas": ("N", "number of control-plane machines (default: 3)"),
    "worker_replicas": ("N", "number of workers (default: 3)"),
    "machine_network": ("CIDR", "the range that the machines' addresses are in (default: the platform's)"),
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
    from moorage.config import findings, load, survey
    from moorage.engine import clock as clocks
    from moorage.platforms import contract, registry

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
    keys = [question.key for question in questions]
    keys += [key for name in registry.packages() for key in _platform_keys(name)]
    given = survey.gather(keys, flags=flags, environ=os.environ, answers_file=arguments.answers)
    interview = survey.Interview(given, _person(), voice.info, voice.warn)
    around = contract.Surroundings(os.environ, clocks.from_environment(), voice.debug)
    with _unechoed():
        answers, settled = survey.hold(questions, interview, lambda name: _platform_survey(name, around))
    for key in _strays(given, answers["platform"]):
        voice.warn(f"{key} is not a question of platform {answers['platform']}: the answer is not used")
    network = settled.machine_network or answers.get("machine_network")
    text = survey.yaml_text(
        survey.build(answers, settled.settings, machine_network=network or stanzas[answers["platform"]].machine_network)
    )
    try:
        _, warnings = load.parse(text, stanzas, source=str(path))
    except findings.Invalid as wrong:
        # Each answer was right by itself, and the file that they make is not: there is none to correct.
        raise findings.WrongAnswers([dataclasses.replace(each, line=None) for each in wrong.findings]) from wrong
    for line in settled.finish():
        voice.info(line)
    store.write_alone(path, text.encode())
    for warning in warnings:
        voice.finding(str(path), warning)
    voice.info(f"wrote {path}")
    command = "plan" if registry.makes_machines(answers["platform"]) else "create manifests"
    voice.info(f"next: moorage {command}{'' if arguments.dir == '.' else f' --dir {arguments.dir}'}")
    return 0


@contextlib.contextmanager
def _unechoed() -> Iterator[None]:
    """Between two questions the terminal would show what is typed, and the next one may be for a password."""
    if not sys.stdin.isatty():
        yield
        return
    import termios

    keyboard = sys.stdin.fileno()
    before = termios.tcgetattr(keyboard)
    hushed = [*before[:3], before[3] & ~termios.ECHO, *before[4:]]
    termios.tcsetattr(keyboard, termios.TCSADRAIN, hushed)
    try:
        yield
    finally:
        termios.tcsetattr(keyboard, termios.TCSADRAIN, before)


def _person() -> survey.Asker | None:
    """Whoever sits at the terminal, if there is one."""
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        return None
    from prompt_toolkit import output

    from moorage.config import survey

    # Questions are talk, not data: they go where the rest of our talk goes.
    return survey.questionary_asker(output=output.create_output(stdout=sys.stderr))


def _platform_keys(name: str) -> Sequence[str]:
    from moorage.platforms import registry

    found = registry.survey(name)
    return found.KEYS if found is not None else ()


def _strays(given: Mapping[str, str], platform: str) -> list[str]:
    """Answers that only other platforms would have asked for."""
    from moorage.platforms import registry

    asked = {*_FLAGS, *_platform_keys(platform)}
    elsewhere = {key for name in registry.packages() for key in _platform_keys(name)}
    return [key for key in given if key in elsewhere - asked]


def _platform_survey(name: str, around: contract.Surroundings) -> survey.PlatformSurvey | None:
    from moorage.platforms import registry

    found = registry.survey(name)
    return _Placed(found, around) if found is not None else None


@dataclasses.dataclass(frozen=True)
class _Placed:
    """A platform's survey, with the surroundings it asks from."""

    module: contract.Survey
    around: contract.Surroundings

    def missing(self, interview: survey.Interview) -> Iterable[findings.Finding]:
        return self.module.missing(interview, self.around)

    def ask(self, interview: survey.Interview) -> survey.Settled:
        return self.module.ask(interview, self.around)


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
