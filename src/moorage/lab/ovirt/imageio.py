"""The image daemon of a host: takes the bytes of disks, and gives them, to whoever shows a ticket in the URL.

It streams: a request's bytes go to the disk's sparse file piece by piece, an answer's come from there. Nothing else is
kept of them. On the host's port and on the proxy's it is the same daemon.
"""

from __future__ import annotations

import contextlib
import json
import re
from typing import TYPE_CHECKING, Any

from aiohttp import typedefs, web

from moorage.lab import calls
from moorage.lab import faults as ordered
from moorage.lab.ovirt import tickets

if TYPE_CHECKING:
    from moorage.lab.ovirt import engine as engines

SERVICE = "imageio"
HOST_PORT, PROXY_PORT = 54322, 54323

_PIECE = 256 * 1024
_READERS = 8
_RANGE = re.compile(r"bytes=(\d+)-(\d*)")
_CONTENT_RANGE = re.compile(r"bytes (\d+)-(?:\d+)/(?:\*|\d+)")
_READING, _WRITING = ["checksum", "extents"], ["checksum", "extents", "flush", "zero"]


def application(engine: engines.Engine) -> web.Application:
    """The daemon, for the tickets of an engine."""
    site = engine.site
    app = web.Application(
        middlewares=[
            calls.recording(site.calls, SERVICE),
            calls.naming,
            ordered.striking(site.faults, SERVICE),
            _refusing,
        ],
    )
    daemon = Daemon(tickets.of(engine))
    app.add_routes(
        [
            web.options("/images/{ticket}", daemon.options),
            web.get("/images/{ticket}", daemon.get, allow_head=False),
            web.put("/images/{ticket}", daemon.put),
            web.patch("/images/{ticket}", daemon.patch),
            web.get("/images/{ticket}/extents", daemon.extents, allow_head=False),
        ]
    )
    return app


@web.middleware
async def _refusing(request: web.Request, handler: typedefs.Handler) -> web.StreamResponse:
    try:
        return await handler(request)
    except tickets.NotAllowed as problem:
        why = f"You are not allowed to access this resource: {problem}\n"
        refused = web.Response(status=403, text=why)
        # The rest of what the client is sending will not be read.
        refused.force_close()
        return refused
    except tickets.LineCut:
        request[calls.DROPPED] = True
        if request.transport is not None:
            request.transport.abort()
        return web.Response(status=444)


def _refusal(why: str) -> web.HTTPException:
    return web.HTTPBadRequest(text=f"{why}\n")


def _unsatisfiable(why: str, available: int) -> web.HTTPException:
    return web.HTTPRequestRangeNotSatisfiable(text=f"{why}\n", headers={"Content-Range": f"bytes */{available}"})


