"""The objects in ``openshift/``: the first login, the platform's credentials, the machines, the feature gates.

They are created with the rest; the folder is apart because users look there for what describes their machines.
"""

from __future__ import annotations

import moorage
from moorage.assets import objects, values
from moorage.assets import platform as platforms
from moorage.assets.graph import asset
from moorage.config import model

MACHINE_API = "openshift-machine-api"


@asset()
def kubeadmin_manifest(kubeadmin_hash: str) -> values.Files:
    """The first administrator's password, hashed."""
    manifest = objects.secret("kube-system", "kubeadmin", {"kubeadmin": kubeadmin_hash})
    return objects.file("openshift/99_kubeadmin-password-secret.yaml", manifest)


@asset()
def user_data_manifests(master_ign: bytes, worker_ign: bytes) -> values.Files:
    """The pointer configs that machines are started with, for the machine-api.

    The machine-config operator adds its own copies, ``<role>-user-data-managed``, once it runs.
    """
    return objects.merge(
        *(
            objects.file(
                f"openshift/99_openshift-cluster-api_{role}-user-data-secret.yaml",
                objects.secret(MACHINE_API, f"{role}-user-data", {"disableTemplating": "true\n", "userData": pointer}),
            )
            for role, pointer in (("master", master_ign), ("worker", worker_ign))
        )
    )


@asset()
def machine_manifests(context: platforms.Context, platform: platforms.Manifests) -> values.Files:
    """Machines of all that is made at first, MachineSets of the workers; none where the user brings the machines."""
    name = "openshift/99_openshift-cluster-api_{}-{{}}.yaml".format
    files = [
        objects.numbered(name("master-machines"), platform.masters(context)),
        objects.numbered(name("worker-machineset"), platform.workers(context)),
        objects.numbered(name("worker-machines"), platform.worker_machines(context)),
    ]
    machine_set = platform.control_plane_machine_set(context)
    # A set of one cannot replace its machine without losing etcd.
    if machine_set is not None and context.config.control_plane_replicas > 1:
        path = "openshift/99_openshift-machine-api_master-control-plane-machine-set.yaml"
        files.append(objects.file(path, machine_set))
    return objects.merge(*files)


@asset()
def credentials_manifests(context: platforms.Context, platform: platforms.Manifests) -> values.Files:
    """The platform's credentials and the right to read them; in Manual mode the user brings the secrets."""
    credentials = platform.credentials(context)
    if credentials is None:
        return {}
    name, plain = credentials
    files = [objects.file("openshift/99_role-cloud-creds-secret-reader.yaml", _reader(name))]
    if context.config.credentials_mode != "Manual":
        files.append(objects.file("openshift/99_cloud-creds-secret.yaml", objects.secret("kube-system", name, plain)))
    return objects.merge(*files)


def _reader(secret: str) -> values.Manifest:
    cloud = secret.removesuffix("-credentials").removesuffix("-creds")
    return {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "Role",
        "metadata": {"name": f"{cloud}-creds-secret-reader", "namespace": "kube-system"},
        "rules": [{"apiGroups": [""], "resources": ["secrets"], "resourceNames": [secret], "verbs": ["get"]}],
    }


@asset()
def feature_gate_manifest(install_config: model.InstallConfig) -> values.Files:
    """The FeatureGate object. Always there: the bootstrap node's render of the payload reads it by its file name."""
    spec: dict[str, object] = {}
    if install_config.feature_set:
        spec["featureSet"] = install_config.feature_set
    if install_config.feature_gates:
        gates = [gate.partition("=") for gate in install_config.feature_gates]
        switched = {
            "enabled": [name for name, _, value in gates if value == "true"],
            "disabled": [name for name, _, value in gates if value == "false"],
        }
        spec["customNoUpgrade"] = {state: names for state, names in switched.items() if names}
    return objects.file("openshift/99_feature-gate.yaml", objects.cluster_config("FeatureGate", spec=spec))


@asset()
def installer_manifest(invoker: str) -> values.Files:
    """Who made the cluster, and with which version: support and telemetry look here."""
    manifest = objects.config_map(
        "openshift-config",
        "openshift-install-manifests",
        {"invoker": invoker, "version": f"moorage-v{moorage.__version__}"},
    )
    return objects.file("openshift/openshift-install-manifests.yaml", manifest)


@asset()
def okd_manifest(release: values.Release) -> values.Files:
    """OKD has no subscriptions: keeps the insights operator from asking for entitlements it cannot get."""
    if not release.is_okd:
        return {}
    manifest = objects.secret("openshift-config", "support", {"scaPullDisabled": "true"})
    return objects.file("openshift/90-okd-sca-pull-disable.yaml", manifest)
