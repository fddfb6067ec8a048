"""The rules of addresses: ranges that are written right, do not collide, and are large enough for the cluster.

A bad range cannot be corrected after the installation, so nearly all of these are errors. Ranges that cannot be parsed
are reported once, by `canonical`, and left out by every other rule.
"""

from __future__ import annotations

import dataclasses
import ipaddress
import itertools
import re
from collections.abc import Iterator
from typing import Final, Literal

from moorage.config import findings, model, rule, stanza

Range = ipaddress.IPv4Network | ipaddress.IPv6Network
Kind = Literal["machineNetwork", "serviceNetwork", "clusterNetwork"]

_CIDR = re.compile(r"[0-9A-Fa-f:.]+/[0-9]{1,3}")
_DOCKER: Final = ipaddress.ip_network("172.17.0.0/16")
_LOOPBACK: Final = (ipaddress.ip_network("127.0.0.0/8"), ipaddress.ip_network("::1/128"))
_JOIN: Final = "its join switch"
# What OVN-Kubernetes uses inside, as of 4.20 (the masquerade ranges grew in 4.17).
_OVN: Final = tuple(
    (ipaddress.ip_network(cidr), use)
    for cidr, use in (
        ("100.64.0.0/16", _JOIN),
        ("100.88.0.0/16", "its transit switch"),
        ("169.254.0.0/17", "masquerading"),
        ("fd98::/64", _JOIN),
        ("fd97::/64", "its transit switch"),
        ("fd69::/112", "masquerading"),
    )
)
_PODS: Final = 250
_RESERVED: Final = 3  # network, broadcast and the node's gateway
_SMALLEST_HOST_PREFIX: Final = 30
_DNS_OFFSET: Final = 10  # the cluster's DNS service has the tenth address of the service network
_SERVICES: Final = 256


@dataclasses.dataclass(frozen=True)
class Network:
    """One range of the config; ``field`` is where it is written."""

    kind: Kind
    field: str
    range: Range


def parse_cidr(text: str) -> Range | None:
    """The range, if it is one in CIDR notation with no host bits set."""
    if not _CIDR.fullmatch(text):
        return None
    try:
        return ipaddress.ip_network(text)
    except ValueError:
        return None


def networks(config: model.InstallConfig) -> list[Network]:
    """All ranges that can be parsed, machines first, then services, then pods."""
    return [Network(kind, field, found) for kind, field, cidr in _written(config) if (found := parse_cidr(cidr))]


def _written(config: model.InstallConfig) -> Iterator[tuple[Kind, str, str]]:
    networking = config.networking
    for index, machine in enumerate(networking.machine_network):
        yield "machineNetwork", f"networking.machineNetwork[{index}].cidr", machine.cidr
    for index, service in enumerate(networking.service_network):
        yield "serviceNetwork", f"networking.serviceNetwork[{index}]", service
    for index, cluster in enumerate(networking.cluster_network):
        yield "clusterNetwork", f"networking.clusterNetwork[{index}].cidr", cluster.cidr


def cidr(field: str, text: str) -> Iterator[findings.Finding]:
    """What is wrong with the notation of one range."""
    found = parse_cidr(text)
    if found is None:
        yield _unparsable(field, text)
    elif found.network_address.is_unspecified:
        yield findings.Finding(field, f"{text} stands for every address", remedy="choose a range such as 10.0.0.0/16")
    elif found.is_multicast:
        yield findings.Finding(field, f"{text} is a range of multicast addresses", remedy="choose another range")
    elif found.version == 6 and found.network_address.ipv4_mapped is not None:
        yield findings.Finding(field, f"{text} holds IPv4 addresses in IPv6 notation", remedy="write it as IPv4")


