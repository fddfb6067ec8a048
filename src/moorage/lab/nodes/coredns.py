"""CoreDNS on a simulated machine: it answers from the Corefile that was rendered for that machine.

A question goes through the plugins in CoreDNS's own order: templates, hosts, and then forward, which leads to the name
server of the site for as long as the machine's line is whole. The machine asks its own CoreDNS first, and others can
ask it at port 53 of the machine's address. Answers are not kept by the lab; a cache only shortens how long others may.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import ipaddress
import re
import struct
from collections.abc import Awaitable, Callable, Iterator

from moorage.lab import name_server, names
from moorage.lab.nodes import corefile, haproxy, instance, network

_PTR = 12
_KIND_NAMES = {1: "A", 5: "CNAME", _PTR: "PTR", 15: "MX", 16: "TXT", 28: "AAAA", 33: "SRV", 255: "ANY"}
_DEFAULT_TTL = 3600
_LONGEST_CHAIN = 8
_ACTION = re.compile(r"\{\{-?\s*(.*?)\s*-?\}\}")


@dataclasses.dataclass(frozen=True)
class Table:
    """A hosts file: the addresses of each name, with its closing dot."""

    names: dict[str, tuple[ipaddress.IPv4Address | ipaddress.IPv6Address, ...]]

    def of(self, name: str, version: int) -> list[bytes]:
        return [each.packed for each in self.names.get(name, ()) if each.version == version]


class CoreDNS(names.Zones):
    """The answers of one CoreDNS; ``read`` gives a file of its machine, ``ask`` puts a question to another server."""

    def __init__(
        self,
        servers: list[corefile.Server],
        read: Callable[[str], bytes | None],
        ask: Callable[[str, int, names.Name, int], names.Reply | None],
    ) -> None:
        super().__init__()
        self._read = read
        self._ask = ask
        self.adopt(servers)

    def adopt(self, servers: list[corefile.Server]) -> None:
        """Answer by another Corefile from now on."""
        self._servers = [each for each in servers if each.port == corefile.PORT]

    def lookup(self, name: names.Name, kind: int) -> names.Reply:
        """Answer one question: by the block with the longest zone that holds the name."""
        asked = _written(name)
        fitting = [
            (len(zone), server) for server in self._servers for zone in server.zones if corefile.within(asked, zone)
        ]
        if not fitting:
            return names.Reply(names.REFUSED)
        server = max(fitting, key=lambda pair: pair[0])[1]
        return _capped(self._answered(server, name, asked, kind), server.cache)

    def _answered(self, server: corefile.Server, name: names.Name, asked: str, kind: int) -> names.Reply:
        reply = self._templated(server, name, asked, kind)
        if reply is None and server.hosts is not None:
            reply = self._listed(server.hosts, name, asked, kind)
        if reply is None:
            reply = self._forwarded(server, name, asked, kind)
        return reply

    # --- template ---

    def _templated(self, server: corefile.Server, name: names.Name, asked: str, kind: int) -> names.Reply | None:
        for each in server.templates:
            zone = _longest(asked, each.zones)
            if not zone or (names.ANY not in (each.kind, kind) and each.kind != kind):
                continue
            match = next((found for pattern in each.patterns if (found := pattern.search(asked))), None)
            if match is not None:
                return self._made(each, name, asked, zone, kind, match)
            if not _through(asked, each.through):
                return names.Reply(names.SERVFAIL)
        return None

    def _made(
        self, rule: corefile.Template, name: names.Name, asked: str, zone: str, kind: int, match: re.Match[str]
    ) -> names.Reply:
        if rule.code == names.SERVFAIL:
            return names.Reply(names.SERVFAIL)
        fill = functools.partial(_filled, asked=asked, zone=zone, kind=kind, match=match)
        try:
            answers = [_record(fill(text)) for text in rule.answers]
            authority = [_record(fill(text)) for text in rule.authority]
        except (ValueError, LookupError, names.RecordRefused):
            return names.Reply(names.SERVFAIL)
        for alias in [each for each in answers if each.kind == names.CNAME]:
            if kind in (names.A, names.AAAA):
                answers += self._behind(alias, kind)
        return names.Reply(rule.code, tuple(answers), tuple(authority))

    def _behind(self, alias: names.Answer, kind: int, depth: int = 0) -> tuple[names.Answer, ...]:
        """What an alias stands for, as far as we know."""
        target = _unwired(alias.data)
        if depth >= _LONGEST_CHAIN or target == alias.owner:
            return ()
        return self.lookup(target, kind).answers

    # --- hosts ---

    def _listed(self, hosts: corefile.Hosts, name: names.Name, asked: str, kind: int) -> names.Reply | None:
        content = self._read(hosts.path) or b""
        table = _table(content, hosts.inline, hosts.zones)
        if kind == _PTR:
            return self._pointed(table, name, asked, hosts.ttl)
        if not _longest(asked, hosts.zones):
            return None
        found = table.of(asked, 4) if kind == names.A else table.of(asked, 6) if kind == names.AAAA else []
        if not found and asked not in table.names:
            # There is no SOA to say no with, so CoreDNS says that it failed.
            return None if _through(asked, hosts.through) else names.Reply(names.SERVFAIL)
        return names.Reply(names.NOERROR, tuple(names.Answer(name, kind, hosts.ttl, data) for data in found))

    def _pointed(self, table: Table, name: names.Name, asked: str, ttl: int) -> names.Reply | None:
        reverse = asked.removesuffix(".in-addr.arpa.")
        with contextlib.suppress(ValueError):
            address = ipaddress.ip_address(".".join(reversed(reverse.split("."))))
            found = [each for each, addresses in table.names.items() if address in addresses]
            if found:
                data = (_wired(each) for each in found)
                return names.Reply(names.NOERROR, tuple(names.Answer(name, _PTR, ttl, each) for each in data))
        return None

    # --- forward ---

    def _forwarded(self, server: corefile.Server, name: names.Name, asked: str, kind: int) -> names.Reply:
        for each in server.forwards:
            if corefile.within(asked, each.zone) and not _longest(asked, each.except_for):
                for address, port in each.to:
                    reply = self._ask(address, port, name, kind)
                    if reply is not None:
                        return reply
                return names.Reply(names.SERVFAIL)
        # The last of the plugins finds nobody behind it; a block without any answers nobody.
        return names.Reply(names.SERVFAIL if server.templates or server.hosts or server.forwards else names.REFUSED)


def read(text: str, path: str, files: Callable[[str], bytes | None]) -> list[corefile.Server]:
    """The servers of a Corefile on a machine."""

    def opened(name: str) -> str | None:
        content = files(name)
        return None if content is None else content.decode("utf-8", "replace")

    return corefile.parse(text, path, opened)


def upstream(machine: instance.Instance) -> Callable[[str, int, names.Name, int], names.Reply | None]:
    """How a CoreDNS on a machine asks other name servers: those of the site answer, while the line is whole."""
    site = machine.site

    def ask(address: str, port: int, name: names.Name, kind: int) -> names.Reply | None:
        here = site.nameserver
        if not machine.wire.connected or address != here.host or port not in (corefile.PORT, here.port):
            return None
        return here.zones.lookup(name, kind)

    return ask


def looped(servers: list[corefile.Server], machine: instance.Instance) -> str:
    """CoreDNS's last words where it would ask itself for ever, or nothing."""
    own = {machine.address, "127.0.0.1", "::1"}
    for server in servers:
        for each in server.forwards:
            if server.loop and server.port == corefile.PORT and any(pair in each.to for pair in _ports(own)):
                return (
                    f'plugin/loop: Loop ({machine.address} -> :{server.port}) detected for zone "{server.zones[0]}", '
                    "see https://coredns.io/plugins/loop#troubleshooting."
                )
    return ""


