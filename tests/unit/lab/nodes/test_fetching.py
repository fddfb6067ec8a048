"""Getting what a config names: how often, with what trust, in which words, and when it is over."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import datetime
import ipaddress
import json
import ssl
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from cryptography import x509 as certificates
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from moorage import lab
from moorage.engine import clock as clocks
from moorage.lab.nodes import fetching, ignition, network, resources, x509

URL = "https://api-int.harbour.example.com:22623/config/worker"
CONFIG = b'{"ignition":{"version":"3.2.0"},"storage":{"files":[{"path":"/a","contents":{"source":"data:,x"}}]}}'


def pointer(*authorities: str, url: str = URL, **ignition_: Any) -> bytes:
    """User data that says no more than where the rest is, and whom to believe."""
    listed = [{"source": resources.encoded(each.encode())} for each in authorities]
    return json.dumps(
        {
            "ignition": {
                "version": "3.2.0",
                "config": {"merge": [{"source": url}]},
                "security": {"tls": {"certificateAuthorities": listed}},
                **ignition_,
            }
        }
    ).encode()


class Server:
    """Answers from a list, one after the other; what is an exception is raised."""

    def __init__(self, *answers: Any) -> None:
        self.answers = list(answers)
        self.asked: list[tuple[str, dict[str, str], list[str]]] = []

    async def __call__(self, url: str, headers: Mapping[str, str], authorities: Sequence[str]) -> fetching.Answer:
        self.asked.append((url, dict(headers), list(authorities)))
        answer = self.answers.pop(0)
        if isinstance(answer, BaseException):
            raise answer
        status, body, *rest = answer
        return network.Reply(status, rest[0] if rest else {}, body)


@pytest.fixture
def slept(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Nobody waits; how long they would have is written down."""
    found: list[float] = []

    async def sleep(clock: clocks.Clock, seconds: float) -> None:
        found.append(seconds)

    monkeypatch.setattr(lab, "sleep", sleep)
    return found


def boot(user_data: bytes, server: fetching.Fetch) -> tuple[ignition.Provisioned, list[str]]:
    console: list[str] = []
    done = asyncio.run(ignition.provision(user_data, server, console.append, clock=clocks.Clock()))
    return done, [line.removeprefix("ignition[786]: ") for line in console]


def test_it_asks_as_ignition_does(slept: list[float]) -> None:
    server = Server((200, CONFIG))

    done, console = boot(pointer(), server)

    assert done.files["/a"].content == b"x"
    url, headers, authorities = server.asked[0]
    assert (url, authorities) == (URL, [])
    assert headers["Accept"] == "application/vnd.coreos.ignition+json;version=3.5.0, */*;q=0.1"
    assert headers["Accept-Encoding"] == "identity"
    assert headers["User-Agent"].startswith("Ignition/")
    assert console[2:4] == [f"GET {URL}: attempt #1", "GET result: OK"]
    assert slept == []


def test_it_waits_longer_each_time_up_to_five_seconds(slept: list[float]) -> None:
    failing = [ConnectionRefusedError(111, "Connection refused")] * 4 + [(500, b""), (503, b""), TimeoutError()]
    server = Server(*failing, (200, CONFIG))

    done, console = boot(pointer(), server)

    assert done.files
    assert slept == pytest.approx([0.2, 0.4, 0.8, 1.6, 3.2, 5.0, 5.0])
    assert f"GET {URL}: attempt #8" in console
    assert "GET result: Internal Server Error" in console


@pytest.mark.parametrize(
    ("problem", "words"),
    [
        (ConnectionRefusedError(), "dial tcp api-int.harbour.example.com:22623: connect: connection refused"),
        (ConnectionResetError(), "read tcp api-int.harbour.example.com:22623: read: connection reset by peer"),
        (TimeoutError(), "dial tcp api-int.harbour.example.com:22623: i/o timeout"),
        (OSError("lookup api-int on 127.9.0.2:53: no such host"), "dial tcp: lookup api-int on 127.9.0.2:53: no such"),
        (asyncio.IncompleteReadError(b"", 1), "EOF"),
    ],
)
def test_the_console_says_why_there_is_no_answer(slept: list[float], problem: Exception, words: str) -> None:
    _, console = boot(pointer(), Server(problem, (200, CONFIG)))

    assert any(line.startswith(f'GET error: Get "{URL}": {words}') for line in console)


@pytest.mark.parametrize(
    ("status", "words"),
    [
        (404, "resource not found"),
        (400, "failed to fetch resource"),
        (403, "failed to fetch"),
        (301, "failed to fetch"),
    ],
)
def test_an_answer_that_is_a_refusal_ends_the_boot(slept: list[float], status: int, words: str) -> None:
    with pytest.raises(ignition.IgnitionError, match=words):
        boot(pointer(), Server((status, b"")))

    assert slept == []


