"""HAProxy on a simulated machine: the ports of its config, each passing connections to servers that are up.

A server is up from the start, as in life, until a check says otherwise; one bad check is enough then, later it takes as
many as the config says. Monitors and statistics answer as the config asks. Everything listens on the machine's own
address, because that is where the machine is.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import itertools
from collections.abc import Callable, Sequence

from moorage import lab
from moorage.lab import site as sites
from moorage.lab.nodes import haproxy_cfg as cfg
from moorage.lab.nodes import instance, relay, track_scripts

# However fast the cloud's time runs, nobody is checked more often than this (real seconds).
_FASTEST_CHECK = 0.1
_LONGEST_LINE = 4096


def private_ports(config: cfg.Config, site: sites.Site) -> frozenset[int]:
    """The ports that only the machine itself gets at."""
    return frozenset(site.port(bind.port) for proxy in config.proxies for bind in proxy.binds if bind.local)


def same_ports(one: cfg.Config, other: cfg.Config) -> bool:
    """Whether two configs differ in their servers alone."""
    bare = [[dataclasses.replace(each, servers=()) for each in config.proxies] for config in (one, other)]
    return bare[0] == bare[1]


class Haproxy:
    """One running HAProxy."""

    def __init__(self, config: cfg.Config, machine: instance.Instance) -> None:
        self.config = config
        self._machine = machine
        self._backends: dict[str, _Backend] = {}
        self._ports: list[relay.Relay | Answering] = []

    def up(self, backend: str) -> list[str]:
        """The names of a backend's servers that are up."""
        found = self._backends.get(backend)
        return [] if found is None else [each.server.name for each in found.servers if each.up]

    async def start(self) -> None:
        try:
            self._backends = await self._made(self.config)
            for proxy in self.config.proxies:
                for bind in proxy.binds:
                    port = self._port(proxy, self._machine.site.port(bind.port))
                    await port.start()
                    self._ports.append(port)
        except BaseException:
            await self.stop()
            raise

    async def stop(self) -> None:
        ports, self._ports = self._ports, []
        for port in ports:
            await port.stop()
        backends, self._backends = self._backends, {}
        for backend in backends.values():
            await backend.stop()

    async def adopt(self, config: cfg.Config) -> None:
        """Go on with another config of the same ports: connections stay where they are, new ones are led by it.

        What was known of the servers is forgotten, as by the fresh process that a real one hands its ports to.
        """
        backends = await self._made(config)
        self.config, before, self._backends = config, self._backends, backends
        for each in before.values():
            await each.stop()

    async def _made(self, config: cfg.Config) -> dict[str, _Backend]:
        found: dict[str, _Backend] = {}
        try:
            for proxy in config.proxies:
                if proxy.servers:
                    found[proxy.name] = await _Backend.made(proxy, self._machine)
        except BaseException:
            for each in found.values():
                await each.stop()
            raise
        return found

    def _port(self, proxy: cfg.Proxy, port: int) -> relay.Relay | Answering:
        target = self.config.backend(proxy)
        if target is None:
            return Answering(self._machine.address, port, lambda path: self._status(proxy, path))
        return relay.Relay(self._machine.address, port, lambda: self._reached(target))

    def _status(self, proxy: cfg.Proxy, path: str) -> int:
        if proxy.monitor_path and path == proxy.monitor_path:
            fails = proxy.monitor_fails
            return 503 if fails is not None and len(self.up(fails.backend)) < fails.below else 200
        if proxy.stats_path and path.partition(";")[0] == proxy.stats_path:
            return 200
        return 503

    async def _reached(self, target: cfg.Proxy) -> relay.Ends:
        backend = self._backends.get(target.name)
        if backend is None:
            raise ConnectionRefusedError(f"backend {target.name} has no server")
        return await backend.reached()


