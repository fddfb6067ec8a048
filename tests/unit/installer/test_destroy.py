"""Destroy: round after round until two looks find nothing, past refusals, in the order of the stages."""

from __future__ import annotations

import datetime
import json
from pathlib import Path

import pytest

from moorage import errors as top
from moorage.assets import store
from moorage.engine import clock as clocks
from moorage.engine import errors, progress
from moorage.installer import aside, destroy, metadata
from moorage.platforms import contract
from tests.unit.installer import quay

KNOWN = contract.Metadata("none", "harbour-abcde")


def run(
    platform: quay.Quay, clock: clocks.Clock | None = None, events: list[progress.Event] | None = None
) -> destroy.Destroyed:
    heard = events if events is not None else []
    return destroy.destroy(KNOWN, "cluster", platform, quay.around(clock), heard.append, workers=1)


def test_stages_go_in_order_and_are_waited_for() -> None:
    platform = quay.Quay(network=2, master=0, balancer=1, bootstrap=0)
    platform.lingers = {"master": 3}
    events: list[progress.Event] = []

    done = run(platform, events=events)

    assert sorted(platform.removed[:2]) == ["bootstrap", "master"]
    assert platform.removed[2:] == ["balancer", "network"]
    assert sorted(done.removed) == ["thing balancer", "thing bootstrap", "thing master", "thing network"]
    told = [(event.state, event.resource) for event in events]
    assert told.index(("reverted", "thing master")) < told.index(("deleting", "thing balancer"))


def test_an_empty_look_is_doubted_once() -> None:
    platform = quay.Quay(late=0)
    platform.hidden = 1
    clock = clocks.ManualClock()

    done = run(platform, clock)

    assert done.removed == ("thing late",)
    assert clock.slept[0] == platform.SETTLE


@pytest.mark.parametrize(
    "refusal",
    [
        errors.Conflict("in use"),
        errors.Transient("busy", retry_after=3),
        errors.Ambiguous("broken off"),
        ConnectionResetError("gone away"),
    ],
)
def test_a_passing_refusal_is_outlasted(refusal: Exception) -> None:
    platform = quay.Quay(stubborn=0)
    platform.refuse = {"stubborn": [refusal, refusal]}

    assert run(platform).removed == ("thing stubborn",)


@pytest.mark.parametrize(
    ("refusal", "words"), [(errors.Terminal("no", words="held by law"), "held by law"), (ValueError("bug"), "bug")]
)
def test_the_rest_goes_and_what_stays_is_told_in_the_platforms_words(refusal: Exception, words: str) -> None:
    platform = quay.Quay(stuck=0, other=0, network=1)
    platform.refuse = {"stuck": [refusal] * 10_000}

    with pytest.raises(destroy.LeftBehind) as caught:
        run(platform)

    assert [item.resource for item in caught.value.left] == ["thing stuck"]
    assert words in caught.value.message
    assert platform.things.keys() == {"stuck"}
    assert caught.value.exit_code == top.INFRASTRUCTURE


def test_what_is_spared_is_told_once_whatever_becomes_of_the_rest() -> None:
    platform = quay.Quay(one=0, other=0)
    platform.holds = {"one": ["disk a (1 GiB)", "disk b"], "other": ["disk b"]}

    assert run(platform).spared == ("disk a (1 GiB)", "disk b")

    platform = quay.Quay(stuck=0)
    platform.holds = {"stuck": ["disk a (1 GiB)"]}
    platform.refuse = {"stuck": [errors.Terminal("no")] * 10_000}
    with pytest.raises(destroy.LeftBehind, match=r"disk a \(1 GiB\): .* kept"):
        run(platform)


def test_what_goes_slowly_is_waited_for_even_beside_something_stuck() -> None:
    platform = quay.Quay(stuck=0, slow=1)
    platform.refuse = {"stuck": [errors.Terminal("no")] * 10_000}
    platform.lingers = {"slow": 20}

    with pytest.raises(destroy.LeftBehind, match=r"1 of harbour-abcde could not be removed \(1 were\)"):
        run(platform)


def test_a_list_that_never_forgets_does_not_keep_us_for_ever() -> None:
    platform = quay.Quay()
    platform.ghosts = {"ghost": 0}

    with pytest.raises(destroy.LeftBehind, match="ghost: is still listed, though it was removed"):
        run(platform)


def test_what_grows_again_as_fast_as_it_is_removed_does_not_keep_us_for_ever() -> None:
    # Given somebody who puts a new thing in the place of each that goes.
    platform = quay.Quay(worker=0)
    remove, made = platform._remove, iter(range(1, 5000))

    def regrown(name: str) -> None:
        remove(name)
        if number := next(made, None):
            platform.things[f"worker-{number}"] = 0

    platform._remove = regrown  # type: ignore[method-assign]
    clock = clocks.ManualClock()

    with pytest.raises(destroy.LeftBehind):
        run(platform, clock)

    assert destroy.LONGEST <= clock.now() < destroy.LONGEST + 2 * destroy.EVERY


