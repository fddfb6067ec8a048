"""Plain data into models, with every complaint at once and a usable config even from a partly broken file.

pydantic stops being helpful after the first pass, so a broken field is reported, then replaced by its default (or a
stand-in) and the rest tried again. The result is a well-formed config plus the list of fields in it that are not the
user's: rules that read none of those can still run.
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import pydantic

from moorage.config import findings, model, problems, source, stanza, text

ELSEWHERE: Final = (
    "aws",
    "azure",
    "baremetal",
    "external",
    "gcp",
    "ibmcloud",
    "nutanix",
    "openstack",
    "vsphere",
)
"""Platforms that openshift-install itself still serves."""

UNCHOSEN: Final = stanza.Stanza(name="", title="", platform=model.Section, machine_pool=model.Section)
"""Stands in where the file names no platform that exists; rules that read the platform do not run then."""

_STAND_INS: Final[Mapping[str, Any]] = {
    "metadata": {"name": "cluster"},
    "baseDomain": "invalid",
    "pullSecret": "{}",
    "platform": model.ChosenPlatform(name="", settings=model.Section()),
}


@dataclasses.dataclass
class Shape:
    """A well-formed config; ``broken`` names the fields in it that stand in for malformed ones."""

    config: model.InstallConfig
    stanza: stanza.Stanza
    findings: list[findings.Finding]
    broken: list[str]


def choose(data: Mapping[str, Any], stanzas: Mapping[str, stanza.Stanza]) -> stanza.Stanza:
    """The stanza of the platform the file names, if it names just one that exists."""
    named = data.get("platform")
    if isinstance(named, dict) and len(named) == 1:
        return stanzas.get(next(iter(named)), UNCHOSEN)
    return UNCHOSEN


def build(whole: Mapping[str, Any], document: source.Document, stanzas: Mapping[str, stanza.Stanza]) -> Shape:
    """Validate ``whole``, the document's data with its defaults, against the models."""
    data = copy.deepcopy(dict(whole))
    chosen = choose(data, stanzas)
    found: list[findings.Finding] = []
    broken: list[str] = []
    for section_findings, location in (*_platform(data, chosen, stanzas, document), *_pools(data, chosen, document)):
        found.extend(section_findings)
        broken.append(_names(location))
    config, errors = _repaired(data, broken)
    found.extend(problems.describe(errors, model.InstallConfig, (), document))
    return Shape(config, chosen, found, broken)


def _platform(
    data: dict[str, Any],
    chosen: stanza.Stanza,
    stanzas: Mapping[str, stanza.Stanza],
    document: source.Document,
) -> Iterator[tuple[list[findings.Finding], source.Location]]:
    named = data.get("platform")
    if not isinstance(named, dict):
        return  # missing or not a mapping: the model says so
    if chosen is UNCHOSEN:
        data["platform"] = _STAND_INS["platform"]
        yield list(_no_platform(named, stanzas)), ("platform",)
        return
    location = ("platform", chosen.name)
    settings, found = _section(chosen.platform, named[chosen.name], location, document)
    data["platform"] = model.ChosenPlatform(name=chosen.name, settings=settings)
    if found:
        yield found, location


def _no_platform(named: dict[str, Any], stanzas: Mapping[str, stanza.Stanza]) -> Iterator[findings.Finding]:
    known = text.one_of(sorted(stanzas))
    if not named:
        yield findings.Finding("platform", "names no platform", remedy=f"name one: {known}")
    for name in named:
        field = f"platform.{name}"
        if name in ELSEWHERE:
            yield findings.Finding(
                field,
                f"{name} is a platform of openshift-install, not of moorage",
                remedy=f"use openshift-install for it; moorage installs on {known}",
            )
        elif name not in stanzas:
            guess = text.suggestion(name, stanzas)
            yield findings.Finding(field, f"there is no platform {name!r}", remedy=guess or f"use {known}")
    if len(named) > 1:
        yield findings.Finding(
            "platform", f"names {len(named)} platforms: {', '.join(named)}", remedy="keep the one the cluster goes to"
        )


def _pools(
    data: dict[str, Any], chosen: stanza.Stanza, document: source.Document
) -> Iterator[tuple[list[findings.Finding], source.Location]]:
    pools: list[tuple[source.Location, Any]] = [(("controlPlane",), data.get("controlPlane"))]
    if isinstance(data.get("compute"), list):
        pools += [(("compute", index), pool) for index, pool in enumerate(data["compute"])]
    for location, pool in pools:
        if isinstance(pool, dict) and "platform" in pool:
            named = pool.pop("platform")
            if chosen is not UNCHOSEN:
                yield from _pool_platform(pool, named, (*location, "platform"), chosen, document)


def _pool_platform(
    pool: dict[str, Any], named: Any, location: source.Location, chosen: stanza.Stanza, document: source.Document
) -> Iterator[tuple[list[findings.Finding], source.Location]]:
    if not isinstance(named, dict):
        field = source.path(location)
        remedy = f"write {chosen.name}: below it, and the settings below that"
        yield [findings.Finding(field, "must be a mapping of fields", remedy=remedy)], location
        return
    for name in named:
        if name != chosen.name:
            message = f"the machines go to {chosen.name!r}, the platform of the cluster"
            field = source.path((*location, name))
            yield [findings.Finding(field, message, remedy=f"rename it to {chosen.name}, or remove it")], location
    if chosen.name in named:
        here = (*location, chosen.name)
        settings, found = _section(chosen.machine_pool, named[chosen.name], here, document)
        pool["platform"] = settings
        if found:
            yield found, location


def _section(
    kind: type[model.Section], data: Any, location: source.Location, document: source.Document
) -> tuple[model.Section, list[findings.Finding]]:
    try:
        return kind.model_validate(data, by_alias=True, by_name=False), []
    except pydantic.ValidationError as error:
        return model.Section(), list(problems.describe(problems.errors_of(error), kind, location, document))


def _repaired(data: dict[str, Any], broken: list[str]) -> tuple[model.InstallConfig, list[problems.Error]]:
    first: list[problems.Error] | None = None
    while True:
        try:
            config = model.InstallConfig.model_validate(data, by_alias=True, by_name=False)
        except pydantic.ValidationError as failure:
            errors = problems.errors_of(failure)
        else:
            return config, first or []
        first = errors if first is None else first
        for error in errors:
            # A key nobody knows breaks no field that anybody reads.
            target = _remove(data, error["loc"], missing=error["type"] == "missing")
            if error["type"] != "extra_forbidden":
                broken.append(_names(target))


def _remove(data: dict[str, Any], location: Sequence[str | int], *, missing: bool) -> source.Location:
    """Take the broken value out, so that its default applies; where it is required, what holds it goes too."""
    path = list(location)
    if missing:
        if len(path) == 1:
            data[str(path[0])] = copy.deepcopy(_STAND_INS[str(path[0])])
            return tuple(path)
        path.pop()
    while path:
        while path and isinstance(path[-1], int):
            path.pop()
        holder: Any = data
        for part in path[:-1]:
            holder = holder[part] if source.holds(holder, part) else None
        if isinstance(holder, dict) and path[-1] in holder:
            del holder[path[-1]]
            break
        path.pop()
    return tuple(path)


def _names(location: Sequence[str | int]) -> str:
    return ".".join(part for part in location if isinstance(part, str))
