"""A small reader of a cluster's Kubernetes API: one call at a time, and a telling error for each way it can fail.

While a cluster comes up, how the API fails is the best sign of where it stands: the name does not resolve, nothing
listens, another cluster answers, the certificate has run out. So each of these is a type with a sentence of its own.
"""

from __future__ import annotations

import contextlib
import errno
import http.client
import json
import socket
import ssl
import tempfile
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from moorage import errors
from moorage.engine import clock as clocks
from moorage.installer import kubeconfig, names

_SECONDS = 15.0
_MOST_BYTES = 64 * 1024 * 1024

# OpenSSL's numbers (X509_V_ERR_*) for what is wrong with a certificate.
_NOT_YET_VALID, _EXPIRED = (9, 11), (10, 12)
_UNKNOWN_AUTHORITY = (2, 7, 18, 19, 20, 21)
_WRONG_NAME = (62, 64)


class ApiProblem(errors.MoorageError):
    """The API did not give what was asked."""


class Unreachable(ApiProblem):
    """There was no conversation at all: no name, no listener, no way."""


class Unresolved(Unreachable):
    """The API's name does not lead to an address."""


class Refused(Unreachable):
    """Where the name leads, nothing listens."""


class Unanswered(Unreachable):
    """The address or the server behind it keeps silent, or hangs up."""


class HungUp(Unanswered):
    """Somebody takes the connection, and ends it without a word."""


class Distrusted(ApiProblem):
    """Someone answers, but may not be the cluster: its certificate is refused."""


class UnknownAuthority(Distrusted):
    """The certificate is not signed by this cluster."""


class Expired(Distrusted):
    """The certificate has run out, or is not valid yet."""


class WrongName(Distrusted):
    """The certificate is for other names."""


class ClientDistrusted(ApiProblem):
    """The API does not accept who we say we are (a TLS refusal, or 401)."""


class Forbidden(ApiProblem):
    """The API knows us and does not let us (403)."""


class Missing(ApiProblem):
    """There is no such thing, or not yet (404)."""


class Conflicting(ApiProblem):
    """Somebody was faster: the thing is there already, or has changed since it was read (409)."""


class Troubled(ApiProblem):
    """The API answers that it cannot answer now (429, 5xx), or answers nonsense."""


class Reader:
    """Reads from one cluster. Connections are kept while they last; a broken one is opened again."""

    def __init__(self, access: kubeconfig.Access, clock: clocks.Clock, environ: Mapping[str, str]) -> None:
        self.access = access
        self._clock = clock
        self._environ = environ
        self._tls = _tls(access)
        self._connection: http.client.HTTPConnection | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def get(self, path: str) -> dict[str, Any]:
        """The object at ``path``; `ApiProblem` says why not."""
        status, body = self.ask(path)
        if status != 200:
            raise _refusal(self.access, f"reading {path}", status, body)
        return _object(self.access, body)

    def ask(self, path: str) -> tuple[int, bytes]:
        """The status and body of the answer, whatever they are; `ApiProblem` if there was none."""
        return self._answered("GET", path)

    def _answered(self, method: str, path: str, content: Mapping[str, Any] | None = None) -> tuple[int, bytes]:
        self._clock.check()
        reused = self._connection is not None
        try:
            return self._exchange(method, path, content)
        except Unanswered:
            # A connection kept from last time may have died unnoticed: that says nothing about the API.
            if not reused:
                raise
            return self._exchange(method, path, content)

    def _exchange(self, method: str, path: str, content: Mapping[str, Any] | None) -> tuple[int, bytes]:
        headers = {"Accept": "application/json", "User-Agent": "moorage"}
        if self.access.token:
            headers["Authorization"] = f"Bearer {self.access.token}"
        if content is not None:
            headers["Content-Type"] = "application/json"
        try:
            if self._connection is None:
                self._connection = self._connected()
            body_sent = None if content is None else json.dumps(content).encode()
            self._connection.request(method, path, body_sent, headers=headers)
            reply = self._connection.getresponse()
            body = reply.read(_MOST_BYTES)
            if reply.will_close or not reply.isclosed():
                self.close()
            return reply.status, body
        except ApiProblem:
            self.close()
            raise
        except (OSError, http.client.HTTPException) as problem:
            self.close()
            raise _broken(self.access, problem) from problem

    def _connected(self) -> http.client.HTTPConnection:
        access = self.access
        try:
            addresses = names.resolve(access.host, self._environ, self._clock)
        except names.NameProblem as problem:
            raise Unresolved(problem.message, remedy=problem.remedy) from problem
        sock = self._dial(addresses)
        try:
            wrapped = self._tls.wrap_socket(sock, server_hostname=access.server_name)
        except OSError as problem:
            sock.close()
            raise _handshake_failure(access, problem) from problem
        connection = http.client.HTTPConnection(access.host, access.port)
        connection.sock = wrapped
        return connection

    def _dial(self, addresses: list[str]) -> socket.socket:
        failures: list[tuple[str, OSError]] = []
        for address in addresses:
            self._clock.check()
            try:
                timeout = self._clock.socket_timeout(_SECONDS)
                sock = socket.create_connection((address, self.access.port), timeout=timeout)
            except OSError as problem:
                failures.append((address, problem))
                continue
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            return sock
        raise _no_listener(self.access, failures)


class Editor(Reader):
    """Also writes. A write whose answer was lost may be sent twice: the second one then is `Conflicting`."""

    def create(self, path: str, content: Mapping[str, Any]) -> dict[str, Any]:
        """Add an object to the collection at ``path``."""
        return self._written("POST", path, content)

    def replace(self, path: str, content: Mapping[str, Any]) -> dict[str, Any]:
        """Put an object in the place of the one at ``path``, which must be as it was when ``content`` was read."""
        return self._written("PUT", path, content)

    def _written(self, method: str, path: str, content: Mapping[str, Any]) -> dict[str, Any]:
        status, body = self._answered(method, path, content)
        if status not in (200, 201):
            raise _refusal(self.access, f"writing {path}", status, body)
        return _object(self.access, body)


