"""What a platform brings to the install-config: its models, its defaults and its own rules.

A platform's `config.py` ends in one ``STANZA`` of this type. Models are pydantic models deriving from
`moorage.config.model.Section`; ``rules`` see a config whose shape is sound. A rule runs only when no field of the file
is malformed, unless it is marked with `rule.reads` to say which fields it needs.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING

from moorage.config import defaults

if TYPE_CHECKING:
    from moorage.config import findings, model


@dataclasses.dataclass(frozen=True)
class Renamed:
    """A deprecated field of the platform's section; ``listed`` if the new one is a list of what the old one held."""

    old: str
    new: str
    listed: bool = False


@dataclasses.dataclass(frozen=True)
class Stanza:
    """The part of the install-config that belongs to one platform.

    ``credentials_modes`` are the values of credentialsMode the platform accepts (none: the field must not be set), the
    first of them being its default. ``ip_stacks`` lists the families it can run, the primary first. ``hardware``
    says that its machines are real ones, which take their time to start. ``renamed`` and ``unsupported`` (with what to
    do instead) are fields of its section that other installers know or knew.
    """

    name: str
    title: str
    platform: type[model.Section]
    machine_pool: type[model.Section]
    rules: tuple[Callable[[model.InstallConfig], Iterable[findings.Finding]], ...] = ()
    credentials_modes: tuple[str, ...] = ()
    architectures: tuple[str, ...] = ("amd64", "arm64", "ppc64le")
    publish: tuple[str, ...] = ("External",)
    machine_network: str = defaults.MACHINE_NETWORK
    ip_stacks: tuple[tuple[str, ...], ...] = (("IPv4",), ("IPv6",), ("IPv4", "IPv6"), ("IPv6", "IPv4"))
    dotted_names: bool = True
    needs_ssh_key: bool = False
    required_capabilities: tuple[str, ...] = ()
    hardware: bool = False
    renamed: tuple[Renamed, ...] = ()
    unsupported: Mapping[str, str] = dataclasses.field(default_factory=dict)
