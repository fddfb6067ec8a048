"""The timeline tells what the journal saw: good days, bad days, and the days somebody pulled the plug."""

from __future__ import annotations

import dataclasses
import datetime
import html.parser
import json
import os
from pathlib import Path

import pytest

from moorage.engine import clock as clocks
from moorage.engine import errors, flow, progress
from moorage.engine import journal as journals
from moorage.installer import chart, history, timeline
from tests.unit.installer import pasts
from tests.unit.installer.pasts import MORNING, moment

EVERYONE = set(pasts.HARBOUR)


class Page(html.parser.HTMLParser):
    """The elements of a page, with their attributes and the text inside them."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str]]] = []
        self.texts: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, {key: value or "" for key, value in attrs}))

    def handle_data(self, data: str) -> None:
        self.texts.append(data)

    def bars(self) -> list[dict[str, str]]:
        return [attributes for tag, attributes in self.elements if tag == "rect" and "data-state" in attributes]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "journal.sqlite"


def stage(path: Path, *, alive: bool = False, now: datetime.datetime = MORNING) -> history.Stage:
    with journals.Journal(path) as journal:
        (found,) = history.read(journal, alive=lambda _pid: alive, now=now)
    return found


def page(path: Path, title: str = "") -> Page:
    with journals.Journal(path) as journal:
        return Page(timeline.page(journal, title=title))


def states(found: history.Stage) -> dict[tuple[str, int], str]:
    return {(bar.resource, bar.attempt): bar.state for bar in found.bars if not bar.backward}


# -- what the journal saw ------------------------------------------------------------------------------------------


def test_a_good_run_has_one_bar_each_and_its_critical_path(path: Path) -> None:
    assert pasts.run(path, set()) is None

    found = stage(path)

    assert states(found) == {(name, 1): "finished" for name in EVERYONE}
    assert found.path.names == ("network", "balancer", "master-0")
    assert found.path.seconds == pytest.approx(420)
    assert [attempt.outcome for attempt in found.tries] == ["finished"]
    assert found.waiting == ()


def test_a_failed_run_shows_what_failed_and_what_was_never_begun(path: Path) -> None:
    assert pasts.run(path, set(), {"balancer": "refused"}) is not None

    found = stage(path)

    (failed,) = [bar for bar in found.bars if bar.state == "failed"]
    assert failed.resource == "balancer"
    assert failed.seconds == pytest.approx(120)
    assert failed.messages == ('refused: quota "cores" is <exceeded> & closed',)
    assert {"master-0", "master-1"} <= set(found.waiting)


def test_a_resumed_run_tells_who_finished_what_another_had_begun(path: Path) -> None:
    clock, there = clocks.ManualClock(), set[str]()
    pasts.run(path, there, {"balancer": "refused"}, clock=clock)
    there.add("master-1")
    assert pasts.run(path, there, clock=clock) is None

    found = stage(path)

    assert [attempt.outcome for attempt in found.tries] == ["failed", "finished"]
    assert states(found)["balancer", 1] == "failed"
    assert states(found)["balancer", 2] == "resumed"
    assert states(found)["master-0", 2] == "finished"
    assert states(found)["master-1", 2] == "adopted"
    assert found.path.seconds == pytest.approx(60 + 120 + 240 + 120), "both tries at the balancer were on the way"


def test_a_roll_back_shows_what_went_and_what_stayed(path: Path) -> None:
    pasts.run(path, set(), {"master-0": "refused", "record": "stuck"}, rollback=True)

    found = stage(path)

    back = {bar.resource: bar.state for bar in found.bars if bar.backward}
    assert back["balancer"] == "reverted"
    assert back["record"] == "left"
    assert not any(found.decisive(bar) for bar in found.bars if bar.backward)
    assert [attempt.outcome for attempt in found.tries] == ["rolled-back"]


def test_what_was_rolled_back_and_made_anew_counts_once(path: Path) -> None:
    clock, there = clocks.ManualClock(), set[str]()
    pasts.run(path, there, {"master-0": "refused"}, clock=clock, rollback=True)
    assert stage(path).path.names == ("network", "balancer", "master-0"), "as it stood before it was removed"

    pasts.run(path, there, clock=clock)

    found = stage(path)
    assert found.path.seconds == pytest.approx(420)
    assert {bar.attempt for bar in found.bars if found.decisive(bar)} == {2}


def test_a_killed_run_is_cut_off_at_its_last_sign_of_life(path: Path) -> None:
    pasts.crash(path)

    found = stage(path, now=MORNING + datetime.timedelta(days=1000))

    (attempt,) = found.tries
    (cut,) = [bar for bar in found.bars if bar.resource == "balancer"]
    assert attempt.outcome == "cut off"
    assert cut.state == "cut"
    assert cut.ended == attempt.ended
    with journals.Journal(path) as journal:
        assert attempt.ended == max(entry.at for entry in journal.events(pasts.FLOW))


def test_a_killed_run_is_known_by_its_process_being_gone(path: Path) -> None:
    pasts.crash(path)

    with journals.Journal(path) as journal:
        (found,) = history.read(journal)

    assert found.tries[0].outcome == "cut off"
    assert not history.process_exists(found.tries[0].pid)
    assert history.process_exists(os.getpid())


def test_a_run_that_goes_on_reaches_to_the_present(path: Path) -> None:
    with journals.Journal(path) as journal:
        journal.remember("infrastructure", {"image": {"kind": "image", "needs": []}}, phase="forward")
        number = journal.begin("infrastructure", MORNING)
        journal.append(number, progress.Started("infrastructure", "image", MORNING))

    found = stage(path, alive=True, now=MORNING + datetime.timedelta(minutes=3))

    assert [(bar.state, bar.seconds) for bar in found.bars] == [("running", 180.0)]


def test_repeated_calls_and_waits_are_kept_with_the_bar(path: Path) -> None:
    pasts.run(path, set(), {"image": "busy"})

    (image,) = [bar for bar in stage(path).bars if bar.resource == "image"]

    assert image.retries == 1
    assert image.waits == ("image to be ACTIVE",)
    assert "503 <try> & again" in image.messages[0]
    assert image.ident == "id-image"


def test_processes_on_a_fast_clock_are_shown_one_after_the_other(path: Path) -> None:
    """At 5000 times the world's speed a second process begins within the first one's hours."""
    pasts.crash(path)
    pasts.run(path, set(), clock=clocks.Clock(5000))

    first, second = stage(path).tries

    assert second.started >= first.ended


def test_an_untouched_journal_has_no_stages(path: Path) -> None:
    with journals.Journal(path) as journal:
        assert timeline.summary(journal) == []
        assert "Nothing has been begun yet" in timeline.page(journal)


# -- the page ------------------------------------------------------------------------------------------------------


def test_the_page_draws_every_bar_with_its_facts(path: Path) -> None:
    pasts.run(path, set())

    drawn = {bar["data-resource"]: bar for bar in page(path).bars()}

    assert drawn.keys() == EVERYONE
    assert {name for name, bar in drawn.items() if "critical" in bar["class"].split()} == {
        "network",
        "balancer",
        "master-0",
    }
    for name, (_, seconds) in pasts.HARBOUR.items():
        assert float(drawn[name]["data-seconds"]) == pytest.approx(seconds)
    per_second = {name: float(bar["width"]) / float(bar["data-seconds"]) for name, bar in drawn.items()}
    assert max(per_second.values()) == pytest.approx(min(per_second.values()), rel=0.02), "one scale for all"


def test_bars_stay_inside_the_chart_and_follow_each_other(path: Path) -> None:
    pasts.run(path, set())

    bars = page(path).bars()

    for bar in bars:
        assert float(bar["x"]) >= 262
        assert float(bar["x"]) + float(bar["width"]) <= chart.WIDTH
    starts = {bar["data-resource"]: float(bar["x"]) for bar in bars}
    ends = {bar["data-resource"]: float(bar["x"]) + float(bar["width"]) for bar in bars}
    for name, (needs, _) in pasts.HARBOUR.items():
        for need in needs:
            assert ends[need] <= starts[name] + 0.2


def test_the_page_fetches_nothing_and_runs_nothing(path: Path) -> None:
    pasts.run(path, set(), {"master-0": "refused"})
    with journals.Journal(path) as journal:
        text = timeline.page(journal)

    found = Page(text)

    assert not {"script", "link", "img", "iframe", "object", "use"} & {tag for tag, _ in found.elements}
    for _, attributes in found.elements:
        assert not {"src", "href", "xlink:href"} & attributes.keys()
        assert not any(key.startswith("on") for key in attributes)
    assert "@import" not in text
    assert text.count("url(") == text.count("url(#fill-")
    assert "default-src 'none'" in text


def test_hostile_words_stay_words(path: Path) -> None:
    evil = '</title></svg><script>alert(1)</script>"\x1b[31m\u202e'
    with journals.Journal(path) as journal:
        journal.remember(evil, {evil: {"kind": evil, "needs": []}}, phase="forward")
        number = journal.begin(evil, MORNING)
        journal.append(number, progress.Started(evil, evil, MORNING))
        journal.append(number, progress.Waiting(evil, evil, MORNING, evil))
        journal.append(number, progress.Failed(evil, evil, MORNING, evil))
        journal.end(evil, number, "failed", MORNING)
        text = timeline.page(journal, title=evil)

    found = Page(text)

    assert "script" not in {tag for tag, _ in found.elements}
    assert [bar["data-resource"].count("<script>") for bar in found.bars()] == [1]
    assert "\x1b" not in text
    assert "\u202e" not in text


def test_the_table_says_in_words_what_the_bars_show(path: Path) -> None:
    pasts.run(path, set(), {"balancer": "refused"})

    found = page(path, "harbour")

    rows = [
        attributes["data-state"] for tag, attributes in found.elements if tag == "tr" and "data-state" in attributes
    ]
    assert rows.count("failed") == 1
    assert rows.count("waiting") == len(stage(path).waiting)
    assert 'refused: quota "cores" is <exceeded> & closed' in found.texts
    assert "Timeline of harbour" in found.texts
    assert f"{os.getpid()}" in found.texts


def test_bands_name_each_attempt(path: Path) -> None:
    clock = clocks.ManualClock()
    pasts.run(path, there := set(), {"balancer": "refused"}, clock=clock)
    pasts.run(path, there, clock=clock)

    bands = [attributes for tag, attributes in page(path).elements if tag == "g" and "data-pid" in attributes]

    assert [(band["data-attempt"], band["data-outcome"]) for band in bands] == [("1", "failed"), ("2", "finished")]


def test_every_state_has_words_a_colour_and_a_pattern_of_its_own() -> None:
    assert history.STATES.keys() == chart.PATTERNS.keys()
    assert len(set(chart.PATTERNS.values())) == len(chart.PATTERNS)
    style = (Path(timeline.__file__).parent / "timeline.css").read_text()
    for state in history.STATES:
        assert f".bar.{state} {{ fill: url(#fill-{state}); }}" in style
        assert style.count(f"--{state}: #") == 2, "one colour for light, one for dark"


def test_the_summary_has_the_same_facts_for_programs(path: Path) -> None:
    pasts.run(path, set(), {"balancer": "refused"})

    with journals.Journal(path) as journal:
        (told,) = json.loads(json.dumps(timeline.summary(journal)))

    assert told["stage"] == "infrastructure"
    assert told["outcome"] == "failed"
    assert told["criticalPath"]["resources"][:2] == ["network", "balancer"]
    failed = [bar for bar in told["bars"] if bar["state"] == "failed"]
    assert [(bar["resource"], bar["seconds"]) for bar in failed] == [("balancer", 120.0)]
    assert set(told["notStarted"]) == set(stage(path).waiting)


def test_a_destroy_counts_what_it_removed(path: Path) -> None:
    with journals.Journal(path) as journal:
        journal.remember("destroy", {}, phase="forward")
        number = journal.begin("destroy", MORNING)
        for name in ("image", "network"):
            journal.append(number, progress.Deleting("destroy", name, MORNING))
        journal.append(number, progress.Reverted("destroy", "image", moment(5)))
        journal.append(number, progress.Left("destroy", "network", moment(9), "in use"))
        journal.end("destroy", number, "failed", moment(10))

    found = page(path)

    assert "1 of 2 resources removed" in found.texts
    assert {bar["data-resource"]: bar["data-state"] for bar in found.bars()} == {"image": "reverted", "network": "left"}


def test_a_flow_that_was_stopped_by_its_user(path: Path) -> None:
    clock = clocks.ManualClock(auto=False)
    with journals.Journal(path) as journal:

        def stop(event: progress.Event) -> None:
            if isinstance(event, progress.Waiting):
                clock.request_stop()

        (first, *_) = pasts.harbour(set()).resources
        with pytest.raises(errors.Interrupted):
            flow.run(
                flow.Flow("alone", (dataclasses.replace(first, needs=()),)),
                journal=journal,
                clock=clock,
                listeners=[stop],
            )

    found = stage(path)
    assert [bar.state for bar in found.bars] == ["stopped"]
    assert found.tries[0].outcome == "interrupted"


def test_a_date_that_was_set_back_in_the_midst_is_drawn_and_took_no_time(path: Path) -> None:
    with journals.Journal(path) as journal:
        journal.remember("later", {"a": {"kind": "stage", "needs": []}}, phase="forward")
        number = journal.begin("later", moment(3600))
        journal.append(number, progress.Started("later", "a", moment(3601)))
        journal.append(number, progress.Finished("later", "a", moment(10), seconds=5.0))
        journal.end("later", number, "finished", moment(11))

    found = stage(path)

    assert [attempt.seconds for attempt in found.tries] == [0.0]
    assert [bar.seconds for bar in found.bars] == [0.0]
    assert all(float(bar["width"]) > 0 for bar in page(path).bars())
