"""Every certificate against the table of what the operators expect: subject, usage, names, lifetime, issuer."""

from __future__ import annotations

import datetime
import ipaddress
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from moorage.installer import produce

MOMENT = datetime.datetime(2026, 5, 4, 3, 2, 1, tzinfo=datetime.UTC)
DAY, YEAR, DECADE = (datetime.timedelta(hours=hours) for hours in (24, 24 * 365, 24 * 3650))

SIGNERS = {
    "root_ca": DECADE,
    "admin_kubeconfig_signer": DECADE,
    "kube_apiserver_localhost_signer": DECADE,
    "kube_apiserver_service_network_signer": DECADE,
    "kube_apiserver_lb_signer": DECADE,
    "kubelet_bootstrap_kubeconfig_signer": DECADE,
    "kube_apiserver_to_kubelet_signer": YEAR,
    "kube_control_plane_signer": YEAR,
    "aggregator_ca": DAY,
    "aggregator_signer": DAY,
    "kubelet_signer": DAY,
}
BOOTSTRAPPER = "system:serviceaccount:openshift-machine-config-operator:node-bootstrapper"
SERVICE = [
    f"{s}{x}"
    for s in ("kubernetes", "openshift")
    for x in ("", ".default", ".default.svc", ".default.svc.cluster.local")
]
LEAVES: dict[str, tuple[str, list[str], str, datetime.timedelta, str, list[str], list[str]]] = {
    # asset: (CN, O, issuer, lifetime, usages, DNS names, addresses)
    "admin_kubeconfig_client": ("system:admin", ["system:masters"], "admin_kubeconfig_signer", DECADE, "both", [], []),
    "kube_apiserver_to_kubelet_client": (
        "system:kube-apiserver",
        ["kube-master"],
        "kube_apiserver_to_kubelet_signer",
        YEAR,
        "client",
        [],
        [],
    ),
    "kube_apiserver_localhost_server": (
        "system:kube-apiserver",
        ["kube-master"],
        "kube_apiserver_localhost_signer",
        DAY,
        "server",
        ["localhost"],
        ["127.0.0.1", "::1"],
    ),
    "kube_apiserver_service_network_server": (
        "system:kube-apiserver",
        ["kube-master"],
        "kube_apiserver_service_network_signer",
        DAY,
        "server",
        SERVICE,
        ["172.30.0.1"],
    ),
    "kube_apiserver_lb_server": (
        "system:kube-apiserver",
        ["kube-master"],
        "kube_apiserver_lb_signer",
        DAY,
        "server",
        ["api.harbour.example.com"],
        [],
    ),
    "kube_apiserver_internal_lb_server": (
        "system:kube-apiserver",
        ["kube-master"],
        "kube_apiserver_lb_signer",
        DAY,
        "server",
        ["api-int.harbour.example.com"],
        [],
    ),
    "kube_control_plane_kube_controller_manager_client": (
        "system:admin",
        ["system:masters"],
        "kube_control_plane_signer",
        YEAR,
        "client",
        [],
        [],
    ),
    "kube_control_plane_kube_scheduler_client": (
        "system:admin",
        ["system:masters"],
        "kube_control_plane_signer",
        YEAR,
        "client",
        [],
        [],
    ),
    "kubelet_client": (
        BOOTSTRAPPER,
        ["system:serviceaccounts:openshift-machine-config-operator", "system:serviceaccounts"],
        "kubelet_bootstrap_kubeconfig_signer",
        DECADE,
        "client",
        [],
        [],
    ),
    "aggregator_client": ("system:kube-apiserver-proxy", ["kube-master"], "aggregator_signer", DAY, "client", [], []),
    "apiserver_proxy": ("system:kube-apiserver-proxy", ["kube-master"], "aggregator_ca", DAY, "client", [], []),
    "machine_config_server": (
        "system:machine-config-server",
        [],
        "root_ca",
        DECADE,
        "server",
        ["api-int.harbour.example.com"],
        [],
    ),
    "journal_gatewayd": ("journal-gatewayd", ["OpenShift Bootstrap"], "root_ca", DECADE, "both", [], []),
}
USAGES = {
    "server": {ExtendedKeyUsageOID.SERVER_AUTH},
    "client": {ExtendedKeyUsageOID.CLIENT_AUTH},
    "both": {ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH},
}


@pytest.fixture
def made(ready_dir: Path, make: Callable[..., produce.Produced]) -> dict[str, Any]:
    """All values of a run at MOMENT."""
    return dict(make(ready_dir, moment=MOMENT).result.values)


def cert(value: Any) -> x509.Certificate:
    return x509.load_pem_x509_certificate(value.cert.encode())


def names(subject: x509.Name, oid: x509.ObjectIdentifier) -> list[str]:
    return [str(attribute.value) for attribute in subject.get_attributes_for_oid(oid)]


