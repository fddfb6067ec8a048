"""Names to addresses: through the server that was named, or the system's, with a reason when it fails."""

from __future__ import annotations

import socket

import hypothesis
import pytest
from hypothesis import strategies

from moorage import errors
from moorage.engine import clock as clocks
from moorage.engine import errors as engine_errors
from moorage.installer import names
from tests.unit.installer import fake_cluster
from tests.unit.installer.fake_cluster import AAAA, API, CNAME, A, Zone


class Impatient(clocks.Clock):
    """The world's clock, but for sockets, which are given up at once: what they wait for here never comes."""

    def socket_timeout(self, seconds: float) -> float:
        return 0.1


def resolved(zone: Zone, host: str = API, clock: clocks.Clock | None = None) -> list[str]:
    with fake_cluster.naming(zone) as environ:
        return names.resolve(host, environ, clock or clocks.Clock())


def test_the_named_server_is_asked_for_both_families() -> None:
    zone = Zone([(API, AAAA, "2001:db8::5"), (API, A, "192.0.2.5"), (API, A, "192.0.2.6")])

    assert resolved(zone) == ["192.0.2.5", "192.0.2.6", "2001:db8::5"]


@pytest.mark.parametrize("address", ["192.0.2.7", "2001:db8::7", "[2001:db8::7]"])
def test_an_address_stands_for_itself(address: str) -> None:
    zone = Zone()

    assert resolved(zone, address) == [address.strip("[]")]
    assert zone.asked == []


@pytest.mark.parametrize("whole", [True, False], ids=["in one answer", "asked for again"])
def test_aliases_are_followed(whole: bool) -> None:
    zone = Zone(
        [
            (API, CNAME, "lb.example.com"),
            ("lb.example.com", CNAME, "lb.example.net"),
            ("lb.example.net", A, "192.0.2.8"),
        ],
        whole_answer=whole,
    )

    assert resolved(zone) == ["192.0.2.8"]


@pytest.mark.parametrize("whole", [True, False], ids=["in one answer", "one by one"])
@pytest.mark.parametrize("other", [API, "other.example.com"])
def test_aliases_in_a_circle_are_called_one(other: str, whole: bool) -> None:
    zone = Zone([(API, CNAME, other), (other, CNAME, API)], whole_answer=whole)

    with pytest.raises(names.NoAnswer, match="lead in a circle"):
        resolved(zone)


def test_a_long_answer_is_fetched_over_tcp() -> None:
    zone = Zone([(API, A, f"192.0.2.{number}") for number in range(1, 61)], truncates=True)

    assert len(resolved(zone)) == 60
    assert {by for _, _, by in zone.asked} == {"udp", "tcp"}


def test_a_reply_to_another_question_is_not_taken() -> None:
    zone = Zone([(API, A, "127.0.0.9")], forged_first=True)

    assert resolved(zone) == ["127.0.0.9"]


def test_a_name_that_does_not_exist() -> None:
    with pytest.raises(names.NoSuchName, match=rf"{API} does not resolve: the name server 127.* says there is no such"):
        resolved(Zone())


def test_a_name_without_an_address() -> None:
    with pytest.raises(names.NoAddress, match="knows the name, but no address for it"):
        resolved(Zone([(API, fake_cluster.NS, "ns.example.com")]))


@pytest.mark.parametrize(("code", "word"), [(2, "SERVFAIL"), (5, "REFUSED"), (9, "code 9")])
def test_a_server_that_cannot_or_will_not(code: int, word: str) -> None:
    with pytest.raises(names.NoAnswer, match=f"answers {word}"):
        resolved(Zone(code=code))


def test_a_silent_server() -> None:
    with pytest.raises(names.NoAnswer, match=r"does not answer \(it took too long\)"):
        resolved(Zone(silent_about=(A, AAAA)), clock=Impatient())


def test_silence_about_ipv6_does_not_hide_ipv4() -> None:
    zone = Zone([(API, A, "192.0.2.5")], silent_about=(AAAA,))

    assert resolved(zone, clock=Impatient()) == ["192.0.2.5"]


