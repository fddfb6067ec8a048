"""The law of all controllers together: whatever goes wrong, in the end there are as many machines as are wanted, each
with the one instance that was ever made for it, and no instance without a machine."""

from __future__ import annotations

import collections
import os
import random
import tempfile
from pathlib import Path

import hypothesis
import pytest
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from moorage.engine import errors as platform_errors
from moorage.machines.runtime import errors
from tests.unit.machines import voyage

#: Cloud seconds in which a cluster that is left alone must have come to rest, and for which it must then stay so.
QUIET, STILL = 4 * 3600.0, 700.0
SEED = "MOORAGE_SEED"
#: The shortest story that fails takes minutes to find: that is for whoever gives the seed of a failure.
PHASES = ((hypothesis.Phase.generate,), (hypothesis.Phase.generate, hypothesis.Phase.shrink))

API_CALLS = (
    "",
    "create machines",
    "patch machines",
    "delete machines",
    "list machines",
    "get ",
    "patch nodes",
    "delete nodes",
)
API_FAILURES = {
    "drop": lambda: errors.Unavailable("connection reset"),
    "fail": lambda: errors.Unavailable("etcdserver: request timed out", code=500),
    "busy": lambda: errors.TooManyRequests("slow down", code=429, retry_after=7.0),
    "conflict": lambda: errors.Conflict("the object has been modified", code=409, reason="Conflict"),
    "kill": voyage.Killed,
}
VERBS = ("exists", "create", "update", "delete")
REFUSALS = {
    "busy": lambda: platform_errors.Transient("try again later", retry_after=9.0),
    "conflict": lambda: platform_errors.Conflict("it is locked"),
    "lost": lambda: platform_errors.Ambiguous("connection reset"),
    "kill": voyage.Killed,
}
#: Only what is no answer leaves open whether it was done: an answer that refuses means that it was not.
API_FAULTS = [(how, "before") for how in API_FAILURES] + [(how, "after") for how in ("drop", "fail", "kill")]
REFUSED = [(how, "before") for how in REFUSALS] + [(how, "after") for how in ("lost", "kill")]
PAUSES = st.sampled_from([0.0, 1.0, 15.0, 45.0, 130.0, 700.0])

steps: collections.Counter[str] = collections.Counter()