def test_a_redirect_is_followed_without_what_was_meant_for_another(slept: list[float]) -> None:
    server = Server((302, b"", {"location": "/elsewhere"}), (200, CONFIG))

    done, _ = boot(pointer(), server)

    assert done.files
    assert [asked[0] for asked in server.asked] == [URL, "https://api-int.harbour.example.com:22623/elsewhere"]
    assert server.asked[1][1] == {}


def test_redirects_in_a_circle_are_a_failure_that_may_pass(slept: list[float]) -> None:
    _, console = boot(pointer(), Server(*[(302, b"", {"location": URL})] * 10, (200, CONFIG)))

    assert f'GET error: Get "{URL}": stopped after 10 redirects' in console


def test_a_total_time_out_is_the_only_end_to_trying() -> None:
    async def silent(url: str, headers: Mapping[str, str], authorities: Sequence[str]) -> fetching.Answer:
        raise ConnectionRefusedError

    async def story() -> float:
        clock = clocks.Clock(500.0)
        began = clock.now()
        with pytest.raises(ignition.IgnitionError, match="unable to fetch resource in time"):
            await ignition.provision(pointer(timeouts={"httpTotal": 20}), silent, lambda line: None, clock=clock)
        return clock.now() - began

    assert asyncio.run(story()) >= 20


def test_a_server_that_says_nothing_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    answers: Iterator[fetching.Answer] = iter([network.Reply(200, {}, CONFIG)])
    asked = []

    async def silent_once(url: str, headers: Mapping[str, str], authorities: Sequence[str]) -> fetching.Answer:
        asked.append(url)
        if len(asked) == 1:
            await asyncio.Event().wait()
        return next(answers)

    monkeypatch.setattr(clocks.Clock, "socket_timeout", lambda self, seconds: 0.02)

    done, console = boot(pointer(), silent_once)

    assert done.files
    assert any("i/o timeout" in line for line in console)


def test_headers_of_a_reference_are_sent(slept: list[float]) -> None:
    said = {"source": URL, "httpHeaders": [{"name": "Authorization", "value": "x"}, {"name": "accept", "value": "y"}]}
    server = Server((200, CONFIG))

    boot(json.dumps({"ignition": {"version": "3.2.0", "config": {"merge": [said]}}}).encode(), server)

    assert server.asked[0][1]["Authorization"] == "x"
    assert server.asked[0][1]["Accept"] == "y"


@dataclasses.dataclass(frozen=True)
class Authority:
    """Somebody who signs certificates."""

    certificate: certificates.Certificate
    key: ec.EllipticCurvePrivateKey

    @property
    def pem(self) -> str:
        return self.certificate.public_bytes(serialization.Encoding.PEM).decode()