def test_refused_credentials_end_it_at_once() -> None:
    platform = quay.Quay(thing=0)

    def refuse(*_: object) -> list[contract.Remnant]:
        raise errors.Unauthorized("who are you?")

    platform.discover = refuse  # type: ignore[method-assign]
    with pytest.raises(errors.Unauthorized):
        run(platform)


def test_an_interrupt_stops_between_removals() -> None:
    platform = quay.Quay(first=0, second=1)
    clock = clocks.ManualClock()

    def stop(event: progress.Event) -> None:
        if event.state == "reverted":
            clock.request_stop()

    with pytest.raises(errors.Interrupted):
        destroy.destroy(KNOWN, "cluster", platform, quay.around(clock), stop)

    assert platform.removed == ["first"]


# -- the directory afterwards ------------------------------------------------------------------------------------------


MOMENT = datetime.datetime(2026, 1, 2, 3, 4, 5, tzinfo=datetime.UTC)


def filled(root: Path) -> None:
    """A directory in which a cluster was made."""
    for path, text in {
        "install-config.yaml": "mine",
        "manifests/ours.yaml": "edited",
        "manifests/mine.yaml": "mine",
        "metadata.json": json.dumps({"infraID": "harbour-abcde", "clusterName": "harbour", "none": {}}),
        ".moorage_journal.sqlite": "journal",
    }.items():
        (root / path).parent.mkdir(exist_ok=True)
        (root / path).write_text(text)
    with store.opened(root) as directory:
        directory.commit(store.State(base={"manifests/ours.yaml": "digest", "metadata.json": "digest"}), {})


def set_aside(root: Path) -> Path | None:
    with store.opened(root) as directory:
        return aside.set_aside(directory, "harbour-abcde", MOMENT)


def left(root: Path) -> set[str]:
    files = (path.relative_to(root).as_posix() for path in root.rglob("*") if path.is_file())
    return {path for path in files if not path.startswith("destroyed/")} - {".moorage.lock"}


def test_ours_is_set_aside_and_the_users_files_stay(tmp_path: Path) -> None:
    filled(tmp_path)

    folder = set_aside(tmp_path)

    assert folder == tmp_path / "destroyed/harbour-abcde-20260102T030405Z"
    assert left(tmp_path) == {"install-config.yaml", "manifests/mine.yaml"}
    assert (folder / "manifests/ours.yaml").read_text() == "edited"
    assert store.load(tmp_path) == store.State()


def test_what_belongs_to_the_next_cluster_is_not_set_aside(tmp_path: Path) -> None:
    filled(tmp_path)
    set_aside(tmp_path)
    (tmp_path / ".moorage_state.json").write_text('{"schema": 1, "kept": {}, "base": {}, "pending": {}, "causes": {}}')

    assert set_aside(tmp_path) is None
    assert (tmp_path / ".moorage_state.json").exists()


def test_a_move_that_was_cut_off_is_ended_by_whoever_comes_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    filled(tmp_path)
    rename = Path.rename

    def dies(path: Path, target: Path) -> Path:
        if path.name == "metadata.json":
            raise KeyboardInterrupt
        return rename(path, target)

    monkeypatch.setattr(Path, "rename", dies)
    with pytest.raises(KeyboardInterrupt):
        set_aside(tmp_path)
    monkeypatch.undo()
    assert (tmp_path / "metadata.json").exists()

    aside.finish(tmp_path)

    assert left(tmp_path) == {"install-config.yaml", "manifests/mine.yaml"}


def test_a_destroyed_cluster_is_still_known(tmp_path: Path) -> None:
    filled(tmp_path)
    set_aside(tmp_path)

    assert metadata.found_in(tmp_path) == contract.Metadata("none", "harbour-abcde", "harbour")


@pytest.mark.parametrize(
    "content",
    ["", "[]", "{}", '{"infraID": "", "none": {}}', '{"infraID": "a-b", "none": {}}', '{"infraID": "harbour-abcde"}'],
)
def test_metadata_that_names_no_cluster_is_refused(tmp_path: Path, content: str) -> None:
    (tmp_path / "metadata.json").write_text(content)

    with pytest.raises(top.StoreError, match="does not say what cluster") as caught:
        metadata.found_in(tmp_path)

    assert "--infra-id" in caught.value.remedy


@pytest.mark.parametrize(
    "mark", ["", "-", "harbour", "harbour-", "-abcde", "Harbour-abcde", "harbour-abcde/..", "*-abcde"]
)
def test_a_mark_that_could_match_others_is_refused(mark: str) -> None:
    with pytest.raises(top.ConfigError, match="is no infraID"):
        metadata.named(mark, "none")
