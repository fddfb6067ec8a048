"""kubectl at work on objects: apply, get, watch, wait, label, annotate, patch, scale, replace, delete, describe."""

from __future__ import annotations

import json
import re
import subprocess

import pytest
import yaml

from tests.kube import calls, objects
from tests.kube import cluster as clusters


@pytest.fixture
def k(cluster: clusters.Cluster, namespace: str) -> Kubectl:
    return Kubectl(cluster, namespace)


class Kubectl:
    """kubectl in the namespace of the story."""

    def __init__(self, cluster: clusters.Cluster, namespace: str) -> None:
        self.cluster = cluster
        self.namespace = namespace

    def __call__(self, *words: str, stdin: object = None, code: int = 0) -> str:
        text = "" if stdin is None else yaml.safe_dump(stdin)
        return self.cluster.kubectl("-n", self.namespace, *words, stdin=text, code=code)

    def begun(self, *words: str) -> subprocess.Popen[str]:
        """kubectl in the background."""
        return subprocess.Popen(
            self.cluster.command("-n", self.namespace, *words),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=self.cluster.environment(),
        )

    def json(self, *words: str) -> calls.Object:
        found: calls.Object = json.loads(self("get", *words, "-o", "json"))
        return found


def test_apply_makes_changes_and_removes(k: Kubectl) -> None:
    """Client-side apply: three ways to merge, remembered in an annotation."""
    assert k("apply", "-f", "-", stdin=objects.config_map("chart", {"a": "1", "b": "2"})) == "configmap/chart created\n"
    k("patch", "configmap", "chart", "--type=merge", "-p", '{"data":{"foreign":"x"}}')

    assert k("apply", "-f", "-", stdin=objects.config_map("chart", {"a": "9"})) == "configmap/chart configured\n"
    assert k("apply", "-f", "-", stdin=objects.config_map("chart", {"a": "9"})) == "configmap/chart unchanged\n"

    found = k.json("configmap", "chart")
    assert found["data"] == {"a": "9", "foreign": "x"}
    assert "kubectl.kubernetes.io/last-applied-configuration" in found["metadata"]["annotations"]


def test_apply_of_workloads_and_custom_kinds(k: Kubectl, harbours: objects.Custom) -> None:
    ship = objects.workload("Deployment", "ship", 0)
    north = harbours.object("north", {"berths": 3, "lights": ["red"]})
    both = {"apiVersion": "v1", "kind": "List", "items": [ship, north]}
    assert k("apply", "-f", "-", stdin=both).splitlines() == [
        "deployment.apps/ship created",
        f"harbour.{harbours.group}/north created",
    ]
    assert all(line.endswith("unchanged") for line in k("apply", "-f", "-", stdin=both).splitlines())

    ship["spec"]["template"]["spec"]["containers"].append({"name": "tug", "image": objects.IMAGE})
    north["spec"] = {"berths": 4}
    assert all(line.endswith("configured") for line in k("apply", "-f", "-", stdin=both).splitlines())
    assert k.json(f"harbours.{harbours.group}", "north")["spec"] == {"berths": 4}
    names = [each["name"] for each in k.json("deployment", "ship")["spec"]["template"]["spec"]["containers"]]
    assert names == ["ship", "tug"]


def test_apply_validates(k: Kubectl) -> None:
    body = objects.workload("Deployment", "ship", 0)
    body["spec"]["sails"] = 3

    said = k("apply", "-f", "-", stdin=body, code=1)

    assert re.search(r'unknown field "(spec\.)?sails"', said)


def test_server_side_apply_and_its_conflicts(k: Kubectl) -> None:
    k.cluster.needs_kubectl(22)
    words = ("apply", "--server-side", "-f", "-")
    said = k(*words, "--field-manager=pilot", stdin=objects.config_map("chart", {"a": "1"}))
    assert said == "configmap/chart serverside-applied\n"

    refused = k(*words, "--field-manager=mate", stdin=objects.config_map("chart", {"a": "2"}), code=1)
    assert 'conflict with "pilot": .data.a' in refused
    k(*words, "--field-manager=mate", "--force-conflicts", stdin=objects.config_map("chart", {"a": "2"}))
    assert k.json("configmap", "chart")["data"] == {"a": "2"}


def test_diff_and_dry_run_show_without_doing(k: Kubectl) -> None:
    k("apply", "-f", "-", stdin=objects.config_map("chart", {"a": "1"}))

    said = k("apply", "--dry-run=server", "-f", "-", stdin=objects.config_map("chart", {"a": "2"}))
    assert said == "configmap/chart configured (server dry run)\n"
    diff = k("diff", "-f", "-", stdin=objects.config_map("chart", {"a": "2"}), code=1)
    assert re.search(r'^-  a: "1"$', diff, re.M)
    assert re.search(r'^\+  a: "2"$', diff, re.M)
    assert k.json("configmap", "chart")["data"] == {"a": "1"}


