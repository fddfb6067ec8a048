"""Virtual addresses: who of several machines with keepalived is reached, over real sockets."""

from __future__ import annotations

import asyncio

import pytest

from moorage.lab import site as sites
from moorage.lab.nodes import instance, keepalived_conf, vip, vrrp
from tests.unit.lab.nodes.vip_world import (
    API,
    PORT,
    SPEED,
    TRACK,
    Scene,
    conf,
    console,
    keepalived,
    script,
    story,
    until,
)

# --- elections ---------------------------------------------------------------------------------------------------


def test_the_highest_priority_holds_it_and_the_next_takes_over() -> None:
    async def tell(scene: Scene) -> None:
        machines = [
            await scene.machine(f"m{number}", keepalived(conf(scene.address, 40 + number))) for number in range(3)
        ]
        await scene.answered_by("m2")

        await machines[2].power_off()
        assert await scene.asked() == ""
        await scene.answered_by("m1")

        await machines[1].partition()
        await scene.answered_by("m0")

        await machines[1].heal()
        await scene.answered_by("m1")
        assert "Entering FAULT STATE" in console(machines[1])

    story(tell)


def test_a_holder_is_missed_only_after_three_adverts_and_the_skew() -> None:
    async def tell(scene: Scene) -> None:
        await scene.machine("low", keepalived(conf(scene.address, 64, "advert_int 20")))
        high = await scene.machine("high", keepalived(conf(scene.address, 65, "advert_int 20")))
        await scene.held_by("high")

        await high.power_off()
        (left,) = vrrp.link(scene.site)._members
        last_advert = left.heard
        await scene.held_by("low")

        assert 75 <= scene.site.clock.now() - last_advert < 4 * 75

    story(tell)


@pytest.mark.parametrize(
    ("advert", "priority", "patience"),
    [(20.0, 64, 3 * 20 + 15), (20.0, 192, 3 * 20 + 5), (0.01, 254, vrrp._FASTEST_TAKE_OVER * SPEED)],
)
def test_how_long_silence_is_borne(advert: float, priority: int, patience: float) -> None:
    async def tell(scene: Scene) -> None:
        router = keepalived_conf.Instance("API", 51, (scene.address,), advert_interval=advert)
        machine = scene.idle({})

        assert vrrp.Member(machine, vip.Node(machine), router, lambda: priority).patience == patience

    story(tell)


def test_between_equals_the_higher_address_decides() -> None:
    async def tell(scene: Scene) -> None:
        first = await scene.machine("first", keepalived(conf(scene.address, 50, "advert_int 30")))
        second = await scene.machine("second", keepalived(conf(scene.address, 50, "advert_int 30")))
        assert first.address < second.address
        # Both have lost patience in the same moment.
        link = vrrp.link(scene.site)
        await until(lambda: len(link._members) == 2)
        for member in link._members:
            member.state = vrrp.MASTER
        link._step()

        assert [member.state for member in link._members] == [vrrp.BACKUP, vrrp.MASTER]
        await scene.answered_by("second")

    story(tell)


def test_who_does_not_preempt_waits_until_the_holder_is_gone() -> None:
    async def tell(scene: Scene) -> None:
        low = await scene.machine("low", keepalived(conf(scene.address, 40)))
        await scene.held_by("low")
        high = await scene.machine("high", keepalived(conf(scene.address, 90, "nopreempt")))
        await until(lambda: "Entering BACKUP STATE (priority 90)" in console(high))
        await asyncio.sleep(3 * vrrp._FASTEST_TAKE_OVER)
        assert scene.holder() == "low"

        await low.power_off()
        await scene.held_by("high")

    story(tell)


def test_nobody_holds_it_and_nothing_listens_and_the_address_is_kept() -> None:
    async def tell(scene: Scene) -> None:
        machine = await scene.machine("only", keepalived(conf(scene.address, 40)))
        await scene.answered_by("only")
        with pytest.raises(sites.SiteRefused, match="is taken"):
            scene.site.allocate(scene.address)

        await machine.partition()
        await until(lambda: scene.holder() == "")
        assert await scene.asked() == ""

        await machine.delete()
        assert scene.site.allocate(scene.address) == scene.address

    story(tell)


