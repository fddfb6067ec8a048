"""Signing in, in the survey for oVirt: which engine, whether to trust it, who asks, and files that are there."""

from __future__ import annotations

import collections
import socket
from pathlib import Path
from typing import Any

import pytest
import yaml

from moorage import errors
from moorage.config import survey
from moorage.engine import errors as failures
from moorage.lab import faults
from moorage.platforms import contract
from moorage.platforms.ovirt import credentials, survey_engine
from tests.unit.lab.ovirt import engine_world
from tests.unit.platforms_ovirt.survey_world import FIRST, LAST, THEN, Person, Run, fault

# The engine.


def test_an_engine_that_cannot_be_reached_is_asked_for_again(run: Run) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        nowhere = f"127.0.0.1:{unused.getsockname()[1]}"
        person = run.person(ovirt_engine=[nowhere, run.host])

        run.attended(person)

    assert person.asked == ["ovirt_engine", *FIRST, *THEN, *LAST]
    assert [f"no engine can be reached at {nowhere}" in line for line in run.warned] == [True]


def test_an_engine_that_cannot_be_reached_ends_a_run_with_nobody_to_ask(run: Run) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        with pytest.raises(failures.Transient, match="no engine can be reached") as caught:
            run.alone(run.answers(ovirt_engine=f"127.0.0.1:{unused.getsockname()[1]}"))

    assert caught.value.exit_code == errors.INFRASTRUCTURE
    assert caught.value.remedy
    assert run.nothing_left()


@pytest.mark.parametrize(
    ("status", "body", "kind", "words"),
    [
        (404, "", failures.Terminal, "answers, but not as an oVirt engine: HTTP 404"),
        (503, "<html>starting</html>", failures.Transient, "is not ready: HTTP 503"),
        (200, "<html>a printer</html>", failures.Terminal, "it has no CA certificate to give"),
    ],
)
def test_something_else_than_an_engine(run: Run, status: int, body: str, kind: Any, words: str) -> None:
    fault(run, action=faults.FAIL, path="/ovirt-engine/services/**", status=status, body=body)

    with pytest.raises(kind, match=words):
        run.alone(run.answers())

    assert run.nothing_left()


@pytest.mark.parametrize(
    ("typed", "host"),
    [
        ("engine.example.com", "engine.example.com"),
        (" Engine.Example.com:443 ", "engine.example.com"),
        ("engine:8443", "engine:8443"),
        ("10.0.0.9", "10.0.0.9"),
        ("[fd00::9]:8443", "[fd00::9]:8443"),
        ("[fd00::9]", "[fd00::9]"),
        ("https://engine.example.com", "engine.example.com"),
        ("https://engine.example.com:8443/ovirt-engine/api/", "engine.example.com:8443"),
        ("https://engine.example.com/ovirt-engine/webadmin/?locale=en_US#vms", "engine.example.com"),
    ],
)
def test_an_engine_is_named_in_many_ways(typed: str, host: str) -> None:
    assert survey_engine.host_of(typed) == host


