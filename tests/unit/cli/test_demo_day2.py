"""The demo's second half, against an API that is nothing but a few objects: what it orders, and when it is content."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from moorage import errors
from moorage.cli import demo_day2, demo_requests

SET = "harbour-worker-0"


class Api:
    """Machines with their nodes; each look lets the next of ``happens`` take place."""

    def __init__(self, *workers: str) -> None:
        self.machines = {name: self.machine(name) for name in workers}
        self.ready = set(workers)
        self.happens: list[Any] = []
        self.asked: list[tuple[str, str, Any]] = []

    def machine(self, name: str, **metadata: Any) -> dict[str, Any]:
        labels = {"machine.openshift.io/cluster-api-machineset": SET}
        return {"metadata": {"name": name, "labels": labels, **metadata}, "status": {"nodeRef": {"name": name}}}

    def __call__(self, _path: Path, method: str, where: str, body: object = None) -> dict[str, Any]:
        if method != "GET":
            self.asked.append((method, where, body))
            return {}
        if where.endswith("/machinesets"):
            return {"items": [{"metadata": {"name": SET}}]}
        if where.endswith("/nodes"):
            if self.happens:
                self.happens.pop(0)()
            return {"items": [self._node(name) for name in self.machines]}
        return {"items": [{"metadata": {"name": "master-0"}}, *self.machines.values()]}

    def _node(self, name: str) -> dict[str, Any]:
        status = "True" if name in self.ready else "Unknown"
        return {"metadata": {"name": name}, "status": {"conditions": [{"type": "Ready", "status": status}]}}


@pytest.fixture
def api(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Api:
    found = Api("w-0", "w-1")
    monkeypatch.setattr(demo_requests, "asked", found)
    monkeypatch.setattr(demo_day2, "_EVERY", 0.0)
    monkeypatch.setenv("PATH", str(tmp_path / "nowhere"))
    return found


def pool(folder: Path) -> demo_day2.Pool:
    return demo_day2.Pool(folder / "kubeconfig", os.environ)


def test_without_kubectl_the_scale_is_patched_and_waited_for(
    api: Api, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    # Given a third machine that comes late, and whose node is ready later still.
    api.happens = [
        lambda: None,
        lambda: api.machines.update({"w-2": api.machine("w-2")}),
        lambda: api.ready.add("w-2"),
    ]

    pool(tmp_path).scale(3)

    assert api.happens == []
    ((method, where, body),) = api.asked
    assert (method, where.rpartition("/machinesets/")[2], body) == ("PATCH", f"{SET}/scale", {"spec": {"replicas": 3}})
    said = capsys.readouterr().out.splitlines()
    assert said[0] == f"$ kubectl -n openshift-machine-api scale machineset/{SET} --replicas=3"
    assert said[-1].startswith("3 of 3 workers are at work after")


def test_what_is_still_going_is_waited_for(api: Api, tmp_path: Path) -> None:
    api.machines["w-1"] = api.machine("w-1", deletionTimestamp="2026-01-01T00:00:00Z")
    api.happens = [lambda: None, lambda: None, lambda: api.machines.pop("w-1")]

    pool(tmp_path).scale(1)

    assert api.happens == []


def test_a_worker_is_replaced_when_another_is_at_work_and_it_is_gone(api: Api, tmp_path: Path) -> None:
    found = pool(tmp_path)
    lost = found.victim()
    api.happens = [
        lambda: None,
        lambda: api.ready.discard(lost),
        lambda: (api.machines.update({"w-9": api.machine("w-9")}), api.ready.add("w-9")),
        lambda: api.machines.pop(lost),
    ]

    assert found.replaced(lost) == "w-9"
    assert api.happens == []


def test_the_health_check_is_written_and_made(api: Api, tmp_path: Path) -> None:
    pool(tmp_path).watch_over(tmp_path / "check.json")

    written = json.loads((tmp_path / "check.json").read_text())
    ((method, where, body),) = api.asked
    assert (method, where.rpartition("/")[2], body) == ("POST", "machinehealthchecks", written)
    assert written["spec"]["selector"]["matchLabels"] == {"machine.openshift.io/cluster-api-machineset": SET}


def test_an_api_that_is_away_for_a_moment_is_borne(api: Api, tmp_path: Path) -> None:
    def away() -> None:
        raise ConnectionRefusedError

    api.happens = [away, away]

    pool(tmp_path).scale(2)

    assert api.happens == []


def test_machines_that_never_come_end_the_demo(api: Api, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo_day2, "_PATIENCE", 0.05)

    with pytest.raises(demo_day2.Stuck, match="for 4 workers to be at work") as stuck:
        pool(tmp_path).scale(4)

    assert stuck.value.remedy.endswith(f"moorage machines --once --kubeconfig {tmp_path / 'kubeconfig'}")


@pytest.mark.parametrize("code", [0, 3])
def test_kubectl_is_used_where_there_is_one(
    api: Api, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    kubectl = tmp_path / "kubectl"
    kubectl.write_text(f'#!/bin/sh\necho "$*" > {tmp_path}/words\nexit {code}\n')
    kubectl.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))

    if code:
        with pytest.raises(errors.MoorageError, match="kubectl scale ended with 3"):
            pool(tmp_path).scale(2)
    else:
        pool(tmp_path).scale(2)

    words = (tmp_path / "words").read_text().split()
    assert words[2:] == ["-n", "openshift-machine-api", "scale", f"machineset/{SET}", "--replicas=2"]
    assert api.asked == []
