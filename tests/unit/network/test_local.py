"""Which of the addresses on a node is the node's own."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from moorage.network import local, settings, view
from tests.unit.network import conftest


def link(name: str, *addresses: str, flags: tuple[str, ...] = ("UP",), **more: Any) -> dict[str, Any]:
    found = []
    for each in addresses:
        address, _, prefix = each.partition("/")
        found.append({"local": address, "prefixlen": int(prefix or 24), "scope": "global", **more})
    return {"ifname": name, "flags": list(flags), "addr_info": found}


LO = link("lo", "10.0.0.200/32", flags=("LOOPBACK", "UP"))


@pytest.mark.parametrize(
    ("links", "defaults", "expected"),
    [
        pytest.param([LO, link("ens3", "10.0.0.10")], ["ens3"], ("ens3", "10.0.0.10"), id="the usual"),
        pytest.param([link("ens3", "10.0.0.5/32", "10.0.0.10")], [], ("ens3", "10.0.0.10"), id="with a VIP before it"),
        pytest.param([link("a", "192.0.2.1"), link("b", "10.0.0.10")], ["a"], ("b", "10.0.0.10"), id="by network"),
        pytest.param([link("a", "10.0.0.9"), link("b", "10.0.0.10")], ["b"], ("b", "10.0.0.10"), id="that leads out"),
        pytest.param(
            [link("a", "10.0.0.9"), link("b", "10.0.0.10")], ["b", "a"], ("b", "10.0.0.10"), id="the better route"
        ),
        pytest.param(
            [link("a", "10.0.0.9", deprecated=True), link("b", "10.0.0.10")], ["a"], ("b", "10.0.0.10"), id="old"
        ),
        pytest.param([LO, link("ens3", "192.0.2.1")], ["ens3"], None, id="elsewhere"),
        pytest.param([link("ens3", "10.0.0.5/32")], ["ens3"], None, id="only a VIP"),
        pytest.param([], [], None, id="nothing"),
    ],
)
def test_the_nodes_own_address(links: list[Any], defaults: list[str], expected: tuple[str, str] | None) -> None:
    found = local.choose(conftest.SETTINGS, "n", links, defaults)

    assert (found and (found.interface, found.address)) == expected


def test_both_families_of_the_interface_the_first_network_s_first(dual: settings.Settings) -> None:
    links = [link("ens3", "fd00::10/64", "10.0.0.10")]

    four = local.choose(dual, "n", links, [])
    six = local.choose(dataclasses.replace(dual, machine_networks=("fd00::/64", "10.0.0.0/24")), "n", links, [])

    assert four == view.Self("n", "10.0.0.10", "ens3", 24, ("10.0.0.10", "fd00::10"))
    assert six == view.Self("n", "fd00::10", "ens3", 64, ("fd00::10", "10.0.0.10"))


def test_without_machine_networks_the_way_out_decides(wanted: settings.Settings) -> None:
    anywhere = dataclasses.replace(wanted, machine_networks=())
    links = [link("ovn0", "100.64.0.1"), link("ens3", "192.0.2.7")]

    found = local.choose(anywhere, "n", links, ["ens3"])

    assert found is not None
    assert found.address == "192.0.2.7"
    assert local.choose(anywhere, "n", links, []) is None


def test_virtual_addresses_that_are_here_are_found(wanted: settings.Settings) -> None:
    links = [link("ens3", "10.0.0.10", "10.0.0.6/32")]

    assert local.carried(wanted, links) == [("ens3", "10.0.0.6", 32)]


def test_resolvers_are_those_that_dhcp_gave(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    second.write_text("nameserver 192.0.2.9\n")
    assert local.resolvers([str(first), str(second)]) == ("192.0.2.9",)

    first.write_text(
        "# nameserver 192.0.2.8\nsearch x\nnameserver 192.0.2.1\nnameserver\nnameserver dns\n"
        "nameserver fe80::1%ens3\n nameserver\tfd00::53\nnameserver 192.0.2.1\n"
    )
    assert local.resolvers([str(first), str(second)]) == ("192.0.2.1", "fd00::53")
    assert local.resolvers([]) == ()


def test_a_node_is_called_what_its_kubelet_calls_it() -> None:
    assert local.node_name({"NODE_NAME": "master-0.harbour.example.com"}) == "master-0.harbour.example.com"
    assert local.node_name({}) == local.node_name({}).lower() != ""
