"""The verbs over HTTP: from what a request asks for to what it is answered.

`answer` is the one handler of a server. It finds out who asks, whether they may, which kind is meant, and lets `api` do
the rest; whatever is refused on the way becomes a Status.
"""

from __future__ import annotations

import asyncio
import gzip
import logging
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from aiohttp import web

from moorage.lab import calls, faults
from moorage.lab.kube import (
    admission,
    authorization,
    callers,
    disruption,
    http,
    kinds,
    lists,
    manners,
    options,
    paths,
    problem,
    protobuf,
    removal,
    reviews,
    store,
    strategic,
    subresources,
    users,
    views,
    watching,
)

if TYPE_CHECKING:
    from moorage.lab.kube import server as servers

Object = store.Object

_LOG = logging.getLogger(__name__)
_COMPRESSED_FROM = 128 * 1024
_BODIES = ("application/json", "application/yaml", protobuf.MEDIA)
_SUCCESS = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"}


async def answer(server: servers.Server, request: web.Request) -> web.StreamResponse:
    """Answer a request, whatever happens."""
    try:
        return await _answered(server, request)
    except problem.Problem as refusal:
        return refused(refusal)
    except web.HTTPRequestEntityTooLarge:
        return refused(problem.too_large(http.MOST_BYTES))
    except (ConnectionError, asyncio.CancelledError, web.HTTPException):
        raise
    except Exception as wrong:  # noqa: BLE001 - a server answers whatever happens to it
        _LOG.exception("%s %s failed", request.method, request.path)
        return refused(problem.internal(f"{type(wrong).__name__}: {wrong}"))


def refused(refusal: problem.Problem) -> web.Response:
    """The Status as an answer."""
    headers = {"Retry-After": str(refusal.retry_after)} if refusal.retry_after else {}
    return _json(refusal.status(), refusal.code, headers)


def _json(document: object, status: int = 200, headers: Mapping[str, str] | None = None) -> web.Response:
    return web.Response(body=store.encoded(document), status=status, content_type=views.JSON, headers=headers)


async def _answered(server: servers.Server, request: web.Request) -> web.StreamResponse:
    asked = http.asked(request.method, request.path, request.query)
    user = callers.caller(server.api, server.access, request)
    request[calls.WHO] = user.name
    authorization.require(server.api, user, asked.attributes(request.query.get("fieldSelector", "")))
    if not asked.plural:
        return await _finish(request, *paths.answer(server, request))
    why = server.api.available()
    if why:
        raise problem.broken(why)
    if not _found(server, asked) and all(kind.custom for kind in server.api.kinds if kind.group == asked.group):
        # Groups that are nobody's, or of definitions alone, have nobody who would answer in the API's own words.
        return await _finish(request, *paths.nothing())
    kind = _kind(server, asked)
    view = views.accepted(request.headers.get("Accept", ""), request.query.get("includeObject", ""))
    return await _Call(server, request, asked, user, kind, view).answered()


def _found(server: servers.Server, asked: http.Asked) -> bool:
    return server.api.kinds.find(asked.group, asked.version, asked.plural) is not None


def _kind(server: servers.Server, asked: http.Asked) -> kinds.Kind:
    kind = server.api.kinds.find(asked.group, asked.version, asked.plural)
    if kind is None or (asked.namespace and not kind.namespaced):
        raise problem.no_such_path()
    if asked.subresource and asked.subresource not in kind.subresources | _more_parts(kind):
        raise problem.no_such_path()
    return kind


def _more_parts(kind: kinds.Kind) -> frozenset[str]:
    return frozenset({"log"}) if kind.key == ("", "pods") else frozenset()


async def _finish(request: web.Request, body: bytes, media: str, status: int = 200) -> web.Response:
    headers = {}
    if len(body) >= _COMPRESSED_FROM and "gzip" in request.headers.get("Accept-Encoding", ""):
        # In a thread, so that a long list does not hold up everybody else.
        body = await asyncio.to_thread(gzip.compress, body, 1)
        headers = {"Content-Encoding": "gzip", "Vary": "Accept-Encoding"}
    return web.Response(body=body, status=status, headers={"Content-Type": media, **headers})


