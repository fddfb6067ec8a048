"""Words for stories about machines, disks and images: what a client of the engine does, by the vendor's SDK."""

from __future__ import annotations

import http.client
import ssl
import struct
import urllib.parse
from collections.abc import Callable
from typing import Any

import ovirtsdk4
import pytest
from ovirtsdk4 import types

from tests.unit.lab.ovirt import engine_world

MIB, GIB = 1024**2, 1024**3
SPEED = 1000.0
# For durations that shall outlast a test, so that it can look at what goes on.
FOR_EVER = (1e6, 1e6)
IGNITION = '{"ignition":{"version":"3.2.0"}}'


def refused(deed: Callable[[], object]) -> tuple[int, str]:
    """The status and the detail of a refusal."""
    with pytest.raises(ovirtsdk4.Error) as caught:
        deed()
    fault = caught.value.fault
    return caught.value.code, "" if fault is None else fault.detail


def wanted(name: str, template: str = "centos", **more: Any) -> types.Vm:
    """A machine to ask for."""
    return types.Vm(name=name, cluster=types.Cluster(name="Default"), template=types.Template(name=template), **more)


class World:
    """A client of one engine."""

    def __init__(self, running: engine_world.Running) -> None:
        self.running = running
        self.api = running.connect().system_service()
        self.vms = self.api.vms_service()
        self.disks = self.api.disks_service()
        self.templates = self.api.templates_service()
        self.transfers = self.api.image_transfers_service()

    def until(self, condition: Callable[[], bool], seconds: float = 30 * SPEED) -> None:
        self.running.until(condition, seconds)

    # --- machines ---

    def vm(self, name: str, *, clone: bool = False, template: str = "centos", **more: Any) -> Any:
        """Make a machine and wait until it can be used; the answer is its service."""
        made = self.vms.add(wanted(name, template, **more), clone=clone)
        service = self.vms.vm_service(made.id)
        self.until(lambda: service.get().status == types.VmStatus.DOWN)
        return service

    def started(self, name: str, **more: Any) -> Any:
        """A machine that is up."""
        service = self.vm(name, **more)
        service.start()
        self.until(lambda: service.get().status == types.VmStatus.UP)
        return service

    def status(self, service: Any) -> str:
        return str(service.get().status.value)

    # --- disks ---

    def disk(self, name: str, size: int = 10 * GIB, *, form: str = "cow", domain: str = "data", **more: Any) -> Any:
        """Make a disk and wait until nothing goes on with it; the answer is its service."""
        made = self.disks.add(self.disk_wanted(name, size, form=form, domain=domain, **more))
        service = self.disks.disk_service(made.id)
        self.free(service)
        return service

    def disk_wanted(
        self, name: str, size: int = 10 * GIB, *, form: str = "cow", domain: str = "data", **more: Any
    ) -> types.Disk:
        return types.Disk(
            name=name,
            provisioned_size=size,
            format=types.DiskFormat(form),
            storage_domains=[types.StorageDomain(name=domain)],
            **more,
        )

    def free(self, service: Any) -> None:
        """Wait until a disk is OK and its job has ended."""
        self.until(lambda: service.get().status == types.DiskStatus.OK)
        identity = service.get().id
        self.until(lambda: not self.running.engine.locks.held("disks", identity))

    def space(self, domain: str = "data") -> int:
        """The bytes that are free on a domain."""
        found = self.api.storage_domains_service().list(search=f"name={domain}")
        return int(found[0].available)

    # --- images ---

    def opened(self, disk: Any, **more: Any) -> tuple[Any, types.ImageTransfer]:
        """A transfer that is ready for bytes, and its service."""
        made = self.transfers.add(types.ImageTransfer(disk=types.Disk(id=disk.get().id), **more))
        service = self.transfers.image_transfer_service(made.id)
        self.until(lambda: service.get().phase == types.ImageTransferPhase.TRANSFERRING)
        return service, service.get()

    def send(self, url: str, method: str, body: bytes | str | None = None, **headers: str) -> http.client.HTTPResponse:
        """Talk to the image daemon as the SDK's examples do; the answer has been read."""
        where = urllib.parse.urlsplit(url)
        tls = ssl.create_default_context(cafile=str(self.running.ca_file))
        connection = http.client.HTTPSConnection(str(where.hostname), where.port, context=tls, timeout=30)
        try:
            path = where.path + (f"?{where.query}" if where.query else "")
            connection.request(method, path, body, {key.replace("_", "-"): value for key, value in headers.items()})
            reply = connection.getresponse()
            reply.content = reply.read()  # type: ignore[attr-defined]
        finally:
            connection.close()
        return reply

    def put(self, url: str, content: bytes, at: int = 0, flush: str = "n") -> int:
        """Send a piece of an image; the answer is the status."""
        end = at + len(content) - 1
        return self.send(f"{url}?flush={flush}", "PUT", content, Content_Range=f"bytes {at}-{end}/*").status

    def phase(self, service: Any) -> str:
        return str(service.get().phase.value)


def qcow2(virtual_size: int, size: int = 2 * MIB, *, version: int = 3, backing: int = 0) -> bytes:
    """Something with the header of a qcow2 image, and bytes behind it."""
    header = struct.pack(">4sIQIIQ", b"QFI\xfb", version, backing, 0, 16, virtual_size)
    return (header + bytes(range(256)) * (size // 256 + 1))[:size]
