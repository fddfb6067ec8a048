"""What the payload's operators render on the bootstrap node before any API is there.

Each render reads certificates and manifests from the disk, refuses what it cannot use, and adds manifests of its own:
the namespaces and kinds of the payload, and the signers with which the cluster will later make certificates itself.
"""

from __future__ import annotations

import base64
import dataclasses
import json
from collections.abc import Mapping, Sequence
from typing import Any

from moorage.lab.nodes import credentials, facts, payload
from moorage.lab.nodes import files as files_

Object = dict[str, Any]

ROOT = facts.ROOT
TLS = f"{ROOT}/tls"
AUTH = f"{ROOT}/auth"
MANIFESTS = f"{ROOT}/manifests"

KUBE_APISERVER_OPERATOR = "openshift-kube-apiserver-operator"
KUBE_CONTROLLER_MANAGER_OPERATOR = "openshift-kube-controller-manager-operator"
MACHINE_CONFIG_OPERATOR = "openshift-machine-config-operator"
CONFIG = "openshift-config"
CONFIG_MANAGED = "openshift-config-managed"
NODE_BOOTSTRAPPER = "node-bootstrapper"

SERVING = (
    "kube-apiserver-service-network-server",
    "kube-apiserver-localhost-server",
    "kube-apiserver-lb-server",
    "kube-apiserver-internal-lb-server",
)
"""The API server's certificates on the bootstrap node; the first is shown to whoever names no name of the others."""

_SIGNERS = {
    "kube-apiserver-localhost-signer": "localhost-serving-signer",
    "kube-apiserver-service-network-signer": "service-network-serving-signer",
    "kube-apiserver-lb-signer": "loadbalancer-serving-signer",
    "kube-apiserver-to-kubelet-signer": "kube-apiserver-to-kubelet-signer",
    "kube-control-plane-signer": "kube-control-plane-signer",
    "aggregator-signer": "aggregator-client-signer",
}

NAMESPACES = (
    "openshift",
    "openshift-apiserver",
    "openshift-apiserver-operator",
    "openshift-authentication",
    "openshift-authentication-operator",
    "openshift-cloud-credential-operator",
    "openshift-cluster-machine-approver",
    "openshift-cluster-node-tuning-operator",
    "openshift-cluster-storage-operator",
    "openshift-cluster-version",
    CONFIG,
    CONFIG_MANAGED,
    "openshift-config-operator",
    "openshift-console",
    "openshift-console-operator",
    "openshift-controller-manager",
    "openshift-dns",
    "openshift-dns-operator",
    "openshift-etcd",
    "openshift-etcd-operator",
    "openshift-image-registry",
    "openshift-infra",
    "openshift-ingress",
    "openshift-ingress-operator",
    "openshift-insights",
    "openshift-kube-apiserver",
    KUBE_APISERVER_OPERATOR,
    "openshift-kube-controller-manager",
    KUBE_CONTROLLER_MANAGER_OPERATOR,
    "openshift-kube-scheduler",
    "openshift-kube-scheduler-operator",
    "openshift-machine-api",
    MACHINE_CONFIG_OPERATOR,
    "openshift-marketplace",
    "openshift-monitoring",
    "openshift-multus",
    "openshift-network-operator",
    "openshift-node",
    "openshift-oauth-apiserver",
    "openshift-operator-lifecycle-manager",
    "openshift-ovn-kubernetes",
    "openshift-service-ca",
    "openshift-service-ca-operator",
)
# One object each, named cluster, that nobody has to write for the cluster to work.
_SETTINGS = ("APIServer", "Authentication", "Build", "Console", "Image", "Node", "OAuth", "OperatorHub", "Project")
_CONTROL_PLANE = ("Etcd", "KubeAPIServer", "KubeControllerManager", "KubeScheduler")


@dataclasses.dataclass(frozen=True)
class ControlPlane:
    """What the bootstrap's own control plane runs with."""

    serving: tuple[credentials.Pair, ...]
    client_authorities: str
    server_authorities: str
    csr_signer: credentials.Pair
    token_keys: tuple[str, ...]
    token_signing_key: str
    admin_kubeconfig: str


def pair(disk: files_.Files, name: str) -> credentials.Pair:
    """The certificate ``name`` and its key from tls/."""
    base = f"{TLS}/{name}"
    return credentials.pair(disk.read(f"{base}.crt"), disk.read(f"{base}.key"), base)


def authorities(disk: files_.Files, name: str) -> str:
    """A bundle from tls/."""
    path = f"{TLS}/{name}.crt"
    content = disk.read(path)
    credentials.certificates(content, path)
    return content.decode()


