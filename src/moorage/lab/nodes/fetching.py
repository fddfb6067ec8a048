"""How Ignition gets what a config only names: again and again, for ever, telling the console why it is not there yet.

A server that cannot be reached, cannot be trusted or fails (5xx) is asked again after 200 ms, then twice as long each
time up to 5 s, on the cloud's clock. Any other answer is an answer: 200 and 204 bring the contents, all others end the
boot. The machine's own wire does the asking, so names, cut lines and certificates are what they are for that machine.
"""

from __future__ import annotations

import asyncio
import http
import ssl
import urllib.parse
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Protocol

from cryptography import x509 as certificates

from moorage import lab
from moorage.engine import clock as clocks
from moorage.lab.nodes import resources, specs, x509

FIRST_PAUSE, LONGEST_PAUSE = 0.2, 5.0
AGENT = "Ignition/2.22.0"
ACCEPT = f"application/vnd.coreos.ignition+json;version={specs.written(specs.NEWEST)}, */*;q=0.1"

_HEADER_SECONDS = 10
# What the engine waits for a connection and for TLS on it, before it waits for the answer's headers.
_CONNECT_SECONDS = 30 + 10
_MOST_REDIRECTS = 10
_REDIRECTS = frozenset({301, 302, 303, 307, 308})

Log = Callable[[str], None]


class Answer(Protocol):
    """What a server said; names of headers are in lower case."""

    @property
    def status(self) -> int: ...

    @property
    def headers(self) -> Mapping[str, str]: ...

    @property
    def body(self) -> bytes: ...


#: One GET with these headers, trusting exactly these authorities (PEM). Raises OSError where there is no answer:
#: ssl.SSLError for a TLS that did not come about, TimeoutError for silence, and for names one that says so.
Fetch = Callable[[str, Mapping[str, str], Sequence[str]], Awaitable[Answer]]


class Fetcher:
    """Gets resources with the time-outs and authorities of the config at hand."""

    def __init__(self, fetch: Fetch, log: Log, clock: clocks.Clock) -> None:
        self._fetch = fetch
        self._log = log
        self._clock = clock
        self._authorities: list[str] = []
        self._known: dict[str, str] = {}
        self._header_seconds = _HEADER_SECONDS
        self._total_seconds = 0

    async def configure(self, ignition: specs.Config) -> None:
        """Take over what a config says about fetching."""
        timeouts = ignition.get("timeouts") or {}
        self._header_seconds = _or(timeouts.get("httpResponseHeaders"), _HEADER_SECONDS)
        self._total_seconds = _or(timeouts.get("httpTotal"), 0)
        # A config without authorities leaves those of the one before in force.
        named = ((ignition.get("security") or {}).get("tls") or {}).get("certificateAuthorities") or []
        if named:
            self._authorities = [await self._authority(each) for each in named]

    async def _authority(self, reference: specs.Config) -> str:
        source = reference["source"]
        if source not in self._known:
            bundle = await self.contents(reference)
            try:
                found = certificates.load_pem_x509_certificates(bundle)
            except ValueError:
                raise specs.IgnitionError("unable to decode PEM block") from None
            for each in found:
                names = each.subject.get_attributes_for_oid(certificates.NameOID.COMMON_NAME)
                self._log(f'Adding "{names[0].value if names else ""!s}" to list of CAs')
            self._known[source] = bundle.decode("ascii", "replace")
        return self._known[source]

    async def contents(self, resource: specs.Config) -> bytes:
        """What a resource stands for, decompressed and verified."""
        source = resource.get("source") or ""
        scheme = resources.scheme(source)
        if not source:
            # No source is an empty file, whatever else is said about it.
            return b""
        if scheme == "data":
            raw = resources.decoded(source)
        elif scheme in ("http", "https"):
            raw = await self._had(source, resource.get("httpHeaders") or [])
        else:
            raise specs.IgnitionError(f"unsupported source scheme: the lab has nothing that answers {scheme}:")
        content = resources.unpacked(raw, resource.get("compression") or "")
        return resources.verified(content, (resource.get("verification") or {}).get("hash") or "")

    async def _had(self, url: str, said: list[specs.Config]) -> bytes:
        headers = {"User-Agent": AGENT, "Accept-Encoding": "identity", "Accept": ACCEPT}
        for each in said:
            if each.get("value") is None:
                raise specs.IgnitionError("unable to parse HTTP header")
            known = next((name for name in headers if name.lower() == each["name"].lower()), each["name"])
            headers[known] = each["value"]
        answer = await self._answer(url, headers)
        if answer.status in (200, 204):
            return answer.body
        raise specs.IgnitionError("resource not found" if answer.status == 404 else "failed to fetch resource")

    async def _answer(self, url: str, headers: Mapping[str, str]) -> Answer:
        """The first answer that is one, however long it takes."""
        deadline = self._clock.deadline(self._total_seconds) if self._total_seconds else None
        pause, attempt = FIRST_PAUSE, 0
        while True:
            attempt += 1
            self._log(f"GET {url}: attempt #{attempt}")
            try:
                answer = await self._redirected(url, headers)
            except (OSError, EOFError) as problem:
                self._log(f'GET error: Get "{url}": {words(problem, url)}')
            else:
                self._log(f"GET result: {_status_text(answer.status)}")
                if answer.status < 500:
                    return answer
            if deadline is not None and deadline.remaining() <= pause:
                await lab.sleep(self._clock, deadline.remaining())
                raise specs.IgnitionError("unable to fetch resource in time")
            await lab.sleep(self._clock, pause)
            pause = min(2 * pause, LONGEST_PAUSE)

    async def _redirected(self, url: str, headers: Mapping[str, str]) -> Answer:
        for _ in range(_MOST_REDIRECTS):
            async with asyncio.timeout(self._clock.socket_timeout(_CONNECT_SECONDS + self._header_seconds)):
                answer = await self._fetch(url, headers, tuple(self._authorities))
            where = answer.headers.get("location", "") if answer.status in _REDIRECTS else ""
            if not where:
                return answer
            # What the config says to one server is not for another.
            url, headers = urllib.parse.urljoin(url, where), {}
            if resources.scheme(url) not in ("http", "https"):
                raise OSError(f'unsupported protocol scheme "{resources.scheme(url)}"')
        raise OSError(f"stopped after {_MOST_REDIRECTS} redirects")


def _or(said: int | None, otherwise: int) -> int:
    return otherwise if said is None else said


def _status_text(status: int) -> str:
    try:
        return http.HTTPStatus(status).phrase
    except ValueError:
        return ""


def words(problem: BaseException, url: str) -> str:
    """Why there was no answer, as Go's programs say it."""
    at = urllib.parse.urlsplit(url)
    peer = f"{at.hostname}:{at.port or (443 if at.scheme == 'https' else 80)}"
    if isinstance(problem, ssl.SSLError):
        return x509.words(problem)
    if isinstance(problem, TimeoutError):
        return f"dial tcp {peer}: i/o timeout"
    if isinstance(problem, ConnectionRefusedError):
        return f"dial tcp {peer}: connect: connection refused"
    if isinstance(problem, ConnectionResetError):
        return f"read tcp {peer}: read: connection reset by peer"
    if isinstance(problem, EOFError):
        return "EOF"
    said = str(problem) or type(problem).__name__
    return f"dial tcp: {said}" if said.startswith("lookup ") else said
