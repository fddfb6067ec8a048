"""CAs, the machine-config-server's certificates and the pull secret."""

import base64

import pytest
from cryptography import x509

CA_MAP = "machine-config-server-ca-configmap.yaml"
CA_SECRET = "machine-config-server-ca-secret.yaml"
TLS_SECRET = "machine-config-server-tls-secret.yaml"


def decoded(manifest):
    return {key: base64.b64decode(content).decode() for key, content in manifest["data"].items()}


def test_everybody_can_read_the_root_ca(parsed, pairs):
    manifest = parsed()["kube-system-configmap-root-ca.yaml"]

    assert manifest["metadata"] == {"name": "root-ca", "namespace": "kube-system"}
    assert manifest["data"] == {"ca.crt": pairs[0].cert}


@pytest.mark.parametrize(
    ("file", "kind", "name", "role"),
    [
        (CA_MAP, "ConfigMap", "machine-config-server-ca", "ca-bundle"),
        (CA_SECRET, "Secret", "machine-config-server-ca", "signer"),
        (TLS_SECRET, "Secret", "machine-config-server-tls", "target"),
    ],
)
def test_the_operator_recognises_its_certificates(parsed, file, kind, name, role):
    manifest = parsed()[file]

    assert (manifest["kind"], manifest["metadata"]["name"]) == (kind, name)
    assert manifest["metadata"]["namespace"] == "openshift-machine-config-operator"
    assert manifest["metadata"]["labels"] == {"auth.openshift.io/managed-certificate-type": role}
    assert manifest["metadata"]["annotations"]["openshift.io/owning-component"] == "Machine Config Operator"


def test_the_ca_bundle_is_the_root_ca(parsed, pairs):
    assert parsed()[CA_MAP]["data"] == {"ca-bundle.crt": pairs[0].cert}


@pytest.mark.parametrize(("file", "pair"), [(CA_SECRET, 0), (TLS_SECRET, 1)])
def test_secrets_hold_certificate_and_key(parsed, pairs, file, pair):
    manifest = parsed()[file]

    assert manifest["type"] == "kubernetes.io/tls"
    assert decoded(manifest) == {"tls.crt": pairs[pair].cert, "tls.key": pairs[pair].key}


@pytest.mark.parametrize("file", [CA_SECRET, TLS_SECRET])
def test_annotations_say_who_issued_the_certificate_and_for_how_long(parsed, file):
    annotations = parsed()[file]["metadata"]["annotations"]

    assert annotations["auth.openshift.io/certificate-issuer"] == "root-ca"
    assert annotations["auth.openshift.io/certificate-not-before"] == "2026-01-02T03:04:05Z"
    assert annotations["auth.openshift.io/certificate-not-after"] == "2036-01-02T03:04:05Z"


def test_annotations_name_the_hosts_of_the_serving_certificate(parsed):
    annotations = parsed()[TLS_SECRET]["metadata"]["annotations"]

    assert annotations["auth.openshift.io/certificate-hostnames"] == "10.0.0.5,api-int.berth.example.org"


def test_the_pull_secret_arrives_unchanged(parsed, configure):
    config = configure()

    manifest = parsed(config)["openshift-config-secret-pull-secret.yaml"]

    assert manifest["metadata"] == {"name": "pull-secret", "namespace": "openshift-config"}
    assert manifest["type"] == "kubernetes.io/dockerconfigjson"
    assert decoded(manifest) == {".dockerconfigjson": config.pull_secret.get_secret_value()}


@pytest.mark.parametrize("policy", ["Always", "Proxyonly"])
def test_the_users_cas_are_there_whatever_the_policy(parsed, configure, pairs, policy):
    config = configure(additional_trust_bundle=pairs[0].cert, additional_trust_bundle_policy=policy)

    manifest = parsed(config)["user-ca-bundle-config.yaml"]

    assert (manifest["metadata"]["namespace"], manifest["metadata"]["name"]) == ("openshift-config", "user-ca-bundle")
    assert manifest["data"] == {"ca-bundle.crt": pairs[0].cert}


def test_the_users_bundle_is_cleaned_of_all_but_certificates(parsed, configure, pairs):
    messy = "# our CAs\r\n" + pairs[0].cert.replace("\n", "\r\n    ") + "\n\nsecond one:\n" + pairs[1].cert

    bundle = parsed(configure(additional_trust_bundle=messy))["user-ca-bundle-config.yaml"]["data"]["ca-bundle.crt"]

    assert bundle == pairs[0].cert + pairs[1].cert
    assert len(x509.load_pem_x509_certificates(bundle.encode())) == 2


def test_no_bundle_no_object(parsed):
    assert "user-ca-bundle-config.yaml" not in parsed()


def test_the_bootstrap_control_plane_finds_an_empty_cloud_config(parsed):
    manifest = parsed()["kube-cloud-config.yaml"]

    assert manifest["metadata"] == {"name": "kube-cloud-cfg", "namespace": "kube-system"}
    assert manifest["data"] == {"config": ""}
