"""The election's law: no two ever lead, whatever is lost, late or stopped; and who is well ends up leading."""

from __future__ import annotations

import copy
import threading
from typing import Any, cast

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from moorage.engine import clock as clocks
from moorage.machines.runtime import client as clients
from moorage.machines.runtime import election, errors, kinds, metrics

PATIENCE = 20.0
WELL = ""


class Leases:
    """One Lease, as a server has it; what a call meets is told by ``meets`` (before) and by how long it takes."""

    def __init__(self, clock: clocks.Clock) -> None:
        self.clock = clock
        self.lease: dict[str, Any] | None = None
        self.version = 0
        self.meets: list[tuple[str, float]] = []
        # What others do while the next call is on its way.
        self.meanwhile: list[Any] = []

    def _call(self, act: Any) -> dict[str, Any]:
        fault, seconds = self.meets.pop(0) if self.meets else (WELL, 0.0)
        if isinstance(self.clock, clocks.ManualClock):
            self.clock.advance(seconds)
        if self.meanwhile:
            self.meanwhile.pop()()
        if fault == "refused":
            raise errors.Unavailable("refused")
        found = act()
        if isinstance(self.clock, clocks.ManualClock):
            self.clock.advance(seconds)
        if fault == "lost":
            raise errors.Unavailable("the answer was lost")
        return copy.deepcopy(cast("dict[str, Any]", found))

    def get(self, kind: kinds.Kind, name: str, ns: str) -> dict[str, Any]:
        def act() -> Any:
            if self.lease is None:
                raise errors.NotFound("none")
            return self.lease

        return self._call(act)

    def create(self, kind: kinds.Kind, body: dict[str, Any]) -> dict[str, Any]:
        def act() -> Any:
            if self.lease is not None:
                raise errors.AlreadyExists("exists")
            return self._written(body)

        return self._call(act)

    def replace(self, kind: kinds.Kind, body: dict[str, Any]) -> dict[str, Any]:
        def act() -> Any:
            if self.lease is None or body["metadata"]["resourceVersion"] != self.lease["metadata"]["resourceVersion"]:
                raise errors.Conflict("late")
            return self._written(body)

        return self._call(act)

    def _written(self, body: dict[str, Any]) -> dict[str, Any]:
        self.version += 1
        self.lease = copy.deepcopy(body)
        self.lease["metadata"]["resourceVersion"] = str(self.version)
        return self.lease


def candidate(leases: Leases, name: str, **times: float) -> election.Election:
    client = cast("clients.Client", leases)
    return election.Election(client, "lock", "ns", name, leases.clock, shortest=0.0, **times)


def sure(leading: election.Leading | None) -> bool:
    if leading is None:
        return False
    try:
        leading.check()
    except errors.NotLeader:
        return False
    return True


WEATHER = st.lists(
    st.tuples(st.sampled_from([WELL, WELL, "refused", "lost"]), st.sampled_from([0.0, 0.0, 5.0, 40.0])), max_size=2
)


class Candidates(RuleBasedStateMachine):
    """Three candidates, each of which may do nothing for as long as it likes: that is what a stopped process does."""

    def __init__(self) -> None:
        super().__init__()
        self.clock = clocks.ManualClock()
        self.leases = Leases(self.clock)
        self.candidates = [candidate(self.leases, name) for name in ("a", "b", "c")]
        self.leading: list[election.Leading | None] = [None, None, None]

    @rule(who=st.integers(0, 2), weather=WEATHER)
    def act(self, who: int, weather: list[tuple[str, float]]) -> None:
        self.leases.meets = list(weather)
        leading = self.leading[who]
        if leading is None:
            self.leading[who] = self.candidates[who].stand()
        else:
            try:
                self.candidates[who].keep(leading)
            except errors.NotLeader:
                self.leading[who] = None
        self.leases.meets = []

    @rule(seconds=st.sampled_from([1.0, 26.0, 100.0, 110.0, 140.0]))
    def time_passes(self, seconds: float) -> None:
        self.clock.advance(seconds)

    @invariant()
    def no_two_lead(self) -> None:
        assert sum(map(sure, self.leading)) <= 1

    def teardown(self) -> None:
        """Who is well and goes on trying leads in the end, whatever the others do."""
        one = self.candidates[0]
        for _ in range(20):
            leading = self.leading[0]
            if leading is None:
                self.leading[0] = one.stand()
            else:
                try:
                    one.keep(leading)
                except errors.NotLeader:
                    self.leading[0] = None
            self.clock.advance(26)
            assert sum(map(sure, self.leading)) <= 1
        assert sure(self.leading[0])


