"""What is in the way: names that others have, and addresses that somebody answers at.

A thing is ours if it bears the cluster's mark, so a run that is taken up again finds its own things and does not mind
them. Addresses are tried out: by what the engine knows of its guests, and by a knock at the doors a cluster opens.
"""

from __future__ import annotations

import concurrent.futures
import dataclasses
import errno
import ipaddress
import socket
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

from ovirtsdk4 import types

from moorage.config import findings
from moorage.engine import errors
from moorage.platforms import contract
from moorage.platforms.ovirt import client as clients
from moorage.platforms.ovirt import config as sections
from moorage.platforms.ovirt import names, places

DOORS: Final = (6443, 443, 22)
_KNOCK_SECONDS: Final = 1.5

Knock = Callable[[str, int], str]
"""Tries an address and port: what came of it, empty for silence."""


@dataclasses.dataclass(frozen=True)
class Taken:
    """What bears the cluster's names: others' things as findings, its own machines by role."""

    problems: tuple[findings.Finding, ...]
    ours: Mapping[str, int]
    template: bool
    running: Mapping[str, int]
    """Our machines that are on, so that their memory is counted in what the hosts have given away."""


def look(client: clients.Client, infra_id: str, found: places.Places, *, upload: bool) -> Taken:
    """Look for everything that has a name this cluster would use."""
    vms = _vms(client, infra_id)
    ours = [vm for vm in vms if _is_ours(vm, infra_id)]
    problems = [_clash("VM", vm, infra_id) for vm in vms if vm not in ours]
    template = False
    if upload:
        wanted = names.template(infra_id)
        templates, disks = client.named("templates", wanted), client.named("disks", wanted)
        template = any(_is_ours(each, infra_id) for each in templates)
        problems += [_clash("template", each, infra_id) for each in templates if not _is_ours(each, infra_id)]
        problems += [_clash("disk", each, infra_id) for each in disks if not _is_ours(each, infra_id)]
    tags = client.call("list the tags", lambda api: clients.everything(api.tags_service()))
    mine = (names.tag(infra_id), names.bootstrap_tag(infra_id))
    problems += [_clash("tag", tag, infra_id) for tag in tags if tag.name in mine and not _is_ours(tag, infra_id)]
    if found.cluster is not None:
        problems += _groups(client, infra_id, found.cluster.id)
    on = [vm for vm in ours if vm.status not in (None, types.VmStatus.DOWN, types.VmStatus.IMAGE_LOCKED)]
    return Taken(tuple(problems), _by_role(ours, infra_id), template, _by_role(on, infra_id))


def _vms(client: clients.Client, infra_id: str) -> list[Any]:
    prefix = f"{infra_id}-"
    value = clients.search_value(f"{prefix}*")
    found = client.call(
        "look for VMs with the cluster's names",
        lambda api: clients.everything(api.vms_service(), f"name={value}", follow="tags"),
    )
    return [vm for vm in found if str(vm.name).startswith(prefix)]


def _groups(client: clients.Client, infra_id: str, cluster_id: str) -> Iterator[findings.Finding]:
    groups = client.call(
        "list the affinity groups",
        lambda api: clients.everything(api.clusters_service().cluster_service(cluster_id).affinity_groups_service()),
    )
    for group in groups:
        if str(group.name).startswith(f"{infra_id}-") and not _is_ours(group, infra_id):
            yield _clash("affinity group", group, infra_id)


def _is_ours(thing: Any, infra_id: str) -> bool:
    if names.marked(thing.description, infra_id):
        return True
    tags = getattr(thing, "tags", None) or ()
    return any(tag.name == names.tag(infra_id) for tag in tags)


def _clash(kind: str, thing: Any, infra_id: str) -> findings.Finding:
    return findings.Finding(
        "metadata.name",
        f"{kind} {thing.name} exists and is not this cluster's: it lacks the mark {names.mark(infra_id)!r}",
        remedy=f"rename or remove that {kind}, or install in an empty directory: the cluster then gets other names",
    )


def _by_role(vms: Sequence[Any], infra_id: str) -> dict[str, int]:
    """How many machines there are of each role, by their names."""
    words = [str(vm.name).removeprefix(f"{infra_id}-").partition("-")[0] for vm in vms]
    return dict(Counter(words))


def addresses(
    client: clients.Client, wanted: sections.Platform, around: contract.Surroundings, knock: Knock | None = None
) -> Iterator[findings.Finding]:
    """The shared addresses of the cluster that somebody has already."""
    vips = {
        vip: f"{places.HERE}.{name}[{index}]"
        for name in ("api_vips", "ingress_vips", "dns_vips")
        for index, vip in enumerate(getattr(wanted, name))
    }
    taken = {vip: holder for vip in vips if (holder := _guest(client, vip))}
    for vip, field in vips.items():
        if vip in taken:
            yield _occupied(field, vip, f"VM {taken[vip]} of this engine has it")
    try_out = knock or knocker(around)
    quiet = [vip for vip in vips if vip not in taken]
    with concurrent.futures.ThreadPoolExecutor(max_workers=16) as pool:
        tries = {vip: [pool.submit(try_out, vip, door) for door in DOORS] for vip in quiet}
        for vip, futures in tries.items():
            answers = [answer for future in futures if (answer := future.result())]
            if answers:
                yield _occupied(vips[vip], vip, answers[0])


def _occupied(field: str, vip: str, how: str) -> findings.Finding:
    return findings.Finding(
        field, f"{vip} is not free: {how}", remedy="give an address that no machine has and no DHCP server gives away"
    )


def _guest(client: clients.Client, vip: str) -> str:
    """The name of a VM whose agent reports the address; empty if there is none, or the engine cannot say."""
    try:
        found = client.call(
            f"look for a VM with the address {vip}",
            lambda api: clients.everything(
                api.vms_service(), f"ip={clients.search_value(f'*{vip}*')}", follow="reported_devices"
            ),
        )
    except (errors.Terminal, errors.Conflict):
        return ""
    for vm in found:
        for device in vm.reported_devices or ():
            if any(same(ip.address, vip) for ip in device.ips or ()):
                return str(vm.name)
    return ""


def same(one: str | None, other: str) -> bool:
    """Whether two spellings are one address."""
    try:
        return ipaddress.ip_address(one or "") == ipaddress.ip_address(other)
    except ValueError:
        return False


def knocker(around: contract.Surroundings) -> Knock:
    """Knocks at real doors, and waits for an answer no longer than one takes in a network."""
    seconds = around.clock.socket_timeout(_KNOCK_SECONDS)

    def knock(address: str, door: int) -> str:
        try:
            socket.create_connection((address, door), timeout=seconds).close()
        except OSError as problem:
            # A refusal is an answer too: a machine is there. Only on the loopback everybody is refused by ourselves.
            refused = problem.errno == errno.ECONNREFUSED and not ipaddress.ip_address(address).is_loopback
            return f"a machine refuses connections to port {door} there" if refused else ""
        return f"somebody answers at port {door}"

    return knock