class _Backend:
    """The servers of one backend, each with the task that checks it."""

    def __init__(self, proxy: cfg.Proxy, machine: instance.Instance, servers: Sequence[_Watched]) -> None:
        self.servers = servers
        self._proxy = proxy
        self._machine = machine
        self._turn = itertools.count()

    @classmethod
    async def made(cls, proxy: cfg.Proxy, machine: instance.Instance) -> _Backend:
        addresses = []
        for server in proxy.servers:
            try:
                addresses.append((await machine.wire.resolve(server.address))[0])
            except OSError as problem:
                raise OSError(
                    f"'server {proxy.name}/{server.name}' : could not resolve address: {problem}"
                ) from problem
        return cls(
            proxy,
            machine,
            [_Watched(*pair, proxy, machine) for pair in zip(proxy.servers, addresses, strict=True)],
        )

    async def reached(self) -> relay.Ends:
        """A connection to the server whose turn it is; backups have their turn when nobody else is up."""
        up = [each for each in self.servers if each.up and not each.server.backup and each.server.weight]
        up = up or [each for each in self.servers if each.up and each.server.backup][:1]
        if not up:
            raise ConnectionRefusedError(f"backend {self._proxy.name} has no server available!")
        weighted = [each for each in up for _ in range(each.server.weight)]
        chosen = weighted[next(self._turn) % len(weighted)]
        seconds = self._machine.clock.socket_timeout(self._proxy.connect_timeout)
        return await relay.opened(chosen.address, chosen.port, seconds)

    async def stop(self) -> None:
        tasks = [each.task for each in self.servers if each.task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


class _Watched:
    """One server and how it fares."""

    def __init__(self, server: cfg.Server, address: str, proxy: cfg.Proxy, machine: instance.Instance) -> None:
        self.server = server
        self.address = address
        self.port = machine.site.port(server.port)
        self.up = not server.disabled
        self._proxy = proxy
        self._machine = machine
        self._against = 0
        self._fresh = True
        self.task: asyncio.Task[None] | None = None
        if server.check and not server.disabled:
            self.task = asyncio.get_running_loop().create_task(self._watch())

    async def _watch(self) -> None:
        clock = self._machine.clock
        while True:
            why = await self._checked()
            self._against = self._against + 1 if self.up == bool(why) else 0
            enough = 1 if self._fresh else self.server.fall if self.up else self.server.rise
            if self._against >= enough:
                self.up, self._against = not self.up, 0
                name = f"{self._proxy.name}/{self.server.name}"
                told = "is UP" if self.up else f"is DOWN, reason: {why}"
                self._machine.say(f"haproxy: Server {name} {told}")
            self._fresh = False
            await lab.sleep(clock, max(self.server.interval, _FASTEST_CHECK * clock.speed))

    async def _checked(self) -> str:
        """Empty if the server is well, or else what is wrong."""
        try:
            async with asyncio.timeout(self._machine.clock.socket_timeout(self._proxy.check_timeout)):
                return await self._asked()
        except TimeoutError:
            return "Layer4 timeout"
        except (OSError, ValueError, lab.NotInLab) as problem:
            return f"Layer4 connection problem: {problem}"

    async def _asked(self) -> str:
        check = self._proxy.check
        tls = track_scripts.trusting_anybody() if self.server.tls else None
        reader, writer = await asyncio.open_connection(
            lab.loopback(self.address), self.port, ssl=tls, limit=_LONGEST_LINE
        )
        try:
            if not check.path:
                return ""
            host = f"Host: {self.address}\r\nConnection: close\r\n" if check.version != "HTTP/1.0" else ""
            writer.write(f"{check.method} {check.path} {check.version}\r\n{host}\r\n".encode("ascii", "replace"))
            words = (await reader.readline()).split()
        finally:
            writer.transport.abort()
        if len(words) < 2 or not words[0].startswith(b"HTTP/") or not words[1].isdigit():
            return "Layer7 invalid response"
        status = int(words[1])
        well = status in check.expected if check.expected else 200 <= status < 400
        return "" if well else f"Layer7 wrong status, code: {status}"


class Answering:
    """A port on which a program itself answers: a monitor, statistics, or 503 for what leads nowhere."""

    def __init__(self, address: str, port: int, status: Callable[[str], int]) -> None:
        self._address = address
        self._port = port
        self._status = status
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._answer, self._address, self._port, limit=_LONGEST_LINE)

    async def stop(self) -> None:
        if self._server is not None:
            self._server.close()
        for writer in list(self._writers):
            writer.transport.abort()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        try:
            with contextlib.suppress(OSError, ValueError, asyncio.IncompleteReadError):
                words = (await reader.readline()).split()
                while (await reader.readline()).strip():
                    pass
                status = self._status(words[1].decode("ascii", "replace")) if len(words) > 2 else 400
                text = {200: "OK", 400: "Bad Request", 404: "Not Found"}.get(status, "Service Unavailable")
                body = f"<html><body><h1>{status} {text}</h1></body></html>\n"
                head = f"HTTP/1.0 {status} {text}\r\nContent-Length: {len(body)}\r\nContent-Type: text/html\r\n"
                writer.write(f"{head}Connection: close\r\n\r\n{body}".encode())
                await writer.drain()
        finally:
            self._writers.discard(writer)
            writer.close()
