"""A Corefile as CoreDNS reads it: blocks of zones, each with the plugins that answer for them.

CoreDNS refuses to start on a directive or argument that it does not know, and so does this reading, with the line and
in the real words. Where a directive stands in its block means nothing: plugins are asked in an order of CoreDNS's own.
Plugins that would answer otherwise than the lab can are refused too, because a lab that ignores them misleads.
"""

from __future__ import annotations

import contextlib
import dataclasses
import ipaddress
import re
from collections.abc import Callable, Iterator

from moorage.lab.nodes import corefile_blocks as blocks
from moorage.lab.nodes import corefile_forms as forms

Wrong = blocks.Wrong
Stanza = blocks.Stanza

PORT = 53
_TYPES = {"A": 1, "CNAME": 5, "PTR": 12, "MX": 15, "TXT": 16, "AAAA": 28, "SRV": 33, "ANY": 255}
_CLASSES = {"IN": 1, "CH": 3, "HS": 4, "ANY": 255}
_CODES = {"NOERROR": 0, "FORMERR": 1, "SERVFAIL": 2, "NXDOMAIN": 3, "NOTIMP": 4, "REFUSED": 5}
_LONGEST_PATTERN = 10_000
_HOSTS_TTL, _CACHE_TTL = 3600, 3600


@dataclasses.dataclass(frozen=True)
class Template:
    """A rule that makes answers from what was asked; a ``kind`` of 255 is any."""

    kind: int
    zones: tuple[str, ...]
    patterns: tuple[re.Pattern[str], ...]
    answers: tuple[str, ...] = ()
    authority: tuple[str, ...] = ()
    code: int = 0
    #: Zones whose names go on to the next plugin if nothing matched; None: nobody does.
    through: tuple[str, ...] | None = None


@dataclasses.dataclass(frozen=True)
class Hosts:
    """Names from a file in the manner of /etc/hosts, and from lines that stand in the Corefile itself."""

    path: str
    zones: tuple[str, ...]
    inline: str = ""
    ttl: int = _HOSTS_TTL
    through: tuple[str, ...] | None = None


@dataclasses.dataclass(frozen=True)
class Forward:
    """Where questions about a zone go that nobody here answers."""

    zone: str
    to: tuple[tuple[str, int], ...]
    except_for: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True)
class Server:
    """What answers for some zones on one port."""

    zones: tuple[str, ...]
    port: int
    templates: tuple[Template, ...] = ()
    hosts: Hosts | None = None
    forwards: tuple[Forward, ...] = ()
    #: The longest time for which others may keep an answer; None where there is no cache.
    cache: int | None = None
    loop: bool = False
    #: Where it says that it lives, 0 for nowhere; and whether only to its own machine.
    health: int = 0
    health_local: bool = False


def parse(text: str, file: str, read: Callable[[str], str | None]) -> list[Server]:
    """Read a Corefile, or refuse it; ``read`` gives the content of other files, None for those that are not there."""
    found: list[Server] = []
    taken: dict[tuple[str, int], str] = {}
    for block in blocks.parse(text, file):
        keys = [_key(key) for key in block.keys]
        for key, at in zip(block.keys, keys, strict=True):
            if at in taken:
                raise Wrong(f"cannot serve dns://{at[0]}:{at[1]} - it is already defined")
            taken[at] = key
        zones = tuple(zone for zone, _ in keys)
        for port in dict.fromkeys(port for _, port in keys):
            mine = tuple(zone for zone, at in keys if at == port)
            found.append(_server(block, zones, mine, port, read))
    return found


def within(name: str, zone: str) -> bool:
    """Whether a name (lower case, with its closing dot) lies in a zone."""
    return zone == "." or name == zone or name.endswith(f".{zone}")


