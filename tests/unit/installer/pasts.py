"""Journals with a past: small flows that are run for real and go well, fail, are resumed, rolled back or killed.

Run as a program it brings up a flow and dies in the middle of it: ``python -m tests.unit.installer.pasts JOURNAL``.
"""

from __future__ import annotations

import dataclasses
import datetime
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar

from moorage.engine import clock as clocks
from moorage.engine import context, errors, flow, outputs, resource
from moorage.engine import journal as journals

ROOT = Path(__file__).resolve().parents[3]
FLOW = "infrastructure"
DEADLY = 77
MORNING = datetime.datetime(2026, 1, 1, 9, tzinfo=datetime.UTC)


def moment(seconds: float) -> datetime.datetime:
    """So long after the morning."""
    return MORNING + datetime.timedelta(seconds=seconds)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Berth(resource.Resource[Mapping[str, object]]):
    """A thing that takes as long as it is expected to. ``moods`` say by name what goes wrong, ``there`` what exists."""

    kind: ClassVar[str] = "berth"
    moods: dict[str, str]
    there: set[str]

    def lookup(self, inputs: outputs.Inputs, ctx: context.Context) -> Mapping[str, object] | None:
        return {"id": f"id-{self.name}"} if self.name in self.there else None

    def create(self, inputs: outputs.Inputs, ctx: context.Context) -> str | None:
        mood = self.moods.get(self.name, "")
        if mood == "busy":
            del self.moods[self.name]
            raise errors.Transient("the platform is busy", words="503 <try> & again", retry_after=20)
        if mood == "refused":
            ctx.sleep(self.expected / 2)
            raise errors.Terminal("refused", words='quota "cores" is <exceeded> & closed')
        if mood == "deadly":
            ctx.sleep(self.expected / 2)
            os._exit(DEADLY)
        self.there.add(self.name)
        return f"id-{self.name}"

    def wait(self, inputs: outputs.Inputs, ctx: context.Context) -> Mapping[str, object]:
        ctx.waiting(f"{self.name} to be ACTIVE")
        ctx.sleep(self.expected)
        return {"id": f"id-{self.name}"}

    def delete(self, inputs: outputs.Inputs, output: Mapping[str, object], ctx: context.Context) -> None:
        ctx.sleep(self.expected / 4)
        if self.moods.get(self.name) == "stuck":
            raise errors.Terminal("cannot be deleted", words="in use by somebody")
        self.there.discard(self.name)


#: Name, what it needs, seconds: the chain network, balancer, master-0 decides.
HARBOUR: Mapping[str, tuple[tuple[str, ...], float]] = {
    "network": ((), 60.0),
    "image": ((), 90.0),
    "record": (("network",), 10.0),
    "balancer": (("network",), 240.0),
    "master-0": (("balancer", "image"), 120.0),
    "master-1": (("balancer", "image"), 110.0),
}


def harbour(there: set[str], moods: dict[str, str] | None = None) -> flow.Flow:
    chosen = {} if moods is None else moods
    return flow.Flow(
        FLOW,
        tuple(
            Berth(name=name, needs=needs, expected=seconds, there=there, moods=chosen)
            for name, (needs, seconds) in HARBOUR.items()
        ),
    )


def run(
    path: Path,
    there: set[str],
    moods: dict[str, str] | None = None,
    *,
    clock: clocks.Clock | None = None,
    workers: int = 1,
    rollback: bool = False,
) -> errors.FlowFailed | None:
    """One attempt at the harbour; the failure, if it failed."""
    with journals.Journal(path) as journal:
        try:
            flow.run(
                harbour(there, moods),
                journal=journal,
                clock=clock or clocks.ManualClock(),
                workers=workers,
                rollback=rollback,
            )
        except errors.FlowFailed as failed:
            return failed
    return None


def crash(path: Path, *, speed: float = 5000.0) -> None:
    """An attempt by a process of its own that dies while the balancer is being made."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.unit.installer.pasts", str(path), str(speed)],
        cwd=ROOT,
        check=False,
        capture_output=True,
        text=True,
    )
    assert done.returncode == DEADLY, done.stderr


if __name__ == "__main__":
    run(Path(sys.argv[1]), set(), {"balancer": "deadly"}, clock=clocks.Clock(float(sys.argv[2])), workers=8)
