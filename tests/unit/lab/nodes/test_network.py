"""A machine's wire: services that come and go with the line and the power, and errors in the words programs use."""

from __future__ import annotations

import asyncio
import errno
import ssl
from collections.abc import Awaitable, Callable

import pytest
from aiohttp import web

from moorage.engine import clock as clocks
from moorage.lab import names
from moorage.lab import site as sites
from moorage.lab.nodes import credentials, network

Tell = Callable[[sites.Site, network.Wire, network.Wire], Awaitable[None]]
PORT = 8080


class Greeter:
    """A service that says which of its lives it is in; each life listens anew."""

    def __init__(self, wire: network.Wire, text: str = "hello", tls: ssl.SSLContext | None = None) -> None:
        self._wire, self._text, self._tls = wire, text, tls
        self._runner: web.ServerRunner | None = None
        self.lasting = asyncio.Event()

    async def start(self) -> None:
        self._runner = web.ServerRunner(web.Server(self._answer, handler_cancellation=True), shutdown_timeout=0.1)
        await self._runner.setup()
        await web.TCPSite(self._runner, self._wire.address, PORT, ssl_context=self._tls).start()

    async def stop(self) -> None:
        runner, self._runner = self._runner, None
        if runner is not None:
            await runner.cleanup()

    async def _answer(self, request: web.BaseRequest) -> web.Response:
        if request.path == "/never":
            self.lasting.set()
            await asyncio.Event().wait()
        if request.path == "/who":
            return web.Response(text=str(request.remote))
        if request.path == "/big":
            return web.Response(body=bytes(1000))
        return web.Response(text=self._text, headers={"X-Life": "one"})


class Slow:
    """A service that takes until it is told to start."""

    def __init__(self) -> None:
        self.begun, self.go = asyncio.Event(), asyncio.Event()
        self.stopped = 0

    async def start(self) -> None:
        self.begun.set()
        await self.go.wait()

    async def stop(self) -> None:
        self.stopped += 1


def story(tell: Tell, speed: float = 1000.0) -> None:
    """Two machines on one site: here and there."""

    async def told() -> None:
        site = sites.Site(clocks.Clock(speed))
        await site.start()
        here, there = network.Wire(site, site.allocate()), network.Wire(site, site.allocate())
        try:
            await tell(site, here, there)
        finally:
            await here.close()
            await there.close()
            await site.stop()

    asyncio.run(told())


async def got(wire: network.Wire, url: str, **more: object) -> str:
    return (await wire.request("GET", url, **more)).body.decode()  # type: ignore[arg-type]


async def failed(wire: network.Wire, url: str, **more: object) -> str:
    """What a program on the machine would say about it."""
    try:
        await wire.request("GET", url, **more)  # type: ignore[arg-type]
    except OSError as problem:
        return network.words(problem)
    pytest.fail(f"{url} was answered")


def test_a_machine_asks_from_its_own_address_by_names_of_the_site() -> None:
    async def tell(site: sites.Site, here: network.Wire, there: network.Wire) -> None:
        await there.serve("greeter", lambda: Greeter(there))
        site.zones.hold("example.com")
        site.zones.put(names.RecordSet("there.example.com", "A", (there.address,)))

        reply = await here.request("GET", f"http://there.example.com:{PORT}/")

        assert (reply.status, reply.body, reply.headers["x-life"]) == (200, b"hello", "one")
        assert await got(here, f"http://{there.address}:{PORT}/who") == here.address
        assert there.listening == ["greeter"]

    story(tell)


def test_localhost_is_the_machine_itself() -> None:
    async def tell(site: sites.Site, here: network.Wire, there: network.Wire) -> None:
        await there.serve("greeter", lambda: Greeter(there))

        assert await got(there, f"http://localhost:{PORT}/who") == there.address
        assert await failed(here, f"http://localhost:{PORT}/") == "connect: connection refused"

    story(tell)


