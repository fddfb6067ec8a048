"""One datacentre in one event loop: its network, names, balancers, machines, and what was asked of its APIs.

A site claims a 127.N.0.0/16 of its own, so that several labs live side by side and every machine has an address on
which its services listen on their real ports. The platforms' APIs are faces of the same site: they share its machines,
names, faults and quotas.
"""

from __future__ import annotations

import contextlib
import errno
import ipaddress
import random
import socket
from collections.abc import Mapping
from typing import TYPE_CHECKING

from moorage import errors, lab
from moorage.engine import clock as clocks
from moorage.lab import balancer, calls, faults, name_server, names

if TYPE_CHECKING:
    from moorage.lab.nodes import cluster, instance

# The last address of a site is never given away: listening there is the claim to the network.
_CLAIM_PORT = 22621
_FIRST_PRIVILEGED, _PRIVILEGED_OFFSET = 1024, 10_000
# What machines listen on: if somebody else holds one of these on all addresses, no cluster can come up here.
_INGRESS_PORTS, _CLUSTER_PORTS = (80, 443), (6443, 22623)
_SECOND_OCTETS = range(16, 250)
# The first addresses of the site are its own, for its name server; those of other networks stay free likewise.
_FIRST_MACHINE = 256
_NETWORK_PREFIX = 20
DEFAULT_NETWORK = "default"


class SiteRefused(errors.MoorageError):
    """What was asked of the site cannot be had."""


class Unresolved(OSError):  # noqa: N818 - as the engine names its own
    """A name leads nowhere."""


class Quotas:
    """How much of everything may exist; what has no limit is not limited."""

    def __init__(self) -> None:
        self.limits: dict[str, int] = {}

    def set(self, limits: Mapping[str, int | None]) -> None:
        """Set limits by name; None lifts one."""
        for name, limit in limits.items():
            if limit is not None and (isinstance(limit, bool) or not isinstance(limit, int) or limit < 0):
                raise SiteRefused(f"quota {name}: {limit!r} is not a whole number", remedy="use 0 or more, or null")
        for name, limit in limits.items():
            if limit is None:
                self.limits.pop(name, None)
            else:
                self.limits[name] = limit

    def exceeded(self, name: str, used: int, wanted: int = 1) -> str:
        """Why no more of ``name`` may be made, or nothing."""
        limit = self.limits.get(name)
        if limit is None or used + wanted <= limit:
            return ""
        return f"quota exceeded for {name}: {used} of {limit} used, {wanted} more wanted"


