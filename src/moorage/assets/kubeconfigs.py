"""The four kubeconfigs: the administrator from outside and inside, the bootstrap itself, and new nodes."""

from __future__ import annotations

import base64

from moorage.assets import objects, values
from moorage.assets.graph import asset
from moorage.config import model


def kubeconfig(cluster: str, user: str, server: str, ca: values.Bundle, client: values.CertKey) -> bytes:
    """One cluster, one user, one context, everything embedded."""

    def embedded(pem: str) -> str:
        return base64.b64encode(pem.encode()).decode()

    content: values.Manifest = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": cluster, "cluster": {"certificate-authority-data": embedded(ca.cert), "server": server}}],
        "users": [
            {
                "name": user,
                "user": {
                    "client-certificate-data": embedded(client.cert),
                    "client-key-data": embedded(client.key),
                },
            }
        ],
        "contexts": [{"name": user, "context": {"cluster": cluster, "user": user}}],
        "current-context": user,
        "preferences": {},
    }
    return objects.to_yaml(content)


@asset(files=("auth/kubeconfig",))
def admin_kubeconfig(
    install_config: model.InstallConfig,
    endpoints: values.Endpoints,
    kube_apiserver_complete_server_ca_bundle: values.Bundle,
    admin_kubeconfig_client: values.CertKey,
) -> bytes:
    """The administrator, through the external balancer."""
    ca = kube_apiserver_complete_server_ca_bundle
    return kubeconfig(install_config.name, "admin", endpoints.api_url, ca, admin_kubeconfig_client)


@asset()
def admin_internal_kubeconfig(
    install_config: model.InstallConfig,
    endpoints: values.Endpoints,
    kube_apiserver_complete_server_ca_bundle: values.Bundle,
    admin_kubeconfig_client: values.CertKey,
) -> bytes:
    """The administrator, from inside the cluster's network."""
    ca = kube_apiserver_complete_server_ca_bundle
    return kubeconfig(install_config.name, "admin", endpoints.api_int_url, ca, admin_kubeconfig_client)


@asset()
def kubelet_kubeconfig(
    install_config: model.InstallConfig,
    endpoints: values.Endpoints,
    kube_apiserver_complete_server_ca_bundle: values.Bundle,
    kubelet_client: values.CertKey,
) -> bytes:
    """What the machine-config server gives to new nodes."""
    ca = kube_apiserver_complete_server_ca_bundle
    return kubeconfig(install_config.name, "kubelet", endpoints.api_int_url, ca, kubelet_client)


@asset()
def loopback_kubeconfig(
    install_config: model.InstallConfig,
    kube_apiserver_localhost_ca_bundle: values.Bundle,
    admin_kubeconfig_client: values.CertKey,
) -> bytes:
    """The bootstrap node to its own API server, before any name or balancer works."""
    ca = kube_apiserver_localhost_ca_bundle
    return kubeconfig(install_config.name, "loopback", "https://localhost:6443", ca, admin_kubeconfig_client)
