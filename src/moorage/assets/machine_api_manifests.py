"""The machine controllers as part of a cluster, for platforms whose machines no part of the release looks after.

Two copies run on the control plane and one of them leads. They may do what their controllers do and no more: what they
need beyond their own namespace is named thing by thing. Everything is a pure function of what is asked for; a
platform adds it to its manifests.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, Final

from moorage.assets import values

NAMESPACE: Final = "openshift-machine-api"
NAME: Final = "moorage-machine-api"
PORT: Final = 8086
"""Where health and metrics are served."""

_PREFIX: Final = "99_moorage-machine-api"
_LABELS: Final = {"k8s-app": NAME}
_RBAC: Final = "rbac.authorization.k8s.io"
_FOLLOW: Final = ("list", "watch")
_READ: Final = ("get", *_FOLLOW)
_SIGNERS: Final = ("kubernetes.io/kube-apiserver-client-kubelet", "kubernetes.io/kubelet-serving")
#: The label under which operators that replace machines in their own way let others order that.
_REMEDIATION: Final = {"rbac.ext-remediation/aggregate-to-ext-remediation": "true"}


@dataclasses.dataclass(frozen=True)
class Wanted:
    """What differs between clusters. ``credentials`` is the Secret that the platform's calls are made with."""

    platform: str
    image: str
    credentials: str
    replicas: int = 2


def manifests(wanted: Wanted) -> dict[str, values.Manifest]:
    """All of it, by file name."""
    listed = [
        _object("v1", "ServiceAccount", NAME, NAMESPACE),
        *_cluster_roles(),
        *_roles(wanted),
        deployment(wanted),
        *_disruption(),
        *_monitoring(),
    ]
    return {f"{_PREFIX}_{number:02}-{str(each['kind']).lower()}.yaml": each for number, each in enumerate(listed)}


def deployment(wanted: Wanted) -> values.Manifest:
    """The pods."""
    return _object(
        "apps/v1",
        "Deployment",
        NAME,
        NAMESPACE,
        labels=_LABELS,
        spec={
            "replicas": wanted.replicas,
            "selector": {"matchLabels": _LABELS},
            # A single node has no room for one more beside the old one.
            "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 1, "maxSurge": 0}},
            "template": {
                "metadata": {
                    "labels": _LABELS,
                    "annotations": {
                        "target.workload.openshift.io/management": '{"effect": "PreferredDuringScheduling"}',
                        "openshift.io/required-scc": "restricted-v2",
                    },
                },
                "spec": _pod(wanted),
            },
        },
    )


def _pod(wanted: Wanted) -> dict[str, object]:
    return {
        "serviceAccountName": NAME,
        "priorityClassName": "system-node-critical",
        "nodeSelector": {"node-role.kubernetes.io/master": ""},
        "tolerations": [
            {"key": "node-role.kubernetes.io/master", "operator": "Exists", "effect": "NoSchedule"},
            {"key": "node-role.kubernetes.io/control-plane", "operator": "Exists", "effect": "NoSchedule"},
            # It is they who take this taint away.
            {"key": "node.cloudprovider.kubernetes.io/uninitialized", "operator": "Exists", "effect": "NoSchedule"},
            *(
                {"key": f"node.kubernetes.io/{key}", "operator": "Exists", "effect": "NoExecute", **_TWO_MINUTES}
                for key in ("not-ready", "unreachable")
            ),
        ],
        "affinity": {
            "podAntiAffinity": {
                "preferredDuringSchedulingIgnoredDuringExecution": [
                    {
                        "weight": 100,
                        "podAffinityTerm": {
                            "labelSelector": {"matchLabels": _LABELS},
                            "topologyKey": "kubernetes.io/hostname",
                        },
                    }
                ]
            }
        },
        "terminationGracePeriodSeconds": 60,
        "securityContext": {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}},
        "containers": [_container(wanted)],
        # Credentials are written here, so it is memory.
        "volumes": [{"name": "tmp", "emptyDir": {"medium": "Memory", "sizeLimit": "16Mi"}}],
    }


