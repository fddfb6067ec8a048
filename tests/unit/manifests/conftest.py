"""A cluster to make manifests for: real certificates, a platform with everything and one with nothing."""

from __future__ import annotations

import base64
import datetime
import ipaddress
import json
from collections.abc import Callable, Mapping
from typing import Any

import pytest
import yaml
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from moorage.assets import graph, manifests, platform, values
from moorage.config import model
from moorage.platforms.none import config as none_config
from moorage.platforms.none import manifests as none

DOMAIN = "berth.example.org"
PULL_SECRET = json.dumps(
    {"auths": {"registry.example.org": {"auth": base64.b64encode(b"pilot:harbour-light").decode()}}}
)
START = datetime.datetime(2026, 1, 2, 3, 4, 5, tzinfo=datetime.UTC)
END = datetime.datetime(2036, 1, 2, 3, 4, 5, tzinfo=datetime.UTC)

Make = Callable[..., Mapping[str, bytes]]


class Harbour(none.NoPlatform):
    """A platform that brings all a platform can bring."""

    name = "harbour"

    def api_vips(self, config: model.InstallConfig) -> tuple[str, ...]:
        return ("10.0.0.5",)

    def ingress_vips(self, config: model.InstallConfig) -> tuple[str, ...]:
        return ("10.0.0.6",)

    def infrastructure(self, context: platform.Context) -> platform.Infrastructure:
        return platform.Infrastructure(
            type="External",
            spec={"external": {"platformName": "harbour"}},
            status={"external": {"cloudControllerManager": {"state": "External"}}},
        )

    def cloud_config(self, context: platform.Context) -> Mapping[str, str]:
        return {"harbour.conf": "[berth]\nnumber = 7\n"}

    def credentials(self, context: platform.Context) -> tuple[str, Mapping[str, str]] | None:
        return "harbour-credentials", {"token": "s3same"}

    def masters(self, context: platform.Context) -> list[values.Manifest]:
        return [
            _machine("Machine", f"{context.infra_id}-master-{n}") for n in range(context.config.control_plane_replicas)
        ]

    def control_plane_machine_set(self, context: platform.Context) -> values.Manifest | None:
        return _machine("ControlPlaneMachineSet", "cluster")

    def workers(self, context: platform.Context) -> list[values.Manifest]:
        return [_machine("MachineSet", f"{context.infra_id}-{pool.name}") for pool in context.config.compute]

    def extra(self, context: platform.Context) -> Mapping[str, values.Manifest]:
        pier = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "pier", "namespace": "openshift-pier"}}
        buoy = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "buoy", "namespace": "openshift-pier"}}
        return {"pier.yaml": pier, "99_buoy.yaml": buoy}


class Cloud(Harbour):
    """A platform whose cloud has balancers of its own, so that it brings no VIPs."""

    def ingress_vips(self, config: model.InstallConfig) -> tuple[str, ...]:
        return ()


def _machine(kind: str, name: str) -> values.Manifest:
    metadata = {"name": name, "namespace": "openshift-machine-api"}
    return {"apiVersion": "machine.openshift.io/v1beta1", "kind": kind, "metadata": metadata, "spec": {}}


