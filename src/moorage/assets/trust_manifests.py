"""Whom the cluster trusts, and the secrets it needs to pull images and to serve machine configs.

The machine-config-server's CA and certificate carry annotations by which the machine-config operator recognises them as
its own and rotates them; without these it would make a new CA, which the nodes' pointer configs do not know.
"""

from __future__ import annotations

import datetime
import re

from cryptography import x509

from moorage.assets import objects, values
from moorage.assets.graph import asset
from moorage.config import model

USER_CA_BUNDLE = "user-ca-bundle"

_MACHINE_CONFIG_NAMESPACE = "openshift-machine-config-operator"
_OWNER = {"openshift.io/owning-component": "Machine Config Operator"}
_CERTIFICATE = re.compile(r"-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----", re.DOTALL)


def is_trusted_by_all(config: model.InstallConfig) -> bool:
    """Whether every component, not just the nodes, is to trust the additional bundle."""
    if not config.additional_trust_bundle:
        return False
    return config.additional_trust_bundle_policy == "Always" or config.proxy is not None


@asset()
def root_ca_manifest(root_ca: values.CertKey) -> values.Files:
    """The CA that signed the machine-config-server's certificate, for everybody to read."""
    manifest = objects.config_map("kube-system", "root-ca", {"ca.crt": root_ca.cert})
    return objects.file("manifests/kube-system-configmap-root-ca.yaml", manifest)


@asset()
def machine_config_server_manifests(root_ca: values.CertKey, machine_config_server: values.CertKey) -> values.Files:
    """CA bundle, CA key pair and serving certificate of the machine-config-server."""
    authority = x509.load_pem_x509_certificate(root_ca.cert.encode())
    server = x509.load_pem_x509_certificate(machine_config_server.cert.encode())
    bundle = objects.config_map(
        _MACHINE_CONFIG_NAMESPACE,
        "machine-config-server-ca",
        {"ca-bundle.crt": root_ca.cert},
        metadata=_marks(
            "ca-bundle", {"openshift.io/description": "CAs that sign the machine-config-server's certificate"}
        ),
    )
    signer = _tls_secret(
        "machine-config-server-ca",
        root_ca,
        "signer",
        _annotations(authority, "Signs the machine-config-server's certificate"),
    )
    target = _tls_secret(
        "machine-config-server-tls",
        machine_config_server,
        "target",
        {
            **_annotations(server, "Certificate and key of the machine-config-server"),
            "auth.openshift.io/certificate-hostnames": ",".join(_hostnames(server)),
        },
    )
    return objects.merge(
        objects.file("manifests/machine-config-server-ca-configmap.yaml", bundle),
        objects.file("manifests/machine-config-server-ca-secret.yaml", signer),
        objects.file("manifests/machine-config-server-tls-secret.yaml", target),
    )


def _tls_secret(name: str, pair: values.CertKey, role: str, annotations: dict[str, str]) -> values.Manifest:
    return objects.secret(
        _MACHINE_CONFIG_NAMESPACE,
        name,
        {"tls.crt": pair.cert, "tls.key": pair.key},
        kind="kubernetes.io/tls",
        metadata=_marks(role, annotations),
    )


def _marks(role: str, annotations: dict[str, str]) -> dict[str, object]:
    return {
        "labels": {"auth.openshift.io/managed-certificate-type": role},
        "annotations": {**_OWNER, **annotations},
    }


def _annotations(certificate: x509.Certificate, description: str) -> dict[str, str]:
    issuers = certificate.issuer.get_attributes_for_oid(x509.NameOID.COMMON_NAME)
    return {
        "openshift.io/description": description,
        "auth.openshift.io/certificate-issuer": str(issuers[0].value) if issuers else "",
        "auth.openshift.io/certificate-not-before": _rfc3339(certificate.not_valid_before_utc),
        "auth.openshift.io/certificate-not-after": _rfc3339(certificate.not_valid_after_utc),
    }


def _rfc3339(moment: datetime.datetime) -> str:
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")


def _hostnames(certificate: x509.Certificate) -> list[str]:
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    addresses = (str(address) for address in names.get_values_for_type(x509.IPAddress))
    return sorted({*names.get_values_for_type(x509.DNSName), *addresses})


@asset()
def pull_secret_manifest(install_config: model.InstallConfig) -> values.Files:
    """The registries' credentials: the only manifest that holds them."""
    manifest = objects.secret(
        "openshift-config",
        "pull-secret",
        {".dockerconfigjson": install_config.pull_secret.get_secret_value()},
        kind="kubernetes.io/dockerconfigjson",
    )
    return objects.file("manifests/openshift-config-secret-pull-secret.yaml", manifest)


@asset()
def user_ca_bundle_manifest(install_config: model.InstallConfig) -> values.Files:
    """The user's CAs. Nodes trust them in any case; the rest of the cluster according to the policy, see the Proxy."""
    if not install_config.additional_trust_bundle:
        return {}
    manifest = objects.config_map(
        "openshift-config",
        USER_CA_BUNDLE,
        {"ca-bundle.crt": _only_certificates(install_config.additional_trust_bundle)},
        metadata={"annotations": {"openshift.io/owning-component": "End User"}},
    )
    return objects.file("manifests/user-ca-bundle-config.yaml", manifest)


def _only_certificates(bundle: str) -> str:
    # Bundles exported from browsers and operating systems come with comments, indents and Windows line ends.
    blocks = ([line.strip() for line in block.splitlines()] for block in _CERTIFICATE.findall(bundle))
    return "".join(f"{line}\n" for block in blocks for line in block if line)


@asset()
def kube_cloud_manifest() -> values.Files:
    """An empty cloud configuration, which the bootstrap control plane expects to exist on every platform."""
    manifest = objects.secret("kube-system", "kube-cloud-cfg", {"config": ""})
    return objects.file("manifests/kube-cloud-config.yaml", manifest)
