"""haproxy.cfg as HAProxy reads it, as far as proxies with health checks go: sections, keywords, servers and times.

What HAProxy does not know it refuses to start with, naming the line; so does this reading. What HAProxy knows but the
lab does not play (rules, rewriting, logging) is read over; where that could change who gets a connection, it is listed
in `Config.unplayed` for somebody to say so.
"""

from __future__ import annotations

import dataclasses
import re
import shlex
from collections.abc import Callable, Mapping

from moorage.lab.nodes import haproxy_keywords as keywords

_SECTIONS = ("global", "defaults", "frontend", "listen", "backend", "userlist", "peers", "resolvers")
_TIMES = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_EVERYWHERE = ("", "*", "::", "0.0.0.0")  # noqa: S104 - told from others, never listened on
_MONITOR = re.compile(r"if \{ nbsrv\((?P<backend>[\w.-]+)\) (?P<op>lt|le|eq) (?P<count>\d+) \}")


class Wrong(ValueError):  # noqa: N818 - as the program puts it: this line is wrong
    """Something that HAProxy does not accept, with its line."""

    def __init__(self, line: int, message: str) -> None:
        super().__init__(f"parsing [haproxy.cfg:{line}] : {message}")
        self.line = line


@dataclasses.dataclass(frozen=True)
class Bind:
    """Where a proxy listens; an empty address is all of the machine's."""

    address: str
    port: int

    @property
    def local(self) -> bool:
        """Whether only the machine itself gets there."""
        return self.address in ("localhost", "127.0.0.1", "::1")


@dataclasses.dataclass(frozen=True)
class Server:
    """Where a backend may pass connections to, and how its health is found out."""

    name: str
    address: str
    port: int
    weight: int = 1
    check: bool = False
    tls: bool = False
    interval: float = 2.0
    rise: int = 2
    fall: int = 3
    backup: bool = False
    disabled: bool = False


@dataclasses.dataclass(frozen=True)
class Check:
    """What is asked of a server: an HTTP request, or without a path, a connection."""

    method: str = "OPTIONS"
    path: str = ""
    version: str = "HTTP/1.0"
    #: Statuses that are well; none means 2xx and 3xx.
    expected: tuple[int, ...] = ()


@dataclasses.dataclass(frozen=True)
class MonitorFails:
    """The monitor fails while the backend has too few servers that are up."""

    backend: str
    below: int


@dataclasses.dataclass(frozen=True)
class Proxy:
    """A frontend, a backend, or (``listen``) both in one."""

    kind: str
    name: str
    mode: str = "http"
    binds: tuple[Bind, ...] = ()
    default_backend: str = ""
    servers: tuple[Server, ...] = ()
    check: Check = Check()
    balance: str = "roundrobin"
    check_timeout: float = 10.0
    connect_timeout: float = 10.0
    monitor_path: str = ""
    monitor_fails: MonitorFails | None = None
    stats_path: str = ""


@dataclasses.dataclass(frozen=True)
class Config:
    """A whole file; ``warnings`` are what HAProxy would mention and then live with."""

    proxies: tuple[Proxy, ...]
    unplayed: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()

    def backend(self, proxy: Proxy) -> Proxy | None:
        """Where a proxy's connections go: its own servers, or its default backend's."""
        if proxy.kind == "listen" and proxy.servers:
            return proxy
        return next(
            (each for each in self.proxies if each.name == proxy.default_backend and each.kind != "frontend"), None
        )


@dataclasses.dataclass
class _Draft:
    """A proxy while it is being read, with the lines that are looked at again when all is known."""

    proxy: Proxy
    line: int
    backend_line: int = 0
    server_defaults: Server = Server("", "", 0)


_Keyword = Callable[["_Draft", int, list[str]], None]


