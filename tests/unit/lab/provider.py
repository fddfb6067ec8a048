"""A site with its plain provider and its controls on real sockets, for stories about both."""

from __future__ import annotations

import asyncio
import base64
import dataclasses
import http.client
import json
import urllib.parse
from collections.abc import Awaitable, Callable
from typing import Any

from aiohttp import web

from moorage.engine import clock as clocks
from moorage.lab import control, plain, sessions
from moorage.lab import site as sites

KEY = "the-labs-own-key"
IDLE = json.dumps({"ignition": {"version": "3.4.0"}}).encode()
# What a client sees when the connection ends without a reply.
NOTHING = 0


def machine(user_data: bytes = IDLE, **more: object) -> dict[str, object]:
    return {"userData": base64.b64encode(user_data).decode(), **more}


@dataclasses.dataclass
class World:
    """``ask`` calls the provider with a token, ``order`` the controls with the key."""

    site: sites.Site
    tokens: sessions.Sessions
    stopped: list[bool]
    _provider_url: str
    _control_url: str
    token: str = ""

    async def open(self) -> str:
        status, answer = await self.call(self._provider_url, "POST", "/v1/tokens", {"key": KEY})
        assert status == 200, answer
        self.token = answer["token"]
        return self.token

    async def ask(self, method: str, path: str, body: object = None) -> tuple[int, Any]:
        return await self.call(self._provider_url, method, path, body, self.token or await self.open())

    async def order(self, method: str, path: str, body: object = None, key: str = KEY) -> tuple[int, Any]:
        return await self.call(self._control_url, method, path, body, key)

    async def done(self, method: str, path: str, body: object = None) -> Any:
        """What the provider answers to what must not fail."""
        status, answer = await self.ask(method, path, body)
        assert status == 200, answer
        return answer

    async def provider(self, method: str, path: str, body: object = None, token: str = "") -> tuple[int, Any]:
        return await self.call(self._provider_url, method, path, body, token)

    async def call(self, url: str, method: str, path: str, body: object, token: str = "") -> tuple[int, Any]:
        """One call on a connection of its own; text bodies go as they are."""
        headers = {"User-Agent": "a-test", "Content-Type": "application/json"}
        if token:
            headers["Authorization"] = f"Bearer {token}"
        data = body if isinstance(body, str | bytes) or body is None else json.dumps(body)
        return await asyncio.to_thread(_called, url, method, path, data, headers)


def _called(url: str, method: str, path: str, data: str | bytes | None, headers: dict[str, str]) -> tuple[int, Any]:
    # Not aiohttp's client: that one asks again behind our back when the connection is cut.
    at = urllib.parse.urlsplit(url)
    connection = http.client.HTTPConnection(str(at.hostname), at.port, timeout=20)
    try:
        connection.request(method, path, data.encode() if isinstance(data, str) else data, headers)
        reply = connection.getresponse()
        text = reply.read().decode()
    except (http.client.RemoteDisconnected, ConnectionResetError):
        return NOTHING, None
    finally:
        connection.close()
    return reply.status, json.loads(text) if reply.headers.get_content_type() == "application/json" else text


def story(tell: Callable[[World], Awaitable[None]], speed: float = 1000.0, session_seconds: float = 10**6) -> None:
    async def told() -> None:
        site = sites.Site(clocks.Clock(speed))
        await site.start()
        tokens = sessions.Sessions(site.clock, KEY, session_seconds)
        stopped: list[bool] = []
        provider = plain.application(site, tokens)
        controls = control.application(site, KEY, tokens, {"version": "0"}, lambda: stopped.append(True))
        controls[plain.PROVIDER] = provider[plain.PROVIDER]
        runners = [web.AppRunner(app, shutdown_timeout=0.1) for app in (provider, controls)]
        try:
            urls = []
            for runner in runners:
                await runner.setup()
                await web.TCPSite(runner, "127.0.0.1", 0).start()
                urls.append(f"http://127.0.0.1:{runner.addresses[0][1]}")
            async with asyncio.timeout(20):
                await tell(World(site, tokens, stopped, *urls))
        finally:
            for runner in runners:
                await runner.cleanup()
            await site.stop()

    asyncio.run(told())
