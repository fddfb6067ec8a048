"""The name server: what it says about names it holds, lacks and does not know, and that no packet kills it."""

from __future__ import annotations

import asyncio
import ipaddress
import socket
import struct
import subprocess
from collections.abc import Awaitable, Callable
from typing import TypeVar

import hypothesis
import pytest
from hypothesis import strategies

from moorage import lab
from moorage.engine import clock as clocks
from moorage.installer import names as product
from moorage.lab import name_server, names

T = TypeVar("T")

API = "api.harbour.example.com"


def zones(*records: names.RecordSet) -> names.Zones:
    held = names.Zones()
    held.hold("example.com")
    for each in records:
        held.put(each)
    return held


def record(name: str, kind: str, *values: str, ttl: int = 300) -> names.RecordSet:
    return names.RecordSet(name, kind, values, ttl)


def asked(held: names.Zones, name: str, kind: int = names.A) -> tuple[int, list[tuple[str, int, bytes]]]:
    reply = held.lookup(names.parsed(name), kind)
    return reply.code, [(b".".join(each.owner).decode(), each.kind, each.data) for each in reply.answers]


def packed(address: str) -> bytes:
    return ipaddress.ip_address(address).packed


def query(name: str, kind: int = names.A, extra: bytes = b"", mark: int = 7) -> bytes:
    labels = b"".join(bytes([len(label)]) + label.encode() for label in name.split("."))
    return (
        struct.pack("!6H", mark, 0x0100, 1, 0, 0, 1 if extra else 0) + labels + struct.pack("!B2H", 0, kind, 1) + extra
    )


def edns(room: int, version: int = 0) -> bytes:
    return struct.pack("!BHHBBHH", 0, 41, room, 0, version, 0, 0)


def replied(packet: bytes, held: names.Zones, *, stream: bool = False) -> bytes:
    reply = names.respond(packet, held, stream=stream)
    assert reply is not None
    return reply


def flags(reply: bytes) -> int:
    return int.from_bytes(reply[2:4], "big")


def code(reply: bytes) -> int:
    return flags(reply) & 15


def serving(held: names.Zones, story: Callable[[name_server.NameServer], Awaitable[T]], host: str = "127.0.0.1") -> T:
    async def told() -> T:
        async with name_server.NameServer(held, clocks.Clock(), host) as server:
            return await story(server)

    return asyncio.run(told())


def resolved(held: names.Zones, host: str) -> list[str]:
    async def story(server: name_server.NameServer) -> list[str]:
        environ = {product.RESOLVER: f"{server.host}:{server.port}"}
        return await asyncio.to_thread(product.resolve, host, environ, clocks.Clock())

    return serving(held, story, "127.0.0.53")


HELD = (
    record(API, "A", "127.0.0.5", "127.0.0.6"),
    record(API, "AAAA", "2001:db8::5"),
    record("www.example.com", "CNAME", "web.example.com"),
    record("web.example.com", "CNAME", API),
    record("away.example.com", "CNAME", "lb.example.net"),
    record("dangling.example.com", "CNAME", "nothing.example.com"),
    record("round.example.com", "CNAME", "about.example.com"),
    record("about.example.com", "CNAME", "round.example.com"),
    record("*.apps.harbour.example.com", "A", "127.0.0.7"),
    record("oauth.apps.harbour.example.com", "TXT", "here"),
    record("deep.below.apps.harbour.example.com", "A", "127.0.0.8"),
)
WEB = [
    ("www.example.com", names.CNAME, b"\3web\7example\3com\0"),
    ("web.example.com", names.CNAME, b"\3api\7harbour\7example\3com\0"),
]
APP = "console.apps.harbour.example.com"