def private_ports(servers: list[corefile.Server]) -> set[int]:
    """The ports that are for the machine itself."""
    return {each.health for each in servers if each.health and each.health_local}


class Service:
    """CoreDNS as others see it: port 53 of the machine's address, and the port where it says that it lives."""

    def __init__(self, answers: CoreDNS, servers: list[corefile.Server], machine: instance.Instance) -> None:
        site = machine.site
        self._machine = machine
        self._names = name_server.NameServer(answers, machine.clock, machine.address, site.port(corefile.PORT))
        health = {site.port(each.health) for each in servers if each.health}
        self._health = [haproxy.Answering(machine.address, port, _health) for port in sorted(health)]

    async def start(self) -> None:
        for each in self._health:
            await each.start()
        try:
            await self._names.start()
        except OSError as problem:
            # Where something of the world outside has the port everywhere, the machine's own lookups must do.
            self._machine.say(f"coredns: only this machine can ask: {problem}")

    async def stop(self) -> None:
        await self._names.stop()
        for each in self._health:
            await each.stop()


def _health(path: str) -> int:
    return 200 if path == "/health" else 404


def _ports(addresses: set[str]) -> Iterator[tuple[str, int]]:
    return ((address, corefile.PORT) for address in addresses)


def resolver(answers: CoreDNS, machine: instance.Instance) -> Callable[[str], Awaitable[list[str]]]:
    """What the machine's own programs learn when they look up a name."""

    async def resolve(name: str) -> list[str]:
        with contextlib.suppress(ValueError):
            return [str(ipaddress.ip_address(name))]
        try:
            reply = answers.lookup(names.parsed(name), names.A)
        except names.RecordRefused:
            reply = names.Reply(names.NXDOMAIN)
        found = [str(ipaddress.IPv4Address(each.data)) for each in reply.answers if each.kind == names.A]
        where = f"lookup {name} on {machine.address}:{corefile.PORT}"
        if not found and reply.code in (names.NOERROR, names.NXDOMAIN):
            raise network.NoSuchName(f"{where}: no such host")
        if not found:
            raise network.Misbehaving(f"{where}: server misbehaving")
        return found

    return resolve


