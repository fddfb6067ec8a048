"""Calls to an oVirt engine: every one named in people's words, bounded in time, and failing in the engine's types.

A client is shared by all threads of a flow. Each thread gets an SDK connection of its own, because the SDK lets one
call at a time through a connection; the session is shared, so that they sign in once and, when it ends, once more.
"""

from __future__ import annotations

import contextlib
import threading
import weakref
from collections.abc import Callable
from types import TracebackType
from typing import Any, Final, Self, TypeVar

import ovirtsdk4
from ovirtsdk4 import services, types

from moorage.engine import clock as clocks
from moorage.engine import context, errors, secret
from moorage.platforms import contract
from moorage.platforms.ovirt import credentials as credential
from moorage.platforms.ovirt import faults, wire

T = TypeVar("T")

# Making a VM from a template is answered within seconds by an idle engine, and within a minute by one that works hard.
CALL_SECONDS: Final = 120.0
CONNECT_SECONDS: Final = 20.0
_FAREWELL_SECONDS: Final = 5.0
# Between two attempts to sign in with a password that was refused: as they come, five take two hours and a half.
_FIRST_PAUSE: Final = 600.0
_LONGEST_PAUSE: Final = 7200.0

PAGE: Final = 100
SEARCHABLE: Final = frozenset(
    ("clusters", "data_centers", "disks", "hosts", "networks", "storage_domains", "templates", "vms")
)
_JOB_EVERY: Final = 5.0
# A job is entered before the call that started it is answered; succeeded ones are forgotten ten minutes later.
_JOB_APPEARS: Final = 10.0


def search_value(text: str) -> str:
    """A value as the engine's search language takes it, or empty if it cannot hold it."""
    return "" if '"' in text else f'"{text}"'


def everything(service: Any, search: str = "", **parameters: Any) -> list[Any]:
    """All that a search finds, page by page; without a search the engine lists all it has at once."""
    if not search:
        return list(service.list(**parameters))
    found: dict[str, Any] = {}
    number = 0
    while True:
        number += 1
        page = service.list(search=f"{search} page {number}", max=PAGE, **parameters)
        # What is made or removed meanwhile shifts the pages: the same thing may be seen twice.
        found |= {item.id: item for item in page}
        if len(page) < PAGE:
            return list(found.values())


def named(api: services.SystemService, collection: str, name: str, **parameters: Any) -> list[Any]:
    """The things of a collection (``vms``, ``storage_domains``, …) that are called exactly so.

    The engine's own search takes ``*`` for anything and small letters for capitals, so it only narrows the list.
    There may be several: names are unique within a data center at best, and those of disks not at all.
    """
    service = getattr(api, f"{collection}_service")()
    value = search_value(name) if collection in SEARCHABLE else ""
    key = "alias" if collection == "disks" else "name"
    return [item for item in everything(service, f"{key}={value}" if value else "", **parameters) if item.name == name]


class _Session:
    """One sign-in for all connections of a client.

    Engines lock an account after a handful of wrong passwords, and it may be the one that people use. So what was
    refused is not tried again for a while, however many ask; other credentials are another session.
    """

    def __init__(self, who: credential.Credentials, clock: clocks.Clock) -> None:
        self.who = who
        self.token: str | None = None
        # A thread that has ended takes its connection with it.
        self.wires: weakref.WeakSet[wire.Wire] = weakref.WeakSet()
        self.turn = threading.Lock()
        self._signing_in = threading.Lock()
        self._clock = clock
        self._refusal = ""
        self._refused = clock.deadline(0.0)
        self._pause = _FIRST_PAUSE

    def fresh(self, stale: str | None, sign_in: Callable[[], str]) -> str:
        with self._signing_in:
            if self.token is None or self.token == stale:
                self.token = self._signed_in(sign_in)
            return self.token

    def _signed_in(self, sign_in: Callable[[], str]) -> str:
        if not self._refused.expired:
            raise ovirtsdk4.AuthError(self._refusal)
        try:
            token = sign_in()
        except ovirtsdk4.Error as error:
            if faults.refuses_credentials(error):
                self._refusal, self._refused = str(error), self._clock.deadline(self._pause)
                self._pause = min(self._pause * 2, _LONGEST_PAUSE)
            raise
        self._pause = _FIRST_PAUSE
        return token


