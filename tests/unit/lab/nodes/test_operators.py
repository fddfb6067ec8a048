"""Operators become available when what they need is really there; each missing thing is named by the right one."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from moorage.lab import names
from moorage.lab.nodes import (
    conditions,
    disk,
    ignition,
    operators,
    router,
    static_pods,
)
from tests.unit.lab.nodes.node_world import until
from tests.unit.lab.nodes.operators_world import APPS, IMAGE, Object, Scene, story


def test_a_cluster_in_which_nothing_is_missing_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    async def tell(made: Scene) -> None:
        assert conditions.found(made.version(), "Progressing")["status"] == "True"
        assert "Working towards 4.20.33" in conditions.found(made.version(), "Progressing")["message"]
        assert not conditions.true(made.version(), "Available")
        assert made.version()["status"]["history"][0]["state"] == "Partial"
        assert made.condition("etcd", "Progressing")["status"] == "True"

        await made.settled()

        assert made.unavailable() == set()
        assert conditions.true(made.version(), "Available")
        assert not conditions.true(made.version(), "Progressing")
        assert not conditions.true(made.version(), "Failing")
        [history] = made.version()["status"]["history"]
        assert (history["state"], history["version"], history["image"]) == ("Completed", "4.20.33", IMAGE)
        assert history["completionTime"]
        assert made.version()["status"]["desired"] == {"version": "4.20.33", "image": IMAGE}
        route = made.cluster.find("route.openshift.io", "Route", "openshift-console", "console") or {}
        assert route["status"]["ingress"][0]["host"] == f"console-openshift-console.{APPS}"
        assert made.routers() == ["worker-0", "worker-1"], "one on each"
        bundle = made.cluster.find("", "ConfigMap", "openshift-config-managed", "default-ingress-cert") or {}
        assert bundle["data"]["ca-bundle.crt"] == made.operators.ingress.authority.certificate

        # At rest: whoever looks again writes nothing.
        written = [entry.object["metadata"]["resourceVersion"] for entry in _operators(made)]
        await made.look()
        assert [entry.object["metadata"]["resourceVersion"] for entry in _operators(made)] == written

    story(tell, monkeypatch)


def _operators(made: Scene) -> list[Any]:
    return made.cluster.api.entries(made.cluster.api.kind(operators.GROUP, "ClusterOperator"))


def no_apps_record(made: Scene) -> None:
    made.world.site.zones.take(f"*.{APPS}", "A")


def nothing_listens(made: Scene) -> None:
    made.world.site.zones.put(names.RecordSet(f"*.{APPS}", "A", (made.world.site.allocate(),)))


def no_worker(made: Scene) -> None:
    for name in ("worker-0", "worker-1"):
        made.set_ready(name, "False")


def no_api_server(made: Scene) -> None:
    machine = made.world.site.instances["master-1"]
    static_pods.displace(static_pods.API_SERVER, machine)
    machine.wire._running.pop(static_pods.API_SERVER.service)


def no_etcd(made: Scene) -> None:
    made.world.site.instances["master-1"].wire._running.pop(static_pods.ETCD.service)


def a_lost_master(made: Scene) -> None:
    made.set_ready("master-2", "Unknown")


@pytest.mark.parametrize(
    ("take", "operator", "words", "others"),
    [
        (no_apps_record, "authentication", "no such host", {"authentication", "console"}),
        (nothing_listens, "authentication", "connection refused", {"authentication", "console"}),
        (no_api_server, "kube-apiserver", "1 nodes are at revision 0; 2 nodes are at revision 1; 2 of 3", None),
        (no_etcd, "etcd", "3 nodes are at revision 1; 2 of 3 pods run", {"etcd"}),
        (no_worker, "network", 'ovnkube-node" is not available (awaiting 2 nodes)', None),
        (a_lost_master, "network", 'ovnkube-node" is not available (awaiting 1 nodes)', None),
    ],
)
def test_what_is_missing_is_named_before_and_after_the_installation(
    take: Callable[[Scene], None],
    operator: str,
    words: str,
    others: set[str] | None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def tell(made: Scene) -> None:
        if take is not no_worker:
            await until(made.routers, "routers")
        take(made)
        await made.look(8000)

        assert words in made.condition(operator, "Available")["message"]
        assert made.condition(operator, "Available")["status"] == "False"
        assert made.condition(operator, "Degraded")["status"] == "False", "it was never well"
        assert conditions.true(made.version(), "Progressing")
        assert not conditions.true(made.version(), "Available")
        if others is not None:
            assert made.unavailable() == others
            assert (
                f"waiting on {', '.join(sorted(others))}" in conditions.found(made.version(), "Progressing")["message"]
            )

    story(tell, monkeypatch)


def test_one_that_was_well_and_is_not_any_more_is_degraded(monkeypatch: pytest.MonkeyPatch) -> None:
    async def tell(made: Scene) -> None:
        await made.settled()
        assert made.unavailable() == set()
        since = conditions.found(made.version(), "Available")["lastTransitionTime"]

        record = f"*.{APPS}"
        front = made.world.site.instances["worker-0"].address
        made.world.site.zones.take(record, "A")
        await made.look()

        assert made.unavailable() == {"authentication", "console"}
        assert made.condition("authentication", "Degraded")["status"] == "True"
        assert "no such host" in made.condition("authentication", "Degraded")["message"]
        assert made.condition("console", "Degraded")["message"] == "waiting for authentication"
        assert made.condition("authentication", "Progressing")["status"] == "False"
        failing = conditions.found(made.version(), "Failing")
        assert (failing["status"], failing["reason"]) == ("True", "ClusterOperatorDegraded")
        assert "Cluster operator authentication is degraded" in failing["message"]
        assert conditions.found(made.version(), "Available") | {"lastTransitionTime": since} == conditions.found(
            made.version(), "Available"
        ), "installed is installed"

        made.world.site.zones.put(names.RecordSet(record, "A", (front,)))
        await made.look()
        assert made.unavailable() == set()
        assert not conditions.true(made.version(), "Failing")
        assert len(made.version()["status"]["history"]) == 1

    story(tell, monkeypatch)


def test_without_workers_ingress_and_monitoring_say_so(monkeypatch: pytest.MonkeyPatch) -> None:
    async def tell(made: Scene) -> None:
        # Never any worker, and masters may not be used.
        spec = {"mastersSchedulable": False}
        made.cluster.change(operators.GROUP, "Scheduler", "", "cluster", lambda each: each.update(spec=spec))
        await made.look(8000)

        assert "0/2 of replicas are available; 0 Ready workers" in made.condition("ingress", "Available")["message"]
        assert "0 Ready workers" in made.condition("monitoring", "Available")["message"]
        assert {"ingress", "monitoring", "authentication", "console"} == made.unavailable()

    story(tell, monkeypatch, workers=0)


KEPT_FREE = {"key": "node-role.kubernetes.io/master", "effect": "NoSchedule"}


def test_masters_beside_workers_take_no_workloads(monkeypatch: pytest.MonkeyPatch) -> None:
    async def tell(made: Scene) -> None:
        master = made.world.node("master-0")

        assert "node-role.kubernetes.io/worker" not in master["metadata"]["labels"]
        assert KEPT_FREE in master["spec"]["taints"]

    story(tell, monkeypatch)


def test_masters_that_may_be_used_are_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    async def tell(made: Scene) -> None:
        await made.look()
        labels = made.world.node("master-0")["metadata"]["labels"]
        assert "node-role.kubernetes.io/worker" in labels
        assert KEPT_FREE not in (made.world.node("master-0")["spec"].get("taints") or [])
        await made.settled()

        assert made.unavailable() == set()
        assert len(made.routers()) == 2
        assert set(made.routers()) <= {"master-0", "master-1", "master-2"}

    def front(made: Scene) -> None:
        """The name leads to all masters: no one knows beforehand where the routers will be."""
        addresses = tuple(made.world.site.instances[f"master-{number}"].address for number in range(3))
        made.world.site.zones.put(names.RecordSet(f"*.{APPS}", "A", addresses))

    async def told(made: Scene) -> None:
        front(made)
        await tell(made)

    story(told, monkeypatch, workers=0)


def test_a_single_node_is_a_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    async def tell(made: Scene) -> None:
        await made.look()
        await made.settled()

        assert made.unavailable() == set()
        assert made.routers() == ["master-0"]

    story(tell, monkeypatch, masters=1, workers=0, topology="SingleReplica")


def test_the_router_of_a_dead_worker_moves(monkeypatch: pytest.MonkeyPatch) -> None:
    async def tell(made: Scene) -> None:
        await made.settled()
        third = await made.add_node("worker-2", "worker")
        dead = made.world.site.instances["worker-0"]
        assert router.SERVICE in dead.wire.listening

        await dead.power_off()
        made.set_ready("worker-0", "Unknown")
        kind = made.cluster.api.kind("", "Pod")
        for entry in made.cluster.api.entries(kind, router.NAMESPACE):
            if entry.object["spec"].get("nodeName") == "worker-0":
                metadata = entry.object["metadata"]
                made.world.delete("Pod", metadata["name"], metadata["namespace"], grace=0)

        await until(lambda: made.routers() == ["worker-1", "worker-2"], "another router")
        await made.look()
        assert router.SERVICE in third.wire.listening
        assert router.SERVICE not in dead.wire.listening
        # A router that is gone from a live machine listens no longer.
        made.cluster.change("apps", "Deployment", router.NAMESPACE, "router-default", _scaled_to_none)

        async def quiet() -> bool:
            await made.operators.look()
            return router.SERVICE not in third.wire.listening

        async with asyncio.timeout(20):
            while not await quiet():
                await asyncio.sleep(0.05)

    story(tell, monkeypatch)


def _scaled_to_none(content: Object) -> None:
    content["spec"]["replicas"] = 0


def test_a_router_whose_port_is_taken_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    async def tell(made: Scene) -> None:
        await until(made.routers, "pods")
        machine = made.world.site.instances["worker-0"]
        await machine.wire.unserve(router.SERVICE)
        taken = await asyncio.start_server(lambda r, w: w.close(), machine.address, made.world.site.port(router.HEALTH))
        await made.look()
        assert any("back-off restarting failed container router" in line for line in machine.console)
        assert router.SERVICE not in machine.wire.listening

        taken.close()
        await taken.wait_closed()
        await made.look()
        assert router.SERVICE in machine.wire.listening

    story(tell, monkeypatch)


@pytest.mark.parametrize(
    ("content", "version", "image"),
    [
        (
            "MOORAGE_RELEASE_IMAGE='quay.io/a/ocp-release:4.20.33-x86_64'\n",
            "4.20.33",
            "quay.io/a/ocp-release:4.20.33-x86_64",
        ),
        ("X=1\nMOORAGE_RELEASE_IMAGE=quay.io/a/r:4.20.33-multi\nY=2\n", "4.20.33", "quay.io/a/r:4.20.33-multi"),
        ("MOORAGE_RELEASE_IMAGE=quay.io/a/r:4.21.0-rc.2-aarch64\n", "4.21.0-rc.2", "quay.io/a/r:4.21.0-rc.2-aarch64"),
        (
            "MOORAGE_RELEASE_IMAGE='quay.io/okd/scos-release:4.20.0-okd-scos.17'\n",
            "4.20.0-okd-scos.17",
            "quay.io/okd/scos-release:4.20.0-okd-scos.17",
        ),
        ("MOORAGE_RELEASE_IMAGE=quay.io/a/r@sha256:0123\n", "4.20.0", "quay.io/a/r@sha256:0123"),
        ("", "4.20.0", "payload/release:4.20.0"),
    ],
)
def test_the_version_is_that_of_the_release_image(content: str, version: str, image: str) -> None:
    class Machine:
        provisioned = ignition.Provisioned({"/etc/moorage/bootstrap.env": disk.File(content.encode())}, {}, {}, {}, {})

    assert operators.release(Machine()) == (version, image)  # type: ignore[arg-type]


def test_without_a_bootstrap_machine_the_version_is_unknown() -> None:
    assert operators.release(None) == ("4.20.0", "payload/release:4.20.0")


def test_operators_need_only_those_before_them() -> None:
    """They are looked at in one pass, so a need must have been looked at already."""
    known: set[str] = set()
    for each in operators.OPERATORS:
        assert set(each.needs) <= known, each.name
        known.add(each.name)
    assert len(known) == len(operators.OPERATORS)
