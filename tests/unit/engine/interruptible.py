"""An installation to be interrupted. A program for the tests of SIGINT: ``interruptible.py FOLDER MODE``.

MODE is ``waiting`` (a resource that is not ready for an hour) or ``calling`` (a call that does not return until a line
is read from standard input). Prints ``under way`` when it is there and ``noticed`` at the first signal.
"""

from __future__ import annotations

import pathlib
import sys

import toycloud

from moorage import errors as top
from moorage.engine import clock as clocks
from moorage.engine import flow, interrupt
from moorage.engine import journal as journals


def say(line: str) -> None:
    print(line, flush=True)


def main(folder: pathlib.Path, mode: str) -> int:
    cloud = toycloud.FileCloud(folder / "cloud")
    if mode == "waiting":
        cloud.unready["network"] = 10_000
    elif mode == "calling":
        cloud.before["create", "network"].append(lambda: say("under way") or (sys.stdin.readline() and None))
    clock = clocks.Clock()
    resources = toycloud.things(cloud, {"network": (), "master": ("network",)}, every=3600.0, timeout=86400.0)
    try:
        with journals.Journal(folder / "journal.db") as journal, interrupt.stops(clock, notice=lambda: say("noticed")):
            flow.run(
                flow.Flow("infra", resources),
                journal=journal,
                clock=clock,
                listeners=[lambda event: say("under way") if event.state == "waiting" else None],
            )
    except top.MoorageError as error:
        print(error.message, error.remedy, file=sys.stderr)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main(pathlib.Path(sys.argv[1]), sys.argv[2]))