_TWO_MINUTES: Final = {"tolerationSeconds": 120}


def _container(wanted: Wanted) -> dict[str, object]:
    return {
        "name": "machine-controllers",
        "image": wanted.image,
        "imagePullPolicy": "IfNotPresent",
        "command": [
            "moorage",
            "machine-api",
            "run",
            f"--platform={wanted.platform}",
            f"--metrics-address=:{PORT}",
            "--leader-elect",
        ],
        "env": [
            {"name": "TMPDIR", "value": "/tmp"},  # noqa: S108 - of the container, in memory
            {"name": "POD_NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
            {"name": "POD_NAMESPACE", "valueFrom": {"fieldRef": {"fieldPath": "metadata.namespace"}}},
        ],
        "ports": [{"name": "metrics", "containerPort": PORT, "protocol": "TCP"}],
        "livenessProbe": _probe("/healthz", 30),
        "readinessProbe": _probe("/readyz", 5),
        "resources": {"requests": {"cpu": "20m", "memory": "128Mi"}},
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "volumeMounts": [{"name": "tmp", "mountPath": "/tmp"}],  # noqa: S108 - of the container, in memory
    }


def _probe(path: str, first: int) -> dict[str, object]:
    check = {"path": path, "port": "metrics"}
    return {"httpGet": check, "initialDelaySeconds": first, "periodSeconds": 10, "timeoutSeconds": 5}


def _cluster_roles() -> list[values.Manifest]:
    """What is not in any namespace, or in all of them."""
    remediation = f"{NAME}-remediation"
    return [
        _object(
            f"{_RBAC}/v1",
            "ClusterRole",
            NAME,
            rules=[
                _rule("", ("nodes",), (*_READ, "patch", "delete")),
                _rule("", ("nodes/status",), ("patch",)),
                _rule("", ("pods",), ("list",)),
                # The only way to end a pod: budgets are honoured by whoever answers it.
                _rule("", ("pods/eviction",), ("create",)),
                _rule("apps", ("daemonsets",), ("get",)),
                _rule("certificates.k8s.io", ("certificatesigningrequests",), _FOLLOW),
                _rule("certificates.k8s.io", ("certificatesigningrequests/approval",), ("patch",)),
                _rule("certificates.k8s.io", ("signers",), ("approve",), _SIGNERS),
                _rule("config.openshift.io", ("infrastructures",), ("get",), ("cluster",)),
            ],
        ),
        _bound("ClusterRole", NAME),
        # Who brings other ways to replace machines brings the right to order them, and marks it so.
        _object(
            f"{_RBAC}/v1",
            "ClusterRole",
            remediation,
            aggregationRule={"clusterRoleSelectors": [{"matchLabels": _REMEDIATION}]},
            rules=[],
        ),
        _bound("ClusterRole", remediation, NAMESPACE),
    ]


def _roles(wanted: Wanted) -> list[values.Manifest]:
    """What is in one namespace each."""
    group, kinds = "machine.openshift.io", ("machines", "machinesets", "machinehealthchecks")
    rules = {
        NAMESPACE: [
            _rule(group, ("machines",), (*_READ, "create", "patch", "delete")),
            _rule(group, ("machinesets",), (*_READ, "patch")),
            _rule(group, ("machinehealthchecks",), _FOLLOW),
            _rule(group, tuple(f"{each}/status" for each in kinds), ("patch",)),
            # A machine that its set waits for when it is deleted: the API wants to know that we could hold it up, too.
            _rule(group, ("machinesets/finalizers",), ("update",)),
            # User data is in Secrets that machines name; the credentials are another.
            _rule("", ("secrets",), ("get",)),
            _rule("", ("events",), ("create", "patch")),
            _rule("coordination.k8s.io", ("leases",), ("create",)),
            _rule("coordination.k8s.io", ("leases",), ("get", "update"), (NAME,)),
        ],
        "kube-system": [
            _rule("", ("secrets",), ("get",), (wanted.credentials,)),
            _rule("", ("configmaps",), ("get",), ("cluster-config-v1",)),
        ],
        "openshift-config-managed": [_rule("", ("configmaps",), ("get",), ("csr-controller-ca",))],
    }
    found: list[values.Manifest] = []
    for namespace, listed in rules.items():
        found.append(_object(f"{_RBAC}/v1", "Role", NAME, namespace, rules=listed))
        found.append(_bound("Role", NAME, namespace))
    return found


def _disruption() -> list[values.Manifest]:
    """One of them may be taken away at a time; and it is they who drain nodes, their own too.

    One that does not come up is worth nothing, and holds up no drain.
    """
    spec = {"maxUnavailable": 1, "selector": {"matchLabels": _LABELS}, "unhealthyPodEvictionPolicy": "AlwaysAllow"}
    return [_object("policy/v1", "PodDisruptionBudget", NAME, NAMESPACE, spec=spec)]


def _monitoring() -> list[values.Manifest]:
    """The way of the cluster's Prometheus to the metrics. Newer releases let nothing in here that is not named."""
    reader = f"{NAME}-prometheus"
    prometheus = {"kind": "ServiceAccount", "name": "prometheus-k8s", "namespace": "openshift-monitoring"}
    role = _object(
        f"{_RBAC}/v1",
        "Role",
        reader,
        NAMESPACE,
        rules=[
            _rule("", ("services", "endpoints", "pods"), _READ),
            _rule("discovery.k8s.io", ("endpointslices",), _READ),
        ],
    )
    service = {
        "clusterIP": "None",
        "selector": _LABELS,
        "ports": [{"name": "metrics", "port": PORT, "targetPort": "metrics", "protocol": "TCP"}],
    }
    monitor = {
        "selector": {"matchLabels": _LABELS},
        "namespaceSelector": {"matchNames": [NAMESPACE]},
        "endpoints": [{"port": "metrics", "path": "/metrics", "scheme": "http", "interval": "30s"}],
    }
    policy = {
        "podSelector": {"matchLabels": _LABELS},
        "policyTypes": ["Ingress", "Egress"],
        "ingress": [{"ports": [{"protocol": "TCP", "port": PORT}]}],
        # The platform's API, the cluster's, and every kubelet: there is no telling where they are.
        "egress": [{}],
    }
    return [
        _object("v1", "Service", NAME, NAMESPACE, labels=_LABELS, spec=service),
        role,
        _bound("Role", reader, NAMESPACE, prometheus),
        _object("monitoring.coreos.com/v1", "ServiceMonitor", NAME, NAMESPACE, labels=_LABELS, spec=monitor),
        _object("networking.k8s.io/v1", "NetworkPolicy", NAME, NAMESPACE, spec=policy),
    ]


def _rule(group: str, resources: Sequence[str], verbs: Sequence[str], names: Sequence[str] = ()) -> dict[str, object]:
    rule: dict[str, object] = {"apiGroups": [group], "resources": list(resources), "verbs": list(verbs)}
    return {**rule, "resourceNames": list(names)} if names else rule


def _bound(kind: str, role: str, namespace: str = "", to: Mapping[str, str] | None = None) -> values.Manifest:
    """Gives a role of the same name: in a namespace, or (without one) everywhere."""
    return _object(
        f"{_RBAC}/v1",
        "RoleBinding" if namespace else "ClusterRoleBinding",
        role,
        namespace,
        roleRef={"apiGroup": _RBAC, "kind": kind, "name": role},
        subjects=[dict(to or {"kind": "ServiceAccount", "name": NAME, "namespace": NAMESPACE})],
    )


def _object(
    api: str, kind: str, name: str, namespace: str = "", *, labels: Mapping[str, str] | None = None, **parts: Any
) -> values.Manifest:
    metadata: dict[str, object] = {"name": name}
    if namespace:
        metadata["namespace"] = namespace
    if labels:
        metadata["labels"] = dict(labels)
    return {"apiVersion": api, "kind": kind, "metadata": metadata, **parts}
