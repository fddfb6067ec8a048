"""The live view: what runs, what each thing waits for and for how long, redrawn in place below the lines that stay.

It draws on stderr, so a script that reads stdout is not disturbed. rich is imported here and nowhere else, and only
when there is a screen.
"""

from __future__ import annotations

import contextlib
import datetime
import io
from collections.abc import Iterator

from rich import console, live, progress_bar, table, text

from moorage.cli import talk, watch
from moorage.installer import durations

_NAME_WIDTH = 34
_BAR_WIDTH = 14
#: Rows of the screen that are not for running resources: the header, what is left out, the line being typed after us.
_OTHER_ROWS = 5
_PER_SECOND = 4


class _Above(io.TextIOBase):
    """A stream whose lines appear above the view instead of through it."""

    def __init__(self, screen: console.Console) -> None:
        self._screen = screen

    def write(self, words: str) -> int:
        self._screen.print(text.Text.from_ansi(words.removesuffix("\n")), soft_wrap=True)
        return len(words)


@contextlib.contextmanager
def shown(watched: watch.Watch, voice: talk.Voice) -> Iterator[None]:
    """Show the scene until the block ends; then the view goes, and the lines above it stay."""
    screen = console.Console(file=voice.stream, highlight=False, markup=False, emoji=False)

    def draw() -> console.Group:
        with watched.held() as scene:
            return drawn(scene, watched.now(), screen.height)

    view = live.Live(
        console=screen,
        get_renderable=draw,
        refresh_per_second=_PER_SECOND,
        transient=True,
        redirect_stdout=False,
        redirect_stderr=False,
    )
    view.start()
    try:
        with voice.through(_Above(screen)):  # type: ignore[arg-type]  # a TextIOBase is what TextIO asks to be
            yield
    finally:
        # On a terminal that was closed there is nothing to tidy up, and how the work ended must not be lost over it.
        with contextlib.suppress(OSError):
            view.stop()


def drawn(scene: watch.Scene, now: datetime.datetime, height: int = 25) -> console.Group:
    """The scene as it looks at a moment, on a screen of so many rows."""
    problems = [text.Text(f"{name}: {words}", style="red") for name, words in scene.problems.items()]
    room = max(3, height - _OTHER_ROWS - 2 * len(problems))
    works = sorted(scene.running.values(), key=lambda work: work.since)
    rows = table.Table.grid(padding=(0, 1), expand=True)
    rows.add_column(no_wrap=True, overflow="ellipsis", max_width=_NAME_WIDTH)
    rows.add_column(no_wrap=True, overflow="ellipsis", ratio=1)
    rows.add_column(width=_BAR_WIDTH)
    rows.add_column(no_wrap=True, justify="right")
    for work in works[:room]:
        rows.add_row(*_row(work, now))
    more = works[room:]
    rest = [text.Text(f"and {len(more)} more", style="dim")] if more else []
    return console.Group(_header(scene, now), *problems, rows, *rest)


def _header(scene: watch.Scene, now: datetime.datetime) -> table.Table:
    words = text.Text()
    words.append(scene.cluster or "moorage", style="bold")
    if scene.stage:
        words.append(f"  {scene.stage}{' (rolling back)' if scene.rollback else ''}")
    if scene.since:
        words.append(f"  {durations.words((now - scene.since).total_seconds())}", style="cyan")
    if scene.total:
        words.append(f"  {scene.done} of {scene.total} done")
    if scene.removed:
        words.append(f"  {scene.removed} removed")
    if scene.retries:
        words.append(f"  {scene.retries} repeated", style="yellow")
    line = table.Table.grid(padding=(0, 1), expand=True)
    line.add_column(no_wrap=True, overflow="ellipsis", ratio=1)
    line.add_column(width=_BAR_WIDTH)
    line.add_row(words, progress_bar.ProgressBar(total=scene.total, completed=scene.done) if scene.total else "")
    return line


def _row(work: watch.Work, now: datetime.datetime) -> tuple[console.RenderableType, ...]:
    style = "yellow" if work.retrying else ""
    again = f"  ({work.retries} repeated)" if work.retries and not work.retrying else ""
    bar: console.RenderableType = ""
    if work.expected:
        bar = progress_bar.ProgressBar(total=work.expected, completed=min(work.spent(now), work.expected))
    late = work.expected and work.spent(now) > 2 * work.expected
    return (
        text.Text(f"  {work.name}", style="bold"),
        text.Text(f"{work.doing}{again}", style=style),
        bar,
        text.Text(work.times(now), style="yellow" if late else "cyan"),
    )