def test_words_for_what_goes_wrong() -> None:
    async def tell(site: sites.Site, here: network.Wire, there: network.Wire) -> None:
        site.zones.hold("example.com")
        site.zones.put(names.RecordSet("far.example.com", "A", ("192.0.2.1",)))
        at = f"{site.nameserver.host}:{site.nameserver.port}"

        assert await failed(here, "https://api.example.com:6443/") == f"lookup api.example.com on {at}: no such host"
        assert await failed(here, "http://x.org/") == f"lookup x.org on {at}: server misbehaving"
        assert await failed(here, f"http://{there.address}:{PORT}/") == "connect: connection refused"
        # Nothing outside of the lab is ever tried, be it by name or by address.
        for url in ("http://far.example.com:1/", "http://192.0.2.1:1/", "http://[2001:db8::1]:1/"):
            assert await failed(here, url) == "connect: no route to host"
        assert await failed(here, "http://[oops/") == 'invalid URL "http://[oops/"'
        assert await failed(here, "/nowhere") == 'invalid URL "/nowhere"'

    story(tell)


def test_a_machine_that_is_cut_off_waits_in_vain() -> None:
    async def tell(site: sites.Site, here: network.Wire, there: network.Wire) -> None:
        await there.serve("greeter", lambda: Greeter(there))
        await here.partition()
        assert not here.connected

        began = site.clock.now()
        said = await failed(here, f"http://{there.address}:{PORT}/", seconds=20.0)

        assert said.startswith("context deadline exceeded")
        assert site.clock.now() - began >= 20
        await here.heal()
        assert await got(here, f"http://{there.address}:{PORT}/") == "hello"

    story(tell)


def test_services_stop_with_the_line_and_come_back_anew() -> None:
    async def tell(site: sites.Site, here: network.Wire, there: network.Wire) -> None:
        lives = iter(("first", "second"))
        await there.serve("greeter", lambda: Greeter(there, next(lives)))
        url = f"http://{there.address}:{PORT}/"
        assert await got(here, url) == "first"

        await there.partition()
        assert there.listening == []
        # The line the answer came on is dead as well, though it was kept open.
        assert await failed(here, url) == "connect: connection refused"
        await there.partition()
        await there.heal()
        assert await got(here, url) == "second"
        await there.heal()
        await there.unserve("greeter")
        await there.unserve("greeter")
        assert await failed(here, url) == "connect: connection refused"
        await there.partition()
        await there.heal()
        assert there.listening == []  # what was stopped stays stopped

    story(tell)


@pytest.mark.parametrize("end", ["partition", "close"])
def test_what_is_under_way_is_cut(end: str) -> None:
    async def tell(site: sites.Site, here: network.Wire, there: network.Wire) -> None:
        service = Greeter(there)
        await there.serve("greeter", lambda: service)
        for side in (there, here):
            service.lasting.clear()
            asking = asyncio.create_task(failed(here, f"http://{there.address}:{PORT}/never", seconds=30_000.0))
            await service.lasting.wait()
            await getattr(side, end)()
            async with asyncio.timeout(5):
                # The other side's end is met by asking once more, which nobody takes.
                refused = side is there
                assert await asking == ("connect: connection refused" if refused else "read: connection reset by peer")
            await there.open()
            await there.heal()
            await there.serve("greeter", lambda: service)

    story(tell)


def test_without_power_there_is_nothing_to_serve_or_ask_with() -> None:
    async def tell(site: sites.Site, here: network.Wire, there: network.Wire) -> None:
        await there.serve("greeter", lambda: Greeter(there))
        await there.close()
        assert await failed(here, f"http://{there.address}:{PORT}/") == "connect: connection refused"
        await there.serve("greeter", lambda: Greeter(there))
        assert there.listening == []
        with pytest.raises(OSError, match="down") as problem:
            await there.request("GET", f"http://{here.address}:{PORT}/")
        assert problem.value.errno == errno.ENETDOWN

        await there.open()
        assert there.listening == []  # what ran before the power went does not start by itself
        await there.serve("greeter", lambda: Greeter(there))
        assert await got(here, f"http://{there.address}:{PORT}/") == "hello"

    story(tell)


def test_serving_again_under_the_same_name_replaces_what_runs() -> None:
    async def tell(site: sites.Site, here: network.Wire, there: network.Wire) -> None:
        for text in ("old", "new"):
            await there.serve("greeter", lambda text=text: Greeter(there, text))  # type: ignore[misc]
        assert await got(here, f"http://{there.address}:{PORT}/") == "new"
        assert there.listening == ["greeter"]

    story(tell)


