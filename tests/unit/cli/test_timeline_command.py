"""`moorage timeline` from a user's chair."""

from __future__ import annotations

import json
import stat
from pathlib import Path

import pytest

from moorage.cli import main
from tests.unit.installer import pasts

JOURNAL = ".moorage_journal.sqlite"


def test_a_page_is_written_beside_the_journal_for_its_owner_only(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pasts.run(tmp_path / JOURNAL, set())
    (tmp_path / "metadata.json").write_text('{"clusterName": "harbour", "infraID": "harbour-x7k2p"}')

    assert main.main(["timeline", "--dir", str(tmp_path)]) == 0

    page = tmp_path / "timeline.html"
    assert "<h1>Timeline of harbour (harbour-x7k2p)</h1>" in page.read_text()
    assert stat.S_IMODE(page.stat().st_mode) == 0o600
    told = capsys.readouterr()
    assert told.out == ""
    assert f"wrote {page}" in told.err


def test_after_a_crash_there_is_a_page_too(tmp_path: Path) -> None:
    pasts.crash(tmp_path / JOURNAL)

    assert main.main(["timeline", "--dir", str(tmp_path), "--output-file", str(tmp_path / "mine.html")]) == 0

    assert "cut off, the process died" in (tmp_path / "mine.html").read_text()
    assert not (tmp_path / "timeline.html").exists()


def test_facts_for_scripts_go_to_stdout(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pasts.run(tmp_path / JOURNAL, set(), {"balancer": "refused"})

    assert main.main(["timeline", "--dir", str(tmp_path), "-o", "json"]) == 0

    assert json.loads(capsys.readouterr().out)[0]["outcome"] == "failed"


def test_without_a_journal_it_says_so_and_makes_none(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main.main(["timeline", "--dir", str(tmp_path)]) == 1

    told = capsys.readouterr().err
    assert f"{tmp_path} has no journal" in told
    assert "next: moorage create cluster begins one" in told
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("metadata", ["not json", "[]", '{"infraID": "x-12345"}'])
def test_odd_metadata_does_not_stop_it(tmp_path: Path, metadata: str) -> None:
    pasts.run(tmp_path / JOURNAL, set())
    (tmp_path / "metadata.json").write_text(metadata)

    assert main.main(["timeline", "--dir", str(tmp_path)]) == 0
