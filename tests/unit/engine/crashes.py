"""Kill an installation at every place where it could die, and see whether the next one puts things right.

Run as a program: ``crashes.py FOLDER STORY EVERY``, where EVERY is 1 to try all places, 2 for every other. A trial is
a forked child that is killed by SIGKILL at its k-th boundary (before each call to the cloud, after each change there,
before and after each commit of the journal), then a second child that goes on. Prints the number of boundaries,
of kills, and every trial that went wrong.
"""

from __future__ import annotations

import json
import os
import pathlib
import signal
import sys
import threading
from collections.abc import Callable

import toycloud

from moorage.engine import clock as clocks
from moorage.engine import errors, flow, runner
from moorage.engine import journal as journals

assert runner, "loaded here once, so that no child has to"


class Boundaries:
    """Counts the places where a process may die, and kills it at the chosen one."""

    def __init__(self, fatal: int = 0) -> None:
        self.passed = 0
        self._fatal = fatal
        self._turn = threading.Lock()

    def __call__(self) -> None:
        with self._turn:
            self.passed += 1
            if self.passed == self._fatal:
                os.kill(os.getpid(), signal.SIGKILL)


class MortalJournal(journals.Journal):
    """A journal in whose commits a process may die."""

    boundary: Callable[[], None] = staticmethod(lambda: None)

    def _commit(self) -> None:
        self.boundary()
        super()._commit()
        self.boundary()


def install(folder: pathlib.Path, story: str, boundary: Callable[[], None]) -> None:
    """One run of the story's flow: to its end, or to the roll-back that the story asks for."""
    cloud = toycloud.FileCloud(folder / "cloud", boundary)
    resources = toycloud.harbour(cloud)
    if story == "rollback":
        cloud.before["create", "broken"] = [toycloud.fails(errors.Terminal("never"))]
        resources += (toycloud.Thing(name="broken", needs=("master",), cloud=cloud),)
    with MortalJournal(folder / "journal.db") as journal:
        journal.boundary = boundary
        try:
            flow.run(
                flow.Flow("infra", resources),
                journal=journal,
                clock=clocks.ManualClock(),
                workers=4,
                rollback=story == "rollback",
            )
        except errors.FlowFailed as failed:
            if story != "rollback" or failed.left or not failed.rolled_back:
                raise


def in_child(work: Callable[[], int]) -> int:
    """Do the work in a forked child; its exit code, negative if a signal ended it."""
    child = os.fork()
    if child == 0:
        code = 99
        try:
            code = work()
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def trial(folder: pathlib.Path, story: str, fatal: int) -> int:
    """Run until the fatal boundary (0 for none); the number of boundaries passed is left beside the journal."""
    boundary = Boundaries(fatal)

    def work() -> int:
        install(folder, story, boundary)
        (folder / "passed").write_text(str(boundary.passed))
        return 0

    return in_child(work)


def main(root: pathlib.Path, story: str, every: int) -> dict[str, object]:
    expected = {} if story == "rollback" else toycloud.names(toycloud.harbour(toycloud.Cloud()))
    clean = root / "clean"
    clean.mkdir()
    if trial(clean, story, 0) != 0:
        return {"boundaries": 0, "killed": 0, "problems": ["the undisturbed run failed"]}
    boundaries = int((clean / "passed").read_text())
    problems, killed = [], 0
    for fatal in range(1, boundaries + 1, every):
        folder = root / str(fatal)
        folder.mkdir()
        died = trial(folder, story, fatal)
        killed += died == -signal.SIGKILL
        # Workers share commits as chance has it, so a run may get by with a few boundaries less than the first one.
        if died != -signal.SIGKILL and (died != 0 or int((folder / "passed").read_text()) >= fatal):
            problems.append(f"{fatal}: ended with {died} instead of being killed")
        resumed = trial(folder, story, 0)
        inventory = toycloud.FileCloud(folder / "cloud").inventory()
        if resumed != 0 or inventory != expected:
            problems.append(f"{fatal}: resumed with {resumed}, leaving {inventory}")
    return {"boundaries": boundaries, "killed": killed, "problems": problems}


if __name__ == "__main__":
    print(json.dumps(main(pathlib.Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]))))
