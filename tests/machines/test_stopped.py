"""Two controllers on one cluster, and the one that leads is stopped (SIGSTOP) for longer than its lease lasts.

It is stopped with calls under way: one that has looked for an instance and found none, one whose instance is made and
that has not heard of it, and one whose create is still on the wire. Another leads and does it all. Then it goes on.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable

from tests.kube import calls
from tests.machines import mooring, pier_side

LOOKED, MADE, SENT = (f"{mooring.INFRA}-worker-{what}" for what in ("looked", "made", "sent"))
PLAIN = tuple(f"{mooring.INFRA}-worker-{number}" for number in range(3))


def _leads(shore: mooring.Mooring, name: str) -> bool:
    return shore.holder().startswith(f"{name}_")


def test_a_leader_that_was_stopped_past_its_lease_makes_no_second_instance(
    moored: Callable[..., mooring.Mooring],
) -> None:
    # Two of one name are refused there, as on oVirt: a create that is on the wire for longer than a lease lasts is
    # beyond the reach of whoever sent it.
    shore = moored(strict=True)
    pier = shore.pier
    held = {
        LOOKED: pier.order(pier_side.Call("exists", 1, LOOKED), "done", hold=True),
        MADE: pier.order(pier_side.Call("create", 1, MADE), "done", hold=True),
        SENT: pier.order(pier_side.Call("create", 1, SENT), "unsent", hold=True),
    }
    with shore.controllers("first") as first, shore.controllers("second") as second:
        calls.eventually(lambda: shore.holder(), "one leads", mooring.PATIENCE)
        leader, name, other = (first, "first", "second") if _leads(shore, "first") else (second, "second", "first")
        # These are done, and only looked at: no other call is between the leader's asking itself and its being sent.
        shore.add(*PLAIN)
        shore.have("Provisioned", *PLAIN)
        shore.add(*held)
        for order in held.values():
            assert order.reached.wait(mooring.PATIENCE), shore.said()
            assert order.pid == leader.pid

        os.kill(leader.pid, signal.SIGSTOP)
        calls.eventually(lambda: _leads(shore, other), f"{other} leads", mooring.PATIENCE)
        shore.have("Provisioned", *held, *PLAIN)
        before = len(pier.calls)
        for order in held.values():
            order.release()
        os.kill(leader.pid, signal.SIGCONT)

        # It knows at once that it leads no longer, and ends, to begin anew as a follower.
        assert leader.wait(mooring.PATIENCE) != 0
        late = [call for call in pier.calls[before:] if pier.callers[call] == leader.pid]
        assert [call for call in late if call.verb != "exists"] == [], f"{name} acted after its lease"
        assert _leads(shore, other)

        everyone = [*held, *PLAIN]
        assert {each: pier.made[each] for each in everyone} == dict.fromkeys(everyone, 1)
        assert pier.names() == sorted(everyone)
        # Nobody asked for a second one; what was on the wire is all that had to be refused.
        assert dict(pier.refused) == {SENT: 1}
        shore.delete(*everyone)
        shore.have("")
    assert pier.names() == []