def _certificate(
    subject: str, issuer: str, signer: ec.EllipticCurvePrivateKey | None
) -> tuple[values.CertKey, ec.EllipticCurvePrivateKey]:
    key = ec.generate_private_key(ec.SECP256R1())
    names = [x509.DNSName(f"api-int.{DOMAIN}"), x509.IPAddress(ipaddress.ip_address("10.0.0.5"))]
    certificate = (
        x509.CertificateBuilder()
        .subject_name(_named(subject))
        .issuer_name(_named(issuer))
        .public_key(key.public_key())
        .serial_number(7)
        .not_valid_before(START)
        .not_valid_after(END)
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .sign(signer or key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    private = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    return values.CertKey(certificate.public_bytes(pem).decode(), private.decode()), key


def _named(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])


@pytest.fixture(scope="session")
def pairs() -> tuple[values.CertKey, values.CertKey]:
    """The root CA and the machine-config-server's certificate that it signed."""
    root, key = _certificate("root-ca", "root-ca", None)
    server, _ = _certificate("system:machine-config-server", "root-ca", key)
    return root, server


@pytest.fixture(scope="session")
def endpoints() -> values.Endpoints:
    return values.Endpoints(
        cluster_domain=DOMAIN,
        api=f"api.{DOMAIN}",
        api_int=f"api-int.{DOMAIN}",
        internal_host=f"api-int.{DOMAIN}",
        api_vips=(),
        ingress_vips=(),
        service_addresses=("172.30.0.1",),
    )


def configure(**changes: Any) -> model.InstallConfig:
    """A valid install-config; ``changes`` are its fields, and ``masters`` and ``workers`` the numbers of machines."""
    pools = {
        "control_plane": model.ControlPlanePool(replicas=changes.pop("masters", 3)),
        "compute": (model.MachinePool(replicas=changes.pop("workers", 3)),),
    }
    fields = {
        "metadata": model.Metadata(name="berth"),
        "base_domain": "example.org",
        "platform": model.ChosenPlatform(name="none", settings=none_config.Platform()),
        "pull_secret": PULL_SECRET,
        **pools,
        **changes,
    }
    return model.InstallConfig(**fields)


@pytest.fixture(name="configure", scope="session")
def _configure() -> Callable[..., model.InstallConfig]:
    return configure


@pytest.fixture
def release() -> values.Release:
    return values.Release(
        version="4.20.1",
        stream="ocp",
        pull_spec="quay.example.org/release@sha256:" + "0" * 64,
        os_image="",
        architecture="amd64",
        channel="stable-4.20",
    )


@pytest.fixture
def make(pairs: tuple[values.CertKey, values.CertKey], endpoints: values.Endpoints, release: values.Release) -> Make:
    """Every manifest of a cluster by path, computed through the graph as the product does it."""

    def run(
        config: model.InstallConfig | None = None,
        *,
        on: platform.Manifests = none.MANIFESTS,
        release: values.Release = release,
    ) -> Mapping[str, bytes]:
        computed: dict[str, Any] = {
            "install_config": config or configure(),
            "platform": on,
            "release": release,
            "cluster_id": values.ClusterID("berth-x7k2p", "3f2b8c1e-7d4a-4c55-9e0b-2a6d1f908b77"),
            "endpoints": endpoints,
            "root_ca": pairs[0],
            "machine_config_server": pairs[1],
            "kubeadmin_hash": "$2b$10$abcdefghijklmnopqrstuv",
            "master_ign": b'{"ignition":{"version":"3.2.0"}}',
            "worker_ign": b'{"ignition":{"version":"3.2.0","config":{}}}',
            "invoker": "user",
        }
        types = {name: _INPUT_TYPES[name] for name in computed}
        assets = graph.collect(manifests.MODULES, types)
        for name in assets.order:
            node = assets.assets[name]
            if node.make is not None:
                computed[name] = node.make(**{need: computed[need] for need in node.needs})
        return {**computed["manifests"], **computed["openshift"]}

    return run


_INPUT_TYPES: dict[str, Any] = {
    "install_config": model.InstallConfig,
    "platform": platform.Manifests,
    "release": values.Release,
    "cluster_id": values.ClusterID,
    "endpoints": values.Endpoints,
    "root_ca": values.CertKey,
    "machine_config_server": values.CertKey,
    "kubeadmin_hash": str,
    "master_ign": bytes,
    "worker_ign": bytes,
    "invoker": str,
}


@pytest.fixture
def parsed(make: Make) -> Callable[..., dict[str, Any]]:
    """The same as objects, by file name without its folder."""

    def run(config: model.InstallConfig | None = None, **more: Any) -> dict[str, Any]:
        return {path.partition("/")[2]: yaml.safe_load(content) for path, content in make(config, **more).items()}

    return run


@pytest.fixture
def harbour() -> Harbour:
    return Harbour()


@pytest.fixture
def cloud() -> Cloud:
    return Cloud()
