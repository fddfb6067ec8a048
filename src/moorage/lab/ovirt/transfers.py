"""Image transfers: the engine opens a disk to a client for reading or writing, watches it, and closes it again.

A transfer goes through phases that clients poll. While it is on, the disk is locked; a client that is silent for too
long finds it paused, and may resume it. In the end an uploaded image is looked at: one that is not what the disk says
fails the transfer, and the engine removes the disk of a failed upload, as it does after a cancelled one.
"""

from __future__ import annotations

import math
import uuid
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from aiohttp import web

from moorage import lab
from moorage.lab.ovirt import (
    disks,
    documents,
    events,
    faults,
    imageio,
    images,
    jobs,
    polling,
    references,
    space,
    tickets,
    timing,
)

if TYPE_CHECKING:
    from moorage.lab.ovirt import engine as engines

Doc = dict[str, Any]

TRANSFERRING_DISK = "transfer Virtual Disk"
INITIALIZING, TRANSFERRING, RESUMING = "initializing", "transferring", "resuming"
PAUSED_SYSTEM, PAUSED_USER = "paused_system", "paused_user"
CANCELLED_SYSTEM, CANCELLED_USER = "cancelled_system", "cancelled_user"
FINALIZING_SUCCESS, FINALIZING_FAILURE, FINALIZING_CLEANUP = (
    "finalizing_success",
    "finalizing_failure",
    "finalizing_cleanup",
)
FINISHED_SUCCESS, FINISHED_FAILURE = "finished_success", "finished_failure"
FINISHED = (FINISHED_SUCCESS, FINISHED_FAILURE)
_PAUSED = (PAUSED_SYSTEM, PAUSED_USER)
_OPEN = (INITIALIZING, TRANSFERRING, RESUMING, *_PAUSED)
_POLICIES = ("cancel", "legacy", "pause")
# A full qcow2 image is larger than what is in it, and even an empty one has a header.
_COW_FACTOR, _COW_HEADER = 1.1, 1024**2
# However fast the cloud's time runs, a client gets so many real seconds before it counts as silent.
SHORTEST_SILENCE = 3.0
_STUCK_SECONDS = 300.0


def routes(engine: engines.Engine) -> list[web.AbstractRouteDef]:
    """The collection of transfers."""
    inventory = engine.inventory

    async def listed(request: web.Request) -> documents.Reply:
        return documents.collection("image_transfers", inventory.all("image_transfers"))

    async def one(request: web.Request) -> documents.Reply:
        return documents.entity("image_transfer", inventory.get("image_transfers", request.match_info["transfer"]))

    async def add(request: web.Request) -> documents.Reply:
        asked = await documents.body(request, "image_transfer")
        return documents.created("image_transfer", begin(engine, asked, jobs.correlation(request)))

    def moving(move: Callable[[engines.Engine, Doc], None]) -> Any:
        async def handler(request: web.Request) -> documents.Reply:
            move(engine, inventory.get("image_transfers", request.match_info["transfer"]))
            return documents.action()

        return handler

    moves = {"extend": extend, "pause": pause, "resume": resume, "cancel": cancel, "finalize": finalize}
    return [
        web.get("/imagetransfers", listed),
        web.post("/imagetransfers", add),
        web.get("/imagetransfers/{transfer}", one),
        *(web.post(f"/imagetransfers/{{transfer}}/{name}", moving(move)) for name, move in moves.items()),
    ]


def begin(engine: engines.Engine, asked: Doc, correlation: str) -> Doc:
    """Open a disk to a client."""
    reference = references.given(asked, "disk") or references.given(asked, "image")
    if not reference.get("id"):
        raise faults.incomplete("ImageTransfer", "add", "disk.id|image.id|snapshot.id")
    if not engine.inventory.has("disks", reference["id"]):
        raise faults.refused(TRANSFERRING_DISK, "The specified disk does not exist.", 400)
    disk = engine.inventory.get("disks", reference["id"])
    transfer = _described(engine, asked, disk)
    if disk["status"] == disks.ILLEGAL:
        raise faults.refused(TRANSFERRING_DISK, f"The following attached disks are in ILLEGAL status: {disk['name']}")
    for vm in disks.machines(engine, disk):
        if vm["status"] != "down":
            why = f"The disk {disk['name']} is plugged to non-Down VMs: {vm['name']}"
            raise faults.refused(TRANSFERRING_DISK, why)
    disks.check_free(engine, disk, TRANSFERRING_DISK)
    polling.hold(engine, [("disks", disk["id"])], doing=TRANSFERRING_DISK)
    disk["status"] = disks.LOCKED
    engine.inventory.add("image_transfers", transfer)
    word = "Uploading" if transfer["direction"] == "upload" else "Downloading"
    engine.jobs.start(correlation, f"{word} disk {disk['name']}", _Course(engine, transfer, disk).run())
    return transfer


