"""Which nodes a pod may run on: node selectors and affinity, taints and tolerations.

These are rules about one pod and one node; `scheduling` applies them to many.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from moorage.lab.kube import labels


def chosen(spec: Mapping[str, Any], node: Mapping[str, Any]) -> bool:
    """Whether the node selector and the required affinity of a pod spec choose a node."""
    found = node["metadata"].get("labels") or {}
    if any(found.get(key) != value for key, value in (spec.get("nodeSelector") or {}).items()):
        return False
    affinity = (spec.get("affinity") or {}).get("nodeAffinity") or {}
    required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution")
    if required is None:
        return True
    return any(_term(term, node, found) for term in required.get("nodeSelectorTerms") or ())


def _term(term: Mapping[str, Any], node: Mapping[str, Any], found: Mapping[str, str]) -> bool:
    expressions, fields = term.get("matchExpressions") or (), term.get("matchFields") or ()
    if not expressions and not fields:
        # A term that asks for nothing chooses nothing.
        return False
    about = {"metadata.name": node["metadata"]["name"]}
    return all(labels.fits(each, found) for each in expressions) and all(labels.fits(each, about) for each in fields)


def tolerated(tolerations: Iterable[Mapping[str, Any]] | None, taint: Mapping[str, Any]) -> bool:
    """Whether one of the tolerations is for this taint."""
    return any(_tolerates(each, taint) for each in tolerations or ())


def _tolerates(toleration: Mapping[str, Any], taint: Mapping[str, Any]) -> bool:
    if toleration.get("effect") and toleration["effect"] != taint.get("effect"):
        return False
    key = toleration.get("key", "")
    if key and key != taint.get("key"):
        return False
    if toleration.get("operator", "Equal") == "Exists":
        return True
    return bool(key) and toleration.get("value", "") == taint.get("value", "")


def untolerated(spec: Mapping[str, Any], node: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """The first taint that keeps a pod from being sent to a node."""
    taints: Iterable[Mapping[str, Any]] = (node.get("spec") or {}).get("taints") or ()
    for taint in taints:
        if taint.get("effect") in ("NoSchedule", "NoExecute") and not tolerated(spec.get("tolerations"), taint):
            return taint
    return None


def ready(node: Mapping[str, Any]) -> bool:
    """Whether a node says that it is ready."""
    conditions = (node.get("status") or {}).get("conditions") or ()
    return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)


def host_ports(spec: Mapping[str, Any]) -> frozenset[tuple[str, int]]:
    """The ports of its node that a pod listens on: no two pods of a node can have the same."""
    ports = (port for container in spec.get("containers") or () for port in container.get("ports") or ())
    return frozenset((port.get("protocol", "TCP"), int(port["hostPort"])) for port in ports if port.get("hostPort"))
