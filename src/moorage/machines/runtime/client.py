"""The Kubernetes API in plain dicts: what the server sends is what a controller sees, and nothing is lost in between.

The official client brings the connection (kubeconfig, certificates, tokens, proxies, one pool for all threads); bodies
go past its generated models, which know no custom resources and cost fifty times the decoding. Nothing is repeated
here: a call that failed is the controller's to make again, after looking anew.
"""

from __future__ import annotations

import datetime
import json
import logging
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Literal, NamedTuple
from urllib import parse

import urllib3

from moorage.engine import clock as clocks
from moorage.engine import retry
from moorage.machines.runtime import errors, kinds, metrics, streams

# The errors are part of this module's face: who calls catches client.NotFound.
from moorage.machines.runtime.errors import AlreadyExists as AlreadyExists
from moorage.machines.runtime.errors import ApiError as ApiError
from moorage.machines.runtime.errors import Conflict as Conflict
from moorage.machines.runtime.errors import Forbidden as Forbidden
from moorage.machines.runtime.errors import Gone as Gone
from moorage.machines.runtime.errors import Invalid as Invalid
from moorage.machines.runtime.errors import NotFound as NotFound
from moorage.machines.runtime.errors import TooManyRequests as TooManyRequests
from moorage.machines.runtime.errors import Unauthorized as Unauthorized
from moorage.machines.runtime.errors import Unavailable as Unavailable

if TYPE_CHECKING:
    from kubernetes import client as official

Object = dict[str, Any]
Objects = list[Object]
Type = Literal["merge", "json", "strategic", "apply"]

ADDED, MODIFIED, DELETED, BOOKMARK, ERROR = "ADDED", "MODIFIED", "DELETED", "BOOKMARK", "ERROR"
PAGE = 500

# Cloud seconds a call may take, and a connection to come about.
_ANSWER = 60.0
_CONNECT = 15.0
# How long a watch may be silent, and for how long after its announced end: servers send a bookmark a minute, but they
# promise none, and send none of a kind to which nothing has happened since they began. The last is the least in real
# time, as the server may live on a slower clock than ours.
_SILENCE = 180.0
_OVERDUE = 30.0
_SHORTEST_SILENCE = 90.0
_JSON = "application/json"
_PATCHES: Mapping[str, str] = {
    "merge": "application/merge-patch+json",
    "json": "application/json-patch+json",
    "strategic": "application/strategic-merge-patch+json",
    "apply": "application/apply-patch+yaml",
}

_log = logging.getLogger(__name__)


class Event(NamedTuple):
    """What a watch tells: ``type`` is ADDED, MODIFIED, DELETED or BOOKMARK (whose object has a version alone)."""

    type: str
    object: Object


def key_of(obj: Mapping[str, Any]) -> str:
    """``namespace/name``, or the name of an object that lives in no namespace."""
    meta = obj["metadata"]
    namespace = meta.get("namespace")
    name: str = meta["name"]
    return f"{namespace}/{name}" if namespace else name


def split_key(key: str) -> tuple[str, str]:
    """Namespace (maybe empty) and name."""
    namespace, _, name = key.rpartition("/")
    return namespace, name


