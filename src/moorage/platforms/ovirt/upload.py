"""The bytes of an image on their way to a disk: sent in pieces, holes as mere words, so that a cut costs one piece.

Every piece is acknowledged only when it is on storage, so the next try goes on behind the last one. A new process
knows less: the engine tells how much arrived, in order, and it goes on a piece before that. Memory stays flat however
large the image is.
"""

from __future__ import annotations

import contextlib
import dataclasses
import http.client
import json
import os
import ssl
import urllib.parse
from collections.abc import Iterator
from typing import BinaryIO, Final

from moorage.engine import clock as clocks
from moorage.engine import context, errors
from moorage.platforms.ovirt import client as clients
from moorage.platforms.ovirt import credentials, names, qcow2, transfer

#: Bytes of one request. It is flushed to storage before it is acknowledged: smaller ones would be slow.
PIECE: Final = 64 * 1024**2
#: Bytes of zeros asked for at once: storage that has to write them takes its time.
HOLE: Final = 1024**3
_BLOCK: Final = 1024**2
_SILENCE: Final = 60.0
_BROKEN: Final = (http.client.HTTPException, ConnectionError, TimeoutError, OSError)


@dataclasses.dataclass
class Sent:
    """How far an upload has come, as far as this process knows; None before its first piece."""

    size: int
    acknowledged: int | None = None
    finalized: bool = False
    #: Whether the engine may know a transfer of the disk.
    begun: bool = True


@dataclasses.dataclass(frozen=True)
class Piece:
    """A part of the image: bytes to send, or a hole."""

    start: int
    end: int
    hole: bool = False


def upload(
    client: clients.Client,
    who: credentials.Credentials,
    disk_id: str,
    image: qcow2.Image,
    infra_id: str,
    ctx: context.Context,
    *,
    fresh: bool = False,
) -> None:
    """Bring the image onto the disk and wait until it can be used; `transfer.Lost` if the disk is of no use now.

    With ``fresh`` the disk was made just now, so that nobody can have begun to fill it.
    """
    before = image.path.stat()
    sent = Sent(image.size, begun=not fresh)

    def once() -> None:
        found = _transferring(client, disk_id, image, infra_id, sent, ctx)
        if found is not None and not (found.finished or found.ending):
            _send(found, who, image, sent, ctx)
            _check_unchanged(image, before)
            transfer.finalize(client, found.id)
            sent.finalized = True
        if found is not None:
            _until_finished(client, found, ctx)

    ctx.retry(once)
    transfer.await_jobs(client, ctx, infra_id, transfer.UPLOAD)


def _transferring(
    client: clients.Client, disk_id: str, image: qcow2.Image, infra_id: str, sent: Sent, ctx: context.Context
) -> transfer.Transfer | None:
    """The disk's transfer, ready for bytes or past them; None if it has ended and is forgotten."""
    found = transfer.of_disk(client, disk_id) if sent.begun else None
    sent.begun = True
    if found is None and sent.acknowledged is not None:
        if sent.finalized and _usable(client, disk_id):
            return None
        raise transfer.Lost(f"the upload to disk {disk_id} is gone", words=_why(client, infra_id))
    if found is None:
        found = transfer.begin(client, disk_id, image.format, infra_id)
    if found.phase == "paused_system":
        transfer.resume(client, found.id)
    known = found

    def begun() -> transfer.Transfer | None:
        now = transfer.look(client, known.id)
        if now.phase == "paused_user":
            ctx.waiting("somebody to resume the upload, which was paused in the engine")
            return None
        if now.beginning or now.phase == "paused_system":
            return None
        if not (now.live or now.finished):
            raise transfer.Lost(f"the upload to disk {disk_id} has ended: {now.phase}", words=_why(client, infra_id))
        return now

    if found.phase in ("transferring", "finished_success", "finalizing_success"):
        return found
    ctx.sleep(transfer.EVERY)
    return ctx.poll(begun, what="the engine to take the boot image", every=transfer.EVERY, seconds=120)


def _until_finished(client: clients.Client, found: transfer.Transfer, ctx: context.Context) -> None:
    def ended() -> bool | None:
        try:
            now = transfer.look(client, found.id)
        except errors.NotFound:
            # Engines forget what has ended, some of them at once.
            if _usable(client, found.disk_id):
                return True
            raise transfer.Lost(f"the upload to disk {found.disk_id} has failed") from None
        if now.finished:
            return True
        if now.ending or now.phase == "transferring":
            return None
        raise transfer.Lost(f"the engine does not accept the uploaded image: {now.phase}")

    if not found.finished:
        ctx.sleep(transfer.EVERY)
        ctx.poll(ended, what="the engine to check the boot image", every=transfer.EVERY)


def _usable(client: clients.Client, disk_id: str) -> bool:
    disk = client.call(f"look at disk {disk_id}", lambda api: api.disks_service().disk_service(disk_id).get())
    return str(disk.status) != "illegal"


def _why(client: clients.Client, infra_id: str) -> str:
    return transfer.words(client, names.correlation(infra_id, transfer.UPLOAD))


def _check_unchanged(image: qcow2.Image, before: os.stat_result) -> None:
    now = image.path.stat()
    if (now.st_size, now.st_mtime_ns, now.st_ino) != (before.st_size, before.st_mtime_ns, before.st_ino):
        raise errors.Terminal(
            f"the boot image {image.path} was changed while it was uploaded", remedy="run the same command again"
        )


# -- bytes -------------------------------------------------------------------------------------------------------------