def test_nobody_at_the_servers_address() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]

    with pytest.raises(names.NoAnswer, match=rf"127\.0\.0\.1:{port} does not answer \(Connection refused\)"):
        names.resolve(API, {"MOORAGE_RESOLVER": f"127.0.0.1:{port}"}, clocks.Clock())


@pytest.mark.parametrize("text", ["127.0.0.1:dns?", "127.0.0.1:0", "127.0.0.1:70000", "[::1", "[::1]x", ":53"])
def test_a_resolver_that_is_no_address(text: str) -> None:
    with pytest.raises(errors.ConfigError, match="MOORAGE_RESOLVER"):
        names.chosen_server({"MOORAGE_RESOLVER": text})


def test_a_resolver_whose_own_name_leads_nowhere(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object, **__: object) -> None:
        raise socket.gaierror(socket.EAI_NONAME, "words of the system")

    monkeypatch.setattr(socket, "getaddrinfo", fails)

    with pytest.raises(errors.ConfigError, match="MOORAGE_RESOLVER"):
        names.chosen_server({"MOORAGE_RESOLVER": "ns.example.com:53"})


@pytest.mark.parametrize(
    ("text", "shown"), [("127.0.0.1", "127.0.0.1:53"), ("[::1]:5353", "[::1]:5353"), ("::1", "[::1]:53")]
)
def test_spellings_of_a_resolver(text: str, shown: str) -> None:
    assert str(names.chosen_server({"MOORAGE_RESOLVER": text})) == shown


@pytest.mark.parametrize("host", ["a..example.com", f"{'a' * 64}.example.com", ".".join(["abcdefg"] * 40)])
def test_what_the_dns_cannot_hold(host: str) -> None:
    with pytest.raises(names.NoSuchName, match="not a name the DNS can hold"):
        resolved(Zone(), host)


def test_without_a_named_server_the_system_answers() -> None:
    assert "127.0.0.1" in names.resolve("localhost", {}, clocks.Clock())


@pytest.mark.parametrize(
    ("errno", "kind"),
    [
        (socket.EAI_NONAME, names.NoSuchName),
        (socket.EAI_NODATA, names.NoAddress),
        (socket.EAI_AGAIN, names.NoAnswer),
    ],
)
def test_the_systems_reasons(errno: int, kind: type[Exception], monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object, **__: object) -> None:
        raise socket.gaierror(errno, "words of the system")

    monkeypatch.setattr(socket, "getaddrinfo", fails)

    with pytest.raises(kind, match=f"{API} does not resolve"):
        names.resolve(API, {}, clocks.Clock())


def test_a_wish_to_stop_is_heard() -> None:
    clock = clocks.Clock()
    clock.request_stop()

    with pytest.raises(engine_errors.Interrupted):
        resolved(Zone([(API, A, "192.0.2.5")]), clock=clock)


@hypothesis.settings(max_examples=200, deadline=None)
@hypothesis.given(strategies.binary(max_size=60))
def test_a_garbled_answer_never_breaks_anything_but_the_answer(garbage: bytes) -> None:
    query = b"\x12\x34" + b"\x01\x00" + b"\0\1" + b"\0" * 6 + b"\x03api\0" + b"\0\1\0\1"
    reply = query[:2] + b"\x81\x80\0\1\0\2\0\0\0\0" + query[12:] + garbage

    try:
        found = names._read(reply, "api", A)
    except (names._UselessReplyError, IndexError, names.struct.error):
        return
    assert isinstance(found, names.Answer)


@pytest.mark.parametrize(
    ("raw", "words"),
    [
        (b"\xc0", "half a message"),
        (b"\x3fabc", "half a message"),
        # The record's owner is a pointer to the pointer itself.
        (bytes([0xC0, 12 + len(API) + 2 + 4]), "with a name that leads in a circle"),
    ],
    ids=["half a pointer", "cut off", "a circle"],
)
def test_a_broken_reply_is_reported_as_one(raw: bytes, words: str) -> None:
    with pytest.raises(names.NoAnswer, match=rf"the name server 127\.0\.0\.1:\d+ answers {words}"):
        resolved(Zone(raw=raw))
