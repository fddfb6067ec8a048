"""What was asked of the lab's APIs: every call is recorded with who made it, what came of it and the cloud's time.

`recording` is the outermost middleware of an API, so that it sees what the client saw, the work of `faults` included.
A handler that knows its caller says so in ``request[calls.WHO]``; until then a caller is known by its address. What a
program says it is (``User-Agent``) is kept beside that: many programs may use one account.
"""

from __future__ import annotations

import collections
import dataclasses
import datetime
import fnmatch

from aiohttp import typedefs, web

from moorage.engine import clock as clocks

WHO = web.RequestKey("who", str)
# The middlewares inside this one tell it what they did to a call, and whether the client ever saw a reply.
FAULTS = web.RequestKey("faults", tuple[str, ...])
DROPPED = web.RequestKey("dropped", bool)

KEPT = 10_000
_LONGEST_PATH = 2048
_LONGEST_NAME = 100
_LONGEST_AGENT = 200
_BROKEN = 500


@dataclasses.dataclass(frozen=True)
class Call:
    """One call: ``status`` is what the client was told, None if it was told nothing; ``seconds`` are the cloud's."""

    number: int
    service: str
    at: datetime.datetime
    who: str
    method: str
    path: str
    status: int | None
    seconds: float
    faults: tuple[str, ...] = ()
    agent: str = ""

    def to_json(self) -> dict[str, object]:
        """The call as a document for programs."""
        return {
            "number": self.number,
            "service": self.service,
            "at": self.at.isoformat(timespec="milliseconds"),
            "who": self.who,
            "agent": self.agent,
            "method": self.method,
            "path": self.path,
            "status": self.status,
            "seconds": round(self.seconds, 3),
            "faults": list(self.faults),
        }


class CallLog:
    """The last calls made, ``keep`` of them for each service; ``total`` counts the forgotten ones too.

    Each service has room of its own, so that the heartbeats of a large cluster do not push out what a cloud was asked.
    """

    def __init__(self, clock: clocks.Clock, keep: int = KEPT) -> None:
        self.clock = clock
        self.total = 0
        self._keep = keep
        self._calls: dict[str, collections.deque[Call]] = {}

    def add(
        self, service: str, request: web.Request, status: int | None, at: datetime.datetime, seconds: float
    ) -> None:
        """Record a call that has ended."""
        self.total += 1
        who = request.get(WHO) or request.remote or ""
        faults = request.get(FAULTS, ())
        path = request.path_qs[:_LONGEST_PATH]
        kept = self._calls.setdefault(service, collections.deque(maxlen=self._keep))
        agent = request.headers.get("User-Agent", "")[:_LONGEST_AGENT]
        kept.append(Call(self.total, service, at, who, request.method, path, status, seconds, faults, agent))

    def calls(self, *, service: str = "*", method: str = "*", path: str = "*", after: int = 0) -> list[Call]:
        """The calls kept that match, oldest first; ``service`` and ``path`` are shell patterns."""
        found = [
            call
            for name, kept in self._calls.items()
            if fnmatch.fnmatchcase(name, service)
            for call in kept
            if call.number > after
            and method in ("*", call.method)
            and (path == "*" or fnmatch.fnmatchcase(call.path, path))
        ]
        return sorted(found, key=lambda call: call.number)

    def clear(self) -> None:
        """Forget the calls kept; numbers go on, so that nobody takes a new call for an old one."""
        self._calls.clear()


@web.middleware
async def naming(request: web.Request, handler: typedefs.Handler) -> web.StreamResponse:
    """Know callers by the program they say they are, whatever becomes of their call, until it is known who uses it."""
    request[WHO] = request.headers.get("User-Agent", "")[:_LONGEST_NAME]
    return await handler(request)


def recording(log: CallLog, service: str) -> typedefs.Middleware:
    """The middleware that records every call of a service in ``log``."""

    @web.middleware
    async def record(request: web.Request, handler: typedefs.Handler) -> web.StreamResponse:
        at, began = log.clock.wall(), log.clock.now()
        status: int | None = _BROKEN
        try:
            response = await handler(request)
            status = response.status
        except web.HTTPException as reply:
            status = reply.status
            raise
        except ConnectionError:
            # The client went away in the middle of a stream: it knows of no end.
            status = None
            raise
        finally:
            log.add(service, request, None if request.get(DROPPED) else status, at, log.clock.now() - began)
        return response

    return record
