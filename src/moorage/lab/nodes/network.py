"""How a simulated machine talks: real sockets from its own address, names through the site, silence when it is cut off.

A service listens on the machine's address for as long as the machine is on and connected; a machine that is cut off
loses its listeners and connections at once, and whatever it asks takes until the time-out to fail, as on a dead line.
Services are started and stopped one at a time, so that whatever happens while one starts finds it again.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import errno
import functools
import ipaddress
import logging
import os
import socket
import ssl
import tempfile
from collections.abc import Awaitable, Callable, Mapping
from typing import Protocol

import aiohttp
import yarl
from aiohttp import abc

from moorage import lab
from moorage.lab import site as sites
from moorage.lab.nodes import x509

_CONNECT_SECONDS = 10.0
_MOST_BYTES = 64 * 1024 * 1024

_log = logging.getLogger(__name__)


class NoSuchName(sites.Unresolved):
    """A name server said that there is no such name: nobody else is asked then."""


class Misbehaving(sites.Unresolved):
    """A name server had no answer: the next one is asked."""


class Service(Protocol):
    """Something that listens while it is started."""

    async def start(self) -> None: ...

    async def stop(self) -> None: ...


@dataclasses.dataclass(frozen=True)
class Reply:
    """The answer to a request; header names are in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class Wire:
    """The network card of a machine."""

    def __init__(self, site: sites.Site, address: str) -> None:
        self.address = address
        #: Where names are asked first; a machine with a name server of its own puts it here.
        self.resolvers: list[Callable[[str], Awaitable[list[str]]]] = [site.resolve]
        self._site = site
        self._cut = False
        self._powered = True
        self._session: aiohttp.ClientSession | None = None
        self._makers: dict[str, Callable[[], Service]] = {}
        self._running: dict[str, Service] = {}
        self._changing = asyncio.Lock()

    @property
    def connected(self) -> bool:
        return not self._cut

    @property
    def listening(self) -> list[str]:
        """The services that can be reached at this moment."""
        return list(self._running)

    async def resolve(self, name: str) -> list[str]:
        """The addresses of a name, from the first resolver that can say; localhost is the machine itself."""
        if name == "localhost":
            return [self.address]
        problem: OSError = sites.Unresolved(f"lookup {name}: no name server")
        for ask in list(self.resolvers):
            try:
                return await ask(name)
            except NoSuchName:
                raise
            except OSError as refused:
                problem = refused
        raise problem

    async def request(
        self,
        method: str,
        url: str,
        *,
        headers: Mapping[str, str] | None = None,
        body: bytes | None = None,
        tls: ssl.SSLContext | None = None,
        seconds: float = 30.0,
    ) -> Reply:
        """Ask and read the whole answer. Raises OSError (also for names and certificates) or TimeoutError."""
        if not self._powered:
            raise _unreachable(errno.ENETDOWN)
        if self._cut:
            await lab.sleep(self._site.clock, seconds)
            raise TimeoutError(f"no answer within {seconds:g} s")
        total = self._site.clock.socket_timeout(seconds)
        options = aiohttp.ClientTimeout(total=total, sock_connect=self._site.clock.socket_timeout(_CONNECT_SECONDS))
        try:
            async with self._open().request(
                method,
                _within_lab(url),
                headers=headers,
                data=body,
                ssl=tls or True,
                timeout=options,
                allow_redirects=False,
            ) as reply:
                content = await _whole(reply.content)
                return Reply(reply.status, {k.lower(): v for k, v in reply.headers.items()}, content)
        except aiohttp.ClientConnectorError as problem:
            raise problem.os_error from problem
        except aiohttp.InvalidURL as problem:
            raise OSError(f'invalid URL "{url}"') from problem
        except aiohttp.ClientError as problem:
            raise ConnectionResetError(str(problem) or type(problem).__name__) from problem

    async def serve(self, name: str, make: Callable[[], Service]) -> None:
        """Run a service from now on, while connected; ``make`` gives a fresh one after each interruption."""
        async with self._changing:
            await self._end(name)
            if not self._powered:
                return
            self._makers[name] = make
            if not self._cut:
                await self._start(name)

    async def unserve(self, name: str) -> None:
        """Stop a service; stopping what does not run changes nothing."""
        async with self._changing:
            await self._end(name)

    async def partition(self) -> None:
        """Cut the line: nothing comes in, nothing goes out."""
        self._cut = True
        async with self._changing:
            await self._hang_up()

    async def heal(self) -> None:
        """Mend the line: services listen again, except those that cannot, which is told in the lab's log."""
        self._cut = False
        async with self._changing:
            for name in self._makers.keys() - self._running.keys():
                try:
                    await self._start(name)
                except Exception:  # noqa: BLE001 - the others shall come back
                    _log.exception("%s does not come back on %s", name, self.address)

    async def open(self) -> None:
        """Be of use again, as when the power comes back."""
        async with self._changing:
            self._powered = True

    async def close(self) -> None:
        """Stop all services and hang up, as when the power goes."""
        self._powered = False
        async with self._changing:
            self._makers.clear()
            await self._hang_up()

    async def _start(self, name: str) -> None:
        service = self._makers[name]()
        try:
            await service.start()
        except BaseException:
            # It failed, or the power went: what it has opened so far must not stay open.
            await service.stop()
            raise
        self._running[name] = service

    async def _end(self, name: str) -> None:
        self._makers.pop(name, None)
        running = self._running.pop(name, None)
        if running is not None:
            await running.stop()

    async def _hang_up(self) -> None:
        running, self._running = list(self._running.values()), {}
        session, self._session = self._session, None
        if session is not None:
            await session.close()
        await asyncio.gather(*(service.stop() for service in running))

    def _open(self) -> aiohttp.ClientSession:
        if self._session is None:
            connector = aiohttp.TCPConnector(
                resolver=_Resolver(self), local_addr=(self.address, 0), ttl_dns_cache=0, use_dns_cache=False
            )
            self._session = aiohttp.ClientSession(connector=connector, auto_decompress=False)
        return self._session


