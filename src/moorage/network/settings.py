"""What a node's network services are told once, by the installer: a file on every node.

Everything else they find out themselves: their own address, the other nodes, the resolvers that DHCP gave. The file is
JSON with the names of the fields below, so that `cat` explains it.
"""

from __future__ import annotations

import dataclasses
import ipaddress
import json
import re
from collections.abc import Iterable, Mapping

from moorage import errors
from moorage import network as networks

PATH = "/etc/moorage/network.json"

_NAME = re.compile(r"[a-z0-9]([a-z0-9.-]*[a-z0-9])?")


@dataclasses.dataclass(frozen=True)
class Settings:
    """The cluster's part. Addresses of both families may be in each list; one of a family is usual."""

    infra_id: str
    cluster_domain: str
    api_vips: tuple[str, ...]
    ingress_vips: tuple[str, ...]
    dns_vips: tuple[str, ...] = ()
    machine_networks: tuple[str, ...] = ()
    image: str = networks.IMAGE
    mdns: bool = False

    @property
    def vips(self) -> tuple[str, ...]:
        """Every address that is not a node's own."""
        return (*self.api_vips, *self.ingress_vips, *self.dns_vips)

    @property
    def has_ipv6(self) -> bool:
        return any(":" in each for each in (*self.vips, *self.machine_networks))

    def to_json(self) -> str:
        return json.dumps(dataclasses.asdict(self), indent=1) + "\n"


def from_json(text: str | bytes, source: str = PATH) -> Settings:
    """Settings from the text of a file."""
    try:
        found = json.loads(text)
    except ValueError as problem:
        raise _unusable(source, f"not JSON: {problem}") from problem
    return from_mapping(found, source)


def from_mapping(found: object, source: str = PATH) -> Settings:
    """Settings from plain data, each of them checked: a config that is rendered from nonsense is nonsense."""
    if not isinstance(found, Mapping):
        raise _unusable(source, "expected an object")
    known = {field.name for field in dataclasses.fields(Settings)}
    if unknown := sorted(set(found) - known):
        raise _unusable(source, f"unknown: {', '.join(map(str, unknown))}")
    vips = {key: _addresses(source, key, found.get(key, ())) for key in ("api_vips", "ingress_vips", "dns_vips")}
    for key in ("api_vips", "ingress_vips"):
        if not vips[key]:
            raise _unusable(source, f"{key} is empty")
    every = [each for listed in vips.values() for each in listed]
    if twice := sorted({each for each in every if every.count(each) > 1}):
        raise _unusable(source, f"{', '.join(twice)} is there twice: every virtual address serves one purpose")
    machine_networks = found.get("machine_networks", ())
    image = found.get("image", networks.IMAGE)
    mdns = found.get("mdns", False)
    if not isinstance(image, str) or not image or not isinstance(mdns, bool):
        raise _unusable(source, "image must be a text and mdns true or false")
    return Settings(
        infra_id=_text(source, "infra_id", found.get("infra_id", "")),
        cluster_domain=_text(source, "cluster_domain", found.get("cluster_domain", "")),
        api_vips=vips["api_vips"],
        ingress_vips=vips["ingress_vips"],
        dns_vips=vips["dns_vips"],
        machine_networks=_networks(source, machine_networks),
        image=image,
        mdns=mdns,
    )


def _text(source: str, key: str, value: object) -> str:
    """A name. It becomes a part of configs whose languages have their own marks, so nothing but names passes."""
    if not isinstance(value, str) or not _NAME.fullmatch(value):
        raise _unusable(source, f"{key} is {value!r}, which is no name")
    return value


def _listed(source: str, key: str, value: object) -> Iterable[str]:
    if not isinstance(value, list | tuple) or not all(isinstance(each, str) for each in value):
        raise _unusable(source, f"{key} must be a list of texts")
    return value


def _addresses(source: str, key: str, value: object) -> tuple[str, ...]:
    try:
        return tuple(str(ipaddress.ip_address(each)) for each in _listed(source, key, value))
    except ValueError as problem:
        raise _unusable(source, f"{key}: {problem}") from problem


def _networks(source: str, value: object) -> tuple[str, ...]:
    try:
        return tuple(str(ipaddress.ip_network(each)) for each in _listed(source, "machine_networks", value))
    except ValueError as problem:
        raise _unusable(source, f"machine_networks: {problem}") from problem


def _unusable(source: str, why: str) -> errors.ConfigError:
    return errors.ConfigError(
        f"{source}: {why}", remedy=f"{source} is written by the installer; see the MachineConfig 99-*-moorage-network"
    )