@pytest.mark.parametrize(
    ("typed", "words"),
    [
        ("", "give a host name"),
        ("an engine", "give a host name"),
        ("engine:0", "give a host name"),
        ("engine:99999", "give a host name"),
        ("engine:port", "give a host name"),
        ("http://engine", "by https only"),
        ("https://admin:pw@engine", "asked for later"),
        ("https://engine/console", "/console is not where"),
    ],
)
def test_what_is_no_engine_is_refused_while_it_is_typed(typed: str, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        survey_engine.host_of(typed)


# Trust.


def test_the_certificate_is_shown_before_it_is_trusted(run: Run) -> None:
    run.attended(run.person())

    [shown] = [line for line in run.said if "CA certificate" in line]
    assert run.fingerprint in shown
    assert "subject CN=" in shown
    assert "valid from 20" in shown


def test_an_engine_that_the_computer_trusts_anyway_is_not_asked_about(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(run.running.ca_file))
    person = run.person()

    run.attended(person).finish()

    assert person.asked == [*(key for key in FIRST if key != "trust"), *THEN, *LAST]
    assert credentials.read(run.around.environ).ca_bundle == ""


def test_a_certificate_that_is_not_trusted_gives_way_to_a_file(run: Run) -> None:
    person = run.person(trust="no", ovirt_ca_file=[str(run.home / "missing.pem"), str(run.running.ca_file)])

    settled = run.attended(person)

    assert person.asked[:3] == ["ovirt_engine", "trust", "ovirt_ca_file"]
    assert [problem.startswith(f"{run.home}/missing.pem cannot be read") for problem in person.refused] == [True]
    assert settled.settings["ovirt_network_name"] == "ovirtmgmt"


def test_a_file_with_the_wrong_certificate_keeps_the_password_from_being_sent(run: Run, tmp_path: Path) -> None:
    # Given an engine, and a file with the certificate of another
    with engine_world.started(tmp_path) as other:
        wrong = tmp_path / "other.pem"
        wrong.write_text(other.engine.ca_pem)

        # When it is given in place of the right one
        with pytest.raises(failures.PlatformFailure) as caught:
            run.alone(run.answers(ovirt_ca_fingerprint=None, ovirt_ca_file=str(wrong)))

    # Then nobody signed in, and the reason is the certificate
    assert "certificate" in caught.value.told()
    assert not any("-> 200" in line for line in run.traced)
    assert run.nothing_left()


@pytest.mark.parametrize("spelled", ["{0}", "sha256:{0}", "SHA256 {1}", "{2}"])
def test_a_fingerprint_may_be_written_as_other_tools_do(run: Run, spelled: str) -> None:
    bare = run.fingerprint.replace(":", "")

    settled = run.alone(run.answers(ovirt_ca_fingerprint=spelled.format(run.fingerprint, bare, bare.lower())))

    assert settled.settings


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"ovirt_ca_fingerprint": "AB:" * 31 + "AB"}, "has another SHA-256 fingerprint: "),
        ({"ovirt_ca_fingerprint": "AB:CD"}, "is not a SHA-256 fingerprint"),
        ({"ovirt_ca_fingerprint": None}, "nobody vouches for the engine's CA certificate: subject CN="),
    ],
)
def test_with_nobody_to_look_at_it_trust_needs_a_fingerprint(
    run: Run, given: dict[str, str | None], words: str
) -> None:
    [(field, message)] = run.refused(run.answers(**given))

    assert field == "ovirt_ca_fingerprint"
    assert words in message
    assert run.nothing_left()


# The password.


def test_a_wrong_password_is_asked_for_again(run: Run) -> None:
    person = run.person(ovirt_password=["wrong", "wronger", run.password])

    run.attended(person)

    assert collections.Counter(person.asked)["ovirt_password"] == 3
    assert collections.Counter(person.asked)["ovirt_engine"] == 1
    assert len(run.warned) == 2


def test_three_wrong_passwords_are_enough(run: Run) -> None:
    person = run.person(ovirt_password=["wrong", "wronger", "wrongest", run.password])

    with pytest.raises(errors.ConfigError, match="refused 3 passwords of admin@internal") as caught:
        run.attended(person)

    assert caught.value.exit_code == errors.INSTALL_CONFIG
    assert person.answers["ovirt_password"] == [run.password]
    assert run.nothing_left()


def test_a_wrong_password_with_nobody_to_ask_is_a_wrong_answer(run: Run) -> None:
    [(field, _)] = run.refused(run.answers(ovirt_password="wrong"))

    assert field == "ovirt_password"
    assert run.nothing_left()


