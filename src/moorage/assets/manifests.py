"""The two folders of manifests, gathered from the assets that each write a few files.

Users edit, add and delete files here between `create manifests` and the next step; what they leave is what the
bootstrap node gets.
"""

from __future__ import annotations

import sys

from moorage.assets import (
    cluster_manifests,
    cvo,
    machine_configs,
    mirrors,
    objects,
    openshift_manifests,
    trust_manifests,
    values,
)
from moorage.assets import platform as platforms
from moorage.assets.graph import asset

MODULES = (
    cluster_manifests,
    trust_manifests,
    mirrors,
    cvo,
    openshift_manifests,
    machine_configs,
    sys.modules[__name__],
)
"""All modules whose assets are gathered here, for the graph to collect."""


@asset()
def platform_manifests(context: platforms.Context, platform: platforms.Manifests) -> values.Files:
    """What the platform adds. Names that begin with ``99_`` lie in openshift/, the others in manifests/."""
    return {
        f"{'openshift' if name.startswith('99_') else 'manifests'}/{name}": objects.to_yaml(manifest)
        for name, manifest in platform.extra(context).items()  # noqa: S610 - not Django's
    }


@asset(files=("manifests/*.yaml", "manifests/*.yml", "manifests/*.json"))
def manifests(
    infrastructure_manifest: values.Files,
    cloud_provider_manifest: values.Files,
    dns_manifest: values.Files,
    network_manifest: values.Files,
    network_operator_manifest: values.Files,
    ingress_manifest: values.Files,
    scheduler_manifest: values.Files,
    proxy_manifest: values.Files,
    install_config_manifest: values.Files,
    cluster_version_manifest: values.Files,
    root_ca_manifest: values.Files,
    machine_config_server_manifests: values.Files,
    pull_secret_manifest: values.Files,
    user_ca_bundle_manifest: values.Files,
    kube_cloud_manifest: values.Files,
    mirror_manifests: values.Files,
    platform_manifests: values.Files,
) -> values.Files:
    """All manifests in ``manifests/``: the settings of the cluster."""
    return objects.merge(
        infrastructure_manifest,
        cloud_provider_manifest,
        dns_manifest,
        network_manifest,
        network_operator_manifest,
        ingress_manifest,
        scheduler_manifest,
        proxy_manifest,
        install_config_manifest,
        cluster_version_manifest,
        root_ca_manifest,
        machine_config_server_manifests,
        pull_secret_manifest,
        user_ca_bundle_manifest,
        kube_cloud_manifest,
        mirror_manifests,
        _in_folder("manifests", platform_manifests),
    )


@asset(files=("openshift/*.yaml", "openshift/*.yml", "openshift/*.json"))
def openshift(
    kubeadmin_manifest: values.Files,
    user_data_manifests: values.Files,
    machine_manifests: values.Files,
    machine_config_manifests: values.Files,
    credentials_manifests: values.Files,
    feature_gate_manifest: values.Files,
    installer_manifest: values.Files,
    okd_manifest: values.Files,
    platform_manifests: values.Files,
) -> values.Files:
    """All manifests in ``openshift/``: the machines, and what the first steps need."""
    return objects.merge(
        kubeadmin_manifest,
        user_data_manifests,
        machine_manifests,
        machine_config_manifests,
        credentials_manifests,
        feature_gate_manifest,
        installer_manifest,
        okd_manifest,
        _in_folder("openshift", platform_manifests),
    )


def _in_folder(folder: str, files: values.Files) -> values.Files:
    return {path: content for path, content in files.items() if path.startswith(f"{folder}/")}
