"""The story of an installation on one page, to be read when it is over, when it broke, or while it runs.

`page` is a single HTML file: no script, nothing fetched, so it can be mailed to whoever helps. `summary` has the same
facts for programs. Both come from the journal alone.
"""

from __future__ import annotations

import datetime
import importlib.resources
from collections.abc import Callable, Iterable, Iterator, Sequence

import moorage
from moorage.engine import journal as journals
from moorage.installer import chart, durations, history

_NUMBERS = ("Took", "After")
_POLICY = "default-src 'none'; style-src 'unsafe-inline'"


def page(
    journal: journals.Journal,
    *,
    title: str = "",
    now: datetime.datetime | None = None,
    alive: Callable[[int], bool] = history.process_exists,
) -> str:
    """The page; ``title`` names the cluster. ``alive`` tells whether the process of an open attempt still exists."""
    stages = history.read(journal, now=now, alive=alive)
    style = importlib.resources.files("moorage.installer").joinpath("timeline.css").read_text(encoding="utf-8")
    heading = chart.escaped(f"Timeline of {title}" if title else "Timeline")
    body = "\n".join(_body(stages)) if stages else "<p>Nothing has been begun yet.</p>"
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">\n'
        '<meta name="viewport" content="width=device-width">\n'
        f"<title>{heading}</title>\n<style>\n{style}</style>\n</head>\n<body>\n"
        f"<h1>{heading}</h1>\n{body}\n"
        f'<p class="soft">Written by moorage {chart.escaped(moorage.__version__)}. Times are UTC.</p>\n'
        "</body>\n</html>\n"
    )


def summary(
    journal: journals.Journal,
    *,
    now: datetime.datetime | None = None,
    alive: Callable[[int], bool] = history.process_exists,
) -> list[dict[str, object]]:
    """The same facts for programs: one entry per stage."""
    return [_told(stage) for stage in history.read(journal, now=now, alive=alive)]


def _told(stage: history.Stage) -> dict[str, object]:
    return {
        "stage": stage.name,
        "outcome": stage.tries[-1].outcome,
        "started": stage.started.isoformat(),
        "ended": stage.ended.isoformat(),
        "workedSeconds": round(stage.worked, 3),
        "criticalPath": {"resources": list(stage.path.names), "seconds": round(stage.path.seconds, 3)},
        "notStarted": list(stage.waiting),
        "attempts": [
            {
                "attempt": attempt.number,
                "outcome": attempt.outcome,
                "pid": attempt.pid,
                "started": attempt.started.isoformat(),
                "ended": attempt.ended.isoformat(),
                "seconds": round(attempt.seconds, 3),
            }
            for attempt in stage.tries
        ],
        "bars": [
            {
                "resource": bar.resource,
                "kind": stage.kinds.get(bar.resource, ""),
                "attempt": bar.attempt,
                "state": bar.state,
                "started": bar.started.isoformat(),
                "seconds": round(bar.seconds, 3),
                "critical": stage.decisive(bar),
                "retries": bar.retries,
                "id": bar.ident,
                "waitedFor": list(bar.waits),
                "messages": list(bar.messages),
            }
            for bar in stage.bars
        ],
    }


def _body(stages: Sequence[history.Stage]) -> Iterator[str]:
    begun, ended = min(stage.started for stage in stages), max(stage.ended for stage in stages)
    yield (
        f'<p class="soft">{begun:%Y-%m-%d %H:%M:%S} to {ended:%Y-%m-%d %H:%M:%S} UTC, '
        f"{durations.words((ended - begun).total_seconds())} in all, "
        f"{durations.words(_at_work(stages))} of them at work</p>"
    )
    yield '<ul class="totals">'
    yield from (_totals(stage) for stage in stages)
    yield "</ul>"
    yield chart.patterns()
    yield '<ul class="legend">'
    states = {bar.state for stage in stages for bar in stage.bars}
    yield from (f"<li>{chart.swatch(state)} {words}</li>" for state, words in history.STATES.items() if state in states)
    if any(stage.path.names for stage in stages):
        yield f"<li>{chart.swatch('critical')} on the critical path: it decides how long the stage takes</li>"
    yield "</ul>"
    yield f"<figure>{chart.draw(stages)}</figure>"
    yield from _attempts(stages)
    yield from _resources(stages)