class Client:
    """Calls of one API server. Safe to share between threads.

    ``manager`` is the name under which the server notes who has written which field.
    """

    def __init__(self, api: official.ApiClient, clock: clocks.Clock, *, manager: str = "moorage-machine-api") -> None:
        self.clock = clock
        self.manager = manager
        self._configuration = api.configuration
        self._pool: urllib3.PoolManager = api.rest_client.pool_manager
        self._host = str(api.configuration.host).rstrip("/")
        # Held, as the official client removes its temporary certificate files when it goes.
        self._api = api

    def get(self, kind: kinds.Kind, name: str, ns: str = "") -> Object:
        """The object as it is now; `NotFound` if there is none."""
        return self._call("GET", kind.path(ns, name), what=f"get {kind} {_place(ns, name)}")

    def list(
        self,
        kind: kinds.Kind,
        ns: str = "",
        *,
        labels: str = "",
        fields: str = "",
        limit: int = PAGE,
        each: Callable[[Object], Object] = lambda obj: obj,
    ) -> tuple[Objects, str]:
        """All objects of one moment, page by page, and the version of that moment, from which to watch.

        ``each`` object is kept as what this makes of it, so that a page is slimmed before the next is read.
        """
        for size in (limit, limit, 0):
            try:
                return self._pages(kind, ns, {"labelSelector": labels, "fieldSelector": fields, "limit": size}, each)
            except Gone:
                # The pages took longer than the server remembers: once more, and then in one piece.
                if not size:
                    raise
        raise AssertionError("the last size is 0")

    def _pages(
        self, kind: kinds.Kind, ns: str, query: Mapping[str, str | int], each: Callable[[Object], Object]
    ) -> tuple[Objects, str]:
        found: Objects = []
        more = ""
        while True:
            page = self._call("GET", kind.path(ns), {**query, "continue": more}, what=f"list {kind}")
            about = page.get("metadata")
            if not isinstance(about, dict) or "resourceVersion" not in about:
                raise Unavailable(f"what answers at {self._host} is no Kubernetes API", code=200)
            for item in page.get("items") or ():
                # Lists of built-in kinds do not repeat in each object what it is.
                item.setdefault("apiVersion", kind.api_version)
                item.setdefault("kind", kind.kind)
                found.append(each(item))
            more = about.get("continue") or ""
            if not more:
                return found, str(about["resourceVersion"])

    def watch(
        self,
        kind: kinds.Kind,
        revision: str,
        ns: str = "",
        *,
        labels: str = "",
        fields: str = "",
        seconds: float = 300.0,
    ) -> Watch:
        """What happens after ``revision``, for some seconds; it connects when it is first asked for an event."""
        query = {
            "watch": "1",
            "resourceVersion": revision,
            "labelSelector": labels,
            "fieldSelector": fields,
            "allowWatchBookmarks": "true",
            "timeoutSeconds": max(1, round(seconds)),
        }
        return Watch(self, self._url(kind.path(ns), query), f"watch {kind}", seconds)

    def create(self, kind: kinds.Kind, body: Object) -> Object:
        """Make an object in the namespace that it names; `AlreadyExists` if there is one of that name."""
        meta = body["metadata"]
        where = _place(meta.get("namespace", ""), meta.get("name") or meta.get("generateName", ""))
        path, query = kind.path(meta.get("namespace", "")), {"fieldManager": self.manager}
        return self._call("POST", path, query, _typed(kind, body), what=f"create {kind} {where}")

    def replace(self, kind: kinds.Kind, body: Object, *, subresource: str = "") -> Object:
        """Put an object in the place of the version it names; `Conflict` if that is not the present one."""
        meta = body["metadata"]
        ns, name = meta.get("namespace", ""), meta["name"]
        path, query = kind.path(ns, name, subresource), {"fieldManager": self.manager}
        return self._call("PUT", path, query, _typed(kind, body), what=f"replace {kind} {_place(ns, name)}")

    def patch(
        self,
        kind: kinds.Kind,
        name: str,
        ns: str,
        body: Object | Objects,
        *,
        type: Type = "merge",
        subresource: str = "",
        owner: str = "",
    ) -> Object:
        """Change a part. A resourceVersion in a merge patch makes it fail with `Conflict` if that is not the present.

        ``owner`` is whom the server notes for the fields; applying takes fields from other owners.
        """
        query: dict[str, str] = {"fieldManager": owner or self.manager}
        if type == "apply":
            query["force"] = "true"
            body = _typed(kind, body) if isinstance(body, dict) else body
        path, what = kind.path(ns, name, subresource), f"patch {kind} {_place(ns, name)}"
        return self._call("PATCH", path, query, body, content_type=_PATCHES[type], what=what)

    def delete(
        self,
        kind: kinds.Kind,
        name: str,
        ns: str = "",
        *,
        uid: str = "",
        revision: str = "",
        propagation: Literal["", "Background", "Foreground", "Orphan"] = "",
        grace: int | None = None,
    ) -> None:
        """Ask for an object's end; `NotFound` if it has ended. With ``uid``, `Conflict` if another has its name now."""
        only = {key: value for key, value in (("uid", uid), ("resourceVersion", revision)) if value}
        body: Object = {"apiVersion": "v1", "kind": "DeleteOptions"}
        body |= {"preconditions": only} if only else {}
        body |= {"propagationPolicy": propagation} if propagation else {}
        body |= {"gracePeriodSeconds": grace} if grace is not None else {}
        self._call("DELETE", kind.path(ns, name), body=body, what=f"delete {kind} {_place(ns, name)}")

    def evict(self, ns: str, pod: str, *, uid: str = "", grace: int | None = None) -> None:
        """Ask a pod to leave; `TooManyRequests` because of "DisruptionBudget" while its budgets forbid that."""
        options: Object = {"preconditions": {"uid": uid}} if uid else {}
        options |= {"gracePeriodSeconds": grace} if grace is not None else {}
        body: Object = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": pod, "namespace": ns},
            "deleteOptions": options,
        }
        path = kinds.POD.path(ns, pod, "eviction")
        self._call("POST", path, body=body, what=f"evict pod {_place(ns, pod)}")

    def _url(self, path: str, query: Mapping[str, object] | None = None) -> str:
        words = parse.urlencode({key: value for key, value in (query or {}).items() if value not in ("", 0)})
        return f"{self._host}{path}?{words}" if words else self._host + path

    def _call(
        self,
        method: str,
        path: str,
        query: Mapping[str, object] | None = None,
        body: Object | Objects | None = None,
        *,
        what: str,
        content_type: str = _JSON,
    ) -> Object:
        timeout = urllib3.Timeout(
            connect=self.clock.socket_timeout(_CONNECT), read=max(10.0, self.clock.socket_timeout(_ANSWER))
        )
        data = None if body is None else json.dumps(body, separators=(",", ":")).encode()
        response = self._request(method, self._url(path, query), what, timeout, data, content_type)
        if response.status >= 300:
            raise self._refused(what, response)
        try:
            found = json.loads(response.data)
        except ValueError:
            found = None
        if not isinstance(found, dict):
            raise Unavailable(f"what answers at {self._host} is no Kubernetes API", code=response.status)
        return found

    def _request(
        self,
        method: str,
        url: str,
        what: str,
        timeout: urllib3.Timeout,
        body: bytes | None = None,
        content_type: str = "",
        *,
        stream: bool = False,
    ) -> urllib3.BaseHTTPResponse:
        """Send, and translate a broken connection; ``stream`` leaves the body to be read."""
        headers = {"Accept": _JSON, "User-Agent": self.manager}
        if body is not None:
            headers["Content-Type"] = content_type
        try:
            # Within, as a token on file may be missing for a moment.
            headers |= self._authorization()
            response = self._pool.request(
                method, url, body=body, headers=headers, timeout=timeout, retries=False, preload_content=not stream
            )
        except (urllib3.exceptions.HTTPError, OSError) as broken:
            metrics.CALLS.labels(method, "broken").inc()
            raise Unavailable(f"the API is out of reach to {what}: {broken}", words=str(broken)) from broken
        metrics.CALLS.labels(method, str(response.status)).inc()
        return response

    def _authorization(self) -> dict[str, str]:
        """Asked for anew each time, as that is when tokens on file are read again."""
        found: dict[str, str] = {}
        for setting in self._configuration.auth_settings().values():
            if setting["in"] == "header" and setting["value"]:
                found[str(setting["key"])] = str(setting["value"])
        return found

    def _refused(self, what: str, response: urllib3.BaseHTTPResponse) -> ApiError:
        after = retry.seconds_from(response.headers.get("Retry-After"), datetime.datetime.now(datetime.UTC))
        return errors.refusal(what, response.status, response.data, after)


