"""A small responder for ``<hostname>.local``: multicast DNS as far as a cluster's nodes need it, and no further.

It answers questions for the node's own name with the node's own addresses. It is off unless the settings ask for it:
the cluster itself finds its nodes by CoreDNS's hosts file, which needs no multicast.
"""

from __future__ import annotations

import contextlib
import ipaddress
import select
import socket
import struct
from collections.abc import Callable

from moorage.network import view

GROUP, PORT = "224.0.0.251", 5353
TTL = 120
_A, _AAAA, _ANY, _IN = 1, 28, 255, 1
_RESPONSE, _AUTHORITATIVE = 0x8000, 0x0400
_FLUSH, _UNICAST = 0x8000, 0x8000
_LONGEST = 9000

Say = Callable[[str], None]


class Malformed(ValueError):  # noqa: N818 - a packet, not a program, is at fault
    """A packet that cannot be read."""


def local_name(node: str) -> str:
    return f"{node.partition('.')[0].lower()}.local"


def reply(packet: bytes, name: str, addresses: tuple[str, ...], *, legacy: bool = False) -> bytes | None:
    """The answer to a query, or None if it asks nothing of us. ``legacy``: asked by a plain resolver, not port 5353."""
    if len(packet) < 12:
        raise Malformed("shorter than a header")
    identity, flags, questions = struct.unpack("!HHH", packet[:6])
    if flags & _RESPONSE:
        return None
    kinds: set[int] = set()
    asked = b""
    at = 12
    for _ in range(questions):
        start = at
        labels, at = _name(packet, at)
        if len(packet) < at + 4:
            raise Malformed("a question is cut off")
        kind, group = struct.unpack("!HH", packet[at : at + 4])
        at += 4
        if labels == name and group & ~_UNICAST in (_IN, _ANY):
            kinds.add(kind)
            asked += packet[start:at]
    records = [_record(name, each, legacy=legacy) for each in addresses if _wanted(each, kinds)]
    if not records:
        return None
    # A plain resolver wants its number and its question back.
    count = len(kinds) if legacy else 0
    head = struct.pack("!HHHHHH", identity if legacy else 0, _RESPONSE | _AUTHORITATIVE, count, len(records), 0, 0)
    return head + (asked if legacy else b"") + b"".join(records)


def _wanted(address: str, kinds: set[int]) -> bool:
    return bool(kinds & {_ANY, _A if ipaddress.ip_address(address).version == 4 else _AAAA})


def _record(name: str, address: str, *, legacy: bool) -> bytes:
    packed = ipaddress.ip_address(address).packed
    kind = _A if len(packed) == 4 else _AAAA
    group, ttl = (_IN, 10) if legacy else (_IN | _FLUSH, TTL)
    return _encoded(name) + struct.pack("!HHIH", kind, group, ttl, len(packed)) + packed


def _encoded(name: str) -> bytes:
    labels = [label.encode() for label in name.split(".")]
    return b"".join(bytes([len(label)]) + label for label in labels) + b"\0"


def _name(packet: bytes, at: int) -> tuple[str, int]:
    """A name in lower case and the place behind it; pointers lead backwards only, so that none leads in a circle."""
    labels: list[str] = []
    behind = 0
    limit = at
    while True:
        if at >= len(packet):
            raise Malformed("a name is cut off")
        length = packet[at]
        if length == 0:
            return ".".join(labels).lower(), behind or at + 1
        if length & 0xC0 == 0xC0:
            if at + 1 >= len(packet):
                raise Malformed("a pointer is cut off")
            behind = behind or at + 2
            at = (length & 0x3F) << 8 | packet[at + 1]
            if at >= limit:
                raise Malformed("a pointer does not lead back")
            limit = at
            continue
        if length & 0xC0:
            raise Malformed("unknown kind of label")
        labels.append(packet[at + 1 : at + 1 + length].decode("utf-8", "replace"))
        at += 1 + length


class Responder:
    """Answers for as long as a step lasts; the sockets are opened anew when the node's addresses have changed."""

    seconds = 0.1
    _WAIT = 0.5

    def __init__(self, seen: Callable[[], view.View | None], say: Say) -> None:
        self._seen = seen
        self._say = say
        self._socket: socket.socket | None = None
        self._at = ""

    def step(self) -> None:
        seen = self._seen()
        if seen is None:
            return
        if (own := seen.me.own(4)) != self._at or self._socket is None:
            self.end()
            if not own:
                return
            self._socket, self._at = _opened(own), own
            self._say(f"mdns: answer for {local_name(seen.me.name)}")
        if select.select([self._socket], [], [], self._WAIT)[0]:
            self._answer(seen.me)

    def _answer(self, me: view.Self) -> None:
        assert self._socket is not None  # noqa: S101 - opened by the step
        packet, asker = self._socket.recvfrom(_LONGEST)
        legacy = asker[1] != PORT
        with contextlib.suppress(Malformed):
            answer = reply(packet, local_name(me.name), me.addresses or (me.address,), legacy=legacy)
            if answer is not None:
                self._socket.sendto(answer, asker if legacy else (GROUP, PORT))

    def end(self) -> None:
        opened, self._socket, self._at = self._socket, None, ""
        if opened is not None:
            opened.close()


def _opened(own: str) -> socket.socket:
    opened = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    try:
        # Others on the node may listen for mDNS as well.
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        opened.bind((GROUP, PORT))
        member = socket.inet_aton(GROUP) + socket.inet_aton(own)
        opened.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, member)
        opened.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, socket.inet_aton(own))
        opened.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_TTL, 255)
    except OSError:
        opened.close()
        raise
    return opened
