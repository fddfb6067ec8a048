"""How the product finds the addresses behind a cluster's names.

The names of a cluster may exist in one view of the DNS only (split horizon), so ``MOORAGE_RESOLVER=host:port`` names
the server to ask; without it the system resolves, /etc/hosts included. The three ways in which a name fails (there is
no such name, nobody answers, it has no address) need different repairs and are therefore different errors.
"""

from __future__ import annotations

import contextlib
import dataclasses
import ipaddress
import secrets
import socket
import struct
from collections.abc import Iterator, Mapping

from moorage import errors
from moorage.engine import clock as clocks

RESOLVER = "MOORAGE_RESOLVER"

_A, _CNAME, _AAAA = 1, 5, 28
_INTERNET = 1
_RECURSION_DESIRED = 0x0100
_RESPONSE, _TRUNCATED = 0x8000, 0x0200
_NXDOMAIN = 3
_RCODES = {1: "FORMERR", 2: "SERVFAIL", 4: "NOTIMP", 5: "REFUSED"}
_SECONDS = 3.0
_TRIES = 2
_LONGEST_CHAIN = 8


class NameProblem(errors.MoorageError):
    """A name did not lead to an address."""


class NoSuchName(NameProblem):
    """The DNS says with authority that the name does not exist."""


class NoAnswer(NameProblem):
    """No name server gave an answer that can be used."""


class NoAddress(NameProblem):
    """The name exists and has neither an IPv4 nor an IPv6 address."""


