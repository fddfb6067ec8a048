"""The survey: answers from everywhere pass the same rules, and become a file that parses."""

from __future__ import annotations

import base64
import json
import pathlib
from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from prompt_toolkit import input as terminal_input
from prompt_toolkit import output as terminal_output

from moorage import errors
from moorage.config import findings, load, survey

from .conftest import PULL_SECRET

ANSWERS = {"platform": "none", "base_domain": "example.com", "cluster_name": "demo", "pull_secret": PULL_SECRET}
BERTH = survey.Question("dock_berth", "Berth", check=lambda typed: None if typed.isdigit() else "must be a number")


class Script:
    """Answers by key, and remembers what it was asked."""

    def __init__(self, answers: dict[str, str]) -> None:
        self.answers = answers
        self.asked: list[str] = []

    def ask(self, question: survey.Question) -> str:
        self.asked.append(question.key)
        return self.answers[question.key]


class DockSurvey:
    """A platform that asks for a berth, and wants it beforehand where nobody can be asked."""

    def missing(self, interview: survey.Interview) -> Iterable[findings.Finding]:
        return [] if "dock_berth" in interview.given else [survey.not_answered(BERTH)]

    def ask(self, interview: survey.Interview) -> survey.Settled:
        return survey.Settled({"berth": interview.ask(BERTH)}, "192.168.7.0/24")


def dock_survey(platform: str) -> survey.PlatformSurvey | None:
    return DockSurvey() if platform == "dock" else None


def keys(stanzas: Any) -> list[str]:
    return [question.key for question in survey.questions(stanzas)]


def told(call: Any) -> list[tuple[str, str]]:
    with pytest.raises(findings.Invalid) as caught:
        call()
    return [(finding.field, finding.message) for finding in caught.value.findings]


def by_key(stanzas: Any, key: str) -> survey.Question:
    return next(question for question in survey.questions(stanzas) if question.key == key)


def test_everything_is_asked_in_order_and_the_platforms_questions_follow_the_platform(stanzas: Any) -> None:
    script = Script({**ANSWERS, "platform": "dock", "ssh_key": "", "dock_berth": "7"})

    answers, settled = survey.hold(survey.questions(stanzas), survey.Interview({}, script), dock_survey)

    assert script.asked == ["ssh_key", "platform", "dock_berth", "base_domain", "cluster_name", "pull_secret"]
    assert answers == {key: value for key, value in script.answers.items() if key != "dock_berth"}
    assert (settled.settings, settled.machine_network) == ({"berth": "7"}, "192.168.7.0/24")


def test_what_is_answered_is_not_asked(stanzas: Any) -> None:
    script = Script({"ssh_key": "", "pull_secret": PULL_SECRET})
    given_before = {key: ANSWERS[key] for key in ("platform", "base_domain", "cluster_name")}

    interview = survey.Interview({**given_before, "worker_replicas": "2"}, script)

    answers, _ = survey.hold(survey.questions(stanzas), interview)

    assert script.asked == ["ssh_key", "pull_secret"]
    assert answers == {**ANSWERS, "ssh_key": "", "worker_replicas": "2"}


def test_wrong_answers_given_beforehand_stop_the_survey_before_anything_is_asked(stanzas: Any) -> None:
    script = Script(ANSWERS)

    interview = survey.Interview({"cluster_name": "Demo", "worker_replicas": "many"}, script)

    found = told(lambda: survey.hold(survey.questions(stanzas), interview))

    assert [field for field, _ in found] == ["cluster_name", "worker_replicas"]
    assert script.asked == []


def test_a_person_is_told_what_is_wrong_with_an_answer_given_beforehand_and_asked() -> None:
    # Given a berth that was answered beforehand, wrongly, and a person
    script, warnings = Script({"dock_berth": "7"}), list[str]()
    interview = survey.Interview({"dock_berth": "the best"}, script, warn=warnings.append)

    # When the question comes up
    answer = interview.ask(BERTH)

    # Then the person heard of it and had the last word, once
    assert (answer, script.asked, warnings) == ("7", ["dock_berth"], ["must be a number"])
    assert "dock_berth" not in interview.given


