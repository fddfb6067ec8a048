"""How kinds differ in what the verbs do to them, where no field of the object tells: found out by asking a real server.

Some kinds may be written without knowing their version, or come into being when they are replaced; some show
themselves once more when they are deleted.
"""

from __future__ import annotations

from moorage.lab.kube import kinds

_RBAC = "rbac.authorization.k8s.io"
_HOOKS = "admissionregistration.k8s.io"

# PUT of one that does not exist creates it.
_CREATED_BY_UPDATE = {
    ("", "endpoints"),
    ("", "events"),
    ("", "limitranges"),
    ("", "services"),
    ("events.k8s.io", "events"),
    (_RBAC, "clusterrolebindings"),
    (_RBAC, "clusterroles"),
    (_RBAC, "rolebindings"),
    (_RBAC, "roles"),
    ("coordination.k8s.io", "leases"),
    ("node.k8s.io", "runtimeclasses"),
}
# A PUT has to name the version it replaces.
_CONDITIONAL = {
    ("policy", "poddisruptionbudgets"),
    ("coordination.k8s.io", "leases"),
    ("apiregistration.k8s.io", "apiservices"),
    ("apiextensions.k8s.io", "customresourcedefinitions"),
    (_HOOKS, "validatingwebhookconfigurations"),
    (_HOOKS, "mutatingwebhookconfigurations"),
    (_HOOKS, "validatingadmissionpolicies"),
    (_HOOKS, "validatingadmissionpolicybindings"),
}
# The answer to their DELETE is the object and not a Status.
_SHOWN_ON_DELETION = {
    ("", "persistentvolumeclaims"),
    ("", "persistentvolumes"),
    ("", "pods"),
    ("", "resourcequotas"),
    ("", "serviceaccounts"),
    ("", "services"),
    ("storage.k8s.io", "storageclasses"),
}
# Kinds whose creator may give a status although there is a status subresource: a kubelet registers its Node whole.
_BORN_WITH_STATUS = {("", "nodes")}
# A status update of these may change labels and annotations as well.
_STATUS_WITH_METADATA = {("", "nodes"), ("", "pods"), ("", "namespaces"), ("", "persistentvolumes"), ("", "services")}


def created_by_update(kind: kinds.Kind) -> bool:
    return kind.key in _CREATED_BY_UPDATE


def conditional(kind: kinds.Kind) -> bool:
    return kind.custom or kind.key in _CONDITIONAL


def shown_on_deletion(kind: kinds.Kind) -> bool:
    return kind.key in _SHOWN_ON_DELETION


def has_status(kind: kinds.Kind) -> bool:
    """Whether status is written through its own subresource alone."""
    return "status" in kind.subresources


def born_with_status(kind: kinds.Kind) -> bool:
    return not has_status(kind) or kind.key in _BORN_WITH_STATUS


def status_with_metadata(kind: kinds.Kind) -> bool:
    return kind.key in _STATUS_WITH_METADATA


def orphans(kind: kinds.Kind) -> bool:
    """Whether dependents are left alone unless the one who deletes says otherwise: a habit of old that Jobs kept."""
    return kind.key == ("batch", "jobs")
