"""Raw calls with the official client's own connection: a story looks at codes, headers and bodies as they are sent."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import re
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar
from urllib import parse

import kubernetes
import urllib3

Object = dict[str, Any]
T = TypeVar("T")

MERGE = "application/merge-patch+json"
JSON_PATCH = "application/json-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
APPLY = "application/apply-patch+yaml"

PATIENCE = 30.0
"""Seconds that something which happens by itself may take before a test gives it up."""


@dataclasses.dataclass(frozen=True)
class Answer:
    """What the server said."""

    code: int
    headers: Mapping[str, str]
    data: bytes

    @property
    def body(self) -> Object:
        found: Object = json.loads(self.data)
        return found

    @property
    def reason(self) -> str:
        return str(self.body.get("reason"))

    @property
    def message(self) -> str:
        return str(self.body.get("message"))

    @property
    def causes(self) -> list[tuple[str, str]]:
        """Reason and field of each cause of a refusal, in order of the fields."""
        found = self.body.get("details", {}).get("causes", [])
        return sorted(((cause.get("reason", ""), cause.get("field", "")) for cause in found), key=lambda each: each[1])

    @property
    def warnings(self) -> list[str]:
        """The texts of the Warning headers."""
        found = re.findall(r'299 - "((?:[^"\\]|\\.)*)"', self.headers.get("Warning", ""))
        return [re.sub(r"\\(.)", r"\1", text) for text in found]

    def got(self, code: int = 200) -> Object:
        """The body, if the code is as expected."""
        assert self.code == code, f"expected {code}, got {self.code}: {self.data.decode()[:2000]}"
        return self.body

    def refused(self, code: int, reason: str, message: str = "") -> Object:
        """The Status, if it is this refusal; ``message`` must be part of its words."""
        body = self.got(code)
        assert (body["kind"], body["status"], body["reason"]) == ("Status", "Failure", reason)
        assert body["code"] == code
        assert message in body["message"], body["message"]
        return body


class Watching:
    """The events of an open watch."""

    def __init__(self, response: urllib3.BaseHTTPResponse) -> None:
        self._response = response
        self._lines = iter(response)

    def next(self) -> tuple[str, Object]:
        """The next event: its type and object."""
        line = next(self._lines)
        event = json.loads(line)
        return event["type"], event["object"]

    def named(self) -> tuple[str, str]:
        """The next event: its type and the name of its object."""
        kind, content = self.next()
        assert kind != "ERROR", content
        return kind, content["metadata"]["name"]

    def ended(self) -> bool:
        """Whether the server ended it without another event."""
        return next(self._lines, None) is None


class Caller:
    """Somebody who calls the API."""

    def __init__(self, client: kubernetes.client.ApiClient, token: str = "") -> None:
        self.client = client
        self._url = client.configuration.host
        self._pool: urllib3.PoolManager = client.rest_client.pool_manager
        self._headers = {"Authorization": f"Bearer {token}"} if token else {}

    @property
    def core(self) -> kubernetes.client.CoreV1Api:
        return kubernetes.client.CoreV1Api(self.client)

    def call(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        headers: Mapping[str, str] | None = None,
        **query: object,
    ) -> Answer:
        """``body`` is sent as JSON unless it is bytes or text already; query parameters as they are named."""
        sent = {"Accept": "application/json", **self._headers, **(headers or {})}
        if body is not None:
            sent.setdefault("Content-Type", "application/json")
        data = body if isinstance(body, bytes | str | None) else json.dumps(body)
        url = self._url + path
        if query:
            url += ("&" if "?" in path else "?") + parse.urlencode({key: _text(value) for key, value in query.items()})
        response = self._pool.request(method, url, body=data, headers=sent, timeout=PATIENCE, retries=False)
        return Answer(response.status, response.headers, response.data)

    def get(self, path: str, **query: Any) -> Answer:
        return self.call("GET", path, **query)

    def post(self, path: str, body: object, **query: Any) -> Answer:
        return self.call("POST", path, body, **query)

    def put(self, path: str, body: object, **query: Any) -> Answer:
        return self.call("PUT", path, body, **query)

    def patch(self, path: str, body: object, kind: str = MERGE, **query: Any) -> Answer:
        return self.call("PATCH", path, body, headers={"Content-Type": kind}, **query)

    def delete(self, path: str, body: object = None, **query: Any) -> Answer:
        return self.call("DELETE", path, body, **query)

    def apply(self, path: str, body: object, manager: str, **query: Any) -> Answer:
        """Server-side apply."""
        return self.patch(path, body, APPLY, fieldManager=manager, **query)

    @contextlib.contextmanager
    def watch(self, path: str, **query: object) -> Iterator[Watching]:
        """An open watch; no event within the time a story has patience is a failure."""
        sent = {"Accept": "application/json", **self._headers}
        words = parse.urlencode({"watch": "1", **{key: _text(value) for key, value in query.items()}})
        response = self._pool.request(
            "GET",
            f"{self._url}{path}?{words}",
            headers=sent,
            preload_content=False,
            retries=False,
            timeout=urllib3.Timeout(connect=PATIENCE, read=PATIENCE),
        )
        try:
            assert response.status == 200, response.data.decode()
            yield Watching(response)
        finally:
            response.close()


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def eventually(look: Callable[[], T], what: str, patience: float = PATIENCE) -> T:
    """What ``look`` finds as soon as it is anything true; controllers take a moment."""
    deadline = time.monotonic() + patience
    while True:
        if found := look():
            return found
        assert time.monotonic() < deadline, f"not within {patience:.0f} s: {what}"
        time.sleep(0.05)