def signed(
    subject: str, by: Authority | None = None, names: Sequence[str] = (), days: tuple[int, int] = (-1, 1)
) -> Authority:
    """A certificate by an authority, or by itself."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = certificates.Name([certificates.NameAttribute(certificates.NameOID.COMMON_NAME, subject)])
    now = datetime.datetime.now(datetime.UTC)
    made = (
        certificates.CertificateBuilder()
        .subject_name(name)
        .issuer_name(by.certificate.subject if by else name)
        .public_key(key.public_key())
        .serial_number(certificates.random_serial_number())
        .not_valid_before(now + datetime.timedelta(days=days[0]))
        .not_valid_after(now + datetime.timedelta(days=days[1]))
        .add_extension(certificates.BasicConstraints(ca=by is None, path_length=None), critical=True)
    )
    if names:
        alternatives = [
            certificates.IPAddress(ipaddress.ip_address(each)) if each[0].isdigit() else certificates.DNSName(each)
            for each in names
        ]
        made = made.add_extension(certificates.SubjectAlternativeName(alternatives), critical=False)
    return Authority(made.sign(by.key if by else key, hashes.SHA256()), key)


@contextlib.asynccontextmanager
async def https(shown: Authority, folder: Path) -> AsyncIterator[int]:
    """A server with that certificate; yields its port."""
    (folder / "pair").write_bytes(
        shown.pem.encode()
        + shown.key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "pair")

    async def answer(request: web.Request) -> web.Response:
        return web.Response(body=CONFIG)

    app = web.Application()
    app.router.add_get("/config", answer)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context).start()
    try:
        yield runner.addresses[0][1]
    finally:
        await runner.cleanup()


async def over_tls(url: str, headers: Mapping[str, str], authorities: Sequence[str]) -> fetching.Answer:
    try:
        async with (
            aiohttp.ClientSession() as session,
            session.get(url, headers=headers, ssl=x509.client_context("\n".join(authorities))) as reply,
        ):
            return network.Reply(reply.status, {}, await reply.read())
    except aiohttp.ClientConnectorCertificateError as problem:
        raise problem.certificate_error from problem
    except aiohttp.ClientConnectorError as problem:
        raise problem.os_error from problem


ROOT = signed("root-ca")


@pytest.mark.parametrize(
    ("shown", "trusted", "host", "words"),
    [
        (lambda: signed("mcs", ROOT, ["localhost"]), [ROOT], "localhost", ""),
        (lambda: signed("mcs", ROOT, ["127.0.0.1"]), [signed("another"), ROOT], "127.0.0.1", ""),
        (lambda: signed("mcs", ROOT, ["localhost"]), [], "localhost", "certificate signed by unknown authority"),
        (
            lambda: signed("mcs", signed("root-ca"), ["localhost"]),
            [ROOT],
            "localhost",
            "certificate signed by unknown authority",
        ),
        (
            lambda: signed("mcs", ROOT, ["api-int.harbour.example.com", "api.harbour.example.com"]),
            [ROOT],
            "localhost",
            "certificate is valid for api-int.harbour.example.com, api.harbour.example.com, not localhost",
        ),
        (
            lambda: signed("localhost", ROOT),
            [ROOT],
            "localhost",
            "certificate is not valid for any names, but wanted to match localhost",
        ),
        (
            lambda: signed("mcs", ROOT, ["localhost"]),
            [ROOT],
            "127.0.0.1",
            "certificate is not valid for any names, but wanted to match 127.0.0.1",
        ),
        (
            lambda: signed("mcs", ROOT, ["localhost"], days=(-3, -2)),
            [ROOT],
            "localhost",
            "certificate has expired or is not yet valid: current time",
        ),
        (
            lambda: signed("mcs", ROOT, ["localhost"], days=(2, 3)),
            [ROOT],
            "localhost",
            "certificate has expired or is not yet valid: current time",
        ),
    ],
)
def test_only_the_pointer_s_authorities_names_and_dates_make_a_server_believed(
    tmp_path: Path, shown: Callable[[], Authority], trusted: list[Authority], host: str, words: str
) -> None:
    refused = asyncio.Event()
    console: list[str] = []

    def log(line: str) -> None:
        console.append(line)
        if "attempt #2" in line:
            refused.set()

    async def story() -> ignition.Provisioned | None:
        async with https(shown(), tmp_path) as port:
            said = pointer(*(each.pem for each in trusted), url=f"https://{host}:{port}/config")
            boot = asyncio.create_task(ignition.provision(said, over_tls, log, clock=clocks.Clock(100.0)))
            waiting = asyncio.create_task(refused.wait())
            await asyncio.wait({boot, waiting}, return_when=asyncio.FIRST_COMPLETED, timeout=20)
            if boot.done():
                return boot.result()
            boot.cancel()
            return None

    done = asyncio.run(story())

    if words:
        assert done is None
        assert any(f"tls: failed to verify certificate: x509: {words}" in line for line in console)
    else:
        assert done is not None
        assert any('Adding "root-ca" to list of CAs' in line for line in console)


def test_a_server_without_tls_is_named_as_such() -> None:
    async def story() -> str:
        async def plain(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.read(1)
            writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
            await writer.drain()
            writer.close()

        server = await asyncio.start_server(plain, "127.0.0.1", 0)
        async with server:
            port = server.sockets[0].getsockname()[1]
            with pytest.raises(ssl.SSLError) as refusal:
                await over_tls(f"https://127.0.0.1:{port}/", {}, [])
            return x509.words(refusal.value)

    assert asyncio.run(story()) == "tls: first record does not look like a TLS handshake"


@pytest.mark.parametrize(
    ("pattern", "name", "fits"),
    [
        ("a.b", "a.b", True),
        ("A.b.", "a.B", True),
        ("*.b", "a.b", True),
        ("*.b", "b", False),
        ("*.b", "a.a.b", False),
        ("a*.b", "aa.b", False),
        ("*", "a", True),
        ("a.*", "a.b", False),
        ("127.0.0.1", "127.0.0.1", True),
        ("*.0.0.1", "127.0.0.1", False),
    ],
)
def test_names_in_certificates(pattern: str, name: str, fits: bool) -> None:
    assert x509.matches(pattern, name) is fits


def test_an_authority_that_is_none_ends_the_boot() -> None:
    with pytest.raises(ignition.IgnitionError, match="unable to decode PEM block"):
        boot(pointer("nonsense"), Server())
