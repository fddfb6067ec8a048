"""A flow that is not a graph is refused before anything runs, with all that is wrong with it."""

from __future__ import annotations

import hypothesis
import pytest
import toycloud
from hypothesis import strategies as st

from moorage.engine import errors, flow, graph


def declare(*pairs: tuple[str, tuple[str, ...]]) -> flow.Flow:
    cloud = toycloud.Cloud()
    return flow.Flow("infra", tuple(toycloud.Thing(name=name, needs=needs, cloud=cloud) for name, needs in pairs))


@pytest.mark.parametrize(
    ("pairs", "words"),
    [
        pytest.param([("a", ()), ("a", ())], ["'a' is declared 2 times"], id="duplicate"),
        pytest.param(
            [("network", ()), ("server", ("netwrok",))],
            ["'server' needs 'netwrok'", "did you mean 'network'?"],
            id="unknown need, near a known one",
        ),
        pytest.param([("a", ("zzz",))], ["'a' needs 'zzz', which is not in the flow"], id="unknown need"),
        pytest.param([("a", ("a",))], ["a → a"], id="needs itself"),
        pytest.param(
            [("a", ("c",)), ("b", ("a",)), ("c", ("b",)), ("below", ("a",))],
            ["wait for each other", "a → "],
            id="cycle",
        ),
        pytest.param([("a b", ())], ["'a b' is no name"], id="space in a name"),
        pytest.param([("", ())], ["'' is no name"], id="no name"),
        pytest.param([("a", ()), ("a", ()), ("b", ("q",))], ["declared 2 times", "needs 'q'"], id="all at once"),
    ],
)
def test_a_flow_that_is_not_a_graph_is_refused(pairs, words):
    with pytest.raises(errors.InvalidGraph) as refused:
        declare(*pairs)

    for word in words:
        assert word in refused.value.message


def test_a_cycle_is_told_without_those_who_merely_wait_for_it():
    with pytest.raises(errors.InvalidGraph) as refused:
        declare(("m", ("n",)), ("n", ("m",)), ("below", ("m",)))

    assert "below" not in refused.value.message


acyclic = st.integers(1, 12).flatmap(
    lambda count: st.fixed_dictionaries(
        {
            f"r{index}": st.lists(st.sampled_from([f"r{other}" for other in range(index)]), unique=True).map(tuple)
            if index
            else st.just(())
            for index in range(count)
        }
    )
)


@hypothesis.settings(deadline=None)
@hypothesis.given(acyclic)
def test_everything_comes_after_what_it_needs_and_goes_before_it(needs):
    place = {name: index for index, name in enumerate(graph.order(needs))}
    back = {name: index for index, name in enumerate(graph.order(graph.reverse(needs)))}

    assert place.keys() == back.keys() == needs.keys()
    for name, wanted in needs.items():
        for need in wanted:
            assert place[need] < place[name]
            assert back[name] < back[need]


def test_above_is_everything_that_stands_on_something():
    needs = {"a": (), "b": ("a",), "c": ("b",), "d": (), "e": ("c", "d")}

    assert graph.above(["b"], needs) == {"b", "c", "e"}
    assert graph.above(["unknown"], needs) == set()
