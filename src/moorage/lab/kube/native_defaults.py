"""Defaults of built-in kinds that depend on other fields: what a real server adds where a plain default does not do.

Each function completes one object in place, after the plain defaults of that object and before those of the objects
within it. `OF` says which shape it belongs to.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Object = dict[str, Any]

_RBAC = "rbac.authorization.k8s.io"


def _container(content: Object) -> None:
    if content.get("image") and not content.get("imagePullPolicy"):
        name, _, digest = content["image"].partition("@")
        tag = name.rpartition("/")[2].partition(":")[2]
        latest = tag == "latest" if tag else not digest
        content["imagePullPolicy"] = "Always" if latest else "IfNotPresent"
    for port in content.get("ports") or []:
        if isinstance(port, dict):
            port.setdefault("protocol", "TCP")


def _pod(content: Object) -> None:
    spec = content.get("spec")
    if not isinstance(spec, dict):
        return
    if spec.get("enableServiceLinks") is None:
        spec["enableServiceLinks"] = True
    for container in [*(spec.get("initContainers") or []), *(spec.get("containers") or [])]:
        resources = container.get("resources") if isinstance(container, dict) else None
        if isinstance(resources, dict) and isinstance(resources.get("limits"), dict):
            resources["requests"] = {**resources["limits"], **(resources.get("requests") or {})}


def _pod_spec(content: Object) -> None:
    account = content.get("serviceAccountName") or content.get("serviceAccount")
    if account:
        # The older name of the field is always shown too.
        content["serviceAccountName"] = content["serviceAccount"] = account
    if not content.get("hostNetwork"):
        return
    for container in [*(content.get("initContainers") or []), *(content.get("containers") or [])]:
        for port in container.get("ports") or []:
            if not port.get("hostPort") and port.get("containerPort"):
                port["hostPort"] = port["containerPort"]


def _volume(content: Object) -> None:
    if not [key for key, value in content.items() if key != "name" and value is not None]:
        content["emptyDir"] = {}


def _service(content: Object) -> None:
    kind = content.get("type")
    if content.get("sessionAffinity") == "ClientIP":
        config = content.setdefault("sessionAffinityConfig", {})
        if isinstance(config, dict):
            config.setdefault("clientIP", {"timeoutSeconds": 10800})
    if kind in ("NodePort", "LoadBalancer"):
        content.setdefault("externalTrafficPolicy", "Cluster")
    if kind in ("ClusterIP", "NodePort", "LoadBalancer"):
        content.setdefault("internalTrafficPolicy", "Cluster")
    if kind == "LoadBalancer":
        content.setdefault("allocateLoadBalancerNodePorts", True)
    for port in content.get("ports") or []:
        if isinstance(port, dict):
            port.setdefault("protocol", "TCP")
            if port.get("targetPort") in (None, "", 0) and port.get("port"):
                port["targetPort"] = port["port"]


def _rolling(content: Object) -> None:
    if content.get("type") == "RollingUpdate" and content.get("rollingUpdate") is None:
        content["rollingUpdate"] = {}


def _job(content: Object) -> None:
    # Not of every job's specification: the template within a CronJob stays as it was written.
    spec = content.get("spec")
    if not isinstance(spec, dict):
        return
    if spec.get("completions") is None and spec.get("parallelism") is None:
        spec["completions"] = 1
    failures = "Failed" if spec.get("podFailurePolicy") else "TerminatingOrFailed"
    plain = {
        "parallelism": 1,
        "backoffLimit": 6,
        "completionMode": "NonIndexed",
        "suspend": False,
        "manualSelector": False,
        "podReplacementPolicy": failures,
    }
    for key, value in plain.items():
        if spec.get(key) is None:
            spec[key] = value


def _replication_controller(content: Object) -> None:
    spec = content.get("spec") or {}
    labels = ((spec.get("template") or {}).get("metadata") or {}).get("labels")
    if labels:
        if not spec.get("selector"):
            spec["selector"] = dict(labels)
        meta = content.setdefault("metadata", {})
        if not meta.get("labels"):
            meta["labels"] = dict(labels)


def _node_spec(content: Object) -> None:
    # The list came later; who writes the one field of old means both.
    if content.get("podCIDR") and not content.get("podCIDRs"):
        content["podCIDRs"] = [content["podCIDR"]]


def _node_status(content: Object) -> None:
    if content.get("capacity") is not None and content.get("allocatable") is None:
        content["allocatable"] = dict(content["capacity"])


def _subject(content: Object) -> None:
    if content.get("kind") in ("User", "Group"):
        content.setdefault("apiGroup", _RBAC)


def _autoscaler(content: Object) -> None:
    if not content.get("metrics"):
        target = {"type": "Utilization", "averageUtilization": 80}
        content["metrics"] = [{"type": "Resource", "resource": {"name": "cpu", "target": target}}]


def _network_policy(content: Object) -> None:
    if not content.get("policyTypes"):
        content["policyTypes"] = ["Ingress", "Egress"] if content.get("egress") else ["Ingress"]


OF: dict[str, Callable[[Object], None]] = {
    "core.Container": _container,
    "core.EphemeralContainer": _container,
    "core.Pod": _pod,
    "core.PodSpec": _pod_spec,
    "core.Volume": _volume,
    "core.ServiceSpec": _service,
    "core.NodeSpec": _node_spec,
    "core.NodeStatus": _node_status,
    "core.ReplicationController": _replication_controller,
    "apps.DeploymentStrategy": _rolling,
    "apps.DaemonSetUpdateStrategy": _rolling,
    "apps.StatefulSetUpdateStrategy": _rolling,
    "autoscaling.HorizontalPodAutoscalerSpec": _autoscaler,
    "batch.Job": _job,
    "networking.NetworkPolicySpec": _network_policy,
    "rbac.Subject": _subject,
}
