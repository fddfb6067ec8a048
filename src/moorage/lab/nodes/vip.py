"""Virtual addresses of a cluster without a balancer: keepalived and HAProxy as static pods on a simulated machine.

What runs is read from the pods' manifests and from the configs they mount; a config that the real program refuses keeps
its pod from starting, and the console says why. keepalived takes part in elections (`vrrp`) with a priority that its
track scripts raise and lower; HAProxy listens (`haproxy`). Monitors beside them do what the payload's do: on the
bootstrap machine keepalived is stopped when the API there is gone, elsewhere the API's port is led through HAProxy.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from moorage import lab
from moorage.lab.nodes import (
    files,
    haproxy,
    haproxy_cfg,
    instance,
    keepalived_conf,
    static_pods,
    track_scripts,
    vip_pods,
    vrrp,
)

# Cloud seconds: until a kubelet has started static pods, between two looks at their files, and at the API.
START_SECONDS = 30.0
LOOK_SECONDS = 5.0
API_SECONDS = 5.0
REDIRECT_SECONDS = 6.0
# However fast the cloud's time runs, nobody looks more often than this (real seconds).
_FASTEST_LOOK = 0.1

_API_PORT = 6443
_READY = f"https://localhost:{_API_PORT}/readyz"
# The bootstrap's keepalived stops after more failures in a row than this.
_API_FAILURES = 4
_REDIRECT_RISE, _REDIRECT_FALL = 3, 11
# A changed config has to be seen so often before it is used.
_SIGHTINGS = 3
_LEAST_PRIORITY, _MOST_PRIORITY = 1, 254


def wanted(machine: instance.Instance) -> bool:
    """Whether there is something to follow: a kubelet and such a pod, or a machine on which one may yet be placed."""
    disk = machine.provisioned
    if disk is None or "kubelet.service" not in disk.units:
        return False
    return machine.role == "bootstrap" or vip_pods.mentioned(machine)


async def follow(machine: instance.Instance) -> None:
    """Run the machine's keepalived and HAProxy, as its disk says, until it is switched off."""
    await lab.sleep(machine.clock, START_SECONDS)
    node = Node(machine)
    try:
        while True:
            if node.running or vip_pods.mentioned(machine):
                await node.look()
            await pause(machine, LOOK_SECONDS)
    finally:
        # Switched off: nobody is left to say good-bye.
        await node.stop(resigning=False)


async def pause(machine: instance.Instance, seconds: float) -> None:
    await lab.sleep(machine.clock, max(seconds, _FASTEST_LOOK * machine.clock.speed))


class Node:
    """The programs of one machine, by pod and name."""

    def __init__(self, machine: instance.Instance) -> None:
        self._machine = machine
        self._files = files.Files(machine)
        self._seen: dict[tuple[str, str], tuple[str | None, int]] = {}
        #: Configs that were refused, and the last complaint: neither is worth a second word.
        self._refused: dict[tuple[str, str], str] = {}
        self._told: dict[tuple[str, str], str] = {}
        self.running: dict[tuple[str, str], _Keepalived | _Haproxy] = {}

    @property
    def private_ports(self) -> frozenset[int]:
        found = [each.private_ports for each in self.running.values() if isinstance(each, _Haproxy)]
        return frozenset().union(*found)

    @property
    def redirects(self) -> dict[int, int]:
        """Where the firewall leads the API's port, once it does."""
        for each in self.running.values():
            if isinstance(each, _Haproxy) and each.redirected:
                return {self._machine.site.port(_API_PORT): each.port}
        return {}

    async def look(self) -> None:
        """Bring what runs to what the disk says."""
        programs = {(each.pod, each.name): each for each in vip_pods.programs(self._files)}
        for at in self.running.keys() - programs.keys():
            await self.running.pop(at).stop(resigning=True)
            self._seen.pop(at, None)
        for at, program in programs.items():
            config, sightings = self._seen.get(at, (None, 0))
            sightings = sightings + 1 if config == program.config else 1
            self._seen[at] = program.config, sightings
            running = self.running.get(at)
            if running is None and (program.config is None or program.config != self._refused.get(at)):
                await self._start(at, program)
            elif running is not None and running.program.config != program.config and sightings >= _SIGHTINGS:
                self._machine.say(f"{program.name}: reloading {program.path}")
                await self.running.pop(at).stop(resigning=True)
                await self._start(at, program)

    async def stop(self, *, resigning: bool) -> None:
        running, self.running = self.running, {}
        for each in running.values():
            await each.stop(resigning=resigning)

    async def _start(self, at: tuple[str, str], program: vip_pods.Program) -> None:
        """Start a program; one that refuses its config is tried again when that has changed."""
        made = _Keepalived if program.name == vip_pods.KEEPALIVED else _Haproxy
        try:
            if program.config is None:
                raise FileNotFoundError(f"cannot open {program.path}: No such file or directory")
            started = made(self._machine, self, program)
            self.running[at] = started
            await started.start()
        except (keepalived_conf.Wrong, haproxy_cfg.Wrong) as wrong:
            self._refused[at] = program.config or ""
            self._complain(at, program, f"{program.path}: {wrong}")
        except OSError as problem:
            failed = self.running.pop(at, None)
            if failed is not None:
                await failed.stop(resigning=True)
            self._complain(at, program, str(problem))
        else:
            self._told.pop(at, None)

    def _complain(self, at: tuple[str, str], program: vip_pods.Program, why: str) -> None:
        if self._told.get(at) != why:
            self._told[at] = why
            self._machine.say(f"{program.name}: {why}")
            self._machine.say(f"kubelet: back-off restarting failed container {program.name} in pod {program.pod}")