def test_create_twice_and_replace(k: Kubectl) -> None:
    assert k("create", "configmap", "chart", "--from-literal=a=1") == "configmap/chart created\n"
    said = k("create", "configmap", "chart", code=1)
    assert said.endswith('configmaps "chart" already exists\n')

    edited = k.json("configmap", "chart")
    edited["data"] = {"b": "2"}
    assert k("replace", "-f", "-", stdin=edited) == "configmap/chart replaced\n"
    assert k.json("configmap", "chart")["data"] == {"b": "2"}
    said = k("replace", "-f", "-", stdin=edited, code=1)
    assert "Error from server (Conflict)" in said
    assert "the object has been modified" in said


def test_get_shows_columns(k: Kubectl, harbours: objects.Custom) -> None:
    k("apply", "-f", "-", stdin=harbours.object("north", {"berths": 3, "depth": "12m"}))
    kind = f"hb.{harbours.group}"

    lines = k("get", f"harbours.{harbours.group}").splitlines()
    assert lines[0].split() == ["NAME", "BERTHS", "AGE"]
    assert lines[1].split()[:2] == ["north", "3"]
    wide = k("get", f"harbours.{harbours.group}", "-o", "wide").splitlines()
    assert wide[0].split() == ["NAME", "BERTHS", "DEPTH", "AGE"]
    assert k("get", kind, "-o", "name") == f"harbour.{harbours.group}/north\n"
    assert k("get", kind, "north", "-o", "jsonpath={.spec.depth}") == "12m"
    assert k("get", kind, "-l", "a=b") == f"No resources found in {k.namespace} namespace.\n"
    assert "NotFound" in k("get", kind, "south", code=1)


def test_get_of_pods_and_nodes(k: Kubectl, cluster: clusters.Cluster) -> None:
    cluster.admin.post(f"/api/v1/namespaces/{k.namespace}/pods", objects.pod("ship", "some-node")).got(201)
    status = {"phase": "Running", "conditions": [objects.condition("Ready", "True")]}
    status["containerStatuses"] = [
        {"name": "ship", "ready": True, "restartCount": 2, "image": "i", "imageID": "", "state": {"running": {}}}
    ]
    path = f"/api/v1/namespaces/{k.namespace}/pods/ship/status"
    cluster.admin.patch(path, {"status": status}, calls.STRATEGIC).got()

    lines = k("get", "pods").splitlines()

    assert lines[0].split() == ["NAME", "READY", "STATUS", "RESTARTS", "AGE"]
    assert lines[1].split()[:4] == ["ship", "1/1", "Running", "2"]


def test_get_watches(k: Kubectl) -> None:
    k("create", "configmap", "first")
    with k.begun("get", "configmap", "-w", "-o", "name") as watching:
        assert watching.stdout is not None
        try:
            while "first" not in (line := watching.stdout.readline()):
                assert line, "kubectl get -w ended"
            k("create", "configmap", "second")
            while "second" not in (line := watching.stdout.readline()):
                assert line, "kubectl get -w ended"
        finally:
            watching.kill()


def test_wait_for_a_condition(k: Kubectl, harbours: objects.Custom) -> None:
    k("apply", "-f", "-", stdin=harbours.object("north"))
    kind = f"harbours.{harbours.group}/north"

    with k.begun("wait", "--for=condition=Open", kind, "--timeout=30s") as waiting:
        status = {"status": {"conditions": [{"type": "Open", "status": "True"}]}}
        k.cluster.admin.patch(f"{harbours.at(k.namespace, 'north')}/status", status).got()
        said, _ = waiting.communicate(timeout=40)

    assert (waiting.returncode, said) == (0, f"harbour.{harbours.group}/north condition met\n")
    assert "timed out" in k("wait", "--for=condition=Closed", kind, "--timeout=1s", code=1)


def test_wait_for_the_end(k: Kubectl) -> None:
    k("apply", "-f", "-", stdin=objects.config_map("held", finalizers=["example.com/hold"]))
    k("delete", "configmap", "held", "--wait=false")
    assert "timed out" in k("wait", "--for=delete", "configmap/held", "--timeout=1s", code=1)

    with k.begun("wait", "--for=delete", "configmap/held", "--timeout=30s") as waiting:
        k("patch", "configmap", "held", "--type=merge", "-p", '{"metadata":{"finalizers":null}}')
        said, _ = waiting.communicate(timeout=40)

    # A kubectl that asks only now finds nothing to wait for, which ones before 1.24 take for a mistake.
    late = clusters.minor_version(k.cluster.program) < 24 and "no matching resources found" in said
    assert waiting.returncode == 0 or late, said