class _Call:
    """One request for a resource that is known and allowed."""

    def __init__(
        self,
        server: servers.Server,
        request: web.Request,
        asked: http.Asked,
        user: users.User,
        kind: kinds.Kind,
        view: views.View,
    ) -> None:
        self.server = server
        self.api = server.api
        self.request = request
        self.asked = asked
        self.user = user
        self.kind = kind
        self.view = view
        self.warnings: list[str] = [kind.deprecation] if kind.deprecation else []

    async def answered(self) -> web.StreamResponse:
        act: Callable[[], Any] | None = {
            "get": self._get,
            "list": self._list,
            "watch": self._watch,
            "create": self._create,
            "update": self._update,
            "patch": self._patch,
            "delete": self._delete,
            "deletecollection": self._delete_collection,
        }.get(self.asked.verb)
        scoped = bool(self.asked.namespace) == self.kind.namespaced
        reads_all = self.asked.verb in ("list", "watch")
        named = self.asked.verb in ("get", "update", "patch", "delete")
        possible = bool(self.asked.name) if named else self.asked.verb != "create" or self._may_create()
        served = self.asked.subresource or self.asked.verb in self.kind.verbs
        head = self.request.method == "HEAD"
        if act is None or not possible or not served or head or not (scoped or (reads_all and not self.asked.name)):
            raise problem.method_not_allowed()
        found: web.StreamResponse = await act()
        return found

    def _may_create(self) -> bool:
        return self.asked.subresource in subresources.ACTIONS if self.asked.name else True

    async def _get(self) -> web.StreamResponse:
        asked = self.asked
        stale = bool(self.request.get(faults.STALE))
        entry = self._stale() if stale else self.api.get(self.kind, asked.namespace, asked.name)
        wanted = lists.revision_of(self.request.query.get("resourceVersion", ""))
        if wanted > self.api.store.revision:
            raise problem.not_yet(wanted, self.api.store.revision)
        if asked.subresource == "log":
            return web.Response(text=self._log(), content_type="text/plain")
        if asked.subresource in subresources.ACTIONS:
            raise problem.method_not_allowed()
        return await self._show(entry)

    def _log(self) -> str:
        query = self.request.query
        text = self.api.pod_log(
            self.asked.namespace, self.asked.name, query.get("container", ""), previous=http.flag(query, "previous")
        )
        lines, tail = text.splitlines(keepends=True), query.get("tailLines", "")
        return "".join(lines[max(0, len(lines) - int(tail)) :]) if tail.isdecimal() else text

    def _stale(self) -> store.Entry:
        """The object as a server sees it that has missed the last write of its kind."""
        asked = self.asked
        there = self.api.store.entries(self.kind.key, asked.namespace, self.api.store.earlier(self.kind.key))
        found = [entry for entry in there if entry.object["metadata"]["name"] == asked.name]
        if not found:
            raise problem.not_found(self.kind.group, self.kind.plural, asked.name)
        return found[0]

    async def _show(self, entry: store.Entry, status: int = 200) -> web.Response:
        if self.asked.subresource == "scale":
            body = store.encoded(subresources.scale(self.kind, entry.object))
        else:
            body = views.one(self.view, self.kind, entry, self.api.clock.wall())
        return await self._send(body, status)

    async def _send(self, body: bytes, status: int = 200) -> web.Response:
        view = self.view
        if http.flag(self.request.query, "pretty"):
            body = views.finished(views.View(view.form, view.media, view.include, pretty=True), body)
        elif view.media != views.JSON:
            body = views.finished(view, body)
        response = await _finish(self.request, body, view.media, status)
        for header in http.warning_headers(self.warnings):
            response.headers.add(*header)
        return response

    async def _list(self) -> web.StreamResponse:
        query, stale = http.list_query(self.request.query), bool(self.request.get(faults.STALE))
        page = lists.page(self.api, self.kind, self.asked.namespace, query, stale=stale)
        return await self._send(views.many(self.view, self.kind, page, self.api.clock.wall()))

    async def _watch(self) -> web.StreamResponse:
        wanted = http.watch_query(self.request.query, self.asked.namespace)
        stream = watching.Stream(self.api, self.kind, wanted, self.view)
        self.server.streams[stream] = self.request
        try:
            return await watching.serve(self.request, stream)
        finally:
            self.server.streams.pop(stream, None)

    async def _body(self, kind: kinds.Kind) -> tuple[Object, list[str], bytes]:
        media = self.request.content_type if "Content-Type" in self.request.headers else views.JSON
        if media not in _BODIES:
            known = "application/json, application/yaml, application/vnd.kubernetes.protobuf"
            raise problem.unsupported_media_type(
                f"the body of the request was in an unknown format - accepted media types include: {known}"
            )
        body = await self.request.read()
        return *http.parsed(kind, media, body), body

    def _options(self, patch_type: str = "") -> options.Options:
        agent = self.request.headers.get("User-Agent", "")
        found = http.write_options(self.request.query, self.user, agent, self.asked.verb, patch_type)
        self.warnings = found.warnings
        if self.kind.deprecation:
            found.warnings.append(self.kind.deprecation)
        return found

    async def _create(self) -> web.StreamResponse:
        how = self._options()
        content, twice, body = await self._body(self.kind)
        asked = self.asked
        if asked.subresource:
            return _json(self._act(content, how), 201)
        http.check_kind(self.kind, content, body)
        admission.tell_unknown(self.kind, twice, how)
        if self.kind.virtual:
            found = reviews.answer(
                self.api, self.server.access, self.user, self.kind.name, asked.namespace, "", content
            )
            return await self._send(store.encoded(found), 201)
        return await self._show(self.api.create(self.kind, asked.namespace, content, how), 201)

    def _act(self, content: Object, how: options.Options) -> Object:
        """The subresources that do something instead of being something."""
        namespace, name = self.asked.namespace, self.asked.name
        if self.asked.subresource == "eviction":
            return disruption.evict(self.api, namespace, name, content, how)
        if self.asked.subresource == "token":
            return reviews.answer(self.api, self.server.access, self.user, "TokenRequest", namespace, name, content)
        subresources.bind(self.api, namespace, name, content, how)
        return {**_SUCCESS, "code": 201}

    async def _update(self) -> web.StreamResponse:
        how = self._options()
        asked = self.asked
        shape = subresources.SCALE if asked.subresource == "scale" else self.kind
        content, twice, body = await self._body(shape)
        http.check_kind(shape, content, body)
        admission.tell_unknown(shape, twice, how)
        known = self.api.find(self.kind, asked.namespace, asked.name) is not None
        entry = self.api.update(self.kind, asked.namespace, asked.name, content, how, asked.subresource)
        return await self._show(entry, 200 if known else 201)

    async def _patch(self) -> web.StreamResponse:
        patch_type = self.request.content_type
        known = (options.JSON_PATCH, options.MERGE_PATCH, options.STRATEGIC_PATCH, options.APPLY_PATCH)
        if patch_type not in known:
            raise problem.unsupported_media_type("415: Unsupported Media Type")
        strategic.check_type(self.kind, patch_type)
        how = self._options(patch_type)
        body = await self.request.read()
        asked = self.asked
        known_before = self.api.find(self.kind, asked.namespace, asked.name) is not None
        entry = self.api.patch(self.kind, asked.namespace, asked.name, patch_type, body, how, asked.subresource)
        return await self._show(entry, 200 if known_before else 201)

    async def _delete_options(self) -> options.DeleteOptions:
        body = await self.request.read()
        content: Object = {}
        if body.strip():
            try:
                content, _ = http.parsed(_DELETE_OPTIONS, self.request.content_type, body)
            except problem.Problem as refusal:
                raise problem.broken(refusal.message.partition(": ")[2]) from None
        return http.delete_options(self.request.query, content, self.user)

    async def _delete(self) -> web.StreamResponse:
        if self.asked.subresource:
            raise problem.method_not_allowed(self.kind.group, self.kind.plural, "delete")
        how = await self._delete_options()
        asked = self.asked
        before = self.api.get(self.kind, asked.namespace, asked.name)
        left = self.api.delete(self.kind, asked.namespace, asked.name, how)
        if left is not None or manners.shown_on_deletion(self.kind):
            return await self._show(removal.last_seen(self.api, self.kind, before) if left is None else left)
        meta = before.object["metadata"]
        details = {"name": asked.name, "group": asked.group, "kind": asked.plural, "uid": meta["uid"]}
        return _json({**_SUCCESS, "details": {key: value for key, value in details.items() if value}})

    async def _delete_collection(self) -> web.StreamResponse:
        how = await self._delete_options()
        query = self.request.query
        gone = self.api.delete_collection(
            self.kind,
            self.asked.namespace,
            how,
            labels=query.get("labelSelector", ""),
            fields=query.get("fieldSelector", ""),
        )
        page = lists.Page(gone, self.api.store.revision)
        return await self._send(views.many(self.view, self.kind, page, self.api.clock.wall()))


_DELETE_OPTIONS = kinds.Kind("", "v1", "DeleteOptions", "deleteoptions")
