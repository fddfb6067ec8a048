"""A node's own name in ``.local``, and nothing else."""

from __future__ import annotations

import ipaddress
import struct
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moorage.network import mdns

A, AAAA, ANY, TXT = 1, 28, 255, 16
NAME = "master-0.local"
ADDRESSES = ("10.0.0.10", "fd00::10")


def query(name: str, kind: int = A, identity: int = 0, group: int = 1) -> bytes:
    """A question, as a resolver would send it."""
    encoded = b"".join(bytes([len(label)]) + label.encode() for label in name.split(".")) + b"\0"
    return struct.pack("!HHHHHH", identity, 0, 1, 0, 0, 0) + encoded + struct.pack("!HH", kind, group)


def answers(packet: bytes) -> Iterator[str]:
    """The addresses in an answer."""
    questions, count = struct.unpack("!HH", packet[4:8])
    at = 12
    for _ in range(questions):
        at = mdns._name(packet, at)[1] + 4
    for _ in range(count):
        _, at = mdns._name(packet, at)
        length = struct.unpack("!H", packet[at + 8 : at + 10])[0]
        yield str(ipaddress.ip_address(packet[at + 10 : at + 10 + length]))
        at += 10 + length
    assert at == len(packet)


@pytest.mark.parametrize(
    ("kind", "expected"), [(A, ["10.0.0.10"]), (AAAA, ["fd00::10"]), (ANY, [*ADDRESSES]), (TXT, None)]
)
@pytest.mark.parametrize("legacy", [False, True])
def test_its_own_name_is_answered(kind: int, expected: list[str] | None, legacy: bool) -> None:
    found = mdns.reply(query("Master-0.LOCAL", kind, 77), NAME, ADDRESSES, legacy=legacy)

    assert (None if found is None else list(answers(found))) == expected
    if found:
        identity, flags, questions = struct.unpack("!HHH", found[:6])
        assert (identity, questions) == ((77, 1) if legacy else (0, 0))
        assert flags & 0x8400 == 0x8400


@pytest.mark.parametrize(
    "packet",
    [
        query("other.local"),
        query("master-0.local.x"),
        query(NAME, group=3),
        query(NAME)[:2] + b"\x84\0" + query(NAME)[4:],
        struct.pack("!HHHHHH", 0, 0, 0, 0, 0, 0),
    ],
    ids=["another", "longer", "another class", "a response", "no question"],
)
def test_what_is_not_asked_of_us_is_not_answered(packet: bytes) -> None:
    assert mdns.reply(packet, NAME, ADDRESSES) is None


def test_a_question_that_wants_a_direct_answer_is_one() -> None:
    assert mdns.reply(query(NAME, A, group=0x8001), NAME, ADDRESSES) is not None


def test_a_pointer_leads_back_and_never_in_a_circle() -> None:
    twice = query(NAME) + b"\xc0\x0c" + struct.pack("!HH", AAAA, 1)
    twice = twice[:4] + struct.pack("!H", 2) + twice[6:]
    assert list(answers(mdns.reply(twice, NAME, ADDRESSES) or b"")) == [*ADDRESSES]

    circle = struct.pack("!HHHHHH", 0, 0, 1, 0, 0, 0) + b"\xc0\x0c\0\1\0\1"
    with pytest.raises(mdns.Malformed):
        mdns.reply(circle, NAME, ADDRESSES)


@given(st.binary(max_size=64))
def test_any_packet_is_answered_or_malformed(tail: bytes) -> None:
    packet = struct.pack("!HHHHHH", 0, 0, 2, 0, 0, 0) + tail
    try:
        mdns.reply(packet, NAME, ADDRESSES)
    except mdns.Malformed:
        pass


@pytest.mark.parametrize("name", ["master-0", "Master-0.harbour.example.com"])
def test_the_name_is_the_first_label(name: str) -> None:
    assert mdns.local_name(name) == NAME
