"""The engine as a whole: what it knows, who works on what, and the work it does in the background.

There is one for a site. Everything in it belongs to one event loop; what it does besides answering is begun with
`Engine.spawn`, and ends when the engine is cleared or stopped.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any

from aiohttp import web

from moorage.lab import calls
from moorage.lab import site as sites
from moorage.lab.ovirt import events, inventory, jobs, locks, permissions, shape, sso

_log = logging.getLogger(__name__)


class Engine:
    """The state of one engine. ``down_until`` is the moment at which it answers again, in cloud seconds."""

    def __init__(self, site: sites.Site) -> None:
        self.site = site
        self.clock = site.clock
        self.inventory = inventory.Inventory()
        self.locks = locks.Locks(self)
        self.jobs = jobs.Jobs(self)
        self.events = events.Events(self)
        self.permissions = permissions.Permissions(self)
        self.sessions = sso.Sessions(self.clock)
        self.down_until = 0.0
        #: The calls that are being answered: a restart cuts them off.
        self.answering: dict[int, web.Request] = {}
        #: Where the daemons that take the bytes of images are, once they serve: see `serving`.
        self.address = ""
        self.ca_pem = ""
        #: What else is to be forgotten when the engine is cleared.
        self.on_clear: list[Callable[[], None]] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self.shape = shape.Shape()
        shape.furnish(self)

    @property
    def down(self) -> bool:
        return self.clock.now() < self.down_until

    def spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Begin some work in the background."""
        task = asyncio.get_running_loop().create_task(_watched(work))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        # Work that is ended before it began would complain that nobody awaited it.
        task.add_done_callback(lambda _: work.close())
        return task

    async def stop(self) -> None:
        """End all work in the background."""
        while self._tasks:
            ending = list(self._tasks)
            for task in ending:
                task.cancel()
            await asyncio.gather(*ending, return_exceptions=True)

    async def clear(self) -> None:
        """Back to the datacentre of a new lab. The machines of the site are the site's to remove."""
        await self.stop()
        for forget in self.on_clear:
            forget()
        self.inventory.clear()
        self.locks.clear()
        self.sessions.clear()
        self.down_until = 0.0
        self.shape = shape.Shape()
        shape.furnish(self)

    def restart(self, seconds: float) -> None:
        """Be away for a while; nobody is logged in afterwards."""
        self.down_until = self.clock.now() + seconds
        self.sessions.clear()
        for request in list(self.answering.values()):
            request[calls.DROPPED] = True
            if request.transport is not None:
                request.transport.abort()


async def _watched(work: Coroutine[Any, Any, None]) -> None:
    try:
        await work
    except Exception:  # noqa: BLE001 - nobody awaits this, so nobody else would hear of it
        _log.exception("work in the background of the engine has failed")
