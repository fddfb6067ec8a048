"""The template that all VMs of a cluster are made from: the boot image, uploaded once.

The engine makes templates of VMs only. So the image becomes a disk, the disk a temporary VM's, that VM the template;
then VM and disk go. It is one resource of the flow, because only its end is worth anything: every step looks first what
is there, and a run that died anywhere in between is carried on by the next one.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, ClassVar, Final

from ovirtsdk4 import types

from moorage.assets import releases
from moorage.engine import context, errors, outputs, resource
from moorage.platforms.ovirt import client as clients
from moorage.platforms.ovirt import images, machine_steps, names, qcow2, transfer, upload, vms

_EVERY: Final = 5.0
#: The engine learns of the end of long work every ten seconds.
_LONG_EVERY: Final = 10.0
_TRIES: Final = 3
_OTHER_OS: Final = "other_linux"
_MEMORY: Final = 1024**3


@dataclasses.dataclass(frozen=True)
class Made:
    """A thing of the engine's: its id, empty while it is only half made."""

    id: str
    name: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class Template(resource.Resource[Made]):
    """The boot image as a template of the engine."""

    kind: ClassVar[str] = "template"

    client: clients.Client = dataclasses.field(repr=False)
    environ: Mapping[str, str] = dataclasses.field(repr=False)
    infra_id: str
    image: releases.BootImage
    cluster_id: str
    storage_domain_id: str
    network: str
    vnic_profile_id: str = ""
    settle: float = 10.0

    @property
    def full_name(self) -> str:
        return names.template(self.infra_id)

    # -- the contract ------------------------------------------------------------------------------------------------

    def lookup(self, inputs: outputs.Inputs, ctx: context.Context) -> Made | None:
        found = self._template()
        if found is not None:
            return Made(str(found.id), self.full_name)
        begun = self._vm() or self._disk(ctx)
        return Made("", self.full_name) if begun is not None else None

    def create(self, inputs: outputs.Inputs, ctx: context.Context) -> str | None:
        return str(self._new_disk(ctx).id)

    def wait(self, inputs: outputs.Inputs, ctx: context.Context) -> Made:
        # Who has just begun has looked already: nothing but the new disk is there.
        found = None if ctx.fresh else self._template()
        if found is None:
            vm = None if ctx.fresh else self._vm()
            disk_id = self._filled_disk(vm, ctx)
            found = self._new_template(self._temporary_vm(vm, disk_id, ctx))
            ctx.sleep(_LONG_EVERY)
        ident = str(found.id)
        ctx.poll(lambda: self._usable(ident), what=f"template {self.full_name} to be made", every=_LONG_EVERY)
        self._remove_vm(ctx)
        return Made(ident, self.full_name)

    def delete(self, inputs: outputs.Inputs, output: Made, ctx: context.Context) -> None:
        """Remove the template and whatever of its making is left."""
        ctx.poll(self._template_gone, what=f"template {self.full_name} to be gone", every=_EVERY)
        self._remove_vm(ctx)
        while (disk := self._disk(ctx)) is not None:
            self._remove_disk(str(disk.id), ctx)

    # -- the template ------------------------------------------------------------------------------------------------

    def _template(self) -> Any | None:
        found = self.client.named("templates", self.full_name)
        ours = [each for each in found if names.marked(each.description, self.infra_id)]
        if found and not ours:
            raise errors.Conflict(
                f"there is a template {self.full_name} that does not belong to the cluster",
                remedy=f"rename or remove it: its description is not {names.mark(self.infra_id)!r}",
            )
        return ours[0] if ours else None

    def _new_template(self, vm_id: str) -> Any:
        wanted = types.Template(name=self.full_name, description=names.mark(self.infra_id), vm=types.Vm(id=vm_id))
        query = {"correlation_id": names.correlation(self.infra_id, "template")}
        try:
            return self.client.call(
                f"make template {self.full_name}",
                lambda api: api.templates_service().add(wanted, query=query),
                safe=False,
            )
        except errors.AlreadyExists as exists:
            # The list that did not show it lags behind; `wait` looks again.
            raise errors.Transient(exists.message, words=exists.words, retry_after=_EVERY) from exists

    def _usable(self, ident: str) -> bool | None:
        try:
            found = self.client.call(
                f"look at template {self.full_name}",
                lambda api: api.templates_service().template_service(ident).get(),
            )
        except errors.NotFound as gone:
            raise self._failed("template", "the engine gave the template up") from gone
        if str(found.status) == "illegal":
            raise self._failed("template", f"template {self.full_name} is illegal")
        return True if str(found.status) == "ok" else None

    def _template_gone(self) -> bool | None:
        found = self._template()
        if found is None:
            return True
        if str(found.status) != "locked":
            self.client.call(
                f"remove template {self.full_name}",
                lambda api: api.templates_service().template_service(found.id).remove(),
                safe=False,
            )
        return None

    def _failed(self, what: str, message: str) -> errors.Terminal:
        words = transfer.words(self.client, names.correlation(self.infra_id, what))
        return errors.Terminal(message, resource=self.name, words=words, remedy="see the events of the engine")

    # -- the disk ----------------------------------------------------------------------------------------------------

    def _disk(self, ctx: context.Context) -> Any | None:
        """The uploaded disk (not the template's copy of it, which has the same name)."""
        found = [
            disk for disk in self.client.named("disks", self.full_name) if names.marked(disk.description, self.infra_id)
        ]
        first = [disk for disk in found if disk.id == ctx.created_id]
        return (first or found or [None])[0]

    def _new_disk(self, ctx: context.Context) -> Any:
        image = self._local(ctx)
        wanted = types.Disk(
            name=self.full_name,
            description=names.mark(self.infra_id),
            format=types.DiskFormat(image.format),
            sparse=True,
            provisioned_size=image.virtual_size,
            storage_domains=[types.StorageDomain(id=self.storage_domain_id)],
        )
        if image.format == "cow":
            # What block storage sets aside for it at first.
            wanted.initial_size = image.size
        query = {"correlation_id": names.correlation(self.infra_id, "disk")}
        return self.client.call(
            f"make disk {self.full_name}", lambda api: api.disks_service().add(wanted, query=query), safe=False
        )

    def _local(self, ctx: context.Context) -> qcow2.Image:
        return images.on_disk(self.image, self.environ, ctx)

    def _filled_disk(self, vm: Any | None, ctx: context.Context) -> str:
        """The id of a disk that holds the image: the temporary VM's, if that is there."""
        if vm is not None and (attachment := vms.boot_disk(vm)) is not None:
            # Attached only ever after its upload.
            return str(attachment.disk.id)
        image = self._local(ctx)
        fresh, made = ctx.fresh, ctx.created_id
        for _ in range(_TRIES):
            disk_id = made if fresh and made else str((self._disk(ctx) or self._new_disk(ctx)).id)
            try:
                if fresh or transfer.of_disk(self.client, disk_id) is None:
                    self._until_unlocked(disk_id, ctx)
                upload.upload(self.client, self.client.who, disk_id, image, self.infra_id, ctx, fresh=fresh)
                return disk_id
            except errors.NotFound:
                lost: errors.PlatformFailure = transfer.Lost(f"disk {disk_id} is gone")
            except transfer.Lost as problem:
                lost = problem
            fresh = False
            ctx.report_retry(lost, 0.0, 1)
            self._remove_disk(disk_id, ctx)
        raise errors.Terminal(
            f"the boot image could not be uploaded, {_TRIES} times",
            resource=self.name,
            words=lost.told(),
            remedy="see the engine's events and the log of ovirt-imageio on the host",
        )

    def _until_unlocked(self, disk_id: str, ctx: context.Context) -> None:
        def unlocked() -> bool | None:
            disk = self.client.call(
                f"look at disk {self.full_name}", lambda api: api.disks_service().disk_service(disk_id).get()
            )
            if str(disk.status) == "illegal":
                raise transfer.Lost(f"disk {disk_id} is illegal")
            return True if str(disk.status) == "ok" else None

        ctx.sleep(_EVERY)
        ctx.poll(unlocked, what=f"disk {self.full_name} to be unlocked", every=_EVERY)
        transfer.await_jobs(self.client, ctx, self.infra_id, "disk")

    def _remove_disk(self, disk_id: str, ctx: context.Context) -> None:
        """Remove a disk, as soon as whoever locks it lets go of it."""

        def gone() -> bool | None:
            disk = self.client.look(
                f"look at disk {self.full_name}", lambda api: api.disks_service().disk_service(disk_id).get()
            )
            if disk is None:
                return True
            if str(disk.status) != "locked":
                self.client.call(
                    f"remove disk {self.full_name}",
                    lambda api: api.disks_service().disk_service(disk_id).remove(),
                    safe=False,
                )
            return None

        running = transfer.of_disk(self.client, disk_id)
        if running is not None and running.live and not running.ending:
            transfer.cancel(self.client, running.id)
        ctx.poll(gone, what=f"disk {self.full_name} to be gone", every=_EVERY)

    # -- the temporary VM --------------------------------------------------------------------------------------------

    def _vm(self) -> Any | None:
        return vms.find(self.client, names.temporary(self.infra_id), self.infra_id)

    def _temporary_vm(self, found: Any | None, disk_id: str, ctx: context.Context) -> str:
        """A VM with the disk and a network card, off and unlocked: the one that was found, or a new one."""
        ident = str((found or self._new_vm()).id)

        def settled() -> Any | None:
            vm = vms.look(self.client, ident)
            if vm is None:
                raise errors.Transient(f"VM {names.temporary(self.infra_id)} has vanished", retry_after=_EVERY)
            return vm if vms.status(vm) == "down" else None

        vm = ctx.poll(settled, what=f"VM {names.temporary(self.infra_id)} to be made", every=_EVERY)
        if names.tag(self.infra_id) not in vms.tags_of(vm):
            vms.add_tag(self.client, vm, names.tag(self.infra_id))
        if vms.boot_disk(vm) is None:
            self._attach(ident, disk_id)
        if not vm.nics:
            self._connect(ident)
        return ident

    def _new_vm(self) -> Any:
        systems = self.client.call("list the operating systems", lambda api: api.operating_systems_service().list())
        known = machine_steps.COREOS in {str(each.name) for each in systems}
        wanted = types.Vm(
            name=names.temporary(self.infra_id),
            description=names.mark(self.infra_id),
            cluster=types.Cluster(id=self.cluster_id),
            template=types.Template(name="Blank"),
            type=types.VmType.SERVER,
            os=types.OperatingSystem(type=machine_steps.COREOS if known else _OTHER_OS),
            memory=_MEMORY,
        )
        return self.client.call(f"make VM {wanted.name}", lambda api: api.vms_service().add(wanted), safe=False)

    def _attach(self, vm_id: str, disk_id: str) -> None:
        wanted = types.DiskAttachment(
            disk=types.Disk(id=disk_id), interface=types.DiskInterface.VIRTIO_SCSI, bootable=True, active=True
        )
        self.client.call(
            f"attach disk {self.full_name}",
            lambda api: api.vms_service().vm_service(vm_id).disk_attachments_service().add(wanted),
            safe=False,
        )

    def _connect(self, vm_id: str) -> None:
        profile = types.VnicProfile(id=self.vnic_profile_id or self._only_profile())
        wanted = types.Nic(name="nic1", interface=types.NicInterface.VIRTIO, vnic_profile=profile)
        self.client.call(
            f"give VM {names.temporary(self.infra_id)} a network card",
            lambda api: api.vms_service().vm_service(vm_id).nics_service().add(wanted),
            safe=False,
        )

    def _only_profile(self) -> str:
        """The one vNIC profile of the cluster's network, where the user named none."""

        def profiles(api: Any) -> list[Any]:
            networks = api.clusters_service().cluster_service(self.cluster_id).networks_service().list()
            ours = [each for each in networks if each.name == self.network]
            every = api.vnic_profiles_service().list()
            return [each for each in every if each.network is not None and each.network.id in {n.id for n in ours}]

        found = self.client.call(f"look for the vNIC profiles of network {self.network}", profiles)
        if len(found) != 1:
            raise errors.Terminal(
                f"network {self.network} has {len(found)} vNIC profiles in the cluster",
                resource=self.name,
                remedy="name one of them: platform.ovirt.vnicProfileID",
            )
        return str(found[0].id)

    def _remove_vm(self, ctx: context.Context) -> None:
        seen = [vm for vm in [self._vm()] if vm is not None]
        if not seen:
            return
        ident = str(seen[0].id)

        def gone() -> bool | None:
            now = seen.pop() if seen else vms.look(self.client, ident)
            if now is None:
                return True
            vms.take_away(self.client, now, self.infra_id)
            return None

        ctx.poll(gone, what=f"VM {names.temporary(self.infra_id)} to be gone", every=vms.EVERY)
