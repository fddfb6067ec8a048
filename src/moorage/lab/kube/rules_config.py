"""Configuration, namespaces, nodes, claims and small kinds at write time."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from moorage.lab.kube import namespaces, problem, store

if TYPE_CHECKING:
    from moorage.lab.kube import api as apis

Object = store.Object

NAME_LABEL = "kubernetes.io/metadata.name"
_NOT_READY = "node.kubernetes.io/not-ready"
_SEALED = "Forbidden: field is immutable when `immutable` is set"
_CLAIM_WORDS = (
    "spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims"
)


def _refuse(content: Mapping[str, Any], reason: str, message: str, field: str) -> None:
    raise problem.invalid(
        "", str(content["kind"]), content["metadata"]["name"], [problem.Cause(reason, message, field)]
    )


def create_event(api: apis.Api, content: Object) -> None:
    """An event is beside what it is about; what belongs to no namespace is told of in the default one."""
    wanted = (content.get("involvedObject") or content.get("regarding") or {}).get("namespace") or ""
    if content["metadata"].get("namespace", "") != (wanted or "default"):
        told = f'Invalid value: "{wanted}": does not match event.namespace'
        _refuse(content, "FieldValueInvalid", told, "involvedObject.namespace")


def create_secret(api: apis.Api, content: Object) -> None:
    """Plain strings become data."""
    _take_strings(content)
    content.setdefault("type", "Opaque")


def _take_strings(content: Object) -> None:
    strings = content.pop("stringData", None)
    if strings:
        data = content.get("data") or {}
        content["data"] = {**data, **{key: base64.b64encode(text.encode()).decode() for key, text in strings.items()}}


def update_secret(api: apis.Api, before: Mapping[str, Any], after: Object, subresource: str | None) -> None:
    """The type stays; a sealed secret stays as it is."""
    _take_strings(after)
    after.setdefault("type", before.get("type", "Opaque"))
    if after["type"] != before.get("type", "Opaque"):
        _refuse(after, "FieldValueInvalid", f'Invalid value: "{after["type"]}": field is immutable', "type")
    _check_sealed(before, after, ("data",))


def update_config_map(api: apis.Api, before: Mapping[str, Any], after: Object, subresource: str | None) -> None:
    """A sealed map stays as it is."""
    _check_sealed(before, after, ("data", "binaryData"))


def _check_sealed(before: Mapping[str, Any], after: Object, fields: tuple[str, ...]) -> None:
    if not before.get("immutable"):
        return
    if not after.get("immutable"):
        _refuse(after, "FieldValueForbidden", _SEALED, "immutable")
    for field in fields:
        if (before.get(field) or {}) != (after.get(field) or {}):
            _refuse(after, "FieldValueForbidden", _SEALED, field)


def create_namespace(api: apis.Api, content: Object) -> None:
    """A new namespace is active, and stays until its content is gone."""
    content["spec"] = {**(content.get("spec") or {}), "finalizers": [namespaces.FINALIZER]}
    content["status"] = {"phase": namespaces.ACTIVE, **(content.get("status") or {})}
    _name_label(content)


def _name_label(content: Object) -> None:
    meta = content["metadata"]
    meta["labels"] = {**(meta.get("labels") or {}), NAME_LABEL: meta["name"]}


def update_namespace(api: apis.Api, before: Mapping[str, Any], after: Object, subresource: str | None) -> None:
    """The label with the name stays."""
    _name_label(after)


def create_node(api: apis.Api, content: Object) -> None:
    """Nothing is scheduled to a node before it has been seen to be ready."""
    spec = content.setdefault("spec", {})
    taints = spec.setdefault("taints", [])
    if not any(taint.get("key") == _NOT_READY and taint.get("effect") == "NoSchedule" for taint in taints):
        taints.append({"key": _NOT_READY, "effect": "NoSchedule"})
    status = content.setdefault("status", {})
    status.setdefault("daemonEndpoints", {"kubeletEndpoint": {"Port": 0}})
    info = status.setdefault("nodeInfo", {})
    for field in (
        *("architecture", "bootID", "containerRuntimeVersion", "kernelVersion", "kubeProxyVersion"),
        *("kubeletVersion", "machineID", "operatingSystem", "osImage", "systemUUID"),
    ):
        info.setdefault(field, "")


def create_claim(api: apis.Api, content: Object) -> None:
    """A new claim waits for a volume."""
    content["status"] = {"phase": "Pending", **(content.get("status") or {})}


def update_claim(api: apis.Api, before: Mapping[str, Any], after: Object, subresource: str | None) -> None:
    """A claim's spec is settled; a bound one may ask for more room, and a volume may be bound to a pending one."""
    if subresource != "":
        return
    changeable = {"volumeName"} if not before["spec"].get("volumeName") else set()
    if (before.get("status") or {}).get("phase") == "Bound":
        changeable |= {"resources", "volumeAttributesClassName"}
    old, new = before["spec"], after["spec"]
    if any(old.get(field) != new.get(field) for field in {*old, *new} - changeable):
        _refuse(after, "FieldValueForbidden", f"Forbidden: {_CLAIM_WORDS}", "spec")


def create_volume(api: apis.Api, content: Object) -> None:
    """A new volume waits for a claim."""
    content["status"] = {"phase": "Pending", **(content.get("status") or {})}


def create_budget(api: apis.Api, content: Object) -> None:
    """Nothing may be disrupted before somebody has counted."""
    counts = dict.fromkeys(("currentHealthy", "desiredHealthy", "disruptionsAllowed", "expectedPods"), 0)
    content["status"] = {**counts, **(content.get("status") or {})}
