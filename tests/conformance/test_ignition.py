"""The real Ignition engine reads our configs: pointers over TLS, the bootstrap node's files and units."""

from __future__ import annotations

import json
import stat
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conformance import ignition
from tests.conftest import SSH_KEY

ADDRESS = "127.62.26.23"
HOSTS = f"127.0.0.1 localhost\n{ADDRESS} api-int.harbour.example.com\n"
ANSWER = json.dumps(
    {
        "ignition": {"version": "3.2.0"},
        "storage": {"files": [{"path": "/etc/from-mcs", "mode": 420, "contents": {"source": "data:,fetched"}}]},
    }
).encode()


@pytest.fixture
def work() -> Iterator[Path]:
    """A folder that user core can walk through: Ignition writes the authorized keys under that identity."""
    with tempfile.TemporaryDirectory(prefix="moorage-ignition-") as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


@pytest.mark.needs("ignition-validate")
@pytest.mark.parametrize("name", ["bootstrap.ign", "master.ign", "worker.ign"])
def test_validates(cluster_dir: Path, name: str) -> None:
    done = subprocess.run(["ignition-validate", cluster_dir / name], capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stdout + done.stderr
    assert not (done.stdout + done.stderr).strip(), "a warning is a defect too"


def mcs_files(cluster_dir: Path, work: Path) -> tuple[Path, Path]:
    """The server's certificate and key as the bootstrap node gets them."""
    embedded = ignition.embedded(cluster_dir / "bootstrap.ign")
    paths = work / "mcs.crt", work / "mcs.key"
    for path in paths:
        path.write_bytes(embedded[f"/opt/openshift/tls/machine-config-server{path.suffix}"])
    return paths


@pytest.mark.needs("ignition", "unshare", "root")
@pytest.mark.parametrize("role", ["master", "worker"])
def test_pointer_fetches_from_the_machine_config_server(cluster_dir: Path, work: Path, role: str) -> None:
    root = ignition.prepare(work)
    cert, key = mcs_files(cluster_dir, work)

    with ignition.machine_config_server(ADDRESS, cert, key, ANSWER) as asked:
        done = ignition.run(work, cluster_dir / f"{role}.ign", HOSTS)

    assert done.returncode == 0, done.stdout[-3000:]
    assert (root / "etc/from-mcs").read_text() == "fetched"
    assert {path for path, _ in asked} == {f"/config/{role}"}
    assert all("application/vnd.coreos.ignition+json" in accept for _, accept in asked)


@pytest.mark.needs("ignition", "unshare", "root")
def test_pointer_refuses_a_server_of_another_ca(cluster_dir: Path, work: Path) -> None:
    root = ignition.prepare(work)
    cert, key = work / "other.crt", work / "other.key"
    subprocess.run(
        [
            *("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=impostor", "-days", "1"),
            *("-addext", "subjectAltName=DNS:api-int.harbour.example.com", "-keyout", key, "-out", cert),
        ],
        check=True,
        capture_output=True,
    )

    with ignition.machine_config_server(ADDRESS, cert, key, ANSWER) as asked:
        done = ignition.run(work, cluster_dir / "worker.ign", HOSTS, seconds=4)

    assert done.returncode != 0
    assert asked == []
    assert "certificate signed by unknown authority" in done.stdout
    assert not (root / "etc/from-mcs").exists()


@pytest.mark.needs("ignition", "unshare", "root")
def test_bootstrap_writes_everything(cluster_dir: Path, work: Path) -> None:
    root = ignition.prepare(work)

    done = ignition.run(work, cluster_dir / "bootstrap.ign")

    assert done.returncode == 0, done.stdout[-3000:]
    config = json.loads((cluster_dir / "bootstrap.ign").read_bytes())
    embedded = ignition.embedded(cluster_dir / "bootstrap.ign")
    for path, content in embedded.items():
        assert (root / path.lstrip("/")).read_bytes() == content, path
    for file in config["storage"]["files"]:
        mode = stat.S_IMODE((root / file["path"].lstrip("/")).stat().st_mode)
        assert mode == file["mode"], file["path"]
        if "append" in file:
            assert (root / file["path"].lstrip("/")).read_text().startswith("Welcome.\n")
    for unit in config["systemd"]["units"]:
        if "contents" in unit:
            assert (root / "etc/systemd/system" / unit["name"]).read_text() == unit["contents"]
        for dropin in unit.get("dropins", []):
            assert (root / f"etc/systemd/system/{unit['name']}.d" / dropin["name"]).exists()
    preset = next((root / "etc/systemd/system-preset").iterdir()).read_text()
    assert "enable kubelet.service" in preset
    authorized = (root / "home/core/.ssh/authorized_keys.d/ignition").read_text()
    assert SSH_KEY in authorized
