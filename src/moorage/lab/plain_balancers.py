"""The balancers of the plain provider: what was asked for, checked as a whole before anything of it is made.

A balancer is changed in place: a listener that is asked for as before is left alone, one whose members alone differ
keeps its port and its connections, and any other is closed and made anew.
"""

from __future__ import annotations

import asyncio
import dataclasses
from typing import Any

from moorage import errors, lab
from moorage.lab import balancer as balancers
from moorage.lab import site as sites

_FIELDS = ("port", "target", "members", "check")
_CHECK_FIELDS = tuple(field.name for field in dataclasses.fields(balancers.Check))
_MOST_SECONDS = 86_400


class ListenerRefused(errors.MoorageError):
    """What was asked for is no listener."""


@dataclasses.dataclass(frozen=True)
class Listener:
    """What passes connections to a port on to its members' port ``target``."""

    port: int
    target: int
    members: tuple[str, ...]
    check: balancers.Check


@dataclasses.dataclass
class _Balancer:
    address: str
    listeners: dict[int, Listener] = dataclasses.field(default_factory=dict)


def parsed(asked: object) -> dict[int, Listener]:
    """The listeners by port."""
    if not isinstance(asked, list):
        raise ListenerRefused("listeners is a list of objects", remedy=f"fields: {', '.join(_FIELDS)}")
    found: dict[int, Listener] = {}
    for each in asked:
        listener = _listener(each)
        if listener.port in found:
            raise ListenerRefused(f"listener {listener.port} is there twice", remedy="name each port once")
        found[listener.port] = listener
    return found


def _listener(asked: object) -> Listener:
    if not isinstance(asked, dict) or set(asked) - set(_FIELDS) or "port" not in asked:
        raise ListenerRefused("a listener is an object with a port", remedy=f"fields: {', '.join(_FIELDS)}")
    port: Any = asked["port"]
    target: Any = asked.get("target", port)
    members = asked.get("members", [])
    if not (_port(port) and _port(target)):
        raise ListenerRefused(f"listener {port!r}: port and target are numbers from 1 to 65535")
    if not isinstance(members, list) or not all(isinstance(member, str) for member in members):
        raise ListenerRefused(f"listener {port}: members is a list of addresses")
    return Listener(port, target, tuple(dict.fromkeys(map(lab.loopback, members))), _check(port, asked.get("check")))


def _check(port: int, asked: object) -> balancers.Check:
    given = {} if asked is None else asked
    if not isinstance(given, dict) or set(given) - set(_CHECK_FIELDS):
        raise ListenerRefused(f"listener {port}: check is an object", remedy=f"fields: {', '.join(_CHECK_FIELDS)}")
    check = balancers.Check(**given)
    if not isinstance(check.path, str) or not all(_number(value) for value in (check.interval, check.timeout)):
        raise ListenerRefused(f"listener {port}: a check has a path and seconds from above 0 to {_MOST_SECONDS}")
    if not all(_number(value) and isinstance(value, int) for value in (check.rise, check.fall)):
        raise ListenerRefused(f"listener {port}: rise and fall are whole numbers above 0")
    return check


def _port(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 < value < 65536


def _number(value: object) -> bool:
    # Not a number is not below anything either.
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 < value <= _MOST_SECONDS


class Balancers:
    """The balancers by name; they are changed one at a time."""

    def __init__(self, site: sites.Site) -> None:
        self._site = site
        self._known: dict[str, _Balancer] = {}
        self.changing = asyncio.Lock()

    def __len__(self) -> int:
        return len(self._known)

    def address(self, name: str) -> str:
        """Where a balancer is, or nothing if there is none of that name."""
        return self._known[name].address if name in self._known else ""

    def shown(self) -> dict[str, dict[str, Any]]:
        """All of them, with how their members fare."""
        return {name: self._shown(name, known) for name, known in sorted(self._known.items())}

    async def put(self, name: str, address: str, wanted: dict[int, Listener]) -> None:
        """Make a balancer, or bring its listeners and members to what is asked; a new one is made whole or not."""
        known = self._known.get(name)
        if known is not None:
            await self._bring(name, known, wanted)
            return
        made = _Balancer(self._site.allocate(address))
        try:
            await self._bring(name, made, wanted)
        except BaseException:
            await self._bring(name, made, {})
            self._site.release(made.address)
            raise
        self._known[name] = made

    async def remove(self, name: str) -> None:
        """Close what it listens on, and give its address back; removing what is absent changes nothing."""
        known = self._known.pop(name, None)
        if known is not None:
            await self._bring(name, known, {})
            self._site.release(known.address)

    def forget(self) -> None:
        """The site was cleared."""
        self._known.clear()

    async def _bring(self, name: str, known: _Balancer, wanted: dict[int, Listener]) -> None:
        for port, before in list(known.listeners.items()):
            now = wanted.get(port)
            if now is not None and dataclasses.replace(now, members=before.members) == before:
                await self._bring_members(f"{name}:{port}", now, set(before.members) - set(now.members))
                known.listeners[port] = now
                continue
            del known.listeners[port]
            await self._close(name, known, port)
        for port in wanted.keys() - known.listeners.keys():
            await self._open(name, known, wanted[port])
            known.listeners[port] = wanted[port]

    async def _open(self, name: str, known: _Balancer, listener: Listener) -> None:
        pool = f"{name}:{listener.port}"
        self._site.balancer.add_pool(pool, listener.check)
        try:
            await self._bring_members(pool, listener, set())
            await self._site.balancer.add_listener(known.address, self._site.port(listener.port), pool)
        except BaseException:
            await self._site.balancer.remove_pool(pool)
            raise

    async def _close(self, name: str, known: _Balancer, port: int) -> None:
        await self._site.balancer.remove_listener(known.address, self._site.port(port))
        await self._site.balancer.remove_pool(f"{name}:{port}")

    async def _bring_members(self, pool: str, listener: Listener, gone: set[str]) -> None:
        at = self._site.port(listener.target)
        for address in gone:
            await self._site.balancer.remove_member(pool, balancers.Member(address, at))
        for address in listener.members:
            self._site.balancer.add_member(pool, balancers.Member(address, at))

    def _shown(self, name: str, known: _Balancer) -> dict[str, Any]:
        listeners = []
        for port, listener in sorted(known.listeners.items()):
            states = self._site.balancer.members(f"{name}:{port}")
            members = [{"address": s.member.address, "healthy": s.healthy, "problem": s.problem} for s in states]
            listeners.append({**dataclasses.asdict(listener), "members": members})
        return {"name": name, "address": known.address, "listeners": listeners}
