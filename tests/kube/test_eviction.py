"""Pods are evicted as far as their budgets allow; leases and events are written as controllers and kubelets do."""

from __future__ import annotations

import pytest

from tests.kube import calls, objects

NOW = "2024-05-01T00:00:00.000000Z"


@pytest.fixture
def pods(admin: calls.Caller, namespace: str) -> str:
    """Three running pods on a node, of no controller."""
    path = f"/api/v1/namespaces/{namespace}/pods"
    for name in ("a", "b", "c"):
        body = objects.pod(name, "some-node", labels={"app": "fleet"})
        admin.post(path, body).got(201)
        status = {
            "phase": "Running",
            "conditions": [objects.condition("Ready", "True"), objects.condition("ContainersReady", "True")],
        }
        admin.patch(f"{path}/{name}/status", {"status": status}, calls.STRATEGIC).got()
    return path


def evict(admin: calls.Caller, path: str, name: str, **options: object) -> calls.Answer:
    body: calls.Object = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}}
    return admin.post(f"{path}/{name}/eviction", {**body, **({"deleteOptions": options} if options else {})})


def budget(admin: calls.Caller, namespace: str, **spec: object) -> str:
    path = f"/apis/policy/v1/namespaces/{namespace}/poddisruptionbudgets"
    body = {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "budget"}}
    admin.post(path, {**body, "spec": {"selector": {"matchLabels": {"app": "fleet"}}, **spec}}).got(201)
    return f"{path}/budget"


def allowed(admin: calls.Caller, path: str, number: int) -> calls.Object:
    def status() -> calls.Object:
        found: calls.Object = admin.get(path).got().get("status", {})
        return found

    calls.eventually(
        lambda: "conditions" in status() and status().get("disruptionsAllowed") == number, f"{number} allowed"
    )
    return status()


def test_without_a_budget_a_pod_goes(admin: calls.Caller, pods: str) -> None:
    said = evict(admin, pods, "a").got(201)

    assert (said["kind"], said["status"]) == ("Status", "Success")
    calls.eventually(lambda: admin.get(f"{pods}/a").code == 404, "the pod gone")
    evict(admin, pods, "a").refused(404, "NotFound")


def test_a_budget_is_kept(admin: calls.Caller, namespace: str, pods: str) -> None:
    """Given three pods of which two must stay, then one may go, and the next has to wait."""
    path = budget(admin, namespace, minAvailable=2)
    status = allowed(admin, path, 1)
    assert (status["expectedPods"], status["currentHealthy"], status["desiredHealthy"]) == (3, 3, 2)

    evict(admin, pods, "a").got(201)
    refused = evict(admin, pods, "b")

    refusal = refused.refused(
        429, "TooManyRequests", "Cannot evict pod as it would violate the pod's disruption budget."
    )
    (cause,) = refusal["details"]["causes"]
    assert cause["reason"] == "DisruptionBudget"
    assert admin.get(f"{pods}/b").code == 200
    allowed(admin, path, 0)
    assert evict(admin, pods, "b").code == 429


def test_a_share_of_pods_without_a_controller_allows_nothing(admin: calls.Caller, namespace: str, pods: str) -> None:
    """Nobody says how many of them there should be, so how many may be missing cannot be reckoned."""
    status = allowed(admin, budget(admin, namespace, maxUnavailable=1), 0)

    assert status["expectedPods"] == 0
    assert evict(admin, pods, "a").code == 429


def test_a_share_is_of_what_the_controller_wants(admin: calls.Caller, namespace: str) -> None:
    path = f"/apis/apps/v1/namespaces/{namespace}/replicasets"
    admin.post(path, objects.workload("ReplicaSet", "fleet", 4)).got(201)
    at = f"/api/v1/namespaces/{namespace}/pods"

    def members() -> list[str]:
        found = admin.get(at, labelSelector="app=fleet").got()["items"]
        return [each["metadata"]["name"] for each in found]

    calls.eventually(lambda: len(members()) == 4, "four pods")
    for name in members():
        status = {"phase": "Running", "conditions": [objects.condition("Ready", "True")]}
        admin.patch(f"{at}/{name}/status", {"status": status}, calls.STRATEGIC).got()

    status = allowed(admin, budget(admin, namespace, maxUnavailable="50%"), 2)

    assert (status["expectedPods"], status["desiredHealthy"]) == (4, 2)