class Client:
    """Speaks to the engine of the user's credentials, which are read at the first call."""

    def __init__(self, around: contract.Surroundings, who: credential.Credentials | None = None) -> None:
        self._around = around
        self._turn = threading.Lock()
        self._local = threading.local()
        self._session: _Session | None = None
        self._end: weakref.finalize[[_Session, float, str], Client] | None = None
        if who is not None:
            self._open(who)

    @property
    def who(self) -> credential.Credentials:
        """The credentials in use; raises `ConfigError` if there are none."""
        return self._opened().who

    @property
    def clock(self) -> clocks.Clock:
        return self._around.clock

    def secrets(self) -> tuple[secret.Secret, ...]:
        """What must never be shown: the password and the session's token."""
        session = self._opened()
        return (*session.who.secrets, *((secret.Secret(session.token),) if session.token else ()))

    def call(self, what: str, use: Callable[[services.SystemService], T], *, safe: bool = True) -> T:
        """Do ``use`` with the engine's API, or raise what kept it from being done.

        ``what`` completes "the installer wants to …". With ``safe=False`` it is something that must not be done twice:
        if nobody can tell whether it happened, `Ambiguous` says so.
        """
        connection = self._connection()
        self._local.what = what
        try:
            return use(connection.system_service())
        except (wire.Broken, wire.Unreadable) as error:
            self._discard(connection)
            raise faults.translate(error, what, safe=safe, spellings=self._spellings()) from error
        except ovirtsdk4.Error as error:
            raise faults.translate(error, what, safe=safe, spellings=self._spellings()) from error

    def look(self, what: str, use: Callable[[services.SystemService], T | None]) -> T | None:
        """Like `call`, for what may be missing: then it is None."""
        try:
            return self.call(what, use)
        except errors.NotFound:
            return None

    def named(self, collection: str, name: str, **parameters: Any) -> list[Any]:
        """The things of a collection that are called exactly so."""
        return self.call(
            f"look for {name} among the {collection}", lambda api: named(api, collection, name, **parameters)
        )

    def jobs(self, correlation_id: str) -> list[types.Job]:
        """The engine's jobs that belong to calls made with this correlation id."""
        return self.call(
            f"look at the jobs of {correlation_id}",
            lambda api: everything(api.jobs_service(), f"correlation_id={correlation_id}"),
        )

    def wait_job(
        self, correlation_id: str, ctx: context.Context, *, what: str = "", seconds: float | None = None
    ) -> None:
        """Wait until the engine's work for these calls is over; `Terminal` with its words if some of it failed.

        What a call made may say it is ready before its job has ended; until then the engine holds it locked.
        """
        doubt = ctx.clock.deadline(_JOB_APPEARS)

        def over() -> bool | None:
            found = self.jobs(correlation_id)
            if not found:
                return True if doubt.expired else None
            bad = [job for job in found if job.status in (types.JobStatus.FAILED, types.JobStatus.ABORTED)]
            if bad:
                raise errors.Terminal(f"the engine's job failed: {bad[0].description}", resource=ctx.resource)
            return None if any(job.status == types.JobStatus.STARTED for job in found) else True

        ctx.poll(over, what=what or f"the engine to finish {correlation_id}", every=_JOB_EVERY, seconds=seconds)

    def serves(self, around: contract.Surroundings) -> bool:
        """Whether it is open, and was opened for exactly these."""
        return self._around is around and (self._end is None or self._end.alive)

    def close(self) -> None:
        """End the session and all connections; takes a few seconds at most and raises nothing."""
        end = self._end
        if end is not None:
            end()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _spellings(self) -> tuple[str, ...]:
        return secret.forms(self.secrets())

    def _opened(self) -> _Session:
        with self._turn:
            return self._session or self._open(credential.read(self._around.environ))

    def _open(self, who: credential.Credentials) -> _Session:
        self._session = session = _Session(who, self._around.clock)
        # Whoever forgets to close the client does not leave a session behind in the engine.
        patience, agent = self._around.clock.socket_timeout(_FAREWELL_SECONDS), wire.agent(self._around.caller)
        self._end = weakref.finalize(self, _farewell, session, patience, agent)
        return session

    def _connection(self) -> wire.Wire:
        session = self._opened()
        if self._end is None or not self._end.alive:
            raise errors.Interrupted("the connection to the engine is closed already")
        existing: wire.Wire | None = getattr(self._local, "connection", None)
        if existing is not None:
            # Of two tokens that have run out, the older would be exchanged for the other, and that would be the end.
            existing.adopt(session.token)
            return existing
        socket_timeout = self._around.clock.socket_timeout
        made = wire.Wire(
            session.who,
            session,
            timeout=socket_timeout(CALL_SECONDS),
            connect_timeout=socket_timeout(CONNECT_SECONDS),
            heard=_Heard(self._around.trace, self._local),
            agent=wire.agent(self._around.caller),
            token=session.token,
        )
        with session.turn:
            session.wires.add(made)
        self._local.connection = made
        return made

    def _discard(self, connection: wire.Wire) -> None:
        session = self._opened()
        self._local.connection = None
        with session.turn:
            session.wires.discard(connection)
        connection.hang_up(0.0)


_sharing = threading.Lock()
_latest: list[Client] = []


def shared(around: contract.Surroundings) -> Client:
    """The client for these surroundings: all stages of one command sign in once. It signs out when the process ends.

    Only the latest is kept, so a process that turns to other surroundings ends the session it no longer uses.
    """
    with _sharing:
        if not _latest or not _latest[0].serves(around):
            _latest[:] = [Client(around)]
        return _latest[0]


class _Heard:
    """Tells the trace of every reply. It knows the client's thread-local notes, but not the client, which may go."""

    def __init__(self, trace: Callable[[str], None], local: threading.local) -> None:
        self._trace = trace
        self._local = local

    def __call__(self, method: str, path: str, outcome: str) -> None:
        what = getattr(self._local, "what", "")
        self._trace(f"oVirt: {what}: {method} {path} -> {outcome}")


def _farewell(session: _Session, patience: float, agent: str) -> None:
    """Sign out once, then close every connection; what the engine says to it no longer matters."""
    with session.turn:
        wires, session.wires = list(session.wires), weakref.WeakSet()
    for each in wires:
        with contextlib.suppress(Exception):
            each.hang_up(patience / 10)
    if session.token is None:
        return
    with contextlib.suppress(Exception):
        last = wire.Wire(
            session.who,
            session,
            timeout=patience,
            connect_timeout=patience,
            heard=lambda *_: None,
            agent=agent,
            token=session.token,
        )
        last.sign_out(patience)
    session.token = None
