"""Waits that a user started by hand, kept in the journal: for a cluster whose machines they brought, it is the story.

So `status` and `timeline` can tell of such a cluster too. Where `create cluster` keeps a story of its own, and where a
directory holds nothing but a kubeconfig, a wait leaves no trace.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from moorage import errors
from moorage.engine import clock as clocks
from moorage.engine import journal as journals
from moorage.installer import aside, metadata, stages, story, waiting

FLOW = story.WAITS
STAGES = ("bootstrap", "install")


@contextlib.contextmanager
def journaled(root: Path, stage: str, clock: clocks.Clock, say: waiting.Say) -> Iterator[waiting.Say]:
    """Keep a wait in the journal, as far as there is a cluster to write about."""
    try:
        known = metadata.read(root / metadata.FILE)
    except errors.MoorageError:
        yield say
        return
    with contextlib.ExitStack() as held:
        try:
            journal = held.enter_context(journals.Journal(root / aside.JOURNAL))
        except errors.MoorageError:
            # A full disk or a read-only folder is no reason not to wait.
            journal = None
        if journal is None or story.FLOW in journal.flows():
            yield say
            return
        told = stages.Stages(FLOW, STAGES, f"{known.infra_id} on {known.platform}", journal, clock)
        with told.stage(stage):
            yield told.heard(stage, say)
        told.end("finished")
