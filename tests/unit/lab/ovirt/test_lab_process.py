"""Every lab has an engine: whoever has its folder can get in, and nothing of it stays when the lab has stopped."""

from __future__ import annotations

import contextlib
import json
import os
import stat
from collections.abc import Iterator
from pathlib import Path

import ovirtsdk4
import pytest
import yaml

from moorage.lab import client


@contextlib.contextmanager
def lab(folder: Path) -> Iterator[client.Lab]:
    found = client.start(folder, 200.0)
    try:
        yield found
    finally:
        client.stop(found)
        with contextlib.suppress(ChildProcessError):
            os.waitpid(found.pid, 0)


def test_the_folder_lets_its_owner_in(tmp_path: Path) -> None:
    with lab(tmp_path) as found:
        path = Path(found.environment["OVIRT_CONFIG"])
        config = yaml.safe_load(path.read_text())
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert set(config) == {"ovirt_url", "ovirt_fqdn", "ovirt_username", "ovirt_password", "ovirt_ca_bundle"}
        assert found.ovirt["url"] == config["ovirt_url"] == f"https://{config['ovirt_fqdn']}/ovirt-engine/api"
        assert Path(found.ovirt["ca_file"]).read_text() == config["ovirt_ca_bundle"]

        connection = ovirtsdk4.Connection(
            url=config["ovirt_url"],
            username=config["ovirt_username"],
            password=config["ovirt_password"],
            ca_file=found.ovirt["ca_file"],
        )
        assert connection.test(raise_exception=True)
        connection.close()
        viewer = ovirtsdk4.Connection(
            url=config["ovirt_url"],
            username="viewer@internal",
            password=found.ovirt["viewer_password"],
            ca_file=found.ovirt["ca_file"],
        )
        assert viewer.system_service().get().summary.vms.total == 1
        viewer.close()

        # What the lab tells about itself holds no password
        told = json.dumps(found.control("GET", "/lab")) + (tmp_path / client.LOG).read_text()
        assert set(found.control("GET", "/lab")["ovirt"]) == {"url", "fqdn", "username", "ca_file"}
        assert config["ovirt_password"] not in told
        assert found.ovirt["viewer_password"] not in told
        assert [each["name"] for each in found.control("GET", "/lab/ovirt")["vms"]] == ["intranet"]
        calls = found.control("GET", "/lab/calls?service=ovirt")
        assert {each["who"] for each in calls} >= {"admin@internal", "viewer@internal"}
    assert sorted(each.name for each in tmp_path.iterdir()) == ["lab.log", "lock"]


def test_who_does_not_trust_its_authority_stays_out(tmp_path: Path) -> None:
    with lab(tmp_path) as found:
        connection = ovirtsdk4.Connection(url=found.ovirt["url"], username="admin@internal", password="x")
        with pytest.raises(ovirtsdk4.Error, match=r"certificate|SSL"):
            connection.test(raise_exception=True)
