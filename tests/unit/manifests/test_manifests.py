"""The two folders as a whole."""

import base64
import json

import pytest
import yaml

from moorage.config import model
from moorage.platforms.none import manifests as none

COMMON = {
    "manifests/cluster-config.yaml",
    "manifests/cluster-dns-02-config.yml",
    "manifests/cluster-infrastructure-02-config.yml",
    "manifests/cluster-ingress-02-config.yml",
    "manifests/cluster-network-02-config.yml",
    "manifests/cluster-proxy-01-config.yaml",
    "manifests/cluster-scheduler-02-config.yml",
    "manifests/cvo-overrides.yaml",
    "manifests/kube-cloud-config.yaml",
    "manifests/kube-system-configmap-root-ca.yaml",
    "manifests/machine-config-server-ca-configmap.yaml",
    "manifests/machine-config-server-ca-secret.yaml",
    "manifests/machine-config-server-tls-secret.yaml",
    "manifests/openshift-config-secret-pull-secret.yaml",
    "openshift/99_feature-gate.yaml",
    "openshift/99_kubeadmin-password-secret.yaml",
    "openshift/99_openshift-cluster-api_master-user-data-secret.yaml",
    "openshift/99_openshift-cluster-api_worker-user-data-secret.yaml",
    "openshift/openshift-install-manifests.yaml",
}
NAMESPACED = {
    "ConfigMap",
    "Secret",
    "Role",
    "Machine",
    "MachineSet",
    "ControlPlaneMachineSet",
    "ClusterVersion",
    "IngressController",
}


@pytest.fixture
def everything(make, configure, harbour, pairs):
    """The files of a cluster that uses every option at once."""
    config = configure(
        ssh_key="ssh-ed25519 AAAA one",
        fips=True,
        additional_trust_bundle=pairs[0].cert,
        proxy=model.Proxy(http_proxy="http://sailor:rum@squid.example.org:3128", no_proxy="example.com"),
        image_digest_sources=(model.ImageSource(source="quay.io/okd", mirrors=("mirror.example.org/okd",)),),
        capabilities=model.Capabilities(),
        feature_set="CustomNoUpgrade",
        feature_gates=("Sails=true",),
        networking=model.Networking(service_network=("172.30.0.0/16", "fd02::/112")),
    )
    return make(config, on=harbour)


def test_a_plain_cluster_has_exactly_the_common_files(make):
    assert set(make()) == COMMON


def test_every_option_and_a_platform_add_theirs(everything):
    assert set(everything) - COMMON == {
        "manifests/cloud-provider-config.yaml",
        "manifests/image-digest-mirror-set.yaml",
        "manifests/pier.yaml",
        "manifests/user-ca-bundle-config.yaml",
        "openshift/99_buoy.yaml",
        "openshift/99_cloud-creds-secret.yaml",
        "openshift/99_openshift-cluster-api_master-machines-0.yaml",
        "openshift/99_openshift-cluster-api_master-machines-1.yaml",
        "openshift/99_openshift-cluster-api_master-machines-2.yaml",
        "openshift/99_openshift-cluster-api_worker-machineset-0.yaml",
        "openshift/99_openshift-machine-api_master-control-plane-machine-set.yaml",
        "openshift/99_openshift-machineconfig_99-dual-stack-master.yaml",
        "openshift/99_openshift-machineconfig_99-dual-stack-worker.yaml",
        "openshift/99_openshift-machineconfig_99-master-fips.yaml",
        "openshift/99_openshift-machineconfig_99-master-ssh.yaml",
        "openshift/99_openshift-machineconfig_99-worker-fips.yaml",
        "openshift/99_openshift-machineconfig_99-worker-ssh.yaml",
        "openshift/99_role-cloud-creds-secret-reader.yaml",
    }


def test_every_file_is_one_named_object(everything):
    for path, content in everything.items():
        (manifest,) = yaml.safe_load_all(content)
        assert manifest["apiVersion"], path
        assert manifest["kind"], path
        assert manifest["metadata"]["name"], path


def test_objects_have_a_namespace_exactly_if_their_kind_does(everything):
    for path, content in everything.items():
        manifest = yaml.safe_load(content)
        assert ("namespace" in manifest["metadata"]) == (manifest["kind"] in NAMESPACED), path


def test_made_again_it_is_the_same_to_the_byte(make, configure, harbour):
    config = configure(ssh_key="ssh-ed25519 AAAA one", fips=True)

    first, second = make(config, on=harbour), make(config, on=harbour)

    assert list(first.items()) == list(second.items())


def test_a_platform_must_not_take_a_common_files_name(make):
    class Greedy(none.NoPlatform):
        def extra(self, context):
            return {"cluster-config.yaml": {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "mine"}}}

    with pytest.raises(ValueError, match=r"two assets write manifests/cluster-config.yaml"):
        make(on=Greedy())


def decoded_texts(value):
    """Every text in a manifest, and what it says if it is base64."""
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list):
        for item in value:
            yield from decoded_texts(item)
    elif isinstance(value, str):
        yield value
        try:
            yield base64.b64decode(value, validate=True).decode()
        except ValueError:
            return


def mentions(content, secrets):
    return any(secret in text for text in decoded_texts(yaml.safe_load(content)) for secret in secrets)


def test_the_pull_secret_is_nowhere_but_in_the_pull_secret(everything, configure):
    pull_secret = configure().pull_secret.get_secret_value()
    auth = json.loads(pull_secret)["auths"]["registry.example.org"]["auth"]
    secrets = [pull_secret, auth, "harbour-light", base64.b64encode(pull_secret.encode()).decode()]

    holders = {path for path, content in everything.items() if mentions(content, secrets)}

    assert holders == {"manifests/openshift-config-secret-pull-secret.yaml"}


def test_the_proxys_password_is_nowhere_but_in_the_proxy(everything):
    holders = {path for path, content in everything.items() if mentions(content, ["sailor:rum"])}

    assert holders == {"manifests/cluster-proxy-01-config.yaml"}


def test_private_keys_are_nowhere_but_in_the_machine_config_servers_secrets(everything):
    holders = {path for path, content in everything.items() if mentions(content, ["PRIVATE KEY"])}

    assert holders == {
        "manifests/machine-config-server-ca-secret.yaml",
        "manifests/machine-config-server-tls-secret.yaml",
    }
