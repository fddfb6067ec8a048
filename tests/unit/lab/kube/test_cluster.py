"""A whole cluster: what it begins with, how its controllers work together, and that it outlives its process."""

from __future__ import annotations

import asyncio
import pathlib
from collections.abc import Callable
from typing import Any

import pytest

from moorage.engine import clock as clocks
from moorage.lab.kube import cluster, options, problem, store
from tests.unit.lab.kube import controllers_world as worlds

Object = worlds.Object


async def _until(kube: cluster.Kube, true: Callable[[], Any]) -> Any:
    changed = asyncio.Event()
    kube.store.on_write.append(lambda key, event: changed.set())
    async with asyncio.timeout(worlds.PATIENCE):
        while not (found := true()):
            changed.clear()
            await changed.wait()
    return found


def _deployment(namespace: str) -> Object:
    spec = {"replicas": 2, "selector": {"matchLabels": {"app": "web"}}, "template": worlds.template(app="web")}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "web", "namespace": namespace},
        "spec": spec,
    }


def test_a_cluster_begins_with_what_every_cluster_has() -> None:
    kube = cluster.Kube(clocks.Clock(), service_network="10.7.0.0/16")
    assert [name for _, name in kube.store.names(("", "namespaces"))] == sorted(cluster.SYSTEM_NAMESPACES)
    service = kube.store.get(("", "services"), ("default", "kubernetes"))
    assert service is not None
    assert service.object["spec"]["clusterIP"] == "10.7.0.1"
    assert kube.store.get(("rbac.authorization.k8s.io", "clusterroles"), ("", "cluster-admin")) is not None


def test_services_get_addresses_of_a_network_of_either_kind() -> None:
    api = cluster.Kube(clocks.Clock(), service_network="fd02::/112").api
    services = api.kind("", "Service")

    def made(name: str, **spec: object) -> Object:
        content = {"metadata": {"name": name}, "spec": {"ports": [{"port": 80}], **spec}}
        return api.create(services, "default", content).object["spec"]

    assert api.get(services, "default", "kubernetes").object["spec"]["clusterIP"] == "fd02::1"
    given = made("given")
    assert (given["clusterIP"], given["clusterIPs"], given["ipFamilies"]) == ("fd02::100", ["fd02::100"], ["IPv6"])
    assert made("chosen", clusterIP="fd02::7")["clusterIP"] == "fd02::7"
    for address, why in (
        ("fd02:0::7", "provided IP is already allocated"),
        ("fd03::7", "the provided network does not match the current range"),
        ("10.0.0.7", "the provided network does not match the current range"),
    ):
        with pytest.raises(problem.Problem, match=why):
            made("refused", clusterIP=address)


def test_every_namespace_gets_an_account_and_a_root_of_trust_again_and_again() -> None:
    async def told() -> None:
        kube = cluster.Kube(clocks.Clock(worlds.SPEED), root_ca="PEM")

        def furnished(namespace: str, bundle: str = "PEM") -> bool:
            account = kube.store.get(("", "serviceaccounts"), (namespace, "default"))
            trust = kube.store.get(("", "configmaps"), (namespace, "kube-root-ca.crt"))
            return account is not None and trust is not None and trust.object["data"] == {"ca.crt": bundle}

        await kube.start_controllers()
        await _until(kube, lambda: all(furnished(name) for name in cluster.SYSTEM_NAMESPACES))
        kube.api.put({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team"}})
        await _until(kube, lambda: furnished("team"))
        kube.api.delete(kube.api.kind("", "ServiceAccount"), "team", "default")
        kube.api.delete(kube.api.kind("", "ConfigMap"), "team", "kube-root-ca.crt")
        await _until(kube, lambda: furnished("team"))
        kube.accounts.trust("NEW")
        await _until(kube, lambda: furnished("team", "NEW"))
        await kube.stop()

    asyncio.run(told())


def test_a_deployment_is_scheduled_and_goes_with_its_namespace() -> None:
    async def told() -> None:
        kube = cluster.Kube(clocks.Clock(worlds.SPEED))
        await kube.start_controllers()
        kube.api.put(
            {
                "apiVersion": "v1",
                "kind": "Node",
                "metadata": {"name": "n1"},
                "status": {"conditions": [{"type": "Ready", "status": "True"}]},
            }
        )
        kube.api.put({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team"}})
        kube.api.put(_deployment("team"))

        def bound() -> list[store.Entry]:
            pods = kube.store.entries(("", "pods"), "team")
            return pods if [each.object["spec"].get("nodeName") for each in pods] == ["n1", "n1"] else []

        pods = await _until(kube, bound)
        kube.api.delete(kube.api.kind("", "Namespace"), "", "team")
        await _until(kube, lambda: all("deletionTimestamp" in each.object["metadata"] for each in bound()))
        # They run on a node, which takes its time to end them; the namespace waits for that.
        assert kube.store.get(("", "namespaces"), ("", "team")) is not None
        for pod in pods:
            how = options.DeleteOptions(grace_seconds=0)
            kube.api.delete(kube.api.kind("", "Pod"), "team", pod.object["metadata"]["name"], how)
        await _until(kube, lambda: kube.store.get(("", "namespaces"), ("", "team")) is None)
        assert not [key for key in sorted(kube.store.keys()) if kube.store.names(key, "team")]
        await kube.stop()

    asyncio.run(told())


def test_stopped_controllers_do_nothing_more() -> None:
    async def told() -> None:
        kube = cluster.Kube(clocks.Clock(worlds.SPEED))
        await kube.start_controllers()
        await kube.stop()
        kube.api.put(_deployment("default"))
        before = kube.store.revision
        await asyncio.sleep(10 / worlds.SPEED)
        assert kube.store.revision == before
        assert len(asyncio.all_tasks()) == 1

    asyncio.run(told())


_DEFINITION: Object = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "boats.example.com"},
    "spec": {
        "group": "example.com",
        "scope": "Namespaced",
        "names": {"kind": "Boat", "plural": "boats", "singular": "boat", "listKind": "BoatList"},
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}},
            }
        ],
    },
}


def test_a_cluster_outlives_its_process(tmp_path: pathlib.Path) -> None:
    async def told() -> None:
        first = cluster.Kube(clocks.Clock(worlds.SPEED), path=tmp_path / "kube.db")
        await first.start_controllers()
        first.api.put(_DEFINITION)
        boat = first.api.put({"apiVersion": "example.com/v1", "kind": "Boat", "metadata": {"name": "b"}, "sails": 2})
        first.api.put(_deployment("default"))
        await _until(first, lambda: len(first.store.names(("", "pods"))) == 2)
        await first.stop()
        second = cluster.Kube(clocks.Clock(worlds.SPEED), path=tmp_path / "kube.db")
        kind = second.api.kind("example.com", "Boat")
        assert second.api.get(kind, "default", "b").data == boat.data
        for key in sorted(first.store.keys()):
            for name in first.store.names(key):
                before, after = first.store.get(key, name), second.store.get(key, name)
                assert before is not None
                assert after is not None
                assert before.object["metadata"]["uid"] == after.object["metadata"]["uid"]
        # The controllers go on where they were: what belongs together is still known to.
        await second.start_controllers()
        second.api.delete(second.api.kind("apps", "Deployment"), "default", "web")
        await _until(second, lambda: not second.store.names(("", "pods")))
        await second.stop()

    asyncio.run(told())
