"""The questions of `create install-config`, as data, and what their answers become.

Answers come from flags, the environment, a file or a person, and all of them pass the same checks the finished file
will: `Question.check` calls the rules. An `Interview` knows what was answered beforehand and has a small `Asker` for
the rest, so a run without a terminal and a test differ from a person only in who answers.
"""

from __future__ import annotations

import dataclasses
import pathlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, Literal, Protocol

from moorage import errors
from moorage.config import (
    defaults,
    emit,
    findings,
    key_rules,
    load,
    model,
    names,
    network_rules,
    rules,
    schema,
    source,
    stanza,
    text,
)

Kind = Literal["text", "password", "select", "path"]
ENVIRONMENT: Final = "MOORAGE_"


def accepted(_: str) -> str | None:
    """The check of a question that any answer satisfies."""
    return None


@dataclasses.dataclass(frozen=True)
class Choice:
    """One line of a selection: what is shown, and the answer it stands for."""

    title: str
    value: str


@dataclasses.dataclass(frozen=True)
class Question:
    """One question. Without a ``default`` it must be answered; an ``optional`` one is never asked, only answered."""

    key: str
    prompt: str
    kind: Kind = "text"
    choices: tuple[Choice, ...] = ()
    default: str | None = None
    check: Callable[[str], str | None] = accepted
    optional: bool = False
    flag: bool = True
    """Whether a flag of the command answers it as well."""


class Asker(Protocol):
    """Whoever answers: a terminal, or a script."""

    def ask(self, question: Question) -> str:
        """The answer; it has passed ``question.check``."""


def silent(_: str) -> None:
    """Says nothing."""


class Interview:
    """One conversation: answers given beforehand, and perhaps somebody to ask for the others.

    Questions of platforms depend on what a platform says meanwhile, so they come one by one. ``say`` tells the person
    what they should know before the next one, ``warn`` what is wrong with the last.
    """

    def __init__(
        self,
        given: Mapping[str, str],
        asker: Asker | None = None,
        say: Callable[[str], None] = silent,
        warn: Callable[[str], None] = silent,
    ) -> None:
        self.given = dict(given)
        self.say = say
        self.warn = warn
        self._asker = asker

    @property
    def attended(self) -> bool:
        """Whether there is somebody to ask."""
        return self._asker is not None

    def ask(self, question: Question) -> str:
        """The answer, which has passed ``question.check``; `findings.Invalid` if there is none to be had."""
        if question.key in self.given:
            problem = question.check(self.given[question.key])
            if problem is None:
                return self.given[question.key]
            if question.optional:
                raise findings.WrongAnswers([findings.Finding(question.key, problem)])
            self.refuse(question.key, problem)
        if question.optional:
            return question.default or ""
        if self._asker is not None:
            return self._asker.ask(question)
        if question.default is not None:
            return question.default
        raise findings.WrongAnswers([not_answered(question)])

    def refuse(self, key: str, problem: str, remedy: str = "") -> None:
        """An answer turned out to be wrong: a person is told and can be asked again, for anybody else it is the end."""
        if not self.attended:
            raise findings.WrongAnswers([findings.Finding(key, problem, remedy=remedy)])
        self.given.pop(key, None)
        self.warn(f"{problem}; {remedy}" if remedy else problem)


def not_answered(question: Question) -> findings.Finding:
    """What to say where an answer is missing."""
    ways = [f"{ENVIRONMENT}{question.key.upper()}", f"{question.key}: in the answers file"]
    if question.flag:
        ways.insert(0, f"--{question.key.replace('_', '-')}")
    listed = f"; there are {', '.join(choice.title for choice in question.choices)}" if question.choices else ""
    remedy = f"give {', '.join(ways[:-1])} or {ways[-1]}{listed}"
    return findings.Finding(question.key, "is not answered, and there is nobody to ask", remedy=remedy)


@dataclasses.dataclass(frozen=True)
class Settled:
    """What a platform's survey found out: its section, its machines' network, and what is left to do.

    ``finish`` runs when the whole file is known to be sound and returns what is to be said; until then, nothing that
    the survey learned is written anywhere.
    """

    settings: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    machine_network: str | None = None
    finish: Callable[[], Sequence[str]] = tuple


class PlatformSurvey(Protocol):
    """The questions of one platform."""

    def missing(self, interview: Interview) -> Iterable[findings.Finding]:
        """What must be answered beforehand where nobody can be asked, as far as that is known without a look."""

    def ask(self, interview: Interview) -> Settled:
        """Ask, look, ask again."""


def no_survey(_: str) -> PlatformSurvey | None:
    """For platforms with nothing to ask."""
    return None