def _unparsable(field: str, text: str) -> findings.Finding:
    shown = repr(text[:60])
    try:
        meant = ipaddress.ip_network(text, strict=False)
    except ValueError:
        return findings.Finding(
            field, f"{shown} is not a range in CIDR notation", remedy="write <address>/<bits>, such as 10.0.0.0/16"
        )
    if "/" not in text:
        return findings.Finding(field, f"{shown} has no '/<bits>'", remedy=f"write how large it is: {text}/24")
    message = f"{shown} is not the start of a range" if _CIDR.fullmatch(text) else f"{shown} is not in CIDR notation"
    return findings.Finding(field, message, remedy=f"did you mean {meant}?")


@rule.reads("networking.machineNetwork", "networking.serviceNetwork", "networking.clusterNetwork.cidr")
def canonical(config: model.InstallConfig, _: stanza.Stanza) -> Iterator[findings.Finding]:
    for _kind, field, text in _written(config):
        yield from cidr(field, text)


@rule.reads("networking.machineNetwork", "networking.serviceNetwork", "networking.clusterNetwork.cidr")
def loopback(config: model.InstallConfig, _: stanza.Stanza) -> Iterator[findings.Finding]:
    """Addresses that never leave a computer. Machines may have them where all of them are simulated on one."""
    for network in networks(config):
        if not any(overlap(network.range, local) for local in _LOOPBACK):
            continue
        if network.kind == "machineNetwork":
            yield findings.Finding(
                network.field,
                f"{network.range} are loopback addresses: only a cluster simulated on this very computer has them",
                "warning",
                "give the range that the machines' real addresses are in",
            )
        else:
            yield findings.Finding(
                network.field,
                f"{network.range} are loopback addresses: every node would reach itself there, never another",
                remedy="choose a range such as 10.128.0.0/14 for pods, 172.30.0.0/16 for services",
            )


@rule.reads("networking.networkType")
def network_type(config: model.InstallConfig, _: stanza.Stanza) -> Iterator[findings.Finding]:
    name = config.networking.network_type
    if name.lower() in ("openshiftsdn", "kuryr"):
        yield findings.Finding(
            "networking.networkType", f"{name} was removed from OpenShift", remedy="use OVNKubernetes"
        )


@rule.reads("networking.machineNetwork", "networking.serviceNetwork", "networking.clusterNetwork.cidr")
def overlaps(config: model.InstallConfig, _: stanza.Stanza) -> Iterator[findings.Finding]:
    # In this order the finding is at the range that is easier to change: pods before services before machines.
    for first, second in itertools.combinations(networks(config), 2):
        if overlap(first.range, second.range):
            yield findings.Finding(
                second.field,
                f"{second.range} overlaps {first.range} of {first.field}",
                remedy="choose a range that no other network of the cluster uses",
            )


def overlap(one: Range, other: Range) -> bool:
    """Whether the ranges share an address."""
    return one.version == other.version and one.overlaps(other)


def _ovn_ranges(config: model.InstallConfig) -> list[tuple[Range, str]]:
    """What the plug-in takes for itself; the user's join range replaces its own."""
    if config.networking.network_type != "OVNKubernetes":
        return []
    chosen = parse_cidr(config.networking.join_subnet or "")
    if chosen is None:
        return list(_OVN)
    return [(chosen, _JOIN), *((taken, use) for taken, use in _OVN if use != _JOIN or taken.version == 6)]


@rule.reads("networking")
def join_subnet(config: model.InstallConfig, _: stanza.Stanza) -> Iterator[findings.Finding]:
    field, text = "networking.ovnKubernetesConfig.ipv4.internalJoinSubnet", config.networking.join_subnet
    if config.networking.ovn_kubernetes_config is not None and config.networking.network_type != "OVNKubernetes":
        yield findings.Finding(
            "networking.ovnKubernetesConfig",
            f"is for OVNKubernetes, but networkType is {config.networking.network_type}",
            remedy="remove it",
        )
    if text is None:
        return
    found = parse_cidr(text)
    if found is None or found.version != 4:
        yield from cidr(field, text)
        if found is not None:
            yield findings.Finding(field, f"{text} is not an IPv4 range", remedy="use one such as 100.65.0.0/16")
        return
    room, nodes = found.num_addresses - _RESERVED, host_subnets(config).get(4, 0)
    if room < nodes:
        yield findings.Finding(
            field,
            f"{text} has addresses for {max(room, 0)} nodes, but networking.clusterNetwork has room for {nodes}",
            remedy="use a larger range",
        )


