"""The engine on the network: HTTPS on the site's second address, and the image daemon of its host beside it.

The passwords are new for every lab. What clients need to find it and get in is told by `Served.about`.
"""

from __future__ import annotations

import secrets
import ssl
import tempfile
from pathlib import Path
from typing import Any

from aiohttp import web

from moorage import lab
from moorage.lab import site as sites
from moorage.lab.ovirt import application, authority, imageio
from moorage.lab.ovirt import engine as engines

ADMIN, VIEWER = "admin@internal", "viewer@internal"
_HTTPS = 443
_SHUTDOWN_SECONDS = 0.5


class Served:
    """An engine that can be reached, from `start` to `stop`."""

    def __init__(self, site: sites.Site) -> None:
        self.engine = engines.Engine(site)
        self._runners: list[web.AppRunner] = []
        self._port = 0

    async def start(self) -> None:
        """Begin to answer. The address is the site's second; its first is the name server's."""
        engine, site = self.engine, self.engine.site
        address = lab.loopback(str(site.network[2]))
        found = authority.identity(address)
        engine.address, engine.ca_pem = address, found.ca
        for user in (ADMIN, VIEWER):
            engine.sessions.passwords[user] = secrets.token_urlsafe(18)
        context = _context(found)
        self._port = site.port(_HTTPS)
        try:
            await self._listen(application.application(engine), address, [self._port], context)
            await self._listen(imageio.application(engine), address, [imageio.HOST_PORT, imageio.PROXY_PORT], context)
        except BaseException:
            await self.stop()
            raise

    async def stop(self) -> None:
        """Stop answering, and all work."""
        await self.engine.stop()
        while self._runners:
            await self._runners.pop().cleanup()

    @property
    def fqdn(self) -> str:
        return self.engine.address if self._port == _HTTPS else f"{self.engine.address}:{self._port}"

    @property
    def url(self) -> str:
        return f"https://{self.fqdn}/ovirt-engine/api"

    def password(self, user: str = ADMIN) -> str:
        return self.engine.sessions.passwords[user]

    def config(self) -> dict[str, Any]:
        """The configuration file that clients of oVirt read."""
        return {
            "ovirt_url": self.url,
            "ovirt_fqdn": self.fqdn,
            "ovirt_username": ADMIN,
            "ovirt_password": self.password(),
            "ovirt_ca_bundle": self.engine.ca_pem,
        }

    async def _listen(self, app: web.Application, address: str, ports: list[int], context: ssl.SSLContext) -> None:
        # What a client began is carried through though the client may be gone: that is what makes a lost reply hard.
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=_SHUTDOWN_SECONDS)
        await runner.setup()
        self._runners.append(runner)
        for port in ports:
            await web.TCPSite(runner, address, port, ssl_context=context, reuse_address=True, backlog=256).start()


def _context(found: authority.Identity) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    with tempfile.TemporaryDirectory() as folder:
        pair = Path(folder) / "pair.pem"
        pair.touch(mode=0o600)
        pair.write_text(found.key + found.certificate)
        context.load_cert_chain(pair)
    return context