def control_plane(disk: files_.Files) -> ControlPlane:
    """Read what the static pods of the bootstrap's control plane mount."""
    keys = tuple(_public_key(disk, name) for name in ("service-account", "bound-service-account-signing-key"))
    signing = f"{TLS}/bound-service-account-signing-key.key"
    credentials.private_key(disk.read(signing), signing)
    return ControlPlane(
        serving=tuple(pair(disk, name) for name in SERVING),
        client_authorities=authorities(disk, "kube-apiserver-complete-client-ca-bundle"),
        server_authorities=authorities(disk, "kube-apiserver-complete-server-ca-bundle"),
        csr_signer=pair(disk, "kubelet-signer"),
        token_keys=keys,
        token_signing_key=disk.read(signing).decode(),
        admin_kubeconfig=disk.read(f"{AUTH}/kubeconfig").decode(),
    )


def expired(disk: files_.Files) -> list[str]:
    """A line about every certificate in tls/ whose time is over or has not come."""
    found = []
    for name, content in disk.below(TLS).items():
        if name.endswith(".crt"):
            try:
                why = credentials.expiry(content)
            except credentials.Unusable:
                continue  # whoever reads it will say so
            if why:
                found.append(f"{TLS}/{name}: x509: certificate has expired or is not yet valid: {why}")
    return found


def render_api(disk: files_.Files) -> None:
    """The kinds of the payload, and the namespaces that its parts live in."""
    facts.manifest(disk, facts.INFRASTRUCTURE)
    facts.manifest(disk, f"{MANIFESTS}/99_feature-gate.yaml")
    for definition in payload.definitions():
        _add(disk, f"0000_05_{definition['metadata']['name']}.crd.yaml", definition)
    for name in NAMESPACES:
        _add(disk, f"0000_00_namespace-{name}.yaml", _object("v1", "Namespace", name))


def render_config(disk: files_.Files) -> None:
    """The settings that nobody has written, with their defaults."""
    facts.read(disk)
    for kind in _SETTINGS:
        content = _object("config.openshift.io/v1", kind, "cluster", spec={})
        _add(disk, f"0000_10_config-operator_02_{kind.lower()}.cr.yaml", content)


def render_etcd(disk: files_.Files) -> None:
    """Reads what tells how many members etcd will have, and on which network."""
    facts.read(disk)


def render_kube_apiserver(disk: files_.Files) -> None:
    """The API server's certificates are checked, and its signers become secrets of the operator that will use them."""
    control_plane(disk)
    for name in ("kube-apiserver-to-kubelet-client", "apiserver-proxy"):
        pair(disk, name)
    for name, secret in _SIGNERS.items():
        content = _tls_secret(KUBE_APISERVER_OPERATOR, secret, pair(disk, name))
        _add(disk, f"secret-{secret}.yaml", content)
    admin = authorities(disk, "admin-kubeconfig-ca-bundle")
    kubelet = authorities(disk, "kubelet-bootstrap-kubeconfig-ca-bundle")
    _add(disk, "configmap-admin-kubeconfig-client-ca.yaml", _bundle(CONFIG, "admin-kubeconfig-client-ca", admin))
    _add(
        disk, "configmap-kubelet-bootstrap-kubeconfig-ca.yaml", _bundle(CONFIG, "kubelet-bootstrap-kubeconfig", kubelet)
    )
    signing = {
        part: disk.read(f"{TLS}/bound-service-account-signing-key.{part.rpartition('.')[2]}")
        for part in ("service-account.key", "service-account.pub")
    }
    bound = _secret(KUBE_APISERVER_OPERATOR, "next-bound-service-account-signing-key", signing)
    _add(disk, "secret-bound-sa-token-signing-key.yaml", bound)
    for kind in _CONTROL_PLANE:
        content = _object("operator.openshift.io/v1", kind, "cluster", spec={"managementState": "Managed"})
        _add(disk, f"0000_20_{kind.lower()}_02_operator.cr.yaml", content)


def render_kube_controller_manager(disk: files_.Files) -> None:
    """The signer of kubelets' certificates, and whom the rest of the cluster shall believe because of it."""
    pair(disk, "kube-control-plane-kube-controller-manager-client")
    authorities(disk, "kube-apiserver-complete-server-ca-bundle")
    signer = pair(disk, "kubelet-signer")
    content = _tls_secret(KUBE_CONTROLLER_MANAGER_OPERATOR, "csr-signer-signer", signer)
    _add(disk, "secret-csr-signer-signer.yaml", content)
    kubelets = authorities(disk, "kubelet-client-ca-bundle")
    _add(disk, "configmap-csr-controller-ca.yaml", _bundle(CONFIG_MANAGED, "csr-controller-ca", kubelets))
    path = f"{TLS}/service-account.key"
    credentials.private_key(disk.read(path), path)
    key = _secret(CONFIG, "initial-service-account-private-key", {"service-account.key": disk.read(path)})
    _add(disk, "secret-initial-kube-controller-manager-service-account-private-key.yaml", key)


def render_kube_scheduler(disk: files_.Files) -> None:
    pair(disk, "kube-control-plane-kube-scheduler-client")