def _server(
    block: blocks.Block, zones: tuple[str, ...], mine: tuple[str, ...], port: int, read: Callable[[str], str | None]
) -> Server:
    for name, stanzas in block.stanzas.items():
        with _named(name):
            forms.look_at(name, stanzas)
    of: Callable[[str], list[Stanza]] = lambda name: block.stanzas.get(name, [])  # noqa: E731
    with _named("template"):
        templates = tuple(_template(each, zones) for each in of("template"))
    with _named("hosts"):
        hosts = [_hosts(each, zones) for each in of("hosts")]
    with _named("forward"):
        forwards = tuple(_forward(each, read) for each in of("forward"))
    with _named("cache"):
        cache = [_cache(each) for each in of("cache")]
    host, _, health = next((each.args[0] for each in of("health") if each.args), ":8080").rpartition(":")
    return Server(
        zones=mine,
        port=port,
        templates=templates,
        hosts=hosts[0] if hosts else None,
        forwards=forwards,
        cache=cache[0] if cache else None,
        loop="loop" in block.stanzas,
        health=int(health) if of("health") and health.isdigit() else 0,
        health_local=host in ("localhost", "127.0.0.1", "::1"),
    )


@contextlib.contextmanager
def _named(plugin: str) -> Iterator[None]:
    """What a plugin complains about bears its name."""
    try:
        yield
    except Wrong as wrong:
        raise Wrong(f"plugin/{plugin}: {wrong}") from wrong


def _key(key: str) -> tuple[str, int]:
    """The zone and port that a block is for."""
    transport, found, rest = key.partition("://")
    if not found:
        rest = key
    elif transport != "dns":
        raise Wrong(f"the lab plays no {transport}:// server, as {key} asks for")
    zone, _, port = rest.rpartition(":") if re.search(r":\d*$", rest) else (rest, "", "")
    return _zone(zone or "."), int(port or PORT)


def _zone(text: str) -> str:
    """A zone in lower case with its closing dot."""
    return f"{text.lower().rstrip('.')}."


