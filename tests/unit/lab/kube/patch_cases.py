"""Sequences of writes to put to an API server: what a real one answers is recorded in data/patch_cases.json.

`record_patch_cases.py` plays them against a real kube-apiserver; the tests of patches, strategic merges, managed fields
and server-side apply replay each step on our own functions, starting from what the real server had before it.
"""

from __future__ import annotations

import dataclasses
import json
from typing import Any

JSON = "application/json-patch+json"
MERGE = "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
APPLY = "application/apply-patch+yaml"

WIDGETS = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "widgets.lab.example.com"},
    "spec": {
        "group": "lab.example.com",
        "scope": "Namespaced",
        "names": {"kind": "Widget", "plural": "widgets", "singular": "widget"},
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "subresources": {
                    "status": {},
                    "scale": {"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas"},
                },
                "schema": {
                    "openAPIV3Schema": {
                        "type": "object",
                        "properties": {
                            "spec": {
                                "type": "object",
                                "properties": {
                                    "replicas": {"type": "integer"},
                                    "size": {"type": "string", "default": "small"},
                                    "tags": {
                                        "type": "array",
                                        "items": {"type": "string"},
                                        "x-kubernetes-list-type": "set",
                                    },
                                    "args": {"type": "array", "items": {"type": "string"}},
                                    "ports": {
                                        "type": "array",
                                        "x-kubernetes-list-type": "map",
                                        "x-kubernetes-list-map-keys": ["port", "protocol"],
                                        "items": {
                                            "type": "object",
                                            "required": ["port"],
                                            "properties": {
                                                "port": {"type": "integer"},
                                                "protocol": {"type": "string", "default": "TCP"},
                                                "name": {"type": "string"},
                                                "note": {"type": "string"},
                                            },
                                        },
                                    },
                                    "place": {
                                        "type": "object",
                                        "x-kubernetes-map-type": "atomic",
                                        "properties": {"rack": {"type": "string"}, "row": {"type": "string"}},
                                    },
                                    "limits": {"type": "object", "additionalProperties": {"type": "string"}},
                                    "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
                                    "amount": {"x-kubernetes-int-or-string": True},
                                },
                            },
                            "status": {
                                "type": "object",
                                "properties": {
                                    "replicas": {"type": "integer"},
                                    "phase": {"type": "string"},
                                    "conditions": {
                                        "type": "array",
                                        "x-kubernetes-list-type": "map",
                                        "x-kubernetes-list-map-keys": ["type"],
                                        "items": {
                                            "type": "object",
                                            "required": ["type"],
                                            "properties": {"type": {"type": "string"}, "status": {"type": "string"}},
                                        },
                                    },
                                },
                            },
                        },
                    }
                },
            }
        ],
    },
}

PATHS = {
    "ConfigMap": ("v1", "/api/v1/namespaces/default/configmaps"),
    "Service": ("v1", "/api/v1/namespaces/default/services"),
    "Node": ("v1", "/api/v1/nodes"),
    "Deployment": ("apps/v1", "/apis/apps/v1/namespaces/default/deployments"),
    "Lease": ("coordination.k8s.io/v1", "/apis/coordination.k8s.io/v1/namespaces/default/leases"),
    "Widget": ("lab.example.com/v1", "/apis/lab.example.com/v1/namespaces/default/widgets"),
}
"""For each kind its apiVersion and where its objects are."""


@dataclasses.dataclass(frozen=True)
class Step:
    """One request. ``body`` is sent as it is if it is a text, else as JSON; ``verb`` is create, update or patch.

    An update with a body merges it into what the server has at that moment: read, change, write.
    """

    verb: str
    body: Any
    manager: str = "tester"
    type: str = ""
    subresource: str = ""
    force: bool = False


@dataclasses.dataclass(frozen=True)
class Case:
    name: str
    kind: str
    steps: tuple[Step, ...]


def identity(case: Case) -> dict[str, Any]:
    """What every whole object of a case begins with."""
    return {"apiVersion": PATHS[case.kind][0], "kind": case.kind, "metadata": {"name": case.name}}


def sent(case: Case, step: Step, current: Any) -> Any:
    """What a step sends, given what the server has at that moment."""
    if step.verb == "create":
        return merged(identity(case), step.body)
    if step.verb == "update":
        return merged(current, step.body)
    if step.type != APPLY or not isinstance(step.body, dict):
        return step.body
    scale = {"apiVersion": "autoscaling/v1", "kind": "Scale"} if step.subresource == "scale" else {}
    return merged({**identity(case), **scale}, step.body)


