"""Who may carry which address, and who beats whom."""

from __future__ import annotations

import dataclasses
import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moorage.network import checks, keepalived, settings, view
from tests.unit.network import conftest

INFRA_IDS = st.from_regex(r"[a-z][a-z0-9-]{0,20}-[a-z0-9]{5}", fullmatch=True)


@given(INFRA_IDS)
def test_every_router_has_a_number_of_its_own(infra_id: str) -> None:
    numbers = list(keepalived.vrids(infra_id).values())

    assert len(numbers) == len(set(numbers)) == 6
    assert all(1 <= number <= 254 for number in numbers)
    assert len(keepalived.password(infra_id)) == 8


def test_numbers_and_password_are_the_same_for_ever() -> None:
    # Nodes of different versions of this program must find each other.
    assert keepalived.vrids("harbour-x7k2p") == {
        ("API", 4): 51,
        ("API", 6): 114,
        ("DNS", 4): 25,
        ("DNS", 6): 26,
        ("INGRESS", 4): 192,
        ("INGRESS", 6): 100,
    }
    assert keepalived.password("harbour-x7k2p") == "34e0508b"


def priority(base: int, asked: tuple[keepalived.Check, ...], passing: set[str]) -> int:
    return base + sum(check.weight for check in asked if check.name in passing)


def test_a_master_without_an_api_never_beats_one_with_one() -> None:
    names = [check.name for check in keepalived.API_CHECKS]
    results = [set(each) for size in range(len(names) + 1) for each in itertools.combinations(names, size)]
    ranked = {frozenset(each): priority(keepalived.MASTER_PRIORITY, keepalived.API_CHECKS, each) for each in results}

    for one, other in itertools.product(ranked, ranked):
        if checks.API in one and checks.API not in other:
            assert ranked[one] > ranked[other]
        if one >= other and checks.CONFIG in one and checks.CONFIG not in other:
            assert ranked[one] > ranked[other]
    assert max(ranked.values()) < keepalived.BOOTSTRAP_PRIORITY, "the bootstrap keeps the address until it is stopped"


def test_a_master_that_gives_new_nodes_their_config_is_better_than_one_that_balances() -> None:
    weights = {check.name: check.weight for check in keepalived.API_CHECKS}

    assert weights[checks.CONFIG] > weights[checks.BALANCED]


@pytest.mark.parametrize(
    ("role", "kinds"),
    [
        (view.BOOTSTRAP, [("API", 4), ("API", 6), ("DNS", 4)]),
        (view.MASTER, [("API", 4), ("API", 6), ("DNS", 4), ("INGRESS", 4), ("INGRESS", 6)]),
        (view.WORKER, [("INGRESS", 4), ("INGRESS", 6)]),
    ],
)
def test_a_role_carries_its_addresses(
    dual: settings.Settings, seen: view.View, role: str, kinds: list[tuple[str, int]]
) -> None:
    assert [(each.kind, each.version) for each in keepalived.routers(dual, role, seen)] == kinds


def test_peers_are_the_other_nodes_that_may_carry_the_address(dual: settings.Settings, seen: view.View) -> None:
    found = {(each.kind, each.version): each.peers for each in keepalived.routers(dual, view.MASTER, seen)}

    assert found["API", 4] == ("10.0.0.11", "10.0.0.12")
    assert found["API", 6] == ("fd00::11", "fd00::12")
    assert found["INGRESS", 4] == ("10.0.0.11", "10.0.0.12", "10.0.0.20", "10.0.0.21")


def test_peers_are_sorted_as_addresses_so_that_an_order_of_nodes_is_no_change(wanted: settings.Settings) -> None:
    nodes = tuple(view.Node(f"m{n}", view.MASTER, (f"10.0.0.{n}",)) for n in (100, 9, 20))

    (api, _) = keepalived.routers(wanted, view.MASTER, view.View(conftest.ME, nodes))

    assert api.peers == ("10.0.0.9", "10.0.0.20", "10.0.0.100")


def test_a_family_that_the_node_does_not_have_is_left_out(dual: settings.Settings, seen: view.View) -> None:
    me = dataclasses.replace(seen.me, addresses=("10.0.0.10",))

    found = keepalived.routers(dual, view.MASTER, dataclasses.replace(seen, me=me))

    assert {each.version for each in found} == {4}


def test_a_node_without_peers_does_not_fall_back_to_multicast(dual: settings.Settings) -> None:
    text = keepalived.render(dual, view.BOOTSTRAP, view.View(conftest.ME))

    assert text.count("unicast_peer {\n        127.0.0.1\n    }") == 2
    assert text.count("unicast_peer {\n        ::1\n    }") == 1


def test_the_password_is_for_ipv4_alone(dual: settings.Settings, seen: view.View) -> None:
    text = keepalived.render(dual, view.WORKER, seen)
    _, four, six = text.split("vrrp_instance ")

    assert "auth_pass" in four
    assert "10.0.0.6/32" in four
    assert "authentication" not in six
    assert "fd00::6/128" in six


def test_addresses_stay_calm(dual: settings.Settings, seen: view.View) -> None:
    text = keepalived.render(dual, view.MASTER, seen)

    assert "nopreempt" not in text, "a holder whose API died would keep the address"
    assert "state MASTER" not in text, "a node that starts would take the address from its holder"
    assert text.count("state BACKUP") == 5


def test_where_no_router_runs_the_ingress_address_cannot_be() -> None:
    assert {check.name: check.weight for check in keepalived.INGRESS_CHECKS}[checks.ROUTER] == 0
