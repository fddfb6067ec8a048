"""What the bootstrap machine renders, from the very files that the product puts on its disk."""

from __future__ import annotations

import asyncio
import dataclasses
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from moorage.engine import clock as clocks
from moorage.lab.nodes import credentials, disk, facts, files, ignition, manifests, renders

TLS = "/opt/openshift/tls"
STAGES: dict[str, Callable[[files.Files], None]] = {
    "api": renders.render_api,
    "config": renders.render_config,
    "etcd": renders.render_etcd,
    "kube-apiserver": renders.render_kube_apiserver,
    "kube-controller-manager": renders.render_kube_controller_manager,
    "kube-scheduler": renders.render_kube_scheduler,
    "mco": renders.render_machine_config,
}


@dataclasses.dataclass
class Machine:
    """A machine's disk, without the machine."""

    provisioned: ignition.Provisioned
    kept: dict[str, bytes] = dataclasses.field(default_factory=dict)


@pytest.fixture(scope="module")
def provisioned(cluster_dir: Path) -> ignition.Provisioned:
    async def fetch(*_: object) -> None:
        raise AssertionError("a bootstrap config is complete in itself")

    content = (cluster_dir / "bootstrap.ign").read_bytes()
    return asyncio.run(
        ignition.provision(content, fetch, lambda _line: None, clock=clocks.Clock())  # type: ignore[arg-type]
    )


@pytest.fixture
def machine(provisioned: ignition.Provisioned) -> Machine:
    found = Machine(dataclasses.replace(provisioned, files=dict(provisioned.files)))
    for name, data in files.Files(found).below("/opt/openshift/openshift").items():
        found.kept[f"/opt/openshift/manifests/{name}"] = data
    return found


def rendered(machine: Machine) -> files.Files:
    found = files.Files(machine)
    for render in STAGES.values():
        render(found)
    return found


def spoil(machine: Machine, path: str, content: bytes | None) -> None:
    if content is None:
        machine.kept.pop(path, None)
        machine.provisioned.files.pop(path, None)
    else:
        machine.provisioned.files[path] = disk.File(content)


def test_the_product_s_own_disk_renders(machine: Machine) -> None:
    found = manifests.load(renders.documents(rendered(machine)))

    kinds = {content["kind"] for content in found.values()}
    assert {"CustomResourceDefinition", "Namespace", "Infrastructure", "MachineConfigPool", "KubeAPIServer"} <= kinds
    secret = found["secret-loadbalancer-serving-signer.yaml"]
    assert (secret["metadata"]["namespace"], secret["type"]) == (renders.KUBE_APISERVER_OPERATOR, "kubernetes.io/tls")
    # Every namespaced manifest finds its namespace.
    namespaces = {content["metadata"]["name"] for content in found.values() if content["kind"] == "Namespace"}
    wanted = {content["metadata"].get("namespace") for content in found.values()} - {None, "kube-system"}
    assert wanted <= namespaces


def test_the_facts_are_those_of_the_manifests(machine: Machine) -> None:
    found = facts.read(files.Files(machine))

    assert (found.domain, found.api_host) == ("harbour.example.com", "api.harbour.example.com")
    assert (found.api_int_host, found.control_plane_replicas) == ("api-int.harbour.example.com", 3)
    assert (found.service_address, found.highly_available) == ("172.30.0.1", True)


def test_the_control_plane_shows_the_service_network_s_certificate_by_default(machine: Machine) -> None:
    found = renders.control_plane(files.Files(machine))

    names = [pair.certificate for pair in found.serving]
    assert names[0].encode() == machine.provisioned.files[f"{TLS}/kube-apiserver-service-network-server.crt"].content
    assert len(found.token_keys) == 2