@pytest.mark.parametrize(
    ("name", "kind", "expected_code", "expected"),
    [
        (API, names.A, names.NOERROR, [(API, names.A, packed("127.0.0.5")), (API, names.A, packed("127.0.0.6"))]),
        (API.upper(), names.AAAA, names.NOERROR, [(API, names.AAAA, packed("2001:db8::5"))]),
        (API, names.TXT, names.NOERROR, []),
        ("harbour.example.com", names.A, names.NOERROR, []),
        ("api-int.harbour.example.com", names.A, names.NXDOMAIN, []),
        ("example.com", names.A, names.NOERROR, []),
        ("example.org", names.A, names.REFUSED, []),
        ("com", names.A, names.REFUSED, []),
        ("notexample.com", names.A, names.REFUSED, []),
        ("www.example.com", names.AAAA, names.NOERROR, [*WEB, (API, names.AAAA, packed("2001:db8::5"))]),
        ("www.example.com", names.TXT, names.NOERROR, WEB),
        ("www.example.com", names.CNAME, names.NOERROR, WEB[:1]),
        ("away.example.com", names.A, names.NOERROR, [("away.example.com", names.CNAME, b"\2lb\7example\3net\0")]),
        (
            "dangling.example.com",
            names.A,
            names.NXDOMAIN,
            [("dangling.example.com", names.CNAME, b"\7nothing\7example\3com\0")],
        ),
        (APP, names.A, names.NOERROR, [(APP, names.A, packed("127.0.0.7"))]),
        (f"a.b.{APP}", names.A, names.NOERROR, [(f"a.b.{APP}", names.A, packed("127.0.0.7"))]),
        (APP, names.AAAA, names.NOERROR, []),
        ("apps.harbour.example.com", names.A, names.NOERROR, []),
        ("oauth.apps.harbour.example.com", names.A, names.NOERROR, []),
        ("x.below.apps.harbour.example.com", names.A, names.NXDOMAIN, []),
    ],
)
def test_what_the_zones_say(name: str, kind: int, expected_code: int, expected: list[tuple[str, int, bytes]]) -> None:
    assert asked(zones(*HELD), name, kind) == (expected_code, expected)


def test_aliases_in_a_circle_are_told_once_each() -> None:
    said, answers = asked(zones(*HELD), "round.example.com")

    assert (said, [owner for owner, _, _ in answers]) == (names.NOERROR, ["round.example.com", "about.example.com"])


def test_a_negative_answer_carries_the_soa_of_its_zone() -> None:
    reply = zones().lookup(names.parsed("nothing.example.com"), names.A)

    assert [(each.owner, each.kind) for each in reply.authority] == [((b"example", b"com"), names.SOA)]


def test_records_come_and_go_while_names_are_asked_for() -> None:
    held = zones()
    before = asked(held, API)
    held.put(record(API, "A", "127.0.0.5"))
    held.put(record(API, "A", "127.0.0.9"))
    during = asked(held, API)
    taken = (held.take(API, "A"), held.take(API, "A"))

    assert before == asked(held, API) == (names.NXDOMAIN, [])
    assert during == (names.NOERROR, [(API, names.A, packed("127.0.0.9"))])
    assert taken == (True, False)
    assert held.records() == []
    assert asked(held, "harbour.example.com") == (names.NXDOMAIN, [])


def test_a_zone_released_takes_its_records_along() -> None:
    held = zones(record(API, "A", "127.0.0.5"))
    held.hold("example.net")
    held.put(record("www.example.net", "A", "127.0.0.6"))

    held.release("example.com")

    assert asked(held, API) == (names.REFUSED, [])
    assert [each.name for each in held.records()] == ["www.example.net"]


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (record("www.example.org", "A", "127.0.0.1"), "no zone"),
        (record(API, "MX", "127.0.0.1"), "no MX records"),
        (record(API, "A", "::1"), "value of A"),
        (record(API, "AAAA", "127.0.0.1"), "value of AAAA"),
        (record(API, "A"), "one value"),
        (record("w.example.com", "CNAME", "a.example.com", "b.example.com"), "one value"),
        (record(API, "CNAME", "a.example.com"), "stands alone"),
        (record("alias.example.com", "TXT", "x"), "stands alone"),
        (record("example.com", "CNAME", "a.example.com"), "stands alone"),
        (record(API, "A", "127.0.0.1", ttl=-1), "TTL"),
        (record(f"{'x' * 64}.example.com", "A", "127.0.0.1"), "not a name"),
        (record("a..example.com", "A", "127.0.0.1"), "not a name"),
        (record(f"{'x.' * 130}example.com", "A", "127.0.0.1"), "not a name"),
        (record("hafen-ä.example.com", "A", "127.0.0.1"), "not a name"),
        (record("long.example.com", "TXT", "x" * 40_000), "too long"),
    ],
)
def test_a_wrong_record_is_refused_and_changes_nothing(wrong: names.RecordSet, words: str) -> None:
    held = zones(record(API, "A", "127.0.0.5"), record("alias.example.com", "CNAME", API))
    before = held.records()

    with pytest.raises(names.RecordRefused, match=words):
        held.put(wrong)

    assert held.records() == before