@rule.reads("networking")
def reserved(config: model.InstallConfig, _: stanza.Stanza) -> Iterator[findings.Finding]:
    taken_by_ovn = _ovn_ranges(config)
    for network in networks(config):
        if overlap(network.range, _DOCKER):
            yield findings.Finding(
                network.field,
                f"{network.range} overlaps {_DOCKER}, Docker's default bridge: hosts that run Docker will not reach it",
                "warning",
                "choose another range if there are such hosts",
            )
        for taken, use in taken_by_ovn:
            if overlap(network.range, taken):
                yield findings.Finding(
                    network.field,
                    f"{network.range} overlaps {taken}, which OVN-Kubernetes uses for {use}",
                    remedy="choose another range",
                )


@rule.reads("networking.clusterNetwork")
def host_prefixes(config: model.InstallConfig, _: stanza.Stanza) -> Iterator[findings.Finding]:
    first_v4: int | None = None
    for index, entry in enumerate(config.networking.cluster_network):
        found = parse_cidr(entry.cidr)
        if found is None:
            continue
        field, prefix = f"networking.clusterNetwork[{index}].hostPrefix", entry.host_prefix
        if found.version == 6:
            if prefix != 64:
                yield findings.Finding(field, f"is {prefix}; IPv6 pods need 64", remedy="write hostPrefix: 64")
            elif found.prefixlen > 64:
                yield _outside(field, prefix, found)
            continue
        if not found.prefixlen <= prefix <= 32:
            yield _outside(field, prefix, found)
        elif prefix > _SMALLEST_HOST_PREFIX:
            yield findings.Finding(field, f"a /{prefix} per node leaves no address for pods", remedy="use 23")
        elif 2 ** (32 - prefix) - _RESERVED < _PODS:
            yield findings.Finding(
                field,
                f"a /{prefix} has addresses for {2 ** (32 - prefix) - _RESERVED} pods; a node runs up to {_PODS}",
                "warning",
                "use 23 or 24, or lower maxPods of the kubelets",
            )
        if first_v4 is not None and prefix != first_v4:
            yield findings.Finding(
                field, f"is {prefix}, but {first_v4} in the first range; all IPv4 ranges have the same"
            )
        first_v4 = prefix if first_v4 is None else first_v4


def _outside(field: str, prefix: int, found: Range) -> findings.Finding:
    return findings.Finding(
        field,
        f"is {prefix}, but nodes' pieces of {found} have a prefix from {found.prefixlen} to {found.max_prefixlen}",
        remedy=f"use a number above {found.prefixlen}, or a larger range",
    )


def host_subnets(config: model.InstallConfig) -> dict[int, int]:
    """How many nodes the cluster networks can serve, by IP version."""
    room: dict[int, int] = {}
    for entry in config.networking.cluster_network:
        found = parse_cidr(entry.cidr)
        if found is not None and found.prefixlen <= entry.host_prefix <= found.max_prefixlen:
            room[found.version] = room.get(found.version, 0) + 2 ** (entry.host_prefix - found.prefixlen)
    return room


@rule.reads("networking.clusterNetwork", "controlPlane.replicas", "compute.replicas")
def room_for_nodes(config: model.InstallConfig, _: stanza.Stanza) -> Iterator[findings.Finding]:
    nodes = config.control_plane_replicas + config.worker_replicas
    for version, room in host_subnets(config).items():
        if room < nodes:
            yield findings.Finding(
                "networking.clusterNetwork",
                f"has IPv{version} addresses for {room} node{'' if room == 1 else 's'}, but there are {nodes}",
                remedy="use a larger range, or a larger hostPrefix",
            )