@pytest.mark.parametrize("end", ["partition", "close", "unserve"])
def test_what_is_still_starting_does_not_outlive_the_end(end: str) -> None:
    async def tell(site: sites.Site, here: network.Wire, there: network.Wire) -> None:
        slow = Slow()
        starting = asyncio.create_task(there.serve("slow", lambda: slow))
        await slow.begun.wait()
        ending = asyncio.create_task(there.unserve("slow") if end == "unserve" else getattr(there, end)())
        await asyncio.sleep(0)
        slow.go.set()
        await asyncio.gather(starting, ending)

        assert there.listening == []
        assert slow.stopped == 1

    story(tell)


def test_a_start_that_is_given_up_leaves_nothing_open() -> None:
    async def tell(site: sites.Site, here: network.Wire, there: network.Wire) -> None:
        slow = Slow()
        starting = asyncio.create_task(there.serve("slow", lambda: slow))
        await slow.begun.wait()
        starting.cancel()
        await asyncio.gather(starting, return_exceptions=True)

        assert slow.stopped == 1
        assert there.listening == []
        await there.serve("greeter", lambda: Greeter(there))  # and the wire is not stuck

    story(tell)


def test_one_service_that_cannot_come_back_does_not_keep_the_others() -> None:
    async def tell(site: sites.Site, here: network.Wire, there: network.Wire) -> None:
        lives = [Greeter(there)]
        await there.serve("a", Slow_ready)
        await there.serve("once", lives.pop)
        await there.serve("z", Slow_ready)
        await there.partition()

        await there.heal()

        assert sorted(there.listening) == ["a", "z"]

    def Slow_ready() -> Slow:  # noqa: N802 - stands for a class
        slow = Slow()
        slow.go.set()
        return slow

    story(tell)


def test_an_answer_too_long_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(network, "_MOST_BYTES", 999)

    async def tell(site: sites.Site, here: network.Wire, there: network.Wire) -> None:
        await there.serve("greeter", lambda: Greeter(there))
        assert "longer than 999 bytes" in await failed(here, f"http://{there.address}:{PORT}/big")
        assert await got(here, f"http://{there.address}:{PORT}/") == "hello"

    story(tell)


def test_a_machines_own_name_server_is_asked_first() -> None:
    async def tell(site: sites.Site, here: network.Wire, there: network.Wire) -> None:
        async def own(name: str) -> list[str]:
            if name != "inside":
                raise sites.Unresolved(f"{name}: not mine")
            return [there.address]

        here.resolvers.insert(0, own)
        site.zones.hold("example.com")
        site.zones.put(names.RecordSet("a.example.com", "A", ("127.0.0.9",)))

        assert await here.resolve("inside") == [there.address]
        assert await here.resolve("a.example.com") == ["127.0.0.9"]
        with pytest.raises(sites.Unresolved, match="no such host"):
            await here.resolve("b.example.com")
        here.resolvers.clear()
        with pytest.raises(sites.Unresolved, match="lookup inside: no name server"):
            await here.resolve("inside")

    story(tell)


def test_tls_is_held_against_the_authority_and_the_name() -> None:
    authority = credentials.authority("ours", credentials.DAY)
    stranger = credentials.authority("somebody else", credentials.DAY)
    pair = credentials.serving(authority, "there", ["there.example.com"], credentials.DAY)

    async def tell(site: sites.Site, here: network.Wire, there: network.Wire) -> None:
        shown = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        network.load_pair(shown, pair.certificate, pair.key)
        await there.serve("greeter", lambda: Greeter(there, tls=shown))
        site.zones.hold("example.com")
        for name in ("there", "other"):
            site.zones.put(names.RecordSet(f"{name}.example.com", "A", (there.address,)))

        trusted = network.trusting(authority.certificate)
        assert await got(here, f"https://there.example.com:{PORT}/", tls=trusted) == "hello"
        wrong_name = await failed(here, f"https://other.example.com:{PORT}/", tls=trusted)
        assert "x509: certificate is valid for there.example.com, not other.example.com" in wrong_name
        unknown = await failed(here, f"https://there.example.com:{PORT}/", tls=network.trusting(stranger.certificate))
        assert "x509: certificate signed by unknown authority" in unknown

    story(tell)