def test_ttls_and_texts_are_written_as_given() -> None:
    held = zones(record("txt.example.com", "TXT", "y" * 300, ttl=42))

    reply = replied(query("txt.example.com", names.TXT), held)

    owner, kind, klass, ttl, length = struct.unpack_from("!3HIH", reply, len(query("txt.example.com")))
    assert (owner, kind, klass, ttl, length) == (0xC00C, names.TXT, 1, 42, 302)
    assert reply.endswith(b"\xff" + b"y" * 255 + b"\x2d" + b"y" * 45)


def test_the_question_comes_back_in_the_case_it_was_asked_in() -> None:
    packet = query("aPi.HarBour.example.com")

    assert replied(packet, zones(*HELD))[12 : len(packet)] == packet[12:]


@pytest.mark.parametrize(
    ("room", "stream", "truncated"),
    [(None, False, True), (1232, False, False), (100, False, True), (None, True, False)],
    ids=["plain UDP", "room by EDNS", "too little room", "TCP"],
)
def test_what_does_not_fit_is_marked_as_truncated(room: int | None, stream: bool, truncated: bool) -> None:
    held = zones(record(API, "A", *(f"127.0.1.{last}" for last in range(60))))
    extra = b"" if room is None else edns(room)

    reply = replied(query(API, extra=extra), held, stream=stream)

    assert bool(flags(reply) & 0x0200) is truncated
    assert int.from_bytes(reply[6:8], "big") == (0 if truncated else 60)
    assert len(reply) <= 512 or not truncated


@pytest.mark.parametrize(
    ("packet", "expected"),
    [
        (query(API)[:-1], names.FORMERR),
        (query(API)[:20], names.FORMERR),
        (query(API)[:12], names.FORMERR),
        (struct.pack("!6H", 7, 0, 1, 0, 0, 0) + b"\xc0\x0c\0\1\0\1", names.FORMERR),
        (struct.pack("!6H", 7, 0, 2, 0, 0, 0) + query(API)[12:] * 2, names.FORMERR),
        (struct.pack("!6H", 7, 0, 1, 0, 0, 0) + b"\1x" * 128 + b"\0\0\1\0\1", names.FORMERR),
        (query(API, extra=edns(1232)[:-3]), names.FORMERR),
        (struct.pack("!6H", 7, 0x2800, 1, 0, 0, 0) + query(API)[12:], names.NOTIMP),
        (query(API)[:-1] + b"\3", names.REFUSED),
    ],
    ids=["cut class", "cut name", "no question", "pointer", "two", "long name", "cut EDNS", "update", "chaos"],
)
def test_what_is_no_question_is_answered_with_its_fault(packet: bytes, expected: int) -> None:
    reply = replied(packet, zones(*HELD))

    assert (reply[:2], code(reply)) == (packet[:2], expected)


def test_an_unknown_version_of_edns_is_told_so() -> None:
    reply = replied(query(API, extra=edns(1232, version=1)), zones(*HELD))

    assert (code(reply), reply[-11:]) == (0, struct.pack("!BHHBBHH", 0, 41, 1232, 1, 0, 0, 0))


@pytest.mark.parametrize("packet", [b"", b"\0" * 11, query(API)[:2] + b"\x81\0" + query(API)[4:]])
def test_what_may_not_be_answered_is_dropped(packet: bytes) -> None:
    assert names.respond(packet, zones(*HELD)) is None


@hypothesis.given(strategies.binary(max_size=600), strategies.booleans())
def test_no_bytes_upset_the_wire_code(packet: bytes, stream: bool) -> None:
    reply = names.respond(packet, zones(*HELD), stream=stream)

    assert reply is None or (reply[:2] == packet[:2] and reply[2] & 0x80)


