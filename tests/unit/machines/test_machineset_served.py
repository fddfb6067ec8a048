"""MachineSets and MachineHealthChecks on an API server: their definitions, the scale subresource, the collector."""

from __future__ import annotations

import contextlib
import itertools
import json
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from moorage.engine import clock as clocks
from moorage.lab.nodes import payload
from moorage.machines import events, healthcheck, machineset
from moorage.machines.runtime import client as clients
from moorage.machines.runtime import connection, controller, informer, kinds, queue
from moorage.machines.runtime import errors as api_errors
from tests.kube import cluster as clusters
from tests.kube import embedded

pytestmark = pytest.mark.needs("kubectl")

PLACE = "default"
PATIENCE = 20.0
_DEFINITION = kinds.Kind(
    "apiextensions.k8s.io", "v1", "customresourcedefinitions", "CustomResourceDefinition", namespaced=False
)
_numbers = itertools.count(1)


def eventually(holds: Callable[[], bool], what: str) -> None:
    until = time.monotonic() + PATIENCE
    while not holds():
        assert time.monotonic() < until, f"it did not come to this: {what}"
        time.sleep(0.02)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[clusters.Cluster]:
    with embedded.running(tmp_path_factory.mktemp("kube")) as made:
        yield made


@pytest.fixture(scope="module")
def api(cluster: clusters.Cluster) -> clients.Client:
    made = clients.Client(connection.from_kubeconfig(cluster.kubeconfig()), clocks.Clock())
    for definition in payload.definitions():
        if definition["spec"]["group"] == "machine.openshift.io":
            made.create(_DEFINITION, dict(definition))

    def served() -> bool:
        with contextlib.suppress(api_errors.NotFound):
            for kind in (kinds.MACHINE, kinds.MACHINE_SET, kinds.MACHINE_HEALTH_CHECK):
                made.list(kind, PLACE)
            return True
        return False

    eventually(served, "the kinds are served")
    return made


@pytest.fixture(scope="module", autouse=True)
def _controllers(api: clients.Client) -> Iterator[None]:
    kept = (kinds.MACHINE_SET, kinds.MACHINE_HEALTH_CHECK, kinds.MACHINE, kinds.NODE)
    caches = [informer.Informer(api, kind) for kind in kept]
    sets, checks, machines, nodes = caches
    common: dict[str, Any] = {
        "clock": api.clock,
        "check": lambda: None,
        "recorder": events.Recorder(api, api.clock, "test"),
    }
    workers = []
    for name, made in (
        ("machineset", machineset.MachineSets(api, sets, machines, nodes, **common)),
        ("machinehealthcheck", healthcheck.HealthChecks(api, checks, machines, nodes, **common)),
    ):
        keys = queue.Queue(api.clock, name=name)
        made.feed(keys)
        workers.append(controller.Controller(name, made.reconcile, keys, workers=2))
    for cache in caches:
        cache.start()
    assert all(cache.wait_synced(PATIENCE) for cache in caches)
    for worker in workers:
        worker.start()
    yield
    for worker in workers:
        assert worker.stop() == []
    for cache in caches:
        cache.stop()


@pytest.fixture
def pool(api: clients.Client) -> Iterator[str]:
    """A set of the story's own, of one machine."""
    name = f"pool-{next(_numbers)}"
    labels = {"pool": name}
    template = {"metadata": {"labels": labels}, "spec": {"providerSpec": {"value": {"size": 1}}}}
    spec = {"selector": {"matchLabels": labels}, "template": template, "replicas": 1}
    api.create(kinds.MACHINE_SET, {"metadata": {"name": name, "namespace": PLACE}, "spec": spec})
    eventually(lambda: len(machines(api, name)) == 1, "the first machine is there")
    yield name
    with contextlib.suppress(api_errors.NotFound):
        api.delete(kinds.MACHINE_SET, name, PLACE, propagation="Background")


def machines(api: clients.Client, pool: str) -> list[dict[str, Any]]:
    found, _ = api.list(kinds.MACHINE, PLACE, labels=f"pool={pool}")
    return [each for each in found if not each["metadata"].get("deletionTimestamp")]


def status(api: clients.Client, pool: str) -> dict[str, Any]:
    found: dict[str, Any] = api.get(kinds.MACHINE_SET, pool, PLACE).get("status") or {}
    return found


def test_kubectl_scales_a_set_up_and_down(cluster: clusters.Cluster, api: clients.Client, pool: str) -> None:
    for wanted in (12, 2):
        cluster.kubectl("scale", "-n", PLACE, f"machinesets.machine.openshift.io/{pool}", f"--replicas={wanted}")
        eventually(lambda wanted=wanted: len(machines(api, pool)) == wanted, f"{wanted} machines")  # type: ignore[misc]
        eventually(lambda wanted=wanted: status(api, pool).get("replicas") == wanted, "it is told")  # type: ignore[misc]
    found = json.loads(cluster.kubectl("get", "--raw", kinds.MACHINE_SET.path(PLACE, pool, "scale")))
    assert found["status"] == {"replicas": 2, "selector": f"pool={pool}"}


