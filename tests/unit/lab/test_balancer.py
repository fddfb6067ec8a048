"""The balancer: who gets connections, who gets a reset, and what the two ends see of each other."""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import socket
import ssl
import struct
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from moorage import lab
from moorage.engine import clock as clocks
from moorage.lab import balancer

HERE = "127.0.0.1"
QUICK = balancer.Check(interval=10, timeout=5, rise=2, fall=3)
# So long that no second check comes while a story is told.
SELDOM = balancer.Check(interval=1e7)
FAST = 2000.0


class Backend:
    """A member that tells its name, or echoes, or waits for the end of what is said before it answers."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.connections = 0
        self.member = balancer.Member(HERE, 0)
        self.status = 200
        self.asked: list[bytes] = []

    async def greet(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.closing(writer), contextlib.suppress(OSError):
            self.connections += 1
            writer.write(self.name.encode())
            await writer.drain()

    async def after_the_end(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.closing(writer), contextlib.suppress(OSError):
            said = await reader.read()
            writer.write(f"{self.name} heard {len(said)}".encode())
            await writer.drain()

    async def break_off(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            await reader.read(1)
            writer.write(b"half an ans")
            linger = struct.pack("ii", 1, 0)
            writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
            writer.transport.abort()

    async def health(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.closing(writer), contextlib.suppress(OSError, EOFError):
            self.asked.append(await reader.readuntil(b"\r\n"))
            writer.write(f"HTTP/1.1 {self.status} Whatever\r\nContent-Length: 0\r\n\r\n".encode())
            await writer.drain()


@contextlib.asynccontextmanager
async def backend(
    name: str = "one", way: str = "greet", tls: ssl.SSLContext | None = None, port: int = 0
) -> AsyncIterator[Backend]:
    made = Backend(name)
    server = await asyncio.start_server(getattr(made, way), HERE, port, ssl=tls)
    made.member = balancer.Member(HERE, server.sockets[0].getsockname()[1])
    try:
        yield made
    finally:
        server.close()


async def until(true: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while not true():
            await asyncio.sleep(0.001)


def health(lb: balancer.Balancer, pool: str = "api") -> list[bool]:
    return [each.healthy for each in lb.members(pool)]


async def heard(port: int) -> str:
    """What a client hears that says nothing: a greeting, or `reset`."""
    try:
        reader, writer = await asyncio.open_connection(HERE, port)
        with contextlib.closing(writer):
            return (await reader.read()).decode()
    except ConnectionResetError:
        return "reset"
    except ConnectionRefusedError:
        return "refused"


async def pooled(
    lb: balancer.Balancer, *members: balancer.Member, check: balancer.Check = QUICK, healthy: bool = True
) -> int:
    lb.add_pool("api", check)
    for member in members:
        lb.add_member("api", member)
    port = await lb.add_listener(HERE, 0, "api")
    if healthy:
        await until(lambda: all(health(lb)))
    return port


def fast() -> balancer.Balancer:
    return balancer.Balancer(clocks.Clock(FAST))


def test_healthy_members_take_turns() -> None:
    async def story() -> list[str]:
        async with backend("one") as one, backend("two") as two, fast() as lb:
            port = await pooled(lb, one.member, two.member)
            return [await heard(port) for _ in range(4)]

    said = asyncio.run(story())

    assert sorted(said[:2]) == ["one", "two"]
    assert said[:2] == said[2:]


def test_without_a_healthy_member_the_client_is_reset() -> None:
    async def story() -> tuple[str, str, int]:
        async with backend() as one, fast() as lb:
            port = await pooled(lb, check=SELDOM, healthy=False)
            without_members = await heard(port)
            lb.add_member("api", one.member)
            unchecked = await heard(port)
            return without_members, unchecked, lb.listeners()[0].refused

    assert asyncio.run(story()) == ("reset", "reset", 2)


def test_where_nothing_was_configured_nothing_listens() -> None:
    async def story() -> tuple[str, str]:
        async with backend() as one, fast() as lb:
            port = await pooled(lb, one.member)
            before = await heard(port)
            await lb.remove_listener(HERE, port)
            return before, await heard(port)

    assert asyncio.run(story()) == ("one", "refused")


def test_a_member_rises_and_falls_by_its_counts() -> None:
    """With rise 2 and fall 3 at 10 s, nobody is healthy before 10 s, nor given up before 20 s, of cloud time."""

    async def story() -> tuple[float, float, list[str]]:
        clock = clocks.Clock(200.0)
        async with balancer.Balancer(clock) as lb:
            async with backend() as one:
                began = clock.now()
                port = await pooled(lb, one.member)
                rose = clock.now() - began
                said = [await heard(port)]
            died = clock.now()
            await until(lambda: not health(lb)[0])
            fell = clock.now() - died
            said.append(await heard(port))
            async with backend("back", port=one.member.port):
                await until(lambda: health(lb)[0])
                said.append(await heard(port))
            return rose, fell, said

    rose, fell, said = asyncio.run(story())

    assert rose >= 10
    # The first failing check may have been under way already when the clock was read.
    assert fell >= 19
    assert said == ["one", "reset", "back"]


def test_a_member_that_died_between_two_checks_resets_its_clients() -> None:
    async def story() -> tuple[str, bool, int]:
        slow = balancer.Check(interval=1e7, rise=1)
        async with fast() as lb:
            async with backend() as one:
                port = await pooled(lb, one.member, check=slow)
            return await heard(port), health(lb)[0], lb.listeners()[0].refused

    assert asyncio.run(story()) == ("reset", True, 1)


def test_members_come_and_go_at_run_time() -> None:
    async def story() -> list[set[str]]:
        async with backend("one") as one, backend("two") as two, fast() as lb:
            port = await pooled(lb, one.member)
            said = [{await heard(port) for _ in range(2)}]
            lb.add_member("api", two.member)
            await until(lambda: health(lb) == [True, True])
            said.append({await heard(port) for _ in range(2)})
            await lb.remove_member("api", one.member)
            await lb.remove_member("api", one.member)
            said.append({await heard(port) for _ in range(2)})
            return said

    assert asyncio.run(story()) == [{"one"}, {"one", "two"}, {"two"}]


def test_a_client_may_close_its_half_and_still_hear_the_answer() -> None:
    async def story() -> bytes:
        async with backend(way="after_the_end") as one, fast() as lb:
            port = await pooled(lb, one.member)
            reader, writer = await asyncio.open_connection(HERE, port)
            writer.write(b"x" * 1_000_000)
            writer.write_eof()
            answer = await reader.read()
            writer.close()
            return answer

    assert asyncio.run(story()) == b"one heard 1000000"


def test_connections_are_counted_and_outlive_the_membership() -> None:
    async def story() -> tuple[list[tuple[int, int, int]], bytes, int]:
        async with backend(way="after_the_end") as one, fast() as lb:
            port = await pooled(lb, one.member)
            reader, writer = await asyncio.open_connection(HERE, port)
            await until(lambda: lb.members("api")[0].active == 1)
            state, member = lb.listeners()[0], lb.members("api")[0]
            counts = [(state.active, state.accepted, state.refused), (member.active, member.served, 0)]
            await lb.remove_member("api", one.member)
            writer.write_eof()
            answer = await reader.read()
            writer.close()
            await until(lambda: lb.listeners()[0].active == 0)
            return counts, answer, lb.listeners()[0].accepted

    assert asyncio.run(story()) == ([(1, 1, 0), (1, 1, 0)], b"one heard 0", 1)


def test_a_member_that_breaks_off_is_seen_to_break_off() -> None:
    async def story() -> bool:
        async with backend(way="break_off") as one, fast() as lb:
            port = await pooled(lb, one.member)
            reader, writer = await asyncio.open_connection(HERE, port)
            with contextlib.closing(writer):
                writer.write(b"?")
                with pytest.raises(ConnectionResetError):
                    await reader.read()
            await until(lambda: lb.listeners()[0].active == 0)
            return lb.members("api")[0].active == 0

    assert asyncio.run(story())


@pytest.mark.parametrize("cut", ["listener", "balancer"])
def test_removing_a_listener_cuts_its_connections(cut: str) -> None:
    async def story() -> str:
        async with backend(way="after_the_end") as one, fast() as lb:
            port = await pooled(lb, one.member)
            reader, writer = await asyncio.open_connection(HERE, port)
            await until(lambda: lb.members("api")[0].active == 1)
            await (lb.remove_listener(HERE, port) if cut == "listener" else lb.stop())
            with contextlib.closing(writer):
                try:
                    return (await reader.read()).decode()
                except ConnectionResetError:
                    return "reset"

    assert asyncio.run(story()) == "reset"


@pytest.fixture(scope="module")
def stranger(tmp_path_factory: pytest.TempPathFactory) -> ssl.SSLContext:
    """A server's side of TLS with a certificate that nobody trusts, for a name that nobody asked for, long expired."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "stranger")])
    then = datetime.datetime(2001, 1, 1, tzinfo=datetime.UTC)
    made = x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key())
    made = made.serial_number(1).not_valid_before(then).not_valid_after(then + datetime.timedelta(days=1))
    folder: Path = tmp_path_factory.mktemp("tls")
    (folder / "crt").write_bytes(made.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM))
    (folder / "key").write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "crt", folder / "key")
    return context


