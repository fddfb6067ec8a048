"""Rules of faults as they are ordered: what makes no sense is refused, and writing one down loses nothing."""

from __future__ import annotations

import json

import hypothesis
import pytest
from hypothesis import strategies

from moorage.lab import faults


@pytest.mark.parametrize(
    ("document", "words"),
    [
        ([], "JSON object"),
        ({}, "needs an action"),
        ({"action": "explode"}, "action is one of"),
        ({"action": "drop", "pth": "/"}, "no pth"),
        ({"action": "drop", "nth": 0}, "nth"),
        ({"action": "drop", "nth": True}, "nth"),
        ({"action": "drop", "remaining": -1}, "remaining"),
        ({"action": "drop", "method": "get"}, "method"),
        ({"action": "drop", "path": "vms"}, "path"),
        ({"action": "drop", "path": 7}, "path"),
        ({"action": "fail", "status": 99}, "status"),
        ({"action": "fail", "status": "500"}, "status"),
        ({"action": "fail", "headers": {"X": "a\r\nY: b"}}, "headers"),
        ({"action": "fail", "headers": {"X Y": "a"}}, "headers"),
        ({"action": "fail", "body": "\ud800"}, "body"),
        ({"action": "delay", "seconds": float("inf")}, "seconds"),
        ({"action": "delay", "seconds": "5"}, "seconds"),
        ({"action": "drop", "status": 500}, "status says nothing about drop"),
    ],
)
def test_a_rule_that_makes_no_sense_is_refused(document: object, words: str) -> None:
    with pytest.raises(faults.RuleRefused, match=words):
        faults.from_json(document)


RULES = strategies.fixed_dictionaries(
    {"action": strategies.sampled_from(faults.ACTIONS)},
    optional={
        "method": strategies.sampled_from(["*", "GET", "DELETE"]),
        "path": strategies.text().map(lambda text: "/" + text),
        "nth": strategies.integers(min_value=1),
        "remaining": strategies.none() | strategies.integers(min_value=0),
    },
)


@hypothesis.given(RULES, strategies.integers(200, 599), strategies.text(strategies.characters(codec="utf-8")))
def test_a_rule_survives_being_written_and_read(document: dict[str, object], status: int, body: str) -> None:
    if document["action"] == "fail":
        document = document | {"status": status, "body": body}
    rule = faults.from_json(document)

    assert faults.from_json(json.loads(json.dumps(faults.to_json(rule)))) == rule
