"""Rules of virtual IPs, for the platforms whose nodes carry the API and ingress addresses themselves."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType

from moorage.config import findings, model, network_rules

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
_NONE: Mapping[str, Sequence[str]] = MappingProxyType({})


def vip_findings(
    field: str,
    vips: Sequence[str],
    config: model.InstallConfig,
    *,
    unlike: Mapping[str, Sequence[str]] = _NONE,
    required: bool = True,
    user_managed: bool = False,
) -> Iterator[findings.Finding]:
    """What is wrong with the VIPs at ``field``.

    ``unlike`` holds the other VIPs by field: the same address may not serve both. A ``user_managed`` balancer may have
    its addresses anywhere, and the same for both.
    """
    if not vips:
        if required:
            yield findings.Finding(field, "is required", remedy="give a free address of networking.machineNetwork")
        return
    if len(vips) > 2:
        yield findings.Finding(field, f"has {len(vips)} addresses", remedy="give one, or one of each family")
    addresses = []
    for index, vip in enumerate(vips):
        try:
            addresses.append((f"{field}[{index}]", ipaddress.ip_address(vip)))
        except ValueError:
            yield findings.Finding(f"{field}[{index}]", f"{vip[:60]!r} is not an IP address")
    for where, address in addresses:
        if not user_managed:
            yield from _placed(where, address, config)
            yield from _distinct(where, address, unlike)
    if len(addresses) == len(vips) <= 2:
        yield from _families(field, [address for _, address in addresses], config)


def _placed(field: str, address: Address, config: model.InstallConfig) -> Iterator[findings.Finding]:
    networks = network_rules.networks(config)
    for network in networks:
        if network.kind != "machineNetwork" and address in network.range:
            yield findings.Finding(
                field, f"{address} is inside networking.{network.kind}, {network.range}", remedy="choose another"
            )
    machine = [network.range for network in networks if network.kind == "machineNetwork"]
    home = next((found for found in machine if address in found), None)
    if machine and home is None:
        listed = ", ".join(str(found) for found in machine)
        yield findings.Finding(
            field,
            f"{address} is outside networking.machineNetwork, {listed}, where the nodes that carry it are",
            remedy="choose a free address inside, or correct machineNetwork",
        )
    if home is not None and home.prefixlen < home.max_prefixlen - 1:
        if address == home.network_address:
            yield findings.Finding(field, f"{address} is the address of the network {home} itself")
        elif home.version == 4 and address == home.broadcast_address:
            yield findings.Finding(field, f"{address} is the broadcast address of {home}")


def _distinct(field: str, address: Address, unlike: Mapping[str, Sequence[str]]) -> Iterator[findings.Finding]:
    for other, vips in unlike.items():
        if any(_same(vip, address) for vip in vips):
            yield findings.Finding(
                field, f"{address} is given at {other} too; each needs its own", remedy="choose another free address"
            )


def _same(vip: str, address: Address) -> bool:
    try:
        return ipaddress.ip_address(vip) == address
    except ValueError:
        return False


def _families(field: str, addresses: Sequence[Address], config: model.InstallConfig) -> Iterator[findings.Finding]:
    given = [f"IPv{address.version}" for address in addresses]
    if len(given) == 2 and given[0] == given[1]:
        same = "the same address twice" if addresses[0] == addresses[1] else f"two {given[0]} addresses"
        yield findings.Finding(field, f"has {same}", remedy="give one, or one of each family")
        return
    stack = config.ip_families
    if stack and given[0] != stack[0]:
        yield findings.Finding(
            field,
            f"begins with {given[0]}, but the cluster's primary family is {stack[0]}",
            remedy=f"list the {stack[0]} address first",
        )
    elif len(given) == 2 and len(stack) == 1:
        yield findings.Finding(field, f"has an {given[1]} address, but the cluster is {stack[0]} only")
