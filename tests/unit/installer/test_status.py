"""Status reads the journal of others: alive, dead, failed or done."""

from __future__ import annotations

import datetime
import os
import subprocess
import sys
from pathlib import Path

import pytest

from moorage.engine import clock as clocks
from moorage.engine import errors, progress
from moorage.engine import journal as journals
from moorage.installer import aside, destroy, stages, status, story


@pytest.fixture
def clock() -> clocks.ManualClock:
    return clocks.ManualClock()


@pytest.fixture
def journal(tmp_path: Path) -> journals.Journal:
    return journals.Journal(tmp_path / aside.JOURNAL)


def begun(journal: journals.Journal, clock: clocks.Clock) -> stages.Stages:
    return stages.Stages(story.FLOW, story.STAGES, "harbour-abcde on none", journal, clock)


def test_a_failed_stage_is_told_with_its_reason(
    tmp_path: Path, journal: journals.Journal, clock: clocks.ManualClock
) -> None:
    told = begun(journal, clock)

    def fails() -> None:
        with told.stage("preflight"):
            clock.advance(20)
            raise errors.Terminal("no room")

    with pytest.raises(errors.Terminal):
        fails()
    journal.close()
    clock.advance(1000)

    found = status.read(tmp_path, clock.wall())

    assert found.cluster == "harbour-abcde on none"
    assert found.outcome == "failed"
    assert [(item.name, item.state, item.seconds, item.message) for item in found.stages] == [
        ("preflight", "failed", 20, "no room")
    ]
    assert found.seconds == 20


def test_what_is_running_is_told_with_what_it_waits_for(
    tmp_path: Path, journal: journals.Journal, clock: clocks.ManualClock
) -> None:
    told = begun(journal, clock)
    journal.remember("infrastructure", {"network": {}, "master": {}}, phase="forward")
    number = journal.begin("infrastructure", clock.wall())
    with told.stage("infrastructure"):
        for name in ("network", "master"):
            journal.append(number, progress.Started("infrastructure", name, clock.wall()))
        journal.append(number, progress.Finished("infrastructure", "network", clock.wall(), seconds=1))
        clock.advance(30)
        journal.append(number, progress.Waiting("infrastructure", "master", clock.wall(), what="an address"))
        clock.advance(30)

        found = status.read(tmp_path, clock.wall())

    assert found.outcome == "running"
    assert (found.done, found.total) == (1, 2)
    assert [(item.name, item.waiting_for, item.seconds) for item in found.resources] == [("master", "an address", 60)]
    assert found.stages[-1].seconds == 60


def test_a_run_whose_process_is_gone_was_cut_off(
    tmp_path: Path, journal: journals.Journal, clock: clocks.ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    monkeypatch.setattr(os, "getpid", lambda: dead.pid)
    begun(journal, clock)
    monkeypatch.undo()

    found = status.read(tmp_path, clock.wall() + datetime.timedelta(days=1))

    assert found.outcome == "cut off"
    assert found.seconds == 0


def test_where_nothing_was_begun_there_is_nothing_to_tell(tmp_path: Path, clock: clocks.ManualClock) -> None:
    with pytest.raises(errors.JournalError, match="no journal"):
        status.read(tmp_path, clock.wall())


def test_a_destroy_is_told_by_what_is_still_there(
    tmp_path: Path, journal: journals.Journal, clock: clocks.ManualClock
) -> None:
    begun(journal, clock).end("finished")
    journal.remember(destroy.FLOW, {}, phase="forward")
    number = journal.begin(destroy.FLOW, clock.wall())
    for event in (
        progress.Deleting(destroy.FLOW, "machine a", clock.wall()),
        progress.Reverted(destroy.FLOW, "machine a", clock.wall()),
        progress.Deleting(destroy.FLOW, "machine b", clock.wall()),
        progress.Left(destroy.FLOW, "machine b", clock.wall(), reason="locked"),
    ):
        journal.append(number, event)

    found = status.read(tmp_path, clock.wall())

    assert found.story == "destroy cluster"
    assert (found.done, found.total) == (1, 2)
    assert [(item.name, item.state, item.message) for item in found.resources] == [("machine b", "left", "locked")]


def test_a_destroy_after_waits_by_hand_names_the_cluster(
    tmp_path: Path, journal: journals.Journal, clock: clocks.ManualClock
) -> None:
    stages.Stages(story.WAITS, ("bootstrap", "install"), "harbour-abcde on none", journal, clock).end("finished")
    journal.remember(destroy.FLOW, {}, phase="forward")
    number = journal.begin(destroy.FLOW, clock.wall())
    journal.append(number, progress.Deleting(destroy.FLOW, "machine a", clock.wall()))

    found = status.read(tmp_path, clock.wall())

    assert (found.story, found.cluster) == ("destroy cluster", "harbour-abcde on none")
    assert (found.stages, found.done, found.total) == ((), 0, 1)


def test_a_journal_that_was_only_just_opened_is_nothing_begun(
    tmp_path: Path, journal: journals.Journal, clock: clocks.ManualClock
) -> None:
    with pytest.raises(errors.JournalError, match="nothing was begun"):
        status.read(tmp_path, clock.wall())


def test_a_wall_clock_that_was_set_back_does_not_confuse_the_runs(tmp_path: Path, journal: journals.Journal) -> None:
    late = clocks.ManualClock(wall=datetime.datetime(2026, 5, 4, 12, tzinfo=datetime.UTC))
    early = clocks.ManualClock(wall=datetime.datetime(2026, 5, 4, 11, tzinfo=datetime.UTC))
    with pytest.raises(errors.Terminal), begun(journal, late).stage("infrastructure"):
        raise errors.Terminal("no room")
    second = begun(journal, early)
    with second.stage("infrastructure"):
        early.advance(5)
    second.end("finished")
    journal.close()

    found = status.read(tmp_path, early.wall())

    assert [(item.name, item.state, item.seconds) for item in found.stages] == [("infrastructure", "finished", 5)]
