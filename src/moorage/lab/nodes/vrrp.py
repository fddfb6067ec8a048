"""Who holds a virtual address: VRRP between the machines of a site, and the address itself, which listens there.

Each machine takes part with a `Member` for each virtual router of its keepalived. Nobody sends packets: the `Link` of a
site knows who would hear whom (the same router id and password, the right peers, both lines whole), and lets members
become master and step down by the rules and times of VRRP. Whoever is master for an address has it: connections to it
are passed to the same port of that machine, and to nothing where that machine has nothing on that port.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import ipaddress
import logging
import socket
import struct
import weakref
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Protocol

from moorage import lab
from moorage.lab import site as sites
from moorage.lab.nodes import instance, keepalived_conf, relay

BACKUP, MASTER, FAULT = "BACKUP", "MASTER", "FAULT"

# Real seconds: a holder that is gone is not replaced faster than this, nor looked after more often than that.
_FASTEST_TAKE_OVER = 0.2
_FASTEST_TICK = 0.05
_MEMBERS_PER_SECOND = 2000.0
_FASTEST_LOOK = 0.15
_TICK = 0.1
_CONNECT_SECONDS = 5.0
_LISTENING = "0A"

_log = logging.getLogger(__name__)
_links: weakref.WeakKeyDictionary[sites.Site, Link] = weakref.WeakKeyDictionary()


class Station(Protocol):
    """What a machine does with connections to an address that it holds."""

    @property
    def private_ports(self) -> frozenset[int]:
        """Ports that are its own affair."""

    @property
    def redirects(self) -> Mapping[int, int]:
        """Ports that its firewall leads to others."""


class Member:
    """A machine's part in one virtual router; ``effective`` tells its priority, or None while it may not be master."""

    def __init__(
        self,
        machine: instance.Instance,
        station: Station,
        router: keepalived_conf.Instance,
        effective: Callable[[], int | None],
    ) -> None:
        self.machine = machine
        self.station = station
        self.router = router
        self.state = FAULT
        #: Whether it begins without waiting for others.
        self.eager = False
        self._effective = effective
        #: When the timer began that makes it master: each advert that it respects winds it up again.
        self.heard = machine.clock.now()

    @property
    def priority(self) -> int:
        """What it advertises; 0 while it may not be master."""
        return (self._effective() or 0) if self.machine.reachable else 0

    @property
    def rank(self) -> tuple[int, ipaddress.IPv4Address]:
        """What decides between masters."""
        return self.priority, ipaddress.IPv4Address(self.machine.address)

    @property
    def skew(self) -> float:
        return self.router.advert_interval * (256 - self.priority) / 256

    @property
    def patience(self) -> float:
        """Cloud seconds without an advert after which it becomes master."""
        return max(3 * self.router.advert_interval + self.skew, _FASTEST_TAKE_OVER * self.machine.clock.speed)

    def hears(self, other: Member) -> bool:
        """Whether the other's adverts come in here, and are believed."""
        mine, theirs = self.router, other.router
        if (mine.router_id, mine.authentication) != (theirs.router_id, theirs.authentication):
            return False
        if theirs.peers is None or mine.peers is None:
            return theirs.peers is mine.peers
        return self.machine.address in theirs.peers

    def say(self, words: str) -> None:
        self.machine.say(f"Keepalived_vrrp: ({self.router.name}) {words}")


def link(site: sites.Site) -> Link:
    """The link that the machines of a site share."""
    if site not in _links:
        _links[site] = Link(site)
    return _links[site]


def listening(addresses: Iterable[str]) -> dict[str, set[int]]:
    """The ports on which something listens, by address: what the machines' services really opened."""
    wanted = {f"{struct.unpack('=I', socket.inet_aton(each))[0]:08X}": each for each in addresses}
    found: dict[str, set[int]] = {each: set() for each in wanted.values()}
    for line in Path("/proc/net/tcp").read_text(encoding="ascii").splitlines()[1:]:
        _, local, _, state, *_ = line.split(maxsplit=4)
        address, _, port = local.partition(":")
        if state == _LISTENING and address in wanted:
            found[wanted[address]].add(int(port, 16))
    return found


