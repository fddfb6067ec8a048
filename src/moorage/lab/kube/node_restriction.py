"""What a kubelet may write: its own Node, Lease and CSINode, mirror pods, the status of its pods, requests in its name.

The attributes of a request do not tell what is inside the object; here it is known, and a node that means another node,
steers work to itself by labels or takes its taints away is refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from moorage.lab.kube import certificates, kinds, node_authorizer, problem, users

if TYPE_CHECKING:
    from moorage.lab.kube import api as apis

Object = Mapping[str, Any]

_LEASES: kinds.Key = ("coordination.k8s.io", "leases")
_CSI_NODES: kinds.Key = ("storage.k8s.io", "csinodes")

# Labels that Kubernetes reserves for itself, and those among them that a kubelet may set on its own Node.
_OWN_LABELS = frozenset(
    {
        "kubernetes.io/hostname",
        "kubernetes.io/os",
        "kubernetes.io/arch",
        "beta.kubernetes.io/os",
        "beta.kubernetes.io/arch",
        "beta.kubernetes.io/instance-type",
        "node.kubernetes.io/instance-type",
        "topology.kubernetes.io/zone",
        "topology.kubernetes.io/region",
        "failure-domain.beta.kubernetes.io/zone",
        "failure-domain.beta.kubernetes.io/region",
    }
)
_OWN_DOMAINS = ("kubelet.kubernetes.io", "node.kubernetes.io")
_RESERVED_DOMAINS = ("kubernetes.io", "k8s.io")


def check_write(
    api: apis.Api, user: users.User | None, key: kinds.Key, before: Object | None, after: Object, subresource: str
) -> None:
    """Refuse a write of a kubelet that goes beyond its own node; ``before`` is None if the object is new."""
    node = "" if user is None else users.node_name(user)
    if not node:
        return
    wrong = ""
    if key == ("", "nodes"):
        wrong = _node(node, before, after, api.kubelet_label_domains)
    elif key == ("", "pods"):
        wrong = _pod(api, node, before, after, subresource)
    elif key in (_LEASES, _CSI_NODES):
        wrong = _own(node, key, after)
    elif key == certificates.REQUESTS and before is None:
        wrong = _request(node, after)
    if wrong:
        raise problem.forbidden(*key, _name(after), wrong)


def check_delete(user: users.User | None, key: kinds.Key, content: Object) -> None:
    """Refuse a kubelet to delete what is not its own."""
    node = "" if user is None else users.node_name(user)
    if not node:
        return
    wrong = ""
    if key == ("", "nodes") and _name(content) != node:
        wrong = f'node "{node}" is not allowed to modify node "{_name(content)}"'
    elif key == ("", "pods") and content.get("spec", {}).get("nodeName") != node:
        wrong = f'node "{node}" can only delete pods with spec.nodeName set to itself'
    elif key in (_LEASES, _CSI_NODES):
        wrong = _own(node, key, content)
    if wrong:
        raise problem.forbidden(*key, _name(content), wrong)


def check_eviction(user: users.User | None, pod: Object) -> None:
    """Refuse a kubelet to evict pods of other nodes."""
    node = "" if user is None else users.node_name(user)
    if node and pod.get("spec", {}).get("nodeName") != node:
        why = f"node {node} can only evict pods with spec.nodeName set to itself"
        raise problem.forbidden("", "pods", _name(pod), why)


def check_token(api: apis.Api, user: users.User | None, namespace: str, account: str, content: Object) -> None:
    """Refuse a kubelet a token that is not bound to one of its own pods."""
    node = "" if user is None else users.node_name(user)
    if not node:
        return
    reference = (content.get("spec") or {}).get("boundObjectRef") or {}
    wrong = ""
    if (reference.get("apiVersion"), reference.get("kind")) != ("v1", "Pod") or not reference.get("name"):
        wrong = "node requested token not bound to a pod"
    elif not reference.get("uid"):
        wrong = "node requested token with a pod binding without a uid"
    else:
        pod = api.store.get(("", "pods"), (namespace, reference["name"]))
        if pod is None:
            raise problem.not_found("", "pods", reference["name"])
        if pod.object["spec"].get("nodeName") != node:
            wrong = "node requested token bound to a pod scheduled on a different node"
    if wrong:
        raise problem.forbidden("", "serviceaccounts", account, wrong)


def _name(content: Object) -> str:
    return str(content["metadata"].get("name") or content["metadata"].get("generateName") or "Unknown")


def _own(node: str, key: kinds.Key, content: Object) -> str:
    if key == _LEASES and content["metadata"].get("namespace") != node_authorizer.LEASES_NAMESPACE:
        return f'can only access leases in the "{node_authorizer.LEASES_NAMESPACE}" system namespace'
    if _name(content) == node:
        return ""
    return f"can only access {'node lease' if key == _LEASES else 'CSINode'} with the same name as the requesting node"


def _node(node: str, before: Object | None, after: Object, domains: tuple[str, ...] = ()) -> str:
    if _name(after) != node:
        return f'node "{node}" is not allowed to modify node "{_name(after)}"'
    if before is None:
        labels = _forbidden_labels({}, after, domains)
        return f'node "{node}" is not allowed to set the following labels: {labels}' if labels else ""
    old, new = before.get("spec") or {}, after.get("spec") or {}
    if (old.get("taints") or []) != (new.get("taints") or []):
        return f'node "{node}" is not allowed to modify taints'
    owners = [each["metadata"].get("ownerReferences") or [] for each in (before, after)]
    if owners[0] != owners[1]:
        return f'node "{node}" is not allowed to modify ownerReferences'
    labels = _forbidden_labels(before, after, domains)
    return f"is not allowed to modify labels: {labels}" if labels else ""


def _forbidden_labels(before: Object, after: Object, domains: tuple[str, ...]) -> str:
    old, new = ((each.get("metadata") or {}).get("labels") or {} for each in (before, after))
    changed = sorted(key for key in {*old, *new} if old.get(key) != new.get(key))
    return ", ".join(key for key in changed if _forbidden_label(key) and key.rpartition("/")[0] not in domains)


def _forbidden_label(key: str) -> bool:
    domain = key.rpartition("/")[0]
    return _within(domain, _RESERVED_DOMAINS) and key not in _OWN_LABELS and not _within(domain, _OWN_DOMAINS)


def _within(domain: str, of: tuple[str, ...]) -> bool:
    return any(domain == each or domain.endswith(f".{each}") for each in of)


def _pod(api: apis.Api, node: str, before: Object | None, after: Object, subresource: str) -> str:
    if subresource == "status" and before is not None:
        if before["spec"].get("nodeName") != node:
            only = "update pod status for pods with spec.nodeName set to itself"
            return f'node "{node}" can only {only}'
        if before["metadata"].get("labels") != after["metadata"].get("labels"):
            return f'node "{node}" cannot update labels through pod status'
        return ""
    if subresource:
        return f"unexpected pod subresource \"{subresource}\", only 'status' and 'eviction' are allowed"
    if before is not None:
        return f'unexpected operation "UPDATE", node "{node}" can only create and delete mirror pods'
    return _mirror(api, node, after)


def _mirror(api: apis.Api, node: str, pod: Object) -> str:
    meta, spec = pod["metadata"], pod.get("spec") or {}
    if node_authorizer.MIRROR not in (meta.get("annotations") or {}):
        return f'pod does not have "{node_authorizer.MIRROR}" annotation, node "{node}" can only create mirror pods'
    if spec.get("nodeName") != node:
        return f'node "{node}" can only create pods with spec.nodeName set to itself'
    owners = meta.get("ownerReferences") or []
    if len(owners) > 1:
        return f'node "{node}" can only create pods with a single owner reference set to itself'
    if not owners or [owners[0].get(key) for key in ("apiVersion", "kind", "name")] != ["v1", "Node", node]:
        return f'node "{node}" can only create pods with an owner reference set to itself'
    if not owners[0].get("controller"):
        return f'node "{node}" can only create pods with a controller owner reference set to itself'
    if owners[0].get("blockOwnerDeletion"):
        return f'node "{node}" must not set blockOwnerDeletion on an owner reference'
    found = api.store.get(("", "nodes"), ("", node))
    if found is None:
        raise problem.not_found("", "nodes", node)
    uid = found.object["metadata"].get("uid")
    if owners[0].get("uid") != uid:
        return f"node {node} UID mismatch: expected {owners[0].get('uid')} got {uid}"
    return _refers(node, meta.get("name", ""), spec)


def _refers(node: str, name: str, spec: Object) -> str:
    found = {plural for plural, _ in node_authorizer.spec_references(name, spec)}
    told = {"serviceaccounts": "a service account"}
    for plural in ("serviceaccounts", "secrets", "configmaps", "persistentvolumeclaims"):
        if plural in found:
            return f'node "{node}" can not create pods that reference {told.get(plural, plural)}'
    return ""


def _request(node: str, content: Object) -> str:
    spec = content.get("spec") or {}
    if spec.get("signerName") not in (certificates.KUBELET_CLIENT, certificates.KUBELET_SERVING):
        return ""
    try:
        request = certificates.parsed(spec.get("request") or "")
    except certificates.Refused as wrong:
        return f"unable to parse csr: {wrong}"
    wanted = f"{users.NODE_PREFIX}{node}"
    return "" if certificates.common_name(request) == wanted else f"can only create a node CSR with CN={wanted}"
