"""How programs on a machine talk to their cluster's API: over its own wire, with what a kubeconfig gives them."""

from __future__ import annotations

import base64
import binascii
import functools
import json
import re
from typing import Any

import yaml

from moorage.lab.nodes import network

Object = dict[str, Any]

MERGE = "application/merge-patch+json"
_JSON = "application/json"
_WARNING = re.compile(r'299 \S+ "((?:[^"\\]|\\.)*)"')


class KubeconfigError(Exception):
    """The kubeconfig on the machine's disk cannot be used."""


class Refused(Exception):  # noqa: N818 - the API's own No
    """The API answered, but not with what was asked."""

    def __init__(self, status: int, reason: str, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.reason = reason
        self.message = message


class Client:
    """One identity at one API. Raises `Refused`, or OSError and TimeoutError if there was no answer at all."""

    def __init__(
        self, wire: network.Wire, server: str, authority: str, *, certificate: str = "", key: str = "", token: str = ""
    ) -> None:
        self.server = server.rstrip("/")
        self.authority = authority
        #: What the API had to say beside its answers.
        self.warnings: list[str] = []
        self._wire = wire
        self._tls = network.trusting(authority, certificate=certificate, key=key)
        self._headers = {"User-Agent": "kubelet/v1.33 (linux/amd64)", "Accept": _JSON}
        if token:
            self._headers["Authorization"] = f"Bearer {token}"

    @property
    def host(self) -> str:
        return self.server.partition("://")[2].rpartition(":")[0]

    async def get(self, path: str) -> Object:
        return await self.ask("GET", path)

    async def create(self, path: str, content: Object) -> Object:
        return await self.ask("POST", path, content)

    async def replace(self, path: str, content: Object) -> Object:
        return await self.ask("PUT", path, content)

    async def merge(self, path: str, content: Object) -> Object:
        return await self.ask("PATCH", path, content, MERGE)

    async def ask(self, method: str, path: str, content: Object | None = None, kind: str = _JSON) -> Object:
        """The object that the API answers with."""
        headers, body = self._headers, None
        if content is not None:
            headers = {**headers, "Content-Type": kind}
            body = json.dumps(content, separators=(",", ":")).encode()
        reply = await self._wire.request(method, f"{self.server}{path}", headers=headers, body=body, tls=self._tls)
        told_beside = _WARNING.findall(reply.headers.get("warning", ""))
        self.warnings += [text.replace('\\"', '"') for text in told_beside]
        try:
            found = json.loads(reply.body)
        except ValueError:
            found = {}
        if reply.status >= 300 or not isinstance(found, dict):
            told = found if isinstance(found, dict) else {}
            words = str(told.get("message") or reply.body[:200].decode(errors="replace") or f"status {reply.status}")
            raise Refused(reply.status, str(told.get("reason", "")), words)
        return found

    def words(self, problem: BaseException) -> str:
        """Why a request failed, in the words of the programs on nodes."""
        told = isinstance(problem, OSError | TimeoutError)
        return f'"{self.server}": {network.words(problem)}' if told else str(problem)


def from_kubeconfig(wire: network.Wire, text: bytes) -> Client:
    """A client for the current context of a kubeconfig with everything embedded."""
    try:
        access = _read(text)
        return Client(wire, access["server"], access["authority"], **access["identity"])
    except (yaml.YAMLError, KeyError, TypeError, AttributeError, LookupError, ValueError, OSError) as problem:
        raise KubeconfigError(f"invalid kubeconfig: {type(problem).__name__}: {problem}") from problem


def place(text: bytes) -> tuple[str, str]:
    """The server that a kubeconfig leads to, and the authorities that are trusted there."""
    try:
        access = _read(text)
        return access["server"], access["authority"]
    except (yaml.YAMLError, KeyError, TypeError, AttributeError, LookupError, ValueError) as problem:
        raise KubeconfigError(f"invalid kubeconfig: {type(problem).__name__}: {problem}") from problem


# All machines of a pool are given the same one.
@functools.lru_cache(maxsize=16)
def _read(text: bytes) -> Object:
    document = yaml.safe_load(text)
    context = _named(document, "contexts", document["current-context"])["context"]
    cluster = _named(document, "clusters", context["cluster"])["cluster"]
    user = _named(document, "users", context["user"])["user"]
    identity = {
        "certificate": _decoded(user.get("client-certificate-data", "")),
        "key": _decoded(user.get("client-key-data", "")),
        "token": str(user.get("token", "")),
    }
    authority = _decoded(cluster["certificate-authority-data"])
    return {"server": str(cluster["server"]), "authority": authority, "identity": identity}


def _named(document: Object, kind: str, name: str) -> Object:
    found: Object = next(each for each in document[kind] if each["name"] == name)
    return found


def _decoded(text: str) -> str:
    try:
        return base64.b64decode(text, validate=True).decode()
    except binascii.Error as problem:
        raise ValueError(f"illegal base64 data: {problem}") from problem
