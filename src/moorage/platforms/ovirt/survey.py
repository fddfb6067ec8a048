"""The questions of platform `ovirt`: the engine first, then what it has, then addresses for the cluster.

Every answer is checked against the engine before the next question, and what can be chosen is listed by it. A person
is told what is wrong and asked again; where nobody can be asked, the same questions are answered beforehand and the
first that does not hold ends the survey. The password stays in memory until `Settled.finish`, when all else is sound.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final, TypeVar

import pydantic

from moorage import errors
from moorage.config import defaults, findings, model, network_rules, survey, text, vip_rules
from moorage.config.survey import Choice, Question
from moorage.engine import errors as failures
from moorage.platforms import contract
from moorage.platforms.ovirt import config, credentials, survey_engine, survey_sign_in

T = TypeVar("T")
Thing = TypeVar("Thing", bound=survey_engine.Thing)

CLUSTER: Final = "ovirt_cluster"
STORAGE: Final = "ovirt_storage_domain"
NETWORK: Final = "ovirt_network"
PROFILE: Final = "ovirt_vnic_profile"
TEMPLATE: Final = "ovirt_template"
IMAGE: Final = "ovirt_network_image"
API, INGRESS, DNS = "api_vip", "ingress_vip", "dns_vip"

KEYS: Final = (*survey_sign_in.KEYS, CLUSTER, STORAGE, NETWORK, PROFILE, TEMPLATE, IMAGE, API, INGRESS, DNS)

_AGAIN, _STOP = "again", "stop"
_UPLOAD: Final = "upload"


def missing(interview: survey.Interview, around: contract.Surroundings) -> Iterator[findings.Finding]:
    """What cannot be learned from the engine and has no default."""
    yield from survey_sign_in.missing(interview, around)
    for key, what in ((API, "API"), (INGRESS, "ingress")):
        if key not in interview.given:
            yield survey.not_answered(_question(key, f"{what} VIP"))


def ask(interview: survey.Interview, around: contract.Surroundings) -> survey.Settled:
    """Ask for everything; nothing is written before `Settled.finish`."""
    who, engine, replace = survey_sign_in.signed_in(interview, around)
    with engine:
        settings = _place(interview, engine)
    network = interview.ask(
        dataclasses.replace(
            survey.MACHINE_NETWORK, default=defaults.MACHINE_NETWORK, check=_network_check, optional=False
        )
    ).strip()
    settings |= _addresses(interview, network)
    image = interview.ask(_question(IMAGE, "Network image", optional=True)).strip()
    if image:
        settings["networkImage"] = image

    def finish() -> Sequence[str]:
        if who.path is not None:
            return ()
        path = credentials.location(around.environ)
        try:
            wrote = credentials.write(path, who, replace=replace)
        except OSError as problem:
            raise errors.StoreError(
                f"{path} cannot be written: {problem.strerror}",
                remedy=f"name another file in {credentials.ENVIRONMENT}",
            ) from None
        return (f"wrote {path}: the engine's credentials, for you alone to read",) if wrote else ()

    return survey.Settled(settings, network, finish)


# What the engine has.


def _place(interview: survey.Interview, engine: survey_engine.Engine) -> dict[str, Any]:
    place, domains, networks = _stocked(interview, engine)
    domain = _choose(interview, STORAGE, "Storage domain", lambda: domains, f"data domains of {place.name}")
    network = _choose(interview, NETWORK, "Network", lambda: networks, f"networks of {place.name}", first=True)
    profile = _profile(interview, engine, network)
    settings = {
        "ovirt_cluster_id": place.id,
        "ovirt_storage_domain_id": domain.id,
        "ovirt_network_name": network.name,
        "vnicProfileID": profile.id,
    }
    template = _template(interview, engine, place)
    return {**settings, "template": template} if template else settings


def _stocked(
    interview: survey.Interview, engine: survey_engine.Engine
) -> tuple[survey_engine.Place, list[survey_engine.Thing], list[survey_engine.Thing]]:
    """A cluster that has storage and networks, and these."""
    while True:
        place = _choose(interview, CLUSTER, "Cluster", engine.clusters, "clusters that this user may see")
        domains, networks = _live(interview, functools.partial(_stock, engine, place))
        if domains and networks:
            return place, domains, networks
        lacks = "active data domain" if not domains else "network for machines"
        interview.refuse(CLUSTER, f"{place.name} has no {lacks} that this user may see", "choose another cluster")


def _stock(
    engine: survey_engine.Engine, place: survey_engine.Place
) -> tuple[list[survey_engine.Thing], list[survey_engine.Thing]]:
    return engine.storage_domains(place), engine.networks(place)


def _profile(
    interview: survey.Interview, engine: survey_engine.Engine, network: survey_engine.Thing
) -> survey_engine.Thing:
    found = _live(interview, lambda: engine.profiles(network))
    if len(found) == 1 and PROFILE not in interview.given:
        return found[0]
    return _choose(interview, PROFILE, "vNIC profile", lambda: found, f"vNIC profiles of {network.name}")


def _template(interview: survey.Interview, engine: survey_engine.Engine, place: survey_engine.Place) -> str:
    """The user's own template: its name, or its id where names are not enough; empty for an upload."""
    found = _live(interview, lambda: engine.templates(place))
    upload = survey_engine.Thing("", _UPLOAD, "the release's boot image, into a template of the cluster's own")
    chosen = _choose(
        interview, TEMPLATE, "Template", lambda: [upload, *found], f"templates of {place.name}", first=True
    )
    if not chosen.id:
        return ""
    return chosen.name if [each.name for each in found].count(chosen.name) == 1 else chosen.id


