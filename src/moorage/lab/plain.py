"""The plain provider: machines, networks, names and balancers for those who bring their own, by a small REST API.

It is to the lab what a rack, a DNS zone and a load balancer are to a user of ``platform: none``. Every call wants a
token (``POST /v1/tokens`` with the lab's key), is recorded, and can be made to fail like those of any other provider;
a stale read sees machines, names and balancers as they were before the last change of one of them. Names are the
caller's: making the same thing twice changes nothing, making another machine of the same name is a conflict.
"""

from __future__ import annotations

import base64
import contextlib
import json
import re
from collections.abc import Awaitable, Callable, Iterator, Set
from typing import Any

from aiohttp import typedefs, web

from moorage import errors
from moorage.lab import calls, faults, names, past, plain_balancers, sessions
from moorage.lab import site as sites
from moorage.lab.nodes import instance

SERVICE = "plain"
PROVIDER: web.AppKey[Provider] = web.AppKey("provider")
_MOST_BYTES = 16 * 1024 * 1024
_PAGE = 100
_NAME = re.compile(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?")
_POWER: dict[str, Callable[[instance.Instance], Awaitable[None]]] = {
    "on": instance.Instance.power_on,
    "off": instance.Instance.power_off,
    "reboot": instance.Instance.reboot,
}


def application(site: sites.Site, tokens: sessions.Sessions) -> web.Application:
    """The API over a site."""
    middlewares = [calls.recording(site.calls, SERVICE), calls.naming, faults.striking(site.faults, SERVICE), _refusing]
    app = web.Application(middlewares=[*middlewares, _authenticating(tokens)], client_max_size=_MOST_BYTES)
    provider = app[PROVIDER] = Provider(site, tokens)
    app.add_routes(
        [
            web.post("/v1/tokens", provider.open_session),
            web.get("/v1/networks", provider.networks),
            web.put("/v1/networks/{name}", provider.put_network),
            web.delete("/v1/networks/{name}", provider.delete_network),
            web.get("/v1/machines", provider.machines),
            web.put("/v1/machines/{name}", provider.put_machine),
            web.get("/v1/machines/{name}", provider.machine),
            web.delete("/v1/machines/{name}", provider.delete_machine),
            web.get("/v1/machines/{name}/console", provider.console),
            web.post("/v1/machines/{name}/{power:on|off|reboot}", provider.power),
            web.put("/v1/zones/{zone}", provider.put_zone),
            web.delete("/v1/zones/{zone}", provider.delete_zone),
            web.get("/v1/records", provider.records),
            web.put("/v1/records/{name}/{kind}", provider.put_record),
            web.delete("/v1/records/{name}/{kind}", provider.delete_record),
            web.get("/v1/balancers", provider.balancers),
            web.put("/v1/balancers/{name}", provider.put_balancer),
            web.delete("/v1/balancers/{name}", provider.delete_balancer),
        ]
    )
    return app


def refusal(status: int, message: str, remedy: str = "") -> web.HTTPException:
    """An answer that says why not."""
    kinds: dict[int, type[web.HTTPException]] = {
        400: web.HTTPBadRequest,
        401: web.HTTPUnauthorized,
        403: web.HTTPForbidden,
        404: web.HTTPNotFound,
        409: web.HTTPConflict,
        422: web.HTTPUnprocessableEntity,
    }
    content = {"error": message, **({"remedy": remedy} if remedy else {})}
    return kinds[status](text=json.dumps(content), content_type="application/json")


@web.middleware
async def _refusing(request: web.Request, handler: typedefs.Handler) -> web.StreamResponse:
    """What the parts of the site refuse becomes a 422 with their words."""
    try:
        return await handler(request)
    except errors.MoorageError as problem:
        raise refusal(422, problem.message, problem.remedy) from problem


def _authenticating(tokens: sessions.Sessions) -> typedefs.Middleware:
    @web.middleware
    async def authenticate(request: web.Request, handler: typedefs.Handler) -> web.StreamResponse:
        if request.path != "/v1/tokens":
            kind, _, token = request.headers.get("Authorization", "").partition(" ")
            if kind != "Bearer" or not tokens.valid(token):
                raise refusal(401, "the token is unknown or has run out", "get a new one: POST /v1/tokens")
        return await handler(request)

    return authenticate


async def document(request: web.Request) -> Any:
    """The JSON value in a request's body."""
    try:
        return await request.json()
    except (ValueError, LookupError, RecursionError) as problem:
        raise refusal(400, f"the body is not JSON: {problem}") from problem


async def body(request: web.Request, allowed: Set[str], required: Set[str] = frozenset()) -> dict[str, Any]:
    """The request's JSON object, if it has nothing but what is known."""
    found = await document(request)
    if not isinstance(found, dict):
        raise refusal(400, "the body is not a JSON object")
    wrong = [f"unknown field {name!r}" for name in sorted(set(found) - allowed)]
    wrong += [f"field {name!r} is missing" for name in sorted(required - set(found))]
    if wrong:
        raise refusal(422, "; ".join(wrong), f"fields: {', '.join(sorted(allowed))}")
    return found


class Provider:
    """The handlers; the state is the site's."""

    def __init__(self, site: sites.Site, tokens: sessions.Sessions) -> None:
        self._site = site
        self._tokens = tokens
        self._balancers = plain_balancers.Balancers(site)
        self._past_machines, self._past_records, self._past_balancers = past.Past(), past.Past(), past.Past()

    async def clear(self) -> None:
        """Empty the site, and forget what was on it."""
        async with self._balancers.changing:
            await self._site.clear()
            self._balancers.forget()
        for each in (self._past_machines, self._past_records, self._past_balancers):
            each.forget()

    async def open_session(self, request: web.Request) -> web.Response:
        asked = await body(request, {"key"}, {"key"})
        token = self._tokens.open(_text(asked, "key"))
        if token is None:
            raise refusal(401, "the key is wrong", "it is in lab.json, in the lab's own folder")
        return web.json_response({"token": token, "seconds": self._tokens.seconds})

    async def networks(self, request: web.Request) -> web.Response:
        return web.json_response([{"name": k, "cidr": str(v)} for k, v in self._site.networks.items()])

    async def put_network(self, request: web.Request) -> web.Response:
        name = _named(request)
        return web.json_response({"name": name, "cidr": str(self._site.add_network(name))})

    async def delete_network(self, request: web.Request) -> web.Response:
        self._site.remove_network(request.match_info["name"])
        return web.json_response({})

    async def machines(self, request: web.Request) -> web.Response:
        """A page of machines in order of their names; ``after`` is the last name of the page before."""
        limit, after = _limit(request), request.query.get("after", "")
        there: dict[str, Any] = dict(self._site.instances)
        if request.get(faults.STALE):
            there = self._past_machines.over(there)
        found = sorted(name for name in there if name > after)
        items = [_shown(there[name]) for name in found[:limit]]
        more = {"after": found[limit - 1]} if len(found) > limit else {}
        return web.json_response({"items": items, **more})

    async def machine(self, request: web.Request) -> web.Response:
        name = request.match_info["name"]
        there: dict[str, Any] = {name: self._site.instances.get(name)}
        if request.get(faults.STALE):
            there |= {name: self._past_machines.over(there).get(name)}
        if there[name] is None:
            raise refusal(404, f"there is no machine {name}")
        return web.json_response(_shown(there[name]))

    async def put_machine(self, request: web.Request) -> web.Response:
        """Make a machine and switch it on, unless ``power`` says off. One that is there already is left alone."""
        name = _named(request)
        asked = await body(request, {"userData", "network", "address", "power"}, {"userData"})
        user_data, power = _decoded(_text(asked, "userData")), _text(asked, "power", "on")
        network, address = _text(asked, "network"), _text(asked, "address")
        if power not in ("on", "off"):
            raise refusal(422, f"power is on or off, not {power!r}")
        found = self._site.instances.get(name)
        if found is None:
            if why := self._site.quotas.exceeded("machines", len(self._site.instances)):
                raise refusal(403, why)
            network = network or sites.DEFAULT_NETWORK
            found = instance.Instance(self._site, name, user_data, address, network_name=network)
            if power == "on":
                await found.power_on()
            self._past_machines.note({name: None}, {name: found.to_json()})
        elif (
            found.user_data != user_data
            or (address or found.address) != found.address
            or (network or found.network_name) != found.network_name
        ):
            raise refusal(409, f"there is another machine called {name}", "choose another name, or delete it first")
        return web.json_response(found.to_json())

    async def delete_machine(self, request: web.Request) -> web.Response:
        name = request.match_info["name"]
        found = self._site.instances.get(name)
        if found is not None:
            before = found.to_json()
            await found.delete()
            self._past_machines.note({name: before}, {name: None})
        return web.json_response({})

    async def power(self, request: web.Request) -> web.Response:
        found = self._machine(request)
        before = found.to_json()
        await _POWER[request.match_info["power"]](found)
        self._past_machines.note({found.name: before}, {found.name: found.to_json()})
        return web.json_response(found.to_json())

    async def console(self, request: web.Request) -> web.Response:
        return web.Response(text="".join(f"{line}\n" for line in self._machine(request).console))

    async def put_zone(self, request: web.Request) -> web.Response:
        self._site.zones.hold(request.match_info["zone"])
        return web.json_response({"zone": request.match_info["zone"]})

    async def delete_zone(self, request: web.Request) -> web.Response:
        with self._changing_records():
            self._site.zones.release(request.match_info["zone"])
        return web.json_response({})

    async def records(self, request: web.Request) -> web.Response:
        found = self._records()
        if request.get(faults.STALE):
            found = self._past_records.over(found)
        return web.json_response([found[each] for each in sorted(found)])

    async def put_record(self, request: web.Request) -> web.Response:
        """Write a record set in place of the one that was there, if any."""
        asked = await body(request, {"values", "ttl"}, {"values"})
        values, ttl = asked["values"], asked.get("ttl", names.DEFAULT_TTL)
        if not isinstance(values, list) or not all(isinstance(value, str) for value in values):
            raise refusal(422, "values is a list of texts")
        if not isinstance(ttl, int) or isinstance(ttl, bool):
            raise refusal(422, "ttl is a whole number")
        wanted = names.RecordSet(request.match_info["name"], request.match_info["kind"], tuple(values), ttl)
        there = self._records()
        if _key(wanted) not in there and (why := self._site.quotas.exceeded("records", len(there))):
            raise refusal(403, why)
        with self._changing_records():
            self._site.zones.put(wanted)
        return web.json_response(_record(wanted))

    async def delete_record(self, request: web.Request) -> web.Response:
        with self._changing_records():
            self._site.zones.take(request.match_info["name"], request.match_info["kind"])
        return web.json_response({})

    async def balancers(self, request: web.Request) -> web.Response:
        found = self._balancers.shown()
        if request.get(faults.STALE):
            found = self._past_balancers.over(found)
        return web.json_response([found[name] for name in sorted(found)])

    async def put_balancer(self, request: web.Request) -> web.Response:
        """Make a balancer, or bring its listeners and members to what is asked."""
        name = _named(request)
        asked = await body(request, {"address", "listeners"}, {"listeners"})
        address, wanted = _text(asked, "address"), plain_balancers.parsed(asked["listeners"])
        async with self._balancers.changing:
            known = self._balancers.address(name)
            if known and address not in ("", known):
                raise refusal(409, f"balancer {name} has another address: {known}")
            if not known and (why := self._site.quotas.exceeded("balancers", len(self._balancers))):
                raise refusal(403, why)
            before = self._balancers.shown()
            await self._balancers.put(name, address, wanted)
            after = self._balancers.shown()
        self._past_balancers.note(before, after)
        return web.json_response(after[name])

    async def delete_balancer(self, request: web.Request) -> web.Response:
        async with self._balancers.changing:
            before = self._balancers.shown()
            await self._balancers.remove(request.match_info["name"])
            self._past_balancers.note(before, self._balancers.shown())
        return web.json_response({})

    def _records(self) -> dict[str, Any]:
        return {_key(each): _record(each) for each in self._site.zones.records()}

    @contextlib.contextmanager
    def _changing_records(self) -> Iterator[None]:
        before = self._records()
        yield
        self._past_records.note(before, self._records())

    def _machine(self, request: web.Request) -> instance.Instance:
        found = self._site.instances.get(request.match_info["name"])
        if found is None:
            raise refusal(404, f"there is no machine {request.match_info['name']}")
        return found


def _named(request: web.Request) -> str:
    name = request.match_info["name"]
    if not _NAME.fullmatch(name):
        raise refusal(422, f"{name!r} is no name", "use lower-case letters, digits, '-' and '.'")
    return name


def _limit(request: web.Request) -> int:
    text = request.query.get("limit", str(_PAGE))
    if not (text.isascii() and text.isdigit() and int(text[:9]) > 0):
        raise refusal(400, f"limit: {text[:20]!r} is not a whole number above 0")
    return min(int(text[:9]), _PAGE)


def _text(asked: dict[str, Any], name: str, default: str = "") -> str:
    found = asked.get(name, default)
    if not isinstance(found, str):
        raise refusal(422, f"{name} is a text")
    return found


def _decoded(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except ValueError as problem:
        raise refusal(422, f"userData is not base64: {problem}") from problem


def _shown(machine: instance.Instance | dict[str, Any]) -> dict[str, Any]:
    return machine if isinstance(machine, dict) else machine.to_json()


def _key(record: names.RecordSet) -> str:
    return f"{record.name.removesuffix('.').lower()} {record.kind}"


def _record(record: names.RecordSet) -> dict[str, Any]:
    return {"name": record.name, "kind": record.kind, "values": list(record.values), "ttl": record.ttl}
