"""Which machines go: every priority of every policy, and the laws that hold for any machines."""

from __future__ import annotations

import datetime
import math
from typing import Any

import hypothesis
import pytest
from hypothesis import strategies

from moorage.machines import machineset_choice as choice

NOW = datetime.datetime(2026, 3, 1, 12, 0, 0, tzinfo=datetime.UTC)
DAY = 24 * 3600.0
MARK, OLD_MARK = "machine.openshift.io/delete-machine", "machine.openshift.io/cluster-api-delete-machine"


def machine(name: str, age: float | None = 0.0, *, node: bool = True, **parts: Any) -> dict[str, Any]:
    meta: dict[str, Any] = {"name": name, **parts.pop("metadata", {})}
    if age is not None:
        meta["creationTimestamp"] = (NOW - datetime.timedelta(seconds=age)).isoformat()
    status: dict[str, Any] = {"nodeRef": {"name": name}} if node else {}
    return {"metadata": meta, "status": {**status, **parts.pop("status", {})}}


def by_age(days: float) -> float:
    return 50 * (1 - math.exp(-days / 100))


GOING = {"metadata": {"deletionTimestamp": "2026-03-01T11:00:00Z"}}
MARKED = {"metadata": {"annotations": {MARK: "true"}}}
MARKED_BEFORE = {"metadata": {"annotations": {OLD_MARK: "yes"}}}
MARKED_EMPTY = {"metadata": {"annotations": {MARK: ""}}}
BROKEN = {"status": {"errorReason": "CreateError"}}
WORDS = {"status": {"errorMessage": "no quota"}}
FAILED = {"status": {"phase": "Failed"}}

PRIORITIES: list[tuple[str, dict[str, Any], float]] = [
    ("Random", GOING, 100),
    ("Random", MARKED, 50),
    ("Random", MARKED_BEFORE, 50),
    ("Random", MARKED_EMPTY, 20),
    ("Random", BROKEN, 50),
    ("Random", WORDS, 50),
    ("Random", FAILED, 50),
    ("Random", {"node": False}, 40),
    ("Random", {}, 20),
    ("", {}, 20),
    ("", {"node": False}, 40),
    ("Oldest", GOING, 100),
    ("Oldest", MARKED, 100),
    ("Oldest", MARKED_BEFORE, 100),
    ("Oldest", BROKEN, 100),
    ("Oldest", WORDS, 100),
    ("Oldest", FAILED, 100),
    ("Oldest", {"age": 0.0}, 0),
    ("Oldest", {"age": 100 * DAY}, by_age(100)),
    ("Oldest", {"age": 3 * DAY}, by_age(3)),
    ("Oldest", {"age": 3 * DAY, "node": False}, by_age(3)),
    ("Oldest", {"age": None}, 0),
    ("Oldest", {"age": -60.0}, 0),
    ("Newest", GOING, 100),
    ("Newest", MARKED, 100),
    ("Newest", BROKEN, 100),
    ("Newest", {"age": 0.0}, 100),
    ("Newest", {"age": 100 * DAY}, 100 - by_age(100)),
    ("Newest", {"age": None}, 100),
    ("Newest", {"age": -60.0}, 100),
]


@pytest.mark.parametrize(("policy", "parts", "expected"), PRIORITIES)
def test_priorities(policy: str, parts: dict[str, Any], expected: float) -> None:
    assert choice.priority(machine("m", **parts), policy, NOW) == pytest.approx(expected)


ORDERS: dict[str, tuple[str, list[dict[str, Any]], list[str]]] = {
    "oldest first": ("Oldest", [machine("a", 10), machine("b", 30), machine("c", 20)], ["b", "c", "a"]),
    "newest first": ("Newest", [machine("a", 10), machine("b", 30), machine("c", 20)], ["a", "c", "b"]),
    "useless first": ("Random", [machine("a"), machine("b", node=False), machine("c", **BROKEN)], ["c", "b", "a"]),
    "marked before broken": ("Random", [machine("a", **BROKEN), machine("b", **MARKED)], ["b", "a"]),
    "marked before the newest of all": ("Newest", [machine("a", 0), machine("b", 99, **MARKED)], ["b", "a"]),
    "older than the formula can tell": (
        "Oldest",
        [machine("a", 10000 * DAY), machine("b", 10001 * DAY), machine("c", 9999 * DAY)],
        ["b", "a", "c"],
    ),
    "by name where nothing else tells them apart": ("Random", [machine("b"), machine("c"), machine("a")], list("abc")),
}