def render_machine_config(disk: files_.Files) -> None:
    """The pools of machines, and the right of new ones to ask for certificates."""
    authorities(disk, "root-ca")
    authorities(disk, "kube-apiserver-complete-client-ca-bundle")
    pair(disk, "machine-config-server")
    disk.read(f"{AUTH}/kubeconfig-kubelet")
    for path in ("openshift-config-secret-pull-secret.yaml", "cluster-config.yaml"):
        facts.manifest(disk, f"{MANIFESTS}/{path}")
    for role in ("master", "worker"):
        _add(disk, f"{role}.machineconfigpool.yaml", _pool(role))
    account = _object("v1", "ServiceAccount", NODE_BOOTSTRAPPER, MACHINE_CONFIG_OPERATOR)
    _add(disk, "node-bootstrapper-sa.yaml", account)
    token = _secret(MACHINE_CONFIG_OPERATOR, "node-bootstrapper-token", {}, "kubernetes.io/service-account-token")
    token["metadata"]["annotations"] = {"kubernetes.io/service-account.name": NODE_BOOTSTRAPPER}
    _add(disk, "node-bootstrapper-token.yaml", token)
    subject = {"kind": "ServiceAccount", "name": NODE_BOOTSTRAPPER, "namespace": MACHINE_CONFIG_OPERATOR}
    _add(
        disk,
        "csr-bootstrap-role-binding.yaml",
        _binding("system-bootstrap-node-bootstrapper", "system:node-bootstrapper", subject),
    )
    nodes = {"kind": "Group", "name": "system:nodes", "apiGroup": "rbac.authorization.k8s.io"}
    renewal = "system:certificates.k8s.io:certificatesigningrequests:selfnodeclient"
    _add(disk, "csr-renewal-role-binding.yaml", _binding("system-bootstrap-node-renewal", renewal, nodes))


def tls_secret(namespace: str, name: str, content: credentials.Pair) -> Object:
    """A Secret that holds a certificate and its key."""
    return _tls_secret(namespace, name, content)


def ca_bundle(namespace: str, name: str, pem: str) -> Object:
    """A ConfigMap that holds authorities."""
    return _bundle(namespace, name, pem)


def _public_key(disk: files_.Files, name: str) -> str:
    path = f"{TLS}/{name}.pub"
    content = disk.read(path)
    credentials.public_key(content, path)
    return content.decode()


def _add(disk: files_.Files, name: str, content: Object) -> None:
    # What the user put there under the same name is the user's.
    path = f"{MANIFESTS}/{name}"
    if not disk.exists(path):
        disk.write(path, json.dumps(content).encode())


def _object(api_version: str, kind: str, name: str, namespace: str = "", **fields: object) -> Object:
    metadata = {"name": name, **({"namespace": namespace} if namespace else {})}
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata, **fields}


def _secret(namespace: str, name: str, data: Mapping[str, bytes], kind: str = "Opaque") -> Object:
    encoded = {key: base64.b64encode(value).decode() for key, value in data.items()}
    return _object("v1", "Secret", name, namespace, type=kind, data=encoded)


def _tls_secret(namespace: str, name: str, content: credentials.Pair) -> Object:
    data = {"tls.crt": content.certificate.encode(), "tls.key": content.key.encode()}
    found = _secret(namespace, name, data, "kubernetes.io/tls")
    leaf = credentials.certificates(content.certificate, name)[0]
    found["metadata"]["annotations"] = {
        "auth.openshift.io/certificate-not-before": f"{leaf.not_valid_before_utc:%Y-%m-%dT%H:%M:%SZ}",
        "auth.openshift.io/certificate-not-after": f"{leaf.not_valid_after_utc:%Y-%m-%dT%H:%M:%SZ}",
    }
    return found


def _bundle(namespace: str, name: str, pem: str) -> Object:
    return _object("v1", "ConfigMap", name, namespace, data={"ca-bundle.crt": pem})


def _binding(name: str, role: str, *subjects: Mapping[str, str]) -> Object:
    return _object(
        "rbac.authorization.k8s.io/v1",
        "ClusterRoleBinding",
        name,
        subjects=list(subjects),
        roleRef={"kind": "ClusterRole", "name": role, "apiGroup": "rbac.authorization.k8s.io"},
    )


def _pool(role: str) -> Object:
    content = _object(
        "machineconfiguration.openshift.io/v1",
        "MachineConfigPool",
        role,
        spec={
            "machineConfigSelector": {"matchLabels": {"machineconfiguration.openshift.io/role": role}},
            "nodeSelector": {"matchLabels": {f"node-role.kubernetes.io/{role}": ""}},
        },
    )
    content["metadata"]["labels"] = {
        "machineconfiguration.openshift.io/mco-built-in": "",
        f"pools.operator.machineconfiguration.openshift.io/{role}": "",
    }
    return content


def documents(disk: files_.Files) -> Sequence[tuple[str, bytes]]:
    """All manifests, the user's and the rendered ones, in the order in which they are created."""
    return list(disk.below(MANIFESTS).items())
