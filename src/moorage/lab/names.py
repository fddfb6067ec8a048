"""The lab's names: zones whose records are put and taken while the lab runs, and the reply to each question.

A name server that guesses would hide a forgotten record, so this one says what an authoritative server says: no such
name, no such type, or that the name is none of its business. Lookups (`Zones`) know nothing of packets; the wire code
below them trusts no byte it reads, and everything it builds or keeps is bounded. `name_server` listens.
"""

from __future__ import annotations

import collections
import dataclasses
import ipaddress
import struct
from collections.abc import Iterator

from moorage import errors

A, CNAME, SOA, TXT, AAAA, OPT, ANY = 1, 5, 6, 16, 28, 41, 255
KINDS = {"A": A, "AAAA": AAAA, "CNAME": CNAME, "TXT": TXT}

NOERROR, FORMERR, SERVFAIL, NXDOMAIN, NOTIMP, REFUSED, BADVERS = 0, 1, 2, 3, 4, 5, 16

DEFAULT_TTL = 300
_NEGATIVE_TTL = 60
_LONGEST_TTL = 2**31 - 1
_LONGEST_CHAIN = 16

_INTERNET, _ANY_CLASS = 1, 255
_RESPONSE, _AUTHORITATIVE, _TRUNCATED, _RECURSION_DESIRED = 0x8000, 0x0400, 0x0200, 0x0100
_PLAIN_UDP, _LARGEST_UDP, _LARGEST = 512, 1232, 65535

# Labels are bytes in lower case, the nearest the root last; a label may hold any byte, a dot among them.
Name = tuple[bytes, ...]


class RecordRefused(errors.MoorageError):
    """A record cannot be held: its zone, name, type or value is wrong."""


@dataclasses.dataclass(frozen=True)
class RecordSet:
    """All records of one type under one name, as DNS providers write them: together."""

    name: str
    kind: str
    values: tuple[str, ...]
    ttl: int = DEFAULT_TTL


@dataclasses.dataclass(frozen=True)
class Answer:
    """One record, ready to be written into a reply."""

    owner: Name
    kind: int
    ttl: int
    data: bytes


@dataclasses.dataclass(frozen=True)
class Reply:
    """What the zones say to one question."""

    code: int
    answers: tuple[Answer, ...] = ()
    authority: tuple[Answer, ...] = ()


@dataclasses.dataclass(frozen=True)
class _Held:
    shown: RecordSet
    ttl: int
    data: tuple[bytes, ...]


def parsed(name: str) -> Name:
    """The labels of a name as people write it; a closing dot changes nothing."""
    try:
        labels = tuple(label.encode("ascii").lower() for label in name.removesuffix(".").split("."))
    except UnicodeEncodeError:
        labels = ()
    if not labels or not all(0 < len(label) < 64 for label in labels) or len(_wire_name(labels)) > 255:
        raise RecordRefused(f"{name!r} is not a name the DNS can hold", remedy="write it in ASCII, as a.b.example.com")
    return labels


