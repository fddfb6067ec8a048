"""VMs in the engine: found, and taken away step by step.

A VM of the right name is ours only if it bears the cluster's mark, in its description or as its tag; anybody else's is
left alone, whatever it is called. All that is to be known of a VM comes in one call. The engine removes a VM with every
disk that is attached to it, so those that somebody attached later, such as the cluster's volumes, are taken off before.
"""

from __future__ import annotations

from typing import Any, Final

from ovirtsdk4 import types

from moorage.engine import errors
from moorage.platforms.ovirt import client as clients
from moorage.platforms.ovirt import names

#: What is fetched along with a VM: all there is to know by those who may have to change it, and what tells how it is.
#: An engine follows every one of these by itself.
FOLLOW: Final = "tags,nics,disk_attachments.disk,reported_devices"
FOLLOW_STATE: Final = "tags,reported_devices"
#: Cloud seconds between two looks at a VM: its state changes no faster.
EVERY: Final = 5.0


def look(client: clients.Client, vm_id: str, follow: str = FOLLOW) -> Any | None:
    """The VM of that id, or None if there surely is none."""
    return client.look(f"look at VM {vm_id}", lambda api: api.vms_service().vm_service(vm_id).get(follow=follow))


def find(client: clients.Client, name: str, infra_id: str, *, contested: bool = True) -> Any | None:
    """The cluster's VM of that name; `Conflict` if it is somebody else's and the name is ``contested``."""
    found = client.named("vms", name, follow=FOLLOW)
    ours = [vm for vm in found if is_ours(vm, infra_id)]
    if found and not ours and contested:
        raise foreign(name, infra_id)
    return ours[0] if ours else None


def foreign(name: str, infra_id: str) -> errors.Conflict:
    """Somebody else's VM is in the way."""
    return errors.Conflict(
        f"there is a VM {name} that does not belong to the cluster {infra_id}",
        remedy=f"rename or remove that VM, or choose another name for the cluster: it bears neither the tag "
        f"{names.tag(infra_id)!r} nor the description {names.mark(infra_id)!r}",
    )


def tagged(client: clients.Client, infra_id: str) -> list[Any]:
    """The VMs that bear exactly the cluster's tag."""
    tag = names.tag(infra_id)
    found = client.call(
        f"look for VMs with the tag {tag}",
        lambda api: clients.everything(api.vms_service(), f"tag={clients.search_value(tag)}", follow=FOLLOW),
    )
    return [vm for vm in found if tag in tags_of(vm)]


def tags_of(vm: Any) -> set[str]:
    return {str(tag.name) for tag in vm.tags or []}


def is_ours(vm: Any, infra_id: str) -> bool:
    return names.marked(vm.description, infra_id) or names.tag(infra_id) in tags_of(vm)


def status(vm: Any) -> str:
    """The engine's word for the VM's state."""
    return str(vm.status) if vm.status is not None else "unknown"


def boot_disk(vm: Any) -> Any | None:
    """The attachment of the disk that the VM boots from; the only one, if none says so."""
    attachments = list(vm.disk_attachments or [])
    bootable = [each for each in attachments if each.bootable]
    return (bootable or attachments or [None])[0]


def add_tag(client: clients.Client, vm: Any, tag: str) -> None:
    client.call(
        f"tag VM {vm.name} with {tag}",
        lambda api: api.vms_service().vm_service(vm.id).tags_service().add(types.Tag(name=tag)),
        safe=False,
    )


def volumes(vm: Any, infra_id: str) -> list[Any]:
    """The attachments of disks that the VM was not made with: data, which stays when the VM goes."""
    return [
        each
        for each in vm.disk_attachments or []
        if not each.bootable and not (each.disk is not None and names.marked(each.disk.description, infra_id))
    ]


def take_away(client: clients.Client, vm: Any, infra_id: str) -> bool:
    """Do the next step of a VM's removal, its own disk included. True if that was to order it; else it is to be off."""
    now = status(vm)
    if now == "image_locked":
        raise errors.Transient(
            f"VM {vm.name} is locked", words="image_locked: the engine works on its disks", retry_after=EVERY
        )
    if now == "down":
        if volumes(vm, infra_id) and not _bared(client, vm, infra_id):
            return False
        client.call(f"remove VM {vm.name}", lambda api: api.vms_service().vm_service(vm.id).remove(), safe=False)
        return True
    if now != "powering_down":
        client.call(
            f"switch off VM {vm.name}", lambda api: api.vms_service().vm_service(vm.id).stop(force=True), safe=False
        )
    return False


def _bared(client: clients.Client, vm: Any, infra_id: str) -> bool:
    """Take the volumes off a VM and make sure that they are; False if the VM itself has gone meanwhile."""
    for each in volumes(vm, infra_id):
        _detach(client, vm, each)
    now = look(client, str(vm.id))
    if now is not None and (left := volumes(now, infra_id)):
        raise errors.Transient(
            f"VM {vm.name} still has {', '.join(map(disk_name, left))}, which shall stay", retry_after=EVERY
        )
    return now is not None


def _detach(client: clients.Client, vm: Any, attachment: Any) -> None:
    # It may be off already, if an answer was lost: that is no sign that the VM is gone.
    client.look(
        f"detach disk {disk_name(attachment)} from VM {vm.name}",
        lambda api: (
            api.vms_service()
            .vm_service(vm.id)
            .disk_attachments_service()
            .attachment_service(attachment.id)
            .remove(detach_only=True)
        ),
    )


def disk_name(attachment: Any) -> str:
    """What people know an attached disk as."""
    return str((attachment.disk.name if attachment.disk is not None else None) or attachment.id)
