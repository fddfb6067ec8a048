"""A datacentre of one's own: networks that do not meet, addresses given and taken, names looked up, ports to be had."""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import socket
from collections.abc import Awaitable, Callable, Iterator

import hypothesis
import pytest
from hypothesis import strategies

from moorage import lab
from moorage.engine import clock as clocks
from moorage.lab import balancer, faults, names
from moorage.lab import site as sites
from moorage.lab.nodes import instance


def story(tell: Callable[[sites.Site], Awaitable[None]]) -> None:
    async def told() -> None:
        site = sites.Site(clocks.Clock(1000))
        await site.start()
        try:
            await tell(site)
        finally:
            await site.stop()

    asyncio.run(told())


@contextlib.contextmanager
def listening(address: str, port: int = 0) -> Iterator[int]:
    with socket.create_server((address, port)) as server:
        yield int(server.getsockname()[1])


def test_two_sites_have_networks_of_their_own() -> None:
    async def tell(site: sites.Site) -> None:
        other = sites.Site(clocks.Clock(1000))
        await other.start()
        try:
            assert not site.network.overlaps(other.network)
            assert site.allocate() != other.allocate()
        finally:
            await other.stop()

    story(tell)


def test_a_network_is_free_again_after_its_site(monkeypatch: pytest.MonkeyPatch) -> None:
    async def tell(site: sites.Site) -> None:
        monkeypatch.setattr(sites, "_SECOND_OCTETS", [site.network.network_address.packed[1]])
        other = sites.Site(clocks.Clock())
        with pytest.raises(sites.SiteRefused, match="every loopback network is taken"):
            await other.start()
        await site.stop()
        await other.start()
        assert other.network == site.network
        await other.stop()

    story(tell)


def test_addresses_are_given_once_and_come_back() -> None:
    async def tell(site: sites.Site) -> None:
        first = site.allocate()
        asked = site.allocate(str(ipaddress.ip_address(first) + 1))
        third = site.allocate()

        assert len({first, asked, third}) == 3
        assert ipaddress.ip_address(asked) in site.networks[sites.DEFAULT_NETWORK]
        with pytest.raises(sites.SiteRefused, match=f"{asked} is taken"):
            site.allocate(asked)
        site.release(asked)
        assert site.allocate() == asked

    story(tell)


@pytest.mark.parametrize(
    ("address", "words"),
    [("10.0.0.1", "not an address of the lab"), ("127.0.0.1", "not in that network"), ("seven", "not an address")],
)
def test_addresses_from_elsewhere_are_refused(address: str, words: str) -> None:
    async def tell(site: sites.Site) -> None:
        with pytest.raises((sites.SiteRefused, lab.NotInLab), match=words) as refused:
            site.allocate(address)
        assert refused.value.remedy

    story(tell)


def test_the_sites_own_addresses_are_not_given_away() -> None:
    async def tell(site: sites.Site) -> None:
        with pytest.raises(sites.SiteRefused, match="is taken"):
            site.allocate(site.nameserver.host)

    story(tell)


def test_a_network_can_be_full(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sites, "_NETWORK_PREFIX", 23)

    async def tell(site: sites.Site) -> None:
        given = [site.allocate() for _ in range(254)]

        assert len(set(given)) == 254
        assert not [each for each in given if each.rpartition(".")[2] in ("0", "255")]
        with pytest.raises(sites.SiteRefused, match="no address is free"):
            site.allocate()

    story(tell)


def test_networks_are_cut_out_of_the_site_and_given_back() -> None:
    async def tell(site: sites.Site) -> None:
        green = site.add_network("green")
        assert green.subnet_of(site.network)
        assert site.add_network("green") == green
        assert not green.overlaps(site.networks[sites.DEFAULT_NETWORK])

        address = site.allocate(network="green")
        assert ipaddress.ip_address(address) in green
        with pytest.raises(sites.SiteRefused, match="network green is in use"):
            site.remove_network("green")
        site.release(address)
        site.remove_network("green")
        site.remove_network("green")
        with pytest.raises(sites.SiteRefused, match="there is no network green"):
            site.allocate(network="green")
        with pytest.raises(sites.SiteRefused, match="there for good"):
            site.remove_network(sites.DEFAULT_NETWORK)
        for number in range(15):
            site.add_network(f"n{number}")
        with pytest.raises(sites.SiteRefused, match="no room"):
            site.add_network("one-more")

    story(tell)