def _described(engine: engines.Engine, asked: Doc, disk: Doc) -> Doc:
    direction, policy = asked.get("direction", "upload"), asked.get("timeout_policy", "legacy")
    if direction not in ("upload", "download"):
        raise faults.invalid(f"The value '{direction}' isn't a valid transfer direction")
    if policy not in _POLICIES:
        raise faults.invalid(f"The value '{policy}' isn't a valid timeout policy")
    hosts = [each for each in engine.inventory.all("hosts") if each["status"] == "up"]
    wanted = references.given(asked, "host").get("id")
    host = next((each for each in hosts if each["id"] == wanted or not wanted), None)
    if host is None:
        raise faults.refused(TRANSFERRING_DISK, "There is no active Host in the Data Center.")
    return {
        "id": str(uuid.uuid4()),
        "active": False,
        "direction": direction,
        "disk": {"id": disk["id"]},
        "format": asked.get("format") or disk["format"],
        "host": {"id": host["id"]},
        "image": {"id": disk["id"]},
        "inactivity_timeout": int(asked.get("inactivity_timeout", timing.TRANSFER_INACTIVITY)),
        "phase": INITIALIZING,
        "shallow": bool(asked.get("shallow", False)),
        "timeout_policy": policy,
        "transferred": 0,
    }


def extend(engine: engines.Engine, transfer: Doc) -> None:
    """The client is still there, though it sends nothing."""
    ticket = tickets.of(engine).find(transfer.get("_ticket", ""))
    if ticket is not None:
        ticket.touch()


def pause(engine: engines.Engine, transfer: Doc) -> None:
    if transfer["direction"] == "download":
        raise faults.plain("Cannot pause image download.")
    _move(transfer, PAUSED_USER, (INITIALIZING, TRANSFERRING, RESUMING))


def resume(engine: engines.Engine, transfer: Doc) -> None:
    if transfer["phase"] not in _PAUSED:
        raise faults.plain("Cannot resume image transfer as it's not in a paused state.")
    transfer["phase"] = RESUMING


def cancel(engine: engines.Engine, transfer: Doc) -> None:
    _move(transfer, CANCELLED_USER, _OPEN)


def finalize(engine: engines.Engine, transfer: Doc) -> None:
    _move(transfer, FINALIZING_SUCCESS, _OPEN)


def _move(transfer: Doc, phase: str, from_phases: tuple[str, ...]) -> None:
    """Order another phase; a transfer that is past that goes its way."""
    if transfer["phase"] in from_phases:
        transfer["phase"] = phase