def _choose(
    interview: survey.Interview,
    key: str,
    prompt: str,
    listed: Callable[[], Sequence[Thing]],
    what: str,
    *,
    first: bool = False,
) -> Thing:
    """One of the things the engine lists. Beforehand, its name or its id; ``first`` is the default then."""
    things = _live(interview, listed)
    if not things:
        raise failures.Terminal(
            f"the engine lists no {what}", remedy="have an administrator give the user a role there, or use another"
        )

    def meant(answer: str) -> list[Thing]:
        same_id = [thing for thing in things if answer == thing.id]
        return same_id or [thing for thing in things if answer.strip() == thing.name]

    def check(answer: str) -> str | None:
        names = [thing.name for thing in things]
        found = meant(answer)
        if len(found) > 1:
            return f"there are {len(found)} {what} called {answer}; give the id: {text.one_of(t.id for t in found)}"
        hint = text.suggestion(answer, names) or f"there are {', '.join(names)}"
        return None if found else f"{answer!r} is none of the {what}; {hint}"

    default = things[0].id or things[0].name if first or len(things) == 1 else None
    choices = tuple(Choice(thing.title, thing.id or thing.name) for thing in things)
    return meant(interview.ask(Question(key, prompt, "select", choices, default, check, flag=False)))[0]


def _live(interview: survey.Interview, use: Callable[[], T]) -> T:
    """What the engine says; if it does not, a person may have it asked again."""
    while True:
        try:
            return use()
        except failures.PlatformFailure as problem:
            if not interview.attended:
                raise
            interview.warn(survey_sign_in.words(problem))
            choices = (Choice("ask the engine again", _AGAIN), Choice("stop here; nothing has been written", _STOP))
            if interview.ask(Question("retry", "The engine did not answer", "select", choices)) == _STOP:
                raise


# Addresses.


def _addresses(interview: survey.Interview, network: str) -> dict[str, Any]:
    taken: dict[str, Sequence[str]] = {}
    found: dict[str, Any] = {}
    for key, field, what, optional in (
        (API, "api_vips", "API VIP (a free address)", False),
        (INGRESS, "ingress_vips", "Ingress VIP (another free address)", False),
        (DNS, "dns_vips", "DNS VIP", True),
    ):
        vip = interview.ask(
            Question(key, what, check=_vip_check(key, network, dict(taken)), optional=optional, flag=False)
        ).strip()
        if vip:
            found[field] = [vip]
            taken[key] = [vip]
    return found


def _network_check(typed: str) -> str | None:
    """The rules that the file is held to in the end, as long as the person can still choose another range."""
    if (problem := survey.MACHINE_NETWORK.check(typed)) is not None:
        return problem
    sketch = _sketch(typed.strip())
    rules = (network_rules.overlaps, network_rules.reserved, network_rules.families)
    return _first_error(finding for rule in rules for finding in rule(sketch, config.STANZA))


def _vip_check(key: str, network: str, taken: dict[str, Sequence[str]]) -> Callable[[str], str | None]:
    """The file's own rule, for the network that this user's machines are on."""
    sketch = _sketch(network)

    def check(typed: str) -> str | None:
        given = [typed.strip()] if typed.strip() else []
        return _first_error(vip_rules.vip_findings(key, given, sketch, unlike=taken))

    return check


def _sketch(network: str) -> model.InstallConfig:
    """The config to be, as far as rules of addresses look at it."""
    return model.InstallConfig(
        metadata=model.Metadata(name="sketch"),
        base_domain="invalid",
        platform=model.ChosenPlatform(name=config.STANZA.name, settings=model.Section()),
        pull_secret=pydantic.SecretStr("{}"),
        networking=model.Networking(machine_network=(model.MachineNetwork(cidr=network),)),
    )


def _first_error(found: Iterable[findings.Finding]) -> str | None:
    for problem in found:
        if problem.severity == "error":
            return f"{problem.message}; {problem.remedy}" if problem.remedy else problem.message
    return None


# Questions and small checks.


def _question(key: str, prompt: str, *, optional: bool = False) -> Question:
    return Question(key, prompt, optional=optional, flag=False)
