"""The first questions of platform `ovirt`: which engine, whether it is the right one, and who asks.

A credentials file that exists is offered, never replaced unasked. Otherwise the engine's CA certificate is shown for
trust, since everything after it, the password first, is told to whoever holds its key; then the password is tried.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from moorage import errors
from moorage.config import findings, survey, text
from moorage.config.survey import Choice, Question
from moorage.engine import errors as failures
from moorage.engine import secret
from moorage.platforms import contract
from moorage.platforms.ovirt import credentials, survey_engine

FILE: Final = "ovirt_config"
ENGINE: Final = "ovirt_engine"
CA_FILE: Final = "ovirt_ca_file"
CA_FINGERPRINT: Final = "ovirt_ca_fingerprint"
USERNAME: Final = "ovirt_username"
PASSWORD: Final = "ovirt_password"  # noqa: S105 - the name of the question
KEYS: Final = (FILE, ENGINE, CA_FILE, CA_FINGERPRINT, USERNAME, PASSWORD)

_TRIES: Final = 3
_USE, _REPLACE = "use", "replace"
_SIGN_IN: Final = (ENGINE, USERNAME, PASSWORD)


def missing(interview: survey.Interview, around: contract.Surroundings) -> Iterator[findings.Finding]:
    """What cannot be learned from the engine and has no default."""
    path = credentials.location(around.environ)
    answered = interview.given.get(FILE)
    anew = answered == _REPLACE or (answered is None and any(key in interview.given for key in _SIGN_IN))
    if path.exists() and anew and answered is None:
        yield findings.Finding(
            FILE,
            f"{path} holds credentials already, and others are given",
            remedy=f"answer {_USE} to keep to the file, {_REPLACE} to have it replaced",
        )
    if anew or not path.exists():
        for question in (_engine_question(), _password_question("")):
            if question.key not in interview.given:
                yield survey.not_answered(question)


def signed_in(
    interview: survey.Interview, around: contract.Surroundings
) -> tuple[credentials.Credentials, survey_engine.Engine, bool]:
    """Credentials that the engine accepts, its client, and whether the file there is may be replaced."""
    path = credentials.location(around.environ)
    while True:
        try:
            chosen = _by_file(interview, around, path) if path.exists() else _REPLACE
            if isinstance(chosen, credentials.Credentials):
                return chosen, _opened(interview, chosen, around), False
            who, engine = _by_answers(interview, around)
            return who, engine, path.exists()
        except failures.PlatformFailure as problem:
            if not interview.attended:
                raise
            for key in (FILE, *_SIGN_IN, CA_FILE, CA_FINGERPRINT):
                interview.given.pop(key, None)
            interview.warn(words(problem))


def _by_file(interview: survey.Interview, around: contract.Surroundings, path: Path) -> credentials.Credentials | str:
    """The credentials of the file there is, if they are to be used; else that it is to be replaced."""
    if not interview.attended:
        return _REPLACE if interview.given.get(FILE) == _REPLACE else credentials.read(around.environ)
    while True:
        found, problem = _read(around)
        if problem:
            interview.warn(problem)
        mine = f": {found.username} at {found.fqdn}" if found is not None else ", once you have put it right"
        choices = (Choice(f"those of {path}{mine}", _USE), Choice("others, which replace that file", _REPLACE))
        answer = interview.ask(
            Question(FILE, "Credentials of the engine", "select", choices, check=_one_of(*choices), flag=False)
        )
        if answer == _REPLACE:
            return _REPLACE
        interview.given.pop(FILE, None)
        # Once more: the person may have put it right meanwhile.
        found, _ = _read(around)
        if found is not None:
            return found


def _read(around: contract.Surroundings) -> tuple[credentials.Credentials | None, str]:
    try:
        return credentials.read(around.environ), ""
    except errors.ConfigError as problem:
        return None, f"{problem.message}; {problem.remedy}"


def _by_answers(
    interview: survey.Interview, around: contract.Surroundings
) -> tuple[credentials.Credentials, survey_engine.Engine]:
    host = survey_engine.host_of(interview.ask(_engine_question()))
    bundle = _trusted(interview, host, around.clock.socket_timeout(survey_engine.PATIENCE))
    username = interview.ask(Question(USERNAME, "User", default="admin@internal", check=_user, flag=False)).strip()
    for _ in range(_TRIES):
        password = interview.ask(_password_question(username))
        who = credentials.Credentials(credentials.engine_url(host), username, secret.Secret(password), bundle)
        try:
            return who, _opened(interview, who, around)
        except failures.Unusable:
            # No password would help.
            raise
        except failures.Unauthorized as problem:
            interview.refuse(PASSWORD, problem.told(), "" if interview.attended else f"correct it, or {USERNAME}")
    raise errors.ConfigError(
        f"the engine refused {_TRIES} passwords of {username}",
        remedy="see that the account is not locked, then run the command again",
    )


def _opened(
    interview: survey.Interview, who: credentials.Credentials, around: contract.Surroundings
) -> survey_engine.Engine:
    engine = survey_engine.Engine(who, around)
    try:
        version = engine.version()
    except BaseException:
        engine.__exit__(None, None, None)
        raise
    source = f", with the credentials of {who.path}" if who.path is not None else ""
    interview.say(f"signed in to the oVirt engine {version} at {who.fqdn} as {who.username}{source}")
    return engine


def _trusted(interview: survey.Interview, host: str, timeout: float) -> str:
    """The CA that the engine is held to, as PEM; empty if its certificate is one that everybody trusts."""
    if CA_FILE in interview.given:
        return _authority_file(interview).pem
    if CA_FINGERPRINT not in interview.given and survey_engine.known_to_system(host, timeout):
        return ""
    found = survey_engine.fetch_authority(host, timeout)
    if CA_FINGERPRINT in interview.given:
        wanted = interview.ask(Question(CA_FINGERPRINT, "Fingerprint", check=_fingerprint, flag=False))
        if found.bears(wanted):
            return found.pem
        interview.refuse(
            CA_FINGERPRINT,
            f"the engine's CA certificate has another SHA-256 fingerprint: {found.fingerprint}",
            "find out on the engine's host which is right: openssl x509 -noout -fingerprint -sha256 -in "
            "/etc/pki/ovirt-engine/ca.pem",
        )
    elif not interview.attended:
        raise findings.WrongAnswers(
            [
                findings.Finding(
                    CA_FINGERPRINT,
                    f"nobody vouches for the engine's CA certificate: {found.about()}",
                    remedy=f"if it is the right one, give {CA_FINGERPRINT}; else its PEM file as {CA_FILE}",
                )
            ],
        )
    interview.say(f"the engine's CA certificate: {found.about()}")
    trust, other = Choice("yes", "yes"), Choice("no: name a file that holds the right one", "no")
    # Not one of KEYS: to trust what nobody has looked at yet is no answer.
    answer = interview.ask(Question("trust", "Is this certificate to be trusted?", "select", (trust, other)))
    return found.pem if answer == "yes" else _authority_file(interview).pem


def _authority_file(interview: survey.Interview) -> survey_engine.Authority:
    def check(typed: str) -> str | None:
        return _problem(lambda: survey_engine.authority_at(Path(typed.strip())))

    named = interview.ask(Question(CA_FILE, "File with the CA certificate (PEM)", "path", check=check, flag=False))
    return survey_engine.authority_at(Path(named.strip()))


def _engine_question() -> Question:
    def check(typed: str) -> str | None:
        return _problem(lambda: survey_engine.host_of(typed))

    return Question(ENGINE, "Engine (host name, with :PORT if it is not 443)", check=check, flag=False)


def _password_question(username: str) -> Question:
    def check(typed: str) -> str | None:
        return None if typed else "is empty"

    return Question(PASSWORD, f"Password of {username}", "password", check=check, flag=False)


def _user(typed: str) -> str | None:
    name, at, profile = typed.strip().rpartition("@")
    return None if name and at and profile else "has no profile; write it as admin@internal"


def _fingerprint(typed: str) -> str | None:
    return None if survey_engine.looks_like_fingerprint(typed) else "is not a SHA-256 fingerprint (64 hex digits)"


def _one_of(*choices: Choice) -> Callable[[str], str | None]:
    known = [choice.value for choice in choices]
    return lambda typed: None if typed in known else f"must be {text.one_of(known)}"


def _problem(use: Callable[[], object]) -> str | None:
    try:
        use()
    except ValueError as problem:
        return str(problem)
    return None


def words(problem: failures.PlatformFailure) -> str:
    """What the engine's failure is, and what to do."""
    return f"{problem.told()}; {problem.remedy}" if problem.remedy else problem.told()