def test_what_a_machine_learns_from_names() -> None:
    async def tell(site: sites.Site) -> None:
        site.zones.hold("example.com")
        site.zones.put(names.RecordSet("api.example.com", "A", ("127.16.1.1", "127.16.1.2")))
        site.zones.put(names.RecordSet("www.example.com", "CNAME", ("api.example.com",)))

        assert await site.resolve("127.9.9.9") == ["127.9.9.9"]
        assert await site.resolve("api.example.com") == ["127.16.1.1", "127.16.1.2"]
        assert await site.resolve("www.example.com.") == ["127.16.1.1", "127.16.1.2"]
        at = f"{site.nameserver.host}:{site.nameserver.port}"
        for name, why in {
            "api-int.example.com": "no such host",
            "api.elsewhere.org": "server misbehaving",
            "not..a.name": "no such host",
        }.items():
            with pytest.raises(sites.Unresolved) as refused:
                await site.resolve(name)
            assert str(refused.value) == f"lookup {name} on {at}: {why}"

    story(tell)


def test_quotas() -> None:
    quotas = sites.Quotas()
    quotas.set({"machines": 2, "records": 0})

    assert quotas.exceeded("machines", 1) == ""
    assert quotas.exceeded("machines", 2) == "quota exceeded for machines: 2 of 2 used, 1 more wanted"
    assert quotas.exceeded("machines", 0, 3)
    assert quotas.exceeded("balancers", 10**6) == ""
    for bad in (-1, True, "3", 1.5):
        with pytest.raises(sites.SiteRefused, match="quota machines"):
            quotas.set({"records": 5, "machines": bad})  # type: ignore[dict-item]
    assert quotas.limits == {"machines": 2, "records": 0}  # all of it, or nothing
    quotas.set({"machines": None, "unknown": None})
    assert quotas.limits == {"records": 0}


def test_clearing_leaves_an_empty_site_that_goes_on() -> None:
    async def tell(site: sites.Site) -> None:
        machine = instance.Instance(site, "m", b"{}")
        await machine.power_on()
        site.add_network("green")
        site.zones.hold("example.com")
        site.zones.put(names.RecordSet("a.example.com", "A", ("127.0.0.9",)))
        site.balancer.add_pool("p", balancer.Check())
        await site.balancer.add_listener(site.allocate(), 0, "p")
        site.quotas.set({"machines": 1})
        site.faults.add(faults.Rule("drop"))

        await site.clear()

        assert (site.instances, site.zones.records(), site.balancer.listeners()) == ({}, [], [])
        assert (site.quotas.limits, site.faults.to_json(), list(site.networks)) == ({}, [], [sites.DEFAULT_NETWORK])
        assert site.instance_at(machine.address) is None
        with pytest.raises(sites.Unresolved, match="misbehaving"):  # its zone is gone too
            await site.resolve("a.example.com")
        again = instance.Instance(site, "m", b"{}", machine.address)
        assert site.instance_at(machine.address) is again

    story(tell)


def test_a_port_that_somebody_holds_everywhere_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    with listening("0.0.0.0") as port:  # noqa: S104 - that is the story
        monkeypatch.setattr(sites, "_CLUSTER_PORTS", (port,))

        async def tell() -> None:
            site = sites.Site(clocks.Clock())
            with pytest.raises(sites.SiteRefused, match=f"port {port} is taken on every address") as refused:
                await site.start()
            assert f"sport = {port}" in refused.value.remedy

        asyncio.run(tell())


def test_ports_below_1024_move_where_they_may_not_be_had(monkeypatch: pytest.MonkeyPatch) -> None:
    honest = sites._may_listen
    monkeypatch.setattr(sites, "_may_listen", lambda address, port: port >= 1024 and honest(address, port))

    async def tell(site: sites.Site) -> None:
        assert not site.privileged
        assert [site.port(number) for number in (80, 443, 1023, 1024, 6443)] == [10080, 10443, 11023, 1024, 6443]

    story(tell)


@pytest.mark.needs("root")
def test_ports_below_1024_are_where_they_are_for_root() -> None:
    async def tell(site: sites.Site) -> None:
        assert site.privileged
        assert site.port(443) == 443

    story(tell)


@hypothesis.settings(max_examples=30, deadline=None)
@hypothesis.given(strategies.lists(strategies.integers(min_value=0, max_value=5), max_size=40))
def test_no_two_machines_ever_share_an_address(steps: list[int]) -> None:
    async def tell(site: sites.Site) -> None:
        held: list[str] = []
        for step in steps:
            if step < 3 or not held:
                held.append(site.allocate())
            else:
                site.release(held.pop(step % len(held)))
            assert len(set(held)) == len(held)

    story(tell)