def test_an_answer_that_turns_out_wrong_is_asked_for_again_or_ends_a_run_with_nobody_to_ask() -> None:
    warnings = list[str]()
    attended = survey.Interview({"dock_berth": "7"}, Script({"dock_berth": "8"}), warn=warnings.append)
    alone = survey.Interview({"dock_berth": "7"})

    attended.refuse("dock_berth", "the berth is taken", "choose another")

    assert attended.ask(BERTH) == "8"
    assert warnings == ["the berth is taken; choose another"]
    assert told(lambda: alone.refuse("dock_berth", "the berth is taken")) == [("dock_berth", "the berth is taken")]


def test_an_optional_question_is_answered_beforehand_or_not_at_all() -> None:
    question = survey.Question(
        "dock_flag", "Flag", check=lambda typed: "is no flag" if typed == "x" else None, optional=True
    )
    script = Script({})

    assert survey.Interview({}, script).ask(question) == ""
    assert survey.Interview({"dock_flag": "red"}, script).ask(question) == "red"
    assert told(lambda: survey.Interview({"dock_flag": "x"}, script).ask(question)) == [("dock_flag", "is no flag")]
    assert script.asked == []


def test_a_missing_answer_says_every_way_to_give_it_and_what_there_is() -> None:
    choices = (survey.Choice("East", "e"), survey.Choice("West", "w"))

    found = survey.not_answered(survey.Question("dock_side", "Side", "select", choices, flag=False))

    assert found.remedy == "give MOORAGE_DOCK_SIDE or dock_side: in the answers file; there are East, West"


def test_what_a_survey_leaves_to_do_is_nothing_unless_it_says_so() -> None:
    assert tuple(survey.Settled().finish()) == ()


@pytest.mark.parametrize(
    ("key", "good", "bad"),
    [
        ("platform", "none", "nome"),
        ("base_domain", "example.com", "exa mple"),
        ("cluster_name", "demo", "a" * 55),
        ("pull_secret", PULL_SECRET, "{}"),
        ("ssh_key", "", "ssh-rsa nonsense!"),
        ("control_plane_replicas", "3", "2"),
        ("worker_replicas", "0", "-1"),
        ("machine_network", "192.168.7.0/24", "192.168.7.1/24"),
    ],
)
def test_answers_are_checked_by_the_rules_of_the_file(stanzas: Any, key: str, good: str, bad: str) -> None:
    question = by_key(stanzas, key)

    assert question.check(good) is None
    assert question.check(bad)


def test_a_refused_answer_says_what_was_meant(stanzas: Any) -> None:
    assert by_key(stanzas, "cluster_name").check("My_Cluster") == (
        "'My_Cluster' is not a DNS name: it has upper-case letters; did you mean my-cluster?"
    )


def test_flags_come_before_the_environment_and_that_before_the_file(stanzas: Any, tmp_path: pathlib.Path) -> None:
    file = tmp_path / "answers.yaml"
    file.write_text("platform: none\nbase_domain: file.com\ncluster_name: file\nworker_replicas: 2\n")

    answers = survey.gather(
        keys(stanzas),
        flags={"cluster_name": "flag", "base_domain": None},
        environ={"MOORAGE_CLUSTER_NAME": "env", "MOORAGE_BASE_DOMAIN": "env.com", "OTHER": "x"},
        answers_file=file,
    )

    assert answers == {"cluster_name": "flag", "base_domain": "env.com", "platform": "none", "worker_replicas": "2"}


def test_an_answer_may_be_read_from_a_file(stanzas: Any, tmp_path: pathlib.Path) -> None:
    secret = tmp_path / "pull-secret.json"
    secret.write_text(PULL_SECRET + "\n")

    answers = survey.gather(keys(stanzas), flags={"pull_secret": f"@{secret}"}, environ={})

    assert answers == {"pull_secret": PULL_SECRET}


def test_a_file_that_is_not_there_is_an_error(stanzas: Any, tmp_path: pathlib.Path) -> None:
    with pytest.raises(errors.ConfigError, match=r"secret cannot be read"):
        survey.gather(keys(stanzas), flags={"pull_secret": f"@{tmp_path}/secret"}, environ={})


