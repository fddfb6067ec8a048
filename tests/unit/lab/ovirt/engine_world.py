"""An engine in a thread of its own, as a client elsewhere would meet it, and the vendor's SDK to talk to it."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import threading
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any, TypeVar

import ovirtsdk4

from moorage.engine import clock as clocks
from moorage.lab import site as sites
from moorage.lab.ovirt import engine as engines
from moorage.lab.ovirt import serving

T = TypeVar("T")
SPEED = 200.0


def trusting(ca_file: Path) -> ssl.SSLContext:
    """TLS for clients without the SDK."""
    return ssl.create_default_context(cafile=str(ca_file))


class Running:
    """A served engine, its event loop's thread, and ways into both."""

    def __init__(self, folder: Path, speed: float) -> None:
        self._folder = folder
        self._speed = speed
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._connections: list[ovirtsdk4.Connection] = []
        self.site: sites.Site
        self.served: serving.Served

    def start(self) -> None:
        self._thread.start()
        self.do(self._begin())
        self.ca_file.write_text(self.engine.ca_pem)

    def stop(self) -> None:
        for connection in self._connections:
            with contextlib.suppress(ovirtsdk4.Error):
                connection.close()
        self.do(self._end())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()

    async def _begin(self) -> None:
        self.site = sites.Site(clocks.Clock(self._speed))
        await self.site.start()
        self.served = serving.Served(self.site)
        await self.served.start()

    async def _end(self) -> None:
        await self.served.stop()
        await self.site.stop()

    @property
    def engine(self) -> engines.Engine:
        return self.served.engine

    @property
    def clock(self) -> clocks.Clock:
        return self.site.clock

    @property
    def ca_file(self) -> Path:
        return self._folder / "ca.pem"

    def do(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine where the engine lives."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(60)

    def tell(self, function: Callable[[], T]) -> T:
        """Call a function where the engine lives."""

        async def call() -> T:
            return function()

        return self.do(call())

    def connect(self, user: str = serving.ADMIN, **more: Any) -> ovirtsdk4.Connection:
        """The vendor's SDK, logged in as a user."""
        given = {"password": self.served.password(user), "ca_file": str(self.ca_file), "timeout": 30} | more
        connection = ovirtsdk4.Connection(url=self.served.url, username=user, **given)
        self._connections.append(connection)
        return connection

    def until(self, condition: Callable[[], bool], seconds: float | None = None) -> None:
        """Wait until something has come about: for half a minute, or for so many of the cloud's seconds."""
        patience = 30 * self._speed if seconds is None else seconds
        deadline = self.clock.deadline(patience)
        while not condition():
            assert not deadline.expired, f"not within {patience} s"
            self.clock.sleep(1.0)


@contextlib.contextmanager
def started(folder: Path, speed: float = SPEED) -> Iterator[Running]:
    found = Running(folder, speed)
    found.start()
    try:
        yield found
    finally:
        found.stop()
