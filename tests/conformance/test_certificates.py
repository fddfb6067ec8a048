"""openssl judges every certificate of bootstrap.ign for its purpose, chain and names."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.conformance import ignition

pytestmark = pytest.mark.needs("openssl")

CHAINS = {
    # leaf: (who vouches, purpose, names it must answer to)
    "machine-config-server": ("root-ca", "sslserver", ["api-int.harbour.example.com"]),
    "journal-gatewayd": ("root-ca", "sslserver", []),
    "kube-apiserver-lb-server": ("kube-apiserver-lb-ca-bundle", "sslserver", ["api.harbour.example.com"]),
    "kube-apiserver-internal-lb-server": (
        "kube-apiserver-lb-ca-bundle",
        "sslserver",
        ["api-int.harbour.example.com"],
    ),
    "kube-apiserver-localhost-server": (
        "kube-apiserver-localhost-ca-bundle",
        "sslserver",
        ["localhost", "127.0.0.1", "::1"],
    ),
    "kube-apiserver-service-network-server": (
        "kube-apiserver-service-network-ca-bundle",
        "sslserver",
        ["kubernetes.default.svc.cluster.local", "openshift.default.svc", "172.30.0.1"],
    ),
    "kube-apiserver-to-kubelet-client": ("kube-apiserver-to-kubelet-ca-bundle", "sslclient", []),
    "kube-control-plane-kube-controller-manager-client": ("kube-control-plane-ca-bundle", "sslclient", []),
    "kube-control-plane-kube-scheduler-client": ("kube-control-plane-ca-bundle", "sslclient", []),
    "kubelet-client": ("kubelet-bootstrap-kubeconfig-ca-bundle", "sslclient", []),
    "aggregator-client": ("aggregator-ca-bundle", "sslclient", []),
    "apiserver-proxy": ("aggregator-ca", "sslclient", []),
}
EVERY_SERVER = "kube-apiserver-complete-server-ca-bundle"
EVERY_CLIENT = "kube-apiserver-complete-client-ca-bundle"
ALSO = [
    *(
        (leaf, EVERY_SERVER, "sslserver")
        for leaf in CHAINS
        if leaf.startswith("kube-apiserver-") and "server" in leaf[15:]
    ),
    ("kubelet-client", EVERY_CLIENT, "sslclient"),
    ("kube-control-plane-kube-scheduler-client", EVERY_CLIENT, "sslclient"),
    ("kube-apiserver-to-kubelet-client", EVERY_CLIENT, "sslclient"),
]


@pytest.fixture(scope="module")
def tls(cluster_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """/opt/openshift/tls as the bootstrap node has it."""
    folder = tmp_path_factory.mktemp("tls")
    for path, content in ignition.embedded(cluster_dir / "bootstrap.ign").items():
        if path.startswith("/opt/openshift/tls/"):
            (folder / Path(path).name).write_bytes(content)
    return folder


def verify(tls: Path, leaf: str, ca: str, purpose: str, *more: str) -> subprocess.CompletedProcess[str]:
    words = ["openssl", "verify", "-x509_strict", "-purpose", purpose, "-CAfile", str(tls / f"{ca}.crt"), *more]
    return subprocess.run([*words, str(tls / f"{leaf}.crt")], capture_output=True, text=True, check=False)


@pytest.mark.parametrize("leaf", CHAINS)
def test_chain_purpose_and_names(tls: Path, leaf: str) -> None:
    ca, purpose, names = CHAINS[leaf]

    done = verify(tls, leaf, ca, purpose)
    assert done.returncode == 0, done.stderr
    for name in names:
        check = "-verify_ip" if name[0].isdigit() or ":" in name else "-verify_hostname"
        done = verify(tls, leaf, ca, purpose, check, name)
        assert done.returncode == 0, f"{name}: {done.stderr}"
    assert verify(tls, leaf, ca, purpose, "-verify_hostname", "elsewhere.example.com").returncode != 0 or not names


@pytest.mark.parametrize(("leaf", "ca", "purpose"), ALSO)
def test_complete_bundles_vouch_too(tls: Path, leaf: str, ca: str, purpose: str) -> None:
    done = verify(tls, leaf, ca, purpose)

    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("leaf", ["kubelet-client", "aggregator-client"])
def test_a_client_is_no_server(tls: Path, leaf: str) -> None:
    assert verify(tls, leaf, CHAINS[leaf][0], "sslserver").returncode != 0


def test_no_certificate_is_left_unjudged(tls: Path) -> None:
    leaves = {path.stem for path in tls.glob("*.crt") if "bundle" not in path.stem and "signer" not in path.stem}

    assert leaves - {"root-ca", "aggregator-ca"} == set(CHAINS)


def test_every_key_belongs_to_its_certificate(tls: Path) -> None:
    pairs = [path for path in tls.glob("*.crt") if path.with_suffix(".key").exists()]
    assert len(pairs) > 15
    for cert in pairs:
        public = [
            subprocess.run(words, capture_output=True, check=True).stdout
            for words in (
                ["openssl", "x509", "-in", cert, "-noout", "-pubkey"],
                ["openssl", "pkey", "-in", cert.with_suffix(".key"), "-pubout"],
            )
        ]
        assert public[0] == public[1], cert.name
