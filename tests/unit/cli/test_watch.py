"""What a person sees while a flow runs: on a terminal, in a log collector, on a bad day."""

from __future__ import annotations

import contextlib
import datetime
import errno
import io
import os
import pty
import re
import subprocess
import sys
from pathlib import Path

import pytest
from rich import console

from moorage.cli import live_view, talk, watch
from moorage.engine import clock as clocks
from moorage.engine import errors, flow, progress
from moorage.engine import journal as journals
from tests.unit.installer import pasts

MORNING = datetime.datetime(2026, 1, 1, 9, tzinfo=datetime.UTC)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class Scenario:
    """A watch on a clock that stands still, and what it has said."""

    def __init__(self, expected: dict[str, float] | None = None, level: str = "info") -> None:
        self.stream = io.StringIO()
        self.clock = clocks.ManualClock(wall=MORNING)
        self.voice = talk.Voice(level, self.stream)
        self.watch = watch.Watch(self.voice, expected or {}, "harbour", self.clock, live=False)

    def tell(self, event: type[progress.Event], resource: str = "", **details: object) -> None:
        self.watch(event("infrastructure", resource, self.clock.wall(), **details))

    def begin(self, total: int = 3, *, kept: int = 0, attempt: int = 1) -> None:
        self.tell(progress.FlowStarted, attempt=attempt, total=total, kept=kept)

    @property
    def said(self) -> list[str]:
        return self.stream.getvalue().splitlines()


def screen(scene: watch.Scene, now: datetime.datetime, width: int = 100, height: int = 25) -> list[str]:
    paper = console.Console(file=io.StringIO(), width=width, height=height, color_system=None)
    with paper.capture() as captured:
        paper.print(live_view.drawn(scene, now, height))
    return captured.get().splitlines()


# -- plain lines -----------------------------------------------------------------------------------------------------


def test_a_resource_is_told_from_start_to_end_with_what_was_expected() -> None:
    given = Scenario({"image": 90})
    given.begin()

    given.tell(progress.Started, "image")
    given.clock.advance(5)
    given.tell(progress.Waiting, "image", what="image to be ACTIVE")
    given.clock.advance(100)
    given.tell(progress.Finished, "image", seconds=105)

    assert given.said == [
        "info: infrastructure: 3 resources to make",
        "info: image: started, takes about 1 min 30 s",
        "info: image: waiting for image to be ACTIVE (5 s of about 1 min 30 s)",
        "info: image: done in 1 min 45 s, expected 1 min 30 s (1 of 3 done)",
    ]


def test_what_went_wrong_is_a_warning_and_in_the_summary() -> None:
    given = Scenario()
    given.begin()

    given.tell(progress.Started, "image")
    given.tell(progress.Retrying, "image", reason="503 busy", delay=20.0, tries=1)
    given.clock.advance(30)
    given.tell(progress.Failed, "image", reason="quota exceeded")
    given.tell(progress.FlowEnded, attempt=1, outcome="failed")

    assert "info: image: 503 busy (try 1, again in 20 s)" in given.said
    assert "warning: image: failed after 30 s: quota exceeded" in given.said
    assert given.said[-1] == (
        "info: infrastructure failed after 30 s: 0 of 3 resources done, 1 call repeated, failed: image, "
        "longest image with 30 s"
    )


def test_a_resumed_flow_says_what_is_there_already() -> None:
    given = Scenario()

    given.begin(total=34, kept=12, attempt=2)

    assert given.said == ["info: infrastructure: attempt 2, 12 of 34 resources are there already"]


def test_a_roll_back_is_told_too() -> None:
    given = Scenario()
    given.begin()

    given.tell(progress.Deleting, "image")
    given.tell(progress.Reverted, "image")
    given.tell(progress.Deleting, "record")
    given.tell(progress.Left, "record", reason="in use by somebody")
    given.tell(progress.FlowEnded, attempt=1, outcome="rolled-back")

    assert given.said[1:4] == ["info: image: removing it", "info: image: gone", "info: record: removing it"]
    assert given.said[4] == "warning: record: could not be removed: in use by somebody"
    assert "infrastructure rolled back after" in given.said[5]
    assert "1 removed again" in given.said[5]


