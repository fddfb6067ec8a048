"""Finding what belongs to a cluster in the engine: by tag and by mark, exactly, wherever it is.

Searches only narrow: the engine's know wildcards, and one cluster's id may begin like another's. What was left half
made counts as well: an upload that still runs, a disk that no VM ever got, a VM that was never tagged. Masters go
before all else: controllers on them would heal and scale what is being removed. What those made in their last moments
is found by the next round's look. Tags go last, since by them the rest is found. Volumes of the cluster's users bear no
mark: they are data, taken off the VMs and kept.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

from moorage.engine import errors, secret
from moorage.platforms import contract
from moorage.platforms.ovirt import client as clients
from moorage.platforms.ovirt import credentials as credential
from moorage.platforms.ovirt import names, transfer, vms

#: The engine shows what it has written down; only a call whose reply was lost may still be on its way there.
SETTLE: Final = 15.0

_MASTERS, _MACHINES, _TEMPLATES, _REST, _TAGS = range(5)
_GIB: Final = 1024**3


def discover(
    metadata: contract.Metadata, scope: contract.Scope, around: contract.Surroundings
) -> Sequence[contract.Remnant]:
    """All that bears the cluster's mark, or only the bootstrap's share of it."""
    client, infra_id = clients.shared(around), metadata.infra_id
    machines = _machines(client, infra_id)
    tags = [tag for tag in _tags(client) if names.marked(tag.description, infra_id)]
    if scope == "bootstrap":
        special = names.bootstrap_tag(infra_id)
        machines = [vm for vm in machines if vm.name == names.bootstrap(infra_id) or special in vms.tags_of(vm)]
        return [
            *(_machine(client, vm, _MACHINES, infra_id) for vm in machines),
            *(_tag(client, tag) for tag in tags if tag.name == special),
        ]
    templates = _templates(client, infra_id)
    held = _attached(machines) | _attached(templates)
    disks = _disks(client, infra_id)
    loose = _loose(client, [disk for disk in disks if disk.id not in held])
    disks = [disk for disk in disks if disk.id in held or disk in loose]
    running = [each for each in transfer.everything(client) if each.live] if disks else []
    return [
        *(_upload(client, each, disk) for disk in disks for each in running if each.disk_id == disk.id),
        *(_machine(client, vm, _stage(vm, infra_id), infra_id) for vm in machines),
        *(_template(client, each) for each in templates),
        *(_disk(client, disk) for disk in loose),
        *_groups(client, infra_id),
        *(_tag(client, tag) for tag in tags),
    ]


def secrets(_metadata: contract.Metadata, around: contract.Surroundings) -> Sequence[secret.Secret]:
    return credential.read(around.environ).secrets


# -- finding -----------------------------------------------------------------------------------------------------------


def _machines(client: clients.Client, infra_id: str) -> list[Any]:
    """The cluster's VMs: the tagged ones, and those that were never tagged but say whose they are."""
    named = client.call(
        f"look for VMs named {infra_id}-*",
        lambda api: clients.everything(api.vms_service(), _beginning("name", infra_id), follow=vms.FOLLOW),
    )
    found = {vm.id: vm for vm in vms.tagged(client, infra_id)}
    found |= {vm.id: vm for vm in named if vms.is_ours(vm, infra_id)}
    return list(found.values())


def _templates(client: clients.Client, infra_id: str) -> list[Any]:
    found = client.call(
        f"look for templates named {infra_id}-*",
        lambda api: clients.everything(
            api.templates_service(), _beginning("name", infra_id), follow="disk_attachments"
        ),
    )
    return [each for each in found if names.marked(each.description, infra_id)]


def _disks(client: clients.Client, infra_id: str) -> list[Any]:
    found = client.call(
        f"look for disks named {infra_id}-*",
        lambda api: clients.everything(api.disks_service(), _beginning("alias", infra_id)),
    )
    return [each for each in found if names.marked(each.description, infra_id)]


def _loose(client: clients.Client, disks: Sequence[Any]) -> list[Any]:
    """Those that nobody has. A disk made from our template inherits our mark, in somebody else's VM or template too."""
    if not disks:
        return []
    templates = client.call(
        "list the templates", lambda api: clients.everything(api.templates_service(), follow="disk_attachments")
    )
    elsewhere = _attached(templates)

    def is_loose(disk: Any) -> bool:
        now = client.look(
            f"look who has disk {disk.id}",
            lambda api: api.disks_service().disk_service(disk.id).get(all_content=True),
        )
        return now is not None and not now.vms

    return [disk for disk in disks if disk.id not in elsewhere and is_loose(disk)]


