"""Addresses: the rules in a table, and their arithmetic against one done by hand on integers."""

from __future__ import annotations

import ipaddress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moorage.config import model, network_rules, vip_rules
from moorage.platforms.none import config as none

from .conftest import BASE, PULL_SECRET, Check

DUAL = {
    "networking.machineNetwork": [{"cidr": "10.0.0.0/16"}, {"cidr": "fd00::/64"}],
    "networking.clusterNetwork": [{"cidr": "10.128.0.0/14"}, {"cidr": "fd01::/48"}],
    "networking.serviceNetwork": ["172.30.0.0/16", "fd02::/112"],
}
V6 = {
    "networking.machineNetwork": [{"cidr": "fd00::/64"}],
    "networking.clusterNetwork": [{"cidr": "fd01::/48"}],
    "networking.serviceNetwork": ["fd02::/112"],
}
OVN = "networking.ovnKubernetesConfig"
JOIN = f"{OVN}.ipv4.internalJoinSubnet"
MACHINE, SERVICE, CLUSTER = "networking.machineNetwork", "networking.serviceNetwork", "networking.clusterNetwork"


def cluster(cidr: str, prefix: int) -> dict[str, Any]:
    return {CLUSTER: [{"cidr": cidr, "hostPrefix": prefix}]}


