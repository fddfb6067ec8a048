"""keepalived, HAProxy and CoreDNS while they run on a simulated machine, each with what a monitor beside it does.

keepalived takes part in elections (`vrrp`) with a priority that its track scripts raise and lower, HAProxy listens
(`haproxy`), CoreDNS answers (`coredns`). A new config is read as the real ones do it on a signal: a virtual address
stays where it is, connections are not cut, and only what cannot be changed in place is stopped and started.
"""

from __future__ import annotations

import abc
import asyncio
import functools
from collections.abc import Coroutine, Mapping
from typing import Any

from moorage import lab
from moorage.lab.nodes import (
    coredns,
    corefile,
    files,
    haproxy,
    haproxy_cfg,
    instance,
    keepalived_conf,
    pacing,
    static_pods,
    track_scripts,
    vip_pods,
    vrrp,
)

# Cloud seconds between two looks of a monitor, at the API and at HAProxy.
API_SECONDS = 5.0
# However fast the cloud's time runs, nobody looks more often than this (real seconds), nor all scripts of a site
# together more often than that in one.
FASTEST_LOOK = 0.1
_SCRIPTS_PER_SECOND = 300.0

_API_PORT = 6443
_READY = f"https://localhost:{_API_PORT}/readyz"
# The bootstrap's keepalived stops after more failures in a row than this.
_API_FAILURES = 4
# How often the redirect is looked at, after how many good looks it is there and after how many bad ones it goes: by the
# payload's monitor, and by the agent that comes with `moorage node-network`.
_REDIRECT, _AGENTS_REDIRECT = (6.0, 3, 11), (2.0, 3, 5)
_LEAST_PRIORITY, _MOST_PRIORITY = 1, 254
_DISPATCHERS = "/etc/NetworkManager/dispatcher.d"

WRONG = (keepalived_conf.Wrong, haproxy_cfg.Wrong, corefile.Wrong)


async def pause(machine: instance.Instance, seconds: float) -> None:
    await lab.sleep(machine.clock, max(seconds, FASTEST_LOOK * machine.clock.speed))


class Running(abc.ABC):
    """A program that runs, with tasks that end together."""

    def __init__(self, machine: instance.Instance, node: vrrp.Station, program: vip_pods.Program) -> None:
        self.machine = machine
        self.node = node
        self.program = program
        self._tasks: list[asyncio.Task[None]] = []

    @property
    def monitor(self) -> str:
        """What the monitor of this program is called."""
        return "network-monitor" if self.program.rendered else f"{self.program.name}-monitor"

    @abc.abstractmethod
    async def start(self) -> None:
        """Begin, with the config it was made for."""

    @abc.abstractmethod
    async def stop(self, *, resigning: bool) -> None:
        """End; one that is ``resigning`` still says so to the others."""

    @abc.abstractmethod
    async def reload(self, program: vip_pods.Program) -> None:
        """Go on with another config."""

    def spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work, name=f"{self.program.name} on {self.machine.name}")
        task.add_done_callback(vrrp.tell_defect)
        self._tasks.append(task)
        return task

    async def end_tasks(self) -> None:
        tasks, self._tasks = self._tasks, []
        await _ended(tasks)


