"""oVirt's own SDK, with the corners taken off that would hurt an installer.

As it comes, the SDK waits for ever for a sign-in, tells of broken connections in words alone, takes Apache's "503" page
for a riddle, calls itself nothing but "PythonSDK", and lets libcurl send a POST twice: one that was cut off on a kept
connection is silently repeated on a new one, although the engine may have acted on it. A `Wire` is an SDK connection
without these, for one thread.
"""

from __future__ import annotations

import io
import json
import math
import os
import platform
import re
import ssl
import urllib.parse
from collections.abc import Callable
from typing import Any, Final, Protocol
from xml.parsers import expat

import ovirtsdk4
import ovirtsdk4.version
import pycurl

from moorage import __version__
from moorage.platforms.ovirt import credentials as credential

_XML: Final = re.compile(r"^\s*(application|text)/xml\s*(;|$)", re.IGNORECASE)
_JSON: Final = re.compile(r"^\s*(application|text)/json\s*(;|$)", re.IGNORECASE)
#: What the SDK sends with every call, besides what the call brings itself.
_SPOKEN: Final = ("Version: 4", "Content-Type: application/xml", "Accept: application/xml")

Heard = Callable[[str, str, str], None]
"""Told of every reply: method, path with query, and the status or what happened in its place."""


class Broken(ovirtsdk4.Error):  # type: ignore[misc]
    """There was no whole reply. ``number`` is libcurl's; ``sent`` says that the engine may have got the request."""

    def __init__(self, number: int, words: str, *, sent: bool) -> None:
        super().__init__(words)
        self.number = number
        self.sent = sent


class Unreadable(ovirtsdk4.Error):  # type: ignore[misc]
    """Somebody else than the engine replied, most often Apache in front of it, or half of a reply came."""

    def __init__(self, status: int, words: str) -> None:
        super().__init__(words, code=status)


class SignInUnreadable(Unreadable):
    """The same, while signing in: the call itself was not sent, or was refused with 401."""


def agent(caller: str) -> str:
    """Who we are, for the log of whoever runs the engine: the program, its version, its host (a pod's name) and pid."""
    host = re.sub(r"[^A-Za-z0-9._-]", "-", platform.node()) or "unnamed"
    return f"moorage-{caller}/{__version__} ({host}; pid {os.getpid()}) PythonSDK/{ovirtsdk4.version.VERSION}"


class Tokens(Protocol):
    """Who keeps the session that several wires share."""

    def fresh(self, stale: str | None, sign_in: Callable[[], str]) -> str:
        """A token other than ``stale``: another wire's newer one, or what ``sign_in`` brings."""


class _Handles(pycurl.CurlMulti):  # type: ignore[misc]
    """The SDK's set of transfers: settings that the SDK does not know are made here, and failures get a type."""

    def __init__(self, prepare: Callable[[pycurl.Curl], None]) -> None:
        super().__init__()
        self._prepare = prepare

    def add_handle(self, handle: pycurl.Curl) -> None:
        self._prepare(handle)
        super().add_handle(handle)

    def info_read(self, *arguments: Any) -> tuple[int, list[Any], list[Any]]:
        queued, done, failed = super().info_read(*arguments)
        for handle, number, words in failed:
            sent = handle.getinfo(pycurl.PRETRANSFER_TIME) > 0
            self.remove_handle(handle)
            handle.close()
            raise Broken(number, words, sent=sent)
        return queued, done, failed