class Voyages(RuleBasedStateMachine):
    """Steps in any order, with time between them."""

    @initialize(replicas=st.integers(0, 4), lag=st.sampled_from([0.0, 0.0, 20.0]), seed=st.integers(0, 2**16))
    def put_to_sea(self, replicas: int, lag: float, seed: int) -> None:
        self.ship = voyage.Voyage(replicas, seed)
        self.ship.yard.lag = lag
        self.most = replicas

    @rule(seconds=PAUSES)
    def time_passes(self, seconds: float) -> None:
        self._passed("time passes", seconds)

    @rule(replicas=st.integers(0, 6), after=PAUSES)
    def scale(self, replicas: int, after: float) -> None:
        self.ship.scale(replicas)
        self._passed("scale", after)

    @precondition(lambda self: self.ship.active())
    @rule(which=st.integers(0, 5), after=PAUSES)
    def delete_a_machine(self, which: int, after: float) -> None:
        names = sorted(self.ship.active())
        self.ship.delete(names[which % len(names)])
        self._passed("delete a machine", after)

    @rule(how=st.sampled_from(["lost", "kill"]), lag=st.sampled_from([20.0, 45.0]), soon=st.sampled_from([1.0, 15.0]))
    def delete_one_that_was_asked_for_and_is_not_seen_yet(self, how: str, lag: float, soon: float) -> None:
        known, self.ship.yard.lag = set(self.ship.active()), lag
        self.ship.yard.fail("create", REFUSALS[how](), after=True)
        self.ship.scale(len(known) + 1)
        self.ship.live(soon)
        for name in sorted(set(self.ship.active()) - known):
            self.ship.delete(name)
        self._passed("delete one that is not seen yet", 15.0)

    @precondition(lambda self: self.ship.yard.instances)
    @rule(which=st.integers(0, 5), after=PAUSES)
    def kill_an_instance(self, which: int, after: float) -> None:
        names = self.ship.afloat()
        self.ship.yard.sink(names[which % len(names)])
        self._passed("kill an instance", after)

    @rule(after=PAUSES)
    def kill_the_controllers(self, after: float) -> None:
        self.ship.killed()
        self._passed("kill the controllers", after)

    @rule(told=st.sampled_from([0.0, 10.0, 100.0]), after=PAUSES)
    def expire_the_token(self, told: float, after: float) -> None:
        self.ship.expire()
        self.ship.live(told)
        self.ship.rotate()
        self._passed("expire the token", after)

    @rule(call=st.sampled_from(API_CALLS), fault=st.sampled_from(API_FAULTS), after=PAUSES)
    def trouble_the_api(self, call: str, fault: tuple[str, str], after: float) -> None:
        how, when = fault
        self.ship.api.trouble(call, API_FAILURES[how](), when)
        self._passed(f"API: {how} {when}", after)

    @rule(kind=st.sampled_from(["machines", "sets", "nodes", "checks"]), seconds=st.sampled_from([5.0, 60.0, 320.0]))
    def stick_a_watch(self, kind: str, seconds: float) -> None:
        getattr(self.ship.life.caches, kind).stuck_until = self.ship.clock.now() + seconds
        self._passed("stick a watch", 0.0)

    @rule(verb=st.sampled_from(VERBS), fault=st.sampled_from(REFUSED), times=st.integers(1, 3), after=PAUSES)
    def trouble_the_platform(self, verb: str, fault: tuple[str, str], times: int, after: float) -> None:
        how, when = fault
        self.ship.yard.fail(verb, REFUSALS[how](), after=when == "after", times=times)
        self._passed(f"platform: {how} {when}", after)

    @rule(after=PAUSES)
    def refuse_for_good(self, after: float) -> None:
        self.ship.yard.fail("create", platform_errors.Terminal("the quota is exhausted"))
        self._passed("platform: never", after)

    @rule(lag=st.sampled_from([0.0, 20.0, 45.0]), after=PAUSES)
    def lists_lag(self, lag: float, after: float) -> None:
        self.ship.yard.lag = lag
        self._passed("lists lag", after)

    @precondition(lambda self: self.ship.yard.instances)
    @rule(which=st.integers(0, 5), seconds=st.sampled_from([5.0, 40.0]), after=PAUSES)
    def lists_forget(self, which: int, seconds: float, after: float) -> None:
        names = self.ship.afloat()
        self.ship.hide(names[which % len(names)], seconds)
        self._passed("lists forget", after)

    def _passed(self, step: str, seconds: float) -> None:
        steps[step] += 1
        self.ship.live(seconds)

    @invariant()
    def never_two_instances_for_a_machine(self) -> None:
        if hasattr(self, "ship"):
            twice = [name for name, count in self.ship.yard.made.items() if count > 1]
            assert not twice, self.ship.told()

    @invariant()
    def never_more_machines_than_are_wanted(self) -> None:
        if hasattr(self, "ship"):
            count, wanted = len(self.ship.active()), self.ship.replicas
            assert count <= max(self.most, wanted), self.ship.told()
            self.most = max(count, wanted)

    def teardown(self) -> None:
        if not hasattr(self, "ship"):
            return
        self.ship.calm()
        assert self.ship.live(QUIET, self.ship.at_rest), self.ship.told()
        self.ship.live(STILL)
        assert self.ship.at_rest(), self.ship.told()
        self.never_two_instances_for_a_machine()
        self.ship.end()


def test_every_voyage_ends_with_as_many_as_are_wanted_and_no_wreck(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("MOORAGE_PLATFORMS", "berth=tests.unit.machines.berth")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    seed = int(os.environ.get(SEED) or random.randrange(2**32))
    print(f"{SEED}={seed}")
    steps.clear()

    chosen = hypothesis.settings(
        max_examples=int(os.environ.get("MOORAGE_VOYAGES", "18")),
        stateful_step_count=40,
        deadline=None,
        database=None,
        print_blob=True,
        phases=PHASES[bool(os.environ.get(SEED))],
        suppress_health_check=list(hypothesis.HealthCheck),
    )
    run_state_machine_as_test(hypothesis.seed(seed)(Voyages), settings=chosen)

    print(f"{steps.total()} steps: {dict(steps.most_common())}")
    assert steps.total() >= 500
