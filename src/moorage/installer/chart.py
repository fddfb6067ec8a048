"""The Gantt chart of an installation as SVG: a row per resource, a bar per attempt, a band per process.

Plain SVG without a script: it is styled by the page around it (`timeline.css`), can be printed, and carries its facts
in ``data-`` attributes and tool tips.
"""

from __future__ import annotations

import dataclasses
import html
import re
from collections.abc import Iterable, Iterator, Sequence

from moorage.installer import axis as axes
from moorage.installer import durations, history

WIDTH = 1200
_LEFT, _RIGHT = 262, 1122
_ROW, _BAR, _HEAD, _TOP, _BOTTOM = 22, 13, 30, 52, 26
_CHARACTER = 6.3  # a generous mean width of the 11 px letters used for labels
_LABEL_LENGTH = 37
_NARROWEST = 3.0

#: Lines drawn over each state's colour, so that no two differ by colour alone.
PATTERNS = {
    "finished": "",
    "adopted": '<path d="M0 8L8 0"/>',
    "resumed": '<path d="M2 0V8M6 0V8"/>',
    "running": '<path d="M0 4H4"/>',
    "failed": '<path d="M0 0L8 8M0 8L8 0"/>',
    "stopped": '<path d="M0 2H8M0 6H8"/>',
    "cut": '<path d="M0 8L4 0L8 8"/>',
    "reverted": '<path d="M0 0L8 8"/>',
    "left": '<circle cx="4" cy="4" r="2"/>',
}


@dataclasses.dataclass(frozen=True)
class Row:
    """One resource's line in the chart."""

    resource: str
    y: float
    bars: tuple[history.Bar, ...]


@dataclasses.dataclass(frozen=True)
class Block:
    """One stage's part of the chart."""

    stage: history.Stage
    top: float
    rows: tuple[Row, ...]

    @property
    def bottom(self) -> float:
        return self.top + _HEAD + _ROW * len(self.rows) + 4