def _zones(given: tuple[str, ...], default: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(_zone(each) for each in given) or default


# --- plugins that answer -----------------------------------------------------------------------------------------


def _template(stanza: Stanza, zones: tuple[str, ...]) -> Template:
    if len(stanza.args) < 2:
        raise stanza.count()
    klass, kind, *of = stanza.args
    if klass not in _CLASSES:
        raise stanza.wrong(f"invalid query class {klass}")
    if kind not in _TYPES:
        raise stanza.wrong(f"invalid RR class {kind}")
    patterns: list[re.Pattern[str]] = []
    texts: dict[str, list[str]] = {"answer": [], "authority": [], "additional": []}
    code, through = 0, None
    for line in stanza.block:
        if line.name == "match":
            patterns += [_pattern(line, each) for each in line.some()]
        elif line.name in texts:
            texts[line.name] += [_text(line, each) for each in line.some()]
        elif line.name == "rcode":
            if line.some()[0] not in _CODES:
                raise line.wrong(f"unknown rcode {line.args[0]}")
            code = _CODES[line.args[0]]
        elif line.name == "fallthrough":
            through = _zones(line.args, (".",))
        elif line.name not in ("upstream", "ederror"):
            raise line.count()
    return Template(
        kind=_TYPES[kind] if klass in ("IN", "ANY") else 0,
        zones=_zones(tuple(of), zones),
        patterns=tuple(patterns) or (re.compile(""),),
        answers=tuple(texts["answer"]),
        authority=tuple(texts["authority"]),
        code=code,
        through=through,
    )


def _pattern(line: Stanza, text: str) -> re.Pattern[str]:
    if len(text) > _LONGEST_PATTERN:
        raise line.wrong(f"regex pattern too long: {len(text)} > {_LONGEST_PATTERN}")
    try:
        return re.compile(text.replace(r"\z", r"\Z"))
    except re.error as problem:
        raise line.wrong(f"could not parse regex: {text}, {problem}") from problem


_KNOWN_ACTION = re.compile(
    r"\s*(?:\.(?:Name|Zone|Class|Type|Regex)|\.Group\.\w+|index \.(?:Match \d+|Group \"\w+\"))\s*"
)


def _text(line: Stanza, text: str) -> str:
    """A Go template, as far as it only fills in what was asked."""
    for action in re.findall(r"\{\{-?(.*?)(?:-?\}\}|$)", text):
        if not _KNOWN_ACTION.fullmatch(action):
            raise line.wrong(f"the lab does not know the template action {{{{{action}}}}}")
    if text.count("{{") != text.count("}}"):
        raise line.wrong(f"could not compile template: {text}, template: {line.name}:1: unclosed action")
    return text


def _hosts(stanza: Stanza, zones: tuple[str, ...]) -> Hosts:
    inline: list[str] = []
    ttl, through = _HOSTS_TTL, None
    for line in stanza.block:
        if line.name == "fallthrough":
            through = _zones(line.args, (".",))
        elif line.name == "ttl":
            if not line.args:
                raise line.wrong("ttl needs a time in second")
            if not re.fullmatch(r"[-+]?\d+", line.args[0]):
                raise line.wrong("ttl needs a number of second")
            ttl = int(line.args[0])
            if not 0 < ttl <= 65535:
                raise line.wrong("ttl provided is invalid")
        elif line.name == "reload":
            if len(line.args) != 1:
                raise line.wrong("reload needs a duration (zero seconds to disable)")
            if forms.duration(line.args[0]) is None:
                raise line.wrong(f"invalid duration for reload '{line.args[0]}'")
        elif line.name != "no_reverse":
            # After fallthrough nothing is taken for an address any more.
            if through is not None:
                raise line.wrong(f"unknown property '{line.name}'")
            inline.append(" ".join((line.name, *line.args)))
    path, *of = stanza.args or ("/etc/hosts",)
    return Hosts(path, _zones(tuple(of), zones), "\n".join(inline), ttl, through)


_FORWARD = {
    "except": (1, 999),
    "max_fails": (1, 1),
    "max_connect_attempts": (1, 1),
    "health_check": (1, 4),
    "force_tcp": (0, 0),
    "prefer_udp": (0, 0),
    "expire": (1, 1),
    "max_age": (1, 1),
    "max_idle_conns": (1, 1),
    "read_timeout": (1, 1),
    "policy": (1, 1),
    "max_concurrent": (1, 1),
    "next": (1, 999),
    "failfast_all_unhealthy_upstreams": (0, 0),
    "failover": (1, 999),
}


def _forward(stanza: Stanza, read: Callable[[str], str | None]) -> Forward:
    if len(stanza.args) < 2:
        raise stanza.count()
    zone, *given = stanza.args
    except_for: tuple[str, ...] = ()
    for line in stanza.block:
        if line.name not in _FORWARD:
            raise line.wrong(f"unknown property '{line.name}'")
        least, most = _FORWARD[line.name]
        if not least <= len(line.args) <= most:
            raise line.count()
        if line.name == "policy" and line.args[0] not in ("random", "round_robin", "sequential"):
            raise line.wrong(f"unknown policy '{line.args[0]}'")
        if line.name == "except":
            except_for += tuple(_zone(each) for each in line.args)
    to = [each for word in given for each in _upstream(word, read)]
    return Forward(_zone(zone), tuple(dict.fromkeys(to)), except_for)


def _upstream(word: str, read: Callable[[str], str | None]) -> list[tuple[str, int]]:
    """Servers by their address, or those of a file in the manner of resolv.conf."""
    text = word.removeprefix("dns://")
    bare, _, port = text.rpartition(":") if re.fullmatch(r"(?:[\d.]+|\[.*\]):\d+", text) else (text, "", "")
    try:
        return [(str(ipaddress.ip_address(bare.strip("[]"))), int(port or PORT))]
    except ValueError:
        content = read(word)
    if content is None:
        raise Wrong(f'not an IP address or file: "{word}"')
    servers = re.findall(r"^\s*nameserver\s+(\S+)", content, re.MULTILINE)
    if not servers:
        raise Wrong(f"no nameservers found in file: {word}")
    return [(each, PORT) for each in servers]


def _cache(stanza: Stanza) -> int:
    ttl = _CACHE_TTL
    if stanza.args and re.fullmatch(r"[-+]?\d+", stanza.args[0]):
        ttl = int(stanza.args[0])
        if ttl <= 0:
            raise Wrong(f"cache TTL can not be zero or negative: {ttl}")
    for line in stanza.block:
        if line.name == "success" and len(line.args) > 1 and line.args[1].isdigit():
            ttl = int(line.args[1])
    return ttl