def test_wait_for_a_value(k: Kubectl, harbours: objects.Custom) -> None:
    k.cluster.needs_kubectl(23)
    k("apply", "-f", "-", stdin=harbours.object("north", {"berths": 4}))
    said = k("wait", "--for=jsonpath={.spec.berths}=4", f"harbours.{harbours.group}/north", "--timeout=10s")
    assert said.endswith("condition met\n")


def test_label_annotate_and_patch(k: Kubectl, harbours: objects.Custom) -> None:
    k("create", "configmap", "chart")
    assert k("label", "configmap", "chart", "colour=red").endswith("labeled\n")
    assert "overwrite is false" in k("label", "configmap", "chart", "colour=green", code=1)
    k("label", "configmap", "chart", "colour=green", "--overwrite")
    k("annotate", "configmap", "chart", "note=a b")
    assert k("get", "configmap", "-l", "colour=green", "-o", "name") == "configmap/chart\n"
    k("label", "configmap", "chart", "colour-")
    found = k.json("configmap", "chart")["metadata"]
    assert (found.get("labels"), found["annotations"]["note"]) == (None, "a b")

    k("patch", "configmap", "chart", "-p", '{"data":{"a":"1"}}')
    k("patch", "configmap", "chart", "--type=json", "-p", '[{"op":"add","path":"/data/b","value":"2"}]')
    k("patch", "configmap", "chart", "--type=merge", "-p", '{"data":{"a":null}}')
    assert k.json("configmap", "chart")["data"] == {"b": "2"}
    k("apply", "-f", "-", stdin=harbours.object("north"))
    k("patch", f"harbours.{harbours.group}", "north", "--type=merge", "-p", '{"spec":{"berths":8}}')
    assert k.json(f"harbours.{harbours.group}", "north")["spec"]["berths"] == 8


def test_patch_of_a_subresource(k: Kubectl, harbours: objects.Custom) -> None:
    k.cluster.needs_kubectl(24)
    k("apply", "-f", "-", stdin=harbours.object("north"))
    words = ("--subresource=status", "--type=merge", "-p", '{"status":{"berths":5}}')
    k("patch", f"harbours.{harbours.group}", "north", *words)
    assert k.json(f"harbours.{harbours.group}", "north")["status"] == {"berths": 5}


def test_scale(k: Kubectl, harbours: objects.Custom) -> None:
    k("apply", "-f", "-", stdin=objects.workload("Deployment", "ship", 0))
    k("apply", "-f", "-", stdin=harbours.object("north", {"berths": 1}))

    assert k("scale", "deployment/ship", "--replicas=2") == "deployment.apps/ship scaled\n"
    k("scale", f"harbours.{harbours.group}/north", "--replicas=6")

    assert k.json("deployment", "ship")["spec"]["replicas"] == 2
    assert k.json(f"harbours.{harbours.group}", "north")["spec"]["berths"] == 6
    assert "Expected replicas to be 5" in k("scale", "deployment/ship", "--current-replicas=5", "--replicas=1", code=1)


def test_delete_waits_until_it_is_gone(k: Kubectl) -> None:
    for name in ("a", "b", "c"):
        k("create", "configmap", name)
        k("label", "configmap", name, "fleet=yes")

    said = k("delete", "configmap", "a")
    assert re.fullmatch(r'configmap "a" deleted( from .* namespace)?\n', said)
    k("delete", "configmap", "-l", "fleet=yes")
    assert k("get", "configmap", "-l", "fleet=yes", "-o", "name") == ""
    assert "NotFound" in k("delete", "configmap", "a", code=1)
    k("delete", "configmap", "a", "--ignore-not-found")


def test_rollout(k: Kubectl) -> None:
    """A deployment is rolled out when its pods are ready; the story plays their kubelet."""
    k("apply", "-f", "-", stdin=objects.workload("Deployment", "ship", 2))
    admin, pods = k.cluster.admin, f"/api/v1/namespaces/{k.namespace}/pods"

    def members() -> list[str]:
        found = admin.get(pods, labelSelector="app=ship").got()["items"]
        return [each["metadata"]["name"] for each in found]

    calls.eventually(lambda: len(members()) == 2, "two pods")
    status = {"phase": "Running", "conditions": [objects.condition("Ready", "True")]}
    for name in members():
        admin.patch(f"{pods}/{name}/status", {"status": status}, calls.STRATEGIC).got()

    said = k("rollout", "status", "deployment/ship", "--timeout=30s")

    assert 'deployment "ship" successfully rolled out' in said
    assert k("get", "deployment", "ship").splitlines()[1].split()[:4] == ["ship", "2/2", "2", "2"]
    k("wait", "--for=condition=Available", "deployment/ship", "--timeout=30s")