class Site:
    """The datacentre. To be used from the thread of one event loop, after `start`."""

    def __init__(self, clock: clocks.Clock) -> None:
        self.clock = clock
        self.calls = calls.CallLog(clock)
        self.faults = faults.Faults(clock)
        self.quotas = Quotas()
        self.zones = names.Zones()
        self.balancer = balancer.Balancer(clock)
        self.instances: dict[str, instance.Instance] = {}
        self.clusters: dict[str, cluster.Cluster] = {}
        self.network = ipaddress.IPv4Network("127.0.0.0/16")
        self.networks: dict[str, ipaddress.IPv4Network] = {}
        self.nameserver: name_server.NameServer
        self._claim: socket.socket | None = None
        self._taken: set[str] = set()
        self._holders: dict[str, instance.Instance] = {}
        self._privileged = True

    async def start(self) -> None:
        """Claim a network and begin to answer for names."""
        self.network, self._claim = _claimed()
        try:
            self._look_at_ports()
            self._cut_networks()
            self.nameserver = name_server.NameServer(self.zones, self.clock, str(self.network[1]))
            await self.nameserver.start()
        except BaseException:
            self._claim.close()
            raise

    async def stop(self) -> None:
        """Switch everything off and give the network back."""
        await self.clear()
        await self.nameserver.stop()
        if self._claim is not None:
            self._claim.close()

    async def clear(self) -> None:
        """Remove machines, clusters, balancers, names, quotas and faults; what was called stays recorded."""
        await self.balancer.stop()
        while self.instances or self.clusters:
            # One at a time, for others may come or go while one ends.
            if self.instances:
                await next(iter(self.instances.values())).delete()
            else:
                await self.clusters.pop(next(iter(self.clusters))).stop()
        self.zones.clear()
        self.quotas.limits.clear()
        self.faults.clear()
        self._taken.clear()
        self._cut_networks()

    def port(self, number: int) -> int:
        """Where a service of that port is found: there, unless this user may not listen on ports below 1024."""
        return number if self._privileged or number >= _FIRST_PRIVILEGED else number + _PRIVILEGED_OFFSET

    @property
    def privileged(self) -> bool:
        """Whether services can listen on their real ports, the ones below 1024 too."""
        return self._privileged

    def add_network(self, name: str) -> ipaddress.IPv4Network:
        """Cut another network out of the site's own; adding it twice changes nothing."""
        if name not in self.networks:
            free = set(self.network.subnets(new_prefix=_NETWORK_PREFIX)) - set(self.networks.values())
            if not free:
                raise SiteRefused("there is no room for another network", remedy="remove one, or reset the lab")
            self.networks[name] = min(free)
        return self.networks[name]

    def remove_network(self, name: str) -> None:
        """Give a network back that has no machines on it any more."""
        if name == DEFAULT_NETWORK:
            raise SiteRefused(f"network {name} is there for good", remedy="remove what is on it, if it is in the way")
        found = self.networks.get(name)
        used = [each for each in self._taken if found is not None and ipaddress.ip_address(each) in found]
        if used:
            raise SiteRefused(f"network {name} is in use: {', '.join(sorted(used)[:5])}", remedy="delete those first")
        self.networks.pop(name, None)

    def allocate(self, address: str = "", network: str = DEFAULT_NETWORK) -> str:
        """Take an address on a network of this site: the one asked for, or the next that is free."""
        if network not in self.networks:
            raise SiteRefused(f"there is no network {network}", remedy=f"networks: {', '.join(self.networks)}")
        if address:
            return self._reserved(address, self.networks[network])
        within = self.networks[network]
        for number in range(_FIRST_MACHINE, within.num_addresses - 1):
            found = str(within[number])
            # Addresses that end in 0 or 255 look wrong to people.
            if number % 256 not in (0, 255) and found not in self._taken:
                self._taken.add(found)
                return found
        raise SiteRefused(f"no address is free in {within}", remedy="delete machines, or reset the lab")

    def release(self, address: str) -> None:
        """Give an address back; giving back what was not taken changes nothing."""
        self._taken.discard(address)

    def house(self, machine: instance.Instance) -> None:
        """Take in a machine whose address was allocated."""
        self.instances[machine.name] = self._holders[machine.address] = machine

    def evict(self, machine: instance.Instance) -> None:
        """Let a machine go, and its address."""
        if self.instances.get(machine.name) is machine:
            del self.instances[machine.name], self._holders[machine.address]
            self.release(machine.address)

    def instance_at(self, address: str) -> instance.Instance | None:
        """The machine with that address."""
        return self._holders.get(address)

    async def resolve(self, name: str) -> list[str]:
        """What a machine learns when it looks up a name; an address stands for itself."""
        with contextlib.suppress(ValueError):
            return [str(ipaddress.ip_address(name))]
        try:
            reply = self.zones.lookup(names.parsed(name), names.KINDS["A"])
        except names.RecordRefused:
            reply = names.Reply(names.NXDOMAIN)
        found = [str(ipaddress.IPv4Address(each.data)) for each in reply.answers if each.kind == names.KINDS["A"]]
        if not found:
            server = f"{self.nameserver.host}:{self.nameserver.port}"
            why = "server misbehaving" if reply.code == names.REFUSED else "no such host"
            raise Unresolved(f"lookup {name} on {server}: {why}")
        return found

    def _look_at_ports(self) -> None:
        """Find out where services can listen, and that nobody holds what they need."""
        at = str(self.network[-2])
        self._privileged = all(_may_listen(at, port) for port in _INGRESS_PORTS)
        for port in map(self.port, (*_INGRESS_PORTS, *_CLUSTER_PORTS)):
            if not _may_listen(at, port):
                raise SiteRefused(
                    f"port {port} is taken on every address of this machine, so no cluster can come up here",
                    remedy=f"stop what listens on it (see: ss -tlnp 'sport = {port}')",
                )

    def _cut_networks(self) -> None:
        self.networks.clear()
        self.add_network(DEFAULT_NETWORK)

    def _reserved(self, address: str, within: ipaddress.IPv4Network) -> str:
        found = lab.loopback(address)
        if ipaddress.ip_address(found) not in within:
            raise SiteRefused(f"{address} is not in that network", remedy=f"choose one within {within}")
        if found in self._taken or found in (self.nameserver.host, str(self.network[-2])):
            raise SiteRefused(f"{address} is taken", remedy="leave it out, and the lab chooses")
        self._taken.add(found)
        return found


def _claimed() -> tuple[ipaddress.IPv4Network, socket.socket]:
    octets = list(_SECOND_OCTETS)
    random.shuffle(octets)
    for octet in octets:
        network = ipaddress.IPv4Network(f"127.{octet}.0.0/16")
        claim = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        try:
            claim.bind((str(network[-2]), _CLAIM_PORT))
            claim.listen(1)
        except OSError as problem:
            claim.close()
            if problem.errno != errno.EADDRINUSE:
                raise SiteRefused(f"cannot listen within {network}: {problem.strerror}") from problem
            continue
        return network, claim
    raise SiteRefused("every loopback network is taken", remedy="stop other labs: moorage lab stop")


def _may_listen(address: str, port: int) -> bool:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((address, port))
        except OSError:
            return False
    return True
