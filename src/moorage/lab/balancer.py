"""The lab's load balancer: TCP listeners that pass connections to the healthy members of a pool.

It does what the balancers of the platforms do and no more: a member gets nothing before its health check has succeeded
often enough, a pool without a healthy member resets whoever connects, and where no listener was configured nothing
listens. Listeners, pools and members come and go while it runs; health is checked on the cloud's clock.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import functools
import socket
import ssl
import struct
from collections.abc import Iterable, Iterator
from types import TracebackType
from typing import Self

from moorage import errors, lab
from moorage.engine import clock as clocks

_CHUNK = 64 * 1024
_LONGEST_STATUS_LINE = 4096
_CONNECT_SECONDS = 5.0
# A thousand machines that are switched on together connect together.
_BACKLOG = 1024
# However fast the cloud's time runs, a member is not checked more often than this (real seconds).
_FASTEST_CHECK = 0.25
_UNCHECKED = "not checked yet"

_Ends = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class BalancerRefused(errors.MoorageError):
    """What was asked of the balancer cannot be configured."""


@dataclasses.dataclass(frozen=True)
class Check:
    """How a member's health is found out: an HTTPS GET of ``path`` that answers 2xx, or without a path, a connection.

    Seconds are the cloud's. ``rise`` successes in a row make a member healthy, ``fall`` failures in a row unhealthy.
    """

    path: str = ""
    interval: float = 10.0
    timeout: float = 5.0
    rise: int = 2
    fall: int = 3


@dataclasses.dataclass(frozen=True, order=True)
class Member:
    """Where connections may be passed to."""

    address: str
    port: int

    def __str__(self) -> str:
        return f"{self.address}:{self.port}"


@dataclasses.dataclass(frozen=True)
class MemberState:
    """How a member fares: ``problem`` is why the last check failed, empty if it did not."""

    member: Member
    healthy: bool
    problem: str
    active: int
    served: int


@dataclasses.dataclass(frozen=True)
class ListenerState:
    """What a listener has seen: ``refused`` connections found no member that would take them."""

    address: str
    port: int
    pool: str
    active: int
    accepted: int
    refused: int


async def probe(member: Member, check: Check, clock: clocks.Clock) -> str:
    """Check a member once: empty if it is well, or else what is wrong."""
    try:
        async with asyncio.timeout(clock.socket_timeout(check.timeout)):
            return await (_asked(member, check.path) if check.path else _connected(member))
    except TimeoutError:
        return f"no answer within {check.timeout:g} s"
    except (OSError, ValueError) as problem:
        return str(problem) or type(problem).__name__


async def _connected(member: Member) -> str:
    _, writer = await asyncio.open_connection(member.address, member.port)
    writer.transport.abort()
    return ""


async def _asked(member: Member, path: str) -> str:
    reader, writer = await asyncio.open_connection(
        member.address, member.port, ssl=_trusting_context(), limit=_LONGEST_STATUS_LINE
    )
    try:
        request = f"GET {path} HTTP/1.1\r\nHost: {member}\r\nUser-Agent: health-check\r\nConnection: close\r\n\r\n"
        writer.write(request.encode("ascii"))
        words = (await reader.readline()).split()
    finally:
        writer.transport.abort()
    if len(words) < 2 or not words[0].startswith(b"HTTP/"):
        return "the answer is not HTTP"
    status = words[1].decode("ascii", "replace")
    return "" if len(status) == 3 and status.isdigit() and status[0] == "2" else f"GET {path} answers {status}"


@functools.cache
def _trusting_context() -> ssl.SSLContext:
    # Real balancers do not know the cluster's own CA, and look at no certificate when they check health.
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


class _Watched:
    """One member of a pool, with the task that checks its health."""

    def __init__(self, member: Member, check: Check, clock: clocks.Clock) -> None:
        self.member = member
        self.healthy = False
        self.problem = _UNCHECKED
        self.active = 0
        self.served = 0
        # Results in a row that contradict the present state.
        self._against = 0
        self._check = check
        self._clock = clock
        self.task = asyncio.get_running_loop().create_task(self._watch())

    async def _watch(self) -> None:
        while True:
            self.problem = await probe(self.member, self._check, self._clock)
            self._against = self._against + 1 if self.healthy == bool(self.problem) else 0
            if self._against >= (self._check.fall if self.healthy else self._check.rise):
                self.healthy = not self.healthy
                self._against = 0
            await lab.sleep(self._clock, max(self._check.interval, _FASTEST_CHECK * self._clock.speed))

    def state(self) -> MemberState:
        return MemberState(self.member, self.healthy, self.problem, self.active, self.served)


class _Pool:
    def __init__(self, check: Check) -> None:
        self.check = check
        self.members: dict[Member, _Watched] = {}
        self._turn = 0

    def choose(self) -> _Watched | None:
        """The next healthy member in turn."""
        healthy = [each for each in self.members.values() if each.healthy]
        if not healthy:
            return None
        self._turn += 1
        return healthy[(self._turn - 1) % len(healthy)]


class _Listener:
    """An open port, and the connections that came in through it."""

    def __init__(self, address: str, pool_name: str, pool: _Pool, clock: clocks.Clock) -> None:
        self.address = address
        self.port = 0
        self.pool_name = pool_name
        self.accepted = 0
        self.refused = 0
        self._pool = pool
        self._clock = clock
        self._server: asyncio.Server | None = None
        self._connections: set[asyncio.Task[None]] = set()

    async def open(self, port: int) -> None:
        self._server = await asyncio.start_server(self._accept, self.address, port, limit=_CHUNK, backlog=_BACKLOG)
        self.port = int(self._server.sockets[0].getsockname()[1])

    async def close(self) -> None:
        if self._server is not None:
            self._server.close()
        await _ended(self._connections)

    def state(self) -> ListenerState:
        active = len(self._connections)
        return ListenerState(self.address, self.port, self.pool_name, active, self.accepted, self.refused)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.accepted += 1
        connection = asyncio.get_running_loop().create_task(self._pass_on(reader, writer))
        self._connections.add(connection)
        connection.add_done_callback(self._connections.discard)

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError), closed_or_reset(writer):
            chosen, there = await self._reached()
            chosen.active += 1
            chosen.served += 1
            try:
                with closed_or_reset(there[1]):
                    await joined((reader, writer), there)
            finally:
                chosen.active -= 1

    async def _reached(self) -> tuple[_Watched, _Ends]:
        """The member whose turn it is, and a connection to it."""
        chosen = self._pool.choose()
        try:
            if chosen is None:
                raise ConnectionRefusedError("no healthy member")
            async with asyncio.timeout(self._clock.socket_timeout(_CONNECT_SECONDS)):
                there = await asyncio.open_connection(chosen.member.address, chosen.member.port, limit=_CHUNK)
        except OSError:
            self.refused += 1
            raise
        return chosen, there


class Balancer:
    """Listeners, pools and members; to be used from the thread of one event loop."""

    def __init__(self, clock: clocks.Clock) -> None:
        self._clock = clock
        self._pools: dict[str, _Pool] = {}
        self._listeners: dict[tuple[str, int], _Listener] = {}

    def add_pool(self, pool: str, check: Check) -> None:
        """Make a pool without members."""
        if pool in self._pools:
            raise BalancerRefused(f"there is a pool {pool} already")
        if not (check.interval > 0 and check.timeout > 0 and check.rise > 0 and check.fall > 0):
            raise BalancerRefused(f"pool {pool}: the times and counts of a health check are above 0")
        if check.path and not (check.path.startswith("/") and check.path.isascii() and check.path.isprintable()):
            raise BalancerRefused(f"pool {pool}: {check.path!r} is no path to check", remedy="write it like /readyz")
        self._pools[pool] = _Pool(check)

    async def remove_pool(self, pool: str) -> None:
        """Forget a pool that no listener uses, and its members."""
        users = [f"{each.address}:{each.port}" for each in self._listeners.values() if each.pool_name == pool]
        if users:
            raise BalancerRefused(f"pool {pool} is in use by {', '.join(users)}", remedy="remove the listeners first")
        found = self._pool(pool)
        del self._pools[pool]
        await _ended(each.task for each in found.members.values())

    def add_member(self, pool: str, member: Member) -> None:
        """Begin to check a member; connections come once it is healthy. Adding it twice changes nothing."""
        members = self._pool(pool).members
        lab.loopback(member.address)
        if not 0 < member.port < 65536:
            raise BalancerRefused(f"pool {pool}: {member} has no such port")
        if member not in members:
            members[member] = _Watched(member, self._pool(pool).check, self._clock)

    async def remove_member(self, pool: str, member: Member) -> None:
        """Send a member nothing new; the connections it has live on. Removing what is absent changes nothing."""
        gone = self._pool(pool).members.pop(member, None)
        if gone is not None:
            await _ended([gone.task])

    async def add_listener(self, address: str, port: int, pool: str) -> int:
        """Listen for ``pool``; the port is told, for 0 asks for any."""
        listener = _Listener(lab.loopback(address), pool, self._pool(pool), self._clock)
        try:
            await listener.open(port)
        except (OSError, OverflowError) as problem:
            raise BalancerRefused(
                f"cannot listen on {address}:{port}: {problem}", remedy="choose an address and port that are free"
            ) from problem
        self._listeners[listener.address, listener.port] = listener
        return listener.port

    async def remove_listener(self, address: str, port: int) -> None:
        """Stop listening there, and cut the connections that came in. Removing what is absent changes nothing."""
        listener = self._listeners.pop((address, port), None)
        if listener is not None:
            await listener.close()

    def members(self, pool: str) -> list[MemberState]:
        """The members of a pool and how they fare."""
        return [each.state() for each in self._pool(pool).members.values()]

    def listeners(self) -> list[ListenerState]:
        """All listeners and what they have seen."""
        return [each.state() for each in self._listeners.values()]

    async def stop(self) -> None:
        """Remove everything."""
        for address, port in list(self._listeners):
            await self.remove_listener(address, port)
        for pool in list(self._pools):
            await self.remove_pool(pool)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    def _pool(self, name: str) -> _Pool:
        if name not in self._pools:
            raise BalancerRefused(f"there is no pool {name}", remedy=f"pools: {', '.join(self._pools) or 'none'}")
        return self._pools[name]


async def _ended(tasks: Iterable[asyncio.Task[None]]) -> None:
    ending = list(tasks)
    for task in ending:
        task.cancel()
    await asyncio.gather(*ending, return_exceptions=True)


async def joined(here: _Ends, there: _Ends) -> None:
    """Pass bytes both ways until both sides have said all; what one side closes, the other sees closed, no more."""
    loop = asyncio.get_running_loop()
    pumps = [loop.create_task(_pumped(here[0], there[1])), loop.create_task(_pumped(there[0], here[1]))]
    try:
        await asyncio.gather(*pumps)
    finally:
        await _ended(pumps)


async def _pumped(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(_CHUNK):
        writer.write(data)
        await writer.drain()
    writer.write_eof()


@contextlib.contextmanager
def closed_or_reset(writer: asyncio.StreamWriter) -> Iterator[None]:
    """Close in order what went well; reset what did not, so that nobody takes half an answer for a whole one."""
    try:
        yield
    except BaseException:
        with contextlib.suppress(OSError):
            writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        writer.transport.abort()
        raise
    writer.close()
