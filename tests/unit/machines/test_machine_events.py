"""Events: told once, counted when they repeat, and never the reason that work fails."""

from __future__ import annotations

import pytest

from moorage.engine import clock as clocks
from moorage.machines import events
from moorage.machines.runtime import errors, kinds
from tests.unit.machines import machine_world, memory


@pytest.fixture
def api() -> memory.Memory:
    return memory.Memory(clocks.ManualClock())


@pytest.fixture
def recorder(api: memory.Memory) -> events.Recorder:
    return events.Recorder(api, api.clock, "machine-controller")  # type: ignore[arg-type]


def machine(uid: str = "uid-1") -> dict[str, object]:
    found = machine_world.machine_object()
    found["metadata"]["uid"] = uid
    return found


def test_an_event_is_about_its_object(api: memory.Memory, recorder: events.Recorder) -> None:
    recorder.event(machine(), "Warning", "FailedCreate", "no space")

    (found,) = api.events()
    assert found["involvedObject"] == {
        "apiVersion": "machine.openshift.io/v1beta1",
        "kind": "Machine",
        "name": machine_world.NAME,
        "namespace": machine_world.NAMESPACE,
        "uid": "uid-1",
    }
    assert found["metadata"]["namespace"] == machine_world.NAMESPACE
    assert (found["type"], found["reason"], found["message"]) == ("Warning", "FailedCreate", "no space")
    assert (found["count"], found["source"]) == (1, {"component": "machine-controller"})


def test_events_of_what_has_no_namespace_are_in_the_default_one(api: memory.Memory, recorder: events.Recorder) -> None:
    recorder.event({"kind": "Node", "metadata": {"name": "n", "uid": "u"}}, "Normal", "Seen", "hello")

    assert api.events()[0]["metadata"]["namespace"] == "default"


def test_what_repeats_is_counted_and_seldom_written(api: memory.Memory, recorder: events.Recorder) -> None:
    for _ in range(100):
        recorder.event(machine(), "Warning", "FailedCreate", "no space")
        api.clock.advance(10)  # type: ignore[attr-defined]

    (found,) = api.events()
    assert len(api.writes) <= 1 + 1000 / events.PAUSE
    assert found["count"] > 60
    assert found["lastTimestamp"] > found["firstTimestamp"]


@pytest.mark.parametrize("other", [("uid-2", "a", "b"), ("uid-1", "x", "b"), ("uid-1", "a", "x")])
def test_what_differs_is_another_event(
    api: memory.Memory, recorder: events.Recorder, other: tuple[str, str, str]
) -> None:
    recorder.event(machine(), "Normal", "a", "b")
    recorder.event(machine(other[0]), "Normal", other[1], other[2])

    assert len(api.events()) == 2


def test_what_the_api_has_forgotten_is_told_anew(api: memory.Memory, recorder: events.Recorder) -> None:
    recorder.event(machine(), "Normal", "a", "b")
    api.delete(kinds.EVENT, api.events()[0]["metadata"]["name"], machine_world.NAMESPACE)
    api.clock.advance(events.PAUSE)  # type: ignore[attr-defined]

    recorder.event(machine(), "Normal", "a", "b")

    assert len(api.events()) == 1


def test_a_refused_event_hurts_nobody(api: memory.Memory, recorder: events.Recorder) -> None:
    api.trouble("create events", errors.Forbidden("the namespace is ending", code=403))

    recorder.event(machine(), "Normal", "a", "b")

    assert api.events() == []


def test_long_words_are_cut_to_what_the_api_takes(api: memory.Memory, recorder: events.Recorder) -> None:
    recorder.event(machine(), "Normal", "a", "b" * 5000)

    assert len(api.events()[0]["message"]) == 1024


def test_old_events_are_forgotten_here(
    api: memory.Memory, recorder: events.Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(events, "_REMEMBERED", 10)

    for number in range(50):
        recorder.event(machine(f"uid-{number}"), "Normal", "a", "b")

    assert len(api.events()) == 50
    assert len(recorder._told) == 10
