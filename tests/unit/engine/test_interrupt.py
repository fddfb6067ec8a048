"""The first Ctrl-C stops in good order, the second at once, and the handlers are put back."""

from __future__ import annotations

import os
import pathlib
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator

import pytest
import toycloud

from moorage import errors as top
from moorage.engine import clock as clocks
from moorage.engine import interrupt
from moorage.engine import journal as journals

PROGRAM = pathlib.Path(__file__).with_name("interruptible.py")
Start = Callable[[str], "subprocess.Popen[str]"]


@pytest.fixture
def start(tmp_path: pathlib.Path) -> Iterator[Start]:
    """Starts an installation and returns once it is under way."""
    children: list[subprocess.Popen[str]] = []

    def begin(mode: str) -> subprocess.Popen[str]:
        child = subprocess.Popen(
            [sys.executable, PROGRAM, tmp_path, mode],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        children.append(child)
        assert child.stdout.readline() == "under way\n"
        return child

    yield begin
    for child in children:
        child.kill()
        child.communicate()


def states(folder: pathlib.Path, resource: str) -> list[str]:
    with journals.Journal(folder / "journal.db", create=False) as journal:
        return [entry.state for entry in journal.events("infra") if entry.resource == resource]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_the_first_signal_wakes_the_waiting_journals_and_exits_with_its_own_code(tmp_path, start, number):
    child = start("waiting")

    child.send_signal(number)
    _, words = child.communicate(timeout=30)

    assert child.returncode == top.INTERRUPT
    assert "stopped at your request" in words
    assert "Traceback" not in words
    assert states(tmp_path, "network")[-1] == "stopped"
    assert states(tmp_path, "master") == []


def test_a_call_in_flight_is_finished_and_journaled_and_nothing_new_starts(tmp_path, start):
    child = start("calling")
    child.send_signal(signal.SIGINT)
    assert child.stdout.readline() == "noticed\n"

    child.communicate("return\n", timeout=30)

    assert child.returncode == top.INTERRUPT
    assert "created" in states(tmp_path, "network")
    assert states(tmp_path, "master") == []
    assert toycloud.FileCloud(tmp_path / "cloud").inventory() == {"network": 1}


def test_the_second_signal_ends_the_process_though_a_call_is_in_flight(tmp_path, start):
    child = start("calling")
    child.send_signal(signal.SIGINT)
    assert child.stdout.readline() == "noticed\n"

    child.send_signal(signal.SIGINT)

    assert child.wait(timeout=30) == top.INTERRUPT
    assert states(tmp_path, "network")[-1] == "creating"


def test_a_terminal_that_is_closed_is_told_of_twice_and_hurries_nobody(tmp_path, start):
    child = start("calling")
    child.send_signal(signal.SIGHUP)
    assert child.stdout.readline() == "noticed\n"

    child.send_signal(signal.SIGHUP)
    child.communicate("return\n", timeout=30)

    assert child.returncode == top.INTERRUPT
    assert "created" in states(tmp_path, "network"), "the call in flight was not waited for"


def test_whoever_is_to_outlive_the_terminal_does():
    """As under nohup."""
    former = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with interrupt.stops(clocks.Clock()):
            assert signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
        assert signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, former)


def test_after_an_interrupt_the_same_command_goes_on(tmp_path, start):
    child = start("waiting")
    child.send_signal(signal.SIGINT)
    child.communicate(timeout=30)

    again = subprocess.run([sys.executable, PROGRAM, tmp_path, "plain"], timeout=60, check=False, capture_output=True)

    assert again.returncode == 0
    assert toycloud.FileCloud(tmp_path / "cloud").inventory() == {"network": 1, "master": 1}


def test_the_former_handlers_are_back_afterwards():
    former = {number: signal.getsignal(number) for number in interrupt.SIGNALS}
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    outer = signal.set_wakeup_fd(writing)
    try:
        with interrupt.stops(clocks.Clock()):
            assert signal.getsignal(signal.SIGINT) != former[signal.SIGINT]

        assert {number: signal.getsignal(number) for number in interrupt.SIGNALS} == former
        assert signal.set_wakeup_fd(-1) == writing
    finally:
        signal.set_wakeup_fd(outer)
        os.close(reading)
        os.close(writing)
