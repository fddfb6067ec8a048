"""The engine's single sign-on: a password buys a token, which lasts while it is used and half an hour longer.

Errors are JSON (``error_code``, ``error``) with status 400, whatever is wrong; the API itself answers a token that it
does not know with 401 and a page of HTML.
"""

from __future__ import annotations

import base64
import binascii
import dataclasses
import secrets
from typing import TYPE_CHECKING

from aiohttp import web

from moorage.engine import clock as clocks
from moorage.lab import calls, sessions

if TYPE_CHECKING:
    from moorage.lab.ovirt import engine as engines

IDLE_SECONDS = 30 * 60.0
PROFILE = "internal"
_SCOPE = "ovirt-app-api"


@dataclasses.dataclass
class _Session:
    user: str
    used: float


class Sessions:
    """Who is logged in. ``passwords`` are by user, as in `admin@internal`."""

    def __init__(self, clock: clocks.Clock) -> None:
        self.passwords: dict[str, str] = {}
        self._clock = clock
        self._open: dict[str, _Session] = {}

    def check(self, user: str, password: str) -> bool:
        known = self.passwords.get(user)
        return known is not None and sessions.same(password, known)

    def open(self, user: str) -> str:
        """A new token for a user."""
        self._forget_idle()
        token = secrets.token_urlsafe(64)
        self._open[token] = _Session(user, self._clock.now())
        return token

    def user(self, token: str) -> str:
        """Whose token it is, which is thereby used; nobody's if it is unknown or was idle too long."""
        self._forget_idle()
        found = self._open.get(token)
        if found is None:
            return ""
        found.used = self._clock.now()
        return found.user

    def close(self, token: str) -> None:
        self._open.pop(token, None)

    def clear(self) -> int:
        """Log everybody out; how many there were."""
        count = len(self._open)
        self._open.clear()
        return count

    def _forget_idle(self) -> None:
        oldest = self._clock.now() - IDLE_SECONDS
        self._open = {token: each for token, each in self._open.items() if each.used > oldest}


def routes(engine: engines.Engine) -> list[web.AbstractRouteDef]:
    """The services of the sign-on; their paths are whole, for they are not below the API."""

    async def token(request: web.Request) -> web.Response:
        asked = await _parameters(request)
        for name in ("grant_type", "username", "password"):
            if name not in asked:
                return _error("invalid_request", f"Missing parameter: '{name}'")
            if name == "grant_type" and asked[name] != "password":
                return _error("unsupported_grant_type", "The authorization grant type is not supported.")
        if request.headers.get("Accept") != "application/json":
            return _error("invalid_request", "Missing parameter: 'Accept Header'")
        if _SCOPE not in asked.get("scope", "").split():
            wrong = asked.get("scope", "")
            return _error("invalid_scope", f"The requested scope '{wrong}' is invalid, unknown, or malformed.")
        user, why = asked["username"], _unwelcome(engine.sessions, asked["username"], asked["password"])
        if why:
            name, _, profile = user.rpartition("@") if "@" in user else (user, "", "")
            # The engine's sentences end with a full stop, and so does the one around them.
            return _error("access_denied", f"Cannot authenticate user '{name}@{profile or 'N/A'}': {why}.")
        request[calls.WHO] = user
        found = engine.sessions.open(user)
        return web.json_response(
            {"access_token": found, "scope": _SCOPE, "exp": "9223372036854775807", "token_type": "bearer"}
        )

    async def revoke(request: web.Request) -> web.Response:
        asked = await _parameters(request)
        if "token" not in asked:
            return _error("invalid_request", "Missing parameter: 'token'")
        engine.sessions.close(asked["token"])
        return web.json_response({})

    return [
        web.post("/ovirt-engine/sso/oauth/token", token),
        web.post("/ovirt-engine/sso/oauth/revoke", revoke),
        web.post("/ovirt-engine/services/sso-logout", revoke),
    ]


def _unwelcome(known: Sessions, user: str, password: str) -> str:
    name, _, profile = user.rpartition("@") if "@" in user else (user, "", "")
    if not name:
        return "No user name found in credentials."
    if profile != PROFILE:
        return "No valid profile found in credentials."
    return "" if known.check(user, password) else "The user name or password is incorrect."


async def _parameters(request: web.Request) -> dict[str, str]:
    form = {name: value for name, value in (await request.post()).items() if isinstance(value, str)}
    return {**request.query, **form}


def _error(code: str, words: str) -> web.Response:
    return web.json_response({"error_code": code, "error": words}, status=400)


def authenticated(engine: engines.Engine, request: web.Request) -> str:
    """Who asks: by a token, or by a name and a password in every call."""
    kind, _, value = request.headers.get("Authorization", "").partition(" ")
    if kind.lower() == "bearer":
        return engine.sessions.user(value)
    if kind.lower() == "basic":
        try:
            user, _, password = base64.b64decode(value, validate=True).decode().partition(":")
        except (binascii.Error, UnicodeDecodeError):
            return ""
        return user if engine.sessions.check(user, password) else ""
    return ""


def unauthorized() -> web.Response:
    """What a caller without a valid token is told."""
    reply = web.Response(
        status=401,
        text="<html><head><title>Error</title></head><body>Unauthorized</body></html>",
        content_type="text/html",
    )
    reply.headers.add("WWW-Authenticate", 'Basic realm="RESTAPI"')
    reply.headers.add("WWW-Authenticate", 'Bearer realm="RESTAPI"')
    return reply
