"""The image on its way to a disk of the engine: whole in the end, whatever happens to line, process or engine."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import hypothesis
import pytest
from hypothesis import strategies as st
from ovirtsdk4 import types

from moorage.engine import errors
from moorage.lab import boot_image
from moorage.lab.ovirt import imageio, transfers
from moorage.lab.ovirt import images as stored
from moorage.platforms.ovirt import qcow2, transfer, upload
from tests.unit.platforms_ovirt import engine_place
from tests.unit.platforms_ovirt.engine_place import INFRA

MIB = 1024**2
ROOT = Path(__file__).parents[3]


class KilledError(Exception):
    """The process that uploads was killed."""


@pytest.fixture
def image(tmp_path: Path) -> qcow2.Image:
    path = tmp_path / "boot.qcow2"
    boot_image.write(path)
    return qcow2.inspect(path)


@pytest.fixture
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(upload, "PIECE", MIB)


def new_disk(place: engine_place.Place, image: qcow2.Image) -> str:
    wanted = types.Disk(
        name="image",
        format=types.DiskFormat(image.format),
        sparse=True,
        provisioned_size=image.virtual_size,
        storage_domains=[types.StorageDomain(id=place.id("storage_domains", "data"))],
    )
    made = place.client.call("make a disk", lambda api: api.disks_service().add(wanted))
    place.until(lambda: not place.running.tell(lambda: place.running.engine.locks.held("disks", made.id)))
    return str(made.id)


def send(place: engine_place.Place, disk_id: str, image: qcow2.Image) -> None:
    upload.upload(place.client, place.client.who, disk_id, image, INFRA, place.ctx("template"))


def puts(place: engine_place.Place) -> int:
    """How many pieces the image daemon was sent."""
    return len(place.running.tell(lambda: place.running.site.calls.calls(service=imageio.SERVICE, method="PUT")))


def arrived(place: engine_place.Place, disk_id: str) -> str:
    return place.running.tell(lambda: stored.contents(place.running.engine)[disk_id].sha256())


def digest(image: qcow2.Image) -> str:
    return hashlib.sha256(image.path.read_bytes()).hexdigest()


def phase(place: engine_place.Place) -> str:
    return str(place.all("image_transfers")[-1]["phase"])


def die_in_the_middle(place: engine_place.Place, disk_id: str, image: qcow2.Image) -> None:
    """A process that sends half of the image, and is gone."""
    pieces = upload.pieces

    def mortal(*arguments: object) -> Iterator[upload.Piece]:
        for number, piece in enumerate(pieces(*arguments)):  # type: ignore[arg-type]
            if number == 5:
                raise KilledError
            yield piece

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(upload, "pieces", mortal)
        with pytest.raises(KilledError):
            send(place, disk_id, image)


# -- as it should be ---------------------------------------------------------------------------------------------------


def test_the_disk_holds_the_image_and_is_free_when_it_is_done(place: engine_place.Place, image: qcow2.Image) -> None:
    disk_id = new_disk(place, image)

    send(place, disk_id, image)
    held = place.running.tell(lambda: place.running.engine.locks.held("disks", disk_id))

    assert not held, "the disk says OK before its job lets go of it"
    assert "the engine to end its work on upload" in place.waits()
    assert arrived(place, disk_id) == digest(image)
    assert phase(place) == "finished_success"
    assert place.doc("disks", "image")["status"] == "ok"  # type: ignore[index]


def test_an_upload_that_is_done_is_not_done_again(place: engine_place.Place, image: qcow2.Image) -> None:
    disk_id = new_disk(place, image)
    send(place, disk_id, image)
    before = puts(place)

    send(place, disk_id, image)

    assert puts(place) == before


_MEASURED = """
import json, resource, sys
from pathlib import Path
from moorage.engine import clock, context
from moorage.platforms import contract
from moorage.platforms.ovirt import client, qcow2, upload
config, disk_id, path, speed = sys.argv[1:]
around = contract.Surroundings({"OVIRT_CONFIG": config}, clock.Clock(float(speed)), lambda line: None)
known = client.Client(around)
known.call("warm up", lambda api: api.get())
ctx = context.Context(resource="x", clock=around.clock, deadline=around.clock.deadline(1e6))
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
upload.upload(known, known.who, disk_id, qcow2.inspect(Path(path)), "x", ctx)
print(json.dumps([before, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss]))
"""


def test_sixteen_gibibytes_take_no_memory(place: engine_place.Place, tmp_path: Path) -> None:
    path, data = tmp_path / "large.raw", os.urandom(MIB)
    with path.open("wb") as file:
        file.truncate(16 * 1024**3)
        for at in (*range(80), 8000, 16383):
            file.seek(at * MIB)
            file.write(data)
    large = qcow2.inspect(path)
    disk_id = new_disk(place, large)

    done = subprocess.run(
        [sys.executable, "-c", _MEASURED, place.around.environ["OVIRT_CONFIG"], disk_id, str(path), "200"],
        capture_output=True,
        text=True,
        check=True,
        cwd=ROOT,
        timeout=60,
    )

    before, after = json.loads(done.stdout)
    assert (after - before) / 1024 < 16, f"it grew from {before} to {after} KiB"
    content = place.running.tell(lambda: stored.contents(place.running.engine)[disk_id])
    assert content.size == 16 * 1024**3
    assert [content.read(at * MIB, MIB) == data for at in (0, 79, 80, 8000, 8001, 16383)] == [
        True,
        True,
        False,
        True,
        False,
        True,
    ]


@hypothesis.settings(max_examples=40, deadline=None)
@hypothesis.given(
    layout=st.lists(st.tuples(st.booleans(), st.integers(1, 40)), min_size=1, max_size=8),
    ragged=st.integers(0, 4095),
    share=st.floats(0, 1),
)
def test_pieces_cover_the_image_without_gaps_and_holes_are_zeros(
    layout: list[tuple[bool, int]], ragged: int, share: float, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("layout") / "image"
    with path.open("wb") as file:
        for data, blocks in layout:
            if data:
                file.write(b"x" * blocks * 4096)
            else:
                file.seek(blocks * 4096, os.SEEK_CUR)
        file.truncate(file.tell() + ragged)
    size = path.stat().st_size
    start = int(size * share)

    with pytest.MonkeyPatch.context() as patch, path.open("rb") as file:
        patch.setattr(upload, "PIECE", 10_000)
        patch.setattr(upload, "HOLE", 30_000)
        found = list(upload.pieces(file, size, start))

    assert [piece.start for piece in found] == [start, *(piece.end for piece in found)][: len(found)]
    assert (found[-1].end if found else start) == size
    content = path.read_bytes()
    assert not any(content[piece.start : piece.end].strip(b"\0") for piece in found if piece.hole)


# -- cuts --------------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("small_pieces")
@pytest.mark.parametrize("action", ["drop", "apply-then-drop"])
def test_after_a_cut_line_only_the_piece_under_way_is_sent_again(
    action: str, place: engine_place.Place, image: qcow2.Image
) -> None:
    disk_id = new_disk(place, image)
    place.fault(action, "PUT", "/images/*", service=imageio.SERVICE, nth=4)

    send(place, disk_id, image)

    assert puts(place) == -(-image.size // MIB) + 1
    assert arrived(place, disk_id) == digest(image)


@pytest.mark.usefixtures("small_pieces")
def test_another_process_goes_on_where_a_killed_one_was(place: engine_place.Place, image: qcow2.Image) -> None:
    disk_id = new_disk(place, image)
    die_in_the_middle(place, disk_id, image)
    place.until(lambda: place.all("image_transfers")[-1]["transferred"] >= 5 * MIB)
    before = puts(place)

    send(place, disk_id, image)

    assert puts(place) - before == -(-image.size // MIB) - 4, "the last piece before the end is sent once more"
    assert arrived(place, disk_id) == digest(image)
    assert len(place.all("image_transfers")) == 1


@pytest.mark.usefixtures("small_pieces")
def test_an_upload_that_was_paused_meanwhile_is_resumed(
    place: engine_place.Place, image: qcow2.Image, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transfers, "SHORTEST_SILENCE", 0.5)
    disk_id = new_disk(place, image)
    die_in_the_middle(place, disk_id, image)
    place.until(lambda: phase(place) == "paused_system")

    send(place, disk_id, image)

    assert arrived(place, disk_id) == digest(image)
    assert [call for call in place.writes() if call.endswith("/resume")]


def test_an_upload_that_somebody_paused_waits_for_them(place: engine_place.Place, image: qcow2.Image) -> None:
    disk_id = new_disk(place, image)
    begun = transfer.begin(place.client, disk_id, image.format, INFRA)
    place.client.call("pause", lambda api: api.image_transfers_service().image_transfer_service(begun.id).pause())

    with pytest.raises(errors.DeadlineExceeded):
        upload.upload(place.client, place.client.who, disk_id, image, INFRA, place.ctx(seconds=100))

    assert "somebody to resume the upload, which was paused in the engine" in place.waits()
    assert not [call for call in place.writes() if call.endswith("/resume")]


@pytest.mark.parametrize(
    ("method", "path"), [("POST", "/**/imagetransfers"), ("POST", "/**/finalize"), ("GET", "/**/imagetransfers/*")]
)
@pytest.mark.parametrize("action", ["drop", "apply-then-drop"])
def test_a_lost_reply_of_the_engine_costs_nothing(
    method: str, path: str, action: str, place: engine_place.Place, image: qcow2.Image
) -> None:
    disk_id = new_disk(place, image)
    place.fault(action, method, path)

    send(place, disk_id, image)

    assert arrived(place, disk_id) == digest(image)
    assert len(place.all("image_transfers")) == 1


def test_an_engine_that_restarts_is_waited_for(place: engine_place.Place, image: qcow2.Image) -> None:
    disk_id = new_disk(place, image)
    place.running.tell(lambda: place.running.engine.restart(60))

    send(place, disk_id, image)

    assert arrived(place, disk_id) == digest(image)


def test_a_host_that_cannot_be_reached_is_reached_through_the_engine(
    place: engine_place.Place, image: qcow2.Image, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk_id = new_disk(place, image)
    monkeypatch.setattr(imageio, "HOST_PORT", 1)

    send(place, disk_id, image)

    assert arrived(place, disk_id) == digest(image)


# -- what cannot work --------------------------------------------------------------------------------------------------


def test_a_transfer_that_dies_for_good_is_said_to_be_lost(place: engine_place.Place, image: qcow2.Image) -> None:
    disk_id = new_disk(place, image)
    place.running.tell(
        lambda: setattr(place.running.engine.shape, "transfers", {"die_at": 0.0001, "disk": "locked", "seconds": 30})
    )

    with pytest.raises(transfer.Lost):
        send(place, disk_id, image)


def test_an_image_that_the_engine_does_not_accept_is_lost(place: engine_place.Place, image: qcow2.Image) -> None:
    disk_id = new_disk(place, dataclasses.replace(image, virtual_size=image.virtual_size + MIB))

    with pytest.raises(transfer.Lost, match="does not accept"):
        send(place, disk_id, image)


def test_an_image_larger_than_its_disk_is_refused(place: engine_place.Place, tmp_path: Path) -> None:
    path = tmp_path / "image.raw"
    path.write_bytes(b"x" * 2 * MIB)
    image = qcow2.inspect(path)
    disk_id = new_disk(place, dataclasses.replace(image, virtual_size=MIB))

    with pytest.raises(errors.Terminal, match="too small"):
        send(place, disk_id, image)


def test_an_image_that_changes_meanwhile_is_never_made_a_disk(
    place: engine_place.Place, image: qcow2.Image, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk_id = new_disk(place, image)
    before = upload._send

    def touched(*arguments: object) -> None:
        before(*arguments)  # type: ignore[arg-type]
        os.utime(image.path, ns=(1, 1))

    monkeypatch.setattr(upload, "_send", touched)

    with pytest.raises(errors.Terminal, match="was changed"):
        send(place, disk_id, image)
    assert not [call for call in place.writes() if call.endswith("/finalize")]


def test_a_daemon_of_another_authority_is_not_trusted(
    place: engine_place.Place, image: qcow2.Image, tmp_path: Path
) -> None:
    disk_id = new_disk(place, image)
    with engine_place.started(tmp_path) as other:
        who = dataclasses.replace(place.client.who, ca_bundle=other.client.who.ca_bundle)

    with pytest.raises(errors.Terminal, match="cannot be trusted") as refused:
        upload.upload(place.client, who, disk_id, image, INFRA, place.ctx())
    assert "ovirt_ca_bundle" in refused.value.remedy
