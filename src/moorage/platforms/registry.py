"""The platforms there are: one line each, and the only place outside their folders that names them.

A platform's modules are imported when they are asked for, so that its SDK costs nothing to those who use another.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Final, cast

from moorage import errors
from moorage.assets import platform
from moorage.config import stanza, text

PLATFORMS: Final[Mapping[str, str]] = {
    "none": "moorage.platforms.none",
}


def stanzas() -> dict[str, stanza.Stanza]:
    """What every platform brings to the install-config, by its key there."""
    return {name: importlib.import_module(f"{module}.config").STANZA for name, module in PLATFORMS.items()}


def manifests(name: str) -> platform.Manifests:
    """The platform's share of the cluster's manifests."""
    return cast(platform.Manifests, importlib.import_module(f"{_module(name)}.manifests").MANIFESTS)


def _module(name: str) -> str:
    try:
        return PLATFORMS[name]
    except KeyError:
        raise errors.MoorageError(
            f"there is no platform {name!r}", remedy=text.suggestion(name, PLATFORMS) or f"use {text.one_of(PLATFORMS)}"
        ) from None