def _tags(client: clients.Client) -> list[Any]:
    return client.call("list the tags", lambda api: clients.everything(api.tags_service()))


def _groups(client: clients.Client, infra_id: str) -> Iterable[contract.Remnant]:
    """Affinity groups belong to clusters of the engine, and nothing but they can be asked for them."""
    for cluster in client.call("list the clusters", lambda api: clients.everything(api.clusters_service())):
        for group in _groups_in(client, str(cluster.id)):
            if names.marked(group.description, infra_id):
                yield _group(client, str(cluster.id), group)


def _groups_in(client: clients.Client, cluster_id: str) -> list[Any]:
    return client.call(
        f"list the affinity groups of cluster {cluster_id}", lambda api: list(_group_service(api, cluster_id).list())
    )


def _beginning(key: str, infra_id: str) -> str:
    return f"{key}={infra_id}*"


def _attached(things: Iterable[Any]) -> set[str]:
    """The disks that go when these go."""
    return {
        str(each.disk.id if each.disk is not None else each.id)
        for thing in things
        for each in thing.disk_attachments or []
    }


# -- removing ----------------------------------------------------------------------------------------------------------


def _stage(vm: Any, infra_id: str) -> int:
    """A name may mislead; then a machine goes in the wrong order, and a later round removes what came of that."""
    return _MASTERS if str(vm.name).startswith(f"{infra_id}-master-") else _MACHINES


def _machine(client: clients.Client, vm: Any, stage: int, infra_id: str) -> contract.Remnant:
    ident = str(vm.id)
    spared: list[str] = []
    # As it was found, for the first step of one that runs: who removes a VM must know what is attached to it now.
    # And whether its removal was ordered just now, which takes seconds.
    seen, ordered = [vm], threading.Event()

    def remove() -> None:
        now = seen.pop() if seen and vms.status(seen[0]) != "down" else vms.look(client, ident)
        if now is None:
            return
        off = vms.status(now) == "down"
        if off:
            # Before they are taken off: afterwards nobody could tell whose they were.
            spared.extend(map(_volume, vms.volumes(now, infra_id)))
        vms.take_away(client, now, infra_id)
        if not off:
            raise errors.Transient(f"waiting for VM {now.name} to be off", retry_after=vms.EVERY)
        ordered.set()

    def present() -> bool:
        if ordered.is_set():
            ordered.clear()
            return True
        return vms.look(client, ident) is not None

    return contract.Remnant("VM", str(vm.name), stage, remove, present, spared)


def _volume(attachment: Any) -> str:
    """A disk that stays, as people are told of it; the engine knows no size of a LUN's own."""
    size = (attachment.disk.provisioned_size if attachment.disk is not None else None) or 0
    return f"disk {vms.disk_name(attachment)}{f' ({size / _GIB:g} GiB)' if size else ''}"


def _upload(client: clients.Client, found: transfer.Transfer, disk: Any) -> contract.Remnant:
    def remove() -> None:
        now = transfer.look(client, found.id)
        if now.live and not now.ending:
            transfer.cancel(client, found.id)

    return contract.Remnant(
        "image transfer", str(disk.name), _MACHINES, remove, lambda: transfer.look(client, found.id).live
    )


def _template(client: clients.Client, found: Any) -> contract.Remnant:
    return _remnant(
        client, "template", found, _TEMPLATES, lambda api: api.templates_service().template_service(found.id)
    )


def _disk(client: clients.Client, found: Any) -> contract.Remnant:
    return _remnant(client, "disk", found, _REST, lambda api: api.disks_service().disk_service(found.id))


def _group(client: clients.Client, cluster_id: str, found: Any) -> contract.Remnant:
    return _remnant(
        client, "affinity group", found, _REST, lambda api: _group_service(api, cluster_id).group_service(found.id)
    )


def _tag(client: clients.Client, found: Any) -> contract.Remnant:
    return _remnant(client, "tag", found, _TAGS, lambda api: api.tags_service().tag_service(found.id))


def _remnant(
    client: clients.Client, kind: str, found: Any, stage: int, service: Callable[[Any], Any]
) -> contract.Remnant:
    label = f"{kind} {found.name}"

    def present() -> bool:
        return client.look(f"look at {label}", lambda api: service(api).get()) is not None

    def remove() -> None:
        client.call(f"remove {label}", lambda api: service(api).remove(), safe=False)

    return contract.Remnant(kind, str(found.name), stage, remove, present)


def _group_service(api: Any, cluster_id: str) -> Any:
    return api.clusters_service().cluster_service(cluster_id).affinity_groups_service()
