"""Two controllers on one cluster, and the one that leads is stopped (SIGSTOP) for longer than its lease lasts.

It is stopped with calls under way: one that has looked for an instance and found none, one whose instance is made and
that has not heard of it, and one whose create was checked and made up, and has not arrived. Another leads and does it
all. Then it goes on.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable

import pytest

from tests.kube import calls
from tests.machines import mooring, pier_side

PLAIN = tuple(f"{mooring.INFRA}-worker-{number}" for number in range(3))
#: So often a busy machine may take the lease from a leader before it was stopped.
ATTEMPTS = 3


class Held:
    """Machines whose leader is in the middle of a call, each of which is held by the pier."""

    def __init__(self, shore: mooring.Mooring, attempt: int, tend: Callable[[], None]) -> None:
        pier = shore.pier
        looked, made, self.sent = (f"{mooring.INFRA}-worker-{what}-{attempt}" for what in ("looked", "made", "sent"))
        self.orders = {
            looked: pier.order(pier_side.Call("exists", 1, looked), "done", hold=True),
            made: pier.order(pier_side.Call("create", 1, made), "done", hold=True),
            self.sent: pier.order(pier_side.Call("create", 1, self.sent), "unsent", hold=True),
        }
        self.names = tuple(self.orders)
        shore.add(*self.names)
        until = time.monotonic() + mooring.PATIENCE
        while not all(order.reached.is_set() for order in self.orders.values()):
            tend()
            assert time.monotonic() < until, shore.said()
            time.sleep(0.05)

    def is_by(self, pid: int) -> bool:
        return all(order.pid == pid for order in self.orders.values())

    def release(self) -> None:
        for order in self.orders.values():
            order.release()


@pytest.mark.long
def test_a_leader_that_was_stopped_past_its_lease_makes_no_second_instance(
    moored: Callable[..., mooring.Mooring],
) -> None:
    # Two of one name are refused there, as on oVirt: a create that is on the wire for longer than a lease lasts is
    # beyond the reach of whoever sent it.
    shore = moored(strict=True)
    pier = shore.pier
    with mooring.Pod(shore, "first") as first, mooring.Pod(shore, "second") as second:
        # These are done, and only looked at: no other call is between the leader's asking itself and its being sent.
        shore.add(*PLAIN)
        shore.have("Provisioned", *PLAIN, tend=_tending(first, second))
        leader, other, held = _caught(shore, first, second)
        before = len(pier.calls)
        calls.eventually(lambda: _leads(other), f"{other.name} leads", mooring.PATIENCE)
        shore.have("Provisioned", *held.names, *PLAIN, tend=other.tend)

        stopped = leader.process
        assert stopped is not None
        held.release()
        os.kill(leader.pid, signal.SIGCONT)

        # It knows at once that it leads no longer, and ends, to begin anew as a follower.
        assert stopped.wait(mooring.PATIENCE) != 0
        late = [call for call in pier.calls[before:] if pier.callers[call] == leader.pid]
        assert [call for call in late if call.verb != "exists"] == [], f"{leader.name} acted after its lease"

        everyone = [*held.names, *PLAIN]
        assert {each: pier.made[each] for each in everyone} == dict.fromkeys(everyone, 1)
        assert pier.names() == sorted(everyone)
        # Nobody asked for a second one; what was on the wire is all that had to be refused.
        calls.eventually(lambda: pier.refused[held.sent] == 1, "what was on the wire is refused", mooring.PATIENCE)
        assert {name for name in pier.refused if name in everyone} == {held.sent}
        shore.delete(*everyone)
        shore.have("", tend=other.tend)
    assert pier.names() == []


def _caught(shore: mooring.Mooring, first: mooring.Pod, second: mooring.Pod) -> tuple[mooring.Pod, mooring.Pod, Held]:
    """The leader, stopped in the middle of its calls, the other one, and the calls."""
    for attempt in range(ATTEMPTS):
        held = Held(shore, attempt, _tending(first, second))
        leader, other = (first, second) if held.is_by(first.pid) else (second, first)
        if held.is_by(leader.pid) and leader.leads():
            os.kill(leader.pid, signal.SIGSTOP)
            return leader, other, held
        # The lease went to the other one meanwhile.
        held.release()
        shore.have("Provisioned", *held.names, *PLAIN, tend=_tending(first, second))
        shore.delete(*held.names)
        shore.have("Provisioned", *PLAIN, tend=_tending(first, second))
    raise AssertionError(f"no leader kept its lease for long enough to be stopped: {shore.said()}")


def _leads(pod: mooring.Pod) -> bool:
    pod.tend()
    return pod.leads()


def _tending(*pods: mooring.Pod) -> Callable[[], None]:
    def tend() -> None:
        for pod in pods:
            pod.tend()

    return tend
