"""The rule and its mark: whatever is cut short, a rule without a mark is never left behind."""

from __future__ import annotations

from pathlib import Path

import pytest

from moorage.network import redirect
from tests.unit.network import conftest


class Firewall:
    """A program ``nft`` that keeps what it is given, tells whether the mark was there just then, and may refuse."""

    def __init__(self, folder: Path) -> None:
        self.mark = folder / "run" / "mark"
        self._folder = folder
        self._program = folder / "nft"
        self.says("exit 0")

    def says(self, ending: str) -> None:
        self._program.write_text(
            f"#!/bin/sh\ncat > {self._folder}/given\ntest -e {self.mark}; echo $? > {self._folder}/marked\n{ending}\n"
        )
        self._program.chmod(0o755)

    @property
    def given(self) -> str:
        return (self._folder / "given").read_text()

    @property
    def saw_mark(self) -> bool:
        return (self._folder / "marked").read_text().strip() == "0"

    def put(self, *, on: bool) -> None:
        redirect.put(conftest.SETTINGS, on=on, mark=self.mark)


@pytest.fixture
def firewall(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Firewall:
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    return Firewall(tmp_path)


def test_the_mark_is_there_whenever_the_rule_may_be(firewall: Firewall) -> None:
    firewall.put(on=True)
    assert firewall.saw_mark
    assert firewall.mark.exists()
    assert "redirect to :9445" in firewall.given

    firewall.put(on=False)
    assert firewall.saw_mark, "it goes after the rule: keepalived asks HAProxy while packets are still led there"
    assert not firewall.mark.exists()
    assert "redirect" not in firewall.given


def test_a_rule_that_is_refused_leaves_no_mark(firewall: Firewall) -> None:
    firewall.says("echo not permitted >&2; exit 1")
    with pytest.raises(OSError, match="nft: not permitted"):
        firewall.put(on=True)
    assert not firewall.mark.exists()


def test_a_rule_that_could_not_be_removed_or_replaced_keeps_its_mark(firewall: Firewall) -> None:
    firewall.put(on=True)
    firewall.says("echo busy >&2; exit 1")
    for on in (False, True):
        with pytest.raises(OSError, match="busy"):
            firewall.put(on=on)
        assert firewall.mark.exists()


def test_a_rule_that_may_have_been_set_keeps_its_mark(firewall: Firewall, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(redirect, "PATIENCE", 0.3)
    firewall.says("exec sleep 60")
    with pytest.raises(OSError, match="nft: no end after"):
        firewall.put(on=True)
    assert firewall.mark.exists()
