"""The actuator: one VM per machine, by the same few calls on day 1 and ever after.

Every look at a VM is one call, and tells what it still lacks; `update` does all of that which can be done at once and
leaves when the engine must be waited for. It does not matter who began: a VM that was left half built is completed.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Mapping
from typing import Any, Final

from ovirtsdk4 import types

from moorage.engine import clock as clocks
from moorage.engine import errors
from moorage.platforms import contract
from moorage.platforms.ovirt import client as clients
from moorage.platforms.ovirt import locations, names, roll, transfer, vms
from moorage.platforms.ovirt import machine_steps as steps

#: The engine does not say why a copy failed, only that it did.
_VANISHED: Final = "see whether its storage domain is full, and what else the engine's events say of it"
#: Cloud seconds for which a template is taken for the one that has its name: a newer boot image may get it.
TEMPLATE_FOR: Final = 300.0
_UUID: Final = re.compile(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")


def actuator(around: contract.Surroundings) -> Actuator:
    """An actuator for the engine of the user's credentials."""
    return Actuator(clients.shared(around))


def capacity(provider_spec: Mapping[str, object]) -> dict[str, int] | None:
    """What a machine of this spec brings to a cluster; None if only the engine knows, by its instance type."""
    spec = steps.read(contract.Machine("a machine", "", "worker", provider_spec, b""))
    if not spec.cores or not spec.memory:
        return None
    return {"vCPU": spec.cores * spec.sockets * spec.threads, "memoryMb": spec.memory // steps.MIB}


class Actuator:
    """Makes, completes and removes VMs; shared by threads."""

    def __init__(self, client: clients.Client) -> None:
        self._client = client
        self._locations = locations.Locations(client)
        self._roll = roll.Roll(client)
        self._turn = threading.Lock()
        #: Ids of VMs that were seen by this process: their names may be taken, and lists may lag.
        self._ids: dict[str, str] = {}
        #: Where they are, by the engine's word: a spec may be edited afterwards.
        self._clusters: dict[str, str] = {}
        #: Templates by name, and until when they are good; none is forgotten, to know that there was one.
        self._templates: dict[str, tuple[steps.Template, clocks.Deadline]] = {}
        #: Ids of affinity groups, by their cluster and name.
        self._group_ids: dict[tuple[str, str], str] = {}
        self._looking_up = threading.Lock()

    # -- the contract ------------------------------------------------------------------------------------------------

    def exists(self, machine: contract.Machine) -> contract.Instance | None:
        vm = self._find(machine, now=False)
        return None if vm is None else steps.instance(vm, machine)

    def create(self, machine: contract.Machine) -> contract.Instance:
        spec = steps.read(machine)
        template = self._template(spec, machine)
        wanted = steps.wanted(machine, spec, template, self._hosts(spec) if spec.pinned else ())
        query = {"correlation_id": names.correlation(machine.name, "vm")}
        try:
            vm = self._client.call(
                f"make VM {machine.name}",
                lambda api: api.vms_service().add(wanted, clone=spec.copied, query=query),
                safe=False,
            )
        except errors.NotFound:
            # The template may have been made anew, under its name.
            with self._looking_up:
                self._templates[spec.template] = template, self._client.clock.deadline(0.0)
            raise
        self._remember(machine, vm)
        return steps.instance(vm, machine)

    def update(self, machine: contract.Machine) -> contract.Instance:
        spec = steps.read(machine)
        vm = self._find(machine)
        if vm is None:
            self._forget(machine)
            why = transfer.words(self._client, names.correlation(machine.name, "vm"))
            raise errors.NotFound(
                f"VM {machine.name} is not there", resource=machine.name, words=why, remedy=_VANISHED if why else ""
            )
        try:
            return self._updated(vm, machine, spec)
        finally:
            self._roll.changed(str(vm.id))

    def _updated(self, vm: Any, machine: contract.Machine, spec: steps.Spec) -> contract.Instance:
        state = vms.status(vm)
        if state == "down" and (waiting := self._prepare(vm, machine, spec)):
            return steps.instance(vm, machine, waiting)
        if state != "down" and state not in steps.RUNNING:
            return steps.instance(vm, machine)
        lacking = [tag for tag in steps.tags_wanted(machine) if tag not in vms.tags_of(vm)]
        for tag in lacking:
            vms.add_tag(self._client, vm, tag)
        if state == "down":
            self._start(vm)
            return steps.instance(vm, machine, "it to be switched on")
        return steps.instance(vm, machine, "its tags to show" if lacking else "")

    def delete(self, machine: contract.Machine) -> bool:
        # Whoever else has the name: if its id is not known and none of ours bears it, ours is not there.
        vm = self._find(machine, contested=False)
        if vm is None and not names.vm_id(machine.provider_id):
            vm = self._tagged(machine)
        if vm is None:
            self._forget(machine)
            raise errors.NotFound(f"VM {machine.name} is gone", resource=machine.name)
        try:
            return vms.take_away(self._client, vm, machine.infra_id)
        finally:
            self._roll.changed(str(vm.id))

    def place(self, machine: contract.Machine) -> contract.Place:
        """See `contract.Locating`."""
        cluster_id = self._clusters.get(machine.name) or machine.provider_spec.get("cluster_id")
        return self._locations.of(cluster_id) if isinstance(cluster_id, str) and cluster_id else contract.Place()

    # -- finding -----------------------------------------------------------------------------------------------------

    def _find(self, machine: contract.Machine, *, now: bool = True, contested: bool = True) -> Any | None:
        """The machine's VM: by the id it is known by, if there is one, else by name and mark.

        Who does not act upon it need not know how it is ``now``: a moment ago will do.
        """
        known = names.vm_id(machine.provider_id) or self._ids.get(machine.name, "")
        vm = None
        if known:
            vm = vms.look(self._client, known) if now else self._roll.look(known, machine.infra_id)
        if vm is not None and not vms.is_ours(vm, machine.infra_id):
            raise vms.foreign(str(vm.name), machine.infra_id)
        # Who acts upon it goes by its id alone, once that is known: what bears its name then is another machine's.
        if vm is None and not (now and names.vm_id(machine.provider_id)):
            vm = vms.find(self._client, machine.name, machine.infra_id, contested=contested)
        if vm is not None:
            self._remember(machine, vm)
        return vm

    def _tagged(self, machine: contract.Machine) -> Any | None:
        """A second opinion, before a VM is called gone because a search for its name found none."""
        return next((vm for vm in vms.tagged(self._client, machine.infra_id) if vm.name == machine.name), None)

    def _remember(self, machine: contract.Machine, vm: Any) -> None:
        with self._turn:
            self._ids[machine.name] = str(vm.id)
            if vm.cluster is not None and vm.cluster.id:
                self._clusters[machine.name] = str(vm.cluster.id)

    def _forget(self, machine: contract.Machine) -> None:
        with self._turn:
            self._ids.pop(machine.name, None)
            self._clusters.pop(machine.name, None)

    def _template(self, spec: steps.Spec, machine: contract.Machine) -> steps.Template:
        """The template by name or id. It never changes, so one machine looks it up for all that come with it."""
        with self._looking_up:
            found, good = self._templates.get(spec.template, (None, None))
            if found is None or good is None or good.expired:
                found = self._look_up(spec, machine)
                self._templates[spec.template] = found, self._client.clock.deadline(TEMPLATE_FOR)
            return found

    def _look_up(self, spec: steps.Spec, machine: contract.Machine) -> steps.Template:
        found = self._client.named("templates", spec.template, follow="disk_attachments")
        if not found and _UUID.fullmatch(spec.template):
            by_id = self._client.look(
                f"look at template {spec.template}",
                lambda api: api.templates_service().template_service(spec.template).get(follow="disk_attachments"),
            )
            found = [by_id] if by_id is not None else []
        if not found and spec.template in self._templates:
            # A newer one may be on its way: no machine is given up for that.
            raise errors.Transient(f"there is no template {spec.template} any more", resource=machine.name)
        if not found:
            raise errors.Terminal(
                f"there is no template {spec.template}", resource=machine.name, remedy="name one that exists"
            )
        # Versions of a template share its name.
        newest = max(found, key=lambda each: each.version.version_number if each.version else 0)
        if str(newest.status) == "locked":
            raise errors.Transient(f"template {spec.template} is locked", retry_after=10)
        disks = tuple(str(each.disk.id if each.disk else each.id) for each in newest.disk_attachments or [])
        system = "" if newest.os is not None and newest.os.type == steps.COREOS else self._coreos()
        return steps.Template(str(newest.id), disks, system)

    def _coreos(self) -> str:
        """The engine's name for CoreOS, if it knows it."""
        known = self._client.call("list the operating systems", lambda api: api.operating_systems_service().list())
        return steps.COREOS if steps.COREOS in {str(each.name) for each in known} else ""

    def _hosts(self, spec: steps.Spec) -> list[str]:
        """The cluster's hosts that are up: a VM is pinned to some, not to none."""
        found = self._client.call("list the hosts", lambda api: clients.everything(api.hosts_service()))
        return [
            str(host.id)
            for host in found
            if host.cluster is not None and host.cluster.id == spec.cluster_id and str(host.status) == "up"
        ]

    # -- completing --------------------------------------------------------------------------------------------------

    def _prepare(self, vm: Any, machine: contract.Machine, spec: steps.Spec) -> str:
        """Do what must be done before the first start; says what to wait for, or nothing if all is done."""
        if steps.disk_is_locked(vm):
            return "its disk to be ready"
        service = f"VM {vm.name}"
        if steps.lacks_properties(vm, spec):
            change = types.Vm(custom_properties=[types.CustomProperty(name="hugepages", value=str(spec.hugepages))])
            self._client.call(
                f"set the properties of {service}", lambda api: api.vms_service().vm_service(vm.id).update(change)
            )
        attachment = steps.lacks_disk_size(vm, spec)
        if attachment is not None:
            self._resize(vm, attachment.id, spec.disk_size)
            return "its disk to be enlarged"
        self._nics(vm, spec)
        # A VM does not tell its groups. The tag is given after them, so whoever has it needs no second look.
        if set(steps.tags_wanted(machine)) <= vms.tags_of(vm):
            return ""
        self._groups(vm, spec)
        if spec.pinned:
            self._client.call(
                f"pin {service}",
                lambda api: (
                    api.vms_service()
                    .vm_service(vm.id)
                    .auto_pin_cpu_and_numa_nodes(optimize_cpu_settings=spec.pinning == "resize_and_pin")
                ),
            )
        return ""

    def _resize(self, vm: Any, attachment_id: str, size: int) -> None:
        change = types.DiskAttachment(disk=types.Disk(provisioned_size=size))
        self._client.call(
            f"enlarge the disk of VM {vm.name}",
            lambda api: (
                api.vms_service()
                .vm_service(vm.id)
                .disk_attachments_service()
                .attachment_service(attachment_id)
                .update(change)
            ),
        )

    def _nics(self, vm: Any, spec: steps.Spec) -> None:
        for nic, wanted in steps.nics_to_change(vm, spec):

            def put(api: Any, nic: Any = nic, wanted: types.Nic = wanted) -> None:
                cards = api.vms_service().vm_service(vm.id).nics_service()
                if nic is None:
                    cards.add(wanted)
                else:
                    cards.nic_service(nic.id).update(wanted)

            self._client.call(f"put VM {vm.name} into its network", put, safe=False)

    def _groups(self, vm: Any, spec: steps.Spec) -> None:
        if not spec.groups:
            return
        if not all(self._known_groups(spec)):
            # Machines come by the hundred: one looks for all, and the others join what it found.
            with self._looking_up:
                if not all(self._known_groups(spec)):
                    self._look_and_join(vm, spec)
                    return
        try:
            for name, group_id in zip(spec.groups, self._known_groups(spec), strict=True):
                self._join(vm, spec.cluster_id, group_id, name)
        except (errors.Terminal, errors.Conflict, errors.AlreadyExists, errors.NotFound):
            # It is a member already, or the group is another one by now.
            self._look_and_join(vm, spec)

    def _known_groups(self, spec: steps.Spec) -> list[str]:
        """The ids of its groups, as they are known from other machines; empty ones if they are not.

        A look tells all members of a group, of which there may be hundreds: too much to ask for every one of them.
        """
        return [self._group_ids.get((spec.cluster_id, name), "") for name in spec.groups]

    def _look_and_join(self, vm: Any, spec: steps.Spec) -> None:
        found = self._client.call(
            f"look at the affinity groups of VM {vm.name}",
            lambda api: (
                api.clusters_service().cluster_service(spec.cluster_id).affinity_groups_service().list(follow="vms")
            ),
        )
        by_name = {str(group.name): group for group in found}
        for name in spec.groups:
            group = by_name.get(name)
            if group is None:
                raise errors.Terminal(
                    f"there is no affinity group {name} for VM {vm.name}",
                    remedy="make the group, or correct affinityGroupsNames",
                )
            self._group_ids[spec.cluster_id, name] = str(group.id)
            if vm.id not in {member.id for member in group.vms or []}:
                self._join(vm, spec.cluster_id, str(group.id), name)

    def _join(self, vm: Any, cluster_id: str, group_id: str, name: str) -> None:
        self._client.call(
            f"put VM {vm.name} into affinity group {name}",
            lambda api: (
                api.clusters_service()
                .cluster_service(cluster_id)
                .affinity_groups_service()
                .group_service(group_id)
                .vms_service()
                .add(types.Vm(id=vm.id))
            ),
            safe=False,
        )

    def _start(self, vm: Any) -> None:
        self._client.call(
            f"start VM {vm.name}",
            lambda api: api.vms_service().vm_service(vm.id).start(use_initialization=True),
            safe=False,
        )
