"""Waits by hand are kept in the journal: what `status` and `timeline` tell of them, and where they leave no trace."""

from __future__ import annotations

import datetime
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from moorage import errors as top
from moorage.engine import clock as clocks
from moorage.engine import errors
from moorage.engine import journal as journals
from moorage.installer import aside, awaited, history, stages, status, story

Said = list[tuple[str, str, float]]


@pytest.fixture
def clock() -> clocks.ManualClock:
    return clocks.ManualClock()


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A directory from which machines were given their configs."""
    known = {"infraID": "harbour-abcde", "clusterName": "harbour", "none": {}}
    (tmp_path / "metadata.json").write_text(json.dumps(known))
    return tmp_path


@pytest.fixture
def said() -> Said:
    return []


def wait(root: Path, stage: str, clock: clocks.ManualClock, said: Said, ends: BaseException | None = None) -> None:
    """A wait of five minutes that says one thing twice and another once."""
    with awaited.journaled(root, stage, clock, lambda *words: said.append(words)) as say:
        for words in ("two masters", "two masters", "one master"):
            clock.advance(100)
            say("bootstrap", words, clock.now())
        if ends is not None:
            raise ends


def test_a_wait_is_told_by_status_and_timeline(root: Path, clock: clocks.ManualClock, said: Said) -> None:
    wait(root, "bootstrap", clock, said)
    wait(root, "install", clock, said)
    clock.advance(5000)

    found = status.read(root, clock.wall())
    assert (found.cluster, found.story, found.outcome, found.runs) == (
        "harbour-abcde on none",
        "wait-for",
        "finished",
        2,
    )
    assert [(item.name, item.state, item.seconds) for item in found.stages] == [
        ("bootstrap", "finished", 300),
        ("install", "finished", 300),
    ]
    assert (found.resources, found.done, found.total) == ((), 0, 0)
    assert len(said) == 6, "all is said, also what the journal has heard already"
    with journals.Journal(root / aside.JOURNAL, create=False) as journal:
        assert [stage.name for stage in history.read(journal, now=clock.wall())] == ["wait-for"]
        waits = [entry.waiting_for for entry in journal.events(awaited.FLOW) if entry.waiting_for]
    assert waits == ["two masters", "one master"] * 2


def test_a_wait_that_goes_on_is_told_with_what_it_waits_for(root: Path, clock: clocks.ManualClock, said: Said) -> None:
    with awaited.journaled(root, "bootstrap", clock, lambda *words: said.append(words)) as say:
        say("bootstrap", "the bootstrap: 2 of 3 masters are Nodes", 1.0)
        clock.advance(60)
        found = status.read(root, clock.wall())

    assert found.outcome == "running"
    [item] = found.stages
    assert (item.state, item.waiting_for, item.seconds) == ("waiting", "the bootstrap: 2 of 3 masters are Nodes", 60)


@pytest.mark.parametrize(
    ("ends", "outcome", "state", "words"),
    [
        (top.MoorageError("no master came"), "failed", "failed", "no master came"),
        (errors.Interrupted(), "interrupted", "stopped", ""),
    ],
    ids=["in vain", "Ctrl-C"],
)
def test_a_wait_that_ends_otherwise_says_how_and_reaches_the_top_as_it_is(
    ends: top.MoorageError,
    outcome: str,
    state: str,
    words: str,
    root: Path,
    clock: clocks.ManualClock,
    said: Said,
) -> None:
    with pytest.raises(type(ends)) as caught:
        wait(root, "bootstrap", clock, said, ends)

    assert caught.value is ends
    found = status.read(root, clock.wall() + datetime.timedelta(days=1))
    assert found.outcome == outcome
    assert [(item.name, item.state, item.seconds) for item in found.stages] == [("bootstrap", state, 300)]
    assert words in found.stages[0].message

    # The next one begins anew, and is what counts.
    wait(root, "bootstrap", clock, said)
    found = status.read(root, clock.wall())
    assert (found.outcome, found.runs) == ("finished", 2)
    assert [item.state for item in found.stages] == ["finished"]


KILLED = """
import os, sys
from pathlib import Path
from moorage.engine import clock
from moorage.installer import awaited
with awaited.journaled(Path(sys.argv[1]), "bootstrap", clock.Clock(), lambda *words: None) as say:
    say("bootstrap", "the API", 0.0)
    os.kill(os.getpid(), 9)
"""


def test_a_wait_that_was_killed_was_cut_off(root: Path) -> None:
    ended = subprocess.run([sys.executable, "-c", KILLED, str(root)], check=False)
    assert ended.returncode == -9

    found = status.read(root, datetime.datetime.now(datetime.UTC) + datetime.timedelta(days=1))

    assert found.outcome == "cut off"
    assert found.stages[0].waiting_for == "the API"
    assert found.seconds < 60, "nothing goes on after the end"


def test_the_story_of_create_cluster_is_left_alone(root: Path, clock: clocks.ManualClock, said: Said) -> None:
    with journals.Journal(root / aside.JOURNAL) as journal:
        stages.Stages(story.FLOW, story.STAGES, "harbour-abcde on none", journal, clock).end("finished")
        before = (journal.flows(), list(journal.events(story.FLOW)))

    wait(root, "install", clock, said)

    with journals.Journal(root / aside.JOURNAL, create=False) as journal:
        assert (journal.flows(), list(journal.events(story.FLOW))) == before
    assert len(said) == 3
    assert status.read(root, clock.wall()).story == story.FLOW


def test_where_nothing_but_a_kubeconfig_is_nothing_is_left_behind(
    tmp_path: Path, clock: clocks.ManualClock, said: Said
) -> None:
    wait(tmp_path, "install", clock, said)

    assert list(tmp_path.iterdir()) == []
    assert len(said) == 3


def test_metadata_of_nobody_is_no_reason_not_to_wait(root: Path, clock: clocks.ManualClock, said: Said) -> None:
    (root / "metadata.json").write_text("{}")

    wait(root, "install", clock, said)

    assert not (root / aside.JOURNAL).exists()
    assert len(said) == 3


@pytest.mark.parametrize("spoil", ["a folder", "no journal", "read-only"])
def test_a_journal_that_cannot_be_written_is_no_reason_not_to_wait(
    spoil: str, root: Path, clock: clocks.ManualClock, said: Said, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = root / aside.JOURNAL
    if spoil == "a folder":
        path.mkdir()
    elif spoil == "no journal":
        path.write_text(
            "somebody else's file, long enough to be looked at as if it were a database of its own kind" * 40
        )
    else:

        def refused(*_: object, **__: object) -> int:
            raise PermissionError(13, "Permission denied")

        # Root may write wherever it likes, so the refusal is made.
        monkeypatch.setattr(os, "open", refused)

    wait(root, "install", clock, said)

    assert len(said) == 3


def test_two_waits_at_once_do_not_disturb_each_other(root: Path, clock: clocks.ManualClock, said: Said) -> None:
    with awaited.journaled(root, "bootstrap", clock, lambda *words: said.append(words)) as first:
        first("bootstrap", "the API", 0.0)
        wait(root, "bootstrap", clock, said)
        first("bootstrap", "two masters", 1.0)

    assert status.read(root, clock.wall()).runs == 2
