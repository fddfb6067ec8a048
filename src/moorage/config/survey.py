"""The questions of `create install-config`, as data, and what their answers become.

Answers come from flags, the environment, a file or a person, and all of them pass the same checks the finished file
will: `Question.check` calls the rules. The asking itself is behind the small `Asker`, so a run without a terminal and a
test differ from a person only in who answers.
"""

from __future__ import annotations

import dataclasses
import pathlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, Literal, Protocol

from moorage import errors
from moorage.config import defaults, emit, findings, key_rules, load, model, names, rules, schema, source, stanza, text

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


class Asker(Protocol):
    """Whoever answers: a terminal, or a script."""

    def ask(self, question: Question) -> str:
        """The answer; it has passed ``question.check``."""


PlatformQuestions = Callable[[str], Sequence[Question]]


def no_questions(_: str) -> Sequence[Question]:
    """For platforms with nothing to ask."""
    return ()


def questions(stanzas: Mapping[str, stanza.Stanza], ssh_keys: Sequence[Choice] = ()) -> tuple[Question, ...]:
    """What must be known of any cluster; platforms add theirs after the answer to ``platform``."""
    platforms = tuple(Choice(chosen.title, name) for name, chosen in sorted(stanzas.items()))
    no_key = Choice("none: nobody logs in to the nodes", "")
    return (
        Question("ssh_key", "SSH public key", "select", (*ssh_keys, no_key), "", _checked(key_rules.ssh_keys)),
        Question("platform", "Platform", "select", platforms, check=_one_of(stanzas)),
        Question("base_domain", "Base domain", check=_checked(names.base_domain)),
        Question("cluster_name", "Cluster name", check=_checked(names.cluster_name)),
        Question("pull_secret", "Pull secret", "password", check=_checked(key_rules.pull_secret)),
        Question("control_plane_replicas", "Control-plane machines", check=_control_plane, optional=True),
        Question("worker_replicas", "Workers", check=_workers, optional=True),
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
    known: Sequence[Question],
    *,
    flags: Mapping[str, str | None],
    environ: Mapping[str, str],
    answers_file: pathlib.Path | None = None,
) -> dict[str, str]:
    """Answers given beforehand: by flag, else by ``MOORAGE_<KEY>``, else in the file. ``@path`` reads a file."""
    from_file = _answers_in(answers_file, [question.key for question in known]) if answers_file is not None else {}
    answers = {}
    for question in known:
        for given in (flags.get(question.key), environ.get(ENVIRONMENT + question.key.upper())):
            if given is not None:
                answers[question.key] = _contents(given)
                break
        else:
            if question.key in from_file:
                answers[question.key] = _contents(from_file[question.key])
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


def settle(known: Sequence[Question], answers: Mapping[str, str]) -> dict[str, str]:
    """Answers for a run with nobody to ask: defaults filled in, or an error that names all that is missing or wrong."""
    found = faults(known, answers)
    for key in unanswered(known, answers):
        remedy = f"give --{key.replace('_', '-')}, {ENVIRONMENT}{key.upper()}, or {key}: in the answers file"
        found.append(findings.Finding(key, "is not answered, and there is nobody to ask", remedy=remedy))
    if found:
        raise findings.Invalid("the answers", found)
    given = {question.key: question.default for question in known if question.default is not None}
    return {**given, **answers}


def ask(
    known: Sequence[Question],
    asker: Asker,
    answers: Mapping[str, str] | None = None,
    platform_questions: PlatformQuestions = no_questions,
) -> dict[str, str]:
    """Ask what is not answered yet, in order; the platform's own questions follow the choice of the platform."""
    found = dict(answers or {})
    wrong = faults(known, found)
    if wrong:
        raise findings.Invalid("the answers", wrong)
    for question in known:
        if question.key not in found and not question.optional:
            found[question.key] = asker.ask(question)
        if question.key == "platform":
            found = ask(platform_questions(found["platform"]), asker, found)
    return found


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


def _checked(check: Callable[[str, str], Iterable[findings.Finding]]) -> Callable[[str], str | None]:
    def first_error(typed: str) -> str | None:
        for finding in check("", typed.strip()):
            if finding.severity == "error":
                return f"{finding.message}; {finding.remedy}" if finding.remedy else finding.message
        return None

    return first_error


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
    document = source.load(load.read_bytes(path))
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
        raise findings.Invalid(str(path), found)
    return answers
