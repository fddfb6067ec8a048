"""The built-in kinds: all there, with fields, defaults and columns as a real server has them."""

from __future__ import annotations

import copy
import subprocess
import sys
from typing import Any

import pytest

from moorage.lab.kube import builtin_kinds, kinds, schema, shapes

KINDS = {(kind.group, kind.name): kind for kind in builtin_kinds.kinds()}
TEMPLATE = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "x"}]}}
SELECTOR = {"matchLabels": {"a": "b"}}
POD_SPEC = {
    "restartPolicy": "Always",
    "dnsPolicy": "ClusterFirst",
    "terminationGracePeriodSeconds": 30,
    "securityContext": {},
    "schedulerName": "default-scheduler",
}
CONTAINER = {"resources": {}, "terminationMessagePath": "/dev/termination-log", "terminationMessagePolicy": "File"}


def completed(group: str, name: str, content: dict[str, Any]) -> dict[str, Any]:
    found = KINDS[group, name].schema
    assert found is not None
    content = copy.deepcopy(content)
    schema.apply_defaults(found, content)
    return content


def test_every_kind_has_a_name_of_its_own_and_a_schema() -> None:
    served = builtin_kinds.kinds()

    assert len({(kind.group, kind.version, kind.plural) for kind in served}) == len(served)
    for kind in served:
        assert kind.schema is not None
        assert {"apiVersion", "kind", "metadata"} <= set(kind.schema["properties"]), kind.name
        assert kind.verbs == ("create",) if kind.virtual else kind.columns, kind.name


def test_every_shape_that_is_mentioned_exists() -> None:
    for reference in shapes.shapes():
        for other in shapes.references(reference):
            assert other in shapes.shapes(), f"{reference} mentions {other}"


def test_a_shape_may_hold_itself() -> None:
    props = shapes.resolved("apiextensions.JSONSchemaProps")

    inner = props["properties"]["properties"]["additionalProperties"]

    assert inner["properties"] is props["properties"]


def test_lists_know_how_they_are_merged() -> None:
    containers = shapes.resolved("core.PodSpec")["properties"]["containers"]
    volumes = shapes.resolved("core.PodSpec")["properties"]["volumes"]

    assert containers["x-kubernetes-list-type"] == "map"
    assert containers["x-kubernetes-list-map-keys"] == ["name"]
    assert containers["x-kubernetes-patch-merge-key"] == "name"
    assert volumes["x-kubernetes-patch-strategy"] == "merge,retainKeys"


def test_the_kinds_are_read_quickly() -> None:
    """Reading the shapes is part of every start of the lab: a fraction of the second that a start may take."""
    program = (
        "import time\n"
        "from moorage.lab.kube import builtin_kinds\n"
        "begun = time.process_time()\n"
        "builtin_kinds.kinds()\n"
        "print(time.process_time() - begun)\n"
    )
    told = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)

    assert float(told.stdout) < 0.5


def test_a_deployment_gets_the_defaults_of_a_real_server() -> None:
    found = completed("apps", "Deployment", {"spec": {"selector": SELECTOR, "template": TEMPLATE}})

    assert found["status"] == {}
    assert found["spec"] == {
        "replicas": 1,
        "selector": SELECTOR,
        "template": {
            "metadata": {"labels": {"a": "b"}},
            "spec": {
                "containers": [{"name": "c", "image": "x", "imagePullPolicy": "Always", **CONTAINER}],
                **POD_SPEC,
            },
        },
        "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": "25%", "maxSurge": "25%"}},
        "revisionHistoryLimit": 10,
        "progressDeadlineSeconds": 600,
    }


