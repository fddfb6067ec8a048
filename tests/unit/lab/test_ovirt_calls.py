"""The judge of calls to the engine: it knows who called, and finds those who hurry it or repeat themselves."""

from __future__ import annotations

import pytest

from tests.lab import ovirt_calls

VM = "0a000000-0000-4000-8000-000000000001"
LOOK = f"/vms/{VM}?follow=tags"
INSTALLER = "moorage-installer/1.0 (laptop; pid 7) PythonSDK/4.6.3"
CONTROLLERS = "moorage-machine-api/1.0 (pod-a; pid 8) PythonSDK/4.6.3"


def calls(*told: tuple[float, str, str], agent: str = INSTALLER) -> list[ovirt_calls.Call]:
    """Calls from (second, method, path)."""
    return ovirt_calls.read(
        {
            "at": f"2026-01-01T00:00:{second:06.3f}+00:00",
            "method": method,
            "path": f"/ovirt-engine/api{path}",
            "status": 200,
            "seconds": 0.0,
            "agent": agent,
        }
        for second, method, path in told
    )


@pytest.mark.parametrize(
    ("told", "watchers", "problems"),
    [
        ([(0, "GET", LOOK), (2, "GET", LOOK)], 1, 1),
        ([(0, "GET", LOOK), (5, "GET", LOOK)], 1, 0),
        ([(0, "GET", LOOK), (1, "POST", f"/vms/{VM}/start"), (2, "GET", LOOK)], 1, 0),
        ([(0, "GET", LOOK), (2, "GET", LOOK)], 2, 0),
        ([(0, "GET", LOOK), (2, "GET", LOOK), (4, "GET", LOOK)], 2, 1),
        ([(0, "GET", "/jobs?search=a"), (6, "GET", "/jobs?search=a"), (7, "GET", "/jobs?search=b")], 1, 1),
    ],
)
def test_impatience(told: list[tuple[float, str, str]], watchers: int, problems: int) -> None:
    assert len(ovirt_calls.impatient(calls(*told), watchers)) == problems


def test_what_was_done_twice() -> None:
    start, made = f"/vms/{VM}/start", "/vms?correlation_id=a"

    found = ovirt_calls.repeated_writes(calls((0, "POST", start), (1, "POST", made), (2, "POST", start)))

    assert found == [f"POST {start}: 2 times"]


def test_each_process_answers_for_its_own() -> None:
    both = [*calls((0, "GET", LOOK)), *calls((1, "GET", LOOK), (2, "GET", LOOK), agent=CONTROLLERS)]

    assert {name: len(own) for name, own in ovirt_calls.by_process(both, ovirt_calls.INSTALLER).items()} == {"pid 7": 1}
    assert {name: len(own) for name, own in ovirt_calls.by_process(both, ovirt_calls.CONTROLLERS).items()} == {
        "pid 8": 2
    }


def test_nobody_calls_without_saying_who_it_is() -> None:
    with pytest.raises(AssertionError, match="does not say who it is: 'PythonSDK"):
        calls((0, "GET", LOOK), agent="PythonSDK/4.6.3")
