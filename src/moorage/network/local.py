"""What a node can tell about itself: its address in the cluster's networks, the interface, the resolvers it was given.

The virtual addresses that it carries for a while are on the same interfaces, and must not be taken for its own.
"""

from __future__ import annotations

import ipaddress
import json
import os
import socket
import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from moorage.network import settings, view

RESOLV_CONFS = ("/run/NetworkManager/resolv.conf", "/etc/resolv.conf")


def node_name(environ: Mapping[str, str] | None = None) -> str:
    return (os.environ if environ is None else environ).get("NODE_NAME", "") or socket.gethostname().lower()


def links() -> list[dict[str, Any]]:
    """Interfaces and their addresses, as `ip` tells them."""
    return _ip("address", "show")


def default_interfaces() -> list[str]:
    """Interfaces that lead out, the preferred one first."""
    routes = [*_ip("route", "show", "default"), *_ip("-6", "route", "show", "default")]
    routes.sort(key=lambda each: int(each.get("metric", 0)))
    return [str(each["dev"]) for each in routes if each.get("dev")]


def _ip(*words: str) -> list[dict[str, Any]]:
    ended = subprocess.run(["ip", "-json", *words], capture_output=True, text=True, check=False, timeout=10)
    found = json.loads(ended.stdout or "[]")
    return [each for each in found if isinstance(each, dict) and each]


def choose(
    wanted: settings.Settings, name: str, found: Iterable[Mapping[str, Any]], defaults: Iterable[str]
) -> view.Self | None:
    """The node among its interfaces: the one with an address in the machine networks, those that lead out first.

    None as long as there is none. Without machine networks any interface that leads out will do.
    """
    networks = [ipaddress.ip_network(each) for each in wanted.machine_networks]
    order = {interface: place for place, interface in reversed(list(enumerate(defaults)))}
    best: tuple[int, str, list[tuple[str, int]]] | None = None
    for link in found:
        interface = str(link.get("ifname", ""))
        if "LOOPBACK" in link.get("flags", ()) or (not networks and interface not in order):
            continue
        own = [each for each in _own(link, wanted.vips) if not networks or _within(each[0], networks)]
        place = order.get(interface, len(order))
        if own and (best is None or place < best[0]):
            best = place, interface, own
    if best is None:
        return None
    _, interface, own = best
    # The family of the first machine network is the one the cluster prefers.
    first = networks[0].version if networks else 4
    own.sort(key=lambda each: ipaddress.ip_address(each[0]).version != first)
    addresses = {ipaddress.ip_address(each).version: each for each, _ in reversed(own)}
    address, prefix = own[0]
    return view.Self(
        name, address, interface, prefix, tuple(sorted(addresses.values(), key=lambda each: each != address))
    )


def _own(link: Mapping[str, Any], vips: Iterable[str]) -> list[tuple[str, int]]:
    taken = set(vips)
    return [
        (str(each["local"]), int(each.get("prefixlen", 0)))
        for each in link.get("addr_info") or ()
        if each.get("scope") == "global"
        and each.get("local") not in taken
        and not (each.get("deprecated") or each.get("tentative") or each.get("temporary"))
    ]


def _within(address: str, networks: Iterable[ipaddress.IPv4Network | ipaddress.IPv6Network]) -> bool:
    return any(ipaddress.ip_address(address) in network for network in networks)


def carried(wanted: settings.Settings, found: Iterable[Mapping[str, Any]]) -> list[tuple[str, str, int]]:
    """The virtual addresses that are on this node now: interface, address, prefix."""
    taken = set(wanted.vips)
    return [
        (str(link["ifname"]), str(each["local"]), int(each.get("prefixlen", 0)))
        for link in found
        for each in link.get("addr_info") or ()
        if each.get("local") in taken
    ]


def resolvers(paths: Iterable[str] = RESOLV_CONFS) -> tuple[str, ...]:
    """The name servers of the first file that has any; what is no address is read over."""
    for path in paths:
        try:
            lines = Path(path).read_text(encoding="utf-8", errors="replace").splitlines()
        except OSError:
            continue
        words = [line.split() for line in lines]
        if found := [each[1] for each in words if len(each) > 1 and each[0] == "nameserver" and _is_address(each[1])]:
            return tuple(dict.fromkeys(found))
    return ()


def _is_address(text: str) -> bool:
    try:
        # An address with a scope is of no use to another program.
        return not getattr(ipaddress.ip_address(text), "scope_id", None)
    except ValueError:
        return False
