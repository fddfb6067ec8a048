"""Every topology, family and option: ignition-validate accepts all three configs."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from moorage.installer import produce
from tests.conformance import ignition
from tests.conftest import INSTALL_CONFIG

VARIANTS = {
    "compact": ("compute: [{name: worker, replicas: 0}]", {}),
    "single node": ("controlPlane: {name: master, replicas: 1}\ncompute: [{name: worker, replicas: 0}]", {}),
    "arm64": (
        "controlPlane: {name: master, architecture: arm64}\ncompute: [{name: worker, architecture: arm64}]",
        {},
    ),
    "ppc64le": (
        "controlPlane: {name: master, architecture: ppc64le}\ncompute: [{name: worker, architecture: ppc64le}]",
        {},
    ),
    "okd": ("", {"MOORAGE_STREAM": "okd"}),
    "dual stack": (
        "networking:\n"
        "  machineNetwork: [{cidr: 10.0.0.0/16}, {cidr: 'fd00::/64'}]\n"
        "  clusterNetwork: [{cidr: 10.128.0.0/14, hostPrefix: 23}, {cidr: 'fd01::/48', hostPrefix: 64}]\n"
        "  serviceNetwork: [172.30.0.0/16, 'fd02::/112']",
        {},
    ),
    "IPv6": (
        "networking:\n"
        "  machineNetwork: [{cidr: 'fd00::/64'}]\n"
        "  clusterNetwork: [{cidr: 'fd01::/48', hostPrefix: 64}]\n"
        "  serviceNetwork: ['fd02::/112']",
        {},
    ),
    "proxy and mirrors": (
        "proxy: {httpProxy: 'http://u:p%40ss@proxy.example.com:3128', httpsProxy: 'http://proxy.example.com:3128', "
        "noProxy: '.corp.example.com,10.9.0.0/16'}\n"
        "imageDigestSources:\n"
        "- {source: quay.io/openshift-release-dev/ocp-release, mirrors: [mirror.example.com/ocp]}",
        {},
    ),
    "no SMT, pinned release": (
        "controlPlane: {name: master, hyperthreading: Disabled}\ncompute: [{name: worker, hyperthreading: Disabled}]",
        {"OPENSHIFT_INSTALL_RELEASE_IMAGE_OVERRIDE": "registry.example.com/ocp/release:4.20.1-x86_64"},
    ),
}


@pytest.mark.needs("ignition-validate")
@pytest.mark.parametrize("variant", VARIANTS)
def test_the_real_readers_accept(ready_dir: Path, make: Callable[..., produce.Produced], variant: str) -> None:
    more, environ = VARIANTS[variant]
    (ready_dir / "install-config.yaml").write_text(INSTALL_CONFIG + more + "\n")

    make(ready_dir, (*produce.MANIFESTS, *produce.IGNITION_CONFIGS), environ=environ)

    for name in ("bootstrap", "master", "worker"):
        done = subprocess.run(
            ["ignition-validate", ready_dir / f"{name}.ign"], capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
        assert not (done.stdout + done.stderr).strip()
    paths = [file["path"] for file in json.loads((ready_dir / "bootstrap.ign").read_bytes())["storage"]["files"]]
    assert len(paths) == len(set(paths))


@pytest.mark.parametrize(
    ("variant", "control_plane", "infrastructure", "schedulable"),
    [
        ("okd", "HighlyAvailable", "HighlyAvailable", False),
        ("compact", "HighlyAvailable", "HighlyAvailable", True),
        ("single node", "SingleReplica", "SingleReplica", True),
    ],
)
def test_topologies(
    ready_dir: Path,
    make: Callable[..., produce.Produced],
    variant: str,
    control_plane: str,
    infrastructure: str,
    schedulable: bool,
) -> None:
    more, environ = VARIANTS[variant]
    (ready_dir / "install-config.yaml").write_text(INSTALL_CONFIG + more + "\n")

    make(ready_dir, environ=environ)

    embedded = ignition.embedded(ready_dir / "bootstrap.ign")
    manifest = yaml.safe_load(embedded["/opt/openshift/manifests/cluster-infrastructure-02-config.yml"])
    scheduler = yaml.safe_load(embedded["/opt/openshift/manifests/cluster-scheduler-02-config.yml"])
    assert manifest["status"]["controlPlaneTopology"] == control_plane
    assert manifest["status"]["infrastructureTopology"] == infrastructure
    assert scheduler["spec"]["mastersSchedulable"] is schedulable