@pytest.mark.parametrize(
    ("changes", "field", "severity", "words"),
    [
        ({MACHINE: [{"cidr": "10.0.0.5/16"}]}, f"{MACHINE}[0].cidr", "error", "not the start of a range"),
        ({MACHINE: [{"cidr": "10.0.0.0"}]}, f"{MACHINE}[0].cidr", "error", "has no '/<bits>'"),
        ({MACHINE: [{"cidr": "10.0.0.0/255.255.0.0"}]}, f"{MACHINE}[0].cidr", "error", "not in CIDR notation"),
        ({MACHINE: [{"cidr": "10.0.0.0/33"}]}, f"{MACHINE}[0].cidr", "error", "not a range in CIDR notation"),
        ({MACHINE: [{"cidr": "ten/8"}]}, f"{MACHINE}[0].cidr", "error", "not a range in CIDR notation"),
        ({MACHINE: [{"cidr": "010.0.0.0/16"}]}, f"{MACHINE}[0].cidr", "error", "not a range in CIDR notation"),
        ({MACHINE: [{"cidr": "224.0.0.0/16"}]}, f"{MACHINE}[0].cidr", "error", "multicast"),
        ({MACHINE: [{"cidr": "172.30.128.0/17"}]}, f"{SERVICE}[0]", "error", "overlaps 172.30.128.0/17"),
        ({MACHINE: [{"cidr": "10.0.0.0/8"}]}, f"{CLUSTER}[0].cidr", "error", "overlaps 10.0.0.0/8"),
        (cluster("172.30.0.0/15", 23), f"{CLUSTER}[0].cidr", "error", "overlaps 172.30.0.0/16"),
        (
            {MACHINE: [{"cidr": "10.0.0.0/16"}, {"cidr": "10.0.1.0/24"}]},
            f"{MACHINE}[1].cidr",
            "error",
            "overlaps 10.0.0.0/16",
        ),
        ({MACHINE: [{"cidr": "172.17.4.0/24"}]}, f"{MACHINE}[0].cidr", "warning", "Docker"),
        ({MACHINE: [{"cidr": "127.3.0.0/16"}]}, f"{MACHINE}[0].cidr", "warning", "simulated on this very computer"),
        ({SERVICE: ["127.3.0.0/16"]}, f"{SERVICE}[0]", "error", "every node would reach itself"),
        (cluster("127.128.0.0/14", 23), f"{CLUSTER}[0].cidr", "error", "every node would reach itself"),
        ({MACHINE: [{"cidr": "100.64.3.0/24"}]}, f"{MACHINE}[0].cidr", "error", "100.64.0.0/16"),
        ({JOIN: "100.99.0.0/16", MACHINE: [{"cidr": "100.99.3.0/24"}]}, f"{MACHINE}[0].cidr", "error", "join switch"),
        ({JOIN: "100.99.0.1/16"}, JOIN, "error", "is not the start of a range"),
        ({JOIN: "fd99::/64"}, JOIN, "error", "is not an IPv4 range"),
        ({JOIN: "100.99.0.0/24"}, JOIN, "error", "has addresses for 253 nodes, but"),
        ({JOIN: "100.99.0.0/16", "networking.networkType": "Calico"}, OVN, "error", "networkType is Calico"),
        ({MACHINE: [{"cidr": "100.88.3.0/24"}]}, f"{MACHINE}[0].cidr", "error", "100.88.0.0/16"),
        ({MACHINE: [{"cidr": "169.254.1.0/24"}]}, f"{MACHINE}[0].cidr", "error", "169.254.0.0/17"),
        ({**V6, MACHINE: [{"cidr": "fd98::/120"}]}, f"{MACHINE}[0].cidr", "error", "fd98::/64"),
        ({**V6, MACHINE: [{"cidr": "fd97::/120"}]}, f"{MACHINE}[0].cidr", "error", "fd97::/64"),
        ({**V6, MACHINE: [{"cidr": "fd69::/120"}]}, f"{MACHINE}[0].cidr", "error", "fd69::/112"),
        (cluster("10.128.0.0/14", 13), f"{CLUSTER}[0].hostPrefix", "error", "from 14 to 32"),
        (cluster("10.128.0.0/14", -1), f"{CLUSTER}[0].hostPrefix", "error", "from 14 to 32"),
        (cluster("10.128.0.0/14", 33), f"{CLUSTER}[0].hostPrefix", "error", "from 14 to 32"),
        (cluster("10.128.0.0/14", 31), f"{CLUSTER}[0].hostPrefix", "error", "no address for pods"),
        (cluster("10.128.0.0/14", 25), f"{CLUSTER}[0].hostPrefix", "warning", "125 pods"),
        (cluster("10.128.0.0/21", 23), CLUSTER, "error", "for 4 nodes, but there are 6"),
        (
            {CLUSTER: [{"cidr": "10.128.0.0/16"}, {"cidr": "10.129.0.0/16", "hostPrefix": 24}]},
            f"{CLUSTER}[1].hostPrefix",
            "error",
            "all IPv4 ranges have the same",
        ),
        (
            {**V6, CLUSTER: [{"cidr": "fd01::/48", "hostPrefix": 63}]},
            f"{CLUSTER}[0].hostPrefix",
            "error",
            "IPv6 pods need 64",
        ),
        ({**V6, CLUSTER: [{"cidr": "fd01::/96"}]}, f"{CLUSTER}[0].hostPrefix", "error", "from 96 to 128"),
        ({MACHINE: [{"cidr": "10.0.0.0/29"}]}, MACHINE, "error", "6 IPv4 addresses for 7 machines"),
        ({SERVICE: ["172.0.0.0/11"], MACHINE: [{"cidr": "10.0.0.0/16"}]}, f"{SERVICE}[0]", "error", "too large"),
        ({SERVICE: ["172.30.0.0/29"]}, f"{SERVICE}[0]", "error", "tenth address"),
        ({SERVICE: ["172.30.0.0/25"]}, f"{SERVICE}[0]", "warning", "about a hundred"),
        ({**V6, SERVICE: ["fd02::/64"]}, f"{SERVICE}[0]", "error", "/108 at most"),
        ({SERVICE: ["172.30.0.0/16", "172.31.0.0/16"]}, SERVICE, "error", "has 2 ranges"),
        ({**DUAL, CLUSTER: [{"cidr": "10.128.0.0/14"}]}, CLUSTER, "error", "is IPv4, but"),
        ({**DUAL, MACHINE: [{"cidr": "fd00::/64"}]}, MACHINE, "error", "is IPv6, but"),
        (
            {**DUAL, MACHINE: [{"cidr": "fd00::/64"}, {"cidr": "10.0.0.0/16"}]},
            MACHINE,
            "error",
            "begins with IPv6",
        ),
        ({"networking.networkType": "openshiftsdn"}, "networking.networkType", "error", "was removed"),
        ({"networking.networkType": "Kuryr"}, "networking.networkType", "error", "was removed"),
    ],
)
def test_one_mistake_has_one_finding(
    check: Check, changes: dict[str, Any], field: str, severity: str, words: str
) -> None:
    found = check(changes)

    # The range of /11 reaches into Docker's; nothing else here is wrong twice.
    [finding] = [finding for finding in found if "Docker" not in finding.message or "Docker" in words]
    assert (finding.field, finding.severity) == (field, severity)
    assert words in finding.message


@pytest.mark.parametrize(
    "changes",
    [
        DUAL,
        V6,
        {key: list(reversed(value)) for key, value in DUAL.items()},
        {CLUSTER: [{"cidr": "10.128.0.0/16"}, {"cidr": "10.132.0.0/16"}]},
        {"networking.networkType": "Calico", MACHINE: [{"cidr": "100.64.0.0/16"}]},
        {JOIN: "100.99.0.0/16", MACHINE: [{"cidr": "100.64.0.0/16"}]},
        {"networking.networkType": "ovnkubernetes"},
        cluster("10.128.0.0/14", 24),
        {**cluster("10.128.0.0/21", 23), "compute": [{"name": "worker", "replicas": 1}]},
        {MACHINE: [{"cidr": "10.0.0.0/29"}], "compute": [{"name": "worker", "replicas": 2}]},
    ],
)
def test_what_is_unusual_but_sound_has_no_finding(check: Check, changes: dict[str, Any]) -> None:
    assert check(changes) == []


def test_an_address_that_is_not_the_start_of_its_range_is_corrected(check: Check) -> None:
    [finding] = check({MACHINE: [{"cidr": "10.0.0.5/16"}]})

    assert finding.remedy == "did you mean 10.0.0.0/16?"