# --- words and records -------------------------------------------------------------------------------------------


def _written(name: names.Name) -> str:
    return ".".join([*(label.decode("ascii", "backslashreplace") for label in name), ""]) or "."


def _longest(name: str, zones: tuple[str, ...]) -> str:
    return max((zone for zone in zones if corefile.within(name, zone)), key=len, default="")


def _through(name: str, zones: tuple[str, ...] | None) -> bool:
    return zones is not None and bool(_longest(name, zones))


def _capped(reply: names.Reply, most: int | None) -> names.Reply:
    if most is None:
        return reply
    answers = tuple(dataclasses.replace(each, ttl=min(each.ttl, most)) for each in reply.answers)
    return dataclasses.replace(reply, answers=answers)


def _filled(text: str, *, asked: str, zone: str, kind: int, match: re.Match[str]) -> str:
    """A template with what was asked filled in."""
    known = {
        ".Name": asked,
        ".Zone": zone,
        ".Class": "IN",
        ".Type": _KIND_NAMES.get(kind, f"TYPE{kind}"),
        ".Regex": match.re.pattern,
    }

    def told(action: re.Match[str]) -> str:
        words = action[1].split()
        if len(words) == 1:
            group = words[0].removeprefix(".Group.")
            return known[group] if group in known else match.groupdict().get(group) or match[int(group)] or ""
        which = words[2].strip('"')
        return (match[int(which)] if which.isdigit() else match.groupdict().get(which)) or ""

    return _ACTION.sub(told, text)


def _record(text: str) -> names.Answer:
    """A record as a zone file has it: owner, TTL and class if given, type, data."""
    owner, *words = text.split()
    ttl = _DEFAULT_TTL
    while words and (words[0].isdigit() or words[0] == "IN"):
        word = words.pop(0)
        ttl = int(word) if word.isdigit() else ttl
    kind, *data = words
    if kind in ("A", "AAAA"):
        version: type[ipaddress.IPv4Address] | type[ipaddress.IPv6Address]
        version = ipaddress.IPv4Address if kind == "A" else ipaddress.IPv6Address
        return names.Answer(names.parsed(owner), names.KINDS[kind], ttl, version(data[0]).packed)
    if kind in ("CNAME", "PTR"):
        return names.Answer(names.parsed(owner), names.CNAME if kind == "CNAME" else _PTR, ttl, _wired(data[0]))
    if kind == "TXT":
        piece = " ".join(data).strip('"').encode()[:255]
        return names.Answer(names.parsed(owner), names.TXT, ttl, bytes([len(piece)]) + piece)
    if kind == "SOA":
        times = struct.pack("!5I", *(int(each) for each in data[2:7]))
        return names.Answer(names.parsed(owner), names.SOA, ttl, _wired(data[0]) + _wired(data[1]) + times)
    raise ValueError(f"no {kind} records here")


def _wired(name: str) -> bytes:
    return b"".join(bytes([len(label)]) + label for label in names.parsed(name)) + b"\0"


def _unwired(data: bytes) -> names.Name:
    found, at = [], 0
    while length := data[at]:
        found.append(data[at + 1 : at + 1 + length])
        at += 1 + length
    return tuple(found)


# All machines of a cluster have the same table, and look into it all the time.
@functools.lru_cache(maxsize=64)
def _table(content: bytes, inline: str, zones: tuple[str, ...]) -> Table:
    found: dict[str, tuple[ipaddress.IPv4Address | ipaddress.IPv6Address, ...]] = {}
    for line in f"{content.decode('utf-8', 'replace')}\n{inline}".splitlines():
        address, *hosts = line.partition("#")[0].split() or ("",)
        with contextlib.suppress(ValueError):
            parsed = ipaddress.ip_address(address)
            for host in hosts:
                name = f"{host.lower().rstrip('.')}."
                if _longest(name, zones):
                    found[name] = (*found.get(name, ()), parsed)
    return Table(found)
