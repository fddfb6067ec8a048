"""The vendor's SDK is used as its own example scripts use it, against a lab that is a process of its own.

Nothing of the product is imported here but the lab's client, which starts and stops it: what passes here would pass
against any engine that keeps its word.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import ssl
import struct
import time
import urllib.parse
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO

import ovirtsdk4 as sdk
import pytest
import yaml
from ovirtsdk4 import types

from moorage.lab import client

SPEED = 300.0
PATIENCE = 60.0
MIB, GIB = 1024**2, 1024**3
BUFFER = 128 * 1024


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[client.Lab]:
    found = client.start(tmp_path_factory.mktemp("lab"), SPEED)
    try:
        yield found
    finally:
        client.stop(found)
        with contextlib.suppress(ChildProcessError):
            os.waitpid(found.pid, 0)


@pytest.fixture
def connection(lab: client.Lab) -> Iterator[sdk.Connection]:
    """As the examples begin: the URL, a user with a password, the engine's CA."""
    config = yaml.safe_load(Path(lab.environment["OVIRT_CONFIG"]).read_text())
    made = sdk.Connection(
        url=config["ovirt_url"],
        username=config["ovirt_username"],
        password=config["ovirt_password"],
        ca_file=lab.ovirt["ca_file"],
    )
    yield made
    made.close()


def until(condition: Callable[[], bool]) -> None:
    """The examples' loops around time.sleep, with an end."""
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_connecting_and_listing(connection: sdk.Connection, lab: client.Lab) -> None:
    connection.test(raise_exception=True)
    system = connection.system_service()

    assert system.get().product_info.name == "oVirt Engine"
    assert "intranet" in [vm.name for vm in system.vms_service().list()]
    assert [host.name for host in system.hosts_service().list(search="cluster=Edge")] == ["edge-1", "edge-2"]
    assert {domain.name for domain in system.storage_domains_service().list()} >= {"data", "iso"}
    [vm] = system.vms_service().list(search="name=intranet", follow="diskattachments.disk,nics")
    assert vm.disk_attachments[0].disk.provisioned_size > 0
    cluster = system.clusters_service().list(search="name=Default")[0]
    networks = system.clusters_service().cluster_service(cluster.id).networks_service().list()
    assert {network.name for network in networks} == {"ovirtmgmt", "storage"}
    with pytest.raises(sdk.AuthError):
        sdk.Connection(
            url=lab.ovirt["url"], username="admin@internal", password="wrong", ca_file=lab.ovirt["ca_file"]
        ).test(raise_exception=True)


def test_a_machine_from_its_making_to_its_removal(connection: sdk.Connection, lab: client.Lab) -> None:
    system = connection.system_service()
    vms_service = system.vms_service()
    profile = system.vnic_profiles_service().list(search="name=ovirtmgmt")[0]

    vm = vms_service.add(
        types.Vm(
            name="myvm",
            cluster=types.Cluster(name="Default"),
            template=types.Template(name="centos"),
            os=types.OperatingSystem(type="rhcos_x64"),
            memory=2 * GIB,
            initialization=types.Initialization(
                custom_script=json.dumps({"ignition": {"version": "3.2.0"}}), host_name="myvm"
            ),
        )
    )
    vm_service = vms_service.vm_service(vm.id)
    with pytest.raises(sdk.Error, match="already in use"):
        vms_service.add(
            types.Vm(name="myvm", cluster=types.Cluster(name="Default"), template=types.Template(name="Blank"))
        )
    until(lambda: vm_service.get().status == types.VmStatus.DOWN)

    vm_service.nics_service().add(types.Nic(name="nic1", vnic_profile=types.VnicProfile(id=profile.id)))
    attachments_service = vm_service.disk_attachments_service()
    attachment = attachments_service.list()[0]
    attachments_service.attachment_service(attachment.id).update(
        types.DiskAttachment(disk=types.Disk(provisioned_size=120 * GIB))
    )
    disk_service = system.disks_service().disk_service(attachment.disk.id)
    until(lambda: disk_service.get().provisioned_size == 120 * GIB)
    tag = system.tags_service().add(types.Tag(name="mytag"))
    vm_service.tags_service().add(types.Tag(name="mytag"))

    def refusal() -> str:
        try:
            vm_service.start(use_initialization=True)
        except sdk.Error as error:
            return str(error)
        return ""

    # The disk says that it is OK before the engine is done with it.
    until(lambda: "Please try again" not in refusal())
    until(lambda: vm_service.get().status == types.VmStatus.UP)
    devices_service = vm_service.reported_devices_service()
    until(lambda: bool(devices_service.list()))
    address = next(ip.address for device in devices_service.list() for ip in device.ips)
    [machine] = [each for each in lab.control("GET", "/lab")["machines"] if each["name"] == "myvm"]
    assert (machine["address"], machine["state"]) == (address, "running")
    assert [found.id for found in vms_service.list(search="tag=mytag")] == [vm.id]

    # Its power goes, and the engine learns of it.
    lab.control("POST", "/lab/machines/myvm/kill")
    until(lambda: vm_service.get().status == types.VmStatus.DOWN)
    vm_service.start()
    until(lambda: vm_service.get().status == types.VmStatus.UP)
    vm_service.shutdown()
    until(lambda: vm_service.get().status == types.VmStatus.DOWN)
    vm_service.remove()
    until(lambda: not vms_service.list(search="name=myvm"))
    system.tags_service().tag_service(tag.id).remove()
    with pytest.raises(sdk.NotFoundError):
        vm_service.get()
    with pytest.raises(sdk.NotFoundError):
        disk_service.get()