class Wire(ovirtsdk4.Connection):  # type: ignore[misc]
    """One connection to an engine. Not for two threads at once: calls would wait for each other."""

    _multi: pycurl.CurlMulti

    def __init__(
        self,
        who: credential.Credentials,
        tokens: Tokens,
        *,
        timeout: float,
        connect_timeout: float,
        heard: Heard,
        agent: str,
        token: str | None = None,
    ) -> None:
        super().__init__(
            url=who.url,
            username=who.username,
            password=who.password.reveal(),
            insecure=who.insecure,
            timeout=math.ceil(timeout),
            token=token,
            headers={"Accept-Language": "en"},
        )
        self._multi.close()
        self._multi = _Handles(self._prepare_call)
        self._tokens = tokens
        self._bundle = who.ca_bundle.encode()
        self._connect_timeout = math.ceil(connect_timeout)
        self._heard = heard
        self._introduction = f"User-Agent: {agent}"
        self._asked = ("", "")
        self._brought: dict[str, str | None] = {}
        self._writing = False

    def __repr__(self) -> str:
        return f"Wire({self._url})"

    def send(self, request: Any) -> Any:
        query = urllib.parse.urlencode(sorted(request.query.items())) if request.query else ""
        self._asked = (request.method, f"{request.path or '/'}{'?' if query else ''}{query}")
        self._writing = request.method != "GET"
        self._brought = request.headers
        return super().send(request)

    def wait(self, context: Any, failed_auth: bool = False) -> Any:
        try:
            return super().wait(context, failed_auth)
        except Broken as broken:
            self._heard(*self._asked, str(broken))
            raise

    def sign_out(self, timeout: float) -> None:
        """End the session, for every wire that shares it; raises if the engine does not."""
        self._timeout = math.ceil(timeout)
        self._connect_timeout = self._timeout
        if self._sso_token is not None:
            self._revoke_access_token()

    def hang_up(self, patience: float) -> None:
        """Close the connection, but leave the session; a transfer that still runs is left to end by itself."""
        if self._curl_lock.acquire(timeout=patience):
            try:
                self._multi.close()
            finally:
                self._curl_lock.release()

    def _prepare_call(self, handle: pycurl.Curl) -> None:
        self._prepare(handle)
        # The SDK names itself in a line of its own, and a second one would be two answers to one question.
        brought = {**self._headers, **{name: value for name, value in self._brought.items() if value is not None}}
        own = (self._introduction, *_SPOKEN, f"Authorization: Bearer {self._sso_token}")
        handle.setopt(pycurl.HTTPHEADER, [*(f"{name}: {value}" for name, value in brought.items()), *own])

    def _prepare(self, handle: pycurl.Curl) -> None:
        handle.setopt(pycurl.NOSIGNAL, 1)
        handle.setopt(pycurl.CONNECTTIMEOUT, self._connect_timeout)
        handle.setopt(pycurl.TIMEOUT, self._timeout)
        if self._writing:
            # libcurl repeats what was cut off on a kept connection, and only there.
            handle.setopt(pycurl.FRESH_CONNECT, 1)
        if self._insecure:
            handle.setopt(pycurl.SSL_VERIFYPEER, 0)
            handle.setopt(pycurl.SSL_VERIFYHOST, 0)
        elif self._bundle:
            handle.setopt(pycurl.CAINFO_BLOB, self._bundle)
        elif authorities := _system_authorities():
            handle.setopt(pycurl.CAINFO, authorities)

    def _read_reponse(self, context: Any) -> Any:  # (the SDK's spelling)
        try:
            response = super()._read_reponse(context)
        except UnicodeDecodeError:
            raise Unreadable(0, "the reply's headers are not text") from None
        self._heard(*self._asked, str(response.code))
        kind = _header(response.headers, "content-type")
        if response.body and not _XML.match(kind):
            if response.code != 401:
                raise Unreadable(response.code, f"HTTP {response.code} with {kind or 'an untyped body'}, not XML")
            # The SDK signs in again at a 401 and, should that not help, wants a fault or nothing.
            response.body = b""
        elif response.body:
            _check_whole(response.code, response.body)
        return response

    def adopt(self, token: str | None) -> None:
        """Use the session's latest token from now on; between calls, by the thread that makes them."""
        if token is not None:
            self._sso_token = token

    def _get_access_token(self) -> str:
        return self._tokens.fresh(self._sso_token, self._sign_in)

    def _sign_in(self) -> str:
        try:
            return str(super()._get_access_token())
        except KeyError:
            raise SignInUnreadable(0, "the engine's answer to the sign-in holds no token") from None

    def _get_sso_response(self, url: str, params: Any = "") -> Any:
        """The SDK's sign-in and sign-out, with the time-out that the SDK forgot."""
        handle, body, headers = pycurl.Curl(), io.BytesIO(), io.BytesIO()
        try:
            self._prepare(handle)
            handle.setopt(pycurl.URL, url)
            handle.setopt(pycurl.HTTPHEADER, ["Accept: application/json", self._introduction])
            handle.setopt(pycurl.COPYPOSTFIELDS, urllib.parse.urlencode(params))
            handle.setopt(pycurl.WRITEFUNCTION, body.write)
            handle.setopt(pycurl.HEADERFUNCTION, headers.write)
            handle.perform()
            status = handle.getinfo(pycurl.HTTP_CODE)
        except pycurl.error as problem:
            number, words = problem.args[0], str(problem.args[-1])
            self._heard("POST", urllib.parse.urlsplit(url).path, words)
            raise Broken(number, words, sent=False) from None
        finally:
            handle.close()
        self._heard("POST", urllib.parse.urlsplit(url).path, str(status))
        kind = _header(headers.getvalue().decode("latin-1").split("\n"), "content-type")
        try:
            content = json.loads(body.getvalue()) if _JSON.match(kind) else None
        except ValueError:
            content = None
        if isinstance(content, list) and content:
            content = content[0]
        if not isinstance(content, dict) or (self._sso_token_name not in content and status >= 500):
            raise SignInUnreadable(status, f"HTTP {status} with {kind or 'an untyped body'}, not JSON")
        return content


def _header(lines: list[str], name: str) -> str:
    # The last one: a "100 Continue" or a redirection has headers of its own before it.
    found = [line.partition(":")[2].strip() for line in lines if line.lower().startswith(f"{name}:")]
    return found[-1] if found else ""


def _check_whole(status: int, body: bytes) -> None:
    try:
        expat.ParserCreate().Parse(body, True)
    except expat.ExpatError as problem:
        raise Unreadable(status, f"HTTP {status} with broken XML: {problem}") from None


def _system_authorities() -> str:
    """The system's trusted authorities: libcurl as it comes with pycurl looks for them at another system's place."""
    return ssl.get_default_verify_paths().cafile or ""