def _tls(access: kubeconfig.Access) -> ssl.SSLContext:
    """A context that trusts the cluster's own authorities and nobody else's."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.hostname_checks_common_name = False
    try:
        if access.authority:
            context.load_verify_locations(cadata=access.authority)
        else:
            context.load_default_certs()
        if access.client_certificate:
            _show(context, access)
    except (ssl.SSLError, ValueError) as problem:
        raise kubeconfig.KubeconfigError(
            f"the certificates in the kubeconfig of {access.url} cannot be used: {problem}",
            remedy="move it away and run: moorage create ignition-configs",
        ) from problem
    return context


def _show(context: ssl.SSLContext, access: kubeconfig.Access) -> None:
    """Load the client's certificate and key. ssl takes them from files only: private ones, gone at once."""
    with tempfile.TemporaryDirectory(prefix="moorage-") as folder:
        path = Path(folder) / "client.pem"
        path.touch(mode=0o600)
        path.write_text(f"{access.client_certificate.rstrip()}\n{access.client_key}")
        context.load_cert_chain(path)


def _no_listener(access: kubeconfig.Access, failures: list[tuple[str, OSError]]) -> Unreachable:
    where = " and ".join(f"{address}:{access.port}" for address, _ in failures)
    last = failures[-1][1]
    if all(isinstance(problem, ConnectionRefusedError) for _, problem in failures):
        return Refused(f"nothing listens at {where}, where {access.host} leads")
    if all(isinstance(problem, TimeoutError) for _, problem in failures):
        return Unanswered(f"{where}, where {access.host} leads, does not answer")
    return Unreachable(f"{where}, where {access.host} leads, cannot be reached: {last.strerror or last}")


def _handshake_failure(access: kubeconfig.Access, problem: OSError) -> ApiProblem:
    if isinstance(problem, ssl.SSLCertVerificationError):
        return _distrust(access, problem)
    if isinstance(problem, ssl.SSLError) and problem.reason == "WRONG_VERSION_NUMBER":
        return Unanswered(f"what answers at {access.host}:{access.port} does not speak TLS")
    return _broken(access, problem)


def _distrust(access: kubeconfig.Access, problem: ssl.SSLCertVerificationError) -> Distrusted:
    code = problem.verify_code
    if code in _EXPIRED:
        return Expired(
            "the API answers, but its certificate has expired",
            remedy="if this machine's clock is right, the cluster was not finished within the 24 hours its first "
            "certificates live: start over with fresh ones",
        )
    if code in _NOT_YET_VALID:
        return Expired(
            "the API answers, but its certificate is not valid yet", remedy="set this machine's clock, or the cluster's"
        )
    if code in _WRONG_NAME:
        return WrongName(
            f"the API answers, but its certificate is not for {access.server_name}",
            remedy=f"does {access.host} lead to this cluster's API?",
        )
    if code in _UNKNOWN_AUTHORITY:
        return UnknownAuthority(
            "the API answers, but its certificate is not signed by this cluster's CA: another cluster's?",
            remedy=f"see where {access.host} leads, and whether the machines booted from this directory's configs",
        )
    return Distrusted(f"the API answers, but its certificate is refused: {problem.verify_message}")


def _broken(access: kubeconfig.Access, problem: Exception) -> ApiProblem:
    reason = problem.reason or "" if isinstance(problem, ssl.SSLError) else ""
    if "ALERT" in reason and ("CERTIFICATE" in reason or "UNKNOWN_CA" in reason):
        return ClientDistrusted(
            "the API answers, but does not accept the kubeconfig's client certificate: another cluster's?",
            remedy=f"see where {access.host} leads, and whether the machines booted from this directory's configs",
        )
    where = f"{access.host}:{access.port}"
    if isinstance(problem, TimeoutError):
        return Unanswered(f"{where} takes connections, but does not answer")
    hung_up = isinstance(problem, http.client.RemoteDisconnected | ssl.SSLEOFError | ConnectionError)
    if hung_up or getattr(problem, "errno", None) == errno.EPIPE:
        return HungUp(f"{where} takes connections, but hangs up: the balancer has no API server behind it?")
    return Unanswered(f"the conversation with {where} broke: {reason or problem}")


def _refusal(access: kubeconfig.Access, what: str, status: int, body: bytes) -> ApiProblem:
    words = ""
    with contextlib.suppress(ValueError, AttributeError):
        words = str(json.loads(body).get("message") or "")
    behind = f": {words}" if words else ""
    if status == 401:
        return ClientDistrusted(
            f"the API does not accept the kubeconfig's credentials (401{behind})",
            remedy=f"see where {access.host} leads, and whether the kubeconfig is this cluster's",
        )
    if status == 403:
        return Forbidden(
            f"the API forbids {what} (403{behind})", remedy="use the administrator's kubeconfig of this cluster"
        )
    if status == 404:
        return Missing(f"there is no {what.partition(' ')[2]}{behind}")
    if status == 409:
        return Conflicting(f"{what} came too late (409{behind})")
    return Troubled(f"the API answers {status} {http.client.responses.get(status, '')}".rstrip() + behind)


def _object(access: kubeconfig.Access, body: bytes) -> dict[str, Any]:
    try:
        content = json.loads(body)
    except ValueError:
        content = None
    if not isinstance(content, dict):
        raise Troubled(f"what answers at {access.host}:{access.port} is no Kubernetes API")
    return content
