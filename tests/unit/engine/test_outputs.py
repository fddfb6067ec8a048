"""Outputs come out of the journal as they went in, and nothing else goes in."""

from __future__ import annotations

import dataclasses
import datetime
import json
import math

import hypothesis
import pytest
from hypothesis import strategies as st

from moorage.engine import errors, outputs, secret


@dataclasses.dataclass(frozen=True)
class Port:
    number: int
    name: str = ""


@dataclasses.dataclass(frozen=True)
class Balancer:
    id: str
    addresses: tuple[str, ...] = ()
    ports: tuple[Port, ...] = ()
    main: Port | None = None
    tags: dict[str, str] = dataclasses.field(default_factory=dict)
    weight: float = 1.0
    notes: list[str] | None = None


ports = st.builds(Port, number=st.integers(), name=st.text())
balancers = st.builds(
    Balancer,
    id=st.text(),
    addresses=st.lists(st.text()).map(tuple),
    ports=st.lists(ports, max_size=3).map(tuple),
    main=st.none() | ports,
    tags=st.dictionaries(st.text(), st.text(), max_size=3),
    weight=st.floats(allow_nan=False, allow_infinity=False),
    notes=st.none() | st.lists(st.text(), max_size=3),
)
documents = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=10,
)


@hypothesis.settings(deadline=None)
@hypothesis.given(balancers)
def test_a_dataclass_survives_the_journal(balancer):
    written = json.dumps(outputs.plain(balancer, "lb"))

    assert outputs.restore(Balancer, json.loads(written)) == balancer


@hypothesis.settings(deadline=None)
@hypothesis.given(st.dictionaries(st.text(), documents, max_size=3))
def test_a_mapping_is_the_same_before_and_after_the_journal(mapping):
    once = outputs.plain(mapping, "x")

    assert json.loads(json.dumps(once)) == once == mapping


def test_a_field_added_since_takes_its_default():
    assert outputs.restore(Balancer, {"id": "lb-1"}) == Balancer(id="lb-1")


@pytest.mark.parametrize(
    ("value", "where"),
    [
        ({"at": datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)}, "x.at"),
        ({"many": [1, {2}]}, "x.many[1]"),
        ({"odd": math.nan}, "x.odd"),
        ({"bytes": b"abc"}, "x.bytes"),
        ({1: "one"}, "x has the key 1"),
        (["not", "a", "mapping"], "x is a list"),
        (None, "x is a NoneType"),
    ],
)
def test_what_the_journal_cannot_hold_is_named_by_its_path(value, where):
    with pytest.raises(TypeError) as refused:
        outputs.plain(value, "x")

    assert where in str(refused.value)


def test_a_wrapped_secret_is_refused_wherever_it_hides():
    with pytest.raises(errors.SecretInJournal) as refused:
        outputs.plain({"users": [{"password": secret.Secret("hunter2")}]}, "x")

    assert refused.value.where == "x.users[0].password"
    assert "hunter2" not in str(refused.value)


def test_inputs_are_what_was_declared_and_no_more():
    inputs = outputs.Inputs("server", {"lb": {"id": "lb-1", "addresses": ["10.0.0.1"]}})

    assert inputs["lb"]["id"] == "lb-1"
    assert inputs.of("lb", Balancer) == Balancer(id="lb-1", addresses=("10.0.0.1",))
    assert list(inputs) == ["lb"]
    with pytest.raises(KeyError, match="server takes the output of 'network' but does not declare it"):
        inputs["network"]
