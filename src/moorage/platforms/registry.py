"""The platforms there are: one line each, and the only place outside their folders that names them.

A platform's modules are imported when they are asked for, so that its SDK costs nothing to those who use another.
Platforms of others plug in through ``MOORAGE_PLATFORMS="name=package[,name=package]"``: a package with the same files.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
from collections.abc import Mapping
from types import ModuleType
from typing import TYPE_CHECKING, Final, cast

from moorage import errors
from moorage.config import text

if TYPE_CHECKING:
    from moorage.assets import platform
    from moorage.config import stanza
    from moorage.platforms import contract

PLATFORMS: Final[Mapping[str, str]] = {
    "none": "moorage.platforms.none",
    "ovirt": "moorage.platforms.ovirt",
}

PLUGINS = "MOORAGE_PLATFORMS"


class NotOffered(errors.MoorageError):
    """The platform exists, and this cannot be done there by moorage."""


def packages(environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Every platform's package by the platform's name, those of others included; ours cannot be replaced."""
    found = dict(PLATFORMS)
    for entry in filter(None, (part.strip() for part in environ.get(PLUGINS, "").split(","))):
        name, equals, package = (part.strip() for part in entry.partition("="))
        if not (name and equals and package):
            raise errors.ConfigError(f"{PLUGINS}: {entry!r} is not name=package", remedy=f"correct or unset {PLUGINS}")
        if name in PLATFORMS:
            raise errors.ConfigError(f"{PLUGINS}: there is a platform {name!r} already", remedy="choose another name")
        found[name] = package
    return found


def stanzas() -> dict[str, stanza.Stanza]:
    """What every platform brings to the install-config, by its key there."""
    return {name: _load(name, package, "config").STANZA for name, package in packages().items()}


def survey(name: str) -> contract.Survey | None:
    """The platform's questions; None if it has nothing to ask."""
    return cast("contract.Survey", _load(name, _package(name), "survey")) if _has(name, "survey") else None


def makes_machines(name: str) -> bool:
    """Whether moorage makes the platform's machines, or its user does."""
    return _has(name, "infra")


def manifests(name: str) -> platform.Manifests:
    """The platform's share of the cluster's manifests."""
    return cast("platform.Manifests", _load(name, _package(name), "manifests").MANIFESTS)


def infra(name: str) -> contract.Infra:
    """How the platform's machines and all they need are made."""
    return cast("contract.Infra", _offered(name, "infra", _BRING_YOUR_OWN))


def preflight(name: str) -> contract.Preflight:
    """How the platform is looked at before the first create."""
    return cast("contract.Preflight", _offered(name, "preflight", _BRING_YOUR_OWN))


def machines(name: str) -> contract.Machines:
    """How one node's instance is made, completed and removed."""
    return cast("contract.Machines", _offered(name, "machine", _BRING_YOUR_OWN))


def cluster_credentials(name: str) -> contract.ClusterCredentials | None:
    """How the platform's credentials are kept in a cluster; None if it needs none."""
    module = "cluster_credentials"
    return cast("contract.ClusterCredentials", _load(name, _package(name), module)) if _has(name, module) else None


def destroy(name: str) -> contract.Destroy:
    """How the platform finds what belongs to a cluster."""
    return cast("contract.Destroy", _offered(name, "destroy", "remove the machines where you made them"))


_BRING_YOUR_OWN = (
    "the machines are yours to make there: moorage create ignition-configs, boot them, then "
    "moorage wait-for bootstrap-complete and moorage wait-for install-complete"
)


def _offered(name: str, module: str, otherwise: str) -> ModuleType:
    if not _has(name, module):
        raise NotOffered(
            f"moorage makes nothing on platform {name!r}, so there is nothing to plan, create or destroy there",
            remedy=otherwise,
        )
    return _load(name, _package(name), module)


def _has(name: str, module: str) -> bool:
    package = _package(name)
    _load(name, package)
    return importlib.util.find_spec(f"{package}.{module}") is not None


def _load(name: str, package: str, module: str = "") -> ModuleType:
    wanted = f"{package}.{module}" if module else package
    try:
        return importlib.import_module(wanted)
    except ModuleNotFoundError as missing:
        # The platform's own package, or an SDK that it needs and that is not installed.
        ours = name in PLATFORMS
        remedy = f"install it: pip install 'moorage[{name}]'" if ours else f"install it, or correct {PLUGINS}"
        raise errors.MoorageError(f"platform {name!r} needs {missing.name}", remedy=remedy) from missing


def _package(name: str) -> str:
    known = packages()
    try:
        return known[name]
    except KeyError:
        raise errors.MoorageError(
            f"there is no platform {name!r}", remedy=text.suggestion(name, known) or f"use {text.one_of(known)}"
        ) from None