class Watch:
    """The events of one watch. It ends when its time is up or it is closed; any thread may close it, at once.

    It ends, too, when nothing was ``heard`` for so long that the server may be gone without a word; to go on from the
    last version in another one costs little.
    """

    def __init__(self, client: Client, url: str, what: str, seconds: float) -> None:
        self._client = client
        self._url = url
        self._what = what
        silence = max(_SHORTEST_SILENCE, client.clock.socket_timeout(min(seconds + _OVERDUE, _SILENCE)))
        self._timeout = urllib3.Timeout(connect=client.clock.socket_timeout(_CONNECT), read=silence)
        self._guard = threading.Lock()
        self._response: urllib3.BaseHTTPResponse | None = None
        self._closed = False
        self.opened = False
        self.heard = client.clock.now()

    def close(self) -> None:
        """Wake whoever waits for the next event; there is none any more."""
        with self._guard:
            self._closed = True
            if self._response is not None:
                try:
                    self._response.shutdown()
                except (OSError, ValueError, RuntimeError) as ended:
                    # It has ended by itself.
                    _log.debug("%s: %s", self._what, ended)

    def __iter__(self) -> Iterator[Event]:
        """`Gone` if the version is forgotten; `Unavailable` if the connection breaks."""
        response = self._open()
        try:
            for line in streams.lines(response):
                if not line.strip():
                    continue
                self.heard = self._client.clock.now()
                event = _event(line)
                if event.type == ERROR:
                    raise errors.from_status(self._what, event.object)
                yield event
            self.heard = self._client.clock.now()
        except urllib3.exceptions.ReadTimeoutError as silent:
            _log.debug("%s: %s", self._what, silent)
        except (urllib3.exceptions.HTTPError, OSError, ValueError, AttributeError, LookupError, TypeError) as broken:
            # A TLS socket that another thread closes shows in some of these ways, a garbled line in others.
            self.heard = self._client.clock.now()
            if not self._closed:
                raise Unavailable(
                    f"the connection broke in the midst of a {self._what}: {broken}", words=str(broken)
                ) from None
        finally:
            with self._guard:
                self._response = None
            response.close()

    def _open(self) -> urllib3.BaseHTTPResponse:
        response = self._client._request("GET", self._url, self._what, self._timeout, stream=True)
        with self._guard:
            self._response = response
            closed = self._closed
        if response.status == 200 and not closed:
            self.opened, self.heard = True, self._client.clock.now()
            return response
        try:
            if closed:
                raise Unavailable(f"stopped before it could {self._what}")
            raise self._client._refused(self._what, response)
        finally:
            response.close()


def _event(line: bytes) -> Event:
    found = json.loads(line)
    return Event(found["type"], found["object"])


def _typed(kind: kinds.Kind, body: Object) -> Object:
    return {"apiVersion": kind.api_version, "kind": kind.kind, **body}


def _place(ns: str, name: str) -> str:
    return f"{ns}/{name}" if ns else name
