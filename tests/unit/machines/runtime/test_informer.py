"""The informer's law: whatever happens on the way, in the end the cache is what the server has, and was told so."""

from __future__ import annotations

import json
import threading
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from moorage.engine import clock as clocks
from moorage.machines.runtime import client, errors, informer, kinds
from tests.unit.machines.runtime import server as servers

NAMES = st.sampled_from("abcd")
STEPS = st.one_of(
    st.tuples(st.just("put"), NAMES, st.integers(0, 2)),
    st.tuples(st.just("remove"), NAMES),
    st.tuples(st.just("fault"), st.sampled_from(["list", "refused", "drop-0", "drop-1", "gone", "bookmark", "silent"])),
    st.tuples(st.just("forget")),
    st.tuples(st.just("restore")),
    st.tuples(st.just("wait"), st.floats(0, 200)),
    st.tuples(st.just("follow")),
)


class Told:
    """What a handler makes of the changes alone."""

    def __init__(self) -> None:
        self.objects: dict[str, Any] = {}
        self.changes: list[informer.Change] = []

    def __call__(self, change: informer.Change) -> None:
        self.changes.append(change)
        known = self.objects.get(change.key)
        if change.old is None:
            assert known is None, f"{change.key} was told as new twice"
        elif change.new is not None:
            assert known == change.old, f"a change of {change.key} begins from something that was never told"
            assert known["metadata"]["uid"] == change.new["metadata"]["uid"], "one object became another"
        else:
            assert known is not None, f"the end of {change.key} was told before it began"
            assert known["metadata"]["uid"] == change.old["metadata"]["uid"]
        if change.new is None:
            self.objects.pop(change.key, None)
        else:
            self.objects[change.key] = change.new


def made(server: servers.Server, **options: Any) -> tuple[informer.Informer, Told]:
    found = informer.Informer(cast("client.Client", server), kinds.MACHINE, **options)
    found.add_index("value", lambda obj: [str(obj["spec"]["value"])])
    told = Told()
    found.on(told)
    return found, told


@settings(max_examples=300, deadline=None)
@given(st.lists(STEPS, max_size=40))
def test_in_the_end_the_cache_is_what_the_server_has(steps: list[tuple[Any, ...]]) -> None:
    clock = clocks.ManualClock()
    server = servers.Server(clock)
    found, told = made(server)

    for what, *words in steps:
        if what == "put":
            server.put(*words)
        elif what == "remove":
            server.remove(*words)
        elif what == "fault":
            server.faults.append(*words)
        elif what == "wait":
            clock.advance(*words)
        elif what == "follow":
            found.follow_once()
        elif what == "restore":
            # A server that comes back from a backup was away for a while, and its watches with it.
            server.restore()
            clock.advance(100)
        else:
            server.forget()
    server.faults.clear()
    for _ in range(4):
        found.follow_once()

    state = server.state()
    assert {client.key_of(obj): obj for obj in found.list()} == state
    assert told.objects == state, "who follows the changes knows the same"
    for value in ("0", "1", "2"):
        indexed = {client.key_of(obj) for obj in found.by_index("value", value)}
        assert indexed == {key for key, obj in state.items() if str(obj["spec"]["value"]) == value}


TREES = st.recursive(
    st.none() | st.booleans() | st.integers(0, 1) | st.sampled_from([0.0, 1.0, "", "x"]),
    lambda parts: st.lists(parts, max_size=3) | st.dictionaries(st.sampled_from("abc"), parts, max_size=3),
    max_leaves=12,
)


@settings(max_examples=300, deadline=None)
@given(TREES, TREES)
def test_sharing_changes_no_word_of_either(new: Any, like: Any) -> None:
    before = json.dumps(new, sort_keys=True), json.dumps(like)

    kept = informer.shared(new, like)

    # In which order an object has its keys means nothing.
    assert (json.dumps(kept, sort_keys=True), json.dumps(like)) == before


def test_what_two_objects_have_in_common_is_kept_once() -> None:
    like: dict[str, Any] = {"spec": {"value": {"disk": [1, 2]}, "name": "a"}, "none": None}
    new: dict[str, Any] = {"spec": {"value": {"disk": [1, 2]}, "name": "b"}, "none": None}

    informer.shared(new, like)

    assert new["spec"]["value"] is like["spec"]["value"]
    assert new["spec"]["name"] == "b"


