"""Shared addresses that are not free: what an engine's guests report, and what a knock at the door brings."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from moorage.config import findings
from moorage.engine import clock as clocks
from moorage.engine import secret
from moorage.platforms import contract
from moorage.platforms.ovirt import clashes, credentials
from moorage.platforms.ovirt import client as clients
from moorage.platforms.ovirt import config as sections
from tests.unit.platforms_ovirt import scripted

WANTED = sections.Platform(
    ovirt_cluster_id="c",
    ovirt_storage_domain_id="s",
    api_vips=("10.0.0.5", "fd00::5"),
    ingress_vips=("10.0.0.6",),
    dns_vips=("10.0.0.7",),
)
GUEST = """<vms><vm id="1"><name>intranet</name><reported_devices>
<reported_device><name>lo</name></reported_device>
<reported_device><name>eth0</name><ips><ip><address>{}</address></ip></ips></reported_device>
</reported_devices></vm></vms>"""


@pytest.fixture
def engine() -> Iterator[scripted.Scripted]:
    with scripted.serving(lambda _: None) as script:
        script.answer = script.signing_in(lambda _: scripted.reply("200 OK", "<vms/>"))
        yield script


def found(engine: scripted.Scripted, knocks: dict[tuple[str, int], str] | None = None) -> list[findings.Finding]:
    around = contract.Surroundings({}, clocks.Clock(), lambda _: None)
    who = credentials.Credentials(engine.url, "admin@internal", secret.Secret("correct horse"))
    with clients.Client(around, who) as client:
        answered = knocks or {}
        return list(clashes.addresses(client, WANTED, around, lambda vip, door: answered.get((vip, door), "")))


def test_silence_means_that_they_are_free_and_each_is_asked_for_once(engine: scripted.Scripted) -> None:
    assert found(engine) == []
    assert [call.partition("ip%3D%22%2A")[2].partition("%2A%22")[0] for call in engine.calls] == [
        "10.0.0.5",
        "fd00%3A%3A5",
        "10.0.0.6",
        "10.0.0.7",
    ]


def test_an_address_that_a_guest_reports_is_taken(engine: scripted.Scripted) -> None:
    engine.answer = engine.signing_in(
        lambda got: scripted.reply("200 OK", GUEST.format("fd00:0:0::5") if "fd00" in got.path else "<vms/>")
    )

    (finding,) = found(engine)

    assert finding.field == "platform.ovirt.api_vips[1]"
    assert finding.message == "fd00::5 is not free: VM intranet of this engine has it"
    assert "DHCP" in finding.remedy


def test_an_address_that_only_contains_ours_is_not_ours(engine: scripted.Scripted) -> None:
    engine.answer = engine.signing_in(lambda _: scripted.reply("200 OK", GUEST.format("10.0.0.50")))

    assert found(engine) == []


@pytest.mark.parametrize("words", ["cannot be understood", "[Internal Engine Error]"])
def test_an_engine_that_cannot_search_so_does_not_stop_the_look(words: str, engine: scripted.Scripted) -> None:
    engine.answer = engine.signing_in(lambda _: scripted.fault("400 Bad Request", words))

    assert found(engine) == []


def test_whoever_answers_the_door_is_told_once_per_address(engine: scripted.Scripted) -> None:
    answers = {
        ("10.0.0.6", 443): "somebody answers at port 443",
        ("10.0.0.6", 22): "somebody answers at port 22",
        ("10.0.0.7", 22): "a machine refuses connections to port 22 there",
    }

    assert [(each.field, each.message) for each in found(engine, answers)] == [
        ("platform.ovirt.ingress_vips[0]", "10.0.0.6 is not free: somebody answers at port 443"),
        ("platform.ovirt.dns_vips[0]", "10.0.0.7 is not free: a machine refuses connections to port 22 there"),
    ]


@pytest.mark.parametrize(
    ("number", "address", "says"),
    [
        (111, "192.0.2.1", "a machine refuses connections to port 22 there"),
        (111, "127.9.9.9", ""),
        (113, "192.0.2.1", ""),
        (None, "192.0.2.1", ""),
    ],
)
def test_what_a_knock_tells(number: int | None, address: str, says: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise TimeoutError if number is None else OSError(number, "no")

    monkeypatch.setattr(clashes.socket, "create_connection", refuse)
    knock = clashes.knocker(contract.Surroundings({}, clocks.Clock(), lambda _: None))

    assert knock(address, 22) == says