# Machines ask for the same few things for as long as they live.
@functools.lru_cache(maxsize=4096)
def _within_lab(url: str) -> yarl.URL:
    """The URL, unless it leads out of the lab by address; names are looked at when they are resolved."""
    try:
        found = yarl.URL(url, encoded=True)
    except ValueError as problem:
        raise OSError(f'invalid URL "{url}"') from problem
    with contextlib.suppress(ValueError):
        _inside(str(ipaddress.ip_address(found.host or "")))
    return found


def _inside(address: str) -> str:
    """The address, if it is one of the lab's; all others are as far away as can be."""
    try:
        return lab.loopback(address)
    except lab.NotInLab as problem:
        raise _unreachable(errno.EHOSTUNREACH) from problem


def _unreachable(number: int) -> OSError:
    return OSError(number, os.strerror(number))


async def _whole(stream: aiohttp.StreamReader) -> bytes:
    content = bytearray()
    async for chunk in stream.iter_any():
        content += chunk
        if len(content) > _MOST_BYTES:
            raise ConnectionAbortedError(f"the answer is longer than {_MOST_BYTES} bytes")
    return bytes(content)


class _Resolver(abc.AbstractResolver):
    """aiohttp's question about a name, put to the machine's own resolvers."""

    def __init__(self, wire: Wire) -> None:
        self._wire = wire

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[abc.ResolveResult]:
        found = await self._wire.resolve(host)
        return [
            abc.ResolveResult(hostname=host, host=_inside(address), port=port, family=socket.AF_INET, proto=0, flags=0)
            for address in found
        ]

    async def close(self) -> None:
        """Nothing is held."""


def trusting(authorities: str, *, certificate: str = "", key: str = "") -> ssl.SSLContext:
    """A client's TLS that trusts these authorities (PEM) and no others, and shows a certificate if it has one."""
    if not certificate:
        return _anonymous(authorities)
    context = x509.client_context(authorities)
    load_pair(context, certificate, key)
    return context


# Those who show no certificate are all alike, and to read the authorities anew costs more than to connect.
@functools.lru_cache(maxsize=64)
def _anonymous(authorities: str) -> ssl.SSLContext:
    return x509.client_context(authorities)


def load_pair(context: ssl.SSLContext, certificate: str, key: str) -> None:
    """Let a context show a certificate. ssl reads it from files only, so it gets a private one, gone at once."""
    with tempfile.NamedTemporaryFile("w", prefix="moorage-lab-", suffix=".pem") as file:
        file.write(f"{certificate.rstrip()}\n{key}")
        file.flush()
        context.load_cert_chain(file.name)


def words(problem: BaseException) -> str:
    """What went wrong on the wire, in the words of the programs that run on nodes."""
    if isinstance(problem, ssl.SSLError):
        return x509.words(problem)
    if isinstance(problem, TimeoutError):
        return "context deadline exceeded (Client.Timeout exceeded while awaiting headers)"
    if isinstance(problem, ConnectionResetError):
        return "read: connection reset by peer"
    if isinstance(problem, OSError) and problem.errno and problem.strerror:
        return f"connect: {os.strerror(problem.errno).lower()}"
    return str(problem) or type(problem).__name__
