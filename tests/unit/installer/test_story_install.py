"""The last stage of `create cluster`: what the installer gives the cluster while it waits for it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from moorage import errors as top
from moorage.engine import clock as clocks
from moorage.engine import journal as journals
from moorage.engine import secret
from moorage.installer import approving, aside, delivery, stages, status, story, waiting
from moorage.platforms import contract
from tests.unit.installer import test_story

harbour = test_story.harbour

CREDENTIALS = contract.ClusterSecret(("kube-system",), "creds", {"password": secret.Secret("open-sesame")})


@pytest.fixture(autouse=True)
def courier(harbour: test_story.Harbour, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who goes to the cluster as soon as its API answers."""

    class Courier:
        def __init__(self, wanted: contract.ClusterSecret, directory: Path, *others: Any) -> None:
            assert (wanted, directory) == (CREDENTIALS, harbour.directory)
            self._tell = others[-1]

        def call(self) -> None:
            harbour.waited.append("courier")
            self._tell("the courier was there")

    monkeypatch.setattr(delivery, "Courier", Courier)


def test_the_cluster_gets_the_credentials_before_it_is_waited_for(
    harbour: test_story.Harbour, monkeypatch: pytest.MonkeyPatch
) -> None:
    harbour.credentials = CREDENTIALS
    notes: list[str] = []

    def deliver(wanted: contract.ClusterSecret, directory: Path, *others: Any) -> None:
        assert (wanted, directory) == (CREDENTIALS, harbour.directory)
        harbour.waited.append("delivery")
        others[-1]("it was replaced")

    monkeypatch.setattr(delivery, "deliver", deliver)

    harbour.create(to={"note": notes.append})

    assert harbour.waited == ["courier", "bootstrap", "delivery", "install"]
    assert "it was replaced" in notes


def test_the_controllers_get_the_credentials_while_the_bootstrap_is_waited_for(
    harbour: test_story.Harbour, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Given a bootstrap that fails after the credentials were taken to the cluster.
    harbour.credentials = CREDENTIALS
    harbour.waits["bootstrap"] = [waiting.BootstrapIncomplete("no water", stage="bootstrap", missing="water")]
    notes: list[str] = []

    with pytest.raises(story.Stopped, match="no water"):
        harbour.create(to={"note": notes.append})

    assert harbour.waited == ["courier", "bootstrap"]
    assert "the courier was there" in notes


def test_a_delivery_that_fails_stops_the_installation_and_is_tried_again(
    harbour: test_story.Harbour, monkeypatch: pytest.MonkeyPatch
) -> None:
    harbour.credentials = CREDENTIALS
    ends: list[Exception] = [delivery.Undelivered("not taken", stage="credentials", missing="x", remedy="look there")]

    def deliver(*_: object) -> None:
        harbour.waited.append("delivery")
        if ends:
            raise ends.pop()

    monkeypatch.setattr(delivery, "deliver", deliver)

    with pytest.raises(story.Stopped, match=r"install of .* stopped: not taken") as caught:
        harbour.create()

    assert caught.value.exit_code == top.INSTALL
    assert caught.value.remedy.splitlines()[0] == "look there"
    assert harbour.stages()["install"] == "failed"
    harbour.create()
    assert harbour.waited == ["delivery", "install"]


def in_the_wait(harbour: test_story.Harbour, monkeypatch: pytest.MonkeyPatch, happens: Callable[[], None]) -> None:
    """Let something happen while the installation is waited for."""
    wait = harbour.wait

    def both(stage: str, clock: clocks.Clock, say: stages.Say) -> waiting.Installed:
        ended = wait(stage, clock, say)
        if stage == "install":
            happens()
        return ended

    monkeypatch.setattr(harbour, "wait", both)


def test_who_is_let_in_meanwhile_is_told_and_kept_without_secrets(
    harbour: test_story.Harbour, monkeypatch: pytest.MonkeyPatch
) -> None:
    notes: list[str] = []
    seen: list[tuple[str, Path, object]] = []

    @contextlib.contextmanager
    def letting_in(cluster: Any, directory: Path, _around: Any, made: object, tell: Any) -> Iterator[None]:
        seen.append((cluster.infra_id, directory, made))
        in_the_wait(harbour, monkeypatch, lambda: tell("worker-0 was let in with open-sesame"))
        yield
        seen.append(("over", directory, list(harbour.waited)))

    monkeypatch.setattr(approving, "letting_in", letting_in)

    created = harbour.create(to={"note": notes.append})

    assert "worker-0 was let in with (secret)" in notes
    with journals.Journal(harbour.directory / aside.JOURNAL, create=False) as journal:
        kept = [(entry.resource, entry.message) for entry in journal.events(story.FLOW) if entry.message]
        made = max(entry.at for entry in journal.events("infrastructure") if entry.state == "finished")
    assert kept == [("install", "worker-0 was let in with (secret)")]
    # The door is kept from the machines' making until the end of the wait.
    assert seen == [
        (created.infra_id, harbour.directory, made),
        ("over", harbour.directory, ["bootstrap", "install"]),
    ]
    assert harbour.stages()["install"] == "finished"


def test_what_was_told_last_shows_in_the_status(harbour: test_story.Harbour, monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[status.Status] = []

    @contextlib.contextmanager
    def letting_in(*everything: Any) -> Iterator[None]:
        everything[-1]("nobody was let in yet")
        in_the_wait(harbour, monkeypatch, lambda: look(everything[-1]))
        yield

    def look(tell: Callable[[str], None]) -> None:
        tell("worker-0 was let in")
        looked.append(status.read(harbour.directory, harbour.clock.wall()))

    monkeypatch.setattr(approving, "letting_in", letting_in)
    harbour.create()

    # What was told before any stage had begun is in none of them, and a stage that ended well needs no word.
    with journals.Journal(harbour.directory / aside.JOURNAL, create=False) as journal:
        assert {entry.resource for entry in journal.events(story.FLOW)} == set(story.STAGES)
    assert [stage.message for stage in status.read(harbour.directory, harbour.clock.wall()).stages] == [""] * 6
    install = looked[0].stages[-1]
    assert (install.name, install.state, install.message) == ("install", "waiting", "worker-0 was let in")
    assert (looked[0].done, looked[0].total) == (6, 6)
