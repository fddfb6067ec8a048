"""Machine controllers on oVirt whose leader is stopped (SIGSTOP) between its own check and the call that it is to send.

No check can see that: the call goes out when another has led for a while and done it all. That it does no harm is owed
to the engine, which has no two VMs of one name, to VMs being removed by their ids, and to controllers that say so when
they have made one for nobody; here it is seen.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator

import pytest

from tests.crash.machine_api import program, station

pytestmark = pytest.mark.needs("kubectl")

FIRST, SECOND = "first", "second"


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Iterator[station.Station]:
    with station.opened(tmp_path_factory.mktemp("station")) as made:
        yield made


@contextlib.contextmanager
def _led(here: station.Station, place: str) -> Iterator[tuple[station.Life, station.Follower]]:
    """A leader that will be stopped at that place, and another who is ready to lead."""
    with station.program() as other:
        leader = here.live(place, program.STOPPED, pod=FIRST, alone=False)
        follower = station.Follower(here, other, SECOND)
        try:
            here.until(lambda: here.holder() == FIRST, f"{FIRST} leads")
            follower.begin()
            yield leader, follower
        finally:
            follower.end()
            leader.kill()
            here.forget_lease()


def _goes_on(leader: station.Life) -> int:
    os.kill(leader.pid, signal.SIGCONT)
    return leader.wait()


def _states(here: station.Station) -> list[str]:
    return [str(each["status"]) for each in here.vms()]


def test_a_create_that_was_held_back_is_refused_when_another_has_made_the_vm(here: station.Station) -> None:
    since = here.last_call()
    with _led(here, "1 POST /vms") as (leader, follower):
        here.scale(1)
        here.until(leader.is_stopped, "the leader is stopped")
        assert here.made(since) == []
        here.until(lambda: here.is_provisioned() and follower.leads(), "the other makes it", follower.tend)
        (vm,) = here.vms()

        assert _goes_on(leader) != 0

        made, late = here.made(since)
        assert made.startswith("2")
        assert late in ("400", "409"), "the one that was held back"
        assert [each["id"] for each in here.vms()] == [vm["id"]]
        assert here.is_provisioned()
        assert here.portrait()["known as"]
        here.scale(0)
        here.until(lambda: not here.machines(), "it is removed", follower.tend)
    assert here.leaks() == []


def test_a_vm_that_was_made_too_late_for_a_machine_that_is_gone_is_removed_by_who_leads(here: station.Station) -> None:
    since = here.last_call()
    with _led(here, "1 POST /vms") as (leader, follower):
        here.scale(1)
        here.until(leader.is_stopped, "the leader is stopped")
        here.scale(0)
        here.until(lambda: not here.machines() and follower.leads(), "its machine is gone", follower.tend)
        assert here.vms() == []

        assert _goes_on(leader) != 0

        (made,) = here.made(since)
        assert made.startswith("2"), "the one that was held back"
        here.until(lambda: not here.vms() and not here.machines(), "it is removed", follower.tend)
    assert here.leaks() == []


@pytest.mark.parametrize("call", ["POST /vms/*/stop", "DELETE /vms/*"])
def test_a_removal_that_was_held_back_finds_nothing_and_spares_what_was_made_since(
    call: str, here: station.Station
) -> None:
    here.scale(1)
    life = here.live()
    here.until(here.is_provisioned, "the machine is there")
    life.kill()
    (former,) = here.vms()
    with _led(here, f"{1 if 'stop' in call else 2} {call}") as (leader, follower):
        here.scale(0)
        here.until(leader.is_stopped, "the leader is stopped")
        here.until(lambda: not here.machines() and follower.leads(), "the other removes it", follower.tend)
        here.scale(1)
        here.until(lambda: here.is_provisioned() and _states(here) == ["up"], "another is up", follower.tend)
        (vm,) = here.vms()

        assert _goes_on(leader) != 0

        assert vm["id"] != former["id"]
        assert [(each["id"], each["status"]) for each in here.vms()] == [(vm["id"], "up")]
        here.scale(0)
        here.until(lambda: not here.machines(), "it is removed", follower.tend)
    assert here.leaks() == []
