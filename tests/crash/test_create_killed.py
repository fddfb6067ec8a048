"""kill -9 at any moment of `create ignition-configs`; the same command again must end as if nothing had happened."""

from __future__ import annotations

import base64
import json
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml
from cryptography import x509
from cryptography.hazmat.primitives import serialization

from moorage.assets import store

TRIALS = 50
EXPECTED = {
    "bootstrap.ign",
    "master.ign",
    "worker.ign",
    "metadata.json",
    "auth/kubeconfig",
    "auth/kubeadmin-password",
    "install-config.yaml",
}
TLS = "/opt/openshift/tls/"


def command(directory: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "moorage", "create", "ignition-configs", "-o", "json", "--dir", str(directory)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def kill_at_a_random_moment(directory: Path, chance: random.Random) -> None:
    """Half of the trials anywhere in the run, half in the short time in which files are put in place."""
    process = command(directory)
    if chance.random() < 0.5:
        until = time.monotonic() + chance.uniform(0, 2)
        while process.poll() is None and time.monotonic() < until:
            time.sleep(0.001)
    else:
        staging = directory / ".moorage_tmp"
        while process.poll() is None and not staging.exists():
            time.sleep(0.0005)
        time.sleep(chance.uniform(0, 0.03))
    process.send_signal(signal.SIGKILL)
    process.communicate()


@pytest.mark.parametrize(
    "seed", [pytest.param(seed, marks=[pytest.mark.long] if seed % 5 else []) for seed in range(TRIALS)]
)
def test_the_same_command_again_completes(asset_dir: Path, seed: int) -> None:
    kill_at_a_random_moment(asset_dir, random.Random(seed))
    survived = {path: path.read_bytes() for path in asset_dir.rglob("*") if path.is_file() and path.suffix == ".ign"}

    process = command(asset_dir)
    output, talk = process.communicate(timeout=60)

    assert process.returncode == 0, talk
    assert json.loads(output)["notes"] == [], "an interrupted run was taken for the user's doing"
    assert_complete(asset_dir)
    for path, content in survived.items():
        assert path.read_bytes() == content, f"{path.name} was handed out once and is another one now"


def assert_complete(directory: Path) -> None:
    """Everything is there, belongs together, and nothing else lies around."""
    found = {path.relative_to(directory).as_posix() for path in directory.rglob("*") if path.is_file()}
    assert {name for name in found if not name.startswith(".moorage")} == EXPECTED
    assert not (directory / ".moorage_tmp").exists()
    assert store.load(directory).pending == {}
    files = {
        file["path"]: base64.b64decode(file["contents"]["source"].partition(",")[2])
        for file in json.loads((directory / "bootstrap.ign").read_bytes())["storage"]["files"]
        if "contents" in file
    }
    assert_pointers(directory, files[f"{TLS}root-ca.crt"])
    assert_kubeconfig(directory, files)
    for path, content in files.items():
        if path.startswith(TLS) and path.endswith(".key") and path.replace(".key", ".crt") in files:
            cert = x509.load_pem_x509_certificate(files[path.replace(".key", ".crt")])
            assert serialization.load_pem_private_key(content, None).public_key() == cert.public_key(), path
    infra_id = json.loads((directory / "metadata.json").read_bytes())["infraID"]
    infrastructure = yaml.safe_load(files["/opt/openshift/manifests/cluster-infrastructure-02-config.yml"])
    assert infrastructure["status"]["infrastructureName"] == infra_id


def assert_pointers(directory: Path, root_ca: bytes) -> None:
    for role in ("master", "worker"):
        pointer = json.loads((directory / f"{role}.ign").read_bytes())
        trusted = pointer["ignition"]["security"]["tls"]["certificateAuthorities"][0]["source"]
        assert base64.b64decode(trusted.partition(",")[2]) == root_ca


def assert_kubeconfig(directory: Path, files: dict[str, bytes]) -> None:
    config = yaml.safe_load((directory / "auth/kubeconfig").read_bytes())
    client = base64.b64decode(config["users"][0]["user"]["client-certificate-data"])
    signer = x509.load_pem_x509_certificate(files[f"{TLS}admin-kubeconfig-ca-bundle.crt"])
    x509.load_pem_x509_certificate(client).verify_directly_issued_by(signer)
    trusted = base64.b64decode(config["clusters"][0]["cluster"]["certificate-authority-data"])
    assert trusted == files[f"{TLS}kube-apiserver-complete-server-ca-bundle.crt"]