TestCandidates = Candidates.TestCase
TestCandidates.settings = settings(max_examples=80, stateful_step_count=40, deadline=None)


@pytest.fixture
def leases() -> Leases:
    return Leases(clocks.ManualClock())


def passed(leases: Leases, seconds: float) -> None:
    cast("clocks.ManualClock", leases.clock).advance(seconds)


def test_the_first_to_come_leads_and_says_so_in_the_lease(leases: Leases) -> None:
    assert sure(candidate(leases, "a").stand())

    assert leases.lease is not None
    spec = leases.lease["spec"]
    assert (spec["holderIdentity"], spec["leaseDurationSeconds"], spec["leaseTransitions"]) == ("a", 137, 0)
    assert spec["renewTime"] == "2026-01-01T00:00:00.000000Z"


def test_a_leader_that_did_not_renew_knows_before_another_can_lead(leases: Leases) -> None:
    first, second = candidate(leases, "a"), candidate(leases, "b")
    leading = first.stand()
    assert leading is not None
    assert second.stand() is None

    passed(leases, 106.9)
    assert sure(leading)
    passed(leases, 0.2)
    assert not sure(leading)
    assert second.stand() is None
    passed(leases, 30)
    assert sure(second.stand())
    assert leases.lease is not None
    assert leases.lease["spec"]["leaseTransitions"] == 1


def test_what_was_lost_stays_lost_even_if_a_late_renewal_succeeds(leases: Leases) -> None:
    only = candidate(leases, "a")
    leading = only.stand()
    assert leading is not None
    passed(leases, 108)

    with pytest.raises(errors.NotLeader):
        only.keep(leading)
    assert not sure(leading)


def test_trust_begins_when_a_renewal_was_sent_and_not_when_its_answer_came(leases: Leases) -> None:
    # Ten seconds until it is found that there is no lease, ten until one is made, ten until that is heard of.
    leases.meets = [(WELL, 10.0), (WELL, 10.0)]
    leading = candidate(leases, "a").stand()
    assert leading is not None

    assert leading.remaining == pytest.approx(107 - 30)


def test_a_lease_whose_date_is_wrong_counts_from_when_it_was_seen(leases: Leases) -> None:
    candidate(leases, "a").stand()
    assert leases.lease is not None
    leases.lease["spec"]["renewTime"] = "1999-01-01T00:00:00.000000Z"

    assert candidate(leases, "b").stand() is None


def test_a_lease_counts_from_when_the_answer_came_as_it_may_have_been_renewed_until_then(leases: Leases) -> None:
    first, second = candidate(leases, "a"), candidate(leases, "b")
    leading = first.stand()
    assert leading is not None
    leases.meets = [(WELL, 40.0)]
    leases.meanwhile = [lambda: first.keep(leading)]
    assert second.stand() is None

    passed(leases, 59)

    assert sure(leading)
    assert second.stand() is None


def test_who_sees_another_name_in_the_lease_leads_no_longer(leases: Leases) -> None:
    only = candidate(leases, "a")
    leading = only.stand()
    assert leading is not None
    assert leases.lease is not None
    leases._written({**leases.lease, "spec": {**leases.lease["spec"], "holderIdentity": "b"}})

    with pytest.raises(errors.NotLeader):
        only.keep(leading)


def test_a_deleted_lease_is_not_taken_while_its_holder_may_still_lead(leases: Leases) -> None:
    leading = candidate(leases, "a").stand()
    second = candidate(leases, "b")
    second.stand()
    leases.lease = None

    assert second.stand() is None
    assert sure(leading)
    passed(leases, 137)
    assert sure(second.stand())


def test_who_is_told_to_stop_gives_the_lease_back_for_the_next_one() -> None:
    leases = Leases(clocks.Clock())
    stop, led = threading.Event(), threading.Event()

    def lead(leading: election.Leading) -> None:
        leading.check()
        assert metrics.REGISTRY.get_sample_value("leader_election_master_status", {"name": "lock"}) == 1
        led.set()
        stop.wait(PATIENCE)

    run = threading.Thread(target=candidate(leases, "a").run, args=(lead, stop), daemon=True)
    run.start()
    assert led.wait(PATIENCE)
    assert candidate(leases, "b").stand() is None

    stop.set()
    run.join(PATIENCE)

    assert not run.is_alive()
    assert sure(candidate(leases, "b").stand())


def test_who_gives_the_lease_back_knows_before_another_can_have_it() -> None:
    leases = Leases(clocks.Clock())
    stop, kept, sure_when_free = threading.Event(), [], []

    def lead(leading: election.Leading) -> None:
        kept.append(leading)
        stop.set()
        leases.meanwhile = [lambda: sure_when_free.append(sure(kept[0]))] * 2

    candidate(leases, "a").run(lead, stop)

    assert sure_when_free == [False]