def test_signers(made: dict[str, Any]) -> None:
    for name, lifetime in SIGNERS.items():
        ca = cert(made[name])
        common_name = "aggregator" if name == "aggregator_ca" else name.replace("_", "-")
        assert names(ca.subject, NameOID.COMMON_NAME) == [common_name], name
        assert ca.subject == ca.issuer
        assert ca.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
        assert ca.extensions.get_extension_for_class(x509.KeyUsage).value.key_cert_sign
        assert (ca.not_valid_before_utc, ca.not_valid_after_utc) == (MOMENT, MOMENT + lifetime), name


def test_leaves(made: dict[str, Any]) -> None:
    for name, (common_name, organizations, issuer, lifetime, usage, dns, addresses) in LEAVES.items():
        leaf, ca = cert(made[name]), cert(made[issuer])
        leaf.verify_directly_issued_by(ca)
        assert names(leaf.subject, NameOID.COMMON_NAME) == [common_name], name
        assert names(leaf.subject, NameOID.ORGANIZATION_NAME) == organizations, name
        assert leaf.not_valid_before_utc == ca.not_valid_before_utc, name
        assert leaf.not_valid_after_utc == MOMENT + lifetime, name
        assert set(leaf.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value) == USAGES[usage], name
        assert not leaf.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
        assert _alternatives(leaf) == (dns, addresses), name
        authority = leaf.extensions.get_extension_for_class(x509.AuthorityKeyIdentifier).value.key_identifier
        assert authority == ca.extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value.digest, name


def test_every_certificate_has_its_own_key_and_serial(made: dict[str, Any]) -> None:
    certs = [cert(made[name]) for name in (*SIGNERS, *LEAVES)]
    publics = [
        c.public_key().public_bytes(serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)
        for c in certs
    ]

    assert len(set(publics)) == len(publics)
    assert len({c.serial_number for c in certs}) == len(certs)
    for name in (*SIGNERS, *LEAVES):
        key = serialization.load_pem_private_key(made[name].key.encode(), None)
        assert key.public_key() == cert(made[name]).public_key(), name


BUNDLES = {
    "admin_kubeconfig_ca_bundle": ["admin_kubeconfig_signer"],
    "aggregator_ca_bundle": ["aggregator_signer"],
    "kube_apiserver_lb_ca_bundle": ["kube_apiserver_lb_signer"],
    "kube_apiserver_localhost_ca_bundle": ["kube_apiserver_localhost_signer"],
    "kube_apiserver_service_network_ca_bundle": ["kube_apiserver_service_network_signer"],
    "kube_apiserver_to_kubelet_ca_bundle": ["kube_apiserver_to_kubelet_signer"],
    "kubelet_client_ca_bundle": ["kubelet_signer"],
    "kubelet_serving_ca_bundle": ["kubelet_signer"],
    "kubelet_bootstrap_kubeconfig_ca_bundle": ["kubelet_bootstrap_kubeconfig_signer"],
    "kube_control_plane_ca_bundle": [
        "kube_control_plane_signer",
        "kube_apiserver_lb_signer",
        "kube_apiserver_localhost_signer",
        "kube_apiserver_service_network_signer",
    ],
    "kube_apiserver_complete_server_ca_bundle": [
        "kube_apiserver_localhost_signer",
        "kube_apiserver_service_network_signer",
        "kube_apiserver_lb_signer",
    ],
    "kube_apiserver_complete_client_ca_bundle": [
        "admin_kubeconfig_signer",
        "kubelet_signer",
        "kube_control_plane_signer",
        "kube_apiserver_lb_signer",
        "kube_apiserver_localhost_signer",
        "kube_apiserver_service_network_signer",
        "kube_apiserver_to_kubelet_signer",
        "kubelet_bootstrap_kubeconfig_signer",
    ],
}


def test_bundles(made: dict[str, Any]) -> None:
    for bundle, members in BUNDLES.items():
        found = x509.load_pem_x509_certificates(made[bundle].cert.encode())
        assert set(found) == {cert(made[member]) for member in members}, bundle
        assert len(found) == len(members), bundle


def test_keys_that_sign_nothing_on_the_node_stay_at_home(made: dict[str, Any]) -> None:
    paths = {file["path"] for file in json.loads(made["bootstrap_ign"])["storage"]["files"]}

    assert "/opt/openshift/tls/root-ca.crt" in paths
    assert "/opt/openshift/tls/kubelet-signer.key" in paths
    for kept in ("root-ca", "admin-kubeconfig-signer", "kubelet-bootstrap-kubeconfig-signer"):
        assert f"/opt/openshift/tls/{kept}.key" not in paths


def _alternatives(leaf: x509.Certificate) -> tuple[list[str], list[str]]:
    try:
        names = leaf.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return [], []
    addresses = names.get_values_for_type(x509.IPAddress)
    return names.get_values_for_type(x509.DNSName), [str(ipaddress.ip_address(str(a))) for a in addresses]