def image_file(path: Path, virtual_size: int, data: int, size: int) -> Path:
    """A qcow2-like file: a header, data, and then a hole up to its size."""
    with path.open("wb") as file:
        file.write(struct.pack(">4sIQIIQ", b"QFI\xfb", 3, 0, 0, 16, virtual_size))
        block = os.urandom(MIB)
        while file.tell() < data:
            file.write(block)
        file.truncate(size)
    return path


def resident(pid: int) -> int:
    """Bytes of memory that a process holds."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmRSS"))


def put(proxy: http.client.HTTPSConnection, path: str, file: IO[bytes], start: int, end: int) -> None:
    """Send a range of a file in one request, as the example for uploads does."""
    proxy.putrequest("PUT", f"{path}?flush=n")
    proxy.putheader("Content-Range", f"bytes {start}-{end - 1}/*")
    proxy.putheader("Content-Length", f"{end - start}")
    proxy.endheaders()
    file.seek(start)
    while (left := end - file.tell()) > 0:
        proxy.send(file.read(min(BUFFER, left)))
    reply = proxy.getresponse()
    assert reply.status == 200, reply.read()
    reply.read()


def zero(proxy: http.client.HTTPSConnection, path: str, start: int, end: int) -> None:
    proxy.request("PATCH", path, json.dumps({"op": "zero", "offset": start, "size": end - start}))
    reply = proxy.getresponse()
    assert reply.status == 200, reply.read()
    reply.read()


def test_uploading_an_image(connection: sdk.Connection, lab: client.Lab, tmp_path: Path) -> None:
    system = connection.system_service()
    data, size = 200 * MIB, 16 * GIB
    path = image_file(tmp_path / "disk.qcow2", 16 * GIB, data, size)
    disks_service = system.disks_service()
    disk = disks_service.add(
        types.Disk(
            name="mydisk",
            description="Uploaded disk",
            format=types.DiskFormat.COW,
            initial_size=data,
            provisioned_size=16 * GIB,
            sparse=True,
            storage_domains=[types.StorageDomain(name="data")],
        ),
        query={"correlation_id": "mydisk"},
    )
    disk_service = disks_service.disk_service(disk.id)
    until(lambda: disk_service.get().status == types.DiskStatus.OK)
    jobs_service = system.jobs_service()
    until(lambda: jobs_service.list(search="correlation_id=mydisk")[0].status == types.JobStatus.FINISHED)

    transfers_service = system.image_transfers_service()
    transfer = transfers_service.add(
        types.ImageTransfer(disk=types.Disk(id=disk.id), direction=types.ImageTransferDirection.UPLOAD)
    )
    transfer_service = transfers_service.image_transfer_service(transfer.id)
    until(lambda: transfer_service.get().phase != types.ImageTransferPhase.INITIALIZING)
    url = urllib.parse.urlparse(transfer_service.get().transfer_url)
    proxy = http.client.HTTPSConnection(
        str(url.hostname), url.port, context=ssl.create_default_context(cafile=lab.ovirt["ca_file"])
    )
    proxy.request("OPTIONS", url.path)
    options = json.loads(proxy.getresponse().read())
    before = resident(lab.pid)
    with path.open("rb") as file:
        end = os.lseek(file.fileno(), 0, os.SEEK_HOLE)
        put(proxy, url.path, file, 0, end)
        zero(proxy, url.path, end, size)
        proxy.request("PATCH", url.path, json.dumps({"op": "flush"}))
        assert proxy.getresponse().status == 200
    grown = resident(lab.pid) - before
    proxy.close()
    transfer_service.finalize()
    until(lambda: transfer_service.get().phase == types.ImageTransferPhase.FINISHED_SUCCESS)

    assert {"extents", "zero", "flush"} <= set(options["features"])
    assert grown < 48 * MIB
    until(lambda: disk_service.get().status == types.DiskStatus.OK)
    assert data <= disk_service.get().actual_size < 2 * data
    assert transfer_service.get().transferred == size