@pytest.mark.parametrize(
    ("status", "problem"),
    [
        (200, ""),
        (204, ""),
        (302, "GET /readyz answers 302"),
        (404, "GET /readyz answers 404"),
        (500, "GET /readyz answers 500"),
        (2000, "GET /readyz answers 2000"),
    ],
)
def test_an_https_check_wants_2xx_and_looks_at_no_certificate(
    stranger: ssl.SSLContext, status: int, problem: str
) -> None:
    async def story() -> tuple[str, bytes]:
        async with backend(way="health", tls=stranger) as one:
            one.status = status
            found = await balancer.probe(one.member, balancer.Check(path="/readyz"), clocks.Clock())
            return found, one.asked[0]

    assert asyncio.run(story()) == (problem, b"GET /readyz HTTP/1.1\r\n")


def test_an_https_check_fails_on_a_member_without_tls() -> None:
    async def story() -> str:
        async with backend() as one:
            return await balancer.probe(one.member, balancer.Check(path="/readyz"), clocks.Clock())

    assert asyncio.run(story()) != ""


def test_an_https_member_that_stops_being_ready_gets_nothing_more(stranger: ssl.SSLContext) -> None:
    async def story() -> tuple[str, str]:
        async with backend(way="health", tls=stranger) as one, fast() as lb:
            port = await pooled(lb, one.member, check=balancer.Check(path="/readyz"))
            one.status = 500
            await until(lambda: not health(lb)[0])
            return lb.members("api")[0].problem, await heard(port)

    assert asyncio.run(story()) == ("GET /readyz answers 500", "reset")