class Zones:
    """The zones a server speaks for, and their records. All changes are visible to the next question."""

    def __init__(self) -> None:
        self._zones: dict[Name, int] = {}
        self._sets: dict[Name, dict[int, _Held]] = {}
        # How many record sets are at or below each name: a name with children exists, though it may hold nothing.
        self._population: collections.Counter[Name] = collections.Counter()

    def hold(self, zone: str) -> None:
        """Speak for a zone from now on; holding it twice changes nothing."""
        self._zones.setdefault(parsed(zone), 1)

    def release(self, zone: str) -> None:
        """Speak for a zone no longer, and forget what only it held."""
        self._zones.pop(parsed(zone), None)
        for kept in self.records():
            if self._zone_of(parsed(kept.name)) is None:
                self.take(kept.name, kept.kind)

    def put(self, records: RecordSet) -> None:
        """Write a record set in place of the one that was there."""
        name = parsed(records.name)
        zone = self._zone_of(name)
        if zone is None:
            raise RecordRefused(f"{records.name} lies in no zone held here", remedy="hold its zone first")
        held = _checked(records)
        kind = KINDS[records.kind]
        others = (self._sets.get(name, {}).keys() | ({SOA} if name == zone else set())) - {kind}
        if others and (kind == CNAME or CNAME in others):
            raise RecordRefused(f"{records.name}: a CNAME stands alone under its name", remedy="take the others away")
        if kind not in self._sets.setdefault(name, {}):
            self._populate(name, 1)
        self._sets[name][kind] = held
        self._zones[zone] += 1

    def take(self, name: str, kind: str) -> bool:
        """Take a record set away; False if there was none."""
        labels = parsed(name)
        here = self._sets.get(labels, {})
        if here.pop(KINDS.get(kind, 0), None) is None:
            return False
        if not here:
            del self._sets[labels]
        self._populate(labels, -1)
        if (zone := self._zone_of(labels)) is not None:
            self._zones[zone] += 1
        return True

    def clear(self) -> None:
        """Speak for no zone and hold no record, as in the beginning."""
        for held in (self._zones, self._sets, self._population):
            held.clear()

    def records(self) -> list[RecordSet]:
        """Every record set held, by name."""
        return [held.shown for name in sorted(self._sets) for held in self._sets[name].values()]

    def lookup(self, name: Name, kind: int) -> Reply:
        """Answer one question, following aliases for as long as they stay in our zones."""
        zone = self._zone_of(name)
        if zone is None:
            return Reply(REFUSED)
        answers: list[Answer] = []
        seen: set[Name] = set()
        while zone is not None and name not in seen and len(seen) < _LONGEST_CHAIN:
            seen.add(name)
            source = self._source(name, zone)
            if source is None:
                return Reply(NXDOMAIN, tuple(answers), (self._soa(zone),))
            alias = self._sets.get(source, {}).get(CNAME)
            if alias is None or kind in (CNAME, ANY):
                found = list(self._at(source, name, kind, zone))
                return Reply(NOERROR, (*answers, *found), () if found else (self._soa(zone),))
            answers.append(Answer(name, CNAME, alias.ttl, alias.data[0]))
            name = parsed(alias.shown.values[0])
            zone = self._zone_of(name)
        return Reply(NOERROR, tuple(answers))

    def _at(self, source: Name, owner: Name, kind: int, zone: Name) -> Iterator[Answer]:
        if owner == zone and kind in (SOA, ANY):
            yield self._soa(zone)
        for held_kind, held in self._sets.get(source, {}).items():
            if kind in (held_kind, ANY):
                yield from (Answer(owner, held_kind, held.ttl, data) for data in held.data)

    def _source(self, name: Name, zone: Name) -> Name | None:
        """Where the records for ``name`` are kept: under itself, or under the wildcard that covers it."""
        if name == zone or self._population[name]:
            return name
        for cut in range(1, len(name) - len(zone) + 1):
            encloser = name[cut:]
            # The nearest name that exists decides alone: *.apps says nothing about x.y.apps once y.apps exists.
            if encloser == zone or self._population[encloser]:
                wildcard = (b"*", *encloser)
                return wildcard if wildcard in self._sets else None
        return None

    def _zone_of(self, name: Name) -> Name | None:
        return next((name[cut:] for cut in range(len(name)) if name[cut:] in self._zones), None)

    def _populate(self, name: Name, change: int) -> None:
        for cut in range(len(name)):
            self._population[name[cut:]] += change
            if not self._population[name[cut:]]:
                del self._population[name[cut:]]

    def _soa(self, zone: Name) -> Answer:
        times = struct.pack("!5I", self._zones[zone] % 2**32, 3600, 600, 86400, _NEGATIVE_TTL)
        # A zone may be as long as a name can be, so the makers of its SOA are not named below it.
        data = _wire_name((b"ns", b"invalid")) + _wire_name((b"hostmaster", b"invalid")) + times
        return Answer(zone, SOA, _NEGATIVE_TTL, data)


def _checked(records: RecordSet) -> _Held:
    if records.kind not in KINDS:
        raise RecordRefused(f"{records.name}: no {records.kind} records here", remedy=f"use one of {', '.join(KINDS)}")
    if not records.values or (records.kind == "CNAME" and len(records.values) > 1):
        raise RecordRefused(f"{records.name}: a record set has one value at least, a CNAME just one")
    if not 0 <= records.ttl <= _LONGEST_TTL:
        raise RecordRefused(f"{records.name}: a TTL of {records.ttl} s is out of range")
    try:
        data = tuple(_data(records.kind, value) for value in dict.fromkeys(records.values))
    except ValueError as problem:
        raise RecordRefused(f"{records.name}: {problem}, so it cannot be the value of {records.kind}") from problem
    if sum(len(each) + 12 for each in data) > _LARGEST // 2:
        raise RecordRefused(f"{records.name}: the values are too long for one reply")
    return _Held(records, records.ttl, data)


