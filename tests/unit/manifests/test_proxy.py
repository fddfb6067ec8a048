"""What goes past the proxy: the list must equal the one the cluster's network operator computes later."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moorage.assets import proxy
from moorage.config import model

OWN = {
    "127.0.0.1", "localhost", ".svc", ".cluster.local", "api-int.berth.example.org",
    "10.0.0.0/16", "172.30.0.0/16", "10.128.0.0/14",
}  # fmt: skip


def way_out(no_proxy: str = "") -> model.Proxy:
    return model.Proxy(http_proxy="http://squid.example.org:3128", no_proxy=no_proxy)


def test_without_a_proxy_there_is_nothing_to_exempt(configure, endpoints):
    assert proxy.effective_no_proxy(configure(), endpoints) == ""


def test_a_proxy_of_nothing_but_exceptions_is_none(configure, endpoints):
    config = configure(proxy=model.Proxy(no_proxy="example.com"))

    assert proxy.effective_no_proxy(config, endpoints) == ""


def test_the_clusters_own_names_and_networks_are_exempt(configure, endpoints):
    listed = proxy.effective_no_proxy(configure(proxy=way_out()), endpoints)

    assert set(listed.split(",")) == OWN


def test_https_alone_counts_as_a_proxy(configure, endpoints):
    config = configure(proxy=model.Proxy(https_proxy="http://squid.example.org:3128"))

    assert set(proxy.effective_no_proxy(config, endpoints).split(",")) == OWN


def test_the_users_entries_are_added_without_blanks_and_repetitions(configure, endpoints):
    config = configure(proxy=way_out(" corp.example.com,, localhost ,corp.example.com"))

    listed = proxy.effective_no_proxy(config, endpoints).split(",")

    assert sorted(listed) == sorted(OWN | {"corp.example.com"})


def test_a_platform_may_add_its_own(configure, endpoints):
    listed = proxy.effective_no_proxy(configure(proxy=way_out()), endpoints, ["169.254.169.254"])

    assert set(listed.split(",")) == OWN | {"169.254.169.254"}


@pytest.mark.parametrize("lone", ["*", " * ", "*,*"])
def test_a_lone_star_stands_as_it_is(configure, endpoints, lone):
    assert proxy.effective_no_proxy(configure(proxy=way_out(lone)), endpoints, ["more"]) == "*"


def test_a_machine_network_of_anywhere_is_left_out(configure, endpoints):
    anywhere = model.Networking(machine_network=(model.MachineNetwork(cidr="0.0.0.0/0"),))

    listed = proxy.effective_no_proxy(configure(proxy=way_out(), networking=anywhere), endpoints)

    assert set(listed.split(",")) == OWN - {"10.0.0.0/16"}


def test_dual_stack_networks_are_all_exempt(configure, endpoints):
    networking = model.Networking(
        cluster_network=(model.ClusterNetwork(cidr="10.128.0.0/14"), model.ClusterNetwork(cidr="fd01::/48")),
        machine_network=(model.MachineNetwork(cidr="10.0.0.0/16"), model.MachineNetwork(cidr="fd00::/64")),
        service_network=("172.30.0.0/16", "fd02::/112"),
    )

    listed = proxy.effective_no_proxy(configure(proxy=way_out(), networking=networking), endpoints)

    assert set(listed.split(",")) == OWN | {"fd00::/64", "fd01::/48", "fd02::/112"}


ENTRIES = st.lists(st.text("abc.*/1 ", max_size=6), max_size=6)


@given(entries=ENTRIES)
def test_the_list_is_sorted_unique_and_a_fixed_point(configure, endpoints, entries):
    def effective(no_proxy: str) -> str:
        return proxy.effective_no_proxy(configure(proxy=way_out(no_proxy)), endpoints)

    first = effective(",".join(entries))

    assert first.split(",") == sorted(set(first.split(",")))
    assert effective(first) == first
