"""Waiting for a cluster that comes up by script: each stage, its deadline, and the sentence when it is not met."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from moorage import errors
from moorage.engine import errors as engine_errors
from moorage.installer import awaited_workers, diagnosis, kubeconfig, waiting
from tests.unit.installer import fake_cluster
from tests.unit.installer.fake_cluster import API
from tests.unit.installer.waiting_world import (
    MASTERS,
    MINUTE,
    READY,
    ROUTER,
    WORKERS,
    conditions,
    items,
    operator,
    watched,
)


def test_a_cluster_comes_up(built: fake_cluster.Built, tmp_path: Path) -> None:
    def story(now: float) -> Mapping[str, Any]:
        if now < 300:
            return {"/version": 503}
        shown = {**READY, diagnosis.NODES: items(*MASTERS[: int(now // 300)]), waiting.ETCD: {"status": conditions()}}
        if now < 1500:
            return {**shown, waiting.BOOTSTRAP: 404}
        return shown if now < 1600 else READY

    with watched(built, story, tmp_path, named_at=120) as wait:
        wait.bootstrap()

    assert [stage for stage, _, _ in wait.said] == sorted(
        (s for s, _, _ in wait.said), key=["api", "bootstrap", "etcd"].index
    )
    told = [waiting_for for _, waiting_for, _ in wait.said]
    assert told[0].startswith(f"the Kubernetes API: {API} does not resolve")
    assert any("answers 503" in line for line in told)
    assert any("1 of 3 masters is a Node, none of the others has asked for a certificate" in line for line in told)
    assert any("2 of 3 masters are Nodes, the other one has not asked for a certificate" in line for line in told)
    assert wait.clock.now() == pytest.approx(1600, abs=5)


def test_a_line_for_every_change_and_one_a_minute(built: fake_cluster.Built, tmp_path: Path) -> None:
    with watched(built, lambda now: READY if now >= 200 else {"/version": 503}, tmp_path) as wait:
        wait.bootstrap()

    assert [seconds for _, _, seconds in wait.said] == [0, 60, 120, 180]


def test_what_is_complete_already_takes_no_time(built: fake_cluster.Built, tmp_path: Path) -> None:
    with watched(built, lambda _: READY, tmp_path) as wait:
        wait.bootstrap()
        wait.bootstrap()

    assert (wait.clock.now(), wait.said) == (0, [])


@pytest.mark.parametrize(
    ("shown", "stage", "minutes", "words"),
    [
        ({"/version": 403}, "api", 20, r"cannot be used after 20 min: the API forbids reading /version"),
        ({waiting.BOOTSTRAP: 404}, "bootstrap", 60, "not complete after 60 min: all masters are Ready"),
        (
            {waiting.BOOTSTRAP: 404, diagnosis.NODES: items()},
            "bootstrap",
            60,
            "none of 3 masters is a Node yet, none has asked for a certificate",
        ),
        (
            {
                waiting.ETCD: {"status": conditions(EtcdRunningInCluster=("False", "still waiting for three"))},
                waiting.ETCD_ENDPOINTS: {"data": {"a": "192.0.2.1", "b": "192.0.2.2"}},
            },
            "etcd",
            10,
            "after 10 min: etcd has 2 of 3 members besides the bootstrap's; the etcd operator says: still waiting",
        ),
        ({waiting.ETCD: 404}, "etcd", 10, "the etcd operator has not reported yet"),
    ],
)
def test_the_bootstrap_has_a_deadline_per_stage(
    shown: Mapping[str, Any], stage: str, minutes: int, words: str, built: fake_cluster.Built, tmp_path: Path
) -> None:
    with (
        watched(built, lambda _: {**READY, **shown}, tmp_path) as wait,
        pytest.raises(waiting.BootstrapIncomplete, match=words) as caught,
    ):
        wait.bootstrap()

    assert (caught.value.stage, caught.value.exit_code) == (stage, errors.BOOTSTRAP)
    assert wait.clock.now() == minutes * MINUTE
    assert caught.value.remedy


@pytest.mark.parametrize(
    ("certificate", "words"),
    [
        (
            lambda _: fake_cluster.server(fake_cluster.authority()),
            "not signed by this cluster's CA: another cluster's?",
        ),
        (lambda built: fake_cluster.server(built.signer, since=-2, until=-1), "its certificate has expired"),
        (lambda built: fake_cluster.server(built.signer, host="api.example.org"), f"its certificate is not for {API}"),
    ],
    ids=["another cluster", "expired", "another name"],
)
def test_an_api_that_is_not_ours_is_named_as_such(
    certificate: Callable[[fake_cluster.Built], str], words: str, built: fake_cluster.Built, tmp_path: Path
) -> None:
    with (
        watched(built, lambda _: READY, tmp_path, certificate=certificate(built)) as wait,
        pytest.raises(waiting.BootstrapIncomplete) as caught,
    ):
        wait.bootstrap()

    assert words in caught.value.missing
    assert words in wait.said[0][1], "it is said at once, not only at the end"


def test_a_name_that_never_resolves(built: fake_cluster.Built, tmp_path: Path) -> None:
    with (
        watched(built, lambda _: READY, tmp_path, named_at=1e9) as wait,
        pytest.raises(waiting.BootstrapIncomplete, match=f"20 min: {API} does not resolve"),
    ):
        wait.bootstrap()


def test_what_passes_is_cut_to_a_line_and_what_ends_a_wait_is_told_in_full(
    built: fake_cluster.Built, tmp_path: Path
) -> None:
    ill = [operator(name, Degraded=("True", f"{name} lacks {'much ' * 30}")) for name in ("a", "b", "c")]
    shown = {**READY, diagnosis.VERSION: {}, diagnosis.OPERATORS: items(*ill)}

    with watched(built, lambda _: shown, tmp_path) as wait, pytest.raises(waiting.InstallIncomplete) as caught:
        wait.install()

    passed = [words for _, words, _ in wait.said]
    assert passed
    assert max(map(len, passed)) < 260
    assert passed[0].endswith("; and 2 more")
    assert "c is degraded: c lacks much" in caught.value.missing


def test_a_flapping_api_neither_ends_the_wait_nor_hides_what_was_seen(
    built: fake_cluster.Built, tmp_path: Path
) -> None:
    missing = {**READY, waiting.BOOTSTRAP: 404, diagnosis.NODES: items(*MASTERS[:2])}

    def story(now: float) -> Mapping[str, Any]:
        # The last look, at 60 min, falls into a bad moment.
        return dict.fromkeys(READY, 503) if now and now % 20 == 0 else missing

    with (
        watched(built, story, tmp_path) as wait,
        pytest.raises(waiting.BootstrapIncomplete) as caught,
    ):
        wait.bootstrap()

    assert "answers 503" in caught.value.missing
    assert "last seen before that: 2 of 3 masters are Nodes" in caught.value.missing


@pytest.mark.parametrize(("event", "lacking"), [("bootstrap", waiting.BOOTSTRAP), ("install", diagnosis.VERSION)])
def test_where_to_look_for_workers_is_this_cluster(
    event: str, lacking: str, built: fake_cluster.Built, tmp_path: Path
) -> None:
    makers = {awaited_workers.DEPLOYMENT: {"status": {"availableReplicas": 1}}}
    machines = {diagnosis.MACHINES: items({"metadata": {"name": "worker-3"}, "status": {}})}
    with (
        watched(built, lambda _: {**READY, lacking: 404, **makers, **machines}, tmp_path) as wait,
        pytest.raises(waiting.WaitFailed) as caught,
    ):
        getattr(wait, event)()

    assert caught.value.remedy.endswith(f"moorage machines --once --dir {built.directory}")


def test_the_cluster_is_installed(built: fake_cluster.Built, tmp_path: Path) -> None:
    with watched(built, lambda _: READY, tmp_path) as wait:
        first = wait.install()
        content = first.kubeconfig.read_bytes()
        second = wait.install()

    assert first == second
    assert first.version == "4.20.1"
    assert first.console_url == "https://console.apps.example.com"
    assert first.api_url == f"https://{API}:6443"
    assert kubeconfig.read(first.kubeconfig).authority.count(ROUTER.strip()) == 1
    assert first.kubeconfig.read_bytes() == content


def test_a_cluster_without_a_console_is_complete(built: fake_cluster.Built, tmp_path: Path) -> None:
    with watched(built, lambda _: {**READY, waiting.CONSOLE: 404}, tmp_path) as wait:
        assert wait.install().console_url == ""

    assert wait.clock.now() == waiting.SETTLED


def test_a_console_that_no_router_takes_up_is_not_waited_for_long(built: fake_cluster.Built, tmp_path: Path) -> None:
    with watched(built, lambda _: {**READY, waiting.CONSOLE: {"status": {}}}, tmp_path) as wait:
        assert wait.install().console_url == ""

    assert wait.clock.now() == waiting.SETTLED + 2 * MINUTE


def test_degraded_operators_are_handed_on(built: fake_cluster.Built, tmp_path: Path) -> None:
    shown = {**READY, diagnosis.OPERATORS: items(operator("dns", Degraded=("True", "one pod is down")))}
    with watched(built, lambda _: shown, tmp_path) as wait:
        assert wait.install().degraded == ("dns is degraded: one pod is down",)


def test_a_cluster_that_can_do_without_its_second_worker_is_complete_and_says_so(
    built: fake_cluster.Built, tmp_path: Path
) -> None:
    """Its directory tells how many there should be."""
    with watched(built, lambda _: {**READY, diagnosis.NODES: items(*MASTERS, WORKERS[0])}, tmp_path) as wait:
        installed = wait.install()

    assert installed.missing == "1 of 3 workers is a Node, none of the others has asked for a certificate"


def test_an_operator_that_flaps_must_stay_at_rest_for_30_seconds(built: fake_cluster.Built, tmp_path: Path) -> None:
    def story(now: float) -> Mapping[str, Any]:
        # At rest whenever someone looks after 50 s, but the transition time shows that it moved at 70.
        busy = 20 <= now < 50
        moved = "t0" if now < 20 else "t1" if now < 70 else "t2"
        state: tuple[str, str] = ("True" if busy else "False", "rolling out")
        return {**READY, diagnosis.OPERATORS: items(operator("dns"), operator("etcd", moved, Progressing=state))}

    with watched(built, story, tmp_path) as wait:
        wait.install()

    assert wait.clock.now() == 70 + waiting.SETTLED
    assert any("etcd is progressing: rolling out" in line for _, line, _ in wait.said)
    assert any("etcd must stay at rest for 30 s" in line for _, line, _ in wait.said)


@pytest.mark.parametrize(
    ("shown", "stage", "minutes", "kind", "code", "words"),
    [
        ({diagnosis.VERSION: 404}, "install", 60, waiting.InstallIncomplete, 6, "there is no ClusterVersion yet"),
        (
            {
                diagnosis.VERSION: {
                    "status": conditions(Available="True", Failing=("True", "etcd is sad"), Progressing="False")
                }
            },
            "install",
            60,
            waiting.InstallIncomplete,
            6,
            "after 60 min: the cluster version operator says: etcd is sad",
        ),
        (
            {waiting.INGRESS_AUTHORITY: 404},
            "ingress",
            5,
            waiting.InstallIncomplete,
            6,
            "the ingress operator has not published its certificate",
        ),
        (
            {
                diagnosis.OPERATORS: items(
                    operator("a", Progressing=("True", "moving")),
                    operator("z", Progressing="True", Degraded=("True", "ill")),
                )
            },
            "operators",
            30,
            waiting.OperatorsUnsettled,
            7,
            "after 30 min: z is degraded: ill; a is progressing: moving",
        ),
        ({diagnosis.OPERATORS: items()}, "operators", 30, waiting.OperatorsUnsettled, 7, "there are no operators yet"),
    ],
)
def test_the_installation_has_a_deadline_per_stage(
    shown: Mapping[str, Any],
    stage: str,
    minutes: int,
    kind: type[waiting.WaitFailed],
    code: int,
    words: str,
    built: fake_cluster.Built,
    tmp_path: Path,
) -> None:
    with (
        watched(built, lambda _: {**READY, **shown}, tmp_path) as wait,
        pytest.raises(kind, match=words) as caught,
    ):
        wait.install()

    assert (caught.value.stage, caught.value.exit_code) == (stage, code)
    assert wait.clock.now() == minutes * MINUTE


def test_machines_that_are_not_hardware_get_less_time(
    built: fake_cluster.Built, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waiting, "known", lambda _: diagnosis.Facts(masters=3, workers=3, hardware=False))
    with watched(built, lambda _: {**READY, waiting.BOOTSTRAP: 404, diagnosis.VERSION: 404}, tmp_path) as wait:
        with pytest.raises(waiting.BootstrapIncomplete, match="after 45 min"):
            wait.bootstrap()
        with pytest.raises(waiting.InstallIncomplete, match="after 40 min"):
            wait.install()


def test_the_install_config_is_not_needed(built: fake_cluster.Built, tmp_path: Path) -> None:
    (built.directory / "install-config.yaml").unlink()

    with watched(built, lambda _: READY, tmp_path) as wait:
        wait.bootstrap()

    assert waiting.known(built.directory) == diagnosis.Facts()


def test_a_wish_to_stop_ends_the_wait(built: fake_cluster.Built, tmp_path: Path) -> None:
    with watched(built, lambda _: {"/version": 503}, tmp_path) as wait:

        def stop(*_: object) -> None:
            wait.clock.request_stop()

        with pytest.raises(engine_errors.Interrupted):
            waiting.bootstrap_complete(built.directory, wait.clock, wait.environ, stop)