def test_an_orphan_is_adopted_and_one_that_no_longer_matches_is_released(api: clients.Client, pool: str) -> None:
    labels = {"pool": pool}
    body = {"metadata": {"name": f"{pool}-stray", "namespace": PLACE, "labels": labels}, "spec": {}}
    api.create(kinds.MACHINE, body)
    api.patch(kinds.MACHINE_SET, pool, PLACE, {"spec": {"replicas": 2}})
    uid = api.get(kinds.MACHINE_SET, pool, PLACE)["metadata"]["uid"]

    def owners(name: str) -> list[str]:
        found = api.get(kinds.MACHINE, name, PLACE)["metadata"].get("ownerReferences") or []
        return [each["uid"] for each in found]

    def settled() -> bool:
        found = machines(api, pool)
        return len(found) == 2 and all(owners(each["metadata"]["name"]) == [uid] for each in found)

    eventually(settled, "two machines, both the set's own")
    name = machines(api, pool)[0]["metadata"]["name"]
    api.patch(kinds.MACHINE, name, PLACE, {"metadata": {"labels": {"pool": "quarantine"}}})
    eventually(lambda: owners(name) == [], "it is nobody's")
    eventually(settled, "another is there in its place")
    api.delete(kinds.MACHINE, name, PLACE)


@pytest.mark.parametrize(("propagation", "left"), [("Foreground", 0), ("Background", 0), ("Orphan", 1)])
def test_a_set_that_is_deleted_takes_its_machines_along_or_leaves_them(
    api: clients.Client, pool: str, propagation: Any, left: int
) -> None:
    (name,) = (each["metadata"]["name"] for each in machines(api, pool))
    api.delete(kinds.MACHINE_SET, pool, PLACE, propagation=propagation)

    def gone() -> bool:
        with contextlib.suppress(api_errors.NotFound):
            api.get(kinds.MACHINE_SET, pool, PLACE)
            return False
        found = machines(api, pool)
        return len(found) == left and not any(each["metadata"].get("ownerReferences") for each in found)

    eventually(gone, f"the set is gone and {left} machines are nobody's")
    if left:
        assert [each["metadata"]["name"] for each in machines(api, pool)] == [name]


def test_a_set_that_contradicts_itself_is_told_so(api: clients.Client, pool: str) -> None:
    api.patch(kinds.MACHINE_SET, pool, PLACE, {"spec": {"selector": {"matchLabels": {"pool": "another"}}}})
    eventually(lambda: status(api, pool).get("errorReason") == "InvalidConfiguration", "it says so")
    api.patch(kinds.MACHINE_SET, pool, PLACE, {"spec": {"selector": {"matchLabels": {"pool": pool}}}})
    eventually(lambda: "errorReason" not in status(api, pool), "it is well again")
    assert len(machines(api, pool)) == 1


def test_a_node_that_is_sick_for_too_long_is_replaced(api: clients.Client, pool: str) -> None:
    (sick,) = (each["metadata"]["name"] for each in machines(api, pool))
    spec = {
        "selector": {"matchLabels": {"pool": pool}},
        "unhealthyConditions": [{"type": "Ready", "status": "Unknown", "timeout": "1s"}],
    }
    api.create(kinds.MACHINE_HEALTH_CHECK, {"metadata": {"name": pool, "namespace": PLACE}, "spec": spec})
    api.create(kinds.NODE, {"metadata": {"name": sick}})
    reference = {"kind": "Node", "name": sick}
    api.patch(kinds.MACHINE, sick, PLACE, {"status": {"nodeRef": reference}}, subresource="status")
    stamp = api.clock.wall().strftime("%Y-%m-%dT%H:%M:%SZ")
    told = [{"type": "Ready", "status": "Unknown", "reason": "Silent", "message": "", "lastTransitionTime": stamp}]
    api.patch(kinds.NODE, sick, "", {"status": {"conditions": told}}, subresource="status")

    def replaced() -> bool:
        return [each["metadata"]["name"] for each in machines(api, pool)] not in ([sick], [])

    eventually(replaced, "another machine is there instead")

    def counted() -> bool:
        found = api.get(kinds.MACHINE_HEALTH_CHECK, pool, PLACE).get("status") or {}
        return (found.get("expectedMachines"), found.get("currentHealthy")) == (1, 0)

    eventually(counted, "the new one counts, and is not healthy yet")
    said, _ = api.list(kinds.EVENT, PLACE, fields=f"involvedObject.name={sick}")
    assert "MachineDeleted" in [each["reason"] for each in said]
    api.delete(kinds.MACHINE_HEALTH_CHECK, pool, PLACE)
