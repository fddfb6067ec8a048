"""A port that passes each connection on to wherever it is to go at that moment, and resets those it cannot place."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable

from moorage import lab
from moorage.lab import balancer

Ends = tuple[asyncio.StreamReader, asyncio.StreamWriter]
_CHUNK = 64 * 1024


async def opened(address: str, port: int, seconds: float) -> Ends:
    """A connection within the lab, within some real seconds."""
    async with asyncio.timeout(seconds):
        return await asyncio.open_connection(lab.loopback(address), port, limit=_CHUNK)


class Relay:
    """One open port; ``reach`` gives the other side of a connection that came in, or raises OSError."""

    def __init__(self, address: str, port: int, reach: Callable[[], Awaitable[Ends]]) -> None:
        self.address = lab.loopback(address)
        self.port = port
        self._reach = reach
        self._server: asyncio.Server | None = None
        self._connections: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._accept, self.address, self.port, limit=_CHUNK)

    async def stop(self) -> None:
        """Close the port and cut what came in through it."""
        if self._server is not None:
            self._server.close()
        connections = list(self._connections)
        for each in connections:
            each.cancel()
        await asyncio.gather(*connections, return_exceptions=True)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = asyncio.get_running_loop().create_task(self._pass_on(reader, writer))
        self._connections.add(connection)
        connection.add_done_callback(self._connections.discard)

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError), balancer.closed_or_reset(writer):
            there = await self._reach()
            with balancer.closed_or_reset(there[1]):
                await balancer.joined((reader, writer), there)