def parse(text: str) -> Config:
    """Read a file's text, or refuse it."""
    section = ""
    defaults = _Draft(Proxy("defaults", ""), 0)
    draft: _Draft | None = None
    drafts: list[_Draft] = []
    unplayed: list[str] = []
    warnings: list[str] = []
    for number, words in _worded(text):
        if words[0] in _SECTIONS:
            section, draft = words[0], None
            if section == "defaults":
                # Each defaults section starts anew.
                draft = defaults = _Draft(Proxy("defaults", ""), number)
            elif section in ("frontend", "listen", "backend"):
                draft = _begun(section, number, words, defaults)
                drafts.append(draft)
        elif not section:
            raise Wrong(number, f"unknown keyword '{words[0]}' out of section.")
        elif section == "global":
            if words[0] not in keywords.GLOBALS:
                raise Wrong(number, f"unknown keyword '{words[0]}' in 'global' section")
        elif draft is not None:
            _read(draft, section, number, words, unplayed, warnings)
    return Config(_checked(drafts), tuple(unplayed), tuple(warnings))


def seconds(line: int, text: str, name: str) -> float:
    """A time of HAProxy's: milliseconds unless it has a unit."""
    matched = re.fullmatch(r"(\d+)(us|ms|s|m|h|d)?", text)
    if matched is None:
        raise Wrong(line, f"unexpected character in '{name}' argument '{text}'")
    return int(matched[1]) * _TIMES[matched[2] or "ms"]


def _worded(text: str) -> list[tuple[int, list[str]]]:
    found = []
    for number, line in enumerate(text.splitlines(), 1):
        lexer = shlex.shlex(line, posix=True, punctuation_chars=False)
        lexer.whitespace_split, lexer.commenters = True, "#"
        try:
            words = list(lexer)
        except ValueError as problem:
            raise Wrong(number, f"unmatched quote: {problem}") from problem
        if words:
            found.append((number, words))
    return found


def _begun(section: str, number: int, words: list[str], defaults: _Draft) -> _Draft:
    if len(words) < 2:
        raise Wrong(number, f"'{section}' expects a name as argument.")
    inherited = dataclasses.replace(defaults.proxy, kind=section, name=words[1])
    return dataclasses.replace(defaults, proxy=inherited, line=number)


def _read(draft: _Draft, section: str, number: int, words: list[str], unplayed: list[str], warnings: list[str]) -> None:
    keyword = words[0]
    if keyword in keywords.ROUTING:
        unplayed.append(f"[haproxy.cfg:{number}] {' '.join(words)}")
    elif keyword in _KEYWORDS:
        allowed, read = _KEYWORDS[keyword]
        if section in allowed:
            read(draft, number, words)
        elif section == "defaults":
            raise Wrong(number, f"'{keyword}' not allowed in 'defaults' section.")
        else:
            warnings.append(f"parsing [haproxy.cfg:{number}] : '{keyword}' ignored in a {section}")
    elif keyword not in keywords.READ_OVER:
        raise Wrong(number, f"unknown keyword '{keyword}' in '{section}' section")


def _checked(drafts: list[_Draft]) -> tuple[Proxy, ...]:
    """What can be said only once everything is read: names that lead nowhere, names that are there twice."""
    backends = {each.proxy.name for each in drafts if each.proxy.kind != "frontend"}
    seen: dict[tuple[bool, str], int] = {}
    for draft in drafts:
        proxy = draft.proxy
        for side in {"frontend": (True,), "backend": (False,), "listen": (True, False)}[proxy.kind]:
            if (side, proxy.name) in seen:
                first = seen[side, proxy.name]
                raise Wrong(draft.line, f"proxy '{proxy.name}' has the same name as the one declared at line {first}")
            seen[side, proxy.name] = draft.line
        if proxy.default_backend and proxy.kind != "backend" and proxy.default_backend not in backends:
            raise Wrong(draft.backend_line, f"unable to find required default_backend: '{proxy.default_backend}'.")
        if proxy.kind == "frontend" and not proxy.binds:
            raise Wrong(draft.line, f"frontend '{proxy.name}' has no 'bind' directive.")
    return tuple(draft.proxy for draft in drafts)


# --- keywords ----------------------------------------------------------------------------------------------------