@pytest.mark.parametrize(
    ("group", "name", "content", "expected"),
    [
        (
            "",
            "Service",
            {"spec": {"ports": [{"port": 80}]}},
            {
                "spec": {
                    "ports": [{"port": 80, "protocol": "TCP", "targetPort": 80}],
                    "type": "ClusterIP",
                    "sessionAffinity": "None",
                    "internalTrafficPolicy": "Cluster",
                },
                "status": {"loadBalancer": {}},
            },
        ),
        ("", "Secret", {}, {"type": "Opaque"}),
        ("", "ConfigMap", {"data": {}, "immutable": None}, {}),
        (
            "policy",
            "PodDisruptionBudget",
            {"spec": {"minAvailable": 1}},
            {
                "spec": {"minAvailable": 1},
                "status": {"disruptionsAllowed": 0, "currentHealthy": 0, "desiredHealthy": 0, "expectedPods": 0},
            },
        ),
        (
            "rbac.authorization.k8s.io",
            "ClusterRoleBinding",
            {"roleRef": {"kind": "ClusterRole", "name": "x"}, "subjects": [{"kind": "User", "name": "u"}]},
            {
                "roleRef": {"kind": "ClusterRole", "name": "x", "apiGroup": "rbac.authorization.k8s.io"},
                "subjects": [{"kind": "User", "name": "u", "apiGroup": "rbac.authorization.k8s.io"}],
            },
        ),
        ("coordination.k8s.io", "Lease", {}, {"spec": {}}),
        (
            "networking.k8s.io",
            "NetworkPolicy",
            {"spec": {}},
            {"spec": {"podSelector": {}, "policyTypes": ["Ingress"]}},
        ),
        (
            "",
            "PersistentVolumeClaim",
            {"spec": {"resources": {"requests": {"storage": "1024Mi"}}}},
            {"spec": {"resources": {"requests": {"storage": "1Gi"}}, "volumeMode": "Filesystem"}, "status": {}},
        ),
    ],
)
def test_defaults_that_clients_see(group: str, name: str, content: dict[str, Any], expected: dict[str, Any]) -> None:
    assert completed(group, name, content) == expected


@pytest.mark.parametrize(
    ("image", "policy"),
    [
        ("x", "Always"),
        ("x:latest", "Always"),
        ("x:1", "IfNotPresent"),
        ("registry:5000/x", "Always"),
        ("registry:5000/x:1", "IfNotPresent"),
        ("x@sha256:0", "IfNotPresent"),
    ],
)
def test_an_image_without_a_version_is_always_pulled(image: str, policy: str) -> None:
    pod = completed("", "Pod", {"spec": {"containers": [{"name": "c", "image": image}]}})

    assert pod["spec"]["containers"][0]["imagePullPolicy"] == policy


def test_a_pod_asks_for_what_it_is_limited_to() -> None:
    resources = {"limits": {"cpu": 1, "memory": "1Gi"}, "requests": {"cpu": "500m"}}
    pod = completed("", "Pod", {"spec": {"containers": [{"name": "c", "image": "x", "resources": resources}]}})

    assert pod["spec"]["containers"][0]["resources"] == {
        "limits": {"cpu": "1", "memory": "1Gi"},
        "requests": {"cpu": "500m", "memory": "1Gi"},
    }


def test_a_job_is_completed_but_not_the_template_of_one() -> None:
    template = {"spec": {"containers": [{"name": "c", "image": "x"}], "restartPolicy": "Never"}}
    job = completed("batch", "Job", {"spec": {"template": template}})
    cron = completed("batch", "CronJob", {"spec": {"schedule": "* * * * *", "jobTemplate": {"spec": {"template": {}}}}})

    assert (job["spec"]["completions"], job["spec"]["parallelism"], job["spec"]["backoffLimit"]) == (1, 1, 6)
    assert set(cron["spec"]["jobTemplate"]["spec"]) == {"template"}


def cells(group: str, name: str, content: dict[str, Any]) -> dict[str, object]:
    return {column.name: column.value(content) for column in KINDS[group, name].columns if column.value is not None}


def condition(kind: str, status: str = "True") -> dict[str, str]:
    return {"type": kind, "status": status}