def _at_work(stages: Iterable[history.Stage]) -> float:
    """The seconds in which some process was at work: stages that run within each other count once."""
    total, free = 0.0, datetime.datetime.min.replace(tzinfo=datetime.UTC)
    for attempt in sorted((a for stage in stages for a in stage.tries), key=lambda attempt: attempt.started):
        total += max(0.0, (attempt.ended - max(attempt.started, free)).total_seconds())
        free = max(free, attempt.ended)
    return total


def _totals(stage: history.Stage) -> str:
    last = stage.tries[-1]
    lines = [f"{chart.spelled(last.outcome)} after {durations.words(stage.worked)} of work"]
    lines += [f"{len(stage.tries)} attempts"] if len(stage.tries) > 1 else []
    lines.append(_count(stage))
    if stage.path.names:
        chain = " → ".join(stage.path.names)
        lines.append(f'<span title="{chart.escaped(chain)}">critical path {durations.words(stage.path.seconds)}</span>')
    return (
        f'<li class="{last.outcome.replace(" ", "-")}"><b>{chart.escaped(stage.name)}</b>'
        + "<br>".join(lines)
        + "</li>"
    )


def _count(stage: history.Stage) -> str:
    """How far the stage had come when its last bar ended."""
    last = {bar.resource: bar.state for bar in stage.bars}
    there = sum(state in ("finished", "adopted", "resumed", "left") for state in last.values())
    if not stage.kinds:
        return f"{sum(state == 'reverted' for state in last.values())} of {len(last)} resources removed"
    if set(stage.kinds.values()) == {"stage"}:
        return f"{there} of {len(stage.kinds)} stages done"
    return f"{there} of {len(stage.kinds)} resources there"


def _attempts(stages: Iterable[history.Stage]) -> Iterator[str]:
    yield '<h2 id="attempts">Attempts</h2>'
    yield '<table class="attempts"><caption>Each row is one process at work on one stage</caption>'
    yield _head("Stage", "Attempt", "Outcome", "Process", "Began", "Took")
    for stage in stages:
        for attempt in stage.tries:
            yield (
                f'<tr data-attempt="{attempt.number}"><td>{chart.escaped(stage.name)}</td><td>{attempt.number}</td>'
                f"<td>{chart.escaped(chart.spelled(attempt.outcome))}</td><td>{attempt.pid}</td>"
                f"<td>{attempt.started:%Y-%m-%d %H:%M:%S}</td>"
                f'<td class="number">{durations.words(attempt.seconds)}</td></tr>'
            )
    yield "</tbody></table>"


def _resources(stages: Sequence[history.Stage]) -> Iterator[str]:
    yield '<h2 id="resources">Resources</h2>'
    yield '<table class="resources"><caption>Every bar of the chart; names in bold are on the critical path</caption>'
    yield _head(
        "Resource", "Kind", "Stage", "Attempt", "What became of it", "After", "Took", "Waited for, and was told"
    )
    for stage in stages:
        yield from (_line(bar, stage) for bar in stage.bars)
        for name in stage.waiting:
            kind = chart.escaped(stage.kinds.get(name, ""))
            yield (
                f'<tr data-state="waiting"><td>{chart.escaped(name)}</td><td>{kind}</td>'
                f"<td>{chart.escaped(stage.name)}</td><td></td><td>not begun</td><td></td><td></td><td></td></tr>"
            )
    yield "</tbody></table>"


def _line(bar: history.Bar, stage: history.Stage) -> str:
    words = "".join(f"<div>{chart.escaped(line)}</div>" for line in chart.told(bar))
    began = (bar.started - stage.started).total_seconds()
    return (
        f'<tr data-state="{bar.state}"{" class=critical" if stage.decisive(bar) else ""}>'
        f"<td>{chart.escaped(bar.resource)}</td><td>{chart.escaped(stage.kinds.get(bar.resource, ''))}</td>"
        f"<td>{chart.escaped(stage.name)}</td><td>{bar.attempt}</td>"
        f'<td><span class="state">{chart.swatch(bar.state)} {history.STATES[bar.state]}</span></td>'
        f'<td class="number">{durations.words(began)}</td><td class="number">{durations.words(bar.seconds)}</td>'
        f'<td class="what">{words}</td></tr>'
    )


def _head(*names: str) -> str:
    right = ' class="number"'
    cells = "".join(f'<th scope="col"{right if name in _NUMBERS else ""}>{name}</th>' for name in names)
    return f"<thead><tr>{cells}</tr></thead><tbody>"