@dataclasses.dataclass(frozen=True)
class Server:
    """A name server to ask."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclasses.dataclass(frozen=True)
class Answer:
    """What a reply says about one question: addresses, or where an alias leads, or that there is nothing."""

    exists: bool
    addresses: tuple[str, ...] = ()
    alias: str = ""


def resolve(host: str, environ: Mapping[str, str], clock: clocks.Clock) -> list[str]:
    """The addresses of ``host``, IPv4 before IPv6; an address stands for itself."""
    with contextlib.suppress(ValueError):
        return [str(ipaddress.ip_address(host.strip("[]")))]
    server = chosen_server(environ)
    return _by_system(host) if server is None else _by_server(host, server, clock)


def chosen_server(environ: Mapping[str, str]) -> Server | None:
    """The name server the environment asks for, if any."""
    text = environ.get(RESOLVER, "").strip()
    if not text:
        return None
    host, port_text, closed = text, "53", True
    if text.startswith("["):
        host, closing, rest = text[1:].partition("]")
        closed = bool(closing) and rest[:1] in ("", ":")
        port_text = rest.removeprefix(":") or port_text
    elif text.count(":") == 1:
        host, port_text = text.split(":")
    try:
        port = int(port_text)
        sound = bool(host) and closed and 0 < port < 65536
        found = socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM) if sound else []
    except (OSError, ValueError):
        found = []
    if not found:
        raise errors.ConfigError(
            f"{RESOLVER}={text!r} is not the address of a name server",
            remedy=f"set {RESOLVER} to an IP address with a port, such as 192.0.2.53:53, or unset it",
        )
    return Server(str(found[0][4][0]), int(found[0][4][1]))


def _by_system(host: str) -> list[str]:
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except UnicodeError:
        raise NoSuchName(f"{host} is not a name the DNS can hold") from None
    except socket.gaierror as problem:
        raise _explained(host, problem) from None
    ordered = sorted(found, key=lambda entry: entry[0] != socket.AF_INET)
    return list(dict.fromkeys(str(entry[4][0]) for entry in ordered))


def _explained(host: str, problem: socket.gaierror) -> NameProblem:
    if problem.errno == socket.EAI_NONAME:
        return NoSuchName(f"{host} does not resolve: there is no such name")
    if problem.errno == getattr(socket, "EAI_NODATA", None):
        return NoAddress(f"{host} does not resolve: the name exists, but has no address")
    return NoAnswer(f"{host} does not resolve: the system's name server does not answer ({problem.strerror})")


def _by_server(host: str, server: Server, clock: clocks.Clock) -> list[str]:
    addresses: list[str] = []
    exists = False
    for kind in (_A, _AAAA):
        try:
            answer = _followed(host, kind, server, clock)
        except NoAnswer:
            # Some servers keep silent about IPv6. An IPv4 address is an answer all the same.
            if not addresses:
                raise
            continue
        exists = exists or answer.exists
        addresses += answer.addresses
    if addresses:
        return list(dict.fromkeys(addresses))
    if exists:
        raise NoAddress(f"{host} does not resolve: the name server {server} knows the name, but no address for it")
    raise NoSuchName(f"{host} does not resolve: the name server {server} says there is no such name")


def _followed(host: str, kind: int, server: Server, clock: clocks.Clock) -> Answer:
    name = host
    for _ in range(_LONGEST_CHAIN):
        answer = _ask(name, kind, server, clock)
        if answer.addresses or not answer.alias:
            return answer
        name = answer.alias
    raise NoAnswer(f"{host} does not resolve: its aliases at {server} lead in a circle")


def _ask(name: str, kind: int, server: Server, clock: clocks.Clock) -> Answer:
    clock.check()
    mark = secrets.randbelow(1 << 16)
    question = _question(name, kind)
    query = struct.pack("!6H", mark, _RECURSION_DESIRED, 1, 0, 0, 0) + question
    timeout = clock.socket_timeout(_SECONDS)
    try:
        reply = _over_udp(query, server, timeout)
        if _flags(reply) & _TRUNCATED:
            reply = _over_tcp(query, server, timeout)
        return _read(reply, name, kind)
    except OSError as problem:
        reason = problem.strerror or "it took too long"
        raise NoAnswer(f"{name} does not resolve: the name server {server} does not answer ({reason})") from problem
    except (struct.error, IndexError) as problem:
        raise NoAnswer(f"{name} does not resolve: the name server {server} answers half a message") from problem
    except _UselessReplyError as problem:
        raise NoAnswer(f"{name} does not resolve: the name server {server} answers {problem}") from problem


class _UselessReplyError(Exception):
    """The reply is no answer to our question; the words go behind "answers"."""


def _over_udp(query: bytes, server: Server, timeout: float) -> bytes:
    with socket.socket(_family(server), socket.SOCK_DGRAM) as sock:
        # Connected, the kernel drops what other hosts send; the mark and the question are checked on top.
        sock.connect((server.host, server.port))
        sock.settimeout(timeout)
        for tries_left in reversed(range(_TRIES)):
            sock.send(query)
            try:
                return _matching(sock, query)
            except TimeoutError:
                if not tries_left:
                    raise
    raise TimeoutError  # pragma: no cover - the last try raises


def _matching(sock: socket.socket, query: bytes) -> bytes:
    while True:
        reply = sock.recv(65535)
        if _answers(reply, query):
            return reply


def _over_tcp(query: bytes, server: Server, timeout: float) -> bytes:
    with socket.create_connection((server.host, server.port), timeout=timeout) as sock, sock.makefile("rwb") as stream:
        stream.write(struct.pack("!H", len(query)) + query)
        stream.flush()
        (length,) = struct.unpack("!H", stream.read(2))
        reply = stream.read(length)
    if len(reply) < length or not _answers(reply, query):
        raise _UselessReplyError("something else than was asked")
    return reply


def _family(server: Server) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in server.host else socket.AF_INET


def _answers(reply: bytes, query: bytes) -> bool:
    same_question = reply[12 : len(query)].lower() == query[12:].lower()
    return len(reply) >= len(query) and reply[:2] == query[:2] and bool(_flags(reply) & _RESPONSE) and same_question


def _flags(reply: bytes) -> int:
    return int.from_bytes(reply[2:4], "big")


def _question(name: str, kind: int) -> bytes:
    try:
        labels = [label.encode("idna") for label in name.rstrip(".").split(".")]
    except UnicodeError:
        labels = [b""]
    if not all(0 < len(label) < 64 for label in labels) or sum(len(label) + 1 for label in labels) > 254:
        raise NoSuchName(f"{name} is not a name the DNS can hold")
    encoded = b"".join(bytes([len(label)]) + label for label in labels) + b"\0"
    return encoded + struct.pack("!2H", kind, _INTERNET)


def _read(reply: bytes, name: str, kind: int) -> Answer:
    code = _flags(reply) & 0x000F
    if code not in (0, _NXDOMAIN):
        raise _UselessReplyError(_RCODES.get(code, f"code {code}"))
    aliases: dict[str, str] = {}
    addresses: dict[str, list[str]] = {}
    for owner, record_kind, start, data in _records(reply):
        if record_kind == _CNAME:
            aliases[owner] = _name_at(reply, start)[0]
        elif record_kind == kind and len(data) == (4 if kind == _A else 16):
            addresses.setdefault(owner, []).append(str(ipaddress.ip_address(data)))
    end = name.rstrip(".").lower()
    for _ in range(_LONGEST_CHAIN + 1):
        if end not in aliases:
            break
        end = aliases[end]
    else:
        raise _UselessReplyError("with aliases that lead in a circle")
    if end in addresses:
        return Answer(True, tuple(addresses[end]))
    moved = end if end != name.rstrip(".").lower() and code != _NXDOMAIN else ""
    return Answer(code != _NXDOMAIN, alias=moved)


def _records(reply: bytes) -> Iterator[tuple[str, int, int, bytes]]:
    """Owner, type, place and bytes of every record of the answer section."""
    questions, count = struct.unpack_from("!2H", reply, 4)
    at = 12
    for _ in range(questions):
        at = _name_at(reply, at)[1] + 4
    for _ in range(count):
        owner, at = _name_at(reply, at)
        kind, _class, _ttl, length = struct.unpack_from("!2HIH", reply, at)
        at += 10
        if at + length > len(reply):
            raise _UselessReplyError("with half a record")
        yield owner, kind, at, reply[at : at + length]
        at += length


def _name_at(reply: bytes, at: int) -> tuple[str, int]:
    """The name that starts at ``at``, in lower case, and where the next field starts."""
    labels: list[str] = []
    after = 0
    # A pointer must lead backwards, or a forged reply could send us round for ever.
    limit = at
    while length := reply[at]:
        if length >= 0xC0:
            after = after or at + 2
            at = ((length & 0x3F) << 8) | reply[at + 1]
            if at >= limit:
                raise _UselessReplyError("with a name that leads in a circle")
            limit = at
            continue
        labels.append(reply[at + 1 : at + 1 + length].decode("ascii", "replace").lower())
        at += 1 + length
    return ".".join(labels), after or at + 1