def _changed(draft: _Draft, **fields: object) -> None:
    draft.proxy = dataclasses.replace(draft.proxy, **fields)  # type: ignore[arg-type]


def _argument(number: int, words: list[str], position: int = 1) -> str:
    if len(words) <= position:
        raise Wrong(number, f"'{' '.join(words)}' expects an argument.")
    return words[position]


def _whole(number: int, text: str, name: str, least: int, most: int) -> int:
    if not re.fullmatch(r"\d+", text) or not least <= int(text) <= most:
        raise Wrong(number, f"'{name}' expects a number from {least} to {most}, not '{text}'")
    return int(text)


def _mode(draft: _Draft, number: int, words: list[str]) -> None:
    mode = _argument(number, words)
    if mode not in ("tcp", "http"):
        raise Wrong(number, f"unknown proxy mode '{mode}'.")
    _changed(draft, mode=mode)


def _bind(draft: _Draft, number: int, words: list[str]) -> None:
    found = []
    for text in _argument(number, words).split(","):
        address, _, port = text.rpartition(":")
        address = address.removeprefix("ipv4@").removeprefix("ipv6@").strip("[]")
        found.append(Bind("" if address in _EVERYWHERE else address, _port(number, port, text)))
    _changed(draft, binds=(*draft.proxy.binds, *found))


def _port(number: int, port: str, where: str) -> int:
    if not port.isascii() or not port.isdigit():
        raise Wrong(number, f"invalid character in port number '{port}' in '{where}'")
    if not 0 < int(port) < 65536:
        raise Wrong(number, f"port number {port} in '{where}' is not valid")
    return int(port)


def _default_backend(draft: _Draft, number: int, words: list[str]) -> None:
    draft.backend_line = number
    _changed(draft, default_backend=_argument(number, words))


def _balance(draft: _Draft, number: int, words: list[str]) -> None:
    algorithm = words[1] if len(words) > 1 else "roundrobin"
    if algorithm.partition("(")[0] not in keywords.BALANCE:
        raise Wrong(number, "balance only supports 'roundrobin', 'static-rr', 'leastconn', 'source', 'uri' and others.")
    _changed(draft, balance=algorithm)


def _timeout(draft: _Draft, number: int, words: list[str]) -> None:
    name = _argument(number, words)
    if name not in keywords.TIMEOUTS:
        raise Wrong(number, f"'timeout' does not know '{name}'")
    value = seconds(number, _argument(number, words, 2), f"timeout {name}")
    if name in ("check", "connect"):
        _changed(draft, **{f"{name}_timeout": value})


def _option(draft: _Draft, number: int, words: list[str]) -> None:
    option = _argument(number, words)
    if option not in keywords.OPTIONS:
        raise Wrong(number, f"unknown option '{option}'.")
    if option != "httpchk":
        return
    # One word is a path; two are a method and a path, and what follows is the version.
    rest = words[2:]
    method, path = rest[:2] if len(rest) > 1 else ("OPTIONS", rest[0] if rest else "/")
    version = rest[2].partition("\\")[0] if len(rest) > 2 else "HTTP/1.0"
    _changed(draft, check=dataclasses.replace(draft.proxy.check, method=method, path=path, version=version))


def _http_check(draft: _Draft, number: int, words: list[str]) -> None:
    what, rest = _argument(number, words), words[2:]
    check = draft.proxy.check
    if what == "send":
        pairs = dict(zip(rest[::2], rest[1::2], strict=False))
        version = pairs.get("ver", check.version)
        method, path = pairs.get("meth", check.method), pairs.get("uri", check.path)
        _changed(draft, check=dataclasses.replace(check, method=method, path=path, version=version))
    elif what == "expect":
        if len(rest) == 2 and rest[0] == "status":
            expected = tuple(_whole(number, each, "status", 100, 999) for each in rest[1].split(","))
            _changed(draft, check=dataclasses.replace(check, expected=expected))
        elif not rest or rest[0] not in ("!", "rstatus", "string", "rstring", "hdr", "fhdr"):
            raise Wrong(number, "'http-check expect' only supports '!', 'status', 'string', 'rstatus' and 'rstring'.")
    elif what not in ("connect", "disable-on-404", "send-state", "comment", "set-var", "unset-var"):
        raise Wrong(number, f"'http-check' does not know '{what}'")


