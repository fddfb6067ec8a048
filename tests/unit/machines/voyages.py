"""What may happen on a voyage, as steps in any order, and the laws that hold after each of them and in the end.

Hypothesis chooses the steps. It likes to leave some kinds of steps out of a story (`Voyages`), which finds what only
happens when nothing else does; a `Passage` is one long story of all kinds. Which fault comes next is dealt from a
shuffled deck, so that a long story has met them all.
"""

from __future__ import annotations

import collections
import random
from collections.abc import Callable, Iterator, Sequence
from typing import Any, ClassVar, Final, TypeVar

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from moorage.engine import errors as platform_errors
from moorage.machines.runtime import errors
from tests.unit.machines import voyage, voyage_api

T = TypeVar("T")

#: Cloud seconds in which a cluster that is left alone must have come to rest, and for which it must then stay so.
QUIET, STILL = 4 * 3600.0, 700.0

API_CALLS: Final = (
    "",
    "create machines",
    "patch machines",
    "delete machines",
    "list machines",
    "get ",
    "patch nodes",
    "delete nodes",
)
API_FAILURES: Final = {
    "drop": lambda: errors.Unavailable("connection reset"),
    "fail": lambda: errors.Unavailable("etcdserver: request timed out", code=500),
    "busy": lambda: errors.TooManyRequests("slow down", code=429, retry_after=7.0),
    "conflict": lambda: errors.Conflict("the object has been modified", code=409, reason="Conflict"),
    "kill": voyage_api.Killed,
}
VERBS: Final = ("exists", "create", "update", "delete")
REFUSALS: Final = {
    "busy": lambda: platform_errors.Transient("try again later", retry_after=9.0),
    "conflict": lambda: platform_errors.Conflict("it is locked"),
    "lost": lambda: platform_errors.Ambiguous("connection reset"),
    "kill": voyage_api.Killed,
}
#: Only what is no answer leaves open whether it was done: an answer that refuses means that it was not.
API_FAULTS: Final = [(how, "before") for how in API_FAILURES] + [(how, "after") for how in ("drop", "fail", "kill")]
REFUSED: Final = [(how, "before") for how in REFUSALS] + [(how, "after") for how in ("lost", "kill")]
#: Where a leader is stopped: right after a write to the API, or with a call to the platform about to be sent.
STOPS: Final = (voyage_api.BEGUN, "create machines", "delete machines", "platform create", "platform delete")
PAUSES: Final = st.sampled_from([0.0, 1.0, 15.0, 45.0, 130.0, 700.0])

#: Everything that must have struck somebody in a long story.
MET: Final = (
    *("API: Unavailable before", "API: Unavailable after", "API: TooManyRequests before", "API: Conflict before"),
    *("API: Killed before", "API: Killed after", "cache: behind"),
    *("platform: Transient before", "platform: Conflict before", "platform: Terminal before"),
    *("platform: Ambiguous before", "platform: Ambiguous after", "platform: Killed before", "platform: Killed after"),
    *("platform: Unauthorized", "platform: unseen"),
    *(f"stopped: {moment}" for moment in STOPS),
    *("told: MachineDeleted", "told: Failed", "told: DrainSucceeded"),
)

Step = Callable[["Ship", int], bool]

STEPS: dict[str, Step] = {}


def step(act: Step) -> Step:
    """A kind of step: it says whether it could be taken. Its number is for whatever there is to choose."""
    STEPS[act.__name__.replace("_", " ")] = act
    return act


def deck(chance: random.Random, cards: Sequence[T]) -> Iterator[T]:
    """All of them in any order, again and again."""
    while True:
        yield from chance.sample(cards, len(cards))


class Ship(RuleBasedStateMachine):
    """A voyage and its laws; who goes on board says which steps there are. What was met is counted for all of them."""

    taken: ClassVar[collections.Counter[str]] = collections.Counter()
    fired: ClassVar[collections.Counter[str]] = collections.Counter()
    #: The steps of the longest story that came to its end.
    longest: ClassVar[int] = 0

    @initialize(replicas=st.integers(0, 4), lag=st.sampled_from([0.0, 0.0, 20.0]), seed=st.integers(0, 2**16))
    def put_to_sea(self, replicas: int, lag: float, seed: int) -> None:
        self.ship = voyage.Voyage(replicas, seed)
        self.ship.yard.lag = lag
        self.most = replicas
        self.steps = 0
        chance = random.Random(seed)
        self.api_faults, self.refusals = deck(chance, API_FAULTS), deck(chance, REFUSED)
        self.stops = deck(chance, STOPS)

    def take(self, name: str, number: int, after: float) -> None:
        if STEPS[name](self, number):
            Ship.taken[name] += 1
            self.steps += 1
        self.ship.live(after)

    @invariant()
    def nothing_was_done_that_must_never_be(self) -> None:
        if hasattr(self, "ship"):
            assert not self.ship.broken(), self.ship.told()

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
        self.nothing_was_done_that_must_never_be()
        Ship.fired.update(self.ship.fired)
        Ship.longest = max(Ship.longest, self.steps)
        self.ship.end()


