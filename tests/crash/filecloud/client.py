"""Calls to the file cloud, and the places where a test lets the caller die.

``CRASH=<n>:<phase>`` ends this very process by SIGKILL at its n-th call: before it is sent, once the server has acted
on it but before the reply is read, or a few milliseconds after the reply was handed on. ``FILECLOUD_CALLS`` names a
file that lists the calls.
"""

from __future__ import annotations

import http.client
import json
import os
import signal
import threading
import time
import urllib.parse
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from moorage.engine import errors, secret
from moorage.platforms import contract

URL, TOKEN = "FILECLOUD_URL", "FILECLOUD_TOKEN"
PHASES = ("before-send", "after-commit", "after-reply")

_count = 0
_turn = threading.Lock()


def _die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


class _Boundary:
    """One call's three chances to be the last one."""

    def __init__(self, environ: Mapping[str, str], call: str) -> None:
        global _count
        with _turn:
            _count += 1
            self.number = _count
            if calls := environ.get("FILECLOUD_CALLS"):
                with Path(calls).open("a") as file:
                    file.write(f"{self.number} {call}\n")
        fatal, _, self._phase = environ.get("CRASH", "0:").partition(":")
        self._fatal = int(fatal) == self.number

    def reached(self, phase: str) -> None:
        if not self._fatal or phase != self._phase:
            return
        if phase != "after-reply":
            _die()
        # Somewhere in what the caller does with the reply: which place, depends on the call's number.
        threading.Thread(target=lambda: (time.sleep(self.number * 7 % 20 / 1000), _die()), daemon=True).start()


class Client:
    """Speaks to one file cloud."""

    def __init__(self, around: contract.Surroundings) -> None:
        self._around = around

    def secrets(self) -> tuple[secret.Secret, ...]:
        return (secret.Secret(self._around.environ.get(TOKEN, "")),)

    def call(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """One call; every reply but a good one is raised as the failure it amounts to."""
        url, token = (self._around.environ.get(name, "") for name in (URL, TOKEN))
        if not url or not token:
            raise errors.Unauthorized("there are no credentials", remedy=f"set {URL} and {TOKEN}")
        boundary = _Boundary(self._around.environ, f"{method} {path}")
        boundary.reached("before-send")
        address = urllib.parse.urlsplit(url)
        connection = http.client.HTTPConnection(
            str(address.hostname), address.port or 80, timeout=self._around.clock.socket_timeout(60)
        )
        headers = {"Authorization": f"Bearer {token}", "Idempotency-Key": uuid.uuid4().hex}
        try:
            connection.request(method, path, json.dumps(body) if body is not None else None, headers)
            reply = connection.getresponse()
            boundary.reached("after-commit")
            content = json.loads(reply.read() or b"{}")
        finally:
            connection.close()
        self._around.trace(f"{method} {path} -> {reply.status}")
        boundary.reached("after-reply")
        if reply.status < 300:
            return dict(content)
        raise _failure(reply.status, str(content.get("error", "")), reply.getheader("Retry-After"))

    def listed(self, kind: str, **wanted: str) -> list[dict[str, Any]]:
        """All things of a kind that match, page by page."""
        found: list[dict[str, Any]] = []
        page: str | None = "0"
        while page is not None:
            answer = self.call("GET", f"/v1/{kind}?{urllib.parse.urlencode({**wanted, 'page': page})}")
            found += answer["items"]
            page = answer["next"]
        return found

    def owned(self, kind: str, infra_id: str, **wanted: str) -> list[dict[str, Any]]:
        """The things of a kind that bear exactly the cluster's mark; the server's own filter is a mere substring."""
        mark = f"cluster:{infra_id}"
        return [item for item in self.listed(kind, tag=mark, **wanted) if mark in item["tags"]]


def _failure(status: int, words: str, retry_after: str | None) -> errors.PlatformFailure:
    match status:
        case 401 | 403 if "quota" not in words:
            return errors.Unauthorized("the file cloud refuses the credentials", words=words)
        case 404:
            return errors.NotFound("there is no such thing", words=words)
        case 409:
            return errors.Conflict("something is in the way", words=words)
        case 429 | 503:
            wait = float(retry_after) if retry_after else None
            return errors.Transient("the file cloud is busy", words=words, retry_after=wait)
        case 500 | 502 | 504:
            return errors.Ambiguous("the file cloud is in trouble", words=words)
        case _:
            return errors.Terminal("the file cloud refuses it", words=words, remedy="ask for less, or for more quota")