@pytest.mark.parametrize("typed", ["admin", "@internal", "admin@"])
def test_a_user_without_a_profile_is_refused_while_it_is_typed(run: Run, typed: str) -> None:
    person = run.person(ovirt_username=[typed, "admin@internal"])

    run.attended(person)

    assert person.refused == ["has no profile; write it as admin@internal"]


# A file that is there already.


def kept(run: Run, mode: int = 0o600, **other: str) -> bytes:
    run.file.parent.mkdir(mode=0o700)
    run.file.write_text(yaml.safe_dump({**run.running.served.config(), **other}))
    run.file.chmod(mode)
    return run.file.read_bytes()


def test_credentials_that_are_there_are_offered_and_used(run: Run) -> None:
    before = kept(run)
    person = run.person(ovirt_config="use")

    said = run.attended(person).finish()

    assert person.asked == ["ovirt_config", *THEN, *LAST]
    assert f"{run.file}: admin@internal at {run.host}" in person.shown["ovirt_config"].choices[0].title
    assert (said, run.file.read_bytes()) == ((), before)
    assert any(f"with the credentials of {run.file}" in line for line in run.said)


def test_credentials_that_are_there_answer_for_a_run_with_nobody_to_ask(run: Run) -> None:
    before = kept(run)

    settled = run.alone(run.answers(ovirt_engine=None, ovirt_password=None, ovirt_ca_fingerprint=None))

    assert settled.finish() == ()
    assert run.file.read_bytes() == before


def test_a_file_named_by_the_environment_counts(run: Run) -> None:
    kept(run)
    elsewhere = run.home / "elsewhere.yaml"
    run.file.rename(elsewhere)
    run.around = contract.Surroundings({"HOME": str(run.home), "OVIRT_CONFIG": str(elsewhere)}, run.around.clock, print)

    assert run.alone(run.answers(ovirt_engine=None, ovirt_password=None, ovirt_ca_fingerprint=None)).settings


def test_a_person_may_replace_the_file_and_it_stays_until_the_end(run: Run) -> None:
    before = kept(run, ovirt_password="old")

    settled = run.attended(run.person(ovirt_config="replace"))
    meanwhile = run.file.read_bytes()
    settled.finish()

    assert meanwhile == before
    assert credentials.read(run.around.environ).password.reveal() == run.password


def test_credentials_in_the_file_that_the_engine_refuses_lead_back_to_the_choice(run: Run) -> None:
    kept(run, ovirt_password="old")
    person = run.person(ovirt_config=["use", "replace"])

    run.attended(person)

    assert person.asked == ["ovirt_config", "ovirt_config", *FIRST, *THEN, *LAST]
    assert len(run.warned) == 1


def test_a_file_that_others_may_read_is_not_used_until_that_is_put_right(run: Run) -> None:
    kept(run, mode=0o644)

    class Careful(Person):
        def ask(self, question: survey.Question) -> str:
            if question.key == "ovirt_config" and self.asked.count("ovirt_config") == 1:
                run.file.chmod(0o600)
            return super().ask(question)

    person = Careful(**{**run.person().answers, "ovirt_config": ["use", "use"]})

    run.attended(person)

    assert person.asked == ["ovirt_config", "ovirt_config", *THEN, *LAST]
    assert [f"chmod 600 {run.file}" in line for line in run.warned] == [True, True]


def test_a_file_that_others_may_read_ends_a_run_with_nobody_to_ask(run: Run) -> None:
    kept(run, mode=0o644)

    with pytest.raises(errors.ConfigError, match="can be read by others"):
        run.alone(run.answers(ovirt_engine=None, ovirt_password=None))


def test_a_file_and_other_credentials_need_a_decision(run: Run) -> None:
    before = kept(run, ovirt_password="old")

    assert run.refused(run.answers()) == [
        ("ovirt_config", f"{run.file} holds credentials already, and others are given")
    ]
    assert run.file.read_bytes() == before
    run.alone(run.answers(ovirt_config="replace")).finish()
    assert credentials.read(run.around.environ).password.reveal() == run.password