class Daemon:
    """The handlers."""

    def __init__(self, known: tickets.Tickets) -> None:
        self._tickets = known

    async def options(self, request: web.Request) -> web.Response:
        """What can be done: with this image, or with any."""
        identity = request.match_info["ticket"]
        if identity == "*":
            return _options(["OPTIONS", "GET", "PUT", "PATCH"], {"features": _WRITING})
        ticket = self._tickets.admit(identity, tickets.READ)
        ticket.touch()
        writable = ticket.right == tickets.WRITE
        allowed = ["OPTIONS", "GET", *(["PUT", "PATCH"] if writable else [])]
        features = _WRITING if writable else _READING
        return _options(allowed, {"features": features, "max_readers": _READERS, "max_writers": _READERS})

    async def put(self, request: web.Request) -> web.Response:
        """Write the request's bytes."""
        if request.content_length is None:
            raise _refusal("Content-Length header is required")
        size, offset = request.content_length, _offset(request)
        if request.query.get("flush", "y") not in ("y", "n"):
            raise _refusal(f"Invalid value {request.query['flush']!r} for 'flush', expecting one of ('y', 'n')")
        ticket = self._tickets.admit(request.match_info["ticket"], tickets.WRITE)
        _check_allowed(offset, size, ticket)
        with ticket.used():
            await _receive(request, ticket, offset, size)
        return web.Response()

    async def get(self, request: web.Request) -> web.StreamResponse:
        """Send the image's bytes, or some of them."""
        offset, size = _asked(request)
        ticket = self._tickets.admit(request.match_info["ticket"], tickets.READ)
        if size is None:
            size = max(0, ticket.size - offset)
        _check_allowed(offset, size, ticket)
        headers = {"Content-Type": "application/octet-stream", "Content-Disposition": "attachment"}
        partial = "Range" in request.headers
        if partial:
            headers["Content-Range"] = f"bytes {offset}-{offset + size - 1}/{ticket.size}"
        response = web.StreamResponse(status=206 if partial else 200, headers=headers)
        response.content_length = size
        with ticket.used():
            await response.prepare(request)
            await _send(response, ticket, offset, size)
        await response.write_eof()
        return response

    async def patch(self, request: web.Request) -> web.Response:
        """Let bytes be zero, or make sure that all is written."""
        order = await _order(request)
        ticket = self._tickets.admit(request.match_info["ticket"], tickets.WRITE)
        with ticket.used():
            if order.get("op") == "zero":
                offset, size = _number(order, "offset", 0), _number(order, "size", None)
                _check_allowed(offset, size, ticket)
                ticket.content.zero(offset, size)
                ticket.moved(offset, offset + size)
        return web.Response()

    async def extents(self, request: web.Request) -> web.Response:
        """Which parts of the image are data."""
        if request.query.get("context", "zero") != "zero":
            raise web.HTTPNotFound(text="Dirty extents not available\n")
        ticket = self._tickets.admit(request.match_info["ticket"], tickets.READ)
        ticket.touch()
        found = ticket.content.extents(ticket.size)
        return web.json_response(
            [{"start": each.start, "length": each.length, "zero": each.zero, "hole": False} for each in found]
        )


def _options(allowed: list[str], content: dict[str, Any]) -> web.Response:
    return web.json_response(content, headers={"Allow": ",".join(allowed)})


async def _receive(request: web.Request, ticket: tickets.Ticket, offset: int, size: int) -> None:
    at = offset
    with contextlib.suppress(ConnectionError, web.RequestPayloadError):
        async for piece in request.content.iter_chunked(_PIECE):
            ticket.content.write(at, piece)
            ticket.moved(at, at + len(piece))
            at += len(piece)
    if at - offset != size:
        raise _refusal(f"Requested {size} bytes, available {at - offset} bytes")


async def _send(response: web.StreamResponse, ticket: tickets.Ticket, offset: int, size: int) -> None:
    for at in range(offset, offset + size, _PIECE):
        piece = ticket.content.read(at, min(_PIECE, offset + size - at))
        await response.write(piece)
        ticket.moved(at, at + len(piece))


def _offset(request: web.Request) -> int:
    header = request.headers.get("Content-Range")
    if header is None:
        return 0
    found = _CONTENT_RANGE.fullmatch(header.strip())
    if found is None:
        raise _refusal(f"Invalid Content-Range header: {header!r}")
    return int(found[1])


def _asked(request: web.Request) -> tuple[int, int | None]:
    header = request.headers.get("Range")
    if header is None:
        return 0, None
    found = _RANGE.fullmatch(header.strip())
    if found is None:
        raise web.HTTPRequestRangeNotSatisfiable(text="suffix-byte-range-spec not supported yet\n")
    first = int(found[1])
    if found[2] and int(found[2]) < first:
        raise _refusal(f"Invalid Range header: {header!r}")
    return first, int(found[2]) - first + 1 if found[2] else None


def _check_allowed(offset: int, size: int, ticket: tickets.Ticket) -> None:
    if offset + size > ticket.size:
        raise _unsatisfiable("Requested range out of allowed range", ticket.size)


async def _order(request: web.Request) -> dict[str, Any]:
    content = await request.read()
    try:
        found = json.loads(content)
    except ValueError as problem:
        raise _refusal(f"Invalid JSON message {problem}") from problem
    if not isinstance(found, dict) or found.get("op") not in ("zero", "flush"):
        raise _refusal("Invalid value for 'op', expecting one of ('zero', 'flush')")
    return found


def _number(order: dict[str, Any], name: str, default: int | None) -> int:
    value = order.get(name, default)
    if value is None:
        raise _refusal(f"Missing required value for {name!r}")
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise _refusal(f"Invalid value {value!r} for {name!r}: expecting a whole number, 0 or more")
    return value