def test_a_pod_that_is_not_ready_may_go(admin: calls.Caller, namespace: str, pods: str) -> None:
    path = budget(admin, namespace, minAvailable=2)
    allowed(admin, path, 1)
    unready = {"status": {"conditions": [objects.condition("Ready", "False")]}}
    admin.patch(f"{pods}/a/status", unready, calls.STRATEGIC).got()
    allowed(admin, path, 0)
    # Enough others are healthy, so the sick one may go although nothing may be disrupted.
    evict(admin, pods, "a").got(201)
    assert evict(admin, pods, "b").code == 429


def test_an_eviction_can_be_tried(admin: calls.Caller, pods: str) -> None:
    evict(admin, pods, "a", dryRun=["All"]).got(201)

    assert "deletionTimestamp" not in admin.get(f"{pods}/a").got()["metadata"]


def test_two_budgets_for_a_pod_are_too_many(admin: calls.Caller, namespace: str, pods: str) -> None:
    allowed(admin, budget(admin, namespace, minAvailable=0), 3)
    path = f"/apis/policy/v1/namespaces/{namespace}/poddisruptionbudgets"
    spec = {"minAvailable": 0, "selector": {"matchLabels": {"app": "fleet"}}}
    body = {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "other"}, "spec": spec}
    admin.post(path, body).got(201)

    refused = evict(admin, pods, "a")

    assert refused.code == 500
    assert "This pod has more than one PodDisruptionBudget" in refused.message


def test_a_lease_is_held_renewed_and_taken(admin: calls.Caller, namespace: str) -> None:
    path = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"
    spec = {"holderIdentity": "one", "leaseDurationSeconds": 15, "acquireTime": NOW, "renewTime": NOW}
    body = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "leader"}, "spec": spec}
    mine = admin.post(path, body).got(201)
    assert mine["spec"] == spec

    renewed = {**mine, "spec": {**spec, "renewTime": "2024-05-01T00:00:10.000000Z"}}
    admin.put(f"{path}/leader", renewed).got()

    taken = {**mine, "spec": {**spec, "holderIdentity": "two"}}
    admin.put(f"{path}/leader", taken).refused(409, "Conflict")
    admin.patch(f"{path}/leader", {"spec": {"leaseDurationSeconds": 0}}).refused(
        422, "Invalid", "spec.leaseDurationSeconds: Invalid value: 0: must be greater than 0"
    )


def test_events_are_found_by_what_they_are_about(admin: calls.Caller, namespace: str) -> None:
    path = f"/api/v1/namespaces/{namespace}/events"
    involved = {"kind": "Pod", "namespace": namespace, "name": "ship", "apiVersion": "v1"}
    event = {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"generateName": "ship."},
        "involvedObject": involved,
        "reason": "Sailed",
        "message": "the ship has sailed",
        "type": "Normal",
        "source": {"component": "pilot"},
        "firstTimestamp": "2024-05-01T00:00:00Z",
        "lastTimestamp": "2024-05-01T00:00:00Z",
        "count": 1,
    }
    made = admin.post(path, event).got(201)
    other = {**event, "involvedObject": {**involved, "name": "tug"}, "reason": "Stayed"}
    admin.post(path, other).got(201)

    found = admin.get(path, fieldSelector="involvedObject.name=ship,reason=Sailed").got()["items"]

    assert [each["metadata"]["name"] for each in found] == [made["metadata"]["name"]]
    wrong = {**event, "involvedObject": {**involved, "namespace": "elsewhere"}}
    admin.post(path, wrong).refused(422, "Invalid", "involvedObject.namespace")
