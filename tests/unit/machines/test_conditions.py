"""Conditions: said once, with a time that moves only when something changes."""

from __future__ import annotations

import datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moorage.machines import conditions

THEN = datetime.datetime(2026, 3, 1, 12, 0, 0, tzinfo=datetime.UTC)
NOW = THEN + datetime.timedelta(minutes=5)


def said(**change: str) -> list[dict[str, Any]]:
    words: dict[str, Any] = {"status": "False", "reason": "HookPresent", "message": "held", "severity": "Warning"}
    return conditions.set_condition([], "Drainable", now=THEN, **(words | change))


def test_the_first_word_bears_its_time() -> None:
    assert conditions.set_condition(None, "Drained", "True", now=THEN) == [
        {"type": "Drained", "status": "True", "lastTransitionTime": "2026-03-01T12:00:00Z"}
    ]


def test_what_is_said_again_keeps_its_time() -> None:
    again = conditions.set_condition(said(), "Drainable", "False", "HookPresent", "held", "Warning", NOW)

    assert again == said()


@pytest.mark.parametrize(
    "change", [{"status": "Unknown"}, {"reason": "DrainError"}, {"message": "held by two"}, {"severity": "Info"}]
)
def test_any_other_word_moves_the_time(change: dict[str, str]) -> None:
    words: dict[str, Any] = {"status": "False", "reason": "HookPresent", "message": "held", "severity": "Warning"}

    (found,) = conditions.set_condition(said(), "Drainable", now=NOW, **(words | change))

    assert found["lastTransitionTime"] == "2026-03-01T12:05:00Z"
    assert {key: found[key] for key in change} == change


def test_the_list_is_in_the_order_of_types_and_others_are_left_alone() -> None:
    others = [{"type": "Zebra", "status": "True", "lastTransitionTime": "x", "extra": "kept"}]

    found = conditions.set_condition(others, "Drained", "True", now=NOW)

    assert [each["type"] for each in found] == ["Drained", "Zebra"]
    assert found[1] == others[0]


def test_what_was_given_is_not_changed() -> None:
    given_list = said()

    conditions.set_condition(given_list, "Drainable", "True", now=NOW)

    assert given_list == said()


@pytest.mark.parametrize(
    ("kind", "reason", "expected"),
    [
        ("Drainable", "", THEN),
        ("Drainable", "HookPresent", THEN),
        ("Drainable", "DrainError", None),
        ("Drained", "", None),
    ],
)
def test_since_when(kind: str, reason: str, expected: datetime.datetime | None) -> None:
    assert conditions.since(said(), kind, reason) == expected


@pytest.mark.parametrize(("status", "expected"), [("True", True), ("False", False), ("Unknown", False)])
def test_only_true_is_true(status: str, expected: bool) -> None:
    assert conditions.is_true(said(status=status), "Drainable") is expected
    assert conditions.is_true(None, "Drainable") is False


@pytest.mark.parametrize(
    ("text", "expected"),
    [("2026-03-01T12:00:00Z", THEN), ("2026-03-01T13:00:00+01:00", THEN), ("", None), (None, None), ("soon", None)],
)
def test_moments_are_read(text: str | None, expected: datetime.datetime | None) -> None:
    assert conditions.moment(text) == expected


@given(st.lists(st.tuples(st.sampled_from("ABC"), st.sampled_from(["True", "False", "Unknown"]))))
def test_there_is_one_of_each_type_with_the_last_word(words: list[tuple[str, Any]]) -> None:
    found: list[dict[str, Any]] = []
    for kind, status in words:
        found = conditions.set_condition(found, kind, status, now=NOW)

    assert {each["type"]: each["status"] for each in found} == dict(words)
    assert len(found) == len(dict(words))