def tell_defect(task: asyncio.Task[None]) -> None:
    """A task that ended by itself is a defect of the lab, and must be seen as one."""
    if not task.cancelled() and task.exception() is not None:
        _log.error("%s: the lab has a defect", task.get_name(), exc_info=task.exception())


class Link:
    """The members of all virtual routers of a site, and their addresses."""

    def __init__(self, site: sites.Site) -> None:
        self._site = weakref.ref(site)
        self._clock = site.clock
        self._members: list[Member] = []
        self._addresses: dict[str, _Address] = {}
        self._lock = asyncio.Lock()
        self._task: asyncio.Task[None] | None = None

    def holder(self, address: str) -> instance.Instance | None:
        """The machine that has a virtual address now."""
        found = self._addresses.get(address)
        return None if found is None or found.holder is None else found.holder.machine

    def held_by(self, machine: instance.Instance) -> list[str]:
        """The virtual addresses that a machine has now."""
        return sorted(each for each in self._addresses if self.holder(each) is machine)

    async def join(self, member: Member) -> None:
        """Let a member take part: it listens first, unless it is configured to begin as master."""
        self._members.append(member)
        member.heard, member.eager = self._clock.now(), member.router.state == keepalived_conf.MASTER
        for address in member.router.addresses:
            self._addresses.setdefault(address, _Address(address, self._site())).claim(member)
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._run(), name="virtual addresses")
            self._task.add_done_callback(tell_defect)

    async def leave(self, member: Member, *, resigning: bool) -> None:
        """Take a member away; one that resigns says so, and is replaced sooner than one that is just gone."""
        if member not in self._members:
            return
        self._members.remove(member)
        if resigning and member.state == MASTER:
            self._resigned(member)
        member.state = FAULT
        await self._settle()
        async with self._lock:
            for address in set(member.router.addresses):
                if not any(address in each.router.addresses for each in self._members):
                    await self._addresses.pop(address).release()
        if not self._members and self._task is not None:
            task, self._task = self._task, None
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def _run(self) -> None:
        while True:
            self._step()
            await self._settle()
            real = max(_FASTEST_TICK, len(self._members) / _MEMBERS_PER_SECOND)
            await lab.sleep(self._clock, max(_TICK, real * self._clock.speed))

    # --- elections ---

    def _step(self) -> None:
        before = {each: each.state for each in self._members}
        now = self._clock.now()
        for each in self._members:
            self._look_at_health(each, now)
        masters = [each for each in self._members if each.state == MASTER]
        for each in self._members:
            if each.state == BACKUP:
                self._wait(each, masters, now)
        # The best first, for who has stepped down is heard no more.
        for each in sorted(self._members, key=lambda member: member.rank, reverse=True):
            if each.state == MASTER and any(
                other.rank > each.rank and each.hears(other) for other in self._members if other.state == MASTER
            ):
                each.state = BACKUP
                each.heard = now
        for member, state in before.items():
            if member.state != state:
                member.say(f"Entering {member.state} STATE (priority {member.priority})")

    def _look_at_health(self, member: Member, now: float) -> None:
        if not member.priority:
            if member.state == MASTER and member.machine.reachable:
                self._resigned(member)
            member.state = FAULT
        elif member.state == FAULT:
            member.state = BACKUP
            member.heard = now - member.patience if member.eager else now
            member.eager = False

    def _wait(self, member: Member, masters: list[Member], now: float) -> None:
        """Respect a master that is no less than oneself (any, if one does not preempt), or lose patience."""
        heard = [each for each in masters if member.hears(each)]
        if any(member.router.nopreempt or each.priority >= member.priority for each in heard):
            member.heard = now
        elif now - member.heard >= member.patience:
            member.state = MASTER

    def _resigned(self, member: Member) -> None:
        for each in self._members:
            if each is not member and each.hears(member):
                each.heard = self._clock.now() - each.patience + each.skew

    # --- addresses ---

    async def _settle(self) -> None:
        """Let each address be where it belongs."""
        async with self._lock:
            masters = [each for each in self._members if each.state == MASTER and each.machine.reachable]
            for address in list(self._addresses.values()):
                await address.move([each for each in masters if address.address in each.router.addresses])
            held = [each for each in self._addresses.values() if each.due]
            ports = listening(each.holder.machine.address for each in held if each.holder is not None) if held else {}
            for address in held:
                await address.open(ports)