async def _ended(tasks: list[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


class Keepalived(Running):
    """keepalived with its track scripts, and the monitor beside it."""

    def __init__(self, machine: instance.Instance, node: vrrp.Station, program: vip_pods.Program) -> None:
        super().__init__(machine, node, program)
        self._config = keepalived_conf.parse(program.config or "")
        self._questions = track_scripts.Questions(machine, program, lambda: bool(node.redirects))
        self._results: dict[str, bool] = {}
        self._tracking: list[asyncio.Task[None]] = []
        self._link = vrrp.link(machine.site)
        self._members = self._made()
        self._stopped = False

    async def start(self) -> None:
        self._track_all()
        if self.program.monitored and self.machine.role == "bootstrap":
            self.spawn(self._hand_over())
        await self._take_part()

    async def stop(self, *, resigning: bool) -> None:
        await self.end_tasks()
        await self._withdraw(resigning=resigning)

    async def reload(self, program: vip_pods.Program) -> None:
        """Read the config again: whoever is master stays so, unless its router or addresses are others now."""
        config = keepalived_conf.parse(program.config or "")
        before, self._config, self.program = self._config, config, program
        tracking, self._tracking = self._tracking, []
        self._tasks = [each for each in self._tasks if each not in tracking]
        await _ended(tracking)
        kept = {name: script.command for name, script in config.scripts.items()}
        self._results = {
            name: passes for name, passes in self._results.items() if kept.get(name) == before.scripts[name].command
        }
        if _identities(before) == _identities(config):
            routers = {each.name: each for each in config.instances}
            for member in self._members:
                member.router = routers[member.router.name]
        else:
            stopped = self._stopped
            await self._withdraw(resigning=True)
            self._members = self._made()
            if not stopped:
                await self._take_part()
        self._track_all()

    def _made(self) -> list[vrrp.Member]:
        return [
            vrrp.Member(self.machine, self.node, each, functools.partial(self._priority, each.name))
            for each in self._config.instances
        ]

    def _track_all(self) -> None:
        for warning in self._config.warnings:
            self.machine.say(f"keepalived: {warning}")
        self._tracking = [self.spawn(self._track(script)) for script in self._config.scripts.values()]

    async def _take_part(self) -> None:
        await self.machine.wire.serve(self.program.name, static_pods.Running)
        for member in self._members:
            await self._link.join(member)

    async def _withdraw(self, *, resigning: bool) -> None:
        await self.machine.wire.unserve(self.program.name)
        for member in self._members:
            await self._link.leave(member, resigning=resigning)

    def _priority(self, name: str) -> int | None:
        """The priority of a router now: scripts add to it, take from it, or forbid it to be master."""
        router = next(each for each in self._config.instances if each.name == name)
        if router.faulty:
            return None
        priority = router.priority
        for script, weight in router.tracked:
            passes = self._results.get(script)
            if weight == 0 and not passes:
                return None
            if (weight > 0 and passes) or (weight < 0 and passes is False):
                priority += weight
        owner = router.priority > _MOST_PRIORITY
        return router.priority if owner else min(max(priority, _LEAST_PRIORITY), _MOST_PRIORITY)

    async def _track(self, script: keepalived_conf.Script) -> None:
        """The first result counts at once, later ones when there are enough in a row."""
        against = 0
        site = self.machine.site
        with pacing.among(site, "track scripts"):
            while True:
                if self.machine.reachable:
                    passes = await self._questions.passes(script.name, script.command)
                    known = self._results.get(script.name)
                    against = against + 1 if passes != known else 0
                    enough = 1 if known is None else script.rise if passes else script.fall
                    if against >= enough:
                        self._results[script.name], against = passes, 0
                        said = "succeeded" if passes else "failed"
                        self.machine.say(f"Keepalived_vrrp: Script `{script.name}` {said}")
                turn = pacing.turn(site, "track scripts", script.interval, FASTEST_LOOK, _SCRIPTS_PER_SECOND)
                await lab.sleep(self.machine.clock, turn)

    async def _hand_over(self) -> None:
        """Stop keepalived when the API on this machine, which has been there, is gone; go on if it comes back."""
        been, failures = False, 0
        while True:
            # A machine that is cut off still reaches itself, and learns nothing new.
            ready = not self.machine.reachable or await self._questions.passes("monitor", f"curl {_READY}")
            been = been or (ready and self.machine.reachable)
            failures = 0 if ready or not been else failures + 1
            if failures > _API_FAILURES and not self._stopped:
                self._stopped = True
                self.machine.say(f"{self.monitor}: the API here failed {failures} checks in a row: stop keepalived")
                await self._withdraw(resigning=True)
            elif ready and self._stopped and self.machine.reachable:
                self._stopped = False
                self.machine.say(f"{self.monitor}: the API is here again: start keepalived")
                await self._take_part()
            await pause(self.machine, API_SECONDS)


def _identities(config: keepalived_conf.Config) -> set[tuple[object, ...]]:
    """What makes the routers of a config other ones, not the same ones changed."""
    return {
        (each.name, each.router_id, each.interface, each.addresses, each.source, each.peers is None)
        for each in config.instances
    }


class Haproxy(Running):
    """HAProxy, and the monitor beside it that leads the API's port to it."""

    def __init__(self, machine: instance.Instance, node: vrrp.Station, program: vip_pods.Program) -> None:
        super().__init__(machine, node, program)
        self._config = haproxy_cfg.parse(program.config or "")
        self._questions = track_scripts.Questions(machine, program, lambda: False)
        self._made: haproxy.Haproxy | None = None
        self.redirected = False

    @property
    def private_ports(self) -> frozenset[int]:
        return haproxy.private_ports(self._config, self.machine.site)

    @property
    def redirects(self) -> Mapping[int, int]:
        """Where the firewall leads the API's port, once it does."""
        return {self.machine.site.port(_API_PORT): self.port} if self.redirected else {}

    @property
    def port(self) -> int:
        """Where it balances the API, or 0 if it does not."""
        for proxy in self._config.proxies:
            target = self._config.backend(proxy)
            if target is not None and any(server.port == _API_PORT for server in target.servers) and proxy.binds:
                return self.machine.site.port(proxy.binds[0].port)
        return 0

    async def start(self) -> None:
        for line in self._config.warnings:
            self.machine.say(f"haproxy: {line}")
        for line in self._config.unplayed:
            self.machine.say(f"haproxy: the lab does not play {line}")
        await self.machine.wire.serve(self.program.name, self._make)
        if self.program.monitored and self.port not in (0, self.machine.site.port(_API_PORT)):
            self.spawn(self._redirect())

    async def stop(self, *, resigning: bool) -> None:
        await self.end_tasks()
        self.redirected = False
        await self.machine.wire.unserve(self.program.name)

    async def reload(self, program: vip_pods.Program) -> None:
        """Lead new connections by another config; where the ports are others too, begin anew."""
        config = haproxy_cfg.parse(program.config or "")
        in_place = haproxy.same_ports(self._config, config)
        if not in_place:
            await self.stop(resigning=True)
        self._config, self.program = config, program
        if not in_place:
            await self.start()
        elif self._made is not None and self.program.name in self.machine.wire.listening:
            await self._made.adopt(config)

    def _make(self) -> haproxy.Haproxy:
        self._made = haproxy.Haproxy(self._config, self.machine)
        return self._made

    async def _redirect(self) -> None:
        """Lead the API's port through HAProxy while that works."""
        against = 0
        seconds, rise, fall = _AGENTS_REDIRECT if self.program.rendered else _REDIRECT
        while True:
            if self.machine.reachable:
                works = await self._questions.passes("monitor", f"curl https://localhost:{self.port}/readyz")
                against = against + 1 if works != self.redirected else 0
                if against >= (fall if self.redirected else rise):
                    self.redirected, against = works, 0
                    done = "lead" if works else "no longer lead"
                    self.machine.say(f"{self.monitor}: {done} port {_API_PORT} of the API's address to {self.port}")
            await pause(self.machine, seconds)


class Coredns(Running):
    """CoreDNS; the machine asks it first if something on the disk puts it at the head of resolv.conf."""

    def __init__(self, machine: instance.Instance, node: vrrp.Station, program: vip_pods.Program) -> None:
        super().__init__(machine, node, program)
        self._files = files.Files(machine)
        self._servers = self._read(program)
        self.answers = coredns.CoreDNS(self._servers, self._on_disk, coredns.upstream(machine))
        self._resolver = coredns.resolver(self.answers, machine)

    @property
    def private_ports(self) -> frozenset[int]:
        return frozenset(self.machine.site.port(port) for port in coredns.private_ports(self._servers))

    async def start(self) -> None:
        service = functools.partial(coredns.Service, self.answers, self._servers, self.machine)
        await self.machine.wire.serve(self.program.name, service)
        if self._asked_first():
            self.machine.wire.resolvers.insert(0, self._resolver)
        else:
            self.machine.say(
                f"coredns: nothing in {_DISPATCHERS} puts it into resolv.conf: the machine does not ask it"
            )

    async def stop(self, *, resigning: bool) -> None:
        if self._resolver in self.machine.wire.resolvers:
            self.machine.wire.resolvers.remove(self._resolver)
        await self.machine.wire.unserve(self.program.name)

    async def reload(self, program: vip_pods.Program) -> None:
        """Answer by another Corefile; a wrong one changes nothing."""
        servers = self._read(program)
        self._servers, self.program = servers, program
        self.answers.adopt(servers)

    def _read(self, program: vip_pods.Program) -> list[corefile.Server]:
        found = coredns.read(program.config or "", program.path, self._opened)
        if words := coredns.looped(found, self.machine):
            raise corefile.Wrong(words)
        return found

    def _on_disk(self, path: str) -> bytes | None:
        return self._files.find(self.program.on_host(path))

    def _opened(self, path: str) -> bytes | None:
        """A file that the Corefile names; resolv.conf is there on every machine, as DHCP would have it."""
        found = self._on_disk(path)
        if found is None and path == "/etc/resolv.conf":
            return f"nameserver {self.machine.site.nameserver.host}\n".encode()
        return found

    def _asked_first(self) -> bool:
        return any(b"resolv.conf" in content for content in self._files.below(_DISPATCHERS).values())
