"""Which of the addresses that a guest reports are its own: never a VIP, never by chance, never an empty one."""

from __future__ import annotations

import random

import hypothesis
import pytest
from hypothesis import strategies as st
from ovirtsdk4 import types

from moorage.platforms.ovirt import machine_steps
from tests.unit.platforms_ovirt import engine_place


def reporting(**devices: list[str]) -> types.Vm:
    """A VM whose guest reports these devices."""
    return types.Vm(
        reported_devices=[
            types.ReportedDevice(name=name.replace("_", "-"), ips=[types.Ip(address=each) for each in found])
            for name, found in devices.items()
        ]
    )


@pytest.mark.parametrize(
    ("vm", "others", "expected"),
    [
        (reporting(), (), ()),
        (types.Vm(), (), ()),
        (reporting(eth0=["192.0.2.10"]), (), ("192.0.2.10",)),
        (reporting(ens3=["192.0.2.10"]), (), ("192.0.2.10",)),
        (reporting(ens3=["192.0.2.10"], br_ex=["192.0.2.11"]), (), ("192.0.2.11", "192.0.2.10")),
        (
            reporting(lo=["127.0.0.1"], ovn_k8s_mp0=["10.128.0.2"], cni0=["10.1.0.1"], eth0=["192.0.2.10"]),
            (),
            ("192.0.2.10",),
        ),
        (reporting(eth0=["192.0.2.5", "192.0.2.10"]), ("192.0.2.5",), ("192.0.2.10",)),
        (reporting(eth0=["192.0.2.5"]), ("192.0.2.5",), ()),
        (
            reporting(eth0=["fe80::1", "2001:DB8::0010", "192.0.2.10", "169.254.0.1"]),
            (),
            ("192.0.2.10", "2001:db8::10"),
        ),
        (reporting(eth0=["2001:db8::5", "2001:db8::10"]), ("2001:0db8::0005",), ("2001:db8::10",)),
        (reporting(eth0=["", "nonsense", "192.0.2.10"]), (), ("192.0.2.10",)),
        (reporting(br_ex=["192.0.2.10"], ens3=["192.0.2.10"]), (), ("192.0.2.10",)),
        # What no card of a machine can have, whatever its guest says.
        (reporting(eth0=["127.0.0.1", "127.0.0.53", "::1", "192.0.2.10"]), (), ("192.0.2.10",)),
        (reporting(eth0=["224.0.0.18", "ff02::1", "192.0.2.10"]), (), ("192.0.2.10",)),
        (reporting(eth0=["::ffff:192.0.2.5", "192.0.2.10"]), ("192.0.2.5",), ("192.0.2.10",)),
        (reporting(eth0=["2001:db8::5%eth0", "2001:db8::10%eth0"]), ("2001:db8::5",), ("2001:db8::10",)),
        # Machines in a lab have addresses of this computer.
        (reporting(eth0=["127.16.0.10"]), (), ("127.16.0.10",)),
    ],
)
def test_own_addresses(vm: types.Vm, others: tuple[str, ...], expected: tuple[str, ...]) -> None:
    assert machine_steps.addresses(vm, others) == expected


@hypothesis.given(
    devices=st.dictionaries(
        st.sampled_from(["eth0", "eth1", "ens3", "enp1s0", "br_ex", "lo", "genev_sys"]),
        st.lists(st.ip_addresses(v=4).map(str), max_size=4),
        max_size=5,
    ),
    seed=st.integers(0, 1000),
)
def test_the_order_in_which_a_guest_tells_them_does_not_matter(devices: dict[str, list[str]], seed: int) -> None:
    chance = random.Random(seed)
    shuffled = {
        name: chance.sample(devices[name], len(devices[name])) for name in chance.sample(sorted(devices), len(devices))
    }

    assert machine_steps.addresses(reporting(**devices), ()) == machine_steps.addresses(reporting(**shuffled), ())


@pytest.fixture
def place(place: engine_place.Place) -> engine_place.Place:
    place.tagged()
    return place


def test_a_vm_is_ready_before_its_agent_speaks_and_has_no_address_until_then(place: engine_place.Place) -> None:
    wanted = place.machine()
    place.actuator.create(wanted)

    ready = place.until_ready(wanted)
    assert ready.addresses == ()

    place.until(lambda: bool(place.actuator.exists(wanted).addresses))  # type: ignore[union-attr]
    found = place.actuator.exists(wanted)
    assert found is not None
    assert found.state == "up"
    assert found.addresses == (place.running.site.instances[wanted.name].address,)
