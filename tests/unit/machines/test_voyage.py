"""The law of all controllers together: whatever goes wrong, in the end there are as many machines as are wanted, each
with the one instance that was ever made for it, and no instance without a machine."""

from __future__ import annotations

import os
import random
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import hypothesis
import pytest
from hypothesis.stateful import RuleBasedStateMachine, run_state_machine_as_test

from moorage.engine import errors as platform_errors
from moorage.machines.runtime import errors
from tests.unit.machines import voyage, voyage_api, voyages

SEED, LONGER = "MOORAGE_SEED", "MOORAGE_VOYAGES"
#: Walked unless another seed is given, or ``random``: whether a change is good must not be left to chance.
USUAL = 5
#: The shortest story that fails takes minutes to find: that is for whoever gives the seed of a failure.
PHASES = ((hypothesis.Phase.generate,), (hypothesis.Phase.generate, hypothesis.Phase.shrink))
MOST = 500


@pytest.fixture(autouse=True)
def harbour(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("MOORAGE_PLATFORMS", "berth=tests.unit.machines.berth")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))


def sail(
    machine: type[RuleBasedStateMachine], record: Callable[[str, object], None], examples: int, steps: int
) -> None:
    """Let it happen; the seed is told at the end of every run, and a run with the same one is the same again."""
    given = os.environ.get(SEED) or str(USUAL)
    seed = random.randrange(2**32) if given == "random" else int(given)
    record("seed", f"{SEED}={seed}")
    print(f"to see this again: {SEED}={seed}")
    voyages.Ship.taken.clear()
    voyages.Ship.fired.clear()
    voyages.Ship.longest = 0
    chosen = hypothesis.settings(
        max_examples=examples,
        stateful_step_count=steps,
        deadline=None,
        database=None,
        print_blob=True,
        phases=PHASES[os.environ.get(SEED, "").isdigit()],
        suppress_health_check=list(hypothesis.HealthCheck),
    )
    run_state_machine_as_test(hypothesis.seed(seed)(machine), settings=chosen, _min_steps=steps - 1)
    taken, fired = voyages.Ship.taken, voyages.Ship.fired
    print(f"{taken.total()} steps: {dict(taken.most_common())}\n{dict(fired.most_common())}")


def test_every_voyage_ends_with_as_many_as_are_wanted_and_no_wreck(
    record_property: Callable[[str, object], None],
) -> None:
    sail(voyages.Voyages, record_property, int(os.environ.get(LONGER, "6")), 40)

    assert voyages.Ship.taken.total() >= 120


def test_a_passage_of_500_steps_meets_every_fault_and_ends_so_too(
    record_property: Callable[[str, object], None],
) -> None:
    # The first story is always the simplest there is, which is soon told.
    sail(voyages.Passage, record_property, 2, MOST + 80)

    assert voyages.Ship.longest >= MOST
    assert set(voyages.Ship.taken) == set(voyages.STEPS)
    assert [what for what in voyages.MET if not voyages.Ship.fired[what]] == []


# -- moments that chance meets too seldom to be relied on --------------------------------------------------------------


@pytest.fixture
def ship() -> Iterator[voyage.Voyage]:
    made = voyage.Voyage(2)
    assert made.live(3600.0, made.at_rest), made.told()
    yield made
    made.end()


def at_rest(ship: voyage.Voyage) -> None:
    ship.calm()
    assert ship.live(voyages.QUIET, ship.at_rest), ship.told()
    ship.live(voyages.STILL)
    assert ship.at_rest(), ship.told()
    assert not ship.broken()


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("failure", [voyage_api.Killed(), platform_errors.Ambiguous("connection reset")])
def test_an_instance_that_was_seen_once_is_not_made_again_when_lists_lose_it(
    failure: BaseException, after: bool, ship: voyage.Voyage
) -> None:
    assert ship.forget_half_built(failure, after=after)

    ship.live(600.0)

    assert not ship.broken()
    at_rest(ship)


@pytest.mark.parametrize("moment", voyages.STOPS)
@pytest.mark.parametrize("seconds", [150.0, 2000.0])
def test_a_leader_that_was_stopped_and_goes_on_does_no_harm(moment: str, seconds: float, ship: voyage.Voyage) -> None:
    ship.stop_at(moment, seconds)

    ship.scale(4)
    ship.live(700.0)
    ship.scale(1)
    ship.live(700.0)

    assert ship.fired[f"stopped: {moment}"] == 1
    assert ship.fired["platform: refused by name"] == (moment == "platform create")
    assert not ship.broken()
    at_rest(ship)


def test_a_leader_that_makes_an_instance_for_a_machine_that_has_ended_has_it_removed(ship: voyage.Voyage) -> None:
    before = {each.id for each in ship.yard.instances}

    def meanwhile(call: str) -> None:
        if not call.startswith("create "):
            return
        ship.yard.before = lambda _call: None
        ship.life.leading.lost.set()
        ship.killed()
        ship.scale(2)
        assert ship.live(3000.0, ship.at_rest), ship.told()

    ship.yard.before = meanwhile
    ship.scale(3)
    ship.live(3000.0, lambda: len(ship.yard.instances) > len(before))
    late = max(ship.yard.instances, key=lambda each: each.born).name
    assert late in [each["metadata"]["name"] for each in ship.machines()], "whoever leads knows of it now"
    assert late not in ship.active()
    assert ship.live(600.0, ship.at_rest), ship.told()

    at_rest(ship)
    assert {each.id for each in ship.yard.instances} == before


def test_a_leader_that_was_stopped_while_it_removed_an_instance_spares_a_new_machine_of_that_name(
    ship: voyage.Voyage,
) -> None:
    """Names follow from what a set has and had: whoever begins anew when one is gone may give its name again."""
    name = max(ship.machines(), key=lambda each: int(each["metadata"]["uid"].partition("-")[2]))["metadata"]["name"]
    before, found = ship._uid(name), ""

    def meanwhile(call: str) -> None:
        nonlocal found
        if call != f"delete {name}" or found:
            return
        found = "another leads, and removes it; the next who leads has not seen it go"
        ship.life.leading.lost.set()
        ship.killed()
        assert ship.live(1500.0, lambda: ship._uid(name) != before), ship.told()
        ship.api.calm()
        ship.killed()
        assert ship.live(3000.0, ship.at_rest), ship.told()
        found = ship._uid(name)

    for _ in range(1000):
        ship.api.trouble("create machines", errors.Forbidden("exceeded quota", code=403))
    ship.yard.before = meanwhile
    ship.delete(name)
    ship.live(3000.0, lambda: bool(found))

    assert found not in (before, f"{name}, which is no machine"), "its name was given again"
    assert ship._uid(name) == found
    assert ship.at_rest(), ship.told()
    at_rest(ship)


def test_an_instance_that_two_platforms_do_not_know_is_looked_for_again_before_its_machine_ends(
    ship: voyage.Voyage,
) -> None:
    """New credentials may be those of another place: what each has missed once, nobody has missed twice."""
    name = ship.active()[0]
    ship.yard.fail("delete", platform_errors.NotFound("there is none of that id"), times=2, name=name)
    ship.delete(name)
    ship.live(15.0)

    ship.expire()
    ship.rotate()
    ship.live(300.0)

    assert not ship.yard._orders, "both have looked"
    assert name not in ship.afloat()
    at_rest(ship)
