"""A machine: switched on, off, over and away at any moment, and what it says of it on its console."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable

import pytest
from aiohttp import web

from moorage.engine import clock as clocks
from moorage.lab import site as sites
from moorage.lab.nodes import instance, roles

IDLE = json.dumps({"ignition": {"version": "3.4.0"}}).encode()


def story(tell: Callable[[sites.Site], Awaitable[None]], speed: float = 1000.0) -> None:
    async def told() -> None:
        site = sites.Site(clocks.Clock(speed))
        await site.start()
        try:
            async with asyncio.timeout(20):
                await tell(site)
        finally:
            await site.stop()

    asyncio.run(told())


async def until(machine: instance.Instance, *states: str) -> None:
    while machine.state not in states:
        await asyncio.sleep(0.005)


async def said(machine: instance.Instance, words: str) -> str:
    """The first line with these words, as soon as it is there."""
    while not (found := [line for line in machine.console if words in line]):
        await asyncio.sleep(0.005)
    return found[0]


def with_file(path: str, content: str) -> bytes:
    file = {"path": path, "mode": 0o644, "contents": {"source": f"data:,{content}"}}
    return json.dumps({"ignition": {"version": "3.4.0"}, "storage": {"files": [file]}}).encode()


def pointing(url: str) -> bytes:
    return json.dumps({"ignition": {"version": "3.4.0", "config": {"merge": [{"source": url}]}}}).encode()


def test_it_boots_in_the_clouds_time_and_keeps_its_disk() -> None:
    async def tell(site: sites.Site) -> None:
        machine = instance.Instance(site, "m", with_file("/etc/motd", "ahoy"))
        assert (machine.state, machine.on, machine.reachable, machine.role) == ("off", False, False, "")
        began = site.clock.now()
        await machine.power_on()
        await machine.power_on()
        assert machine.state == "booting"
        await until(machine, "running")
        assert site.clock.now() - began >= instance.BOOT_SECONDS
        assert machine.reachable
        disk = machine.provisioned
        assert disk is not None
        assert disk.files["/etc/motd"].content == b"ahoy"
        machine.kept["/var/x"] = b"1"

        await machine.reboot()
        assert machine.state == "booting"
        await until(machine, "running")
        assert machine.provisioned is disk  # Ignition runs once
        assert machine.kept == {"/var/x": b"1"}
        assert await said(machine, "login:")
        assert machine.console[0][:4].isdigit()  # the cloud's date opens each line

    story(tell)


def test_power_off_at_any_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    ends: list[str] = []

    async def stay(machine: instance.Instance) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ends.append(machine.name)

    monkeypatch.setattr(roles, "run", stay)

    async def tell(site: sites.Site) -> None:
        machine = instance.Instance(site, "m", IDLE)
        await machine.power_off()  # off already: not a word
        assert machine.console == []
        await machine.power_on()
        await machine.power_off()  # while booting
        assert (machine.state, machine.provisioned) == ("off", None)
        await machine.power_on()
        await until(machine, "running")
        await machine.power_off()
        assert (machine.state, ends) == ("off", ["m"])
        assert [line.partition(" ")[2] for line in machine.console if "power" in line] == ["power off"] * 2

    story(tell)


def test_power_off_while_ignition_tries_again_and_again() -> None:
    async def tell(site: sites.Site) -> None:
        machine = instance.Instance(site, "m", pointing(f"http://{site.allocate()}:1/config"))
        await machine.power_on()
        assert "connection refused" in await said(machine, "GET error")
        assert machine.state == "booting"
        await machine.power_off()
        before = len(machine.console)
        await asyncio.sleep(0.05)  # fifty cloud seconds, in which a machine that is on would try again
        assert len(machine.console) == before

    story(tell)


def test_it_is_cut_off_while_ignition_asks_and_goes_on_when_healed() -> None:
    async def tell(site: sites.Site) -> None:
        async def answer(_: web.BaseRequest) -> web.Response:
            return web.Response(body=with_file("/etc/motd", "ahoy"))

        runner = web.ServerRunner(web.Server(answer))
        await runner.setup()
        server = web.TCPSite(runner, site.allocate(), 0)
        await server.start()
        host, port = runner.addresses[0][:2]
        machine = instance.Instance(site, "m", pointing(f"http://{host}:{port}/config"))
        await machine.partition()
        await machine.power_on()
        assert "i/o timeout" in await said(machine, "GET error")
        assert not machine.to_json()["connected"]

        await machine.heal()
        await until(machine, "running")
        assert machine.provisioned is not None
        assert "/etc/motd" in machine.provisioned.files
        await runner.cleanup()

    story(tell)


def test_a_line_that_is_cut_stays_cut_over_a_reboot() -> None:
    async def tell(site: sites.Site) -> None:
        machine = instance.Instance(site, "m", IDLE)
        await machine.power_on()
        await until(machine, "running")
        await machine.partition()
        assert (machine.state, machine.reachable) == ("running", False)
        await machine.reboot()
        await until(machine, "running")
        assert not machine.reachable
        await machine.heal()
        assert machine.reachable

    story(tell)


def test_bad_user_data_ends_in_emergency_mode_until_another_boot() -> None:
    async def tell(site: sites.Site) -> None:
        machine = instance.Instance(site, "m", b'{"ignition": {"version": "9.9.9"}}')
        await machine.power_on()
        await until(machine, "failed")
        assert "entering emergency mode" in await said(machine, "ignition:")
        assert not machine.on
        machine.user_data = IDLE
        await machine.power_on()
        await until(machine, "running")

    story(tell)


def test_a_defect_of_the_lab_shows_on_the_console_and_closes_the_line(monkeypatch: pytest.MonkeyPatch) -> None:
    async def fail(_: instance.Instance) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(roles, "run", fail)

    async def tell(site: sites.Site) -> None:
        machine = instance.Instance(site, "m", IDLE)
        await machine.power_on()
        await until(machine, "failed")
        assert await said(machine, "the lab has a defect")
        with pytest.raises(OSError, match="down"):
            await machine.wire.request("GET", "http://127.0.0.1:1/")

    story(tell)


@pytest.mark.parametrize("moment", ["off", "booting", "running"])
def test_deleting_it_gives_its_address_back(moment: str) -> None:
    async def tell(site: sites.Site) -> None:
        machine = instance.Instance(site, "m", IDLE)
        if moment != "off":
            await machine.power_on()
            await until(machine, moment)
        await machine.delete()
        await machine.delete()
        assert (machine.state, site.instances, site.instance_at(machine.address)) == ("off", {}, None)
        with pytest.raises(sites.SiteRefused, match="machine m is gone"):
            await machine.power_on()
        successor = instance.Instance(site, "m", IDLE, machine.address)
        await machine.delete()  # of no concern to who came after
        assert site.instances == {"m": successor}
        assert site.instance_at(successor.address) is successor

    story(tell)


def test_orders_that_come_together_are_carried_out_one_by_one() -> None:
    async def tell(site: sites.Site) -> None:
        machine = instance.Instance(site, "m", IDLE)
        await asyncio.gather(machine.power_on(), machine.power_off(), machine.reboot(), machine.power_on())
        await until(machine, "running")
        done = await asyncio.gather(machine.delete(), machine.reboot(), return_exceptions=True)
        assert isinstance(done[1], sites.SiteRefused)
        assert machine.state == "off"

    story(tell)


@pytest.mark.parametrize(
    ("annotations", "role"),
    [
        ('{"machineconfiguration.openshift.io/currentConfig": "rendered-master-0a1b"}', "master"),
        ('{"machineconfiguration.openshift.io/currentConfig": "rendered-big-pool-0a1b"}', "big-pool"),
        ("{}", ""),
        ("[]", ""),
        ("not JSON", ""),
    ],
)
def test_its_role_is_what_its_disk_says(annotations: str, role: str) -> None:
    from urllib import parse

    async def tell(site: sites.Site) -> None:
        path = "/etc/machine-config-daemon/node-annotations.json"
        machine = instance.Instance(site, "m", with_file(path, parse.quote(annotations)))
        await machine.power_on()
        await until(machine, "running")
        assert machine.to_json()["role"] == role

    story(tell)


def test_the_console_forgets_its_oldest_lines() -> None:
    async def tell(site: sites.Site) -> None:
        machine = instance.Instance(site, "m", IDLE)
        for number in range(5000):
            machine.say(f"line {number}")
        assert machine.console[-1].endswith("line 4999")
        assert 1000 <= len(machine.console) <= 2000

    story(tell)


def test_an_address_that_is_taken_is_no_machine() -> None:
    async def tell(site: sites.Site) -> None:
        first = instance.Instance(site, "a", IDLE)
        with pytest.raises(sites.SiteRefused, match="is taken"):
            instance.Instance(site, "b", IDLE, first.address)
        assert list(site.instances) == ["a"]

    story(tell)