@pytest.mark.parametrize(
    ("text", "field", "line"),
    [
        ("platform: none\nbase_domian: a.com\n", "base_domian", 2),
        ("cluster_name: on\n", "cluster_name", 1),
        ("worker_replicas: 03\n", "worker_replicas", 1),
        ("cluster_name: [a]\n", "cluster_name", 1),
        ("a: 'x\n", "", 1),
    ],
)
def test_an_answers_file_with_mistakes(stanzas: Any, tmp_path: pathlib.Path, text: str, field: str, line: int) -> None:
    file = tmp_path / "answers.yaml"
    file.write_text(text)

    with pytest.raises(findings.Invalid) as caught:
        survey.gather(keys(stanzas), flags={}, environ={}, answers_file=file)

    assert [(finding.field, finding.line) for finding in caught.value.findings] == [(field, line)]


def test_with_nobody_to_ask_all_that_is_missing_is_named_at_once(stanzas: Any) -> None:
    known = survey.questions(stanzas)
    interview = survey.Interview({"platform": "dock", "cluster_name": "Demo"})

    with pytest.raises(findings.Invalid) as caught:
        survey.hold(known, interview, dock_survey)

    # Then wrong answers, missing ones and the platform's own are in one list
    assert survey.unanswered(known, {}) == ["platform", "base_domain", "cluster_name", "pull_secret"]
    found = {finding.field: finding.remedy for finding in caught.value.findings}
    assert list(found) == ["cluster_name", "base_domain", "pull_secret", "dock_berth"]
    assert found["base_domain"] == "give --base-domain, MOORAGE_BASE_DOMAIN or base_domain: in the answers file"
    assert found["dock_berth"].startswith("give --dock-berth")


def test_a_platform_that_does_not_exist_is_not_asked_what_it_misses(stanzas: Any) -> None:
    interview = survey.Interview({**ANSWERS, "platform": "dokc"})

    assert [field for field, _ in told(lambda: survey.hold(survey.questions(stanzas), interview, dock_survey))] == [
        "platform"
    ]


def test_with_all_answered_defaults_are_filled_in(stanzas: Any) -> None:
    answers, settled = survey.hold(survey.questions(stanzas), survey.Interview(ANSWERS))

    assert answers == {**ANSWERS, "ssh_key": ""}
    assert settled.machine_network is None


def test_keys_of_the_home_directory_are_offered(tmp_path: pathlib.Path, ssh_keys: dict[str, str]) -> None:
    (tmp_path / "id_rsa.pub").write_text(ssh_keys["rsa"] + "\n")
    (tmp_path / "broken.pub").write_text("nonsense\n")
    (tmp_path / "binary.pub").write_bytes(b"\xff\xfe")
    (tmp_path / "id_rsa").write_text(ssh_keys["private"])

    choices = survey.ssh_key_choices(tmp_path)

    assert choices == (survey.Choice(str(tmp_path / "id_rsa.pub"), ssh_keys["rsa"]),)
    assert survey.ssh_key_choices(tmp_path / "missing") == ()


def test_the_file_has_a_comment_for_every_field_and_parses(stanzas: Any, ssh_keys: dict[str, str]) -> None:
    keys = ssh_keys["rsa"] + "\n" + ssh_keys["ecdsa"]

    text = survey.yaml_text(survey.build({**ANSWERS, "ssh_key": keys}))
    config, warnings = load.parse(text, stanzas)

    assert warnings == []
    assert (config.name, config.base_domain, config.ssh_key) == ("demo", "example.com", keys + "\n")
    lines = text.splitlines()
    fields = [number for number, line in enumerate(lines) if line and line[0].isalpha()]
    assert len(fields) == 9
    assert all(lines[number - 1].startswith("# ") for number in fields)