def checked(check: Callable[[str, str], Iterable[findings.Finding]]) -> Callable[[str], str | None]:
    """A question's check by one of the file's own rules: the first error, in words for the person who types."""

    def first_error(typed: str) -> str | None:
        for finding in check("", typed.strip()):
            if finding.severity == "error":
                return f"{finding.message}; {finding.remedy}" if finding.remedy else finding.message
        return None

    return first_error


MACHINE_NETWORK: Final = Question(
    "machine_network", "Network of the machines (CIDR)", check=checked(network_rules.cidr), optional=True
)


def questions(stanzas: Mapping[str, stanza.Stanza], ssh_keys: Sequence[Choice] = ()) -> tuple[Question, ...]:
    """What must be known of any cluster; platforms add theirs after the answer to ``platform``."""
    platforms = tuple(Choice(chosen.title, name) for name, chosen in sorted(stanzas.items()))
    no_key = Choice("none: nobody logs in to the nodes", "")
    return (
        Question("ssh_key", "SSH public key", "select", (*ssh_keys, no_key), "", checked(key_rules.ssh_keys)),
        Question("platform", "Platform", "select", platforms, check=_one_of(stanzas)),
        Question("base_domain", "Base domain", check=checked(names.base_domain)),
        Question("cluster_name", "Cluster name", check=checked(names.cluster_name)),
        Question("pull_secret", "Pull secret", "password", check=checked(key_rules.pull_secret)),
        Question("control_plane_replicas", "Control-plane machines", check=_control_plane, optional=True),
        Question("worker_replicas", "Workers", check=_workers, optional=True),
        MACHINE_NETWORK,
    )


def ssh_key_choices(directory: pathlib.Path) -> tuple[Choice, ...]:
    """The sound public keys in a directory such as ~/.ssh, by file name."""
    found = []
    for path in sorted(directory.glob("*.pub")):
        try:
            key = path.read_text().strip()
        except (OSError, UnicodeDecodeError):
            continue  # a key that cannot be read cannot be chosen
        if key and not any(finding.severity == "error" for finding in key_rules.ssh_keys("", key)):
            found.append(Choice(str(path), key))
    return tuple(found)


def gather(
    keys: Sequence[str],
    *,
    flags: Mapping[str, str | None],
    environ: Mapping[str, str],
    answers_file: pathlib.Path | None = None,
) -> dict[str, str]:
    """Answers given beforehand: by flag, else by ``MOORAGE_<KEY>``, else in the file. ``@path`` reads a file."""
    from_file = _answers_in(answers_file, keys) if answers_file is not None else {}
    answers = {}
    for key in keys:
        for given in (flags.get(key), environ.get(ENVIRONMENT + key.upper())):
            if given is not None:
                answers[key] = _contents(given)
                break
        else:
            if key in from_file:
                answers[key] = _contents(from_file[key])
    return answers


def unanswered(known: Sequence[Question], answers: Mapping[str, str]) -> list[str]:
    """The keys of all questions that still need an answer."""
    return [
        question.key
        for question in known
        if question.key not in answers and question.default is None and not question.optional
    ]


def faults(known: Sequence[Question], answers: Mapping[str, str]) -> list[findings.Finding]:
    """What is wrong with the answers there are."""
    found = []
    for question in known:
        problem = question.check(answers[question.key]) if question.key in answers else None
        if problem is not None:
            found.append(findings.Finding(question.key, problem))
    return found


def hold(
    known: Sequence[Question],
    interview: Interview,
    platform_survey: Callable[[str], PlatformSurvey | None] = no_survey,
) -> tuple[dict[str, str], Settled]:
    """All answers, asked for in order; the platform's own questions follow the choice of the platform.

    Where nobody can be asked, all that is missing or wrong is named at once, before anything is looked at.
    """
    wrong = faults(known, interview.given)
    if not interview.attended:
        by_key = {question.key: question for question in known}
        wrong += [not_answered(by_key[key]) for key in unanswered(known, interview.given)]
        named = interview.given.get("platform", "")
        if named and not any(finding.field == "platform" for finding in wrong):
            chosen = platform_survey(named)
            wrong += chosen.missing(interview) if chosen is not None else ()
    if wrong:
        raise findings.WrongAnswers(wrong)
    answers: dict[str, str] = {}
    settled = Settled()
    for question in known:
        if question.key in interview.given or not question.optional:
            answers[question.key] = interview.ask(question)
        if question.key == "platform":
            chosen = platform_survey(answers["platform"])
            settled = chosen.ask(interview) if chosen is not None else settled
    return answers, settled


