"""Watches: a stream of events, one JSON document a line, from a moment on until the time is up or the server stops.

All watches of a kind read the same events of the store, each from its own place, so that a slow reader holds up nobody;
one that falls too far behind is told that it is too late. What a line says is encoded once, for whoever wants it so.
"""

from __future__ import annotations

import dataclasses
import random

from aiohttp import web

from moorage.engine import clock as clocks
from moorage.lab.kube import api as apis
from moorage.lab.kube import kinds, lists, problem, selectors, store, views

BOOKMARK = "BOOKMARK"
ERROR = "ERROR"
_INITIAL_END = "k8s.io/initial-events-end"
# Cloud seconds. Real servers end a watch of unspecified length after a random time from 30 to 60 minutes.
_SHORTEST, _LONGEST = 1800, 3600
_BOOKMARK_EVERY = 60.0


@dataclasses.dataclass(frozen=True)
class Wanted:
    """What is to be watched, in the words of the request."""

    namespace: str = ""
    labels: str = ""
    fields: str = ""
    resource_version: str = ""
    match: str = ""
    send_initial: bool | None = None
    bookmarks: bool = False
    seconds: int = 0


def check(wanted: Wanted) -> None:
    """Refuse options that do not go together."""
    forbidden = "FieldValueForbidden"
    causes: list[tuple[str, str, str]] = []
    if wanted.send_initial is None and wanted.match:
        words = "Forbidden: resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided"
        causes.append((forbidden, words, "resourceVersionMatch"))
    elif wanted.send_initial is not None and wanted.match != lists.NOT_OLDER:
        words = "Forbidden: sendInitialEvents requires setting resourceVersionMatch to NotOlderThan"
        causes.append((forbidden, words, "resourceVersionMatch"))
    if causes:
        raise lists.options_invalid(causes)


