"""The critical path is the longest chain, and no number of workers beats it."""

from __future__ import annotations

import datetime
import itertools

import hypothesis
import pytest
from hypothesis import strategies as st

from moorage.engine import critical, journal

DIAMOND = {"network": (), "image": (), "server": ("network", "image"), "record": ("network",)}
SECONDS = {"network": 10.0, "image": 300.0, "server": 60.0, "record": 5.0}


def test_the_longest_chain_decides():
    assert critical.critical_path(DIAMOND, SECONDS) == critical.Path(("image", "server"), 360.0)


def test_nothing_takes_no_time():
    assert critical.critical_path({}, {}) == critical.Path((), 0.0)
    assert critical.makespan({}, {}, workers=4) == 0.0


@pytest.mark.parametrize(("workers", "seconds"), [(1, 375.0), (2, 360.0), (16, 360.0)])
def test_with_few_workers_it_takes_longer(workers, seconds):
    assert critical.makespan(DIAMOND, SECONDS, workers) == seconds


def test_the_longest_is_started_first():
    assert critical.makespan({"a": (), "b": (), "z": ()}, {"a": 1.0, "b": 1.0, "z": 10.0}, workers=2) == 10.0


timed = st.integers(1, 9).flatmap(
    lambda count: st.tuples(
        st.fixed_dictionaries(
            {
                f"r{index}": st.lists(st.sampled_from([f"r{other}" for other in range(index)]), unique=True).map(tuple)
                if index
                else st.just(())
                for index in range(count)
            }
        ),
        st.fixed_dictionaries({f"r{index}": st.integers(0, 100).map(float) for index in range(count)}),
        st.integers(1, 5),
    )
)


@hypothesis.settings(deadline=None)
@hypothesis.given(timed)
def test_the_makespan_lies_between_its_two_bounds(case):
    needs, seconds, workers = case
    path = critical.critical_path(needs, seconds)
    took = critical.makespan(needs, seconds, workers)

    assert sum(seconds[name] for name in path.names) == path.seconds
    assert all(before in needs[after] for before, after in itertools.pairwise(path.names))
    assert max(path.seconds, sum(seconds.values()) / workers) <= took
    assert took <= path.seconds + sum(seconds.values()) / workers
    assert critical.makespan(needs, seconds, len(needs)) == path.seconds


def entry(number: int, attempt: int, resource: str, state: str, second: float, **more: str) -> journal.Entry:
    at = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC) + datetime.timedelta(seconds=second)
    return journal.Entry(id=number, attempt=attempt, resource=resource, state=state, at=at, **more)


def test_events_become_spans():
    spans = critical.spans(
        [
            entry(1, 1, "", "flow-started", 0),
            entry(2, 1, "a", "started", 0),
            entry(3, 1, "b", "started", 1),
            entry(4, 1, "a", "waiting", 5, waiting_for="a to be up"),
            entry(5, 1, "b", "failed", 6, message="quota"),
            entry(6, 1, "a", "finished", 30),
            entry(7, 2, "b", "started", 100),
            entry(8, 2, "b", "waiting", 101, waiting_for="b to be up"),
        ]
    )

    told = [(span.resource, span.attempt, span.state, span.seconds, span.message, span.waiting_for) for span in spans]
    assert told == [
        ("a", 1, "finished", 30.0, "", ""),
        ("b", 1, "failed", 5.0, "quota", ""),
        ("b", 2, "waiting", 0.0, "", "b to be up"),
    ]
    assert critical.observed(spans) == {"a": 30.0, "b": 5.0}


def test_a_roll_back_in_the_same_attempt_is_a_span_of_its_own():
    spans = critical.spans(
        [
            entry(1, 1, "a", "started", 0),
            entry(2, 1, "a", "finished", 10),
            entry(3, 1, "a", "deleting", 50),
            entry(4, 1, "a", "reverted", 55),
        ]
    )

    assert [(span.state, span.seconds) for span in spans] == [("finished", 10.0), ("reverted", 5.0)]


def test_a_date_that_was_set_back_makes_no_span_shorter_than_nothing():
    (span,) = critical.spans([entry(1, 1, "a", "started", 3600), entry(2, 1, "a", "finished", 10)])

    assert span.seconds == 0.0
