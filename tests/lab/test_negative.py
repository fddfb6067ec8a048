"""One thing wrong, and the cluster does not come up; `wait-for` says which thing it is.

Each wait begins when the trouble has shown on the machines' consoles: how long a busy computer takes to get there is no
part of any deadline, and from there on the cloud's time may fly.
"""

from __future__ import annotations

import base64
import datetime
import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest
import yaml
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509 import oid

from moorage import errors
from moorage.installer import produce
from tests.lab import rack

SPEED = 500.0
Make = Callable[..., produce.Produced]


@pytest.fixture
def scene(ready_dir: Path, make: Make, tmp_path: Path) -> Iterator[rack.Rack]:
    """A rack on which everything is right, not switched on yet."""
    make(ready_dir)
    with rack.unhurried_lab(tmp_path / "lab", SPEED) as lab:
        yield rack.Rack(lab, ready_dir)


def complaint(scene: rack.Rack, *, once: tuple[str, str] | None = None) -> str:
    """Switch everything on and wait in vain; what is said at the end.

    The wait begins once the API is served, and a machine (the first of ``once``) has said something (the second).
    """
    scene.power_on()
    scene.until(scene.serves, "an API server")
    if once is not None:
        scene.until(lambda: scene.says(*once), f"{once[1]!r} on the console of {once[0]}")
    ended = scene.moorage("wait-for", "bootstrap-complete", "-o", "json")

    assert ended.returncode == errors.BOOTSTRAP, f"{ended.stderr}\n{scene.consoles()}"
    told = json.loads(ended.stdout)
    assert not told["complete"]
    return str(told["error"])


def signed(names: list[str], issuer: tuple[bytes, bytes] | None = None) -> tuple[bytes, bytes]:
    """A certificate for these names and its key, by the issuer (certificate, key), or by an authority nobody knows."""
    key = ec.generate_private_key(ec.SECP256R1())
    signer = serialization.load_pem_private_key(issuer[1], None) if issuer else ec.generate_private_key(ec.SECP256R1())
    by = x509.load_pem_x509_certificate(issuer[0]).subject if issuer else _named("somebody else")
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(_named(names[0]))
        .issuer_name(by)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(minutes=5))
        .not_valid_after(now + datetime.timedelta(hours=12))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(name) for name in names]), critical=False)
        .sign(signer, hashes.SHA256())  # type: ignore[arg-type]
    )
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return certificate.public_bytes(serialization.Encoding.PEM), private


def _named(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(oid.NameOID.COMMON_NAME, name)])


def test_a_machine_config_server_of_another_authority(scene: rack.Rack) -> None:
    def edit(files: Mapping[str, bytes]) -> Mapping[str, bytes]:
        certificate, key = signed([f"api-int.{rack.DOMAIN}"])
        return {"tls/machine-config-server.crt": certificate, "tls/machine-config-server.key": key}

    rack.edit_bootstrap(scene.assets, edit)

    shown = ("master-0", "x509: certificate signed by unknown authority")
    assert "the CA in master.ign has not signed" in complaint(scene, once=shown)


def test_a_certificate_without_the_internal_name(scene: rack.Rack) -> None:
    def edit(files: Mapping[str, bytes]) -> Mapping[str, bytes]:
        signer = files["tls/kube-apiserver-lb-signer.crt"], files["tls/kube-apiserver-lb-signer.key"]
        certificate, key = signed([f"api.{rack.DOMAIN}"], signer)
        return {
            "tls/kube-apiserver-internal-lb-server.crt": certificate,
            "tls/kube-apiserver-internal-lb-server.key": key,
        }

    rack.edit_bootstrap(scene.assets, edit)

    shown = ("master-0", "kubelet: failed to run Kubelet: cannot create certificate signing request")
    assert f"certificate is not for api-int.{rack.DOMAIN}" in complaint(scene, once=shown)
    assert "x509: certificate" in scene.plain.console("master-0")


def test_no_listener_for_the_machine_configs(scene: rack.Rack) -> None:
    scene.listeners = (6443, 443, 80)

    said = complaint(scene, once=("master-0", "connection refused"))

    assert f"nothing listens at api-int.{rack.DOMAIN}:22623" in said
    assert "none has asked for a certificate" in said


def test_no_record_for_the_internal_name(scene: rack.Rack) -> None:
    scene.names = ("api", "*.apps")

    said = complaint(scene, once=("master-0", "no such host"))

    assert f"api-int.{rack.DOMAIN} does not resolve" in said


def test_certificates_that_have_run_out(ready_dir: Path, make: Make, tmp_path: Path) -> None:
    make(ready_dir, moment=datetime.datetime.now(datetime.UTC) - datetime.timedelta(hours=25))
    with rack.unhurried_lab(tmp_path / "lab", SPEED) as lab:
        assert "certificate has expired" in complaint(rack.Rack(lab, ready_dir))


def test_a_credential_that_the_cluster_does_not_know(scene: rack.Rack) -> None:
    def edit(files: Mapping[str, bytes]) -> Mapping[str, bytes]:
        content = yaml.safe_load(files["auth/kubeconfig-kubelet"])
        certificate, key = signed(["system:node-bootstrapper"])
        content["users"][0]["user"] = {
            "client-certificate-data": base64.b64encode(certificate).decode(),
            "client-key-data": base64.b64encode(key).decode(),
        }
        return {"auth/kubeconfig-kubelet": yaml.safe_dump(content).encode()}

    rack.edit_bootstrap(scene.assets, edit)

    shown = ("master-0", "kubelet: failed to run Kubelet: cannot create certificate signing request")
    assert "refuses the credentials that new machines are given" in complaint(scene, once=shown)


def test_nobody_behind_the_listener_for_the_machine_configs(scene: rack.Rack) -> None:
    scene.dead_ends = (22623,)

    said = complaint(scene, once=("master-0", "GET https://api-int"))

    assert f"api-int.{rack.DOMAIN}:22623 takes connections, but hangs up" in said
    assert "the balancer has no healthy member behind that port" in said


def test_a_master_that_never_boots(scene: rack.Rack) -> None:
    scene.never_boots = ("master-2",)
    scene.power_on()
    for name in ("master-0", "master-1"):
        scene.until(lambda name=name: scene.says(name, "successfully registered node"), f"{name} is a Node")

    ended = scene.moorage("wait-for", "bootstrap-complete", "-o", "json")

    assert ended.returncode == errors.BOOTSTRAP, ended.stderr
    told = json.loads(ended.stdout)["error"]
    assert "2 of 3 masters are Nodes, the other one has not asked for a certificate" in told


def test_no_record_for_the_applications(ready_dir: Path, make: Make, tmp_path: Path) -> None:
    config = ready_dir / "install-config.yaml"
    config.write_text(config.read_text() + "compute:\n- name: worker\n  replicas: 0\n")
    make(ready_dir)
    with rack.unhurried_lab(tmp_path / "lab", SPEED) as lab:
        scene = rack.Rack(lab, ready_dir, names=("api", "api-int"))
        scene.power_on()
        scene.until(lambda: _handed_over(scene), "the cluster stands on its masters")

        ended = scene.moorage("wait-for", "install-complete", "-o", "json")

    assert ended.returncode == errors.INSTALL, ended.stderr
    told = json.loads(ended.stdout)["error"]
    assert "authentication is not available" in told
    assert f"lookup oauth-openshift.apps.{rack.DOMAIN}" in told
    assert "no such host" in told


def _handed_over(scene: rack.Rack) -> bool:
    return any(found["state"] == "handed over" for found in scene.lab.control("GET", "/lab")["clusters"])