class _Running:
    """Tasks that end together."""

    def __init__(self, machine: instance.Instance, program: vip_pods.Program) -> None:
        self.machine = machine
        self.program = program
        self._tasks: list[asyncio.Task[None]] = []

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work, name=f"{self.program.name} on {self.machine.name}")
        task.add_done_callback(vrrp.tell_defect)
        self._tasks.append(task)

    async def end_tasks(self) -> None:
        tasks, self._tasks = self._tasks, []
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


class _Keepalived(_Running):
    """keepalived with its track scripts, and the monitor beside it."""

    def __init__(self, machine: instance.Instance, node: Node, program: vip_pods.Program) -> None:
        super().__init__(machine, program)
        self._config = keepalived_conf.parse(program.config or "")
        self._questions = track_scripts.Questions(machine, program, lambda: bool(node.redirects))
        self._results: dict[str, bool] = {}
        self._link = vrrp.link(machine.site)
        self._members = [vrrp.Member(machine, node, each, self._effective(each)) for each in self._config.instances]

    async def start(self) -> None:
        for warning in self._config.warnings:
            self.machine.say(f"keepalived: {warning}")
        for script in self._config.scripts.values():
            self.spawn(self._track(script))
        if self.program.monitored and self.machine.role == "bootstrap":
            self.spawn(self._hand_over())
        await self._take_part()

    async def stop(self, *, resigning: bool) -> None:
        await self.end_tasks()
        await self._withdraw(resigning=resigning)

    async def _take_part(self) -> None:
        await self.machine.wire.serve(self.program.name, static_pods.Running)
        for member in self._members:
            await self._link.join(member)

    async def _withdraw(self, *, resigning: bool) -> None:
        await self.machine.wire.unserve(self.program.name)
        for member in self._members:
            await self._link.leave(member, resigning=resigning)

    def _effective(self, router: keepalived_conf.Instance) -> Callable[[], int | None]:
        """How its priority is found out: scripts add to it, take from it, or forbid it to be master."""

        def told() -> int | None:
            priority = router.priority
            for name, weight in router.tracked:
                passes = self._results.get(name)
                if weight == 0 and not passes:
                    return None
                if (weight > 0 and passes) or (weight < 0 and passes is False):
                    priority += weight
            owner = router.priority > _MOST_PRIORITY
            return router.priority if owner else min(max(priority, _LEAST_PRIORITY), _MOST_PRIORITY)

        return told

    async def _track(self, script: keepalived_conf.Script) -> None:
        """The first result counts at once, later ones when there are enough in a row."""
        against = 0
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
            await pause(self.machine, script.interval)

    async def _hand_over(self) -> None:
        """Stop keepalived when the API on this machine, which has been there, is gone; go on if it comes back."""
        been, failures, stopped = False, 0, False
        while True:
            # A machine that is cut off still reaches itself, and learns nothing new.
            ready = not self.machine.reachable or await self._questions.passes("monitor", f"curl {_READY}")
            been = been or (ready and self.machine.reachable)
            failures = 0 if ready or not been else failures + 1
            if failures > _API_FAILURES and not stopped:
                stopped = True
                self.machine.say(f"keepalived-monitor: the API here failed {failures} checks in a row: stop keepalived")
                await self._withdraw(resigning=True)
            elif ready and stopped and self.machine.reachable:
                stopped = False
                self.machine.say("keepalived-monitor: the API is here again: start keepalived")
                await self._take_part()
            await pause(self.machine, API_SECONDS)


class _Haproxy(_Running):
    """HAProxy, and the monitor beside it that leads the API's port to it."""

    def __init__(self, machine: instance.Instance, node: Node, program: vip_pods.Program) -> None:
        super().__init__(machine, program)
        self._config = haproxy_cfg.parse(program.config or "")
        self._questions = track_scripts.Questions(machine, program, lambda: False)
        self.redirected = False
        self.private_ports = haproxy.private_ports(self._config, machine.site)

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
        await self.machine.wire.serve(self.program.name, lambda: haproxy.Haproxy(self._config, self.machine))
        if self.program.monitored and self.port not in (0, self.machine.site.port(_API_PORT)):
            self.spawn(self._redirect())

    async def stop(self, *, resigning: bool) -> None:
        await self.end_tasks()
        self.redirected = False
        await self.machine.wire.unserve(self.program.name)

    async def _redirect(self) -> None:
        """Lead the API's port through HAProxy while that works."""
        against = 0
        while True:
            if self.machine.reachable:
                works = await self._questions.passes("monitor", f"curl https://localhost:{self.port}/readyz")
                against = against + 1 if works != self.redirected else 0
                if against >= (_REDIRECT_FALL if self.redirected else _REDIRECT_RISE):
                    self.redirected, against = works, 0
                    done = "lead" if works else "no longer lead"
                    self.machine.say(f"haproxy-monitor: {done} port {_API_PORT} of the API's address to {self.port}")
            await pause(self.machine, REDIRECT_SECONDS)
