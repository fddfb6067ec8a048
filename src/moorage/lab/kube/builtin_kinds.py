"""The kinds every cluster has before anybody defines one, with the names, verbs and subresources of a real server.

Each line of the table says what is particular about a kind; its fields come from `shapes` and its columns from
`columns`. Listed here is what the lab serves, not all that Kubernetes has: no alpha or beta version of anything.
"""

from __future__ import annotations

import functools

from moorage.lab.kube import columns, shapes
from moorage.lab.kube import kinds as kinds_

_STATUS = frozenset({"status"})
_SCALED = frozenset({"status", "scale"})
_ALL = ("all",)
_EXTENSIONS = ("api-extensions",)
_SELECTOR = kinds_.ScalePaths(selector=".status.selector")


def kinds() -> list[kinds_.Kind]:
    """All built-in kinds. They are values, made once and shared by all clusters of a process."""
    return list(_kinds())


@functools.cache
def _kinds() -> tuple[kinds_.Kind, ...]:
    return (*_core(), *_workloads(), *_access(), *_reviews(), *_network(), *_storage(), *_extensions(), *_others())


def _kind(
    group: str,
    name: str,
    plural: str,
    *short_names: str,
    version: str = "v1",
    namespaced: bool = True,
    subresources: frozenset[str] = frozenset(),
    categories: tuple[str, ...] = (),
    virtual: bool = False,
    verbs: tuple[str, ...] = kinds_.ALL_VERBS,
) -> kinds_.Kind:
    return kinds_.Kind(
        group=group,
        version=version,
        name=name,
        plural=plural,
        namespaced=namespaced,
        singular=name.lower(),
        short_names=short_names,
        categories=categories,
        subresources=subresources,
        verbs=("create",) if virtual else verbs,
        schema=shapes.schema(group, version, name),
        columns=() if virtual else columns.of(group, name),
        scale=_SELECTOR if "scale" in subresources else None,
        virtual=virtual,
    )


def _core() -> list[kinds_.Kind]:
    return [
        _kind("", "Binding", "bindings", virtual=True),
        _kind("", "ConfigMap", "configmaps", "cm"),
        _kind("", "Endpoints", "endpoints", "ep"),
        _kind("", "Event", "events", "ev"),
        _kind("", "LimitRange", "limitranges", "limits"),
        _kind(
            "",
            "Namespace",
            "namespaces",
            "ns",
            namespaced=False,
            subresources=frozenset({"finalize", "status"}),
            # Namespaces go one by one.
            verbs=tuple(verb for verb in kinds_.ALL_VERBS if verb != "deletecollection"),
        ),
        _kind("", "Node", "nodes", "no", namespaced=False, subresources=_STATUS),
        _kind("", "PersistentVolumeClaim", "persistentvolumeclaims", "pvc", subresources=_STATUS),
        _kind("", "PersistentVolume", "persistentvolumes", "pv", namespaced=False, subresources=_STATUS),
        _kind(
            "",
            "Pod",
            "pods",
            "po",
            categories=_ALL,
            subresources=frozenset({"binding", "ephemeralcontainers", "eviction", "resize", "status"}),
        ),
        _kind("", "PodTemplate", "podtemplates"),
        _kind("", "ReplicationController", "replicationcontrollers", "rc", categories=_ALL, subresources=_SCALED),
        _kind("", "ResourceQuota", "resourcequotas", "quota", subresources=_STATUS),
        _kind("", "Secret", "secrets"),
        _kind("", "ServiceAccount", "serviceaccounts", "sa", subresources=frozenset({"token"})),
        _kind("", "Service", "services", "svc", categories=_ALL, subresources=_STATUS),
    ]


def _workloads() -> list[kinds_.Kind]:
    apps, batch = "apps", "batch"
    return [
        _kind(apps, "ControllerRevision", "controllerrevisions"),
        _kind(apps, "DaemonSet", "daemonsets", "ds", categories=_ALL, subresources=_STATUS),
        _kind(apps, "Deployment", "deployments", "deploy", categories=_ALL, subresources=_SCALED),
        _kind(apps, "ReplicaSet", "replicasets", "rs", categories=_ALL, subresources=_SCALED),
        _kind(apps, "StatefulSet", "statefulsets", "sts", categories=_ALL, subresources=_SCALED),
        _kind(
            "autoscaling",
            "HorizontalPodAutoscaler",
            "horizontalpodautoscalers",
            "hpa",
            version="v2",
            categories=_ALL,
            subresources=_STATUS,
        ),
        _kind(batch, "CronJob", "cronjobs", "cj", categories=_ALL, subresources=_STATUS),
        _kind(batch, "Job", "jobs", categories=_ALL, subresources=_STATUS),
        _kind("policy", "PodDisruptionBudget", "poddisruptionbudgets", "pdb", subresources=_STATUS),
    ]


