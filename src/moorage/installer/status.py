"""Where a cluster's story stands, read from its journal: also while another process writes it, and after a crash."""

from __future__ import annotations

import dataclasses
import datetime
import os
from pathlib import Path

from moorage.engine import critical, errors
from moorage.engine import journal as journals
from moorage.installer import aside, destroy, stages, story

_OVER = {"finished", "kept", "reverted", "forgotten"}


@dataclasses.dataclass(frozen=True)
class Item:
    """A stage or a resource: its state, since when, for how long, and what was last said about it."""

    name: str
    state: str
    since: datetime.datetime
    seconds: float
    waiting_for: str = ""
    message: str = ""


@dataclasses.dataclass(frozen=True)
class Status:
    """``outcome`` is the last run's: running, cut off, failed, interrupted, rolled-back or finished."""

    cluster: str
    story: str
    outcome: str
    runs: int
    started: datetime.datetime
    seconds: float
    stages: tuple[Item, ...]
    resources: tuple[Item, ...]
    done: int
    total: int


def read(root: Path, now: datetime.datetime) -> Status:
    """The status of the cluster in ``root``; `JournalError` if nothing was ever begun there."""
    with journals.Journal(root / aside.JOURNAL, create=False) as journal:
        flows = journal.flows()
        name = next((each for each in (destroy.FLOW, story.FLOW, story.WAITS) if each in flows), story.FLOW)
        runs = journal.attempts(name)
        if not runs:
            raise errors.JournalError(f"nothing was begun in {root}", remedy="run: moorage create cluster")
        last = runs[-1]
        outcome = "cut off" if last.outcome == "running" and not _alive(last.pid) else last.outcome
        # Nothing goes on after the end of a run, however long ago it was.
        present = now if outcome == "running" else last.finished or _last_event(journal, flows, last.started)
        made = [each for each in flows if each not in (story.FLOW, story.WAITS) and not each.startswith("destroy ")]
        worked_on = [destroy.FLOW] if name == destroy.FLOW else made
        resources = [item for each in worked_on for item in _items(journal, each, present)]
        planned = [known.graph for each in made if (known := journal.known(each)) is not None]
        return Status(
            cluster=stages.about(journal, story.FLOW) or stages.about(journal, story.WAITS),
            story=name,
            outcome=outcome,
            runs=len(runs),
            started=last.started,
            seconds=max(0.0, (present - last.started).total_seconds()),
            stages=() if name == destroy.FLOW else tuple(_items(journal, name, present)),
            resources=tuple(item for item in resources if item.state not in _OVER),
            done=sum(item.state in _OVER for item in resources),
            total=len(resources) if name == destroy.FLOW else sum(map(len, planned)),
        )


def _items(journal: journals.Journal, flow: str, now: datetime.datetime) -> list[Item]:
    """Each resource's last span, in order of their first."""
    latest: dict[str, critical.Span] = {}
    for span in critical.spans(journal.events(flow)):
        latest[span.resource] = span
    return [
        Item(
            name=span.resource,
            state=span.state,
            since=span.started,
            seconds=max(0.0, ((span.finished or now) - span.started).total_seconds()),
            waiting_for=span.waiting_for,
            # What was told on the way is for the timeline, once it has ended well.
            message="" if span.state == "finished" else span.message,
        )
        for span in latest.values()
    ]


def _last_event(journal: journals.Journal, flows: list[str], started: datetime.datetime) -> datetime.datetime:
    return max((entry.at for flow in flows for entry in journal.events(flow)), default=started)


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
