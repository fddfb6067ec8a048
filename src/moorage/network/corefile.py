"""Corefile and hosts file: the names of the cluster, answered on every node.

``api``, ``api-int`` and everything under ``apps`` lead to the virtual addresses, nodes are in a hosts file that CoreDNS
looks at by itself, and the rest of the world is asked of the resolvers that the node got from DHCP. A name that is ours
has an answer for every type of question, if only an empty one: another server's "no such name" would be believed.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterator

from moorage.network import checks, settings, view

PATH = "/etc/coredns/Corefile"
HOSTS_PATH = "/etc/coredns/nodes.hosts"

TTL = 60
_TYPES = {4: "A", 6: "AAAA"}
_STUBS = (ipaddress.ip_network("127.0.0.0/16"), ipaddress.ip_network("::1/128"))


def render(wanted: settings.Settings, seen: view.View) -> str:
    """The Corefile."""
    lines = ["errors", "bufsize 1232", f"health 127.0.0.1:{checks.DNS_HEALTH_PORT}", "reload 5s"]
    domain = re.escape(wanted.cluster_domain).replace(r"\-", "-")
    for pattern, vips in (
        (rf"^api(-int)?\.{domain}\.$", wanted.api_vips),
        (rf"^.+\.apps\.{domain}\.$", wanted.ingress_vips),
    ):
        lines += _templates(wanted.cluster_domain, pattern, vips)
    lines += [f"hosts {HOSTS_PATH} {{", f"    ttl {TTL}", "    reload 5s", "    fallthrough", "}"]
    if resolvers := usable(wanted, seen):
        lines += [f"forward . {' '.join(resolvers)} {{", "    policy sequential", "}", "cache 30"]
    head = "# Written by moorage node-network: what is changed here is written over.\n"
    return head + ".:53 {\n" + "".join(f"    {line}\n" for line in lines) + "}\n"


def usable(wanted: settings.Settings, seen: view.View) -> tuple[str, ...]:
    """The resolvers that can be asked: asking oneself, or an address that may be one's own, would never end."""
    own = {seen.me.address, *seen.me.addresses, *wanted.vips}
    found = (each for each in seen.resolvers if each not in own and not _is_stub(each))
    return tuple(dict.fromkeys(found))


def _is_stub(resolver: str) -> bool:
    """Whether a resolver is a program on this very node, which would ask us: systemd-resolved, dnsmasq and the like."""
    address = ipaddress.ip_address(resolver)
    return any(address.version == each.version and address in each for each in _STUBS)


def _templates(domain: str, pattern: str, vips: tuple[str, ...]) -> Iterator[str]:
    for version, kind in _TYPES.items():
        found = [each for each in vips if ipaddress.ip_address(each).version == version]
        if found:
            yield f"template IN {kind} {domain} {{"
            yield f"    match {pattern}"
            for each in found:
                yield f'    answer "{{{{ .Name }}}} {TTL} IN {kind} {each}"'
            yield "    fallthrough"
            yield "}"
    yield f"template IN ANY {domain} {{"
    yield f"    match {pattern}"
    yield "    rcode NOERROR"
    yield "    fallthrough"
    yield "}"


def hosts(wanted: settings.Settings, seen: view.View) -> str:
    """The nodes: each by the name it has, and by its name in the cluster's domain."""
    lines = ["# Written by moorage node-network: what is changed here is written over."]
    me = view.Node(seen.me.name, view.WORKER, seen.me.addresses or (seen.me.address,))
    nodes = {each.name: each for each in (me, *seen.nodes)}
    for node in sorted(nodes.values()):
        short = node.name.removesuffix(f".{wanted.cluster_domain}")
        names = dict.fromkeys((node.name, f"{short.partition('.')[0]}.{wanted.cluster_domain}"))
        lines += [f"{address} {' '.join(names)}" for address in node.addresses]
    return "\n".join(lines) + "\n"
