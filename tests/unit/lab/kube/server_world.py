"""A server over TLS with its authorities and clients, for stories about what goes over the wire."""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import ipaddress
import json
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any

import aiohttp
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from moorage.engine import clock as clocks
from moorage.lab.kube import authentication, roles, server, users
from tests.unit.lab.kube.api_world import World

HOST = "127.0.0.1"
MAPS = "/api/v1/namespaces/default/configmaps"
Key = ec.EllipticCurvePrivateKey


def issued(
    name: str, sans: Sequence[str], by: tuple[str, Key] | None = None, organisation: str = ""
) -> tuple[str, Key]:
    """A certificate and its key; its own authority unless ``by`` another's."""
    key = ec.generate_private_key(ec.SECP256R1())
    parts = [x509.NameAttribute(NameOID.COMMON_NAME, name)]
    if organisation:
        parts.append(x509.NameAttribute(NameOID.ORGANIZATION_NAME, organisation))
    subject = x509.Name(parts)
    issuer, signer = (x509.load_pem_x509_certificate(by[0].encode()).subject, by[1]) if by else (subject, key)
    now = datetime.datetime.now(datetime.UTC)
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + datetime.timedelta(hours=1))
        .add_extension(x509.BasicConstraints(by is None, None), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key()), critical=False)
    )
    if sans:
        known = [x509.IPAddress(ipaddress.ip_address(san)) if san[0].isdigit() else x509.DNSName(san) for san in sans]
        builder = builder.add_extension(x509.SubjectAlternativeName(known), critical=False)
    if by:
        usages = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
        builder = builder.add_extension(x509.ExtendedKeyUsage(usages), critical=False)
    made = builder.sign(signer, hashes.SHA256())
    return made.public_bytes(serialization.Encoding.PEM).decode(), key


def pem(key: Key) -> str:
    plain = serialization.NoEncryption()
    return key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, plain).decode()


AUTHORITY = issued("lab authority", ())
CLIENTS = issued("client authority", ())


def serving(*sans: str) -> server.Certificate:
    made, key = issued(sans[0], sans, AUTHORITY)
    return server.Certificate(made, pem(key))


MAIN, INTERNAL = serving(HOST, "api.lab"), serving("api-int.lab", "*.apps.lab")
ACCESS = authentication.Access(
    client_ca=CLIENTS[0],
    tokens={
        "admin": users.authenticated("admin", ("system:masters",)),
        "alice": users.authenticated("alice"),
    },
)


class Client:
    """One who asks a server."""

    def __init__(self, session: aiohttp.ClientSession, url: str, world: World, api: server.Server) -> None:
        self.session, self.url, self.world, self.server = session, url, world, api

    async def ask(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        token: str = "admin",  # noqa: S107 - of the lab
        **headers: str,
    ) -> tuple[int, Any, aiohttp.ClientResponse]:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        if token:
            named["Authorization"] = f"Bearer {token}"
        data = body if isinstance(body, bytes | None) else json.dumps(body)
        if data is not None and not any(name.lower() == "content-type" for name in named):
            named["Content-Type"] = "application/json"
        async with self.session.request(method, self.url + path, data=data, headers=named) as answer:
            raw = await answer.read()
        with contextlib.suppress(ValueError):
            return answer.status, json.loads(raw), answer
        return answer.status, raw.decode(errors="replace"), answer


@contextlib.asynccontextmanager
async def running(**more: Any) -> AsyncIterator[Client]:
    world = World()
    world.api.clock = clocks.Clock()
    roles.bootstrap(world.api)
    trust = ssl.create_default_context(cadata=AUTHORITY[0])
    async with (
        server.Server(world.api, ACCESS, [MAIN, INTERNAL], HOST, **more) as there,
        aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=trust)) as session,
    ):
        yield Client(session, f"https://{HOST}:{there.port}", world, there)


def tell(story: Callable[[Client], Awaitable[Any]], **more: Any) -> Any:
    async def whole() -> Any:
        async with running(**more) as client:
            return await story(client)

    return asyncio.run(asyncio.wait_for(whole(), 20))