@pytest.mark.parametrize(("policy", "machines", "expected"), ORDERS.values(), ids=ORDERS)
def test_orders(policy: str, machines: list[dict[str, Any]], expected: list[str]) -> None:
    assert [each["metadata"]["name"] for each in choice.chosen(machines, 9, policy, NOW)] == expected


def test_of_equals_the_one_whose_node_is_not_ready_goes() -> None:
    (gone,) = choice.chosen(
        [machine("a"), machine("b")], 1, "Random", NOW, lambda each: each["metadata"]["name"] == "a"
    )
    assert gone["metadata"]["name"] == "b"


@pytest.mark.parametrize("policy", ["Random", "Newest", "Oldest", ""])
@pytest.mark.parametrize(("count", "chosen"), [(-1, 0), (0, 0), (2, 2), (3, 3), (7, 3)])
def test_never_more_than_asked_for_or_there(policy: str, count: int, chosen: int) -> None:
    assert len(choice.chosen([machine(name) for name in "abc"], count, policy, NOW)) == chosen


def test_an_unknown_policy_chooses_nobody() -> None:
    with pytest.raises(choice.UnknownPolicy):
        choice.chosen([machine("a")], 1, "Fairest", NOW)


# -- laws --------------------------------------------------------------------------------------------------------------

EXTRAS = strategies.sampled_from([{}, {}, {}, {"node": False}, MARKED, MARKED_BEFORE, BROKEN, WORDS, FAILED])
AGES = strategies.one_of(strategies.none(), strategies.integers(-100, 10**9).map(float))


@strategies.composite
def fleets(draw: strategies.DrawFn) -> list[dict[str, Any]]:
    names = draw(strategies.lists(strategies.text("abcdef", min_size=1, max_size=4), unique=True, max_size=12))
    return [machine(name, draw(AGES), **draw(EXTRAS)) for name in names]


POLICIES = strategies.sampled_from(["Random", "Newest", "Oldest", ""])


def names(machines: list[Any]) -> list[str]:
    return [each["metadata"]["name"] for each in machines]


@hypothesis.given(fleets(), strategies.integers(-2, 15), POLICIES)
def test_as_many_as_asked_for_and_each_once(machines: list[dict[str, Any]], count: int, policy: str) -> None:
    found = names(choice.chosen(machines, count, policy, NOW))
    assert len(found) == min(max(count, 0), len(machines))
    assert len(set(found)) == len(found)
    assert set(found) <= set(names(machines))


@hypothesis.given(fleets(), strategies.integers(0, 12), POLICIES, strategies.randoms())
def test_the_order_of_a_list_does_not_matter(
    machines: list[dict[str, Any]], count: int, policy: str, chance: Any
) -> None:
    shuffled = list(machines)
    chance.shuffle(shuffled)
    assert names(choice.chosen(shuffled, count, policy, NOW)) == names(choice.chosen(machines, count, policy, NOW))


@hypothesis.given(fleets(), strategies.integers(0, 12), POLICIES)
def test_no_machine_stays_that_is_marked_while_one_goes_that_is_not(
    machines: list[dict[str, Any]], count: int, policy: str
) -> None:
    gone = choice.chosen(machines, count, policy, NOW)
    kept = [each for each in machines if each not in gone]
    assert not (any(map(choice.is_marked, kept)) and not all(map(choice.is_marked, gone)))


@hypothesis.given(fleets(), strategies.integers(0, 12), strategies.sampled_from(["Newest", "Oldest"]))
def test_of_sound_machines_none_goes_that_is_younger_or_older_than_one_that_stays(
    machines: list[dict[str, Any]], count: int, policy: str
) -> None:
    def born(each: Any) -> str:
        return str(each["metadata"]["creationTimestamp"])

    sound = [
        each
        for each in machines
        if each["metadata"].get("creationTimestamp")
        and datetime.datetime.fromisoformat(born(each)) <= NOW
        and not choice.is_marked(each)
        and not choice.has_failed(each)
    ]
    gone = choice.chosen(machines, count, policy, NOW)
    for went in (each for each in sound if each in gone):
        for stayed in (each for each in sound if each not in gone):
            if policy == "Oldest":
                assert born(went) <= born(stayed)
            else:
                assert born(went) >= born(stayed)


@hypothesis.given(fleets(), strategies.integers(0, 11), POLICIES)
def test_asking_for_one_more_changes_nothing_about_the_others(
    machines: list[dict[str, Any]], count: int, policy: str
) -> None:
    fewer, more = (names(choice.chosen(machines, number, policy, NOW)) for number in (count, count + 1))
    assert more[:count] == fewer