def test_who_loses_the_lease_is_told_and_ends_with_an_error() -> None:
    leases = Leases(clocks.Clock())
    one = candidate(leases, "a", duration=3.0, renew=2.0, retry=0.05)

    def lead(leading: election.Leading) -> None:
        assert leases.lease is not None
        leases._written({**leases.lease, "spec": {**leases.lease["spec"], "holderIdentity": "b"}})
        assert leading.lost.wait(PATIENCE)

    with pytest.raises(errors.NotLeader):
        one.run(lead, threading.Event())

    assert leases.lease is not None
    assert leases.lease["spec"]["holderIdentity"] == "b", "what is another's is not given back"


def test_a_leader_whose_server_is_away_ends_by_itself() -> None:
    leases = Leases(clocks.Clock())
    one = candidate(leases, "a", duration=0.5, renew=0.3, retry=0.05)

    def lead(leading: election.Leading) -> None:
        leases.meets = [("refused", 0.0)] * 1000
        assert leading.lost.wait(PATIENCE)

    with pytest.raises(errors.NotLeader):
        one.run(lead, threading.Event())


def test_a_candidate_that_is_told_to_stop_never_leads(leases: Leases) -> None:
    stop = threading.Event()
    stop.set()

    candidate(leases, "a").run(lambda _: pytest.fail("it leads"), stop)

    assert leases.lease is None


def test_a_candidate_says_whom_it_waits_for(leases: Leases, caplog: pytest.LogCaptureFixture) -> None:
    """Whoever started it would else believe that it hangs."""
    caplog.set_level("INFO")
    assert candidate(leases, "a").stand() is not None
    stop = threading.Event()
    leases.meanwhile = [stop.set, lambda: None, lambda: None]  # told to stop at its third try

    candidate(leases, "b", retry=0.01).run(lambda _: pytest.fail("it leads"), stop)

    assert [line for line in caplog.messages if "waits" in line] == ["b waits: a leads by the lease ns/lock"]


def test_times_that_make_no_sense_are_refused(leases: Leases) -> None:
    with pytest.raises(ValueError, match="renewed before it is over"):
        candidate(leases, "a", duration=10, renew=10, retry=1)


def test_on_a_fast_clock_a_lease_still_lasts_for_some_real_seconds() -> None:
    clock = clocks.Clock(1000)
    found = election.Election(cast("clients.Client", Leases(clock)), "lock", "ns", "a", clock, shortest=4.0)

    assert found.duration == pytest.approx(4000)
    assert found.renew / found.duration == pytest.approx(107 / 137)


@pytest.mark.parametrize("speed", [0.5, 1.0, 10.0])
def test_on_the_worlds_clock_a_lease_lasts_as_long_as_openshifts(speed: float) -> None:
    clock = clocks.Clock(speed)

    found = election.Election(cast("clients.Client", Leases(clock)), "lock", "ns", "a", clock)

    assert (found.duration, found.renew, found.retry) == (137.0, 107.0, 26.0)


def test_in_the_lab_a_leader_whose_calls_take_seconds_keeps_its_lease() -> None:
    # Given a lab at sixty times, on a machine so busy that each of the two calls of a renewal takes 1.8 real seconds
    clock = clocks.ManualClock()
    clock.speed = 60.0
    leases = Leases(clock)
    found = election.Election(cast("clients.Client", leases), "lock", "ns", "a", clock)
    leading, began = found.stand(), clock.now()
    assert leading is not None

    for _ in range(20):
        clock.advance(found.rest(leading, began))
        began = clock.now()
        leases.meets = [(WELL, 54.0), (WELL, 54.0)]
        found.keep(leading)

    assert sure(leading)


def test_renewals_are_a_while_apart_and_closer_when_time_is_short(leases: Leases) -> None:
    one = candidate(leases, "a")
    leading = one.stand()
    assert leading is not None

    assert one.rest(leading, began=0.0) == 26.0
    leases.clock.advance(20.0)  # type: ignore[attr-defined]
    assert one.rest(leading, began=0.0) == pytest.approx(6.0), "the last one took twenty seconds"
    leases.clock.advance(20.0)  # type: ignore[attr-defined]
    assert one.rest(leading, began=0.0) == pytest.approx(2.6), "a server that is slow, or refuses, is not hammered"
    leases.clock.advance(66.0)  # type: ignore[attr-defined]
    assert one.rest(leading, began=0.0) == pytest.approx(0.5), "one second is left"
