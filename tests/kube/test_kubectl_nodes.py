"""kubectl and nodes: cordon, drain, taint; and what it describes."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Callable, Iterator

import pytest

from tests.kube import calls, objects
from tests.kube import cluster as clusters

# Older kubectls say of a node, too, that it was evicted.
DRAINED = "node/{} (drained|evicted)"


@pytest.fixture
def node(admin: calls.Caller, unique: Callable[[str], str]) -> Iterator[str]:
    """A node that is ready, and tolerates nothing that is not bound to it by name."""
    name = unique("node")
    taint = {"key": "example.com/story", "effect": "NoSchedule"}
    admin.post("/api/v1/nodes", objects.node(name, taints=[taint])).got(201)
    yield name
    admin.delete(f"/api/v1/nodes/{name}")


def run_pod(admin: calls.Caller, namespace: str, name: str, node: str) -> str:
    """A pod that runs on a node, of a replica set which is content with it."""
    sets, path = f"/apis/apps/v1/namespaces/{namespace}/replicasets", f"/api/v1/namespaces/{namespace}/pods"
    owner = admin.post(sets, objects.workload("ReplicaSet", name, 1)).got(201)
    bound = objects.pod(name, node, labels={"app": name}, ownerReferences=[objects.owner(owner, controller=True)])
    admin.post(path, bound)
    status = {"phase": "Running", "conditions": [objects.condition("Ready", "True")]}
    admin.patch(f"{path}/{name}/status", {"status": status}, calls.STRATEGIC).got()
    return f"{path}/{name}"


def test_nodes_are_cordoned_and_uncordoned(cluster: clusters.Cluster, node: str) -> None:
    assert cluster.kubectl("cordon", node) == f"node/{node} cordoned\n"
    line = cluster.kubectl("get", "node", node).splitlines()[1].split()
    assert line[:3] == [node, "Ready,SchedulingDisabled", "worker"]
    assert cluster.json("get", "node", node)["spec"]["unschedulable"] is True

    assert cluster.kubectl("uncordon", node) == f"node/{node} uncordoned\n"
    assert cluster.kubectl("get", "node", node).splitlines()[1].split()[1] == "Ready"


def taints(cluster: clusters.Cluster, node: str) -> dict[str, str]:
    """The taints of a node: effect by key."""
    return {each["key"]: each["effect"] for each in cluster.json("get", "node", node)["spec"]["taints"]}


def test_a_node_is_tainted(cluster: clusters.Cluster, node: str) -> None:
    cluster.kubectl("taint", "node", node, "colour=red:NoExecute")
    found = taints(cluster, node)
    assert (found["colour"], found["example.com/story"]) == ("NoExecute", "NoSchedule")

    cluster.kubectl("taint", "node", node, "colour-")
    assert "colour" not in taints(cluster, node)


def test_a_node_is_drained(cluster: clusters.Cluster, admin: calls.Caller, namespace: str, node: str) -> None:
    path = run_pod(admin, namespace, "ship", node)

    said = cluster.kubectl("drain", node, "--timeout=60s")

    assert f"evicting pod {namespace}/ship" in said
    assert re.search(DRAINED.format(node), said)
    assert admin.get(path).code == 404


def test_drain_waits_for_a_budget(cluster: clusters.Cluster, admin: calls.Caller, namespace: str, node: str) -> None:
    """Given a budget that allows nothing, drain tries again until the budget is gone."""
    path = run_pod(admin, namespace, "ship", node)
    budgets = f"/apis/policy/v1/namespaces/{namespace}/poddisruptionbudgets"
    spec = {"minAvailable": 1, "selector": {"matchLabels": {"app": "ship"}}}
    body = {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "ship"}, "spec": spec}
    admin.post(budgets, body).got(201)
    calls.eventually(
        lambda: "conditions" in admin.get(f"{budgets}/ship").got().get("status", {}), "the budget reckoned"
    )

    process = subprocess.Popen(
        cluster.command("drain", node, "--timeout=60s"),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=cluster.environment(),
    )
    assert process.stdout is not None
    heard: list[str] = []
    while not any("Cannot evict pod as it would violate the pod's disruption budget" in line for line in heard):
        heard.append(process.stdout.readline())
        assert heard[-1], heard
    assert admin.get(path).code == 200
    admin.delete(f"{budgets}/ship").got()
    rest, _ = process.communicate(timeout=60)
    assert process.returncode == 0
    assert re.search(DRAINED.format(node), rest)


def test_a_pod_without_a_controller_is_not_drained_by_itself(
    cluster: clusters.Cluster, admin: calls.Caller, namespace: str, node: str
) -> None:
    admin.post(f"/api/v1/namespaces/{namespace}/pods", objects.pod("bare", node)).got(201)

    said = cluster.kubectl("drain", node, "--timeout=30s", code=1)
    assert f"{namespace}/bare" in said
    assert "use --force to override" in said
    cluster.kubectl("drain", node, "--force", "--timeout=30s")
    assert admin.get(f"/api/v1/namespaces/{namespace}/pods/bare").code == 404


def test_describe_a_node_and_its_pods(
    cluster: clusters.Cluster, admin: calls.Caller, namespace: str, node: str
) -> None:
    run_pod(admin, namespace, "ship", node)

    said = cluster.kubectl("describe", "node", node)

    assert f"Name:               {node}" in said
    assert "example.com/story:NoSchedule" in said
    assert "KubeletReady" in said
    assert "ship" in said.partition("Non-terminated Pods:")[2]


def test_describe_shows_events(cluster: clusters.Cluster, admin: calls.Caller, namespace: str) -> None:
    pod = admin.post(f"/api/v1/namespaces/{namespace}/pods", objects.pod("ship", "some-node")).got(201)
    event = {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": "ship.1"},
        "involvedObject": {
            "kind": "Pod",
            "namespace": namespace,
            "name": "ship",
            "apiVersion": "v1",
            "uid": pod["metadata"]["uid"],
        },
        "reason": "Sailed",
        "message": "the ship has sailed",
        "type": "Normal",
        "source": {"component": "pilot"},
        "firstTimestamp": "2024-05-01T00:00:00Z",
        "lastTimestamp": "2024-05-01T00:00:00Z",
        "count": 1,
    }
    admin.post(f"/api/v1/namespaces/{namespace}/events", event).got(201)

    said = cluster.kubectl("describe", "pod", "ship", "-n", namespace)
    assert "Image:" in said
    assert "the ship has sailed" in said.partition("Events:")[2]
    listed = cluster.kubectl("get", "events", "-n", namespace)
    assert [word in listed for word in ("Sailed", "pod/ship", "the ship has sailed")] == [True] * 3


def test_describe_other_kinds(
    cluster: clusters.Cluster, admin: calls.Caller, namespace: str, harbours: objects.Custom
) -> None:
    admin.post(harbours.at(namespace), harbours.object("north", {"berths": 3})).got(201)

    said = cluster.kubectl("describe", harbours.name, "north", "-n", namespace)
    assert "Kind:         Harbour" in said
    assert "Berths:  3" in said
    said = cluster.kubectl("describe", "namespace", namespace)
    assert "Status:       Active" in said
    assert "No resource quota." in said
    said = cluster.kubectl("describe", "crd", harbours.name)
    assert "Established" in said


def test_patches_of_nodes_are_strategic(cluster: clusters.Cluster, node: str) -> None:
    patch = json.dumps({"spec": {"providerID": "lab:///1"}})
    assert cluster.kubectl("patch", "node", node, "-p", patch) == f"node/{node} patched\n"
    assert cluster.json("get", "node", node)["spec"]["providerID"] == "lab:///1"
    assert "example.com/story" in taints(cluster, node)
