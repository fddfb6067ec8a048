"""An API server: one listener with TLS, in front of an `api.Api` that other servers may share.

The certificate is chosen by the name a client connects to. A client may show a certificate of its own; one that no
client CA has signed is refused in the handshake, where a real server would let it in and answer 401.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import ssl
import tempfile
from asyncio import sslproto
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType

from aiohttp import typedefs, web
from cryptography import x509

from moorage import lab
from moorage.lab.kube import api as apis
from moorage.lab.kube import authentication, http, routes, watching

# How long a client may take to read the end of its watch, and a request to be answered, when the server stops.
_SHUTDOWN_SECONDS = 1.0
# asyncio gives every TLS connection a buffer of 256 KiB, which is a gigabyte where a thousand nodes have two each. A
# record has 16 KiB at most.
_TLS_BUFFER = 32 * 1024


@dataclasses.dataclass(frozen=True)
class Certificate:
    """A certificate to serve with (its chain behind it), and its key; both in PEM."""

    cert_pem: str
    key_pem: str


class Server:
    """Serves an API from the moment of `start` to that of `stop`.

    ``ready`` is what /readyz tells; ``identity`` tells answers of several servers behind a balancer apart.
    """

    def __init__(
        self,
        api: apis.Api,
        access: authentication.Access,
        certificates: Sequence[Certificate],
        host: str,
        port: int = 0,
        *,
        middlewares: Sequence[typedefs.Middleware] = (),
        identity: str = "",
    ) -> None:
        self.api = api
        self.access = access
        self.host = lab.loopback(host)
        self.port = port
        self.ready = True
        self.identity = identity
        # The watches that are open, and the requests they answer.
        self.streams: dict[watching.Stream, web.Request] = {}
        self._certificates = certificates
        self._middlewares = middlewares
        self._runner: web.AppRunner | None = None

    async def start(self) -> None:
        """Listen. A port of 0 becomes one that is free."""
        sslproto.SSLProtocol.max_size = _TLS_BUFFER
        app = web.Application(client_max_size=http.MOST_BYTES, middlewares=self._middlewares)
        app.router.add_route("*", "/{path:.*}", self._answer)
        app.on_response_prepare.append(self._sign)
        # A server must notice when a watcher has gone, and let nobody's absence delay its own end.
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=_SHUTDOWN_SECONDS, handler_cancellation=True)
        await runner.setup()
        try:
            site = web.TCPSite(
                runner,
                self.host,
                self.port,
                ssl_context=tls_context(self._certificates, self.access.client_ca),
                backlog=1024,
                reuse_address=True,
            )
            await site.start()
        except BaseException:
            await runner.cleanup()
            raise
        self._runner = runner
        self.port = runner.addresses[0][1]

    async def stop(self) -> None:
        """End all watches, close all connections and stop listening."""
        runner, self._runner = self._runner, None
        if runner is None:
            return
        for site in list(runner.sites):
            await site.stop()
        for stream in list(self.streams):
            stream.close()
        # Streams end with their last chunk; who does not read it is cut off.
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_SHUTDOWN_SECONDS):
                while self.streams:
                    await asyncio.sleep(0.01)
        for request in self.streams.values():
            if request.transport is not None:
                request.transport.abort()
        await runner.cleanup()

    async def __aenter__(self) -> Server:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    async def _sign(self, _request: web.Request, response: web.StreamResponse) -> None:
        response.headers["Server"] = self.identity or "moorage"

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        return await routes.answer(self, request)


def tls_context(certificates: Sequence[Certificate], client_ca: str) -> ssl.SSLContext:
    """What a server says in a handshake: the certificate for the name asked for, the first one for any other."""
    if not certificates:
        raise ValueError("a server needs a certificate")
    contexts = [_context(certificate, client_ca) for certificate in certificates]
    names: dict[str, ssl.SSLContext] = {}
    for certificate, context in zip(certificates, contexts, strict=True):
        for name in _names(certificate):
            names.setdefault(name.lower(), context)

    def choose(connection: ssl.SSLObject | ssl.SSLSocket, name: str | None, _: ssl.SSLContext) -> None:
        asked = (name or "").lower()
        found = names.get(asked) or names.get("*." + asked.partition(".")[2])
        if found is not None:
            connection.context = found

    contexts[0].sni_callback = choose
    return contexts[0]


def _context(certificate: Certificate, client_ca: str) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    with tempfile.TemporaryDirectory() as folder:
        # The ssl module reads certificates from files alone; the folder is for our eyes only, and gone at once.
        chain, key = Path(folder, "tls.crt"), Path(folder, "tls.key")
        chain.write_text(certificate.cert_pem)
        key.write_text(certificate.key_pem)
        context.load_cert_chain(chain, key)
    if client_ca.strip():
        context.verify_mode = ssl.CERT_OPTIONAL
        context.load_verify_locations(cadata=client_ca)
    return context


def _names(certificate: Certificate) -> list[str]:
    found = x509.load_pem_x509_certificate(certificate.cert_pem.encode())
    try:
        names = found.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return []
    return [*names.get_values_for_type(x509.DNSName), *map(str, names.get_values_for_type(x509.IPAddress))]
