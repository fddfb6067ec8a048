"""keepalived.conf: who carries which virtual address, and how it moves.

Every address has a virtual router of its own. Adverts go from node to node (unicast), since many networks drop
multicast between hosts. All nodes of a role have the same priority and checks raise it, so that the address stays where
it is for as long as nobody is better: equals do not take it from each other. There is no `nopreempt`: with it, a holder
whose API has died would keep the address for as long as it can send adverts.
"""

from __future__ import annotations

import dataclasses
import hashlib
import ipaddress
from collections.abc import Iterator, Mapping

from moorage.network import checks, settings, view

PATH = "/etc/keepalived/keepalived.conf"

BOOTSTRAP_PRIORITY = 70
MASTER_PRIORITY = 40
INGRESS_PRIORITY = 20

NOBODY = {4: "127.0.0.1", 6: "::1"}
"""Who adverts go to while there is no peer. An empty list would mean multicast: such a router does not hear unicast
adverts, and when the first peer comes keepalived takes it for another router and lets go of the address."""

_KINDS = ("API", "DNS", "INGRESS")
_CARRIED = {view.BOOTSTRAP: ("API", "DNS"), view.MASTER: _KINDS, view.WORKER: ("INGRESS",)}
_FAMILIES = (4, 6)
_MOST_VRID = 254


@dataclasses.dataclass(frozen=True)
class Check:
    """How a script is run, and what its success adds to the priority; 0 means: without it the node cannot be master."""

    name: str
    weight: int
    interval: int = 2
    rise: int = 2
    fall: int = 3


# One that answers for the API beats all that do not, whatever else they have: 20 > 4 + 3. One that lacks the config
# server keeps new nodes away, one that lacks HAProxy has only more work: 4 > 3. All together stay below the
# bootstrap's 70.
API_CHECKS = (Check(checks.API, 20), Check(checks.CONFIG, 4), Check(checks.BALANCED, 3))
DNS_CHECKS = (Check(checks.DNS, 20),)
# A router that drains is still better than none.
INGRESS_CHECKS = (Check(checks.ROUTER, 0), Check(checks.ROUTER_READY, 10))


@dataclasses.dataclass(frozen=True)
class Router:
    """One virtual router on this node."""

    kind: str
    version: int
    vrid: int
    priority: int
    source: str
    addresses: tuple[str, ...]
    peers: tuple[str, ...]
    checks: tuple[Check, ...]


def vrids(infra_id: str) -> Mapping[tuple[str, int], int]:
    """A number from 1 to 254 for every kind and family, the same on all nodes and for ever.

    It follows from the infraID, so that two clusters of one name in one network differ; and all are given out whether
    they are used or not, so that adding an address changes no other.
    """
    found: dict[tuple[str, int], int] = {}
    for kind in _KINDS:
        for version in _FAMILIES:
            digest = hashlib.sha256(f"{infra_id}/{kind}/{version}".encode()).digest()
            vrid = int.from_bytes(digest[:4]) % _MOST_VRID + 1
            while vrid in found.values():
                vrid = vrid % _MOST_VRID + 1
            found[kind, version] = vrid
    return found


def password(infra_id: str) -> str:
    """Keeps clusters that share a network from taking each other's adverts for their own; it is no secret."""
    return hashlib.sha256(f"{infra_id}/vrrp".encode()).hexdigest()[:8]


def routers(wanted: settings.Settings, role: str, seen: view.View) -> list[Router]:
    """The virtual routers that this node takes part in. A family that the node has no address of is left out."""
    numbers = vrids(wanted.infra_id)
    found = []
    for kind, vips in zip(_KINDS, (wanted.api_vips, wanted.dns_vips, wanted.ingress_vips), strict=True):
        if kind not in _CARRIED[role]:
            continue
        for version in _FAMILIES:
            addresses = tuple(each for each in vips if ipaddress.ip_address(each).version == version)
            if addresses and (source := seen.me.own(version)):
                priority, asked = _rank(kind, role)
                peers = _peers(kind, version, source, seen)
                found.append(Router(kind, version, numbers[kind, version], priority, source, addresses, peers, asked))
    return found


def _rank(kind: str, role: str) -> tuple[int, tuple[Check, ...]]:
    if role == view.BOOTSTRAP:
        # It has the first API of the cluster, and keeps the address until its agent stops keepalived.
        return BOOTSTRAP_PRIORITY, ()
    if kind == "INGRESS":
        return INGRESS_PRIORITY, INGRESS_CHECKS
    return MASTER_PRIORITY, API_CHECKS if kind == "API" else DNS_CHECKS


def _peers(kind: str, version: int, source: str, seen: view.View) -> tuple[str, ...]:
    roles = (view.MASTER, view.WORKER) if kind == "INGRESS" else (view.MASTER,)
    found = {each.own(version) for each in seen.nodes if each.role in roles} - {"", source}
    return tuple(sorted(found, key=lambda each: int(ipaddress.ip_address(each))))


def render(wanted: settings.Settings, role: str, seen: view.View) -> str:
    """The whole file."""
    found = routers(wanted, role, seen)
    scripts = {check.name: check for router in found for check in router.checks}
    parts = [_GLOBAL.format(router_id=seen.me.name)]
    parts += ["\n".join(_script(check)) for check in scripts.values()]
    parts += ["\n".join(_instance(wanted, seen.me, router)) for router in found]
    return "\n".join(part if part.endswith("\n") else f"{part}\n" for part in parts)


# Adverts may be missed by switches: the holder says from time to time where the address is.
_GLOBAL = """\
# Written by moorage node-network: what is changed here is written over.
global_defs {{
    router_id {router_id}
    enable_script_security
    script_user root
    max_auto_priority -1
    vrrp_garp_master_delay 2
    vrrp_garp_master_repeat 3
    vrrp_garp_master_refresh 60
    vrrp_garp_master_refresh_repeat 1
}}
"""


def _script(check: Check) -> Iterator[str]:
    yield f"vrrp_script {check.name} {{"
    yield f'    script "{checks.path(check.name)}"'
    yield f"    interval {check.interval}"
    yield "    timeout 5"
    yield f"    weight {check.weight}"
    yield f"    rise {check.rise}"
    yield f"    fall {check.fall}"
    yield "}"


def _instance(wanted: settings.Settings, me: view.Self, router: Router) -> Iterator[str]:
    yield f"vrrp_instance {wanted.infra_id}_{router.kind}_{router.version} {{"
    yield "    state BACKUP"
    yield f"    interface {me.interface}"
    yield f"    virtual_router_id {router.vrid}"
    yield f"    priority {router.priority}"
    yield "    advert_int 1"
    yield f"    unicast_src_ip {router.source}"
    yield from _block("unicast_peer", router.peers or (NOBODY[router.version],))
    if router.version == 4:
        # VRRP for IPv6 knows no passwords.
        yield from _block("authentication", ("auth_type PASS", f"auth_pass {password(wanted.infra_id)}"))
    # A whole prefix would make the address a source for the node's own connections.
    yield from _block(
        "virtual_ipaddress", [f"{each}/{32 if router.version == 4 else 128}" for each in router.addresses]
    )
    if router.checks:
        yield from _block("track_script", [check.name for check in router.checks])
    yield "}"


def _block(name: str, lines: tuple[str, ...] | list[str]) -> Iterator[str]:
    yield f"    {name} {{"
    yield from (f"        {line}" for line in lines)
    yield "    }"