@pytest.fixture
def server() -> servers.Server:
    return servers.Server(clocks.ManualClock())


def test_what_was_deleted_while_the_history_was_lost_is_told_as_deleted(server: servers.Server) -> None:
    server.put("a")
    found, told = made(server)
    found.follow_once()
    server.remove("a")
    server.forget()

    found.follow_once()
    found.follow_once()

    assert told.changes[-1].new is None
    assert told.changes[-1].key == "ns/a"


def test_one_that_took_the_name_of_another_in_a_gap_is_told_as_an_end_and_a_beginning(server: servers.Server) -> None:
    server.put("a")
    found, told = made(server)
    found.follow_once()
    server.remove("a")
    server.put("a", 1)
    server.forget()

    for _ in range(2):
        found.follow_once()

    assert [(change.old is None, change.new is None) for change in told.changes] == [
        (True, False),
        (False, True),
        (True, False),
    ]


def test_a_broken_watch_is_taken_up_where_it_ended_without_another_list(server: servers.Server) -> None:
    found, told = made(server)
    found.follow_once()
    for name in "abc":
        server.put(name)
    server.faults += ["drop-1", "refused"]

    for _ in range(3):
        found.follow_once()

    assert server.lists == 1
    assert [change.key for change in told.changes] == ["ns/a", "ns/b", "ns/c"]


def test_a_watch_that_fell_silent_is_taken_up_without_a_list_and_the_silence_counts(server: servers.Server) -> None:
    """Servers need not send bookmarks: where nothing happens, silence is no reason to read all again."""
    found, told = made(server)
    found.follow_once()
    server.faults += ["silent", "refused"]

    found.follow_once()
    at_first = found.silent_for
    found.follow_once()
    cast("clocks.ManualClock", server.clock).advance(20)
    later = found.silent_for
    server.put("a")
    found.follow_once()

    assert at_first == 0.0, "the next one is about to be opened"
    assert later == 200.0
    assert server.lists == 1
    assert [change.key for change in told.changes] == ["ns/a"]
    assert found.silent_for == 0.0


def test_a_bookmark_spares_a_list_when_the_history_before_it_is_lost(server: servers.Server) -> None:
    found, _ = made(server)
    found.follow_once()
    server.revision += 50
    server.faults.append("bookmark")
    found.follow_once()
    server.forget()

    found.follow_once()

    assert server.lists == 1


def test_after_a_long_outage_all_is_listed_again(server: servers.Server) -> None:
    found, _ = made(server)
    found.follow_once()
    server.faults.append("refused")
    cast("clocks.ManualClock", server.clock).advance(61)

    found.follow_once()
    found.follow_once()

    assert server.lists == 2


def test_a_server_that_does_not_know_our_version_yet_is_asked_for_a_list(server: servers.Server) -> None:
    for name in "abcd":
        server.put(name)
    found, _ = made(server)
    found.follow_once()
    server.restore()

    found.follow_once()
    found.follow_once()

    assert server.lists == 2


def test_everything_is_told_again_at_the_resync(server: servers.Server) -> None:
    server.put("a")
    found, told = made(server, resync=600.0)
    found.follow_once()
    cast("clocks.ManualClock", server.clock).advance(599)
    server.faults.append("bookmark")
    found.follow_once()
    before = len(told.changes)
    cast("clocks.ManualClock", server.clock).advance(2)
    found.follow_once()

    assert before == 1
    assert [change.old is change.new for change in told.changes[1:]] == [True]


def test_who_asks_later_is_told_of_what_is_there(server: servers.Server) -> None:
    server.put("a")
    found, _ = made(server)
    found.follow_once()

    late = Told()
    found.on(late)

    assert list(late.objects) == ["ns/a"]


def test_a_handler_or_index_that_fails_keeps_nobody_else_from_knowing(server: servers.Server) -> None:
    found, _ = made(server)
    found.add_index("broken", lambda obj: obj["no such field"])

    def broken(_change: informer.Change) -> None:
        raise RuntimeError("a bug")

    found.on(broken)
    told = Told()
    found.on(told)
    server.put("a")
    found.follow_once()

    assert list(told.objects) == ["ns/a"]
    assert found.by_index("broken", "x") == []