# A toy address space of 8 bits at the end of IPv4's: small enough to list every address.
small = st.integers(0, 8).flatmap(
    lambda bits: st.integers(0, 2**bits - 1).map(lambda number: (number << (8 - bits), 8 - bits))
)


def listed(start: int, host_bits: int) -> set[int]:
    return set(range(start, start + 2**host_bits))


def network(start: int, host_bits: int) -> network_rules.Range:
    found = network_rules.parse_cidr(f"10.20.30.{start}/{32 - host_bits}")
    assert found is not None
    return found


@given(small, small)
def test_ranges_overlap_when_they_share_an_address(one: tuple[int, int], other: tuple[int, int]) -> None:
    shared = listed(*one) & listed(*other)

    assert network_rules.overlap(network(*one), network(*other)) == bool(shared)


def test_ranges_of_different_families_never_overlap() -> None:
    assert not network_rules.overlap(ipaddress.ip_network("10.0.0.0/8"), ipaddress.ip_network("::/0"))


@given(st.integers(0, 255), st.integers(0, 8))
def test_a_range_is_canonical_when_its_host_bits_are_zero(last: int, host_bits: int) -> None:
    found = network_rules.parse_cidr(f"10.20.30.{last}/{32 - host_bits}")

    assert (found is not None) == (last % 2**host_bits == 0)


def config(cidr: str, host_prefix: int, vips_network: str = "10.0.0.0/24") -> model.InstallConfig:
    return model.InstallConfig(
        metadata=model.Metadata(name="demo"),
        base_domain=str(BASE["baseDomain"]),
        platform=model.ChosenPlatform(name="none", settings=none.Platform()),
        pull_secret=PULL_SECRET,  # type: ignore[arg-type]
        networking=model.Networking(
            cluster_network=(model.ClusterNetwork(cidr=cidr, host_prefix=host_prefix),),
            machine_network=(model.MachineNetwork(cidr=vips_network),),
        ),
    )


@given(st.integers(8, 30), st.integers(0, 12))
def test_nodes_get_as_many_pieces_as_can_be_cut(prefix: int, more: int) -> None:
    host_prefix = min(prefix + more, 32)
    size, piece = 2 ** (32 - prefix), 2 ** (32 - host_prefix)

    room = network_rules.host_subnets(config(f"16.0.0.0/{prefix}", host_prefix))

    assert room == {4: len(range(0, size, piece))}


@pytest.mark.parametrize(
    ("vips", "unlike", "words"),
    [
        ([], [], ["is required"]),
        (["10.0.0.5"], [], []),
        (["ten"], [], ["'ten' is not an IP address"]),
        (["10.0.1.5"], [], ["10.0.1.5 is outside networking.machineNetwork, 10.0.0.0/24"]),
        (["10.0.0.0"], [], ["the address of the network"]),
        (["10.0.0.255"], [], ["the broadcast address"]),
        (["10.0.0.5"], ["10.0.0.5"], ["is given at other too"]),
        (["172.30.0.5"], [], ["inside networking.serviceNetwork", "outside networking.machineNetwork"]),
        (["10.128.0.5"], [], ["inside networking.clusterNetwork", "outside networking.machineNetwork"]),
        (["10.0.0.5", "10.0.0.6"], [], ["two IPv4 addresses"]),
        (["10.0.0.5", "10.0.0.5"], [], ["the same address twice"]),
        (["fd00::5"], [], ["outside", "begins with IPv6"]),
        (["10.0.0.5", "fd00::5"], [], ["outside", "cluster is IPv4 only"]),
        (["10.0.0.5", "10.0.0.6", "10.0.0.7"], [], ["has 3 addresses"]),
    ],
)
def test_virtual_ips(vips: list[str], unlike: list[str], words: list[str]) -> None:
    found = list(vip_rules.vip_findings("vips", vips, config("10.128.0.0/14", 23), unlike={"other": unlike}))

    assert len(found) == len(words)
    for finding, expected in zip(found, words, strict=True):
        assert expected in finding.message


def test_a_balancer_of_the_users_own_may_have_its_addresses_anywhere() -> None:
    found = vip_rules.vip_findings(
        "vips", ["192.0.2.1"], config("10.128.0.0/14", 23), unlike={"other": ["192.0.2.1"]}, user_managed=True
    )

    assert list(found) == []


def test_a_platforms_own_rules_run_and_have_lines(make: Any, stanzas: Any, ssh_keys: dict[str, str]) -> None:
    from moorage.config import load

    text = make(
        {
            "platform": {"dock": {"password": "x", "apiVIPs": ["192.168.0.5"], "ingressVIPs": ["192.168.0.5"]}},
            "sshKey": ssh_keys["ed25519"],
        }
    )
    [finding] = load.check(text, stanzas)

    assert finding.field == "platform.dock.ingressVIPs[0]"
    assert finding.line == 1 + [line.strip() for line in text.splitlines()].index("ingressVIPs:") + 1
