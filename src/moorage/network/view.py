"""What a node sees: itself, the other nodes, and the resolvers it was given.

A `View` and the settings are all that configs are rendered from. The last one that was used is kept in a file, so that
a node which starts while nobody answers goes on with what it knew.
"""

from __future__ import annotations

import dataclasses
import ipaddress
import re
from collections.abc import Iterable, Mapping
from typing import Any

from moorage import errors

BOOTSTRAP, MASTER, WORKER = "bootstrap", "master", "worker"
ROLES = (BOOTSTRAP, MASTER, WORKER)

_NAME = re.compile(r"[a-zA-Z0-9]([a-zA-Z0-9.-]*[a-zA-Z0-9])?")
_INTERFACE = re.compile(r"[^\s/{}\"'#!]{1,15}")


@dataclasses.dataclass(frozen=True)
class Self:
    """The node itself; ``addresses`` has its other ones (of the other family) as well, ``address`` first."""

    name: str
    address: str
    interface: str
    prefix: int = 0
    addresses: tuple[str, ...] = ()

    def own(self, version: int) -> str:
        """Its address of a family, or nothing."""
        return of_family((self.address, *self.addresses), version)


@dataclasses.dataclass(frozen=True, order=True)
class Node:
    """Another node of the cluster (or this one: nobody minds)."""

    name: str
    role: str
    addresses: tuple[str, ...]

    def own(self, version: int) -> str:
        return of_family(self.addresses, version)


@dataclasses.dataclass(frozen=True)
class View:
    """All of it. Nodes are sorted, so that views are equal when they show the same."""

    me: Self
    nodes: tuple[Node, ...] = ()
    resolvers: tuple[str, ...] = ()

    def to_data(self) -> dict[str, Any]:
        return {
            "self": dataclasses.asdict(self.me),
            "nodes": [dataclasses.asdict(each) for each in self.nodes],
            "resolvers": list(self.resolvers),
        }


def of_family(addresses: Iterable[str], version: int) -> str:
    return next((each for each in addresses if each and ipaddress.ip_address(each).version == version), "")


def from_data(found: Mapping[str, Any]) -> View:
    """A view from plain data; what cannot be one is a `ConfigError` that says why."""
    try:
        me = _self(found["self"])
        nodes = tuple(sorted(_node(each) for each in found.get("nodes") or ()))
        resolvers = tuple(str(ipaddress.ip_address(each)) for each in found.get("resolvers") or ())
    except KeyError as missing:
        raise errors.ConfigError(f"the node's view lacks {missing}") from missing
    except (TypeError, ValueError, AttributeError) as problem:
        raise errors.ConfigError(f"the node's view cannot be used: {problem}") from problem
    return View(me, nodes, resolvers)


def _self(found: Mapping[str, Any]) -> Self:
    interface = str(found["interface"])
    if not _INTERFACE.fullmatch(interface):
        raise ValueError(f"{interface!r} is no name of an interface")
    address = str(ipaddress.ip_address(found["address"]))
    others = (str(ipaddress.ip_address(each)) for each in found.get("addresses") or ())
    addresses = dict.fromkeys((address, *others))
    return Self(_name(found["name"]), address, interface, int(found.get("prefix") or 0), tuple(addresses))


def _node(found: Mapping[str, Any]) -> Node:
    listed = found.get("addresses") or [found["address"]]
    role = str(found["role"])
    if role not in ROLES:
        raise ValueError(f"{role!r} is no role")
    return Node(_name(found["name"]), role, tuple(str(ipaddress.ip_address(each)) for each in listed))


def _name(found: object) -> str:
    name = str(found)
    if not _NAME.fullmatch(name):
        raise ValueError(f"{name!r} is no name of a node")
    return name
