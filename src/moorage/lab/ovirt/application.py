"""The engine's HTTP: every module's routes under one API, and what happens to all calls alike.

From the outside in: a call is recorded, struck by faults on order, turned away by Apache while the engine restarts,
asked for its token and its permit, delayed as a real engine would, and answered in XML; the collections of the API's
first level are searched and cut into pages, and links are followed, on what the handlers returned.
"""

from __future__ import annotations

import itertools
import logging

from aiohttp import typedefs, web

from moorage import errors, lab
from moorage.lab import calls
from moorage.lab import faults as orders
from moorage.lab.ovirt import (
    affinity,
    attachments,
    disks,
    documents,
    events,
    faults,
    following,
    infrastructure,
    inventory,
    jobs,
    links,
    nics,
    permissions,
    searching,
    sso,
    tags,
    templates,
    timing,
    transfers,
    vm_life,
    vms,
)
from moorage.lab.ovirt import engine as engines

SERVICE = "ovirt"
_MOST_BYTES = 32 * 1024 * 1024
_MODULES = (
    affinity,
    attachments,
    disks,
    events,
    infrastructure,
    jobs,
    nics,
    permissions,
    tags,
    templates,
    transfers,
    vm_life,
    vms,
)
_APACHE = """<!DOCTYPE HTML PUBLIC "-//IETF//DTD HTML 2.0//EN">
<html><head>
<title>503 Service Unavailable</title>
</head><body>
<h1>Service Unavailable</h1>
<p>The server is temporarily unable to service your
request due to maintenance downtime or capacity
problems. Please try again later.</p>
</body></html>
"""

_log = logging.getLogger(__name__)


def application(engine: engines.Engine) -> web.Application:
    """The engine's whole HTTP."""
    app = web.Application(
        middlewares=[
            calls.recording(engine.site.calls, SERVICE),
            calls.naming,
            _restarting(engine),
            orders.striking(engine.site.faults, SERVICE),
            _authenticating(engine),
            _answering(engine),
        ],
        client_max_size=_MOST_BYTES,
    )
    app.add_routes(sso.routes(engine))
    app.add_routes(_services(engine))
    for module in _MODULES:
        app.add_routes(_below_api(module.routes(engine)))
    return app


def _below_api(routes: list[web.AbstractRouteDef]) -> list[web.AbstractRouteDef]:
    moved: list[web.AbstractRouteDef] = []
    for route in routes:
        if not isinstance(route, web.RouteDef):
            raise TypeError(f"{route} is no route that can be moved below the API")
        moved.append(web.RouteDef(route.method, f"{links.API}{route.path}", route.handler, route.kwargs))
    return moved


def _services(engine: engines.Engine) -> list[web.AbstractRouteDef]:
    """What the engine offers beside its API, to everybody."""

    async def authority(request: web.Request) -> web.Response:
        asked = (request.query.get("resource", ""), request.query.get("format", "X509-PEM-CA"))
        if asked != ("ca-certificate", "X509-PEM-CA"):
            raise web.HTTPNotFound
        return web.Response(text=engine.ca_pem, content_type="application/x-x509-ca-cert")

    async def health(request: web.Request) -> web.Response:
        return web.Response(text="DB Up!Welcome to Health Status!")

    return [
        web.get("/ovirt-engine/services/pki-resource", authority),
        web.get("/ovirt-engine/services/health", health),
    ]


def _restarting(engine: engines.Engine) -> typedefs.Middleware:
    @web.middleware
    async def turn_away(request: web.Request, handler: typedefs.Handler) -> web.StreamResponse:
        if engine.down:
            return web.Response(status=503, text=_APACHE, content_type="text/html")
        engine.answering[id(request)] = request
        try:
            return await handler(request)
        finally:
            engine.answering.pop(id(request), None)

    return turn_away


def _authenticating(engine: engines.Engine) -> typedefs.Middleware:
    @web.middleware
    async def authenticate(request: web.Request, handler: typedefs.Handler) -> web.StreamResponse:
        if not request.path.startswith(links.API):
            return await handler(request)
        user = sso.authenticated(engine, request)
        if not user:
            return sso.unauthorized()
        request[calls.WHO] = request[permissions.USER] = user
        return await handler(request)

    return authenticate


def _answering(engine: engines.Engine) -> typedefs.Middleware:
    numbers = itertools.count()

    @web.middleware
    async def answer(request: web.Request, handler: typedefs.Handler) -> web.StreamResponse:
        if not request.path.startswith(links.API):
            return await handler(request)
        await lab.sleep(engine.clock, timing.drawn(timing.ANSWER, next(numbers)))
        try:
            reply = await _handled(engine, request, handler)
        except web.HTTPException as known:
            allowed = {"Allow": known.headers["Allow"]} if "Allow" in known.headers else {}
            return web.Response(status=known.status, headers=allowed)
        except faults.Fault as wrong:
            reply = documents.fault(wrong, within_action=await _is_action(request))
            reply.finish(reply.content)
        except errors.MoorageError as wrong:
            reply = documents.fault(faults.broken(f"[{wrong.message}]", writing=request.method != "GET"))
            reply.finish(reply.content)
        except Exception:  # noqa: BLE001 - as a real engine: the details are in its log
            _log.exception("%s %s", request.method, request.path_qs)
            reply = documents.fault(faults.broken("[Internal Engine Error]", writing=request.method != "GET"))
            reply.finish(reply.content)
        return reply

    return answer


async def _handled(engine: engines.Engine, request: web.Request, handler: typedefs.Handler) -> web.StreamResponse:
    _negotiate(request)
    engine.permissions.check(request[permissions.USER], request.method, request.path.removeprefix(links.API) or "/")
    if request.method != "GET":
        if any(rule["action"] == orders.STALE_READ for rule in engine.site.faults.to_json()):
            engine.inventory.remember()
        return await _written(engine, request, handler)
    if request.get(orders.STALE):
        with inventory.in_the_past():
            return await _written(engine, request, handler)
    return await _written(engine, request, handler)


async def _written(engine: engines.Engine, request: web.Request, handler: typedefs.Handler) -> web.StreamResponse:
    reply = await handler(request)
    if not isinstance(reply, documents.Reply):
        return reply
    content = reply.content
    if isinstance(content, list):
        content = [reply.shown(each) for each in searching.searched(engine, request, content)]
    if content is not None and "follow" in request.query:
        content = await following.followed(
            request, links.singular(reply.tag) if isinstance(content, list) else reply.tag, content
        )
    reply.finish(content)
    return reply


def _negotiate(request: web.Request) -> None:
    """The engine would speak JSON too; this one speaks XML, and says so in HTTP's words."""
    written = request.body_exists and request.method in ("POST", "PUT")
    if written and request.content_type not in ("application/xml", "text/xml"):
        raise web.HTTPUnsupportedMediaType
    accepted = request.headers.get("Accept", "*/*")
    kinds = {each.split(";")[0].strip() for each in accepted.split(",")}
    if not kinds & {"*/*", "application/*", "application/xml", "text/xml"}:
        raise web.HTTPNotAcceptable


async def _is_action(request: web.Request) -> bool:
    if request.method != "POST" or not request.body_exists:
        return False
    content = await request.read()
    try:
        return documents.parsed(content)[0] == "action"
    except faults.Fault:
        return False