def test_a_silent_member_is_given_up_after_the_timeout() -> None:
    class Impatient(clocks.Clock):
        def socket_timeout(self, seconds: float) -> float:
            return 0.05

    async def story() -> str:
        async with backend(way="after_the_end") as one:
            return await balancer.probe(one.member, balancer.Check(path="/readyz", timeout=5), Impatient())

    assert asyncio.run(story()) == "no answer within 5 s"


@pytest.mark.parametrize(
    ("order", "problem"),
    [
        (lambda lb: lb.add_pool("api", QUICK), balancer.BalancerRefused),
        (lambda lb: lb.add_pool("new", balancer.Check(interval=0)), balancer.BalancerRefused),
        (lambda lb: lb.add_pool("new", balancer.Check(path="readyz")), balancer.BalancerRefused),
        (lambda lb: lb.add_pool("new", balancer.Check(path="/a\r\nX: y")), balancer.BalancerRefused),
        (lambda lb: lb.add_member("absent", balancer.Member(HERE, 6443)), balancer.BalancerRefused),
        (lambda lb: lb.add_member("api", balancer.Member(HERE, 0)), balancer.BalancerRefused),
        (lambda lb: lb.add_member("api", balancer.Member("192.0.2.1", 6443)), lab.NotInLab),
    ],
)
def test_what_cannot_be_configured_is_refused(
    order: Callable[[balancer.Balancer], None], problem: type[Exception]
) -> None:
    async def story() -> None:
        async with fast() as lb:
            lb.add_pool("api", QUICK)
            with pytest.raises(problem):
                order(lb)
            assert lb.members("api") == []

    asyncio.run(story())


def test_a_listener_needs_a_free_port_and_a_pool_in_use_stays() -> None:
    async def story() -> None:
        async with fast() as lb:
            port = await pooled(lb, healthy=False)
            with pytest.raises(balancer.BalancerRefused, match="cannot listen"):
                await lb.add_listener(HERE, port, "api")
            with pytest.raises(lab.NotInLab):
                await lb.add_listener("0.0.0.0", 0, "api")  # noqa: S104
            with pytest.raises(balancer.BalancerRefused, match="in use"):
                await lb.remove_pool("api")

    asyncio.run(story())
