"""A look at the engine before the first create: all that would go wrong later, told at once and with what to do.

Nothing is changed, and what can be asked once is asked once: about fifteen calls for a cluster of any size. Credentials
that the engine refuses are raised, since nothing else can be seen then; whatever else is found goes into the report.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from ovirtsdk4 import types

from moorage.assets import platform
from moorage.config import findings
from moorage.platforms import contract
from moorage.platforms.ovirt import capacity, clashes, machines_manifests, permits, places
from moorage.platforms.ovirt import client as clients
from moorage.platforms.ovirt import config as sections

OLDEST: Final = (4, 4)


def inspect(cluster: contract.Cluster, around: contract.Surroundings) -> contract.Report:
    """What the engine, its hosts and its storage have to say to this cluster."""
    return look(clients.shared(around), cluster, around)


def look(client: clients.Client, cluster: contract.Cluster, around: contract.Surroundings) -> contract.Report:
    """The same, through a client that is open already."""
    wanted = sections.settings(cluster.config)
    front = client.call("see whether the engine is there", lambda api: api.get())
    found: list[findings.Finding] = [*_engine(front), *_trust(client)]
    place = places.look(client, cluster.config)
    found += place.problems
    found += permits.check(client, front, cluster.config, place)
    taken = clashes.look(client, cluster.infra_id, place, upload=not wanted.template)
    found += taken.problems
    if not taken.ours:
        # Once machines of this cluster exist, they are who answers.
        found += clashes.addresses(client, wanted, around)
    limits: list[contract.Limit] = []
    if place.cluster is not None:
        _measure(client, cluster, place.cluster, place, taken, found, limits)
    return contract.Report(tuple(found), tuple(limits), tuple(places.reused(place)))


def _engine(front: types.Api) -> Iterator[findings.Finding]:
    version = front.product_info.version if front.product_info else None
    if version is None or version.major is None:
        yield findings.Finding(
            places.HERE, "the engine does not say which version it is", "warning", "oVirt 4.4 or newer is needed"
        )
    elif (version.major, version.minor or 0) < OLDEST:
        yield findings.Finding(
            places.HERE,
            f"it is oVirt {version.major}.{version.minor or 0}, and only {OLDEST[0]}.{OLDEST[1]} or newer will do",
            remedy="upgrade the engine",
        )


def _trust(client: clients.Client) -> Iterator[findings.Finding]:
    if client.who.insecure:
        yield findings.Finding(
            places.HERE,
            "the engine's certificate is not checked (ovirt_insecure), so anybody on the way can take the password",
            "warning",
            "put the engine's CA certificate into ovirt_ca_bundle and remove ovirt_insecure",
        )


def _measure(
    client: clients.Client,
    cluster: contract.Cluster,
    home: types.Cluster,
    place: places.Places,
    taken: clashes.Taken,
    found: list[findings.Finding],
    limits: list[contract.Limit],
) -> None:
    """Hosts, memory, processors and storage, as far as their places are known."""
    hosts = _of_cluster(client, "hosts", home)
    up = [capacity.host(each) for each in hosts if each.status == types.HostStatus.UP]
    resting = [str(each.name) for each in hosts if each.status != types.HostStatus.UP]
    found += capacity.apart(cluster.config, up, resting)
    if not up:
        found.append(
            findings.Finding(
                f"{places.HERE}.ovirt_cluster_id",
                f"cluster {home.name} has no host that is up",
                remedy="activate its hosts, or choose another cluster",
            )
        )
    policy = home.memory_policy
    overcommit = (policy.over_commit.percent if policy and policy.over_commit else None) or 100
    bootstrap = machines_manifests.bootstrap_pool(platform.Context(cluster.config, cluster.cluster_id, cluster.release))
    to_start = capacity.wanted(cluster.config, bootstrap, place.instance_types, taken.running)
    threads = capacity.processors(up, to_start, _promised(client, home))
    if up:
        found += capacity.sizes(up, to_start)
        found += capacity.promises(threads, overcommit)
        limits.append(capacity.memory(up, to_start, overcommit))
        limits += [threads] if threads.fits else []
    if place.storage is not None:
        to_make = capacity.wanted(cluster.config, bootstrap, place.instance_types, taken.ours)
        upload = not sections.settings(cluster.config).template and not taken.template
        limits.append(capacity.storage(place.storage, to_make, upload=upload))
        found += capacity.growth(place.storage, to_make)


def _promised(client: clients.Client, cluster: types.Cluster) -> int:
    """The processors of the machines that run there already."""
    running = [vm for vm in _of_cluster(client, "vms", cluster) if vm.status == types.VmStatus.UP]
    topologies = [vm.cpu.topology for vm in running if vm.cpu and vm.cpu.topology]
    return sum((each.sockets or 1) * (each.cores or 1) * (each.threads or 1) for each in topologies)


def _of_cluster(client: clients.Client, collection: str, cluster: types.Cluster) -> list[Any]:
    value = clients.search_value(cluster.name)
    search = f"cluster={value}" if value else ""
    found = client.call(
        f"list the {collection} of cluster {cluster.name}",
        lambda api: clients.everything(getattr(api, f"{collection}_service")(), search),
    )
    # The search takes `*` for anything and does not tell capitals from small letters.
    return [each for each in found if each.cluster is not None and each.cluster.id == cluster.id]