@rule.reads("networking.machineNetwork", "controlPlane.replicas", "compute.replicas")
def room_for_machines(config: model.InstallConfig, _: stanza.Stanza) -> Iterator[findings.Finding]:
    machines = config.control_plane_replicas + config.worker_replicas + 1
    ranges = [network.range for network in networks(config) if network.kind == "machineNetwork"]
    for version in sorted({found.version for found in ranges}):
        room = sum(max(found.num_addresses - 2, 0) for found in ranges if found.version == version)
        if room < machines:
            yield findings.Finding(
                "networking.machineNetwork",
                f"has {room} IPv{version} addresses for {machines} machines, the bootstrap machine included",
                remedy="use a larger range",
            )


@rule.reads("networking.serviceNetwork")
def service_sizes(config: model.InstallConfig, _: stanza.Stanza) -> Iterator[findings.Finding]:
    for network in networks(config):
        if network.kind != "serviceNetwork":
            continue
        largest = 12 if network.range.version == 4 else 108
        if network.range.prefixlen < largest:
            usual = 16 if network.range.version == 4 else 112
            yield findings.Finding(
                network.field,
                f"{network.range} is too large: Kubernetes takes /{largest} at most",
                remedy=f"use a /{usual}",
            )
        elif network.range.num_addresses <= _DNS_OFFSET:
            yield findings.Finding(
                network.field,
                f"{network.range} is too small: the cluster's DNS service has its tenth address",
                remedy="use a /16",
            )
        elif network.range.num_addresses < _SERVICES:
            yield findings.Finding(
                network.field,
                f"{network.range} has {network.range.num_addresses} addresses; a new cluster uses about a hundred",
                "warning",
                "use a /16",
            )


@rule.reads("networking.machineNetwork", "networking.serviceNetwork", "networking.clusterNetwork.cidr", "platform")
def families(config: model.InstallConfig, chosen: stanza.Stanza) -> Iterator[findings.Finding]:
    """The three kinds of networks have the same families, the same one first, and the platform can run them."""
    found = networks(config)
    if len(found) != len(list(_written(config))):
        return
    by_kind: dict[Kind, tuple[str, ...]] = {}
    for network in found:
        family = f"IPv{network.range.version}"
        by_kind[network.kind] = tuple(dict.fromkeys((*by_kind.get(network.kind, ()), family)))
    wanted = by_kind.get("serviceNetwork", ())
    if wanted not in chosen.ip_stacks:
        yield findings.Finding(
            "networking.serviceNetwork",
            f"{_stack(wanted)} is not possible on platform {chosen.name}",
            remedy=f"use {' or '.join(_stack(stack) for stack in chosen.ip_stacks)}",
        )
    services = [network for network in found if network.kind == "serviceNetwork"]
    if len(services) > len(wanted):
        yield findings.Finding(
            "networking.serviceNetwork",
            f"has {len(services)} ranges; there can be one, or one IPv4 and one IPv6",
            remedy="keep one of each family",
        )
    for kind in ("machineNetwork", "clusterNetwork"):
        yield from _same_families(kind, by_kind.get(kind, ()), wanted)


def _same_families(kind: Kind, has: tuple[str, ...], wanted: tuple[str, ...]) -> Iterator[findings.Finding]:
    field = f"networking.{kind}"
    if set(has) != set(wanted):
        yield findings.Finding(
            field,
            f"is {_stack(has)}, but networking.serviceNetwork is {_stack(wanted)}: all three networks have the same "
            "families",
            remedy=f"give {kind} a range of each family, or serviceNetwork the same as here",
        )
    elif has != wanted:
        yield findings.Finding(
            field,
            f"begins with {has[0]}, but networking.serviceNetwork with {wanted[0]}: the first is the primary family",
            remedy=f"list {wanted[0]} first",
        )


def _stack(families: tuple[str, ...]) -> str:
    return " then ".join(families) or "empty"


RULES: Final[tuple[rule.Rule, ...]] = (
    canonical,
    loopback,
    network_type,
    overlaps,
    reserved,
    join_subnet,
    host_prefixes,
    room_for_nodes,
    room_for_machines,
    service_sizes,
    families,
)
