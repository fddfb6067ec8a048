"""Pods at write time: what admission gives them, what may be changed later, and how long they take to go.

Plain defaults have come from the schema before; tolerations, account and priority come to pods alone, not to templates.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from moorage.lab.kube import problem, store

if TYPE_CHECKING:
    from moorage.lab.kube import api as apis

Object = store.Object

MIRROR = "kubernetes.io/config.mirror"
_NOT_READY = "node.kubernetes.io/not-ready"
_UNREACHABLE = "node.kubernetes.io/unreachable"
_SYSTEM_PRIORITIES = {"system-node-critical": 2_000_001_000, "system-cluster-critical": 2_000_000_000}
_DEFAULT_GRACE = 30

_CHANGEABLE = (
    "pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,"
    "`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),"
    "`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)"
)


def create(api: apis.Api, content: Object) -> None:
    """A new pod is pending, and has what admission adds."""
    spec = content.setdefault("spec", {})
    if MIRROR not in (content["metadata"].get("annotations") or {}):
        _give_account(api, content)
    _give_tolerations(spec)
    _give_priority(api, content)
    content["status"] = {"phase": "Pending", "qosClass": quality(spec), **(content.get("status") or {})}


def _give_account(api: apis.Api, content: Object) -> None:
    spec, meta = content["spec"], content["metadata"]
    account = spec.get("serviceAccountName") or "default"
    spec["serviceAccountName"] = spec["serviceAccount"] = account
    # The default account of a young namespace is still being made; any other has to be there.
    if account != "default" and api.store.get(("", "serviceaccounts"), (meta["namespace"], account)) is None:
        why = f'error looking up service account {meta["namespace"]}/{account}: serviceaccount "{account}" not found'
        raise problem.forbidden("", "pods", meta["name"], why)


def _give_tolerations(spec: Object) -> None:
    tolerations = spec.setdefault("tolerations", [])
    for key in (_NOT_READY, _UNREACHABLE):
        wanted = {"key": key, "effect": "NoExecute"}
        if not any(_covers(toleration, wanted) for toleration in tolerations):
            tolerations.append({"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300})


def _covers(toleration: Mapping[str, Any], taint: Mapping[str, Any]) -> bool:
    return toleration.get("key", "") in ("", taint["key"]) and toleration.get("effect", "") in ("", taint["effect"])


def _give_priority(api: apis.Api, content: Object) -> None:
    spec = content["spec"]
    name = spec.get("priorityClassName", "")
    if name and name not in _SYSTEM_PRIORITIES:
        found = api.store.get(("scheduling.k8s.io", "priorityclasses"), ("", name))
        if found is None:
            why = f"no PriorityClass with name {name} was found"
            raise problem.forbidden("", "pods", content["metadata"]["name"], why)
        spec["priority"] = found.object.get("value", 0)
    else:
        spec["priority"] = _SYSTEM_PRIORITIES.get(name, 0)
    spec.setdefault("preemptionPolicy", "PreemptLowerPriority")


def quality(spec: Mapping[str, Any]) -> str:
    """The quality-of-service class that follows from requests and limits."""
    found = [each.get("resources") or {} for each in (*(spec.get("initContainers") or ()), *spec.get("containers", ()))]
    if not any(resources.get("requests") or resources.get("limits") for resources in found):
        return "BestEffort"
    for resources in found:
        limits, requests = resources.get("limits") or {}, resources.get("requests") or {}
        if any(resource not in limits for resource in ("cpu", "memory")):
            return "Burstable"
        if any(requests.get(resource, limit) != limit for resource, limit in limits.items()):
            return "Burstable"
    return "Guaranteed"


def update(api: apis.Api, before: Mapping[str, Any], after: Object, subresource: str | None) -> None:
    """A pod's spec is settled; its owners are not for the kubelet to change."""
    if subresource == "status":
        after.setdefault("status", {}).setdefault("qosClass", (before.get("status") or {}).get("qosClass"))
        return
    if subresource is None:
        return
    old, new = before["spec"], after.get("spec") or {}
    if old == new:
        return
    for field in ("containers", "initContainers"):
        if len(old.get(field) or ()) != len(new.get(field) or ()):
            _refuse(after, "FieldValueForbidden", "Forbidden: pod updates may not add or remove containers", field)
    if _fixed(old) != _fixed(new) or not _only_added(old.get("tolerations"), new.get("tolerations")):
        _refuse(after, "FieldValueForbidden", f"Forbidden: {_CHANGEABLE}", "")


def _refuse(content: Object, reason: str, message: str, field: str) -> None:
    cause = problem.Cause(reason, message, f"spec.{field}" if field else "spec")
    raise problem.invalid("", "Pod", content["metadata"]["name"], [cause])


def _fixed(spec: Mapping[str, Any]) -> Object:
    """The spec without what may change."""
    left = {key: value for key, value in spec.items() if key not in ("activeDeadlineSeconds", "tolerations")}
    for field in ("containers", "initContainers"):
        if field in left:
            left[field] = [{k: v for k, v in each.items() if k != "image"} for each in left[field]]
    if left.get("terminationGracePeriodSeconds", 0) < 0:
        left["terminationGracePeriodSeconds"] = 1
    return left


def _only_added(old: Iterable[Object] | None, new: Iterable[Object] | None) -> bool:
    remaining = list(new or ())
    return all(toleration in remaining for toleration in old or ())


def grace_seconds(content: Mapping[str, Any], asked: int | None) -> int:
    """How long a deleted pod may take: 0 where nothing can be running."""
    spec, status = content.get("spec") or {}, content.get("status") or {}
    if not spec.get("nodeName") or status.get("phase") in ("Failed", "Succeeded"):
        return 0
    period = spec.get("terminationGracePeriodSeconds", _DEFAULT_GRACE) if asked is None else asked
    return 1 if period < 0 else int(period)
