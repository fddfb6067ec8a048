"""The timeline in a real browser: bars where they belong, labels that can be read, nothing fetched."""

from __future__ import annotations

import datetime
import html
import json
import re
import struct
import subprocess
import zlib
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest

from moorage.engine import clock as clocks
from moorage.engine import journal as journals
from moorage.engine import progress
from moorage.installer import history, timeline
from tests.unit.installer import pasts

pytestmark = pytest.mark.needs("chromium")

Told = dict[str, Any]

FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
    "--window-size=1300,1400",
)
DARK = "--blink-settings=preferredColorScheme=0"

# The page itself forbids scripts; a copy without that rule is measured by one.
PROBE = """<script>
const box = e => { const r = e.getBoundingClientRect(); return [r.left, r.top, r.right, r.bottom] };
const seen = e => { const r = e.getBoundingClientRect();
  return document.elementFromPoint((r.left + r.right) / 2, (r.top + r.bottom) / 2) === e };
const told = {
  chart: box(document.querySelector('.gantt')),
  page: getComputedStyle(document.body).backgroundColor,
  bars: [...document.querySelectorAll('.gantt .bar')].map(e => ({...e.dataset, box: box(e), seen: seen(e),
    fill: getComputedStyle(e).fill, stroke: getComputedStyle(e).stroke, tip: e.querySelector('title').textContent})),
  labels: [...document.querySelectorAll('.gantt text')].map(e => ({text: e.lastChild.textContent, box: box(e),
    fill: getComputedStyle(e).fill})),
  tiles: Object.fromEntries([...document.querySelectorAll('.tile rect')].map(e =>
    [e.parentNode.id, getComputedStyle(e).fill])),
  fetched: performance.getEntriesByType('resource').map(e => e.name),
  wide: document.documentElement.scrollWidth - document.documentElement.clientWidth,
};
document.body.innerHTML = '<pre id="told"></pre>';
document.getElementById('told').textContent = JSON.stringify(told);
</script>"""


def write_past(path: Path) -> None:
    """A journal with a bar of every state: a crash, a failed attempt, one on the next day, a roll-back, one at work."""
    pasts.crash(path, speed=300)
    there = {"network", "image", "record", "master-1"}
    pasts.run(path, there, {"balancer": "busy", "master-0": "refused"}, clock=clocks.Clock(300), workers=8)
    tomorrow = datetime.datetime.now(datetime.UTC) + datetime.timedelta(hours=14)
    clock = clocks.ManualClock(wall=tomorrow)
    pasts.run(path, there, {"master-0": "refused", "record": "stuck"}, clock=clock, rollback=True)
    pasts.run(path, set(), clock=clock)
    with journals.Journal(path) as journal:
        journal.remember("later", {name: {"kind": "stage", "needs": []} for name in ("one", "two")}, phase="forward")
        number = journal.begin("later", clock.wall())
        for name in ("one", "two"):
            journal.append(number, progress.Started("later", name, clock.wall()))
        clock.advance(90)
        journal.append(number, progress.Stopped("later", "two", clock.wall()))