class Stream:
    """One watch: `lines` are what has happened, `wait` sleeps until more has or the time is up."""

    def __init__(self, api: apis.Api, kind: kinds.Kind, wanted: Wanted, view: views.View) -> None:
        check(wanted)
        self._api = api
        self._kind = kind
        self._view = view
        self._wanted = wanted
        self._matches = selectors.matcher(kind, wanted.labels, wanted.fields)
        since = lists.revision_of(wanted.resource_version, watching=True)
        # Without a version to begin from, a watch begins with everything that is there, unless that is not wanted.
        initial = wanted.send_initial if wanted.send_initial is not None else not since
        seconds = wanted.seconds or random.uniform(_SHORTEST, _LONGEST)  # noqa: S311 - spreads the load, no secret
        self._deadline = api.clock.deadline(seconds)
        self._bookmark = self._next_bookmark()
        self._since = api.store.revision if initial or not since else since
        self._columns_told = False
        self._first: list[bytes] = []
        self._watch: store.Watch | None = None
        try:
            self._watch = api.store.watch(kind.key, self._since)
        except store.Compacted:
            self._first = [self._error(f"too old resource version: {since} ({api.store.revision})")]
            return
        if initial:
            self._first = [self._added(entry) for entry in self._present()]
            if wanted.send_initial and wanted.bookmarks:
                self._first.append(self._mark(initial_end=True))

    def _present(self) -> list[store.Entry]:
        entries = self._api.store.entries(self._kind.key, self._wanted.namespace)
        return [entry for entry in entries if self._matches(entry.object)]

    @property
    def over(self) -> bool:
        return self._watch is None or self._watch.closed or self._deadline.remaining() <= 0

    def close(self) -> None:
        """End the stream."""
        if self._watch is not None:
            self._watch.close()

    async def wait(self) -> None:
        """Return when there may be something to tell, or the stream is over."""
        if self._watch is not None:
            left = self._deadline.remaining()
            if self._bookmark is not None:
                left = min(left, self._bookmark.remaining())
            await self._watch.wait(max(0.0, left) / self._api.clock.speed)

    def lines(self) -> bytes:
        """What has to be told since the last call."""
        told, self._first = self._first, []
        if self._watch is None:
            return b"".join(told)
        try:
            told += [line for event in self._watch.ready() if (line := self._line(event))]
        except store.Compacted:
            told.append(self._error("too old resource version: the watch has fallen behind"))
            self._watch = None
            return b"".join(told)
        if self._bookmark is not None and self._bookmark.remaining() <= 0:
            told.append(self._mark())
            self._bookmark = self._next_bookmark()
        return b"".join(told)

    def _next_bookmark(self) -> clocks.Deadline | None:
        if not self._wanted.bookmarks:
            return None
        # One comes shortly before the end, so that the next watch need not look at all of this again.
        left = self._deadline.remaining()
        return self._api.clock.deadline(min(_BOOKMARK_EVERY, left - 2) if left > 3 else left + 1)

    def _line(self, event: store.Event) -> bytes:
        """The event as this watch sees it: what enters or leaves its choice is added or deleted."""
        if event.entry.revision <= self._since:
            return b""
        if self._wanted.namespace and event.name[0] != self._wanted.namespace:
            return b""
        type_, entry = event.type, event.entry
        if self._matches is not selectors.everything:
            is_in = event.type != store.DELETED and self._matches(event.entry.object)
            was_in = event.before is not None and self._matches(event.before.object)
            if not is_in and not was_in:
                return b""
            type_ = store.DELETED if not is_in else store.MODIFIED if was_in else store.ADDED
            if type_ == store.DELETED and event.type != store.DELETED and event.before is not None:
                return self._left(event, event.before)
        return self._cached(event, type_, entry)

    def _left(self, event: store.Event, before: store.Entry) -> bytes:
        """An object that is not chosen any more is shown as it was when it still was."""
        gone = store.copied(before)
        gone["metadata"]["resourceVersion"] = str(event.entry.revision)
        return self._cached(event, "left", store.Entry(gone, store.encoded(gone), event.entry.revision))

    def _cached(self, event: store.Event, type_: str, entry: store.Entry) -> bytes:
        columns, self._columns_told = not self._columns_told, True
        key = (type_, self._kind.api_version, self._view, columns and self._view.form == views.TABLE)
        line = event.told.get(key)
        if line is None:
            line = event.told[key] = self._encoded(store.DELETED if type_ == "left" else type_, entry, columns)
        return line

    def _encoded(self, type_: str, entry: store.Entry, columns: bool) -> bytes:
        shown = views.one(self._view, self._kind, entry, self._api.clock.wall(), columns=columns)
        return _line(type_, shown)

    def _added(self, entry: store.Entry) -> bytes:
        columns, self._columns_told = not self._columns_told, True
        return self._encoded(store.ADDED, entry, columns)

    def _mark(self, *, initial_end: bool = False) -> bytes:
        meta: dict[str, object] = {"resourceVersion": str(self._api.store.revision), "creationTimestamp": None}
        if initial_end:
            meta["annotations"] = {_INITIAL_END: "true"}
        kind, version = self._kind.name, self._kind.api_version
        if self._view.form == views.PARTIAL:
            kind, version = views.PARTIAL, "meta.k8s.io/v1"
        mark: store.Object = {"kind": kind, "apiVersion": version, "metadata": meta}
        if self._view.form == views.TABLE:
            mark = {
                "kind": views.TABLE,
                "apiVersion": "meta.k8s.io/v1",
                "metadata": {"resourceVersion": meta["resourceVersion"]},
                "columnDefinitions": None,
                "rows": [{"cells": [], "object": mark}],
            }
        return _line(BOOKMARK, store.encoded(mark))

    def _error(self, message: str) -> bytes:
        return _line(ERROR, store.encoded(problem.expired(message).status()))


def _line(type_: str, shown: bytes) -> bytes:
    return b'{"type":"' + type_.encode() + b'","object":' + shown + b"}\n"


async def serve(request: web.Request, stream: Stream) -> web.StreamResponse:
    """Send the stream until it is over or the client is gone."""
    response = web.StreamResponse(headers={"Content-Type": "application/json", "Cache-Control": "no-cache, private"})
    response.enable_chunked_encoding()
    await response.prepare(request)
    while True:
        told = stream.lines()
        if told:
            await response.write(told)
        if stream.over:
            break
        await stream.wait()
    await response.write_eof()
    return response
