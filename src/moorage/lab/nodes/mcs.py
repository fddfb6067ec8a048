"""The machine-config server: new machines fetch their Ignition config here before they are anything else.

It answers GET and HEAD of ``/config/<pool>`` with that pool's configuration in the spec that the machine's Accept
header asks for, and never says in its answers why it does not. On the bootstrap node it serves the control plane only:
workers get a 500, and so wait until masters serve.
"""

from __future__ import annotations

import functools
import json
import math
import posixpath
import ssl
import tempfile
from collections.abc import Callable
from pathlib import Path

from aiohttp import web

from moorage import errors
from moorage.lab.nodes import conversion, machine_configs, specs, validation

PORT = 22623

#: The Ignition config of a pool, as JSON in the newest spec; None if there is no such pool.
Render = Callable[[str], bytes | None]

_ON_BOOTSTRAP = ("master", "arbiter")
_IGNITION = "vnd.coreos.ignition+json"


class UnsupportedVersion(errors.MoorageError):
    """The Accept header asks for a spec that the server does not know."""


def version_for(accept: str) -> specs.Version:
    """The spec to answer in. Who does not ask as Ignition does is taken for something old, and gets 2.2."""
    for subtype, version in _by_preference(accept):
        if subtype == _IGNITION and version is not None:
            return _supported(version, accept)
    return conversion.V2


def _by_preference(accept: str) -> list[tuple[str, specs.Version | None]]:
    """What the header names, the most wanted first: subtype and version."""
    found = []
    for value in accept.split(","):
        kind, *extensions = [part.strip() for part in value.split(";")]
        if "/" not in kind:
            continue
        version, quality = None, None
        for extension in extensions:
            name, equals, text = extension.partition("=")
            if equals and name == "version" and version is None:
                version = specs.semver(text)
            elif equals and name == "q" and quality is None:
                quality = _number(text)
        found.append((1.0 if quality is None else quality, kind.partition("/")[2], version))
    found.sort(key=lambda entry: -entry[0])
    return [(subtype, version) for _, subtype, version in found]


def _number(text: str) -> float | None:
    try:
        found = float(text)
    except ValueError:
        return None
    return None if math.isnan(found) else found


def _supported(asked: specs.Version, accept: str) -> specs.Version:
    minor = (asked[0], asked[1], 0)
    if asked[0] == 2 and asked >= conversion.V2:
        return conversion.V2
    if minor in specs.READABLE:
        return minor
    if asked[0] == specs.NEWEST[0] and minor > specs.NEWEST:
        return specs.NEWEST
    raise UnsupportedVersion(f"unsupported Ignition version in Accept header: {accept}")


def _nothing(status: int) -> web.Response:
    return web.Response(status=status, headers={"Content-Length": "0"})


class MachineConfigServer:
    """Serves what ``render`` makes, with the given certificate and key (PEM)."""

    def __init__(
        self,
        render: Render,
        certificate: str,
        key: str,
        *,
        bootstrap: bool = False,
        log: Callable[[str], None] = lambda line: None,
    ) -> None:
        self._render = render
        self._certificate = certificate
        self._key = key
        self._bootstrap = bootstrap
        self._log = log

    def tls(self) -> ssl.SSLContext:
        """The server's side of TLS. Raises ssl.SSLError if the certificate and the key are not a pair."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        with tempfile.TemporaryDirectory(prefix="moorage-lab-") as folder:
            pair = Path(folder) / "pair.pem"
            pair.touch(mode=0o600)
            pair.write_text(f"{self._certificate.rstrip()}\n{self._key}")
            context.load_cert_chain(pair)
        return context

    def app(self) -> web.Application:
        """The HTTP application, to be run behind `tls` on port 22623."""
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", self._handle)
        return app

    async def _handle(self, request: web.Request) -> web.Response:
        if request.method not in ("GET", "HEAD"):
            return _nothing(405)
        if request.path == "/healthz":
            return _nothing(200)
        if not request.path.startswith("/config/"):
            return _nothing(404)
        return self._configuration(request)

    def _configuration(self, request: web.Request) -> web.Response:
        pool = posixpath.basename(request.path.rstrip("/"))
        agent, accept = request.headers.get("User-Agent", ""), request.headers.get("Accept", "")
        self._log(
            f'Pool "{pool}" requested by address:"{request.remote}" User-Agent:"{agent}" Accept-Header: "{accept}"'
        )
        try:
            version = version_for(accept)
        except UnsupportedVersion as problem:
            self._log(str(problem))
            return _nothing(400)
        if self._bootstrap and pool not in _ON_BOOTSTRAP:
            self._log(f'couldn\'t get config: refusing to serve bootstrap configuration to pool "{pool}"')
            return _nothing(500)
        try:
            config = self._render(pool)
            body = None if config is None else in_version(config, version)
        except (errors.MoorageError, ValueError) as problem:
            self._log(f"couldn't get config for pool {pool}: {problem}")
            return _nothing(500)
        if body is None:
            self._log(f"could not find pool {pool}")
            # Among the files of the bootstrap node a pool is not found; in the API its lookup fails.
            return _nothing(404 if self._bootstrap else 500)
        return web.Response(body=body, content_type="application/json")


# A pool of a thousand machines asks a thousand times for the same thing.
@functools.lru_cache(maxsize=16)
def in_version(config: bytes, version: specs.Version) -> bytes:
    """A config in the newest spec, as the server sends it in another."""
    read, _ = specs.read(config)
    validation.check(read)
    if version < (3, 3, 0):
        read = machine_configs.without_kernel_arguments(read)
    return json.dumps(conversion.converted(read, version), separators=(",", ":")).encode()