class _Course:
    """The course of one transfer."""

    def __init__(self, engine: engines.Engine, transfer: Doc, disk: Doc) -> None:
        self._engine = engine
        self._transfer = transfer
        self._disk = disk
        self._uploads = transfer["direction"] == "upload"
        # Where the client speaks another format than the disk the host converts: there is nothing to check then.
        self._converted = transfer["format"] == "raw" and disk["format"] == "cow"
        self._content = images.Content()
        self._stuck = 0.0

    async def run(self) -> None:
        """From the first phase to the last."""
        held = [("disks", self._disk["id"])]
        try:
            async with polling.finishing(self._engine, held):
                await self._prepare()
                while self._transfer["phase"] in _OPEN:
                    await lab.sleep(self._engine.clock, timing.TRANSFER_LOOK)
                    self._look()
                await self._finish()
        finally:
            tickets.of(self._engine).remove(self._transfer.get("_ticket", ""))
        self._engine.spawn(self._forget())
        if self._transfer["phase"] == FINISHED_FAILURE:
            raise faults.plain("Failed to transfer disk image.")

    async def _prepare(self) -> None:
        await lab.sleep(self._engine.clock, timing.drawn(timing.TRANSFER_PREPARE, "prepare", self._disk["name"]))
        transfer, known = self._transfer, tickets.of(self._engine)
        if transfer["phase"] != INITIALIZING:
            return
        stored = images.contents(self._engine)
        if not self._uploads:
            self._content = stored.get(self._disk["id"], self._content)
        identity = str(uuid.uuid4())
        right = tickets.WRITE if self._uploads else tickets.READ
        ticket = known.add(identity, transfer["id"], self._size(), right, self._content)
        ticket.mortal = self._mortal
        ticket.expected = int(self._disk.get("initial_size") or 0)
        transfer["_ticket"] = identity
        at = self._engine.address
        transfer["transfer_url"] = f"https://{at}:{imageio.HOST_PORT}/images/{identity}"
        transfer["proxy_url"] = f"https://{at}:{imageio.PROXY_PORT}/images/{identity}"
        transfer["phase"] = TRANSFERRING

    def _size(self) -> int:
        """How many bytes may be sent."""
        size = int(self._disk["provisioned_size"])
        if self._disk["format"] == "raw" or self._converted:
            return size
        return math.ceil(size * _COW_FACTOR) + _COW_HEADER if self._uploads else max(self._content.size, 1)

    def _look(self) -> None:
        """What the engine does about a transfer each time it looks at it."""
        transfer, known = self._transfer, tickets.of(self._engine)
        ticket = known.find(transfer.get("_ticket", ""))
        if ticket is None:
            return
        transfer |= {"transferred": ticket.done.total, "active": ticket.active}
        if transfer["phase"] == RESUMING:
            transfer["phase"] = TRANSFERRING
            ticket.touch()
        if transfer["phase"] != TRANSFERRING:
            return
        known.extend(ticket.id)
        limit = float(transfer["inactivity_timeout"])
        if limit and ticket.idle > max(limit, SHORTEST_SILENCE * self._engine.clock.speed):
            self._silent()

    def _silent(self) -> None:
        policy = self._transfer["timeout_policy"]
        paused = policy == "pause" or (policy == "legacy" and self._uploads)
        self._transfer["phase"] = PAUSED_SYSTEM if paused else CANCELLED_SYSTEM
        word = "paused" if paused else "cancelled"
        self._tell(1073, events.WARNING, f"Transfer of disk {self._disk['name']} was {word} by system: timeout")

    def _mortal(self, ticket: tickets.Ticket) -> None:
        """Strike, if the lab was told to: the line is cut at a share of the bytes, and maybe more."""
        order = self._engine.shape.transfers
        total = ticket.expected or ticket.size
        if not self._uploads or "die_at" not in order or ticket.done.total < float(order["die_at"]) * total:
            return
        self._engine.shape.transfers = {}
        if order.get("disk") == "locked":
            self._stuck = float(order.get("seconds", _STUCK_SECONDS))
            self._transfer["phase"] = CANCELLED_SYSTEM
        raise tickets.LineCut

    async def _finish(self) -> None:
        transfer, disk, known = self._transfer, self._disk, tickets.of(self._engine)
        ticket = known.find(transfer.get("_ticket", ""))
        if ticket is not None:
            transfer |= {"transferred": ticket.done.total, "active": False}
            known.remove(ticket.id)
        if transfer["phase"] == FINALIZING_SUCCESS:
            await lab.sleep(self._engine.clock, timing.drawn(timing.TRANSFER_FINALIZE, "end", disk["name"]))
            wrong = self._objection()
            if not wrong:
                self._succeed()
                return
            self._tell(1031, events.ERROR, f"Failed to verify the uploaded image of disk {disk['name']}: {wrong}")
        cancelled = transfer["phase"] == CANCELLED_USER
        transfer["phase"] = FINALIZING_CLEANUP if cancelled else FINALIZING_FAILURE
        await lab.sleep(self._engine.clock, timing.drawn(timing.TRANSFER_FINALIZE, "end", disk["name"]) + self._stuck)
        if self._uploads:
            disks.erase(self._engine, disk)
        else:
            disk["status"] = disks.OK
        transfer["phase"] = FINISHED_FAILURE
        self._tell(1033, events.ERROR, f"The transfer of disk {disk['name']} has failed.")

    def _objection(self) -> str:
        if not self._uploads or self._converted:
            return ""
        return images.objection(self._content, self._disk["format"], int(self._disk["provisioned_size"]))

    def _succeed(self) -> None:
        disk = self._disk
        if self._uploads:
            images.contents(self._engine)[disk["id"]] = self._content
            space.take(self._engine, disk, max(self._content.allocated, space.initial(disk)))
        disk["status"] = disks.OK
        self._transfer["phase"] = FINISHED_SUCCESS
        self._tell(
            1032,
            events.NORMAL,
            f"Image {'Upload' if self._uploads else 'Download'} with disk {disk['name']} succeeded.",
        )

    async def _forget(self) -> None:
        await lab.sleep(self._engine.clock, timing.TRANSFER_KEPT)
        self._engine.inventory.remove("image_transfers", self._transfer["id"])

    def _tell(self, code: int, how: str, words: str) -> None:
        self._engine.events.add(code, how, words)