def _data(kind: str, value: str) -> bytes:
    if kind == "CNAME":
        return _wire_name(parsed(value))
    if kind == "TXT":
        text = value.encode()
        pieces = [text[at : at + 255] for at in range(0, len(text), 255)] or [b""]
        return b"".join(bytes([len(piece)]) + piece for piece in pieces)
    return (ipaddress.IPv4Address(value) if kind == "A" else ipaddress.IPv6Address(value)).packed


def _wire_name(name: Name) -> bytes:
    return b"".join(bytes([len(label)]) + label for label in name) + b"\0"


class _MalformedError(Exception):
    """The bytes are no question."""


@dataclasses.dataclass(frozen=True)
class _Question:
    name: Name
    kind: int
    klass: int
    raw: bytes
    # The room the asker has for a UDP reply, and the version of EDNS it speaks, if it does.
    room: int
    edns: int | None


def respond(packet: bytes, zones: Zones, *, stream: bool = False) -> bytes | None:
    """The reply to one packet, or None where silence is the only safe one."""
    # Two servers that answer each other's replies would never stop.
    if len(packet) < 12 or packet[2] & 0x80:
        return None
    mark, flags = struct.unpack_from("!2H", packet)
    echoed = _RESPONSE | flags & (0x7800 | _RECURSION_DESIRED)
    if flags & 0x7800:
        return struct.pack("!6H", mark, echoed | NOTIMP, 0, 0, 0, 0)
    try:
        question = _question(packet)
    except (_MalformedError, IndexError, struct.error):
        return struct.pack("!6H", mark, echoed | FORMERR, 0, 0, 0, 0)
    return _fitted(mark, echoed, question, _said(question, zones), _LARGEST if stream else question.room)


def _said(question: _Question, zones: Zones) -> Reply:
    if question.edns:
        return Reply(BADVERS)
    return zones.lookup(question.name, question.kind) if question.klass in (_INTERNET, _ANY_CLASS) else Reply(REFUSED)


def _question(packet: bytes) -> _Question:
    questions, answers, authority, additional = struct.unpack_from("!4H", packet, 4)
    if questions != 1 or answers or authority:
        raise _MalformedError
    labels: list[bytes] = []
    at = 12
    while length := packet[at]:
        # Nothing precedes a question that a pointer could point at, and a cut label shows as a missing byte.
        if length > 63 or at + length - 12 > 253:
            raise _MalformedError
        labels.append(packet[at + 1 : at + 1 + length].lower())
        at += 1 + length
    kind, klass = struct.unpack_from("!2H", packet, at + 1)
    end = at + 5
    room, edns = _edns(packet, end) if additional else (_PLAIN_UDP, None)
    return _Question(tuple(labels), kind, klass, packet[12:end], room, edns)


def _edns(packet: bytes, at: int) -> tuple[int, int | None]:
    root, kind, room, _code, version, _flags, length = struct.unpack_from("!BHHBBHH", packet, at)
    if root != 0 or kind != OPT:
        return _PLAIN_UDP, None
    if at + 11 + length > len(packet):
        raise _MalformedError
    return min(max(room, _PLAIN_UDP), _LARGEST_UDP), version


def _fitted(mark: int, flags: int, question: _Question, reply: Reply, room: int) -> bytes:
    flags |= _AUTHORITATIVE if reply.code in (NOERROR, NXDOMAIN) else 0
    whole = _message(mark, flags | reply.code & 15, question, reply)
    if len(whole) <= room:
        return whole
    short = SERVFAIL if room == _LARGEST else _TRUNCATED | reply.code
    return _message(mark, flags | short, question, Reply(reply.code))


def _message(mark: int, flags: int, question: _Question, reply: Reply) -> bytes:
    extra = b""
    if question.edns is not None:
        extra = struct.pack("!BHHBBHH", 0, OPT, _LARGEST_UDP, reply.code >> 4, 0, 0, 0)
    counts = struct.pack("!6H", mark, flags, 1, len(reply.answers), len(reply.authority), 1 if extra else 0)
    records = (_record(each, question.name) for each in (*reply.answers, *reply.authority))
    return counts + question.raw + b"".join(records) + extra


def _record(answer: Answer, asked: Name) -> bytes:
    owner = b"\xc0\x0c" if answer.owner == asked else _wire_name(answer.owner)
    return owner + struct.pack("!2HIH", answer.kind, _INTERNET, answer.ttl, len(answer.data)) + answer.data