def escaped(text: str) -> str:
    """Safe as text and in attributes; what no screen can show is replaced."""
    return html.escape(re.sub(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]", "\ufffd", text), quote=True)


def spelled(outcome: str) -> str:
    """The journal's word for an outcome as a person would write it."""
    return outcome.replace("-", " ")


def swatch(state: str) -> str:
    """A sample of a state's bar for the legend; "critical" is the highlighted outline."""
    shape = '<rect x="2" y="2" width="30" height="12" rx="2" class="bar {}"/>'
    kind = "finished critical" if state == "critical" else state
    return (
        f'<svg class="swatch" viewBox="0 0 34 16" width="34" height="16" aria-hidden="true">{shape.format(kind)}</svg>'
    )


def patterns() -> str:
    """The definitions that all bars of a page are filled with, in an SVG of their own."""
    tiles = "".join(
        f'<pattern id="fill-{state}" class="tile {state}" width="8" height="8" patternUnits="userSpaceOnUse">'
        f'<rect width="8" height="8"/>{lines}</pattern>'
        for state, lines in PATTERNS.items()
    )
    return f'<svg class="tiles" width="0" height="0" aria-hidden="true"><defs>{tiles}</defs></svg>'


def draw(stages: Sequence[history.Stage]) -> str:
    """The whole chart; every stage has been begun at least once."""
    axis = axes.fit(_periods(stages), _LEFT, _RIGHT)
    blocks = list(_blocks(stages))
    bottom = blocks[-1].bottom
    parts = [
        f'<svg class="gantt" viewBox="0 0 {WIDTH} {bottom + _BOTTOM:.0f}" role="img" aria-labelledby="gantt-title">',
        '<title id="gantt-title">When each resource was worked on; the table below has the same facts</title>',
        *(part for block in blocks for part in _bands(block, axis)),
        *_scale(axis, bottom),
        *(part for block in blocks for part in _chain(block, axis)),
        *(part for block in blocks for row in block.rows for part in _row(row, block.stage, axis)),
        "</svg>",
    ]
    return "\n".join(parts)


def tooltip(bar: history.Bar, stage: history.Stage) -> str:
    """All that is known of a bar, line by line."""
    lines = [f"{bar.resource} ({stage.kinds.get(bar.resource) or 'resource'})"]
    lines.append(f"{history.STATES[bar.state]} in {durations.words(bar.seconds)}, attempt {bar.attempt}")
    lines += ["on the critical path"] if stage.decisive(bar) else []
    lines += [f"id {bar.ident}"] if bar.ident else []
    lines += [f"{bar.retries} calls repeated"] if bar.retries else []
    return "\n".join([*lines, *told(bar)])


def told(bar: history.Bar) -> list[str]:
    """What was waited for and what was said meanwhile."""
    return [*(f"waited for {what}" for what in bar.waits), *bar.messages]


def _periods(stages: Iterable[history.Stage]) -> Iterator[axes.Period]:
    for stage in stages:
        yield from ((attempt.started, attempt.ended) for attempt in stage.tries)
        yield from ((bar.started, bar.ended) for bar in stage.bars)


def _blocks(stages: Iterable[history.Stage]) -> Iterator[Block]:
    top = float(_TOP)
    for stage in stages:
        by_name: dict[str, list[history.Bar]] = {}
        for bar in stage.bars:
            by_name.setdefault(bar.resource, []).append(bar)
        rows = tuple(
            Row(name, top + _HEAD + _ROW * number, tuple(bars)) for number, (name, bars) in enumerate(by_name.items())
        )
        block = Block(stage, top, rows)
        yield block
        top = block.bottom + 6


def _bands(block: Block, axis: axes.Axis) -> Iterator[str]:
    """A background for each attempt, and the head line of the stage."""
    top, height = block.top, block.bottom - block.top
    name = escaped(_shortened(block.stage.name))
    yield f'<rect class="ground" x="0" y="{top:.1f}" width="{WIDTH}" height="{height:.1f}"/>'
    yield f'<text class="stage" x="10" y="{top + 19:.1f}">{name}</text>'
    free = 0.0
    for attempt in block.stage.tries:
        left, right = axis.x(attempt.started), axis.x(attempt.ended)
        width, outcome = max(right - left, _NARROWEST), spelled(attempt.outcome)
        words = f"attempt {attempt.number}: {outcome}, process {attempt.pid}, {durations.words(attempt.seconds)}"
        yield (
            f'<g class="band {attempt.outcome.replace(" ", "-")}" data-attempt="{attempt.number}" '
            f'data-outcome="{escaped(attempt.outcome)}" data-pid="{attempt.pid}"><title>{escaped(words)}</title>'
            f'<rect class="wash" x="{left:.1f}" y="{top:.1f}" width="{width:.1f}" height="{height:.1f}"/>'
            f'<rect class="edge" x="{left:.1f}" y="{top:.1f}" width="{width:.1f}" height="3"/>'
        )
        longest = f"attempt {attempt.number} · {outcome} · pid {attempt.pid}"
        for label in (longest, f"{attempt.number} · {outcome}", f"{attempt.number}"):
            if left >= free and len(label) * _CHARACTER + 6 <= width:
                yield f'<text x="{left + 5:.1f}" y="{top + 18:.1f}">{escaped(label)}</text>'
                free = left + len(label) * _CHARACTER + 8
                break
        yield "</g>"


def _scale(axis: axes.Axis, bottom: float) -> Iterator[str]:
    """Vertical lines at round times, above them the time of day each stretch of work began, and the folds."""
    yield '<g class="scale">'
    for tick in axis.ticks():
        yield f'<line x1="{tick.x:.1f}" x2="{tick.x:.1f}" y1="{_TOP - 6}" y2="{bottom:.1f}"/>'
        for y in (_TOP - 11, bottom + 16):
            yield f'<text x="{tick.x:.1f}" y="{y:.1f}" text-anchor="middle">{tick.label}</text>'
    shown = 0.0
    for stretch in axis.stretches:
        words = stretch.started.strftime("%Y-%m-%d %H:%M:%S UTC" if not shown else "%m-%d %H:%M")
        x = min(max(stretch.left - 10, 0), WIDTH - len(words) * _CHARACTER)
        if x >= shown:
            yield f'<text class="began" x="{x:.1f}" y="{_TOP - 33}">{words}</text>'
            shown = x + len(words) * _CHARACTER + 8
    yield "</g>"
    for before, after in axis.folds:
        gap = durations.words((after.started - before.ended).total_seconds())
        middle, y = (before.right + after.left) / 2, _TOP + 4
        yield (
            f'<g class="fold"><title>nobody at work for {gap}</title>'
            f'<rect x="{before.right:.1f}" y="{_TOP}" width="{after.left - before.right:.1f}" '
            f'height="{bottom - _TOP:.1f}"/>'
            f'<text transform="translate({middle + 4:.1f} {y:.1f}) rotate(-90)" text-anchor="end">{gap} later</text>'
            "</g>"
        )


def _chain(block: Block, axis: axes.Axis) -> Iterator[str]:
    """Thin lines that lead along the critical path from bar to bar."""
    rows = {row.resource: row for row in block.rows}
    for name, follower in zip(block.stage.path.names, block.stage.path.names[1:], strict=False):
        ends = [axis.x(bar.ended) for bar in rows[name].bars if bar.counts]
        starts = [axis.x(bar.started) for bar in rows[follower].bars if bar.counts]
        x, y = max(ends), rows[name].y + _ROW / 2
        start = next((start for start in starts if start >= x - 1), None)
        if start is not None:
            yield f'<path class="chain" d="M{x:.1f} {y:.1f}V{rows[follower].y + _ROW / 2:.1f}H{max(x, start):.1f}"/>'


def _row(row: Row, stage: history.Stage, axis: axes.Axis) -> Iterator[str]:
    decisive = row.resource in stage.path.names
    style = "name critical" if decisive else "name"
    kind = stage.kinds.get(row.resource, "")
    full = escaped(f"{row.resource} ({kind})" if kind else row.resource)
    middle = row.y + _ROW / 2
    yield f'<g class="row" data-resource="{escaped(row.resource)}"><text class="{style}" x="22" y="{middle + 4:.1f}">'
    yield f"<title>{full}</title>{escaped(_shortened(row.resource))}</text>"
    places = [_place(bar, axis) for bar in row.bars]
    for number, bar in enumerate(row.bars):
        left, width = places[number]
        classes = f"bar {bar.state}{' critical' if stage.decisive(bar) else ''}"
        yield (
            f'<rect class="{classes}" x="{left:.1f}" y="{middle - _BAR / 2:.1f}" width="{width:.1f}" height="{_BAR}" '
            f'rx="2" data-resource="{escaped(bar.resource)}" data-attempt="{bar.attempt}" data-state="{bar.state}" '
            f'data-seconds="{bar.seconds:.3f}" data-critical="{str(stage.decisive(bar)).lower()}">'
            f"<title>{escaped(tooltip(bar, stage))}</title></rect>"
        )
    yield from _lengths(row, places, middle)
    yield "</g>"


def _place(bar: history.Bar, axis: axes.Axis) -> tuple[float, float]:
    left = axis.x(bar.started)
    return left, max(axis.x(bar.ended) - left, _NARROWEST)


def _lengths(row: Row, places: Sequence[tuple[float, float]], middle: float) -> Iterator[str]:
    """How long each bar took, behind it or, where there is no room, before it."""
    for number, bar in enumerate(row.bars):
        words = durations.words(bar.seconds)
        room = len(words) * _CHARACTER + 12
        left, right = places[number][0], sum(places[number])
        limit = places[number + 1][0] if number + 1 < len(places) else WIDTH
        before = sum(places[number - 1]) + room if number else _LEFT
        if right + room <= limit:
            x, anchor = right + 5, "start"
        elif left - room >= before:
            x, anchor = left - 9, "end"
        else:
            continue
        yield f'<text class="length" x="{x:.1f}" y="{middle + 4:.1f}" text-anchor="{anchor}">{words}</text>'


def _shortened(name: str) -> str:
    """The two ends of a long name: cluster names begin alike, and what differs is at the end."""
    half = (_LABEL_LENGTH - 1) // 2
    return name if len(name) <= _LABEL_LENGTH else f"{name[: half - 4]}…{name[-half - 4 :]}"
