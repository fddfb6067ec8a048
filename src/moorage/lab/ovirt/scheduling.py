"""On which host a machine starts: the engine's filters, one after the other, and then the preferences among the rest.

A filter takes hosts away and says why for each; if none is left, the refusal lists every host with the filter that took
it. Enforced affinity filters, the other kind only prefers. All of this computes on values: who asks, gathers them.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence

MIB = 1024**2
# What a host keeps for itself, and what the emulator takes besides the machine's memory.
HOST_RESERVED = 1024 * MIB
OVERHEAD = 256 * MIB

FILTERED = "Cannot run VM. There is no host that satisfies current scheduling constraints. See below for details:"
NO_HOSTS = "There are no hosts to use. Check that the cluster contains at least one host in Up state."


class Unschedulable(Exception):  # noqa: N818 - a finding of the scheduler, turned into a fault by who asked
    """No host will do; ``lines`` are the engine's words."""

    def __init__(self, lines: Sequence[str]) -> None:
        super().__init__(", ".join(lines))
        self.lines = list(lines)


@dataclasses.dataclass(frozen=True)
class Host:
    """A host that is up."""

    id: str
    name: str
    threads: int
    memory: int


@dataclasses.dataclass(frozen=True)
class Group:
    """An affinity group whose rule for machines is enabled."""

    name: str
    positive: bool
    enforcing: bool
    vms: frozenset[str]
    priority: float = 1.0


@dataclasses.dataclass(frozen=True)
class Wanted:
    """A machine: what it needs of a host. ``pinned`` are the hosts it may run on, all if there are none."""

    id: str
    memory: int
    threads: int
    pinned: frozenset[str] = frozenset()


@dataclasses.dataclass(frozen=True)
class Running:
    """A machine that is on a host, or about to be."""

    id: str
    host: str
    memory: int


_Verdict = Callable[[Host], str]


def choose(wanted: Wanted, hosts: Sequence[Host], running: Sequence[Running], groups: Sequence[Group]) -> Host:
    """The host to start on."""
    if not hosts:
        raise Unschedulable([NO_HOSTS])
    mine = [group for group in groups if wanted.id in group.vms]
    left, complaints = list(hosts), dict[str, str]()
    for name, verdict in _filters(wanted, running, mine):
        found = {host.id: verdict(host) for host in left}
        for host in left:
            if found[host.id]:
                complaints[host.id] = (
                    f"The host {host.name} did not satisfy internal filter {name} because {found[host.id]}."
                )
        left = [host for host in left if not found[host.id]]
    if not left:
        raise Unschedulable([FILTERED, *(complaints[host.id] for host in hosts)])
    return max(left, key=lambda host: _liking(host, wanted, running, mine))


def free_memory(host: Host, running: Sequence[Running]) -> int:
    """What machines may still take of a host's memory."""
    taken = sum(each.memory + OVERHEAD for each in running if each.host == host.id)
    return host.memory - HOST_RESERVED - taken


def _filters(wanted: Wanted, running: Sequence[Running], groups: Sequence[Group]) -> Sequence[tuple[str, _Verdict]]:
    return (
        ("PinToHost", lambda host: _pinned(host, wanted)),
        ("CPU", lambda host: _cores(host, wanted)),
        ("Memory", lambda host: _memory(host, wanted, running)),
        ("VmAffinityGroups", _affinity(groups, wanted, running)),
    )


def _pinned(host: Host, wanted: Wanted) -> str:
    # The engine's own sentence ends with a full stop already, and gets another.
    allowed = not wanted.pinned or host.id in wanted.pinned
    return "" if allowed else "the host is not present in the pinning list."


def _cores(host: Host, wanted: Wanted) -> str:
    # Threads may be promised to many machines, but one machine cannot have more than there are.
    fits = wanted.threads <= host.threads
    return "" if fits else "it has an insufficient amount of CPU cores to run the VM"


def _memory(host: Host, wanted: Wanted, running: Sequence[Running]) -> str:
    free = free_memory(host, running)
    if wanted.memory + OVERHEAD <= free:
        return ""
    return f"its available memory is too low ({max(0, free) // MIB} MB) to run the VM"


def _affinity(groups: Sequence[Group], wanted: Wanted, running: Sequence[Running]) -> _Verdict:
    together = _hosts_of(groups, wanted, running, positive=True)
    apart = _hosts_of(groups, wanted, running, positive=False)

    def verdict(host: Host) -> str:
        # The engine means to name the rules and never does: what stays is the space.
        if together and host.id not in together:
            return "it did not match positive affinity rules "
        return "it matched negative affinity rules " if host.id in apart else ""

    return verdict


def _hosts_of(groups: Sequence[Group], wanted: Wanted, running: Sequence[Running], *, positive: bool) -> frozenset[str]:
    members = {vm for group in groups if group.enforcing and group.positive == positive for vm in group.vms}
    return frozenset(each.host for each in running if each.id in members and each.id != wanted.id)


def _liking(host: Host, wanted: Wanted, running: Sequence[Running], groups: Sequence[Group]) -> tuple[float, int, int]:
    """How much a host is preferred: by soft affinity, then where most memory is free, then as hosts are listed."""
    here = {each.id for each in running if each.host == host.id and each.id != wanted.id}
    soft = sum(
        (1 if group.positive else -1) * (1 + group.priority) * len(here & group.vms)
        for group in groups
        if not group.enforcing
    )
    return soft, free_memory(host, running), -len(here)


def threads_of(topology: Mapping[str, int]) -> int:
    """How many threads a topology has."""
    return topology.get("cores", 1) * topology.get("sockets", 1) * topology.get("threads", 1)