def chosen(names: list[str], number: int) -> str:
    return sorted(names)[number % len(names)]


# -- what people do ----------------------------------------------------------------------------------------------------


@step
def time_passes(_: Ship, __: int) -> bool:
    return True


@step
def scale(self: Ship, number: int) -> bool:
    self.ship.scale(number)
    return True


@step
def delete_a_machine(self: Ship, number: int) -> bool:
    names = self.ship.active()
    if names:
        self.ship.delete(chosen(names, number))
    return bool(names)


@step
def delete_one_that_was_asked_for_and_is_not_seen_yet(self: Ship, number: int) -> bool:
    known, self.ship.yard.lag = set(self.ship.active()), (20.0, 45.0)[number % 2]
    self.ship.yard.fail("create", REFUSALS[("lost", "kill")[number // 2 % 2]](), after=True)
    self.ship.scale(len(known) + 1)
    self.ship.live((1.0, 15.0)[number % 2])
    for name in sorted(set(self.ship.active()) - known):
        self.ship.delete(name)
    self.ship.live(15.0)
    return True


# -- what fate does ----------------------------------------------------------------------------------------------------


@step
def kill_an_instance(self: Ship, number: int) -> bool:
    names = self.ship.afloat()
    if names:
        self.ship.sink(chosen(names, number))
    return bool(names)


@step
def kill_the_controllers(self: Ship, _: int) -> bool:
    self.ship.killed()
    return True


@step
def stop_the_leader(self: Ship, number: int) -> bool:
    if self.ship.is_to_stop:
        return False
    self.ship.stop_at(next(self.stops), (150.0, 400.0, 2000.0)[number % 3])
    return True


@step
def expire_the_token(self: Ship, number: int) -> bool:
    self.ship.expire()
    self.ship.live((0.0, 10.0, 100.0)[number % 3])
    self.ship.rotate()
    return True


@step
def trouble_the_api(self: Ship, number: int) -> bool:
    how, when = next(self.api_faults)
    self.ship.api.trouble(API_CALLS[number % len(API_CALLS)], API_FAILURES[how](), when)
    return True


@step
def stick_a_watch(self: Ship, number: int) -> bool:
    kind = ("machines", "sets", "nodes", "checks")[number % 4]
    getattr(self.ship.life.caches, kind).stuck_until = self.ship.clock.now() + (5.0, 60.0, 320.0)[number % 3]
    return True


@step
def trouble_the_platform(self: Ship, number: int) -> bool:
    how, when = next(self.refusals)
    self.ship.yard.fail(VERBS[number % 4], REFUSALS[how](), after=when == "after", times=1 + number % 3)
    return True


@step
def refuse_for_good(self: Ship, _: int) -> bool:
    self.ship.yard.fail("create", platform_errors.Terminal("the quota is exhausted"))
    return True


@step
def lists_lag(self: Ship, number: int) -> bool:
    self.ship.yard.lag = (0.0, 20.0, 45.0)[number % 3]
    return True


@step
def lists_forget(self: Ship, number: int) -> bool:
    names = self.ship.afloat()
    return bool(names) and self.ship.hide(chosen(names, number), (5.0, 40.0)[number % 2])


@step
def lists_forget_one_that_was_begun_to_complete(self: Ship, number: int) -> bool:
    return self.ship.forget_half_built(REFUSALS[("lost", "kill")[number % 2]](), after=number > 2)


# -- stories of these --------------------------------------------------------------------------------------------------


def _taking(name: str) -> Any:
    def act(self: Ship, number: int, after: float) -> None:
        self.take(name, number, after)

    act.__name__ = name.replace(" ", "_")
    return rule(number=st.integers(0, 7), after=PAUSES)(act)


Voyages = type("Voyages", (Ship,), {name.replace(" ", "_"): _taking(name) for name in STEPS})


class Passage(Ship):
    """All kinds of steps in one story."""

    @rule(name=st.sampled_from(sorted(STEPS)), number=st.integers(0, 7), after=PAUSES)
    def sail(self, name: str, number: int, after: float) -> None:
        self.take(name, number, after)
