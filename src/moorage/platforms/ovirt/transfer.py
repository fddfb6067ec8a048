"""An image transfer as the engine keeps it: found, begun, resumed, ended; never the bytes themselves.

A transfer outlives the process that began it. While nobody sends, the engine pauses it (the disk stays locked
meanwhile); a new process finds it by its disk and lets it go on. Once it has failed or was cancelled there is no way
back: then the disk has to go as well.
"""

from __future__ import annotations

import dataclasses
from typing import Any, Final

from ovirtsdk4 import types

from moorage.engine import context, errors
from moorage.platforms.ovirt import client as clients
from moorage.platforms.ovirt import names

UPLOAD: Final = "upload"
#: How often to look: preparing takes a few seconds, asynchronous work is noticed by the engine every ten.
EVERY, JOBS_EVERY = 3.0, 10.0

_BEGINNING: Final = frozenset(("initializing", "resuming"))
_ENDING: Final = frozenset(("finalizing_success",))
_LIVE: Final = _BEGINNING | _ENDING | {"transferring", "paused_system", "paused_user"}


class Lost(errors.PlatformFailure):
    """The transfer ended without a disk that could be used; another disk is needed."""


@dataclasses.dataclass(frozen=True)
class Transfer:
    """What the engine says of a transfer."""

    id: str
    disk_id: str
    phase: str
    url: str = ""
    proxy_url: str = ""
    transferred: int = 0

    @property
    def live(self) -> bool:
        """Whether it goes on, or could."""
        return self.phase in _LIVE

    @property
    def beginning(self) -> bool:
        return self.phase in _BEGINNING

    @property
    def ending(self) -> bool:
        return self.phase in _ENDING

    @property
    def finished(self) -> bool:
        return self.phase == "finished_success"


def everything(client: clients.Client) -> list[Transfer]:
    """Every transfer that the engine remembers, the newest last."""
    found = client.call("list the image transfers", lambda api: api.image_transfers_service().list())
    return [_read(each) for each in found]


def of_disk(client: clients.Client, disk_id: str) -> Transfer | None:
    """The disk's transfer: one that goes on, else one that has ended well, else none."""
    found = [each for each in everything(client) if each.disk_id == disk_id]
    for wanted in (lambda each: each.live, lambda each: each.finished):
        for each in filter(wanted, found):
            return each
    return None


def begin(client: clients.Client, disk_id: str, image_format: str, infra_id: str) -> Transfer:
    """Ask for a transfer to the disk."""
    wanted = types.ImageTransfer(
        disk=types.Disk(id=disk_id),
        direction=types.ImageTransferDirection.UPLOAD,
        format=types.DiskFormat(image_format),
        # If this process dies the transfer must be there for the next one.
        timeout_policy=types.ImageTransferTimeoutPolicy.PAUSE,
    )
    query = {"correlation_id": names.correlation(infra_id, UPLOAD)}
    return _read(
        client.call(
            f"begin the upload to disk {disk_id}",
            lambda api: api.image_transfers_service().add(wanted, query=query),
            safe=False,
        )
    )


def look(client: clients.Client, transfer_id: str) -> Transfer:
    return _read(
        client.call(f"look at image transfer {transfer_id}", lambda api: _service(api, transfer_id).get(), safe=True)
    )


def resume(client: clients.Client, transfer_id: str) -> None:
    client.call(f"resume image transfer {transfer_id}", lambda api: _service(api, transfer_id).resume(), safe=False)


def finalize(client: clients.Client, transfer_id: str) -> None:
    client.call(f"finalize image transfer {transfer_id}", lambda api: _service(api, transfer_id).finalize(), safe=False)


def cancel(client: clients.Client, transfer_id: str) -> None:
    client.call(f"cancel image transfer {transfer_id}", lambda api: _service(api, transfer_id).cancel(), safe=False)


def await_jobs(client: clients.Client, ctx: context.Context, infra_id: str, what: str) -> None:
    """Wait until the engine's jobs of a doing have ended: a disk says that it is well before its job lets go of it."""
    correlation = names.correlation(infra_id, what)

    def ended() -> bool | None:
        jobs = client.call(
            f"look at the jobs of {correlation}",
            lambda api: api.jobs_service().list(search=f"correlation_id={correlation}"),
        )
        running = [job for job in jobs if str(job.status) == "started"]
        return None if running else True

    ctx.poll(ended, what=f"the engine to end its work on {what}", every=JOBS_EVERY)


def words(client: clients.Client, correlation: str) -> str:
    """What the engine's events say went wrong; nothing if they say nothing or cannot be had."""
    try:
        events = client.call(
            f"look at the events of {correlation}",
            lambda api: api.events_service().list(search=f"correlation_id={correlation}", max=20),
        )
    except errors.PlatformFailure:
        return ""
    bad = [str(each.description) for each in events if str(each.severity) in ("error", "alert")]
    return "; ".join(dict.fromkeys(bad))


def _service(api: Any, transfer_id: str) -> Any:
    return api.image_transfers_service().image_transfer_service(transfer_id)


def _read(found: Any) -> Transfer:
    owner = found.disk or found.image
    return Transfer(
        id=str(found.id),
        disk_id=str(owner.id) if owner is not None else "",
        phase=str(found.phase),
        url=found.transfer_url or "",
        proxy_url=found.proxy_url or "",
        transferred=int(found.transferred or 0),
    )
