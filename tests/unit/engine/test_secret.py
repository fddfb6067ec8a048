"""A secret is shown to no one by accident."""

from __future__ import annotations

import base64
import copy
import json
import pickle
import urllib.parse

import hypothesis
import pytest
from hypothesis import strategies as st

from moorage.engine import secret

HIDDEN = secret.Secret("p@ss w/rd+1")


@pytest.mark.parametrize(
    "shown", [str(HIDDEN), repr(HIDDEN), f"{HIDDEN}", f"{HIDDEN:>20}", f"{[HIDDEN]}", str({"a": HIDDEN})]
)
def test_it_never_prints_itself(shown):
    assert "p@ss" not in shown


@pytest.mark.parametrize("leak", [pickle.dumps, copy.deepcopy, json.dumps])
def test_it_does_not_go_into_files(leak):
    with pytest.raises(TypeError):
        leak(HIDDEN)


def test_it_is_revealed_by_name_and_compared_by_value():
    assert HIDDEN.reveal() == "p@ss w/rd+1"
    assert secret.Secret("p@ss w/rd+1") == HIDDEN
    assert secret.Secret("other") != HIDDEN
    assert HIDDEN != "p@ss w/rd+1"
    assert len({HIDDEN, secret.Secret("p@ss w/rd+1")}) == 1


@hypothesis.settings(deadline=None)
@hypothesis.given(value=st.text(min_size=secret.SHORTEST), before=st.text(), after=st.text())
@pytest.mark.parametrize(
    "spelling",
    [
        lambda value: value,
        lambda value: urllib.parse.quote(value, safe=""),
        urllib.parse.quote_plus,
        lambda value: json.dumps(value)[1:-1],
        lambda value: base64.b64encode(value.encode()).decode(),
        lambda value: base64.urlsafe_b64encode(value.encode()).decode(),
    ],
    ids=["plain", "quoted", "form", "json", "base64", "urlsafe"],
)
def test_every_usual_spelling_is_blotted_out(spelling, value, before, after):
    spellings = secret.forms([secret.Secret(value)])

    scrubbed = secret.scrub(f"{before}{spelling(value)}{after}", spellings)

    assert secret.BLOT in scrubbed
    assert len(scrubbed.replace(secret.BLOT, "")) <= len(before) + len(after)


def test_a_word_too_short_to_be_a_secret_does_not_spoil_every_message():
    assert secret.scrub("a banana", secret.forms([secret.Secret("a"), secret.Secret("")])) == "a banana"


@pytest.mark.parametrize(
    ("value", "path"),
    [
        ({"a": {"b": ["x", "see p@ss w/rd+1 here"]}}, "out.a.b[1]"),
        ({"a": HIDDEN}, "out.a"),
        ({"p@ss w/rd+1": 1}, "a key of out"),
        ({"a": "harmless", "b": 5, "c": None}, None),
    ],
)
def test_a_secret_is_found_by_its_path(value, path):
    assert secret.find(value, secret.forms([HIDDEN]), "out") == path
