"""Machines that keep silent, or ask and are not let in: who is missing, why, and the command that helps."""

from __future__ import annotations

from pathlib import Path

import pytest

from moorage.installer import diagnosis, probes, waiting
from tests.unit.installer import fake_cluster
from tests.unit.installer.waiting_world import (
    MASTERS,
    READY,
    conditions,
    items,
    request,
    watched,
)


def test_workers_that_wait_to_be_let_in_come_with_the_command(built: fake_cluster.Built, tmp_path: Path) -> None:
    shown = {
        **READY,
        diagnosis.VERSION: {"status": conditions(Progressing=("True", "on the way"))},
        diagnosis.NODES: items(*MASTERS),
        diagnosis.REQUESTS: items(request("csr-a", "worker-0"), request("csr-b", "worker-1", Approved="True")),
    }
    with (
        watched(built, lambda _: shown, tmp_path) as wait,
        pytest.raises(waiting.InstallIncomplete) as caught,
    ):
        wait.install()

    assert "none of 3 workers is a Node yet, worker-0 waits for its certificate request csr-a" in caught.value.missing
    assert "worker-1 has been let in, but is no Node yet, 1 more has not asked" in caught.value.missing
    assert "oc adm certificate approve csr-a" in caught.value.remedy


def test_silent_machines_come_with_what_keeps_them_silent(built: fake_cluster.Built, tmp_path: Path) -> None:
    """The name of the cluster's inside is not there: nobody can get a config, and the sentence says so."""
    shown = {**READY, waiting.BOOTSTRAP: 404, diagnosis.NODES: items(*MASTERS[:1])}
    with (
        watched(built, lambda _: shown, tmp_path) as wait,
        pytest.raises(waiting.BootstrapIncomplete) as caught,
    ):
        wait.bootstrap()

    assert "none of the others has asked for a certificate; api-int." in caught.value.missing
    assert "masters get their config from there" in caught.value.missing


def test_machines_may_take_their_time_before_it_is_asked_why(built: fake_cluster.Built, tmp_path: Path) -> None:
    shown = {**READY, waiting.BOOTSTRAP: 404, diagnosis.NODES: items(*MASTERS[:1])}
    with (
        watched(built, lambda _: shown, tmp_path) as wait,
        pytest.raises(waiting.BootstrapIncomplete),
    ):
        wait.bootstrap()

    told = [seconds for _, line, seconds in wait.said if "get their config from there" in line]
    assert min(told) == waiting.SILENCE


def test_workers_that_keep_silent_are_asked_about_as_workers(built: fake_cluster.Built, tmp_path: Path) -> None:
    shown = {
        **READY,
        diagnosis.VERSION: {"status": conditions(Progressing=("True", "on the way"))},
        diagnosis.NODES: items(*MASTERS),
    }
    with (
        watched(built, lambda _: shown, tmp_path) as wait,
        pytest.raises(waiting.InstallIncomplete) as caught,
    ):
        wait.install()

    assert "none of 3 workers is a Node yet, none has asked for a certificate" in caught.value.missing
    assert "workers get their config from there" in caught.value.missing


def test_once_all_machines_have_asked_nobody_is_probed(
    built: fake_cluster.Built, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def never(*_: object) -> str:
        raise AssertionError("somebody was probed")

    monkeypatch.setattr(probes.Prober, "sentence", never)
    shown = {
        **READY,
        waiting.BOOTSTRAP: 404,
        diagnosis.NODES: items(*MASTERS[:2]),
        diagnosis.REQUESTS: items(request("csr-1", "master-2")),
    }
    with (
        watched(built, lambda _: shown, tmp_path) as wait,
        pytest.raises(waiting.BootstrapIncomplete, match="master-2 waits for its certificate request csr-1"),
    ):
        wait.bootstrap()