@pytest.mark.parametrize(
    ("status", "more", "word"),
    [
        ({"phase": "Pending"}, {}, "Pending"),
        ({"phase": "Running", "containerStatuses": [{"state": {"running": {}}, "ready": True}]}, {}, "Running"),
        (
            {"phase": "Running", "containerStatuses": [{"state": {"waiting": {"reason": "CrashLoopBackOff"}}}]},
            {},
            "CrashLoopBackOff",
        ),
        ({"phase": "Failed", "containerStatuses": [{"state": {"terminated": {"exitCode": 3}}}]}, {}, "ExitCode:3"),
        ({"phase": "Failed", "reason": "Evicted"}, {}, "Evicted"),
        ({"phase": "Pending", "initContainerStatuses": [{"state": {"running": {}}}]}, {}, "Init:0/1"),
        ({"phase": "Running"}, {"deletionTimestamp": "2024-01-01T00:00:00Z"}, "Terminating"),
        ({"phase": "Succeeded"}, {"deletionTimestamp": "2024-01-01T00:00:00Z"}, "Succeeded"),
    ],
)
def test_one_word_for_a_pod(status: dict[str, Any], more: dict[str, Any], word: str) -> None:
    spec = {"containers": [{"name": "c"}]}

    assert cells("", "Pod", {"metadata": {"name": "p", **more}, "spec": spec, "status": status})["Status"] == word


def test_a_pod_is_ready_by_its_containers() -> None:
    statuses = [{"ready": True, "state": {"running": {}}, "restartCount": 2}, {"ready": False, "restartCount": 1}]
    pod = {"metadata": {}, "spec": {"containers": [{}, {}]}, "status": {"containerStatuses": statuses}}

    found = cells("", "Pod", pod)

    assert (found["Ready"], found["Restarts"], found["Node"]) == ("1/2", "3", "<none>")


@pytest.mark.parametrize(
    ("conditions", "spec", "word"),
    [
        ([], {}, "Unknown"),
        ([condition("Ready")], {}, "Ready"),
        ([condition("Ready", "Unknown")], {}, "NotReady"),
        ([condition("Ready")], {"unschedulable": True}, "Ready,SchedulingDisabled"),
    ],
)
def test_one_word_for_a_node(conditions: list[dict[str, str]], spec: dict[str, Any], word: str) -> None:
    labels = {"node-role.kubernetes.io/worker": "", "node-role.kubernetes.io/master": ""}
    node = {"metadata": {"labels": labels}, "spec": spec, "status": {"conditions": conditions}}

    found = cells("", "Node", node)

    assert (found["Status"], found["Roles"]) == (word, "master,worker")


@pytest.mark.parametrize(
    ("conditions", "certificate", "word"),
    [
        ([], "", "Pending"),
        (["Approved"], "", "Approved"),
        (["Approved"], "x", "Approved,Issued"),
        (["Denied"], "", "Denied"),
        (["Approved", "Failed"], "", "Approved,Failed"),
    ],
)
def test_how_far_a_certificate_request_is(conditions: list[str], certificate: str, word: str) -> None:
    status = {"conditions": [condition(kind) for kind in conditions], "certificate": certificate}

    assert (
        cells("certificates.k8s.io", "CertificateSigningRequest", {"spec": {}, "status": status})["Condition"] == word
    )


def test_ages_are_left_to_the_table() -> None:
    lease = {"metadata": {"creationTimestamp": "2024-01-01T00:00:00Z"}, "spec": {"holderIdentity": "me"}}

    found = cells("coordination.k8s.io", "Lease", lease)

    assert found == {"Holder": "me", "Age": "2024-01-01T00:00:00Z"}
    assert isinstance(found["Age"], kinds.Since)


def test_a_kind_without_columns_of_its_own_shows_when_it_was_made() -> None:
    names = [column.name for column in KINDS["apiextensions.k8s.io", "CustomResourceDefinition"].columns]

    assert names == ["Name", "Created At"]
