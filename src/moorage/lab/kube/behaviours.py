"""What single kinds do at write time: fields that must not change, addresses that are given out, what admission adds.

The verbs call these hooks for every kind; most kinds have nothing particular and pass through. `prepare_create` is
called when the server has filled in the metadata and the schema's defaults, `prepare_update` when it has settled which
parts a write may touch; both work on the verbs' private copy. The rules themselves are in `rules_pods`,
`rules_workloads`, `rules_services` and `rules_config`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from moorage.lab.kube import (
    crd_rules,
    kinds,
    namespaces,
    problem,
    rules_config,
    rules_pods,
    rules_services,
    rules_workloads,
    store,
)

if TYPE_CHECKING:
    from moorage.lab.kube import api as apis
    from moorage.lab.kube import users

Object = store.Object
Create = Callable[["apis.Api", Object], None]
Update = Callable[["apis.Api", Mapping[str, object], Object, "str | None"], None]

_APPS = "apps"

_CREATE: Mapping[kinds.Key, Create] = {
    ("", "pods"): rules_pods.create,
    ("", "events"): rules_config.create_event,
    ("", "secrets"): rules_config.create_secret,
    ("", "namespaces"): rules_config.create_namespace,
    ("", "nodes"): rules_config.create_node,
    ("events.k8s.io", "events"): rules_config.create_event,
    ("", "persistentvolumeclaims"): rules_config.create_claim,
    ("", "persistentvolumes"): rules_config.create_volume,
    ("", "services"): rules_services.create,
    (_APPS, "deployments"): rules_workloads.create,
    (_APPS, "replicasets"): rules_workloads.create,
    (_APPS, "daemonsets"): rules_workloads.create,
    (_APPS, "statefulsets"): rules_workloads.create,
    ("policy", "poddisruptionbudgets"): rules_config.create_budget,
    ("apiextensions.k8s.io", "customresourcedefinitions"): crd_rules.create,
}

_UPDATE: Mapping[kinds.Key, Update] = {
    ("", "pods"): rules_pods.update,
    ("", "secrets"): rules_config.update_secret,
    ("", "configmaps"): rules_config.update_config_map,
    ("", "namespaces"): rules_config.update_namespace,
    ("", "persistentvolumeclaims"): rules_config.update_claim,
    ("", "services"): rules_services.update,
    (_APPS, "deployments"): rules_workloads.update,
    (_APPS, "replicasets"): rules_workloads.update,
    (_APPS, "daemonsets"): rules_workloads.update,
    (_APPS, "statefulsets"): rules_workloads.update,
    ("apiextensions.k8s.io", "customresourcedefinitions"): crd_rules.update,
}

# Built-in kinds that count the versions of their spec in metadata.generation; custom ones all do.
_COUNTED: frozenset[kinds.Key] = frozenset(
    {
        ("", "pods"),
        ("", "podtemplates"),
        ("", "replicationcontrollers"),
        *((_APPS, plural) for plural in ("deployments", "replicasets", "daemonsets", "statefulsets")),
        ("batch", "jobs"),
        ("batch", "cronjobs"),
        ("policy", "poddisruptionbudgets"),
        ("networking.k8s.io", "ingresses"),
        ("networking.k8s.io", "ingressclasses"),
        ("networking.k8s.io", "networkpolicies"),
        ("scheduling.k8s.io", "priorityclasses"),
        ("apiextensions.k8s.io", "customresourcedefinitions"),
        ("admissionregistration.k8s.io", "validatingwebhookconfigurations"),
        ("admissionregistration.k8s.io", "mutatingwebhookconfigurations"),
        ("admissionregistration.k8s.io", "validatingadmissionpolicies"),
        ("admissionregistration.k8s.io", "validatingadmissionpolicybindings"),
    }
)


def prepare_create(api: apis.Api, kind: kinds.Kind, content: Object, user: users.User | None) -> None:
    """Give a new object what its kind gets by default, or refuse it."""
    if kind.namespaced and not kind.virtual:
        namespaces.check_open(api, kind, content)
    rule = None if kind.custom else _CREATE.get(kind.key)
    if rule is not None:
        rule(api, content)


def prepare_update(
    api: apis.Api, kind: kinds.Kind, before: Mapping[str, object], after: Object, subresource: str | None
) -> None:
    """Refuse what must not change, and keep what belongs to the server. Subresource None: the lab itself writes."""
    rule = None if kind.custom else _UPDATE.get(kind.key)
    if rule is not None:
        rule(api, before, after, subresource)


def check_delete(kind: kinds.Kind, name: str) -> None:
    """Refuse to delete what every cluster needs."""
    if kind.key == ("", "namespaces") and name in namespaces.PROTECTED:
        raise problem.forbidden("", "namespaces", name, "this namespace may not be deleted")


def counts_generations(kind: kinds.Kind) -> bool:
    """Whether objects of this kind have a metadata.generation."""
    return kind.custom or kind.key in _COUNTED


def grace_seconds(kind: kinds.Kind, content: Mapping[str, object], asked: int | None) -> int:
    """How long an object that was asked to go may take; 0 for all but pods that may be running on a node."""
    return rules_pods.grace_seconds(content, asked) if kind.key == ("", "pods") else 0


def mark_deleted(kind: kinds.Kind, content: Object) -> None:
    """Show, beside the deletionTimestamp, that an object is going."""
    if kind.key == ("", "namespaces"):
        content.setdefault("status", {})["phase"] = namespaces.TERMINATING


def held(kind: kinds.Kind, content: Mapping[str, object]) -> bool:
    """Whether an object that was deleted has to stay for the finalizers in its spec (metadata's are for all kinds)."""
    return kind.key == ("", "namespaces") and namespaces.held(content)