def test_the_platforms_settings_and_network_go_into_the_file(stanzas: Any, ssh_keys: dict[str, str]) -> None:
    answers = {**ANSWERS, "platform": "dock", "ssh_key": ssh_keys["rsa"]}

    data = survey.build(answers, {"password": "0123"}, machine_network="192.168.0.0/24")
    config, _ = load.parse(survey.yaml_text(data), stanzas)

    assert config.platform.settings.plain()["password"] == "0123"
    assert config.networking.machine_network[0].cidr == "192.168.0.0/24"


def test_one_control_plane_machine_means_a_single_node_unless_workers_are_asked_for(stanzas: Any) -> None:
    single = survey.build({**ANSWERS, "control_plane_replicas": "1"})
    more = survey.build({**ANSWERS, "control_plane_replicas": "1", "worker_replicas": "2"})

    assert load.parse(survey.yaml_text(single), stanzas)[0].is_single_node
    assert load.parse(survey.yaml_text(more), stanzas)[0].worker_replicas == 2


label = st.from_regex(r"[a-z0-9]([a-z0-9-]{0,8}[a-z0-9])?", fullmatch=True)
users = st.text(st.characters(codec="utf-8", exclude_characters=":"), min_size=1)
secrets = st.tuples(st.text(), users, st.text(min_size=1)).map(
    lambda parts: json.dumps(
        {"auths": {parts[0]: {"auth": base64.b64encode(f"{parts[1]}:{parts[2]}".encode()).decode()}}},
        ensure_ascii=False,
    )
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.filter_too_much])
@given(
    st.fixed_dictionaries(
        {
            "platform": st.just("none"),
            "cluster_name": label,
            "base_domain": st.lists(label, min_size=1, max_size=4).map(".".join),
            "pull_secret": secrets.filter(lambda text: text.isprintable()),
        },
        optional={
            "control_plane_replicas": st.sampled_from(["1", "3", "4", "5"]),
            "worker_replicas": st.integers(0, 400).map(str),
        },
    )
)
def test_accepted_answers_always_become_a_file_that_parses(stanzas: Any, answers: dict[str, str]) -> None:
    known = survey.questions(stanzas)
    assert survey.faults(known, answers) == []

    config, _ = load.parse(survey.yaml_text(survey.build(answers)), stanzas)

    assert config.name == answers["cluster_name"]
    assert config.base_domain == answers["base_domain"]
    assert config.pull_secret.get_secret_value() == answers["pull_secret"]


def test_a_person_at_a_terminal_is_held_to_the_rules_while_typing(stanzas: Any) -> None:
    # Given a terminal at which a bad name is typed, entered, cleared, and a good one entered
    clear = "\x15"
    with terminal_input.create_pipe_input() as keyboard:
        keyboard.send_text(f"Bad_Name\r{clear}good-name\r")
        asker = survey.questionary_asker(input=keyboard, output=terminal_output.DummyOutput())

        # When the question is asked
        answer = asker.ask(by_key(stanzas, "cluster_name"))

    # Then the bad one was not let through
    assert answer == "good-name"


def test_a_person_chooses_with_the_arrow_keys(stanzas: Any) -> None:
    down = "\x1b[B"
    with terminal_input.create_pipe_input() as keyboard:
        keyboard.send_text(f"{down}\r")
        asker = survey.questionary_asker(input=keyboard, output=terminal_output.DummyOutput())

        answer = asker.ask(by_key(stanzas, "platform"))

    assert answer == "none"


def test_a_person_pastes_the_pull_secret(stanzas: Any) -> None:
    with terminal_input.create_pipe_input() as keyboard:
        keyboard.send_text(f"{PULL_SECRET}\r")
        asker = survey.questionary_asker(input=keyboard, output=terminal_output.DummyOutput())

        answer = asker.ask(by_key(stanzas, "pull_secret"))

    assert answer == PULL_SECRET


def test_a_person_names_a_path(tmp_path: pathlib.Path) -> None:
    with terminal_input.create_pipe_input() as keyboard:
        keyboard.send_text(f"{tmp_path}\r")
        asker = survey.questionary_asker(input=keyboard, output=terminal_output.DummyOutput())

        answer = asker.ask(survey.Question("where", "Where", "path"))

    assert answer == str(tmp_path)
