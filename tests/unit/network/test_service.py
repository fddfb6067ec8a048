"""The agent as a process: it survives trouble, shows defects, and stops when it is told to."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from moorage import errors
from moorage.cli import main
from moorage.engine import clock as clocks
from moorage.network import host, keepalived, pods, service, view
from tests.unit.network import conftest
from tests.unit.network.fake_host import FakeHost


@pytest.fixture
def node(tmp_path: Path) -> FakeHost:
    made = FakeHost(tmp_path)
    made.write("/etc/moorage/network.json", conftest.SETTINGS.to_json())
    return made


def test_rendering_once_writes_the_files_and_keeps_keepalived_waiting(node: FakeHost) -> None:
    node.cluster = "no kubeconfig yet"
    said: list[str] = []

    service.render_once(view.MASTER, said.append, node)

    assert "interface ens3" in (node.text(keepalived.PATH) or "")
    assert node.at(pods.HALT_MARK).exists()
    assert any("waits until the other nodes know this one" in line for line in said)


def test_rendering_once_without_an_address_fails_so_that_the_kubelet_tries_again(node: FakeHost) -> None:
    node.me = None

    with pytest.raises(errors.MoorageError, match="no address"):
        service.render_once(view.WORKER, lambda _: None, node)


def test_without_settings_there_is_nothing_to_do(tmp_path: Path) -> None:
    with pytest.raises(errors.ConfigError, match=r"network.json cannot be read"):
        service.render_once(view.WORKER, lambda _: None, FakeHost(tmp_path))


class Running:
    """`service.run` until it is told to stop; signals of the test's own process are left alone."""

    def __init__(self, node: FakeHost, role: str, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(signal, "signal", lambda *_: None)
        self.clock = clocks.Clock(speed=200)
        self.said: list[str] = []
        self.problem: BaseException | None = None
        self._spoken = threading.Condition()
        self._thread = threading.Thread(target=self._run, args=(node, role))
        self._thread.start()

    def _run(self, node: FakeHost, role: str) -> None:
        try:
            service.run(role, self._say, node, self.clock)
        except BaseException as problem:  # noqa: BLE001 - kept for the test to look at
            self.problem = problem

    def _say(self, text: str) -> None:
        with self._spoken:
            self.said.append(text)
            self._spoken.notify_all()

    def hear(self, words: str) -> None:
        with self._spoken:
            assert self._spoken.wait_for(lambda: any(words in line for line in self.said), 10), self.said

    def end(self) -> None:
        self.clock.request_stop()
        self.join()

    def join(self) -> None:
        self._thread.join(10)
        assert not self._thread.is_alive()


def test_a_master_is_looked_after_until_it_is_told_to_stop(node: FakeHost, monkeypatch: pytest.MonkeyPatch) -> None:
    node.answering = {9445}
    running = Running(node, view.MASTER, monkeypatch)
    running.hear("lead 6443 of 10.0.0.5 to HAProxy")
    running.hear(keepalived.PATH)

    running.end()

    assert running.problem is None
    assert not node.redirected, "whoever leaves takes the rule along"
    assert running.said[-1] == "stopped"


def test_trouble_is_said_once_and_tried_again(node: FakeHost, monkeypatch: pytest.MonkeyPatch) -> None:
    node.answering, node.firewall_works = {9445}, False
    running = Running(node, view.MASTER, monkeypatch)
    running.hear("redirect: nft: not permitted")
    node.firewall_works = True
    running.hear("lead 6443")

    running.end()

    assert sum("not permitted" in line for line in running.said) == 1


def test_a_defect_ends_the_process_and_is_seen(
    node: FakeHost, monkeypatch: pytest.MonkeyPatch, recwarn: pytest.WarningsRecorder
) -> None:
    monkeypatch.setattr(threading, "excepthook", lambda _: None)
    monkeypatch.setattr(node, "runs", lambda _: 1 / 0)

    running = Running(node, view.WORKER, monkeypatch)
    running.join()

    assert isinstance(running.problem, ZeroDivisionError)


# --- the command ---


def test_status_before_the_agent_has_run_says_where_to_look(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(host, "STATUS_PATH", str(tmp_path / "status.json"))

    assert main.main(["node-network", "status", "-o", "json"]) == errors.OTHER

    assert "network-monitor" in capsys.readouterr().err


def test_the_roles_of_the_command_are_those_of_the_nodes() -> None:
    from moorage.cli import node_network

    assert node_network._ROLES == view.ROLES


def test_the_batch_loads_nothing_that_a_node_does_not_need() -> None:
    code = (
        "import sys, moorage.network.service, moorage.network.rendering;"
        "print([m for m in ('pydantic','aiohttp','taskflow','rich','ovirtsdk4') if m in sys.modules])"
    )
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environ)

    assert json.loads(ended.stdout.replace("'", '"')) == []
