"""A journal is taken up by a later run: with the same graph, a grown one, or a changed one that is accepted."""

from __future__ import annotations

import pathlib
import tempfile
import threading

import crashes
import hypothesis
import pytest
import toycloud
from hypothesis import strategies as st

from moorage.engine import clock as clocks
from moorage.engine import errors, flow
from moorage.engine import journal as journals


def run(resources, journal, **options):
    return flow.run(flow.Flow("infra", resources), journal=journal, clock=clocks.ManualClock(), **options)


class Killed(BaseException):
    """Stands for the end of the process: nothing that runs on may have any effect."""


class Death:
    """Lets ``count`` boundaries pass; from then on every one, in whatever thread, is fatal."""

    def __init__(self, count: int) -> None:
        self._left = count
        self._turn = threading.Lock()

    def __call__(self) -> None:
        with self._turn:
            self._left -= 1
            if self._left < 0:
                raise Killed


@st.composite
def graphs(draw: st.DrawFn) -> dict[str, tuple[str, ...]]:
    """Any directed graph without cycles over a few names."""
    names = [f"r{index}" for index in range(draw(st.integers(1, 7)))]
    needs = {
        name: tuple(draw(st.lists(st.sampled_from(names[:index]), unique=True, max_size=3))) if index else ()
        for index, name in enumerate(names)
    }
    return dict(draw(st.permutations(list(needs.items()))))


@hypothesis.settings(max_examples=40, deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow])
@hypothesis.given(needs=graphs(), deaths=st.lists(st.integers(0, 120), max_size=4), workers=st.integers(1, 4))
def test_any_graph_killed_any_number_of_times_ends_with_one_of_each(needs, deaths, workers):
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)

        def attempt(boundary):
            cloud = toycloud.FileCloud(folder / "cloud", boundary)
            with crashes.MortalJournal(folder / "journal.db") as journal:
                journal.boundary = boundary
                return run(toycloud.things(cloud, needs), journal, workers=workers)

        for count in deaths:
            try:
                attempt(Death(count))
            except Killed:
                continue
        outcome = attempt(lambda: None)

        inventory = toycloud.FileCloud(folder / "cloud")
        assert inventory.inventory() == dict.fromkeys(sorted(needs), 1)
        assert {name: record["id"] for name, record in outcome.outputs.items()} == {
            name: inventory.things[name][0] for name in needs
        }


def interrupted_after(needs, cloud, journal, broken: str):
    """A run that stopped because ``broken`` could not be created."""
    cloud.before["create", broken].append(toycloud.fails(errors.Terminal("no")))
    with pytest.raises(errors.FlowFailed):
        run(toycloud.things(cloud, needs), journal)


def test_a_resource_added_since_is_made(cloud, journal):
    run(toycloud.things(cloud, {"a": ()}), journal)

    outcome = run(toycloud.things(cloud, {"a": (), "b": ("a",)}), journal)

    assert cloud.inventory() == {"a": 1, "b": 1}
    assert outcome.kept == ("a",)


def test_what_was_never_started_may_change_freely(cloud, journal):
    interrupted_after({"a": (), "b": ("a",), "c": ("b",)}, cloud, journal, broken="a")
    cloud.things.clear()

    run(toycloud.things(cloud, {"a": (), "d": ("a",)}), journal)

    assert cloud.inventory() == {"a": 1, "d": 1}


@pytest.mark.parametrize(
    ("today", "words"),
    [
        pytest.param({"a": ()}, "b is gone", id="removed"),
        pytest.param({"a": (), "bee": ("a",)}, "b is gone (renamed to bee?)", id="renamed"),
        pytest.param(
            {"a": (), "b": ()}, "b was a thing that needs a and is a thing that needs nothing", id="other needs"
        ),
    ],
)
def test_a_recorded_resource_that_changed_is_refused_with_the_ways_on(cloud, journal, today, words):
    run(toycloud.things(cloud, {"a": (), "b": ("a",)}), journal)
    cloud.calls.clear()

    with pytest.raises(errors.GraphChanged) as changed:
        run(toycloud.things(cloud, today), journal)

    assert words in changed.value.message
    assert "destroy" in changed.value.remedy
    assert "accept" in changed.value.remedy
    assert cloud.calls == []


def test_a_resource_that_may_exist_though_it_never_finished_is_not_forgotten_either(cloud, journal):
    interrupted_after({"a": (), "b": ("a",)}, cloud, journal, broken="b")

    with pytest.raises(errors.GraphChanged, match="b is gone"):
        run(toycloud.things(cloud, {"a": ()}), journal)


def test_an_accepted_change_adopts_what_exists_and_whatever_stands_on_it(cloud, journal):
    run(toycloud.things(cloud, {"a": (), "b": ("a",), "c": ("b",), "z": ()}), journal)
    cloud.calls.clear()

    outcome = run(toycloud.things(cloud, {"a": (), "b": (), "c": ("b",), "z": ()}), journal, accept_changes=True)

    assert cloud.inventory() == {"a": 1, "b": 1, "c": 1, "z": 1}
    assert cloud.made("create") == []
    assert outcome.outputs["b"]["on"] == []
    assert set(outcome.kept) == {"a", "z"}
    forgotten = {entry.resource for entry in journal.events("infra") if entry.state == "forgotten"}
    assert forgotten == {"b", "c"}
    assert run(toycloud.things(cloud, {"a": (), "b": (), "c": ("b",), "z": ()}), journal).attempt == 3


def test_two_flows_in_one_journal_do_not_know_each_other(cloud, journal):
    for name in ("infra", "bootstrap"):
        flow.run(
            flow.Flow(name, toycloud.things(cloud, {f"{name}-a": ()})), journal=journal, clock=clocks.ManualClock()
        )

    assert journal.flows() == ["infra", "bootstrap"]
    assert set(journal.finished("infra")) == {"infra-a"}
    assert set(journal.finished("bootstrap")) == {"bootstrap-a"}


def test_a_lost_journal_is_replaced_by_looking(cloud, tmp_path):
    for name in ("first.db", "second.db"):
        with journals.Journal(tmp_path / name) as journal:
            run(toycloud.harbour(cloud), journal)

    assert cloud.inventory() == toycloud.names(toycloud.harbour(cloud))