def build(
    answers: Mapping[str, str],
    settings: Mapping[str, Any] | None = None,
    *,
    machine_network: str = defaults.MACHINE_NETWORK,
) -> dict[str, Any]:
    """The install-config that the answers describe; ``settings`` is the platform's own section."""
    control_plane = int(answers.get("control_plane_replicas", defaults.REPLICAS))
    workers = answers.get("worker_replicas")
    data: dict[str, Any] = {
        "apiVersion": "v1",
        "metadata": {"name": answers["cluster_name"].strip()},
        "baseDomain": answers["base_domain"].strip(),
        "platform": {answers["platform"]: dict(settings or {})},
        "controlPlane": {"name": defaults.CONTROL_PLANE_NAME, "replicas": control_plane},
        "compute": [
            {
                "name": defaults.COMPUTE_NAME,
                "replicas": int(workers) if workers is not None else (0 if control_plane == 1 else defaults.REPLICAS),
            }
        ],
        "networking": {
            "networkType": defaults.NETWORK_TYPE,
            "machineNetwork": [{"cidr": machine_network}],
            "clusterNetwork": [{"cidr": defaults.CLUSTER_NETWORK, "hostPrefix": defaults.HOST_PREFIX_V4}],
            "serviceNetwork": [defaults.SERVICE_NETWORK],
        },
        "pullSecret": answers["pull_secret"].strip(),
    }
    if answers.get("ssh_key", "").strip():
        data["sshKey"] = answers["ssh_key"].strip() + "\n"
    return data


def yaml_text(data: Mapping[str, Any]) -> str:
    """The file: each field with a line about what it is for."""
    blocks = ["# What to install. Each field is described by: moorage explain installconfig.<field>\n"]
    for key, value in data.items():
        info = schema.field_named(model.InstallConfig, key)
        comment = f"# {info.description}\n" if info is not None and info.description else ""
        blocks.append(comment + emit.dump({key: value}))
    return "\n".join(blocks)


def questionary_asker(**prompt: Any) -> Asker:
    """A person at a terminal. ``prompt`` goes to prompt_toolkit (``input``, ``output``)."""
    # Late: questionary and prompt_toolkit take longer to import than the rest of the command.
    import questionary

    class Terminal:
        def ask(self, question: Question) -> str:
            return str(self._prompt(question).unsafe_ask())

        def _prompt(self, question: Question) -> questionary.Question:
            def validate(typed: str) -> bool | str:
                return question.check(typed) or True

            default = question.default or ""
            if question.kind == "select":
                choices = [questionary.Choice(choice.title, choice.value) for choice in question.choices]
                return questionary.select(question.prompt, choices=choices, **prompt)
            if question.kind == "password":
                return questionary.password(question.prompt, default=default, validate=validate, **prompt)
            if question.kind == "path":
                return questionary.path(question.prompt, default=default, validate=validate, **prompt)
            return questionary.text(question.prompt, default=default, validate=validate, **prompt)

    return Terminal()


def _one_of(known: Iterable[str]) -> Callable[[str], str | None]:
    allowed = sorted(known)

    def check(typed: str) -> str | None:
        if typed in allowed:
            return None
        return f"there is no platform {typed!r}; {text.suggestion(typed, allowed) or f'use {text.one_of(allowed)}'}"

    return check


def _control_plane(typed: str) -> str | None:
    allowed = [str(number) for number in rules.CONTROL_PLANE_REPLICAS]
    return None if typed in allowed else f"must be {text.one_of(allowed)}"


def _workers(typed: str) -> str | None:
    return None if typed.isascii() and typed.isdigit() and len(typed) < 6 else "must be a number, 0 or more"


def _contents(given: str) -> str:
    if not given.startswith("@"):
        return given
    path = pathlib.Path(given[1:]).expanduser()
    try:
        return path.read_text().strip()
    except (OSError, UnicodeDecodeError):
        raise errors.ConfigError(f"{path} cannot be read", remedy="name a text file after the @") from None


def _answers_in(path: pathlib.Path, known: Sequence[str]) -> dict[str, str]:
    document = source.load(load.read_bytes(path, if_missing="name the file of the answers with --answers"))
    found = list(document.faults)
    answers = {}
    for key, value in (document.data or {}).items():
        line = document.lines.get((key,))
        if key not in known:
            remedy = text.suggestion(key, known) or f"known: {', '.join(known)}"
            found.append(findings.Finding(key, "is not a question", remedy=remedy, line=line))
        elif isinstance(value, str) or (type(value) is int and document.written[(key,)] == str(value)):
            answers[key] = str(value)
        else:
            found.append(findings.Finding(key, "is not text", remedy="put it in quotes", line=line))
    if found:
        raise findings.WrongAnswers(found, str(path))
    return answers