class _Address:
    """One virtual address: reserved while anybody is configured for it, open where its holder is."""

    def __init__(self, address: str, site: sites.Site | None) -> None:
        self.address = address
        self.holder: Member | None = None
        self._site = site
        self._reserved = ""
        self._usable: bool | None = None
        self._relays: dict[int, relay.Relay] = {}
        self._look_at = 0.0
        self._split: list[str] = []
        self._blocked: set[int] = set()

    @property
    def due(self) -> bool:
        """Whether it is time to see which ports its holder has."""
        return self.holder is not None and bool(self._usable) and asyncio.get_running_loop().time() >= self._look_at

    def claim(self, member: Member) -> None:
        """Keep the address from being given to a machine; say so if that comes too late."""
        if self._usable is None:
            self._usable = self._reserve()
        if not self._usable:
            member.say(f"{self.address} cannot be had: it is another machine's, or not in the network of this site")

    def _reserve(self) -> bool:
        site = self._site
        try:
            address = ipaddress.ip_address(lab.loopback(self.address))
        except lab.NotInLab:
            return False
        name = next((name for name, network in site.networks.items() if address in network), "") if site else ""
        if site is None or not name or site.instance_at(self.address) is not None:
            return False
        # Whoever reserved it before and is no machine did so for this purpose.
        with contextlib.suppress(sites.SiteRefused):
            self._reserved = site.allocate(self.address, name)
        return True

    async def release(self) -> None:
        await self._close()
        if self._reserved and self._site is not None:
            self._site.release(self._reserved)

    async def move(self, masters: list[Member]) -> None:
        """Be with the master; with several, the one with the lowest address is who everybody reaches."""
        masters = sorted(masters, key=lambda each: ipaddress.IPv4Address(each.machine.address))
        self._tell_split(masters)
        holder = masters[0] if masters else None
        if holder is not self.holder:
            await self._close()
            self.holder = holder
            self._look_at = 0.0

    def _tell_split(self, masters: list[Member]) -> None:
        names = [f"{each.machine.name} (VRID {each.router.router_id})" for each in masters]
        if len(names) > 1 and names != self._split:
            for each in masters:
                each.say(f"split brain: {self.address} is held by {' and '.join(names)}; traffic goes to {names[0]}")
        self._split = names

    async def open(self, ports: Mapping[str, set[int]]) -> None:
        """Listen on the ports that the holder serves, and on no others."""
        if (holder := self.holder) is None:
            return
        self._look_at = asyncio.get_running_loop().time() + _FASTEST_LOOK
        station = holder.station
        wanted = ports.get(holder.machine.address, set()) - station.private_ports | set(station.redirects)
        for port in self._relays.keys() - wanted:
            await self._relays.pop(port).stop()
        for port in sorted(wanted - self._relays.keys()):
            opened = relay.Relay(self.address, port, functools.partial(self._reached, holder, port))
            try:
                await opened.start()
            except OSError as problem:
                if port not in self._blocked:
                    self._blocked.add(port)
                    holder.say(f"{self.address}:{port} cannot be listened on: {problem}")
                continue
            self._relays[port] = opened

    async def _reached(self, holder: Member, port: int) -> relay.Ends:
        to = holder.station.redirects.get(port, port)
        return await relay.opened(holder.machine.address, to, holder.machine.clock.socket_timeout(_CONNECT_SECONDS))

    async def _close(self) -> None:
        relays, self._relays = self._relays, {}
        self._blocked.clear()
        for each in relays.values():
            await each.stop()
