"""`moorage create cluster`: from an install-config to a cluster that can be used; again, to go on where it stopped."""

from __future__ import annotations

import argparse
import contextlib
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from moorage.cli import early, talk

if TYPE_CHECKING:
    from collections.abc import Iterator

    from moorage.engine import clock as clocks
    from moorage.engine import flow
    from moorage.installer import story
    from moorage.platforms import contract


def add(kinds: Any, shared: argparse.ArgumentParser) -> None:
    kind = kinds.add_parser(
        "cluster",
        parents=[shared],
        help="make everything: assets, machines, cluster; run it again to go on after a failure",
        description="Makes the cluster. After a failure, an interrupt or a crash the same command goes on.",
    )
    kind.add_argument("--rollback", action="store_true", help="if the infrastructure fails, remove what was made of it")
    kind.add_argument(
        "--accept-changes",
        action="store_true",
        help="go on although the resources differ from those of the run before: what exists is looked up again",
    )
    kind.set_defaults(run=run)


def run(arguments: argparse.Namespace, voice: talk.Voice) -> int:
    started = time.monotonic()
    root = Path(arguments.dir)
    source = early.key_source(root, voice)

    from moorage.engine import clock as clocks
    from moorage.installer import story

    clock = clocks.from_environment()
    with interruptible(voice, clock), _audience(voice, clock) as audience:
        created = story.create_cluster(
            root,
            source,
            clock,
            os.environ,
            audience,
            rollback=arguments.rollback,
            accept_changes=arguments.accept_changes,
        )
    _summary(created, root, voice, time.monotonic() - started)
    return 0


@contextlib.contextmanager
def interruptible(voice: talk.Voice, clock: clocks.Clock) -> Iterator[None]:
    """Ctrl-C ends what runs on the clock in good order, a second one at once."""
    from moorage.engine import interrupt

    def notice() -> None:
        voice.warn("stopping: what is under way is brought to a safe end; once more to stop at once")

    with interrupt.stops(clock, notice=notice):
        yield


@contextlib.contextmanager
def _audience(voice: talk.Voice, clock: clocks.Clock) -> Iterator[story.Audience]:
    from moorage.cli import watch
    from moorage.installer import calls, produce, story

    expected: dict[str, float] = {}
    with watch.listener(voice, expected, clock=clock) as seen:

        def planned(cluster: contract.Cluster, infrastructure: flow.Flow) -> None:
            expected.update(infrastructure.expected)
            with seen.held() as scene:
                scene.cluster = cluster.infra_id

        yield story.Audience(
            events=seen,
            say=seen.say,
            note=voice.info,
            finding=lambda finding: voice.finding(produce.INSTALL_CONFIG, finding),
            tracer=lambda secrets: calls.tracer(voice, secrets),
            planned=planned,
        )


def _summary(created: story.Created, root: Path, voice: talk.Voice, seconds: float) -> None:
    from moorage.cli import wait_for
    from moorage.installer import durations

    voice.info(f"{created.cluster_domain} ({created.infra_id}) was made in {durations.words(seconds)}")
    wait_for.summary(created.installed, root, voice)