def _send(
    found: transfer.Transfer, who: credentials.Credentials, image: qcow2.Image, sent: Sent, ctx: context.Context
) -> None:
    """Send what is missing; a broken connection is `Transient` and leaves ``sent`` where it was."""
    if sent.acknowledged is None:
        # Sent in order, so what arrived is the beginning; the last of it may not have reached the storage.
        sent.acknowledged = max(0, (min(found.transferred, image.size) - 1) // PIECE * PIECE)
    try:
        with _daemon(found, who, ctx.clock) as daemon, image.path.open("rb") as file:
            holes = daemon.knows_holes()
            for piece in pieces(file, image.size, sent.acknowledged):
                ctx.clock.check()
                ctx.waiting(f"the boot image to be uploaded ({piece.start * 10 // image.size * 10} %)")
                if piece.hole and holes:
                    daemon.zero(piece)
                else:
                    daemon.put(piece, file)
                sent.acknowledged = piece.end
            daemon.flush()
    except ssl.SSLCertVerificationError as distrust:
        raise errors.Terminal(
            "the image daemon of the oVirt host cannot be trusted",
            words=str(distrust),
            remedy="add the engine's own CA (at /ovirt-engine/services/pki-resource) to ovirt_ca_bundle",
        ) from distrust
    except _BROKEN as cut:
        raise errors.Transient("the upload was cut", words=str(cut) or type(cut).__name__) from cut


def pieces(file: BinaryIO, size: int, start: int = 0) -> Iterator[Piece]:
    """What is to be sent from ``start`` on, in order and without gaps."""
    while start < size:
        data = _seek(file, start, os.SEEK_DATA, size)
        while start < data:
            end = min(data, start + HOLE)
            yield Piece(start, end, hole=True)
            start = end
        end = _seek(file, start, os.SEEK_HOLE, size)
        while start < end:
            stop = min(end, start + PIECE)
            yield Piece(start, stop)
            start = stop


def _seek(file: BinaryIO, start: int, whence: int, size: int) -> int:
    try:
        return min(size, os.lseek(file.fileno(), start, whence))
    except OSError:
        # No data from here on; or the file system knows no holes, and then all is data.
        return size if whence == os.SEEK_HOLE or _knows_holes(file) else start


def _knows_holes(file: BinaryIO) -> bool:
    try:
        os.lseek(file.fileno(), 0, os.SEEK_HOLE)
    except OSError:
        return False
    return True


@contextlib.contextmanager
def _daemon(found: transfer.Transfer, who: credentials.Credentials, clock: clocks.Clock) -> Iterator[_Daemon]:
    """The host's image daemon; through the engine if the host itself cannot be reached from here."""
    trust = ssl.create_default_context(cadata=who.ca_bundle or None)
    if who.insecure:
        trust.check_hostname, trust.verify_mode = False, ssl.CERT_NONE
    ways = [url for url in (found.url, found.proxy_url) if url]
    for number, url in enumerate(ways, 1):
        address = urllib.parse.urlsplit(url)
        connection = http.client.HTTPSConnection(
            str(address.hostname),
            address.port,
            timeout=clock.socket_timeout(_SILENCE),
            context=trust,
            blocksize=_BLOCK,
        )
        try:
            connection.connect()
        except ssl.SSLCertVerificationError:
            raise
        except OSError:
            connection.close()
            if number == len(ways):
                raise
            continue
        with contextlib.closing(connection):
            yield _Daemon(connection, address.path)
            return
    raise errors.Transient("the engine does not say where to upload to")


class _Daemon:
    """A connection to ovirt-imageio, for one image."""

    def __init__(self, connection: http.client.HTTPSConnection, path: str) -> None:
        self._connection = connection
        self._path = path

    def knows_holes(self) -> bool:
        self._connection.request("OPTIONS", self._path)
        reply = self._connection.getresponse()
        content = reply.read()
        if reply.status in (http.HTTPStatus.NO_CONTENT, http.HTTPStatus.METHOD_NOT_ALLOWED):
            return False
        self._check(reply.status, content)
        return "zero" in json.loads(content or b"{}").get("features", [])

    def put(self, piece: Piece, file: BinaryIO) -> None:
        size = piece.end - piece.start
        headers = {
            "Content-Type": "application/octet-stream",
            "Content-Length": str(size),
            "Content-Range": f"bytes {piece.start}-{piece.end - 1}/*",
        }
        self._ask("PUT", _blocks(file, piece.start, size), headers)

    def zero(self, piece: Piece) -> None:
        order = {"op": "zero", "offset": piece.start, "size": piece.end - piece.start, "flush": True}
        self._ask("PATCH", json.dumps(order).encode(), {"Content-Type": "application/json"})

    def flush(self) -> None:
        self._ask("PATCH", b'{"op": "flush"}', {"Content-Type": "application/json"})

    def _ask(self, method: str, body: bytes | Iterator[bytes], headers: dict[str, str]) -> None:
        self._connection.request(method, self._path, body, headers)
        reply = self._connection.getresponse()
        self._check(reply.status, reply.read())

    def _check(self, status: int, content: bytes) -> None:
        if status < 300:
            return
        words = f"{status} {content.decode(errors='replace').strip()[:200]}"
        if status == http.HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE:
            raise errors.Terminal("the disk is too small for the boot image", words=words)
        # 403: the ticket is no longer good, and the engine knows why.
        raise errors.Transient("the image daemon refuses a piece of the image", words=words)


def _blocks(file: BinaryIO, start: int, size: int) -> Iterator[bytes]:
    while size > 0:
        block = os.pread(file.fileno(), min(_BLOCK, size), start)
        if not block:
            raise errors.Terminal("the boot image became shorter while it was uploaded")
        yield block
        start, size = start + len(block), size - len(block)