def test_only_what_the_holder_serves_can_be_reached() -> None:
    async def tell(scene: Scene) -> None:
        machine = await scene.machine("only", keepalived(conf(scene.address, 40)))
        await scene.answered_by("only")
        assert await scene.asked(PORT + 1) == ""

        await machine.wire.unserve("web")
        await scene.serve(machine, PORT + 1)
        await scene.answered_by("only", PORT + 1)
        assert await scene.asked(PORT) == ""

    story(tell)


def test_an_address_of_another_machine_is_refused() -> None:
    async def tell(scene: Scene) -> None:
        other = instance.Instance(scene.site, "other", b"", scene.address)
        machine = await scene.machine("only", keepalived(conf(scene.address, 40)))
        await until(lambda: f"{scene.address} cannot be had" in console(machine))

        assert await scene.asked() == ""
        assert other.address == scene.address

    story(tell)


# --- split brain -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "other",
    [
        {"router": 52},
        {"password": "another"},
        {"lines": ("unicast_peer {\n127.0.0.77\n}",)},
    ],
)
def test_who_does_not_hear_the_other_holds_it_too(other: dict[str, object]) -> None:
    async def tell(scene: Scene) -> None:
        lines = other.get("lines", ())
        apart = {key: value for key, value in other.items() if key != "lines"}
        lower = await scene.machine("lower", keepalived(conf(scene.address, 40)))
        higher = await scene.machine("higher", keepalived(conf(scene.address, 90, *lines, **apart)))  # type: ignore
        for machine in (lower, higher):
            await until(lambda machine=machine: "split brain" in console(machine))  # type: ignore[misc]

        await scene.answered_by("lower")
        assert f"{scene.address} is held by lower" in console(higher)

    story(tell)


def test_peers_that_name_each_other_are_one_router() -> None:
    async def tell(scene: Scene) -> None:
        network_ = scene.site.networks[sites.DEFAULT_NETWORK]
        addresses = [str(network_[257]), str(network_[258])]
        for name, priority, peer in (("one", 40, addresses[1]), ("two", 90, addresses[0])):
            await scene.machine(name, keepalived(conf(scene.address, priority, f"unicast_peer {{\n{peer}\n}}")))
        await scene.answered_by("two")

        assert [scene.site.instances[name].address for name in ("one", "two")] == addresses
        assert "split brain" not in console(scene.site.instances["one"])

    story(tell)


# --- track scripts -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("weight", "base"), [(30, 30), (-30, 60), (0, 60)])
def test_a_script_that_fails_moves_it(weight: int, base: int) -> None:
    async def tell(scene: Scene) -> None:
        asks = script(f"/usr/bin/curl -fs http://localhost:{PORT}/readyz", weight)
        await scene.machine("tracked", keepalived(conf(scene.address, base, TRACK, head=asks)))
        await scene.machine("steady", keepalived(conf(scene.address, 50)))
        await scene.held_by("tracked")

        scene.webs["tracked"].status = 503
        await scene.held_by("steady")

        scene.webs["tracked"].status = 200
        await scene.held_by("tracked")

    story(tell)


# --- hand-over ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("monitor", [True, False])
def test_the_bootstrap_keeps_it_until_its_api_has_been_there_and_is_gone(monitor: bool) -> None:
    async def tell(scene: Scene) -> None:
        asks = script(f"/usr/bin/curl -kfs https://localhost:{API}/readyz", 28)
        contents = keepalived(conf(scene.address, 70), monitor=monitor)
        bootstrap = await scene.machine("bootstrap", contents, "bootkube.service", tls=True)
        await scene.machine("m", keepalived(conf(scene.address, 40, TRACK, head=asks)), port=API, tls=True)
        await scene.held_by("bootstrap")
        # No API yet: that is no reason to stop, however long it lasts.
        await asyncio.sleep(7 * vip._FASTEST_LOOK)
        assert scene.holder() == "bootstrap"

        await scene.serve(bootstrap, API, tls=True)
        await scene.answered_by("bootstrap", API, tls=True)
        api = scene.webs["bootstrap"]
        if monitor:
            # Who asks for the second time has heard the first answer: the API has been there.
            asked = api.answered
            await until(lambda: api.answered > asked + 1, "nobody looks at the API")
        api.status = 500
        if monitor:
            await scene.answered_by("m", API, tls=True)
            assert "failed 5 checks in a row: stop keepalived" in console(bootstrap)
            scene.webs["bootstrap"].status = 200
            await scene.held_by("bootstrap")
        else:
            await asyncio.sleep(14 * vip._FASTEST_LOOK)
            assert scene.holder() == "bootstrap"

    story(tell)
