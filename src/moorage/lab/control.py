"""The lab's own controls over HTTP: how it fares, what was called, and orders to misbehave.

This is for people and tests who run the lab, not for what they test: it is guarded by the lab's key, and its calls are
neither recorded nor struck by faults.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from aiohttp import typedefs, web

from moorage import errors
from moorage.lab import faults, plain, sessions
from moorage.lab import site as sites
from moorage.lab.nodes import instance

if TYPE_CHECKING:
    from moorage.lab.ovirt import engine as engines

_BLOWS: dict[str, Callable[[instance.Instance], Awaitable[None]]] = {
    "kill": instance.Instance.power_off,
    "start": instance.Instance.power_on,
    "reboot": instance.Instance.reboot,
    "partition": instance.Instance.partition,
    "heal": instance.Instance.heal,
}


def application(
    site: sites.Site,
    key: str,
    tokens: sessions.Sessions,
    about: dict[str, Any],
    stop: Callable[[], None],
    ovirt: engines.Engine | None = None,
) -> web.Application:
    """The controls of a site, and of its oVirt engine if it has one. ``about`` is what the process knows of itself."""
    app = web.Application(middlewares=[_refusing, _guarding(key)])
    controls = Controls(site, tokens, about, stop, ovirt)
    blows = "|".join(_BLOWS)
    app.add_routes(
        [
            web.get("/lab", controls.status),
            web.post("/lab/stop", controls.stop),
            web.post("/lab/reset", controls.reset),
            web.get("/lab/calls", controls.calls),
            web.delete("/lab/calls", controls.forget_calls),
            web.get("/lab/faults", controls.faults),
            web.post("/lab/faults", controls.add_fault),
            web.delete("/lab/faults", controls.clear_faults),
            web.delete(r"/lab/faults/{number:\d+}", controls.remove_fault),
            web.get("/lab/quotas", controls.quotas),
            web.put("/lab/quotas", controls.set_quotas),
            web.post("/lab/tokens/expire", controls.expire_tokens),
            web.post(f"/lab/machines/{{name}}/{{blow:{blows}}}", controls.strike),
            web.get("/lab/machines/{name}/console", controls.console),
            web.get("/lab/kubeconfig", controls.kubeconfig),
        ]
    )
    if ovirt is not None:
        from moorage.lab.ovirt import controls as ovirt_controls

        app.add_routes(ovirt_controls.routes(ovirt))
    return app


@web.middleware
async def _refusing(request: web.Request, handler: typedefs.Handler) -> web.StreamResponse:
    try:
        return await handler(request)
    except errors.MoorageError as problem:
        raise plain.refusal(422, problem.message, problem.remedy) from problem


def _guarding(key: str) -> typedefs.Middleware:
    @web.middleware
    async def guard(request: web.Request, handler: typedefs.Handler) -> web.StreamResponse:
        if not sessions.same(request.headers.get("Authorization", "").removeprefix("Bearer "), key):
            raise plain.refusal(401, "the lab's key is wrong", "it is in lab.json, in the lab's own folder")
        return await handler(request)

    return guard


class Controls:
    """The handlers."""

    def __init__(
        self,
        site: sites.Site,
        tokens: sessions.Sessions,
        about: dict[str, Any],
        stop: Callable[[], None],
        ovirt: engines.Engine | None,
    ) -> None:
        self._site = site
        self._tokens = tokens
        self._about = about
        self._stop = stop
        self._ovirt = ovirt

    async def status(self, request: web.Request) -> web.Response:
        site = self._site
        return web.json_response(
            {
                **self._about,
                "time": site.clock.wall().isoformat(timespec="seconds"),
                "seconds": round(site.clock.now(), 1),
                "machines": [each.to_json() for each in site.instances.values()],
                "clusters": [found.to_json() for found in site.clusters.values()],
                "records": len(site.zones.records()),
                "calls": site.calls.total,
                "faults": len(site.faults.to_json()),
                "quotas": site.quotas.limits,
            }
        )

    async def stop(self, request: web.Request) -> web.Response:
        self._stop()
        return web.json_response({})

    async def reset(self, request: web.Request) -> web.Response:
        """Back to an empty datacentre; only the calls recorded so far are kept, if asked for."""
        if self._ovirt is not None:
            await self._ovirt.clear()
        await request.app[plain.PROVIDER].clear()
        if request.query.get("calls") != "keep":
            self._site.calls.clear()
        return web.json_response({})

    async def calls(self, request: web.Request) -> web.Response:
        query = request.query
        try:
            after = int(query.get("after", "0"))
        except ValueError as problem:
            raise plain.refusal(400, f"after: {problem}") from problem
        found = self._site.calls.calls(
            service=query.get("service", "*"), method=query.get("method", "*"), path=query.get("path", "*"), after=after
        )
        return web.json_response([call.to_json() for call in found])

    async def forget_calls(self, request: web.Request) -> web.Response:
        self._site.calls.clear()
        return web.json_response({})

    async def faults(self, request: web.Request) -> web.Response:
        return web.json_response(self._site.faults.to_json())

    async def add_fault(self, request: web.Request) -> web.Response:
        rule = faults.from_json(await plain.document(request))
        return web.json_response({"number": self._site.faults.add(rule)})

    async def remove_fault(self, request: web.Request) -> web.Response:
        if not self._site.faults.remove(int(request.match_info["number"])):
            raise plain.refusal(
                404, f"there is no fault rule {request.match_info['number']}", "see: moorage lab faults"
            )
        return web.json_response({})

    async def clear_faults(self, request: web.Request) -> web.Response:
        self._site.faults.clear()
        return web.json_response({})

    async def quotas(self, request: web.Request) -> web.Response:
        return web.json_response(self._site.quotas.limits)

    async def set_quotas(self, request: web.Request) -> web.Response:
        limits = await plain.document(request)
        if not isinstance(limits, dict):
            raise plain.refusal(400, "quotas are an object of names and numbers")
        self._site.quotas.set(limits)
        return web.json_response(self._site.quotas.limits)

    async def expire_tokens(self, request: web.Request) -> web.Response:
        logged_in = 0 if self._ovirt is None else self._ovirt.sessions.clear()
        return web.json_response({"expired": self._tokens.expire() + logged_in})

    async def strike(self, request: web.Request) -> web.Response:
        found = self._machine(request)
        await _BLOWS[request.match_info["blow"]](found)
        return web.json_response(found.to_json())

    async def console(self, request: web.Request) -> web.Response:
        return web.Response(text="".join(f"{line}\n" for line in self._machine(request).console))

    async def kubeconfig(self, request: web.Request) -> web.Response:
        """An administrator's kubeconfig that leads to the API by address, for programs that know no lab names."""
        name, clusters = request.query.get("cluster", ""), self._site.clusters
        if not clusters:
            raise plain.refusal(404, "there is no cluster in the lab", "run: moorage demo")
        if not name and len(clusters) > 1:
            raise plain.refusal(422, "there are several clusters", f"name one of {', '.join(sorted(clusters))}")
        found = clusters.get(name or next(iter(clusters)))
        if found is None:
            raise plain.refusal(404, f"there is no cluster {name}", f"there are {', '.join(sorted(clusters))}")
        try:
            return web.Response(text=await found.kubeconfig())
        except OSError as problem:
            raise plain.refusal(422, f"the API's name leads nowhere: {problem}", "write its record first") from problem

    def _machine(self, request: web.Request) -> instance.Instance:
        found = self._site.instances.get(request.match_info["name"])
        if found is None:
            known = ", ".join(sorted(self._site.instances)) or "none"
            raise plain.refusal(404, f"there is no machine {request.match_info['name']}", f"machines: {known}")
        return found