def browse(page: Path, *flags: str) -> str:
    """What the browser makes of a file."""
    done = subprocess.run(
        ["chromium", *FLAGS, f"--user-data-dir={page.parent / 'profile'}", *flags, page.as_uri()],
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    return done.stdout


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("timeline")
    write_past(folder / "journal.sqlite")
    with journals.Journal(folder / "journal.sqlite") as journal:
        now = datetime.datetime.now(datetime.UTC)
        text = timeline.page(journal, title="harbour (harbour-x7k2p)", alive=lambda _pid: True, now=now)
    (folder / "timeline.html").write_text(text)
    return folder / "timeline.html"


def measured(page: Path, *flags: str) -> Told:
    copy = page.with_name("measured.html")
    text = re.sub(r'<meta http-equiv="Content-Security-Policy"[^>]*>', "", page.read_text())
    copy.write_text(text.replace("</body>", f"{PROBE}</body>"))
    found = re.search(r'<pre id="told">(.*?)</pre>', browse(copy, "--dump-dom", *flags), re.DOTALL)
    assert found
    told: Told = json.loads(html.unescape(found[1]))
    return told


@pytest.fixture(scope="module")
def light(page: Path) -> Told:
    return measured(page)


@pytest.fixture(scope="module")
def dark(page: Path) -> Told:
    return measured(page, DARK)


def test_the_page_as_it_is_has_all_bars_and_no_script(page: Path) -> None:
    dom = browse(page, "--dump-dom")

    states = re.findall(r'<rect class="bar [^"]*"[^>]*data-state="(\w+)"', dom)

    assert set(states) == set(history.STATES)
    assert "<script" not in dom


def test_every_bar_can_be_seen(light: Told) -> None:
    left, top, right, bottom = light["chart"]

    for bar in light["bars"]:
        x, y, end, low = bar["box"]
        assert bar["seen"], bar
        assert end - x >= 2
        assert low - y >= 10
        assert left <= x <= end <= right
        assert top <= y <= low <= bottom
        assert bar["resource"] in bar["tip"]


def test_bars_are_as_long_as_they_took(light: Told) -> None:
    scales = [
        (bar["box"][2] - bar["box"][0]) / float(bar["seconds"])
        for bar in light["bars"]
        if bar["attempt"] == "2" and float(bar["seconds"]) > 30
    ]

    assert len(scales) >= 2
    assert max(scales) == pytest.approx(min(scales), rel=0.05)


def test_no_label_runs_into_another_or_into_a_bar(light: Told) -> None:
    def meet(one: list[float], other: list[float]) -> bool:
        slack = 1.0
        return all(one[i] < other[i + 2] - slack and other[i] < one[i + 2] - slack for i in (0, 1))

    labels = light["labels"]
    assert [(a["text"], b["text"]) for a, b in combinations(labels, 2) if meet(a["box"], b["box"])] == []
    assert [(a["text"], b["tip"]) for a in labels for b in light["bars"] if meet(a["box"], b["box"])] == []
    left, top, right, bottom = light["chart"]
    for label in labels:
        assert left <= label["box"][0] <= label["box"][2] <= right, label
        assert top <= label["box"][1] <= label["box"][3] <= bottom, label


def luminance(colour: str) -> float:
    channels = [int(value) / 255 for value in re.findall(r"\d+", colour)[:3]]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: str, other: str) -> float:
    high, low = sorted((luminance(one), luminance(other)), reverse=True)
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_words_can_be_read_and_colours_told_apart(scheme: str, request: pytest.FixtureRequest) -> None:
    told = request.getfixturevalue(scheme)

    assert (luminance(told["page"]) > 0.5) == (scheme == "light")
    for label in told["labels"]:
        assert contrast(label["fill"], told["page"]) >= 4.5, label
    assert len(set(told["tiles"].values())) == len(history.STATES)
    assert {bar["fill"] for bar in told["bars"]} == {f'url("#fill-{bar["state"]}")' for bar in told["bars"]}
    for bar in told["bars"]:
        if bar["critical"] == "true":
            assert contrast(bar["stroke"], told["page"]) >= 7, bar


def test_nothing_is_fetched_and_nothing_hangs_over_the_edge(light: Told) -> None:
    assert light["fetched"] == []
    assert light["wide"] == 0


def pixels(png: bytes) -> list[bytes]:
    """The rows of an 8-bit RGB(A) picture, three bytes a pixel."""
    width, height, _, colour = struct.unpack(">IIBB", png[16:26])
    depth = 4 if colour == 6 else 3
    data, place = b"", 8
    while place < len(png):
        (length,) = struct.unpack(">I", png[place : place + 4])
        if png[place + 4 : place + 8] == b"IDAT":
            data += png[place + 8 : place + 8 + length]
        place += 12 + length
    raw, rows, before = zlib.decompress(data), [], bytearray(width * depth)
    for number in range(height):
        start = number * (width * depth + 1)
        before = _unfiltered(raw[start], bytearray(raw[start + 1 : start + 1 + width * depth]), before, depth)
        rows.append(bytes(before) if depth == 3 else bytes(b for i, b in enumerate(before) if i % 4 != 3))
    return rows


def _unfiltered(kind: int, row: bytearray, above: bytearray, depth: int) -> bytearray:
    for i in range(len(row)):
        a = row[i - depth] if i >= depth else 0
        b, c = above[i], above[i - depth] if i >= depth else 0
        if kind == 4:
            guess = a + b - c
            nearest = min((abs(guess - a), 0, a), (abs(guess - b), 1, b), (abs(guess - c), 2, c))[2]
        else:
            nearest = (0, a, b, (a + b) // 2)[kind]
        row[i] = (row[i] + nearest) & 255
    return row


def test_the_picture_shows_the_bars(page: Path, light: Told) -> None:
    """What was measured is also what is painted: the pixels of each bar have its colour in them."""
    picture = page.with_name("timeline.png")
    browse(page, f"--screenshot={picture}")
    rows = pixels(picture.read_bytes())

    for bar in light["bars"]:
        left, top, right, bottom = bar["box"]
        wanted = bytes(int(value) for value in re.findall(r"\d+", light["tiles"][f"fill-{bar['state']}"])[:3])
        painted = {
            rows[y][x * 3 : x * 3 + 3]
            for y in range(int(top) + 1, int(bottom))
            for x in range(int(left), max(int(right), int(left) + 2))
        }
        near = [dot for dot in painted if max(abs(a - b) for a, b in zip(dot, wanted, strict=True)) <= 24]
        assert near, (bar["resource"], bar["state"], wanted)
