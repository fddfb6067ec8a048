"""How `kubectl get` shows the built-in kinds: the columns a real server puts into its tables.

A column is a path, or one of the functions in `cells`; `headings` makes them. What runs is in `workload_columns`.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

from moorage.lab.kube import cells, headings, kinds, workload_columns

Object = Mapping[str, Any]
Columns = tuple[kinds.Column, ...]

NAME = headings.NAME
AGE = headings.AGE


def of(group: str, name: str) -> Columns:
    """The columns of a built-in kind; those that have none of their own show when they were made."""
    return _all().get((group, name)) or (headings.NAME, headings.CREATED)


@functools.cache
def _all() -> dict[tuple[str, str], Columns]:
    groups: dict[str, dict[str, Columns]] = {
        "": workload_columns.of_core() | _volumes(),
        "apps": workload_columns.of_apps(),
        "autoscaling": workload_columns.of_autoscaling(),
        "batch": workload_columns.of_batch(),
        "policy": workload_columns.of_policy(),
        "rbac.authorization.k8s.io": _rbac(),
        "certificates.k8s.io": _certificates(),
        "coordination.k8s.io": {
            "Lease": (headings.NAME, headings.column("Holder", "spec.holderIdentity"), headings.AGED)
        },
        "discovery.k8s.io": _discovery(),
        "networking.k8s.io": _networking(),
        "storage.k8s.io": _storage(),
        "admissionregistration.k8s.io": _admission(),
        "apiregistration.k8s.io": _services(),
        "node.k8s.io": {"RuntimeClass": (headings.NAME, headings.column("Handler", "handler"), headings.AGED)},
        "scheduling.k8s.io": _scheduling(),
    }
    return {(group, name): columns for group, known in groups.items() for name, columns in known.items()}


def _volumes() -> dict[str, Columns]:
    return {
        "PersistentVolumeClaim": (
            headings.NAME,
            headings.column("Status", cells.claim_status),
            headings.column("Volume", "spec.volumeName"),
            headings.column("Capacity", cells.claim_capacity),
            headings.column(
                "Access Modes", lambda content: cells.access_modes(cells.at(content, "status.accessModes"))
            ),
            headings.column("StorageClass", "spec.storageClassName"),
            headings.column("VolumeAttributesClass", "spec.volumeAttributesClassName", default=cells.UNSET),
            headings.AGED,
            headings.wide("VolumeMode", "spec.volumeMode", cells.UNSET),
        ),
        "PersistentVolume": (
            headings.NAME,
            headings.column("Capacity", "spec.capacity.storage"),
            headings.column("Access Modes", lambda content: cells.access_modes(cells.at(content, "spec.accessModes"))),
            headings.column("Reclaim Policy", "spec.persistentVolumeReclaimPolicy"),
            headings.column("Status", cells.claim_status),
            headings.column("Claim", cells.volume_claim),
            headings.column("StorageClass", "spec.storageClassName"),
            headings.column("VolumeAttributesClass", "spec.volumeAttributesClassName", default=cells.UNSET),
            headings.column("Reason", "status.reason"),
            headings.AGED,
            headings.wide("VolumeMode", "spec.volumeMode", cells.UNSET),
        ),
    }


def _rbac() -> dict[str, Columns]:
    def role(content: Object) -> str:
        return f"{cells.at(content, 'roleRef.kind', '')}/{cells.at(content, 'roleRef.name', '')}"

    binding = (
        headings.NAME,
        headings.column("Role", role),
        headings.AGED,
        headings.wide("Users", cells.subjects("User")),
        headings.wide("Groups", cells.subjects("Group")),
        headings.wide("ServiceAccounts", cells.subjects("ServiceAccount")),
    )
    return {"RoleBinding": binding, "ClusterRoleBinding": binding}


def _certificates() -> dict[str, Columns]:
    return {
        "CertificateSigningRequest": (
            headings.NAME,
            headings.AGED,
            headings.column("SignerName", "spec.signerName", default=cells.NONE),
            headings.column("Requestor", "spec.username"),
            headings.column("RequestedDuration", cells.requested_duration),
            headings.column("Condition", cells.request_condition),
        )
    }


def _discovery() -> dict[str, Columns]:
    return {
        "EndpointSlice": (
            headings.NAME,
            headings.column("AddressType", "addressType"),
            headings.column("Ports", cells.slice_ports),
            headings.column("Endpoints", cells.slice_addresses),
            headings.AGED,
        )
    }


def _networking() -> dict[str, Columns]:
    def parameters(content: Object) -> str:
        found = cells.at(content, "spec.parameters", {})
        kind = ".".join(each for each in (found.get("kind"), found.get("apiGroup")) if each)
        return f"{kind}/{found['name']}" if found else cells.NONE

    return {
        "IngressClass": (
            headings.NAME,
            headings.column("Controller", "spec.controller"),
            headings.column("Parameters", parameters),
            headings.AGED,
        ),
        "Ingress": (
            headings.NAME,
            headings.column("Class", "spec.ingressClassName", default=cells.NONE),
            headings.column("Hosts", cells.ingress_hosts),
            headings.column("Address", cells.ingress_address),
            headings.column("Ports", lambda content: "80, 443" if cells.at(content, "spec.tls") else "80"),
            headings.AGED,
        ),
        "NetworkPolicy": (
            headings.NAME,
            headings.column("Pod-Selector", lambda content: cells.selector(cells.at(content, "spec.podSelector"))),
            headings.AGED,
        ),
    }


def _storage() -> dict[str, Columns]:
    def default(content: Object) -> str:
        annotations = cells.at(content, "metadata.annotations", {})
        mark = annotations.get("storageclass.kubernetes.io/is-default-class") == "true"
        return f"{content['metadata']['name']}{' (default)' if mark else ''}"

    def flag(name: str, path: str) -> kinds.Column:
        return headings.column(name, lambda content: bool(cells.at(content, path)), "boolean")

    return {
        "StorageClass": (
            kinds.Column("Name", format="name", value=default),
            headings.column("Provisioner", "provisioner"),
            headings.column("ReclaimPolicy", "reclaimPolicy", default="Delete"),
            headings.column("VolumeBindingMode", "volumeBindingMode", default="Immediate"),
            headings.column("AllowVolumeExpansion", lambda content: bool(content.get("allowVolumeExpansion"))),
            headings.AGED,
        ),
        "CSIDriver": (
            headings.NAME,
            flag("AttachRequired", "spec.attachRequired"),
            flag("PodInfoOnMount", "spec.podInfoOnMount"),
            flag("StorageCapacity", "spec.storageCapacity"),
            headings.column("TokenRequests", _audiences),
            flag("RequiresRepublish", "spec.requiresRepublish"),
            headings.column(
                "Modes", lambda content: ",".join(cells.at(content, "spec.volumeLifecycleModes", [cells.NONE]))
            ),
            headings.AGED,
        ),
        "CSINode": (headings.NAME, headings.count("Drivers", "spec.drivers", "integer"), headings.AGED),
        "VolumeAttachment": (
            headings.NAME,
            kinds.Column("Attacher", format="name", value=headings.at("spec.attacher")),
            headings.column("PV", "spec.source.persistentVolumeName"),
            headings.column("Node", "spec.nodeName"),
            flag("Attached", "status.attached"),
            headings.AGED,
        ),
    }


def _audiences(content: Object) -> str:
    found = [each.get("audience", "") for each in cells.at(content, "spec.tokenRequests", [])]
    return ",".join(found) if found else cells.UNSET


def _admission() -> dict[str, Columns]:
    webhooks = (headings.NAME, headings.count("Webhooks", "webhooks", "integer"), headings.AGED)

    def parameters(content: Object) -> str:
        kind = cells.at(content, "spec.paramKind", {})
        return f"{kind['apiVersion']}/{kind['kind']}" if kind else cells.UNSET

    def reference(content: Object) -> str:
        found = cells.at(content, "spec.paramRef", {})
        if not found:
            return cells.UNSET
        name = found.get("name") or "*"
        return f"{found['namespace']}/{name}" if found.get("namespace") else f"*/{name}"

    return {
        "MutatingWebhookConfiguration": webhooks,
        "ValidatingWebhookConfiguration": webhooks,
        "ValidatingAdmissionPolicy": (
            headings.NAME,
            headings.count("Validations", "spec.validations", "integer"),
            headings.column("ParamKind", parameters),
            headings.AGED,
        ),
        "ValidatingAdmissionPolicyBinding": (
            headings.NAME,
            headings.column("PolicyName", "spec.policyName"),
            headings.column("ParamRef", reference),
            headings.AGED,
        ),
    }


def _services() -> dict[str, Columns]:
    return {
        "APIService": (
            headings.NAME,
            headings.column("Service", cells.service_reference),
            headings.column("Available", cells.availability),
            headings.AGED,
        )
    }


def _scheduling() -> dict[str, Columns]:
    return {
        "PriorityClass": (
            headings.NAME,
            headings.number("Value", "value"),
            headings.column("Global-Default", lambda content: bool(content.get("globalDefault")), "boolean"),
            headings.AGED,
            headings.column("PreemptionPolicy", "preemptionPolicy"),
        )
    }
