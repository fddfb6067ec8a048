"""Images are uploaded and downloaded through the daemon, as the SDK's examples do it, over TLS; and it goes wrong."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from ovirtsdk4 import types

from moorage.lab import faults
from moorage.lab.ovirt import images, tickets, timing, transfers
from tests.unit.lab.ovirt import engine_world, machines_world
from tests.unit.lab.ovirt.machines_world import GIB, MIB


@pytest.fixture
def world(tmp_path: Path) -> Iterator[machines_world.World]:
    with engine_world.started(tmp_path, machines_world.SPEED) as running:
        yield machines_world.World(running)


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """An engine that takes clients for silent as soon as the cloud's clock says so, and not the world's."""
    monkeypatch.setattr(transfers, "SHORTEST_SILENCE", 0.25)


def finished(world: machines_world.World, service: Any) -> str:
    """The last phase of a transfer that is over."""
    world.until(lambda: world.phase(service) in transfers.FINISHED)
    return world.phase(service)


def ticket_of(world: machines_world.World, transfer: types.ImageTransfer) -> tickets.Ticket:
    found = tickets.of(world.running.engine).find(transfer.transfer_url.rpartition("/")[2])
    assert found is not None
    return found


def content(world: machines_world.World, disk: Any) -> images.Content:
    return images.contents(world.running.engine)[disk.get().id]


def test_an_image_is_uploaded_in_pieces_and_becomes_the_disk(world: machines_world.World) -> None:
    image = machines_world.qcow2(10 * GIB, 3 * MIB)
    disk = world.disk("image", initial_size=len(image))
    service, transfer = world.opened(disk)
    options = world.send(transfer.transfer_url, "OPTIONS")
    for at in range(0, len(image), MIB):
        assert world.put(transfer.transfer_url, image[at : at + MIB], at) == 200
    world.send(transfer.transfer_url, "PATCH", json.dumps({"op": "flush"}))
    locked = disk.get().status
    service.finalize()

    assert finished(world, service) == "finished_success"
    assert (options.status, options.headers["Allow"]) == (200, "OPTIONS,GET,PUT,PATCH")
    assert set(json.loads(options.content)["features"]) >= {"extents", "zero", "flush"}  # type: ignore[attr-defined]
    assert locked == types.DiskStatus.LOCKED
    world.free(disk)
    assert disk.get().actual_size >= len(image)
    assert content(world, disk).sha256() == hashlib.sha256(image).hexdigest()
    assert service.get().transferred == len(image)
    assert world.send(transfer.transfer_url, "GET").status == 403


def test_the_proxy_takes_bytes_as_well(world: machines_world.World) -> None:
    disk = world.disk("image")
    service, transfer = world.opened(disk)

    assert world.put(transfer.proxy_url, machines_world.qcow2(10 * GIB)) == 200
    service.finalize()
    assert finished(world, service) == "finished_success"
    assert transfer.transfer_url.split(":")[2].startswith("54322/images/")
    assert transfer.proxy_url.split(":")[2].startswith("54323/images/")


def test_pieces_may_come_in_any_order_and_twice_and_holes_need_no_bytes(world: machines_world.World) -> None:
    image = machines_world.qcow2(10 * GIB, MIB) + bytes(6 * MIB) + b"end" * 1000
    disk = world.disk("image")
    service, transfer = world.opened(disk)
    url = transfer.transfer_url

    assert world.put(url, image[7 * MIB :], 7 * MIB) == 200
    assert world.put(url, b"x" * MIB) == 200
    hole = world.send(url, "PATCH", json.dumps({"op": "zero", "offset": MIB, "size": 6 * MIB}))
    assert world.put(url, image[:MIB], flush="y") == 200
    service.finalize()

    assert finished(world, service) == "finished_success"
    assert hole.status == 200
    assert content(world, disk).sha256() == hashlib.sha256(image).hexdigest()
    assert content(world, disk).allocated < 3 * MIB
    assert service.get().transferred == len(image)


WRONG = [
    ("not an image", "cow", b"<html>not found</html>" * 100),
    ("of another size", "cow", machines_world.qcow2(5 * GIB)),
    ("of another version", "cow", machines_world.qcow2(10 * GIB, version=9)),
    ("on another image", "cow", machines_world.qcow2(10 * GIB, backing=512)),
    ("a qcow2 image for a raw disk", "raw", machines_world.qcow2(10 * GIB)),
]


@pytest.mark.parametrize(("why", "form", "image"), WRONG, ids=[each[0] for each in WRONG])
def test_an_image_that_is_not_what_the_disk_says_fails_and_the_disk_goes(
    world: machines_world.World, why: str, form: str, image: bytes
) -> None:
    before = world.space()
    disk = world.disk("image", form=form, sparse=True)
    service, transfer = world.opened(disk)
    world.put(transfer.transfer_url, image)
    service.finalize()

    assert finished(world, service) == "finished_failure"
    assert machines_world.refused(disk.get)[0] == 404
    assert world.space() == before


def test_a_raw_image_is_taken_as_it_is(world: machines_world.World) -> None:
    disk = world.disk("raw", 4 * MIB, form="raw", sparse=True)
    service, transfer = world.opened(disk)
    assert world.put(transfer.transfer_url, b"r" * 4 * MIB) == 200
    too_much = world.send(transfer.transfer_url, "PUT", b"x", Content_Range=f"bytes {4 * MIB}-{4 * MIB}/*")
    service.finalize()

    assert too_much.status == 416
    assert too_much.headers["Content-Range"] == f"bytes */{4 * MIB}"
    assert finished(world, service) == "finished_success"


@pytest.mark.usefixtures("impatient")
def test_a_silent_client_finds_the_upload_paused_and_resumes_it(
    world: machines_world.World, monkeypatch: pytest.MonkeyPatch
) -> None:
    image = machines_world.qcow2(10 * GIB)
    disk = world.disk("image")
    service, transfer = world.opened(disk, inactivity_timeout=60)
    world.put(transfer.transfer_url, image[:MIB])
    world.until(lambda: world.phase(service) == "paused_system")

    assert service.get().transferred == MIB
    assert machines_world.refused(disk.remove)[0] == 409
    # From now on nobody shall be taken for silent.
    monkeypatch.setattr(transfers, "SHORTEST_SILENCE", 60.0)
    service.resume()
    world.until(lambda: world.phase(service) == "transferring")
    assert world.put(service.get().transfer_url, image[MIB:], MIB) == 200
    service.finalize()

    assert finished(world, service) == "finished_success"
    assert content(world, disk).sha256() == hashlib.sha256(image).hexdigest()


@pytest.mark.usefixtures("impatient")
def test_a_silent_client_with_another_policy_finds_it_cancelled(world: machines_world.World) -> None:
    disk = world.disk("image")
    service, _ = world.opened(disk, timeout_policy=types.ImageTransferTimeoutPolicy.CANCEL)

    world.until(lambda: world.phase(service) == "finished_failure")
    assert machines_world.refused(disk.get)[0] == 404


def test_a_paused_ticket_runs_out_and_is_renewed_by_resuming(
    world: machines_world.World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(timing, "TICKET", 500.0)
    disk = world.disk("image")
    service, transfer = world.opened(disk)
    resumed_too_soon = machines_world.refused(service.resume)
    service.pause()
    paused = world.phase(service)
    ticket = ticket_of(world, transfer)
    world.until(lambda: ticket.expires < world.running.clock.now())
    late = world.send(transfer.transfer_url, "PUT", b"x" * MIB)
    service.resume()
    world.until(lambda: world.phase(service) == "transferring")

    assert resumed_too_soon == (409, "[Cannot resume image transfer as it's not in a paused state.]")
    assert paused == "paused_user"
    assert late.status == 403
    assert late.content.decode().strip() == (  # type: ignore[attr-defined]
        f"You are not allowed to access this resource: Transfer={transfer.id} expired"
    )
    assert world.put(transfer.transfer_url, machines_world.qcow2(10 * GIB)) == 200


def test_a_client_that_extends_counts_as_heard(world: machines_world.World) -> None:
    service, transfer = world.opened(world.disk("image"))
    ticket = ticket_of(world, transfer)
    before = ticket.heard

    service.extend()

    assert ticket.heard > before


def test_a_cancelled_upload_takes_its_disk_with_it(world: machines_world.World) -> None:
    disk = world.disk("image")
    service, transfer = world.opened(disk)
    service.cancel()

    assert finished(world, service) == "finished_failure"
    assert machines_world.refused(disk.get)[0] == 404
    assert world.send(transfer.transfer_url, "PUT", b"x").status == 403
    jobs = world.api.jobs_service()
    world.until(lambda: "failed" in [str(each.status) for each in jobs.list() if "Uploading" in each.description])


def dying(world: machines_world.World, seconds: float) -> tuple[Any, Any, int]:
    """An upload that dies at 60 %: its disk and transfer, and the size of the image."""
    image = machines_world.qcow2(10 * GIB, 4 * MIB)
    disk = world.disk("image", initial_size=len(image))
    world.running.engine.shape.transfers = {"die_at": 0.6, "disk": "locked", "seconds": seconds}
    service, transfer = world.opened(disk)
    with pytest.raises((ConnectionError, OSError)):
        world.put(transfer.transfer_url, image)
    return disk, service, len(image)


def test_an_upload_that_dies_leaves_its_disk_locked_for_a_while(world: machines_world.World) -> None:
    disk, service, size = dying(world, 1e6)
    world.until(lambda: world.phase(service) == "finalizing_failure")

    assert disk.get().status == types.DiskStatus.LOCKED
    assert machines_world.refused(disk.remove)[0] == 409
    assert 0.6 * size <= service.get().transferred < size
    # It was ordered once.
    assert world.running.engine.shape.transfers == {}


def test_the_disk_of_an_upload_that_died_goes_in_the_end(world: machines_world.World) -> None:
    disk, service, _ = dying(world, 1)

    assert finished(world, service) == "finished_failure"
    assert machines_world.refused(disk.get)[0] == 404


def test_a_line_that_is_cut_costs_only_what_was_not_sent(world: machines_world.World) -> None:
    image = machines_world.qcow2(10 * GIB, 4 * MIB)
    disk = world.disk("image", initial_size=len(image))
    world.running.engine.shape.transfers = {"die_at": 0.5}
    service, transfer = world.opened(disk)
    with pytest.raises((ConnectionError, OSError)):
        world.put(transfer.transfer_url, image)
    world.until(lambda: service.get().transferred >= len(image) // 2)
    sent = service.get().transferred

    assert world.phase(service) == "transferring"
    assert world.put(transfer.transfer_url, image[sent:], sent) == 200
    service.finalize()
    assert finished(world, service) == "finished_success"
    assert content(world, disk).sha256() == hashlib.sha256(image).hexdigest()


def test_a_disk_is_downloaded_whole_or_in_parts_with_its_extents(world: machines_world.World) -> None:
    image = machines_world.qcow2(10 * GIB, MIB) + bytes(4 * MIB) + b"end" * 4096
    disk = world.disk("image")
    service, transfer = world.opened(disk)
    world.put(transfer.transfer_url, image)
    service.finalize()
    finished(world, service)
    world.free(disk)

    service, transfer = world.opened(disk, direction=types.ImageTransferDirection.DOWNLOAD)
    url = transfer.transfer_url
    whole = world.send(url, "GET")
    part = world.send(url, "GET", Range="bytes=4-7")
    extents = json.loads(world.send(f"{url}/extents", "GET").content)  # type: ignore[attr-defined]
    beyond = world.send(url, "GET", Range=f"bytes=0-{len(image)}")
    writing = world.send(url, "PUT", b"x")
    service.finalize()

    assert whole.content == image  # type: ignore[attr-defined]
    assert (part.status, part.content) == (206, image[4:8])  # type: ignore[attr-defined]
    assert part.headers["Content-Range"] == f"bytes 4-7/{len(image)}"
    assert [each["zero"] for each in extents] == [False, True, False]
    assert sum(each["length"] for each in extents) == len(image)
    assert (beyond.status, writing.status) == (416, 403)
    assert finished(world, service) == "finished_success"
    assert disk.get().status == types.DiskStatus.OK


def test_a_disk_is_in_one_transfer_at_a_time_and_not_while_its_machine_runs(world: machines_world.World) -> None:
    disk = world.disk("image")
    asked = types.ImageTransfer(disk=types.Disk(id=disk.get().id))
    world.opened(disk)
    vm = world.started("busy")
    used = types.ImageTransfer(disk=types.Disk(id=vm.disk_attachments_service().list()[0].disk.id))

    assert machines_world.refused(lambda: world.transfers.add(asked)) == (
        409,
        "[Cannot transfer Virtual Disk: The following disks are locked: image. Please try again in a few minutes.]",
    )
    assert machines_world.refused(lambda: world.transfers.add(used)) == (
        409,
        "[Cannot transfer Virtual Disk. The disk centos is plugged to non-Down VMs: busy]",
    )
    unknown = types.ImageTransfer(disk=types.Disk(id="123"))
    assert machines_world.refused(lambda: world.transfers.add(unknown))[0] == 400


NONSENSE: list[tuple[str, str, bytes | None, dict[str, str], int, str]] = [
    ("PUT", "", b"x", {"Content_Range": "bytes nonsense"}, 400, "Invalid Content-Range header"),
    ("PUT", "?flush=maybe", b"x", {}, 400, "'flush'"),
    ("PATCH", "", b"{", {}, 400, "Invalid JSON message"),
    ("PATCH", "", b'{"op": "melt"}', {}, 400, "'op'"),
    ("PATCH", "", b'{"op": "zero", "offset": 4096}', {}, 400, "Missing required value for 'size'"),
    ("PATCH", "", b'{"op": "zero", "size": -1}', {}, 400, "'size'"),
    ("GET", "", None, {"Range": "bytes=-5"}, 416, "not supported"),
    ("GET", "/extents?context=dirty", None, {}, 404, "Dirty extents"),
    ("GET", "-not", None, {}, 403, "No such ticket"),
    ("POST", "", b"x", {}, 405, ""),
]


def test_the_daemon_refuses_what_makes_no_sense(world: machines_world.World) -> None:
    _, transfer = world.opened(world.disk("image"))
    for method, path, body, headers, status, words in NONSENSE:
        reply = world.send(f"{transfer.transfer_url}{path}", method, body, **headers)

        assert reply.status == status, (method, path, body)
        assert words in reply.content.decode()  # type: ignore[attr-defined]


def test_the_daemon_is_recorded_and_struck_like_any_api(world: machines_world.World) -> None:
    _, transfer = world.opened(world.disk("image"))
    site = world.running.site
    world.running.tell(
        lambda: site.faults.add(faults.from_json({"action": "fail", "service": "imageio", "method": "PUT", "nth": 2}))
    )
    statuses = [world.put(transfer.transfer_url, b"x", at) for at in range(3)]

    assert statuses == [200, 500, 200]
    assert [call.status for call in site.calls.calls(service="imageio")] == statuses