def test_the_notes_of_who_wrote_what_are_not_kept(server: servers.Server) -> None:
    server.put("a")
    found, _ = made(server)
    found.follow_once()

    cached = found.get("ns/a")
    assert cached is not None
    assert "managedFields" not in cached["metadata"]


def test_a_refusal_is_repeated_and_not_the_end(server: servers.Server, caplog: pytest.LogCaptureFixture) -> None:
    found, _ = made(server)
    server.faults += ["list", "list"]

    for _ in range(3):
        found.follow_once()

    assert found.synced
    assert [record.message for record in caplog.records if record.levelname == "WARNING"] == [
        "the informer of machines.machine.openshift.io: no list today"
    ]


@pytest.mark.parametrize(
    ("fault", "refusal"),
    [
        ("gone", errors.Unavailable("unused")),
        ("list", errors.Gone("too old", code=410)),
        ("list", errors.TooManyRequests("busy", code=429, retry_after=0.0)),
        ("list", errors.Unavailable("busy", code=503, retry_after=0.0)),
        ("forbidden", errors.Unavailable("unused")),
    ],
    ids=["every watch 410", "every list 410", "429, come back at once", "503, come back at once", "list, but no watch"],
)
def test_a_server_that_never_lets_us_follow_is_left_alone_for_longer_and_longer(
    server: servers.Server, fault: str, refusal: errors.ApiError
) -> None:
    found, _ = made(server)
    server.faults += [fault] * 12
    server.refusal = refusal

    pauses = [found.follow_once() for _ in range(12)]

    assert all(pause >= 0.4 for pause in pauses[1:]), pauses
    assert all(pause >= 15.0 for pause in pauses[8:]), pauses
    assert max(pauses) <= 60.0


def test_a_forgotten_version_is_no_reason_to_wait_even_after_an_outage(server: servers.Server) -> None:
    found, _ = made(server)
    found.follow_once()
    server.faults += ["refused"] * 6 + ["gone"]

    assert [found.follow_once() for _ in range(7)][-1] == 0.0


@pytest.mark.parametrize(("retry_after", "least", "most"), [(10.0, 10.0, 11.0), (86400.0, 60.0, 60.0), (0.0, 0.4, 0.8)])
def test_a_server_says_when_to_come_back_within_reason(
    server: servers.Server, retry_after: float, least: float, most: float
) -> None:
    found, _ = made(server)
    server.faults.append("list")
    server.refusal = errors.TooManyRequests("busy", code=429, retry_after=retry_after)

    assert least <= found.follow_once() <= most


@pytest.mark.parametrize(
    ("watch", "lasted", "anew"),
    [("bookmark", 10.0, True), ("drop-0", 0.0, True), ("drop-0", 10.0, False)],
    ids=["a watch that told something", "a watch that lasted", "a watch that broke at once"],
)
def test_pauses_begin_anew_after(
    server: servers.Server, monkeypatch: pytest.MonkeyPatch, watch: str, lasted: float, anew: bool
) -> None:
    monkeypatch.setattr(informer, "_LASTED", lasted)
    found, _ = made(server)
    found.follow_once()
    server.put("a")
    server.faults += ["refused"] * 6 + [watch, "refused"]

    pauses = [found.follow_once() for _ in range(8)]

    assert pauses[5] >= 8.0
    assert (pauses[7] <= 1.6) == anew, pauses


def test_stopping_ends_the_thread_even_while_it_waits_to_try_again() -> None:
    server = servers.Server(clocks.Clock())
    server.faults += ["list"] * 1000
    found, _ = made(server)
    found.start()
    threading.Event().wait(0.05)

    found.stop()

    assert not found.alive
    assert not found.synced


def test_a_change_of_nothing_is_no_change() -> None:
    with pytest.raises(ValueError, match="a change of nothing"):
        _ = informer.Change(None, None).object


def test_errors_are_of_the_kind_that_callers_catch() -> None:
    assert client.NotFound is errors.NotFound