@hypothesis.given(strategies.binary(max_size=80), strategies.sampled_from([12, 20, 37]))
def test_no_bytes_behind_a_sound_beginning_upset_it(tail: bytes, cut: int) -> None:
    packet = query(API, extra=edns(1232))[:cut] + tail

    assert replied(packet, zones(*HELD))[:2] == packet[:2]


def test_a_live_server_outlives_garbage_on_both_protocols() -> None:
    async def story(server: name_server.NameServer) -> tuple[bytes, list[bytes]]:
        def spoil_then_ask() -> tuple[bytes, list[bytes]]:
            where = (server.host, server.port)
            with socket.create_connection(where, timeout=5) as spoiler:
                spoiler.sendall(b"\0\3xyz")
                hung_up = spoiler.recv(10)
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
                sock.settimeout(5)
                for packet in (b"", b"x", b"\xff" * 40, query(API)):
                    sock.sendto(packet, where)
                by_datagram = sock.recv(600)
            with socket.create_connection(where, timeout=5) as sock, sock.makefile("rb") as stream:
                sock.sendall(b"".join(struct.pack("!H", len(query(API))) + query(API, mark=mark) for mark in (1, 2)))
                by_stream = [stream.read(struct.unpack("!H", stream.read(2))[0])[:2] for _ in range(2)]
            return hung_up, [by_datagram[:2], *by_stream]

        return await asyncio.to_thread(spoil_then_ask)

    assert serving(zones(*HELD), story) == (b"", [b"\0\7", b"\0\1", b"\0\2"])


def test_a_stopped_server_hangs_up_and_listens_no_more() -> None:
    async def story() -> tuple[bytes, str]:
        server = name_server.NameServer(zones(), clocks.Clock())
        await server.start()
        reader, writer = await asyncio.open_connection(server.host, server.port)
        writer.write(struct.pack("!H", len(query(API))) + query(API))
        await reader.readexactly(2 + len(query(API)))
        await server.stop()
        rest = await reader.read()
        writer.close()
        try:
            await asyncio.open_connection(server.host, server.port)
        except ConnectionRefusedError:
            return rest[-10:], "refused"
        return rest, "accepted"

    assert asyncio.run(story())[1] == "refused"


def test_it_listens_nowhere_but_in_the_lab() -> None:
    with pytest.raises(lab.NotInLab, match=r"0\.0\.0\.0"):
        name_server.NameServer(zones(), clocks.Clock(), "0.0.0.0")  # noqa: S104


@pytest.mark.parametrize(
    ("host", "addresses"),
    [
        (API, ["127.0.0.5", "127.0.0.6", "2001:db8::5"]),
        ("WWW.example.com", ["127.0.0.5", "127.0.0.6", "2001:db8::5"]),
        (APP, ["127.0.0.7"]),
    ],
)
def test_the_product_resolves_through_it(host: str, addresses: list[str]) -> None:
    assert resolved(zones(*HELD), host) == addresses


def test_the_product_gets_a_long_answer_over_tcp() -> None:
    many = [f"127.0.1.{last}" for last in range(100)]

    assert resolved(zones(record(API, "A", *many)), API) == many


@pytest.mark.parametrize(
    ("host", "problem", "words"),
    [
        ("api-int.harbour.example.com", product.NoSuchName, "no such name"),
        ("oauth.apps.harbour.example.com", product.NoAddress, "no address"),
        ("api.example.org", product.NoAnswer, "REFUSED"),
    ],
)
def test_the_product_tells_the_failures_apart(host: str, problem: type[Exception], words: str) -> None:
    with pytest.raises(problem, match=words):
        resolved(zones(*HELD), host)


@pytest.mark.needs("dig")
@pytest.mark.parametrize("transport", ["+notcp", "+tcp"])
def test_dig_understands_it(transport: str) -> None:
    async def story(server: name_server.NameServer) -> str:
        command = ["dig", f"@{server.host}", "-p", str(server.port), transport, "www.example.com", "A"]
        done = await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True, timeout=30)
        return done.stdout

    said = serving(zones(*HELD), story)

    assert "status: NOERROR" in said
    assert "ANSWER: 4," in said
    assert "malformed" not in said