def _monitor_uri(draft: _Draft, number: int, words: list[str]) -> None:
    _changed(draft, monitor_path=_argument(number, words))


def _monitor(draft: _Draft, number: int, words: list[str]) -> None:
    if words[1:2] != ["fail"]:
        raise Wrong(number, "'monitor' only supports 'fail'.")
    condition = _MONITOR.fullmatch(" ".join(words[2:]))
    if condition is None:
        raise Wrong(
            number, f"the lab cannot play the condition '{' '.join(words[2:])}'; it knows if {{ nbsrv(b) lt 1 }}"
        )
    below = int(condition["count"]) + (condition["op"] != "lt")
    _changed(draft, monitor_fails=MonitorFails(condition["backend"], below))


def _stats(draft: _Draft, number: int, words: list[str]) -> None:
    what = _argument(number, words)
    if what == "enable":
        _changed(draft, stats_path=draft.proxy.stats_path or "/haproxy?stats")
    elif what == "uri":
        _changed(draft, stats_path=_argument(number, words, 2))


def _server(draft: _Draft, number: int, words: list[str]) -> None:
    name = _argument(number, words)
    if any(each.name == name for each in draft.proxy.servers):
        raise Wrong(number, f"'server {draft.proxy.name}/{name}' : another server has the same name")
    address, colon, port = _argument(number, words, 2).rpartition(":")
    if not colon or not address:
        raise Wrong(number, f"'server {name}' : needs an address and a port, not '{words[2]}'")
    base = dataclasses.replace(
        draft.server_defaults, name=name, address=address.strip("[]"), port=_port(number, port, words[2])
    )
    _changed(draft, servers=(*draft.proxy.servers, _server_options(number, words[3:], base)))


def _default_server(draft: _Draft, number: int, words: list[str]) -> None:
    draft.server_defaults = _server_options(number, words[1:], draft.server_defaults)


def _server_options(number: int, words: list[str], base: Server) -> Server:
    fields: dict[str, object] = {}
    rest = iter(words)
    for word in rest:
        if word in keywords.SERVER_FLAGS:
            fields |= keywords.SERVER_FLAGS[word]
            continue
        if word not in keywords.SERVER_VALUES:
            raise Wrong(number, f"'server {base.name}' : unknown keyword '{word}'.")
        value = next(rest, None)
        if value is None:
            raise Wrong(number, f"'server {base.name}' : '{word}' expects an argument.")
        if word == "inter":
            fields["interval"] = seconds(number, value, "inter")
        elif word in ("rise", "fall"):
            fields[word] = _whole(number, value, word, 1, 2**31 - 1)
        elif word == "weight":
            fields["weight"] = _whole(number, value, word, 0, 256)
    return dataclasses.replace(base, **fields)  # type: ignore[arg-type]


_ANY = ("defaults", "frontend", "listen", "backend")
_KEYWORDS: Mapping[str, tuple[tuple[str, ...], _Keyword]] = {
    "mode": (_ANY, _mode),
    "bind": (("frontend", "listen"), _bind),
    "default_backend": (("defaults", "frontend", "listen"), _default_backend),
    "balance": (("defaults", "listen", "backend"), _balance),
    "timeout": (_ANY, _timeout),
    "option": (_ANY, _option),
    "http-check": (("defaults", "listen", "backend"), _http_check),
    "monitor-uri": (("defaults", "frontend", "listen"), _monitor_uri),
    "monitor": (("frontend", "listen"), _monitor),
    "stats": (_ANY, _stats),
    "server": (("listen", "backend"), _server),
    "default-server": (("defaults", "listen", "backend"), _default_server),
}
