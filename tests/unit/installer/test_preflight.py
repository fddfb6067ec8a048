"""The look before the first create: beside the platform, the two names that only the user can write."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from moorage.assets import values
from moorage.config import findings
from moorage.engine import clock as clocks
from moorage.engine import errors
from moorage.installer import preflight
from moorage.platforms import contract, registry
from tests.unit.installer import fake_cluster
from tests.unit.installer.fake_cluster import A, Zone

DOMAIN = "harbour.example.com"
API, CONSOLE = f"api.{DOMAIN}", f"console-openshift-console.apps.{DOMAIN}"
API_VIP, INGRESS_VIP = "192.0.2.10", "192.0.2.11"
RIGHT = [(API, A, API_VIP), (CONSOLE, A, INGRESS_VIP)]
OTHER = findings.Finding("platform", "something of the platform's own")


def cluster(api: tuple[str, ...] = (API_VIP,), ingress: tuple[str, ...] = (INGRESS_VIP,)) -> contract.Cluster:
    points = values.Endpoints(DOMAIN, API, f"api-int.{DOMAIN}", "", api, ingress, ())
    config = SimpleNamespace(platform=SimpleNamespace(name="quay"))
    made = SimpleNamespace(config=config, endpoints=points)
    return cast(contract.Cluster, made)


def seen(zone: Zone, monkeypatch: pytest.MonkeyPatch, wanted: contract.Cluster | None = None) -> list[findings.Finding]:
    platform = SimpleNamespace(inspect=lambda _cluster, _around: contract.Report((OTHER,)))
    monkeypatch.setattr(registry, "preflight", lambda _name: platform)
    with fake_cluster.naming(zone) as environ:
        around = contract.Surroundings(environ, clocks.ManualClock(), lambda _line: None)
        return list(preflight.look(wanted or cluster(), around, patience=60.0).findings)


def test_names_that_lead_to_the_virtual_addresses_are_not_spoken_of(monkeypatch: pytest.MonkeyPatch) -> None:
    assert seen(Zone(list(RIGHT)), monkeypatch) == [OTHER]


@pytest.mark.parametrize(
    ("records", "record", "vip"),
    [(RIGHT[1:], API, API_VIP), (RIGHT[:1], f"*.apps.{DOMAIN}", INGRESS_VIP)],
)
def test_a_record_that_is_missing_is_named_with_where_it_should_lead(
    records: list[Any], record: str, vip: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, found = seen(Zone(list(records)), monkeypatch)

    assert (found.field, found.severity) == ("baseDomain", "warning")
    assert found.message.startswith(f"{record} leads nowhere yet")
    assert found.remedy == f"write the DNS record: {record} to {vip}"


def test_a_record_that_leads_elsewhere_is_told_with_both_addresses(monkeypatch: pytest.MonkeyPatch) -> None:
    _, found = seen(Zone([(API, A, "192.0.2.99"), RIGHT[1]]), monkeypatch)

    assert found.message == f"{API} leads to 192.0.2.99, and not to {API_VIP}, which the nodes will carry"


def test_a_name_server_that_fails_proves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    assert seen(Zone(code=2), monkeypatch) == [OTHER]


def test_without_virtual_addresses_nobody_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    zone = Zone()
    assert seen(zone, monkeypatch, cluster((), ())) == [OTHER]
    assert zone.asked == []


def test_a_look_that_fails_in_passing_is_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    answers: list[contract.Report | Exception] = [errors.Transient("busy"), contract.Report()]

    def inspect(*_: object) -> contract.Report:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    monkeypatch.setattr(registry, "preflight", lambda _name: SimpleNamespace(inspect=inspect))
    around = contract.Surroundings({}, clocks.ManualClock(), lambda _line: None)

    assert preflight.look(cluster((), ()), around, patience=60.0) == contract.Report()