def merged(into: Any, change: Any) -> Any:
    """``into`` with ``change`` over it; what is null in ``change`` goes if it was there, lists are replaced."""
    if not isinstance(into, dict) or not isinstance(change, dict):
        return change
    found = {key: merged(value, change[key]) if key in change else value for key, value in into.items()}
    found = {key: value for key, value in found.items() if key not in change or change[key] is not None}
    return found | {key: value for key, value in change.items() if key not in into}


def case(name: str, kind: str, *steps: Step) -> Case:
    return Case(name, kind, steps)


def create(body: Any, manager: str = "tester") -> Step:
    return Step("create", body, manager)


def update(body: Any, manager: str = "tester", subresource: str = "") -> Step:
    return Step("update", body, manager, subresource=subresource)


def json_patch(*operations: Any, manager: str = "tester", subresource: str = "") -> Step:
    return Step("patch", list(operations), manager, JSON, subresource)


def merge(body: Any, manager: str = "tester", subresource: str = "") -> Step:
    return Step("patch", body, manager, MERGE, subresource)


def strategic(body: Any, manager: str = "tester", subresource: str = "") -> Step:
    return Step("patch", body, manager, STRATEGIC, subresource)


def apply(body: Any, manager: str = "applier", subresource: str = "", force: bool = False) -> Step:
    return Step("patch", body, manager, APPLY, subresource, force)


def op(kind: str, path: str, value: Any = ..., source: str = "") -> dict[str, Any]:
    found: dict[str, Any] = {"op": kind, "path": path}
    if value is not ...:
        found["value"] = value
    if source:
        found["from"] = source
    return found


def data(**items: Any) -> dict[str, Any]:
    return {"data": items}


def spec(**items: Any) -> dict[str, Any]:
    return {"spec": items}


def status(**items: Any) -> dict[str, Any]:
    return {"status": items}


def labels(**items: Any) -> dict[str, Any]:
    return {"metadata": {"labels": items}}


def container(name: str, image: str = "i:1", **more: Any) -> dict[str, Any]:
    return {"name": name, "image": image, **more}


def deployment(*containers: Any, **more: Any) -> dict[str, Any]:
    template = {"metadata": {"labels": {"app": "a"}}, "spec": {"containers": list(containers)}}
    return spec(selector={"matchLabels": {"app": "a"}}, template=template, **more)


def pod(**items: Any) -> dict[str, Any]:
    return spec(template={"spec": items})


CM = data(a="1", b="2")
ONE = deployment(container("one", env=[{"name": "A", "value": "1"}, {"name": "B", "value": "2"}]), replicas=2)
TWO = deployment(container("one"), container("two", ports=[{"containerPort": 80}, {"containerPort": 81}]))
NODE = {"metadata": {"labels": {"x": "1"}}, "spec": {"taints": [{"key": "t", "effect": "NoSchedule"}]}}
TIMES = {"lastHeartbeatTime": "2024-01-01T00:00:00Z", "lastTransitionTime": "2024-01-01T00:00:00Z"}
READY = {"type": "Ready", "status": "True", "reason": "r", "message": "m", **TIMES}
DISK = {"type": "DiskPressure", "status": "False", "reason": "r", "message": "m", **TIMES}
LEASE = spec(holderIdentity="n", leaseDurationSeconds=40, renewTime="2024-01-01T00:00:00.000000Z")
WIDGET = spec(
    replicas=1,
    tags=["a", "b"],
    args=["x"],
    ports=[{"port": 1, "name": "p"}, {"port": 1, "protocol": "UDP"}],
    place={"rack": "1", "row": "2"},
    limits={"cpu": "1"},
    free={"deep": {"x": 1, "list": [1, {"a": 1}]}},
)
LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"


def last_applied(name: str, value: str) -> dict[str, Any]:
    """A ConfigMap as `kubectl apply` without --server-side writes it."""
    content = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "annotations": {}}, **data(a=value)}
    text = json.dumps(content, separators=(",", ":")) + "\n"
    return {"metadata": {"annotations": {LAST_APPLIED: text}}, **data(a=value)}