@pytest.mark.parametrize(
    ("stage", "path"),
    [
        ("api", "/opt/openshift/manifests/99_feature-gate.yaml"),
        ("config", "/opt/openshift/manifests/cluster-infrastructure-02-config.yml"),
        ("etcd", "/opt/openshift/manifests/cluster-config.yaml"),
        ("etcd", "/opt/openshift/manifests/cluster-network-02-config.yml"),
        ("kube-apiserver", f"{TLS}/kube-apiserver-internal-lb-server.crt"),
        ("kube-apiserver", f"{TLS}/kube-apiserver-lb-signer.key"),
        ("kube-apiserver", f"{TLS}/kube-apiserver-complete-client-ca-bundle.crt"),
        ("kube-apiserver", f"{TLS}/bound-service-account-signing-key.key"),
        ("kube-apiserver", f"{TLS}/service-account.pub"),
        ("kube-controller-manager", f"{TLS}/kubelet-signer.key"),
        ("kube-controller-manager", f"{TLS}/service-account.key"),
        ("kube-scheduler", f"{TLS}/kube-control-plane-kube-scheduler-client.crt"),
        ("mco", f"{TLS}/machine-config-server.crt"),
        ("mco", "/opt/openshift/auth/kubeconfig-kubelet"),
    ],
)
def test_a_missing_file_is_named_by_the_stage_that_reads_it(machine: Machine, stage: str, path: str) -> None:
    spoil(machine, path, None)

    with pytest.raises((FileNotFoundError, facts.Unreadable)) as told:
        STAGES[stage](files.Files(machine))

    assert str(told.value) == f"open {path}: no such file or directory"


@pytest.mark.parametrize(
    ("stage", "path", "content", "words"),
    [
        ("kube-apiserver", f"{TLS}/kube-apiserver-lb-server.crt", b"paper", "kube-apiserver-lb-server.crt"),
        ("kube-apiserver", f"{TLS}/service-account.pub", b"paper", "service-account.pub: failed to parse public key"),
        ("kube-controller-manager", f"{TLS}/kubelet-signer.key", b"paper", "kubelet-signer.key: failed to parse"),
        ("config", facts.INFRASTRUCTURE, b"status: [", "cluster-infrastructure-02-config.yml"),
        ("config", facts.INFRASTRUCTURE, b"status: {infrastructureName: x}", "status.apiServerURL is not set"),
        ("config", facts.NETWORK, b"spec: {serviceNetwork: [everywhere]}", "spec.serviceNetwork"),
        ("etcd", facts.INSTALL_CONFIG, b"data: {install-config: 'controlPlane: {}'}", "install config"),
    ],
)
def test_a_file_without_sense_is_named(machine: Machine, stage: str, path: str, content: bytes, words: str) -> None:
    spoil(machine, path, content)

    with pytest.raises((credentials.Unusable, facts.Unreadable)) as told:
        STAGES[stage](files.Files(machine))

    assert words in str(told.value)


def test_a_key_of_another_certificate_is_noticed(machine: Machine) -> None:
    other = machine.provisioned.files[f"{TLS}/kube-apiserver-lb-server.key"].content
    spoil(machine, f"{TLS}/machine-config-server.key", other)

    with pytest.raises(credentials.Unusable, match="machine-config-server: tls: private key does not match"):
        renders.render_machine_config(files.Files(machine))


def test_expired_certificates_are_named_and_no_reason_to_stop(machine: Machine) -> None:
    found = files.Files(machine)
    assert renders.expired(found) == []
    dead = credentials.authority("kubelet-signer", credentials.DAY / 86400)
    spoil(machine, f"{TLS}/kubelet-signer.crt", dead.certificate.encode())
    spoil(machine, f"{TLS}/kubelet-signer.key", dead.key.encode())

    [line] = renders.expired(found)

    assert line.startswith(f"{TLS}/kubelet-signer.crt: x509: certificate has expired or is not yet valid: current time")
    renders.render_kube_controller_manager(found)


def test_what_the_user_wrote_is_not_rendered_over(machine: Machine) -> None:
    path = f"{renders.MANIFESTS}/0000_00_namespace-openshift.yaml"
    spoil(machine, path, b"mine")

    renders.render_api(files.Files(machine))

    assert files.Files(machine).read(path) == b"mine"


def test_rendering_twice_gives_the_same(machine: Machine) -> None:
    once = dict(renders.documents(rendered(machine)))

    assert dict(renders.documents(rendered(machine))) == once
    assert json.loads(once["0000_05_dnses.config.openshift.io.crd.yaml"])["kind"] == "CustomResourceDefinition"
