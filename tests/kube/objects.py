"""Objects that the stories put into a cluster, as small as the rules allow."""

from __future__ import annotations

import contextlib
import copy
import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any

from tests.kube import calls

Object = calls.Object

IMAGE = "registry.example.com/ship:1"
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


def _metadata(name: str, **more: Any) -> Object:
    return {"name": name, **more}


def namespace(name: str, **metadata: Any) -> Object:
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": _metadata(name, **metadata)}


def config_map(name: str, data: Mapping[str, str] | None = None, **metadata: Any) -> Object:
    content = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": _metadata(name, **metadata)}
    return {**content, "data": dict(data)} if data is not None else content


def secret(name: str, data: Mapping[str, str], kind: str = "Opaque", **metadata: Any) -> Object:
    head = {"apiVersion": "v1", "kind": "Secret", "metadata": _metadata(name, **metadata)}
    return {**head, "type": kind, "stringData": dict(data)}


def pod(name: str, node: str = "", **metadata: Any) -> Object:
    """A pod that is bound to a node from the start, or that no node will ever suit."""
    spec: Object = {"containers": [{"name": "ship", "image": IMAGE}], "terminationGracePeriodSeconds": 0}
    spec |= {"nodeName": node} if node else {"nodeSelector": {"no": "such-node"}}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": _metadata(name, **metadata), "spec": spec}


def node(name: str, **spec: Any) -> Object:
    """A node that reports itself ready, which nothing but a story keeps up."""
    status = {
        "capacity": {"cpu": "4", "memory": "8Gi", "pods": "110"},
        "allocatable": {"cpu": "4", "memory": "8Gi", "pods": "110"},
        "conditions": [condition("Ready", "True", "KubeletReady", "kubelet is posting ready status")],
        "addresses": [{"type": "InternalIP", "address": "192.0.2.10"}, {"type": "Hostname", "address": name}],
        "nodeInfo": {
            "architecture": "amd64",
            "bootID": "b",
            "containerRuntimeVersion": "cri-o://1.33.0",
            "kernelVersion": "5.14.0",
            "kubeProxyVersion": "",
            "kubeletVersion": "v1.33.0",
            "machineID": "m",
            "operatingSystem": "linux",
            "osImage": "CoreOS",
            "systemUUID": "u",
        },
    }
    labels = {"kubernetes.io/hostname": name, "node-role.kubernetes.io/worker": ""}
    head = {"apiVersion": "v1", "kind": "Node", "metadata": _metadata(name, labels=labels)}
    return {**head, "spec": spec, "status": status}


def condition(kind: str, status: str, reason: str = "Said", message: str = "") -> Object:
    moment = "2024-05-01T00:00:00Z"
    return {
        "type": kind,
        "status": status,
        "reason": reason,
        "message": message,
        "lastTransitionTime": moment,
    }


def workload(kind: str, name: str, replicas: int | None = 1, **spec: Any) -> Object:
    """A Deployment, ReplicaSet, StatefulSet or DaemonSet whose pods no node will ever suit."""
    labels = {"app": name}
    template = {"metadata": {"labels": labels}, "spec": pod("x")["spec"]}
    del template["spec"]["terminationGracePeriodSeconds"]
    spec = {"selector": {"matchLabels": labels}, "template": template, **spec}
    if replicas is not None:
        spec["replicas"] = replicas
    return {"apiVersion": "apps/v1", "kind": kind, "metadata": _metadata(name), "spec": spec}


def owner(owned_by: Object, **more: Any) -> Object:
    """An ownerReference to an object as the server returned it."""
    head = {"apiVersion": owned_by["apiVersion"], "kind": owned_by["kind"]}
    return {**head, "name": owned_by["metadata"]["name"], "uid": owned_by["metadata"]["uid"], **more}


SPEC: Object = {
    "type": "object",
    "properties": {
        "berths": {"type": "integer", "minimum": 0, "maximum": 100, "default": 1},
        "cranes": {"type": "integer", "minimum": 0, "maximum": 100},
        "depth": {"type": "string", "pattern": "^[0-9]+m$"},
        "size": {"type": "string", "enum": ["small", "large"]},
        "lights": {"type": "array", "items": {"type": "string"}},
        "options": {"type": "object", "additionalProperties": {"type": "string"}},
        "anything": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
    },
}


@dataclasses.dataclass(frozen=True)
class Custom:
    """A kind of a CustomResourceDefinition: Harbour, with status and scale, and columns of its own."""

    group: str
    spec: Object = dataclasses.field(default_factory=lambda: SPEC)
    changes: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    @property
    def name(self) -> str:
        return f"harbours.{self.group}"

    @property
    def path(self) -> str:
        return f"{DEFINITIONS}/{self.name}"

    def definition(self) -> Object:
        status = {
            "type": "object",
            "properties": {
                "berths": {"type": "integer"},
                "selector": {"type": "string"},
                "conditions": {
                    "type": "array",
                    "x-kubernetes-list-type": "map",
                    "x-kubernetes-list-map-keys": ["type"],
                    "items": {
                        "type": "object",
                        "required": ["type", "status"],
                        "properties": {
                            "type": {"type": "string"},
                            "status": {"type": "string"},
                            "reason": {"type": "string"},
                            "message": {"type": "string"},
                            "lastTransitionTime": {"type": "string", "format": "date-time"},
                        },
                    },
                },
            },
        }
        schema = {"type": "object", "properties": {"spec": copy.deepcopy(self.spec), "status": status}}
        version = {
            "name": "v1",
            "served": True,
            "storage": True,
            "schema": {"openAPIV3Schema": schema},
            "subresources": {
                "status": {},
                "scale": {
                    "specReplicasPath": ".spec.berths",
                    "statusReplicasPath": ".status.berths",
                    "labelSelectorPath": ".status.selector",
                },
            },
            "additionalPrinterColumns": [
                {"name": "Berths", "type": "integer", "jsonPath": ".spec.berths"},
                {"name": "Depth", "type": "string", "jsonPath": ".spec.depth", "priority": 1},
                {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
            ],
        } | dict(self.changes)
        names = {"plural": "harbours", "singular": "harbour", "kind": "Harbour", "shortNames": ["hb"]}
        names |= {"categories": ["ports"]}
        return {
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": {"name": self.name},
            "spec": {"group": self.group, "scope": "Namespaced", "names": names, "versions": [version]},
        }

    def create(self, admin: calls.Caller) -> None:
        """Put the definition into the cluster, and wait until the kind is served."""
        admin.post(DEFINITIONS, self.definition()).got(201)
        calls.eventually(lambda: self._served(admin), f"{self.name} served")

    def _served(self, admin: calls.Caller) -> bool:
        resources = admin.get(f"/apis/{self.group}/v1")
        return resources.code == 200 and admin.get(f"/apis/{self.group}/v1/harbours").code == 200

    def delete(self, admin: calls.Caller) -> None:
        admin.delete(self.path)

    @contextlib.contextmanager
    def served(self, admin: calls.Caller) -> Iterator[Custom]:
        self.create(admin)
        try:
            yield self
        finally:
            self.delete(admin)

    def at(self, namespace: str, name: str = "") -> str:
        """The path of all harbours of a namespace, or of one."""
        return f"/apis/{self.group}/v1/namespaces/{namespace}/harbours" + (f"/{name}" if name else "")

    def object(self, name: str, spec: Object | None = None, **metadata: Any) -> Object:
        head = {"apiVersion": f"{self.group}/v1", "kind": "Harbour", "metadata": _metadata(name, **metadata)}
        return {**head, "spec": {} if spec is None else spec}
