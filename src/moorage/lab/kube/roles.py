"""The roles and bindings that every cluster begins with, and the aggregation of ClusterRoles from others by label.

`bootstrap` writes what an API server and its controller manager write by themselves; they stand in data/roles.json.
`openshift` adds the few bindings without which no machine could ask for its first certificate: in a real cluster they
come as manifests with the release.
"""

from __future__ import annotations

import functools
import json
import pathlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from moorage.lab.kube import kinds, rbac, selectors, store

if TYPE_CHECKING:
    from moorage.lab.kube import api as apis

Object = dict[str, Any]

_API_VERSION = f"{rbac.GROUP}/v1"
_DATA = pathlib.Path(__file__).with_name("data") / "roles.json"

BOOTSTRAPPER_NAMESPACE = "openshift-machine-config-operator"
BOOTSTRAPPER = "node-bootstrapper"
"""The service account by whose name a new machine asks for its first certificate."""


def bootstrap(api: apis.Api) -> None:
    """Write the roles and bindings that are not there yet, and keep aggregated roles aggregated from now on."""
    for manifest in _defaults():
        meta = manifest["metadata"]
        key = (rbac.GROUP, manifest["kind"].lower() + "s")
        if api.store.get(key, (meta.get("namespace", ""), meta["name"])) is None:
            api.put(manifest)

    def written(key: kinds.Key, event: store.Event) -> None:
        if key == rbac.CLUSTER_ROLES and _matters(event):
            _aggregate(api)

    # Roles are made of roles that are aggregated themselves: what is written here has to come back here.
    api.store.on_write.append(written)
    _aggregate(api)


def openshift(api: apis.Api) -> None:
    """Let new machines ask for certificates, and nodes have theirs renewed without being asked about it."""
    for manifest in _openshift():
        api.put(manifest)


def _defaults() -> list[Object]:
    data = _data()
    roles = [_role(kind, each) for kind in ("ClusterRole", "Role") for each in data[kind]]
    return roles + [_binding(kind, each) for kind in ("ClusterRoleBinding", "RoleBinding") for each in data[kind]]


@functools.cache
def _data() -> Mapping[str, Any]:
    found: Mapping[str, Any] = json.loads(_DATA.read_text())
    return found


def _role(kind: str, told: Mapping[str, Any]) -> Object:
    found = {"apiVersion": _API_VERSION, "kind": kind, "metadata": _default_metadata(told), "rules": told["rules"]}
    return found | {key: told[key] for key in ("aggregationRule",) if key in told}


def _binding(kind: str, told: Mapping[str, Any]) -> Object:
    role = told.get("kind", "ClusterRole")
    return {
        "apiVersion": _API_VERSION,
        "kind": kind,
        "metadata": _default_metadata(told),
        "roleRef": {"apiGroup": rbac.GROUP, "kind": role, "name": told["role"]},
        "subjects": [_subject(**subject) for subject in told["subjects"]],
    }


def _default_metadata(told: Mapping[str, Any]) -> Object:
    namespace = {"namespace": told["namespace"]} if "namespace" in told else {}
    return {
        "name": told["name"],
        **namespace,
        "labels": {"kubernetes.io/bootstrapping": "rbac-defaults", **told.get("labels", {})},
        "annotations": {"rbac.authorization.kubernetes.io/autoupdate": "true"},
    }


def _subject(kind: str, name: str, namespace: str = "") -> Object:
    if kind == "ServiceAccount":
        return {"kind": kind, "name": name, "namespace": namespace}
    return {"kind": kind, "name": name, "apiGroup": rbac.GROUP}


def _openshift() -> list[Object]:
    bootstrapper = _subject("ServiceAccount", BOOTSTRAPPER, BOOTSTRAPPER_NAMESPACE)
    nodes = _subject("Group", "system:nodes")
    renewal = "system:certificates.k8s.io:certificatesigningrequests:selfnodeclient"
    bindings = (
        ("system-bootstrap-node-bootstrapper", "system:node-bootstrapper", bootstrapper),
        ("system-bootstrap-node-renewal", renewal, nodes),
    )
    return [
        {
            "apiVersion": _API_VERSION,
            "kind": "ClusterRoleBinding",
            "metadata": {"name": name},
            "roleRef": {"apiGroup": rbac.GROUP, "kind": "ClusterRole", "name": role},
            "subjects": [subject],
        }
        for name, role, subject in bindings
    ]


def _matters(event: store.Event) -> bool:
    """Whether a write can change what other roles are made of; that a role was aggregated changes its rules as well."""
    if event.before is None or event.type == store.DELETED:
        return True
    parts = ("rules", "aggregationRule")
    before, after = event.before.object, event.entry.object
    same_labels = before["metadata"].get("labels") == after["metadata"].get("labels")
    return not same_labels or any(before.get(part) != after.get(part) for part in parts)


def _aggregate(api: apis.Api) -> None:
    """Write every aggregated role whose parts have changed. Each write leads here again, until nothing changes."""
    for entry in api.store.entries(rbac.CLUSTER_ROLES):
        rule = entry.object.get("aggregationRule")
        current = api.store.get(rbac.CLUSTER_ROLES, ("", entry.object["metadata"]["name"]))
        if not rule or current is None or current.revision != entry.revision:
            continue
        rules = _gathered(api, entry.object["metadata"]["name"], rule)
        # Two roles may be made of each other; if their order counted, they would be written for ever.
        if not _same(rules, entry.object.get("rules") or []):
            api.put({**store.copied(entry), "rules": rules})


def _gathered(api: apis.Api, name: str, rule: Mapping[str, Any]) -> list[Any]:
    kind = api.kind(rbac.GROUP, "ClusterRole")
    found: list[Any] = []
    for selector in rule.get("clusterRoleSelectors") or ():
        matches = selectors.matcher(kind, selector)
        for entry in api.store.entries(rbac.CLUSTER_ROLES):
            if entry.object["metadata"]["name"] != name and matches(entry.object):
                found += [each for each in entry.object.get("rules") or () if each not in found]
    return found


def _same(some: list[Any], others: list[Any]) -> bool:
    return all(each in others for each in some) and all(each in some for each in others)
