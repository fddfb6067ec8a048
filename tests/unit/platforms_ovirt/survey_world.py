"""A person who answers the survey for oVirt, a home to answer from, and an engine that is asked; for several tests."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from moorage.config import findings, survey
from moorage.lab import faults
from moorage.platforms import contract
from moorage.platforms.ovirt import survey as ovirt_survey
from moorage.platforms.ovirt import survey_engine
from tests.unit.lab.ovirt import engine_world

FIRST = ["ovirt_engine", "trust", "ovirt_username", "ovirt_password"]
THEN = ["ovirt_cluster", "ovirt_storage_domain", "ovirt_network", "ovirt_template"]
LAST = ["machine_network", "api_vip", "ingress_vip"]


class Person:
    """Answers by key, one after the other, as a terminal would let them: what a check refuses is typed over."""

    def __init__(self, **answers: str | list[str]) -> None:
        self.answers = {key: [given] if isinstance(given, str) else list(given) for key, given in answers.items()}
        self.asked: list[str] = []
        self.refused: list[str] = []
        self.shown: dict[str, survey.Question] = {}

    def ask(self, question: survey.Question) -> str:
        self.asked.append(question.key)
        self.shown[question.key] = question
        while True:
            answer = self.answers[question.key].pop(0)
            if question.kind == "select":
                titles = {choice.title.split(" (")[0]: choice.value for choice in question.choices}
                return titles.get(answer) or next(c.value for c in question.choices if c.value == answer)
            problem = question.check(answer)
            if problem is None:
                return answer
            self.refused.append(problem)


class Run:
    """A survey at a computer of its own: a home, and what was said."""

    def __init__(self, running: engine_world.Running, home: Path) -> None:
        self.running = running
        self.home = home
        self.traced: list[str] = []
        self.said: list[str] = []
        self.warned: list[str] = []
        self.around = contract.Surroundings({"HOME": str(home)}, running.clock, self.traced.append)

    @property
    def file(self) -> Path:
        return self.home / ".ovirt" / "ovirt-config.yaml"

    @property
    def host(self) -> str:
        return self.running.served.fqdn

    @property
    def password(self) -> str:
        return self.running.served.password()

    @property
    def fingerprint(self) -> str:
        return survey_engine.authority_in(self.running.engine.ca_pem).fingerprint

    def person(self, **more: str | list[str]) -> Person:
        answers: dict[str, str | list[str]] = {
            "ovirt_engine": self.host,
            "trust": "yes",
            "ovirt_username": "admin@internal",
            "ovirt_password": self.password,
            "ovirt_cluster": "Default",
            "ovirt_storage_domain": "data",
            "ovirt_network": "ovirtmgmt",
            "ovirt_template": "upload",
            "machine_network": "192.168.7.0/24",
            "api_vip": "192.168.7.2",
            "ingress_vip": "192.168.7.3",
        }
        return Person(**{**answers, **more})

    def answers(self, **more: str | None) -> dict[str, str]:
        given: dict[str, str | None] = {
            "ovirt_engine": self.host,
            "ovirt_ca_fingerprint": self.fingerprint,
            "ovirt_password": self.password,
            "ovirt_cluster": "Default",
            "ovirt_storage_domain": "data",
            "machine_network": "192.168.7.0/24",
            "api_vip": "192.168.7.2",
            "ingress_vip": "192.168.7.3",
            **more,
        }
        return {key: value for key, value in given.items() if value is not None}

    def attended(self, person: Person, given: Mapping[str, str] | None = None) -> survey.Settled:
        interview = survey.Interview(given or {}, person, self.said.append, self.warned.append)
        return ovirt_survey.ask(interview, self.around)

    def alone(self, given: Mapping[str, str]) -> survey.Settled:
        interview = survey.Interview(given, None, self.said.append, self.warned.append)
        missing = list(ovirt_survey.missing(interview, self.around))
        if missing:
            raise findings.Invalid("the answers", missing)
        return ovirt_survey.ask(interview, self.around)

    def refused(self, given: Mapping[str, str]) -> list[tuple[str, str]]:
        with pytest.raises(findings.Invalid) as caught:
            self.alone(given)
        return [(finding.field, finding.message) for finding in caught.value.findings]

    def found(self, kind: str, name: str) -> str:
        thing = self.running.tell(lambda: self.running.engine.inventory.named(kind, name))
        assert thing is not None
        return str(thing["id"])

    def sessions(self) -> int:
        return self.running.tell(self.running.engine.sessions.clear)

    def nothing_left(self) -> bool:
        return not self.file.exists() and list(self.home.rglob("*")) == [] and self.sessions() == 0


def fault(run: Run, **rule: Any) -> None:
    run.running.tell(lambda: run.running.site.faults.add(faults.Rule(service="ovirt", **rule)))


@contextlib.contextmanager
def changed(run: Run, kind: str, name: str, **fields: Any) -> Iterator[None]:
    """Something of the engine's, otherwise for a while."""
    thing = run.running.tell(lambda: run.running.engine.inventory.named(kind, name))
    before = dict(thing)
    run.running.tell(lambda: thing.update(fields))
    try:
        yield
    finally:
        run.running.tell(lambda: (thing.clear(), thing.update(before)))