def test_a_heartbeat_names_what_is_waited_for() -> None:
    given = Scenario({"image": 480})
    given.begin()
    given.tell(progress.Started, "image")
    given.tell(progress.Waiting, "image", what="image to be ACTIVE")
    before = len(given.said)

    given.clock.advance(watch.HEARTBEAT - 1)
    given.watch.beat()
    assert len(given.said) == before, "not before a minute is over"
    given.clock.advance(1)
    given.watch.beat()

    assert given.said[before:] == [
        "info: 0 of 3 done, still at work on image: waiting for image to be ACTIVE (1 min of about 8 min)"
    ]


def test_the_heart_beats_on_when_the_date_is_set_back() -> None:
    given = Scenario()
    given.begin()
    given.tell(progress.Started, "image")
    before = len(given.said)

    given.clock._wall_start -= datetime.timedelta(hours=5)
    given.clock.advance(watch.HEARTBEAT)
    given.watch.beat()

    assert len(given.said) == before + 1


def test_no_heartbeat_where_nothing_is_under_way() -> None:
    given = Scenario()
    given.begin()
    given.clock.advance(600)

    given.watch.beat()

    assert len(given.said) == 1


def test_the_heart_beats_by_itself(tmp_path: Path) -> None:
    stream = io.StringIO()
    clock = clocks.Clock(2000)
    built = pasts.harbour(set())
    with (
        journals.Journal(tmp_path / "journal") as journal,
        watch.listener(talk.Voice(stream=stream), built.expected, clock=clock) as listener,
    ):
        flow.run(built, journal=journal, clock=clock, listeners=[listener])

    assert "still at work on balancer: waiting for balancer to be ACTIVE" in stream.getvalue()


def test_waits_between_flows_are_told_until_something_else_happens() -> None:
    given = Scenario()

    given.watch.say("api", "the API to answer: api.harbour.example.com does not resolve", 0)
    given.watch.say("api", "the API to answer: it refuses connections", 70)
    assert [work.name for work in given.watch.scene.running.values()] == ["api"]
    given.tell(progress.Deleting, "bootstrap")

    assert given.said[:2] == [
        "info: api: waiting for the API to answer: api.harbour.example.com does not resolve (0 s)",
        "info: api: waiting for the API to answer: it refuses connections (1 min 10 s)",
    ]
    assert [work.name for work in given.watch.scene.running.values()] == ["bootstrap"]


def test_a_removal_without_a_flow_of_its_own_is_counted_on_the_screen() -> None:
    given = Scenario()
    for name in ("image", "network"):
        given.watch(progress.Deleting("destroy", name, MORNING))
    given.watch(progress.Reverted("destroy", "image", MORNING))
    given.clock.advance(61)

    shown = screen(given.watch.scene, given.watch.now())
    given.watch.beat()

    assert shown[0].startswith("harbour  destroy  1 min 1 s  1 removed")
    assert given.said[-1] == "info: still at work on network: removing it (1 min 1 s)"


def test_what_is_expected_may_become_known_later() -> None:
    stream, expected = io.StringIO(), dict[str, float]()
    with watch.listener(talk.Voice(stream=stream), expected, clock=clocks.ManualClock()) as listener:
        expected["image"] = 90

        listener(progress.Started("infrastructure", "image", MORNING))

    assert stream.getvalue() == "info: image: started, takes about 1 min 30 s\n"


def test_the_log_has_every_line_whatever_the_terminal_is_told(tmp_path: Path) -> None:
    given = Scenario(level="error")
    given.voice.log_to(tmp_path)
    given.begin()
    given.tell(progress.Started, "image")

    given.voice.close()

    assert given.said == []
    assert "image: started" in (tmp_path / talk.LOG).read_text()


