"""The network services as an installer hands them out: MachineConfigs, files of the bootstrap node, and manifests.

All nodes get the same few files; the roles differ in one word of the pod. Nothing here is a secret.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from importlib import resources

from moorage.assets import ignition, values
from moorage.assets import machine_configs as assets
from moorage.network import pods, settings, view

ENVIRONMENT_PATH = "/etc/moorage/network.env"
DISPATCHER = "30-moorage-resolv"

_STATIC = {
    f"/etc/NetworkManager/dispatcher.d/{DISPATCHER}": (DISPATCHER, 0o755),
    "/etc/NetworkManager/conf.d/90-moorage-network.conf": ("NetworkManager.conf", 0o644),
    "/etc/systemd/resolved.conf.d/90-moorage-network.conf": ("resolved.conf", 0o644),
}


def node_files(wanted: settings.Settings, role: str) -> list[values.IgnitionFile]:
    """The files of a node of this role."""
    return [
        values.IgnitionFile(settings.PATH, wanted.to_json().encode(), 0o644),
        values.IgnitionFile(ENVIRONMENT_PATH, _environment(wanted).encode(), 0o644),
        values.IgnitionFile(pods.PATH, pods.to_yaml(wanted, role), 0o644),
        *_static_files(),
    ]


def bootstrap_files(wanted: settings.Settings) -> list[values.IgnitionFile]:
    """The files of the bootstrap node."""
    return node_files(wanted, view.BOOTSTRAP)


def machine_config_name(role: str) -> str:
    return f"99-{role}-moorage-network"


def machine_configs(wanted: settings.Settings) -> dict[str, values.Manifest]:
    """MachineConfigs for masters and workers, by file name."""
    found: dict[str, values.Manifest] = {}
    for role in assets.ROLES:
        name = machine_config_name(role)
        files = [
            {
                "path": file.path,
                "mode": file.mode,
                "overwrite": True,
                "contents": {"source": ignition.data_url(file.contents)},
            }
            for file in node_files(wanted, role)
        ]
        manifest = assets.machine_config(name, role, storage={"files": files})
        found[f"99_openshift-machineconfig_{name}.yaml"] = manifest
    return found


def cluster_manifests(wanted: settings.Settings) -> dict[str, values.Manifest]:
    """What the agents need of the cluster: a namespace to be seen in, and to read Nodes with their kubelet's name.

    The authorizer for nodes lets a kubelet read its own Node alone (since Kubernetes 1.32).
    """
    labels = {f"pod-security.kubernetes.io/{mode}": "privileged" for mode in ("enforce", "audit", "warn")}
    namespace = {
        "name": pods.NAMESPACE,
        "labels": {**labels, "openshift.io/run-level": "1"},
        "annotations": {"openshift.io/node-selector": "", "workload.openshift.io/allowed": "management"},
    }
    role = {"name": "moorage-network-node-reader"}
    api = "rbac.authorization.k8s.io"
    return {
        "99_moorage-network_namespace.yaml": {"apiVersion": "v1", "kind": "Namespace", "metadata": namespace},
        "99_moorage-network_clusterrole.yaml": {
            "apiVersion": f"{api}/v1",
            "kind": "ClusterRole",
            "metadata": role,
            "rules": [{"apiGroups": [""], "resources": ["nodes"], "verbs": ["get", "list", "watch"]}],
        },
        "99_moorage-network_clusterrolebinding.yaml": {
            "apiVersion": f"{api}/v1",
            "kind": "ClusterRoleBinding",
            "metadata": role,
            "roleRef": {"apiGroup": api, "kind": "ClusterRole", **role},
            "subjects": [{"apiGroup": api, "kind": "Group", "name": "system:nodes"}],
        },
    }


def _environment(wanted: settings.Settings) -> str:
    """The settings that a shell script needs."""
    variables = {
        "MOORAGE_CLUSTER_DOMAIN": wanted.cluster_domain,
        "MOORAGE_MACHINE_NETWORKS": " ".join(wanted.machine_networks),
        "MOORAGE_VIPS": " ".join(wanted.vips),
    }
    return "".join(f"{name}={shlex.quote(value)}\n" for name, value in variables.items())


def _static_files() -> Iterator[values.IgnitionFile]:
    folder = resources.files("moorage.network") / "node_files"
    for path, (name, mode) in _STATIC.items():
        yield values.IgnitionFile(path, (folder / name).read_bytes(), mode)
