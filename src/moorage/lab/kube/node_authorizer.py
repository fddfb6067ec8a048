"""What a kubelet may do: look after its own Node, Lease and pods, and read what those pods refer to.

Kubelets are the many clients of a cluster, so this is judged without a search through roles: by the kind of object, its
name, and the pods that are bound to the node. What a request's attributes cannot tell (the name in a new object) is
judged when it is written, by `node_restriction`.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from moorage.lab.kube import kinds, rbac, store, users

if TYPE_CHECKING:
    from moorage.lab.kube import api as apis
    from moorage.lab.kube import authorization

Object = Mapping[str, Any]
Reference = tuple[str, str]
"""What a pod refers to in its own namespace: plural and name."""

LEASES_NAMESPACE = "kube-node-lease"
MIRROR = "kubernetes.io/config.mirror"
_PODS: kinds.Key = ("", "pods")
_VOLUMES: kinds.Key = ("", "persistentvolumes")
_ATTACHMENTS: kinds.Key = ("storage.k8s.io", "volumeattachments")

_READ = ("get", "list", "watch")
_CHANGE = ("update", "patch")
_OWN = ("get", "create", "update", "patch", "delete")

Verdict = tuple[bool, str]
_YES: Verdict = (True, "")
_NO: Verdict = (False, "")


def _may(verbs: str, group: str, *resources: str) -> rbac.Rule:
    return rbac.rule({"verbs": verbs.split(), "apiGroups": [group], "resources": list(resources)})


# What needs no look at the node's own things.
_COMMON = (
    _may("create", "authentication.k8s.io", "tokenreviews"),
    _may("create", "authorization.k8s.io", "subjectaccessreviews", "localsubjectaccessreviews"),
    _may("get list watch", "", "services"),
    _may("create update patch", "", "events"),
    _may("get", "", "endpoints"),
    _may("create get list watch", "certificates.k8s.io", "certificatesigningrequests"),
    _may("get list watch", "storage.k8s.io", "csidrivers"),
    _may("get list watch", "node.k8s.io", "runtimeclasses"),
)


def allowed(api: apis.Api, user: users.User, asked: authorization.Attributes) -> Verdict:
    """Whether a kubelet may, and if not, why; nothing is said of those who are none."""
    node = users.node_name(user)
    if not node:
        return _NO
    judge = _JUDGES.get((asked.group, asked.resource))
    if judge is not None:
        return judge(api, node, asked)
    return any(rbac.matches(rule, asked) for rule in _COMMON), ""


def _node(_api: apis.Api, node: str, asked: authorization.Attributes) -> Verdict:
    if asked.subresource == "status":
        return asked.verb in _CHANGE, ""
    if asked.subresource:
        return _NO
    if asked.verb not in _READ:
        return asked.verb in ("create", *_CHANGE), ""
    if asked.name == node:
        return _YES
    other = f"'{asked.name}'" if asked.name else "all nodes"
    return False, f"node '{node}' cannot read {other}, only its own Node object"


def _pod(api: apis.Api, node: str, asked: authorization.Attributes) -> Verdict:
    if asked.subresource:
        wanted = {"status": _CHANGE, "eviction": ("create",)}.get(asked.subresource, ())
        return asked.verb in wanted, ""
    if asked.verb in ("create", "delete"):
        return _YES
    if asked.verb not in _READ:
        return _NO
    if asked.verb != "get":
        if ("spec.nodeName", node) in asked.fields:
            return _YES
        if not asked.name:
            return False, "can only list/watch pods with spec.nodeName field selector"
    return _related((asked.namespace, asked.name) in _pods(api.store).get(node, ()), node, asked)


def _lease(_api: apis.Api, node: str, asked: authorization.Attributes) -> Verdict:
    if asked.verb not in _OWN:
        return False, "can only get, create, update, patch, or delete a node lease"
    if asked.namespace != LEASES_NAMESPACE:
        return False, f'can only access leases in the "{LEASES_NAMESPACE}" system namespace'
    if asked.verb != "create" and asked.name != node:
        return False, "can only access node lease with the same name as the requesting node"
    return _YES


def _csi_node(_api: apis.Api, node: str, asked: authorization.Attributes) -> Verdict:
    if asked.verb not in _OWN:
        return False, "can only get, create, update, patch, or delete a CSINode"
    if asked.subresource:
        return False, "cannot authorize CSINode subresources"
    if asked.verb != "create" and asked.name != node:
        return False, "can only access CSINode with the same name as the requesting node"
    return _YES


def _read(api: apis.Api, node: str, asked: authorization.Attributes) -> Verdict:
    if asked.verb not in _READ:
        return False, "can only read resources of this type"
    if asked.subresource:
        return False, "cannot read subresource"
    if not asked.namespace:
        return False, "can only read namespaced object of this type"
    return _referred(api, node, asked)


def _get(api: apis.Api, node: str, asked: authorization.Attributes) -> Verdict:
    if asked.verb != "get":
        return False, "can only get individual resources of this type"
    if asked.subresource:
        return False, "cannot get subresource"
    return _referred(api, node, asked)


def _claim(api: apis.Api, node: str, asked: authorization.Attributes) -> Verdict:
    if asked.subresource != "status":
        return _get(api, node, asked)
    if asked.verb not in _CHANGE:
        return False, "can only get/update/patch this type"
    return _referred(api, node, asked)


def _service_account(api: apis.Api, node: str, asked: authorization.Attributes) -> Verdict:
    if asked.verb == "get" and not asked.subresource:
        return False, "not allowed to get service accounts"
    if asked.verb != "create" or not asked.name:
        return False, "can only create tokens for individual service accounts"
    if asked.subresource != "token":
        return False, "can only create token subresource of serviceaccount"
    return _referred(api, node, asked)


def _referred(api: apis.Api, node: str, asked: authorization.Attributes) -> Verdict:
    """Whether a pod of the node, or a volume that such a pod uses, leads to the object."""
    if asked.resource == "volumeattachments":
        found = api.store.get(_ATTACHMENTS, ("", asked.name))
        return _related(found is not None and found.object["spec"].get("nodeName") == node, node, asked)
    namespace, wanted = asked.namespace, (asked.resource, asked.name)
    if asked.resource == "persistentvolumes":
        volume = api.store.get(_VOLUMES, ("", asked.name))
        claim = {} if volume is None else volume.object["spec"].get("claimRef") or {}
        namespace, wanted = claim.get("namespace", ""), ("persistentvolumeclaims", claim.get("name", ""))
    pods = _pods(api.store).get(node, {})
    found_any = any(where == namespace and wanted in references(pod) for (where, _), pod in pods.items())
    return _related(found_any, node, asked)


def _related(related: bool, node: str, asked: authorization.Attributes) -> Verdict:
    if not asked.name:
        return False, "No Object name found"
    return _YES if related else (False, f"no relationship found between node '{node}' and this object")


_JUDGES: dict[kinds.Key, Callable[[apis.Api, str, authorization.Attributes], Verdict]] = {
    ("", "nodes"): _node,
    ("", "pods"): _pod,
    ("", "secrets"): _read,
    ("", "configmaps"): _read,
    ("", "persistentvolumeclaims"): _claim,
    ("", "persistentvolumes"): _get,
    ("", "serviceaccounts"): _service_account,
    ("coordination.k8s.io", "leases"): _lease,
    ("storage.k8s.io", "csinodes"): _csi_node,
    _ATTACHMENTS: _get,
}


def references(pod: Object) -> set[Reference]:
    """What a pod refers to. A mirror pod refers to nothing: a kubelet makes it, and could give itself anything."""
    if MIRROR in (pod["metadata"].get("annotations") or {}):
        return set()
    return set(spec_references(pod["metadata"].get("name", ""), pod.get("spec") or {}))


def spec_references(name: str, spec: Object) -> Iterator[Reference]:
    """What the spec of a pod refers to."""
    if spec.get("serviceAccountName"):
        yield "serviceaccounts", spec["serviceAccountName"]
    for secret in spec.get("imagePullSecrets") or ():
        yield "secrets", secret.get("name", "")
    for part in ("initContainers", "containers", "ephemeralContainers"):
        for container in spec.get(part) or ():
            yield from _of_container(container)
    for volume in spec.get("volumes") or ():
        yield from _of_volume(name, volume)


def _of_container(container: Object) -> Iterator[Reference]:
    sources = [*(container.get("envFrom") or ()), *(each.get("valueFrom") or {} for each in container.get("env") or ())]
    for source in sources:
        for key, plural in _ENVIRONMENT.items():
            if source.get(key):
                yield plural, source[key].get("name", "")


def _of_volume(pod: str, volume: Object) -> Iterator[Reference]:
    for source in (volume, *((volume.get("projected") or {}).get("sources") or ())):
        if source.get("secret"):
            yield "secrets", source["secret"].get("secretName") or source["secret"].get("name", "")
        if source.get("configMap"):
            yield "configmaps", source["configMap"].get("name", "")
    if (volume.get("csi") or {}).get("nodePublishSecretRef"):
        yield "secrets", volume["csi"]["nodePublishSecretRef"].get("name", "")
    if volume.get("persistentVolumeClaim"):
        yield "persistentvolumeclaims", volume["persistentVolumeClaim"].get("claimName", "")
    if volume.get("ephemeral"):
        yield "persistentvolumeclaims", f"{pod}-{volume.get('name', '')}"


_ENVIRONMENT = {
    "secretRef": "secrets",
    "secretKeyRef": "secrets",
    "configMapRef": "configmaps",
    "configMapKeyRef": "configmaps",
}

_Pods = dict[str, dict[store.Name, Object]]
_kept: weakref.WeakKeyDictionary[store.Store, _Pods] = weakref.WeakKeyDictionary()


def _pods(over: store.Store) -> _Pods:
    """The pods of each node, kept up to date with every write."""
    pods = _kept.get(over)
    if pods is None:
        pods = _kept[over] = {}
        for name in over.names(_PODS):
            entry = over.get(_PODS, name)
            if entry is not None:
                _put(pods, name, entry.object)
        over.on_write.insert(0, _follower(pods))
    return pods


def _follower(pods: _Pods) -> Callable[[kinds.Key, store.Event], None]:
    def written(key: kinds.Key, event: store.Event) -> None:
        if key != _PODS:
            return
        if event.before is not None:
            pods.get(_home(event.before.object), {}).pop(event.name, None)
        if event.type != store.DELETED:
            _put(pods, event.name, event.entry.object)

    return written


def _home(pod: Object) -> str:
    return str((pod.get("spec") or {}).get("nodeName") or "")


def _put(pods: _Pods, name: store.Name, pod: Object) -> None:
    if _home(pod):
        pods.setdefault(_home(pod), {})[name] = pod
