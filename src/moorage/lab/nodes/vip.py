"""Virtual addresses and names of a cluster without a balancer: keepalived, HAProxy and CoreDNS as static pods.

What runs is read from the pods' manifests and from the configs they mount; a config that the real program refuses keeps
its container from starting, and the console says why. Configs are on the disk, or an agent in the pod renders them
(`network_agent`). Monitors beside the programs (`vip_programs`) do what the payload's do: on the bootstrap machine
keepalived is stopped when the API there is gone, elsewhere the API's port is led through HAProxy.
"""

from __future__ import annotations

import asyncio

from moorage import lab
from moorage.lab.nodes import files, instance, network_agent, pacing, vip_pods, vip_programs, vrrp

# Cloud seconds: until a kubelet has started static pods, and between two looks at their files.
START_SECONDS = 30.0
LOOK_SECONDS = 5.0
# However fast the cloud's time runs, nobody looks more often than this (real seconds), nor all machines of a site
# together more often than that in one.
_FASTEST_LOOK = 0.1
_LOOKS_PER_SECOND = 200.0

# A changed config has to be seen so often before it is used, where nobody else sees to that.
_SIGHTINGS = 3
_PROGRAMS: dict[str, type[vip_programs.Running]] = {
    vip_pods.KEEPALIVED: vip_programs.Keepalived,
    vip_pods.HAPROXY: vip_programs.Haproxy,
    vip_pods.COREDNS: vip_programs.Coredns,
}


def wanted(machine: instance.Instance) -> bool:
    """Whether there is something to follow: a kubelet and such a pod, or a machine on which one may yet be placed."""
    disk = machine.provisioned
    if disk is None or "kubelet.service" not in disk.units:
        return False
    return machine.role == "bootstrap" or vip_pods.mentioned(machine)


async def follow(machine: instance.Instance) -> None:
    """Run the programs of such pods, as the machine's disk says, until it is switched off."""
    await lab.sleep(machine.clock, START_SECONDS)
    node = Node(machine)
    with pacing.among(machine.site, "static pods"):
        try:
            while True:
                if node.running or vip_pods.mentioned(machine):
                    await node.look()
                turn = pacing.turn(machine.site, "static pods", LOOK_SECONDS, _FASTEST_LOOK, _LOOKS_PER_SECOND)
                await lab.sleep(machine.clock, turn)
        finally:
            # Switched off: nobody is left to say good-bye.
            await node.stop(resigning=False)


class Node:
    """The programs of one machine, by pod and name, and the agents of its pods."""

    def __init__(self, machine: instance.Instance) -> None:
        self._machine = machine
        self._files = files.Files(machine)
        self._seen: dict[tuple[str, str], tuple[str | None, int]] = {}
        #: Configs that were refused, and the last complaint: neither is worth a second word.
        self._refused: dict[tuple[str, str], str] = {}
        self._told: dict[tuple[str, str], str] = {}
        self.running: dict[tuple[str, str], vip_programs.Running] = {}
        self._agents: dict[vip_pods.Agent, tuple[network_agent.Agent, asyncio.Task[None]]] = {}

    @property
    def private_ports(self) -> frozenset[int]:
        listening = (vip_programs.Haproxy, vip_programs.Coredns)
        return frozenset().union(*(each.private_ports for each in self.running.values() if isinstance(each, listening)))

    @property
    def redirects(self) -> dict[int, int]:
        """Where the firewall leads the API's port, once it does."""
        found: dict[int, int] = {}
        for each in self.running.values():
            if isinstance(each, vip_programs.Haproxy):
                found |= each.redirects
        return found

    async def look(self) -> None:
        """Bring what runs to what the disk says."""
        await self._look_at_agents()
        programs = {(each.pod, each.name): each for each in vip_pods.programs(self._files) if self._may_run(each)}
        for at in self.running.keys() - programs.keys():
            await self.running.pop(at).stop(resigning=True)
            self._seen.pop(at, None)
        for at, program in programs.items():
            config, sightings = self._seen.get(at, (None, 0))
            sightings = sightings + 1 if config == program.config else 1
            self._seen[at] = program.config, sightings
            running = self.running.get(at)
            refused = program.config is not None and program.config == self._refused.get(at)
            if running is None and not refused:
                await self._start(at, program)
            elif (
                running is not None
                and running.program.config != program.config
                and not refused
                and (program.rendered or sightings >= _SIGHTINGS)
            ):
                await self._reload(at, running, program)

    async def stop(self, *, resigning: bool) -> None:
        agents, self._agents = self._agents, {}
        for _, task in agents.values():
            task.cancel()
        await asyncio.gather(*(task for _, task in agents.values()), return_exceptions=True)
        running, self.running = self.running, {}
        for each in running.values():
            await each.stop(resigning=resigning)

    async def _look_at_agents(self) -> None:
        wanted = set(vip_pods.agents(self._files))
        for gone in self._agents.keys() - wanted:
            _, task = self._agents.pop(gone)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        for each in wanted - self._agents.keys():
            agent = network_agent.Agent(self._machine, each)
            task = asyncio.get_running_loop().create_task(agent.run(), name=f"network agent on {self._machine.name}")
            task.add_done_callback(vrrp.tell_defect)
            self._agents[each] = agent, task

    def _may_run(self, program: vip_pods.Program) -> bool:
        """Whether its turn has come: what an agent renders waits for that agent."""
        agents = [agent for about, (agent, _) in self._agents.items() if about.pod == program.pod]
        return not program.rendered or all(agent.lets(program) for agent in agents)

    async def _start(self, at: tuple[str, str], program: vip_pods.Program) -> None:
        """Start a program; one that refuses its config is tried again when that has changed."""
        try:
            if program.config is None:
                raise FileNotFoundError(f"cannot open {program.path}: No such file or directory")
            started = _PROGRAMS[program.name](self._machine, self, program)
            self.running[at] = started
            await started.start()
        except vip_programs.WRONG as wrong:
            self._refused[at] = program.config or ""
            self._complain(at, program, _placed(program, wrong))
        except OSError as problem:
            failed = self.running.pop(at, None)
            if failed is not None:
                await failed.stop(resigning=True)
            self._complain(at, program, str(problem))
        else:
            self._told.pop(at, None)

    async def _reload(self, at: tuple[str, str], running: vip_programs.Running, program: vip_pods.Program) -> None:
        """Let a program read its config again; what it refuses changes nothing, as if it had been looked at before."""
        self._machine.say(f"{program.name}: reloading {program.path}")
        try:
            await running.reload(program)
        except vip_programs.WRONG as wrong:
            self._refused[at] = program.config or ""
            self._machine.say(f"{program.name}: goes on with the config it has: {_placed(program, wrong)}")
        except OSError as problem:
            await self.running.pop(at).stop(resigning=True)
            self._complain(at, program, str(problem))

    def _complain(self, at: tuple[str, str], program: vip_pods.Program, why: str) -> None:
        if self._told.get(at) != why:
            self._told[at] = why
            self._machine.say(f"{program.name}: {why}")
            self._machine.say(f"kubelet: back-off restarting failed container {program.name} in pod {program.pod}")


def _placed(program: vip_pods.Program, wrong: Exception) -> str:
    """A complaint with the file that it is about; CoreDNS names it itself."""
    return str(wrong) if program.name == vip_pods.COREDNS else f"{program.path}: {wrong}"