def test_events_of_a_clock_that_runs_ahead_are_counted_by_that_clock() -> None:
    """The story's clock and the view's may have been made at different moments of a sped-up day."""
    given = Scenario()
    ahead = MORNING + datetime.timedelta(hours=5)
    given.watch(progress.FlowStarted("infrastructure", "", ahead, attempt=1, total=1, kept=0))
    given.watch(progress.Started("infrastructure", "image", ahead))

    given.clock.advance(61)
    given.watch.beat()

    assert "image: looking for it (1 min 1 s)" in given.said[-1]


# -- the live view ---------------------------------------------------------------------------------------------------


def test_the_screen_shows_header_running_and_expected() -> None:
    given = Scenario({"image": 480})
    given.begin(total=34, kept=12, attempt=2)
    given.tell(progress.Started, "image")
    given.tell(progress.Waiting, "image", what="image to be ACTIVE")
    given.clock.advance(185)

    shown = screen(given.watch.scene, given.watch.now())

    assert re.match(r"harbour  infrastructure  3 min 5 s  12 of 34 done", shown[0])
    assert re.match(r"  image waiting for image to be ACTIVE .* 3 min 5 s of about 8 min", shown[1])


def test_failures_and_repeated_calls_stay_on_the_screen() -> None:
    given = Scenario()
    given.begin()
    given.tell(progress.Started, "image")
    given.tell(progress.Failed, "image", reason="quota exceeded")
    given.tell(progress.Started, "record")
    given.tell(progress.Retrying, "record", reason="503 busy", delay=20.0, tries=1)
    given.tell(progress.Waiting, "record", what="the zone")
    given.clock.advance(60)

    shown = screen(given.watch.scene, given.watch.now())

    assert "1 repeated" in shown[0]
    assert shown[1] == "image: failed after 0 s: quota exceeded"
    assert "record waiting for the zone  (1 repeated)" in shown[2]


@pytest.mark.parametrize(("width", "height"), [(40, 12), (80, 24), (200, 60)])
def test_the_screen_never_overflows(width: int, height: int) -> None:
    given = Scenario({f"machine-with-a-rather-long-name-{number}": 300.0 for number in range(100)})
    given.begin(total=100)
    for number in range(100):
        given.tell(progress.Started, f"machine-with-a-rather-long-name-{number}")

    shown = screen(given.watch.scene, given.watch.now(), width, height)

    assert len(shown) < height
    assert max(map(len, shown)) <= width
    assert re.match(r"and \d+ more", shown[-1])


class ClosedTerminal(Terminal):
    """A terminal window until somebody closes it."""

    closed_by_user = False

    def write(self, words: str) -> int:
        if self.closed_by_user:
            raise OSError(errno.EIO, "Input/output error")
        return super().write(words)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_terminal_that_is_closed_does_not_hide_how_the_work_ended() -> None:
    terminal = ClosedTerminal()
    voice = talk.Voice("info", terminal)
    seen = watch.Watch(voice, {}, "harbour", clocks.ManualClock(), live=True)

    with pytest.raises(errors.Interrupted), live_view.shown(seen, voice):  # noqa: PT012 - it ends as work does
        terminal.closed_by_user = True
        voice.warn("stopping")
        raise errors.Interrupted


@pytest.mark.parametrize(
    ("stream", "term", "level", "live"),
    [
        (Terminal(), "xterm", "info", True),
        (Terminal(), "xterm", "debug", True),
        (Terminal(), "xterm", "error", False),
        (Terminal(), "dumb", "info", False),
        (Terminal(), "", "info", False),
        (io.StringIO(), "xterm", "info", False),
    ],
)
def test_a_live_view_needs_a_screen_and_a_person(
    monkeypatch: pytest.MonkeyPatch, stream: io.StringIO, term: str, level: str, live: bool
) -> None:
    monkeypatch.setenv("TERM", term)

    assert watch.is_live(talk.Voice(level, stream)) is live


