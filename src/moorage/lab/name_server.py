"""The lab's name server on its socket: questions over UDP and TCP, on one port, each answered from the zones.

What is answered is decided in `names`; here is only who listens, for how long, and to how many.
"""

from __future__ import annotations

import asyncio
import contextlib
import struct
from types import TracebackType
from typing import Self, cast

from moorage import lab
from moorage.engine import clock as clocks
from moorage.lab import names

_IDLE_SECONDS = 10.0
_MOST_CONNECTIONS = 128
_PORT_TRIES = 16


class _Datagrams(asyncio.DatagramProtocol):
    def __init__(self, zones: names.Zones) -> None:
        self._zones = zones
        self._transport: asyncio.DatagramTransport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.DatagramTransport, transport)

    def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:
        reply = names.respond(data, self._zones)
        if reply is not None and self._transport is not None:
            self._transport.sendto(reply, addr)


class NameServer:
    """Answers from ``zones`` on one loopback address, over UDP and TCP on the same port."""

    def __init__(self, zones: names.Zones, clock: clocks.Clock, host: str = "127.0.0.1", port: int = 0) -> None:
        self.zones = zones
        self.host = lab.loopback(host)
        self.port = port
        self._clock = clock
        self._closing: list[asyncio.Server | asyncio.DatagramTransport] = []
        self._conversations: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        """Listen; a port of 0 becomes one that is free for both protocols."""
        for tries_left in reversed(range(1 if self.port else _PORT_TRIES)):
            stream = await asyncio.start_server(self._accept, self.host, self.port)
            port = int(stream.sockets[0].getsockname()[1])
            try:
                datagrams, _ = await asyncio.get_running_loop().create_datagram_endpoint(
                    lambda: _Datagrams(self.zones), local_addr=(self.host, port)
                )
            except OSError:
                stream.close()
                if not tries_left:
                    raise
                continue
            self.port = port
            self._closing = [stream, datagrams]
            return

    async def stop(self) -> None:
        """Stop listening and hang up on everyone."""
        for each in self._closing:
            each.close()
        for conversation in self._conversations:
            conversation.cancel()
        await asyncio.gather(*self._conversations, return_exceptions=True)
        self._closing = []

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(self._conversations) >= _MOST_CONNECTIONS:
            writer.transport.abort()
            return
        conversation = asyncio.get_running_loop().create_task(self._converse(reader, writer))
        self._conversations.add(conversation)
        conversation.add_done_callback(self._conversations.discard)

    async def _converse(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        patience = self._clock.socket_timeout(_IDLE_SECONDS)
        with contextlib.closing(writer), contextlib.suppress(OSError, EOFError, TimeoutError):
            while True:
                async with asyncio.timeout(patience):
                    (length,) = struct.unpack("!H", await reader.readexactly(2))
                    reply = names.respond(await reader.readexactly(length), self.zones, stream=True)
                    if reply is None:
                        return
                    writer.write(struct.pack("!H", len(reply)) + reply)
                    await writer.drain()