def _access() -> list[kinds_.Kind]:
    rbac = "rbac.authorization.k8s.io"
    return [
        _kind(rbac, "ClusterRoleBinding", "clusterrolebindings", namespaced=False),
        _kind(rbac, "ClusterRole", "clusterroles", namespaced=False),
        _kind(rbac, "RoleBinding", "rolebindings"),
        _kind(rbac, "Role", "roles"),
        _kind(
            "certificates.k8s.io",
            "CertificateSigningRequest",
            "certificatesigningrequests",
            "csr",
            namespaced=False,
            subresources=frozenset({"approval", "status"}),
        ),
    ]


def _reviews() -> list[kinds_.Kind]:
    who, may = "authentication.k8s.io", "authorization.k8s.io"
    return [
        _kind(who, "SelfSubjectReview", "selfsubjectreviews", namespaced=False, virtual=True),
        _kind(who, "TokenReview", "tokenreviews", namespaced=False, virtual=True),
        _kind(may, "LocalSubjectAccessReview", "localsubjectaccessreviews", virtual=True),
        _kind(may, "SelfSubjectAccessReview", "selfsubjectaccessreviews", namespaced=False, virtual=True),
        _kind(may, "SelfSubjectRulesReview", "selfsubjectrulesreviews", namespaced=False, virtual=True),
        _kind(may, "SubjectAccessReview", "subjectaccessreviews", namespaced=False, virtual=True),
    ]


def _network() -> list[kinds_.Kind]:
    networking = "networking.k8s.io"
    return [
        _kind("discovery.k8s.io", "EndpointSlice", "endpointslices"),
        _kind(networking, "IngressClass", "ingressclasses", namespaced=False),
        _kind(networking, "Ingress", "ingresses", "ing", subresources=_STATUS),
        _kind(networking, "NetworkPolicy", "networkpolicies", "netpol"),
    ]


def _storage() -> list[kinds_.Kind]:
    storage = "storage.k8s.io"
    return [
        _kind(storage, "CSIDriver", "csidrivers", namespaced=False),
        _kind(storage, "CSINode", "csinodes", namespaced=False),
        _kind(storage, "StorageClass", "storageclasses", "sc", namespaced=False),
        _kind(storage, "VolumeAttachment", "volumeattachments", namespaced=False, subresources=_STATUS),
    ]


def _extensions() -> list[kinds_.Kind]:
    admission, extended = "admissionregistration.k8s.io", functools.partial(_kind, categories=_EXTENSIONS)
    return [
        extended(admission, "MutatingWebhookConfiguration", "mutatingwebhookconfigurations", namespaced=False),
        extended(
            admission,
            "ValidatingAdmissionPolicy",
            "validatingadmissionpolicies",
            namespaced=False,
            subresources=_STATUS,
        ),
        extended(admission, "ValidatingAdmissionPolicyBinding", "validatingadmissionpolicybindings", namespaced=False),
        extended(admission, "ValidatingWebhookConfiguration", "validatingwebhookconfigurations", namespaced=False),
        extended(
            "apiextensions.k8s.io",
            "CustomResourceDefinition",
            "customresourcedefinitions",
            "crd",
            "crds",
            namespaced=False,
            subresources=_STATUS,
        ),
        extended("apiregistration.k8s.io", "APIService", "apiservices", namespaced=False, subresources=_STATUS),
    ]


def _others() -> list[kinds_.Kind]:
    return [
        _kind("coordination.k8s.io", "Lease", "leases"),
        _kind("node.k8s.io", "RuntimeClass", "runtimeclasses", namespaced=False),
        _kind("scheduling.k8s.io", "PriorityClass", "priorityclasses", "pc", namespaced=False),
    ]