PROGRAM = """
import pathlib, sys
from moorage.cli import talk, watch
from moorage.engine import clock as clocks, errors, flow, journal as journals
from tests.unit.installer import pasts
clock, built = clocks.Clock(400), pasts.harbour(set(), {"image": "busy", "master-1": "refused"})
voice = talk.Voice()
voice.log_to(pathlib.Path(sys.argv[1]))
with journals.Journal(pathlib.Path(sys.argv[1], "j")) as journal:
    with watch.listener(voice, built.expected, cluster="harbour", clock=clock) as listener:
        try:
            flow.run(built, journal=journal, clock=clock, listeners=[listener])
        except errors.FlowFailed as failed:
            voice.error("words of the program itself")
"""


def on_a_terminal(tmp_path: Path, **environ: str) -> str:
    """What a program under a real pseudo terminal writes to it."""
    ours, theirs = pty.openpty()
    program = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(tmp_path)],
        cwd=pasts.ROOT,
        stderr=theirs,
        stdout=subprocess.DEVNULL,
        stdin=subprocess.DEVNULL,
        env={**os.environ, "TERM": "xterm", "COLUMNS": "100", "LINES": "30", **environ},
    )
    os.close(theirs)
    seen = b""
    # A terminal whose last writer has gone answers with an error instead of an end.
    with contextlib.suppress(OSError):
        while block := os.read(ours, 65536):
            seen += block
    os.close(ours)
    assert program.wait() == 0
    return seen.decode()


def scrollback(seen: str) -> list[str]:
    """The lines that are left on the terminal in the end."""
    lines, row = [""], 0
    for code, sign, text in re.findall(r"\x1b\[([?0-9;]*)([A-Za-z])|([\r\n]|[^\x1b\r\n]+)", seen):
        if sign == "A":
            row -= int(code or 1)
        elif sign == "K":
            lines[row] = ""
        elif text == "\n":
            row += 1
            lines += [""] * (row + 1 - len(lines))
        elif text not in ("", "\r"):
            lines[row] += text
    return [line for line in lines if line]


def test_under_a_real_terminal(tmp_path: Path) -> None:
    seen = on_a_terminal(tmp_path)

    assert "waiting for balancer to be ACTIVE" in seen, "the running row was drawn"
    assert "\x1b[36m" in seen, "in colour"
    left = scrollback(seen)
    assert len(left) == 3, left
    assert left[0].startswith("warning: master-1: failed after")
    assert re.match(r"info: infrastructure failed after .*5 of 6 resources done", left[1])
    assert left[2] == "error: words of the program itself"
    assert seen.count("\x1b[?25l") == seen.count("\x1b[?25h"), "the cursor is shown again"
    log = (tmp_path / talk.LOG).read_text()
    assert "debug: balancer: waiting for balancer to be ACTIVE" in log
    assert "warning: master-1: failed after" in log


def test_under_a_terminal_without_colour(tmp_path: Path) -> None:
    seen = on_a_terminal(tmp_path, NO_COLOR="1")

    assert "waiting for balancer to be ACTIVE" in seen
    assert not re.search(r"\x1b\[[0-9;]*3[0-7]", seen)


def test_rich_is_not_loaded_without_a_screen() -> None:
    code = (
        "import io, sys; from moorage.cli import talk, watch\n"
        "with watch.listener(talk.Voice(stream=io.StringIO())): assert 'rich' not in sys.modules"
    )

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stderr


def test_a_failing_flow_ends_the_view(tmp_path: Path) -> None:
    stream, clock = io.StringIO(), clocks.Clock(5000)
    built = pasts.harbour(set(), {"network": "refused"})

    with (
        journals.Journal(tmp_path / "journal") as journal,
        pytest.raises(errors.FlowFailed),
        watch.listener(talk.Voice(stream=stream), clock=clock) as listener,
    ):
        flow.run(built, journal=journal, clock=clock, listeners=[listener])

    assert "warning: network: failed after" in stream.getvalue()
