"""What a machine's spec asks of the engine, and which of it a VM still lacks.

Nothing here calls anybody: `machine` does, with what is computed here. A VM comes into the world locked, bare of tags
and groups, with a disk as small as the template's, and switched off; whoever stops in between must find the place again
from the VM alone. What a VM does not tell of itself is done before it gets its tag: a VM that bears it has all that.
"""

from __future__ import annotations

import dataclasses
import ipaddress
import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

from ovirtsdk4 import types

from moorage.engine import errors
from moorage.platforms import contract
from moorage.platforms.ovirt import names, vms

#: The engine's name for CoreOS: only to this system does it hand user data over as Ignition can read it.
COREOS: Final = "rhcos_x64"
MIB: Final = 1024**2
GIB: Final = 1024**3

_OWN_INTERFACES: Final = re.compile(r"^(eth|en|br-ex)")
#: Where every host finds itself. Not all of 127.0.0.0/8: a lab's machines have addresses of the computer they are on.
_EVERY_HOSTS: Final = (ipaddress.ip_network("127.0.0.0/16"), ipaddress.ip_network("::1/128"))
#: States in which a VM runs its operating system; what the guest reports is worth reading in some of them.
RUNNING: Final = frozenset(("powering_up", "up", "migrating", "reboot_in_progress"))
_TALKING: Final = frozenset(("up", "migrating"))
_WAITING: Final = {
    "image_locked": "its disk to be made",
    "wait_for_launch": "a host to launch it",
    "powering_down": "it to be off",
    "paused": "somebody to resume it: it is paused",
    "suspended": "somebody to resume it: it is suspended",
    "not_responding": "its host to answer again",
    "unknown": "its host to answer again",
}


@dataclasses.dataclass(frozen=True)
class Spec:
    """``providerSpec.value``, read and checked. Sizes are bytes; 0 and "" mean: as the template has it."""

    cluster_id: str
    template: str
    storage_domain_id: str = ""
    instance_type_id: str = ""
    cores: int = 0
    sockets: int = 1
    threads: int = 1
    memory: int = 0
    guaranteed_memory: int = 0
    disk_size: int = 0
    vm_type: str = ""
    vnic_profiles: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    pinning: str = ""
    hugepages: int = 0
    format: str = ""
    clone: bool = False
    sparse: bool | None = None

    @property
    def pinned(self) -> bool:
        return self.pinning not in ("", "none")

    @property
    def copied(self) -> bool:
        """Whether the disk is a copy; raw disks cannot stand upon the template's."""
        return self.clone or self.format == "raw"


@dataclasses.dataclass(frozen=True)
class Template:
    """What must be known of the template that a machine is made from."""

    id: str
    disk_ids: tuple[str, ...]
    #: The operating system to give to the VM where the template has another one.
    os_type: str = ""


# -- reading the spec --------------------------------------------------------------------------------------------------


def read(machine: contract.Machine) -> Spec:
    """The machine's spec; `Terminal` if no VM can be made of it."""
    found = machine.provider_spec
    if not str(found.get("apiVersion", "")).startswith("ovirtproviderconfig.machine.openshift.io/"):
        raise _wrong(machine, "apiVersion", "is not oVirt's")
    cpu, disk = _section(machine, "cpu"), _section(machine, "os_disk")
    memory = _number(machine, found, "memory_mb") * MIB
    spec = Spec(
        cluster_id=_text(machine, "cluster_id", needed=True),
        template=_text(machine, "template_name", needed=True),
        storage_domain_id=_text(machine, "storage_domain_id"),
        instance_type_id=_text(machine, "instance_type_id"),
        cores=_number(machine, cpu, "cores"),
        sockets=_number(machine, cpu, "sockets") or 1,
        threads=_number(machine, cpu, "threads") or 1,
        memory=memory,
        guaranteed_memory=_number(machine, found, "guaranteed_memory_mb") * MIB or memory,
        disk_size=_number(machine, disk, "size_gb") * GIB,
        vm_type=_text(machine, "type") or _text(machine, "vm_type"),
        vnic_profiles=tuple(str(nic.get("vnic_profile_id", "")) for nic in _sections(machine, "network_interfaces")),
        groups=_texts(machine, "affinity_groups_names"),
        pinning=_text(machine, "auto_pinning_policy"),
        hugepages=_number(machine, found, "hugepages"),
        format=_text(machine, "format"),
        clone=bool(found.get("clone", False)),
        sparse=_flag(machine, "sparse"),
    )
    if spec.instance_type_id and (spec.cores or spec.memory):
        raise _wrong(machine, "instance_type_id", "cannot be together with cpu or memory_mb")
    if spec.guaranteed_memory > spec.memory > 0:
        raise _wrong(machine, "guaranteed_memory_mb", "is more than memory_mb")
    return spec


def _wrong(machine: contract.Machine, field: str, what: str) -> errors.Terminal:
    return errors.Terminal(
        f"{machine.name}: providerSpec.value.{field} {what}",
        resource=machine.name,
        remedy="correct the machine's spec (or its MachineSet's) and make it anew",
    )


def _text(machine: contract.Machine, field: str, *, needed: bool = False) -> str:
    value = machine.provider_spec.get(field) or ""
    if not isinstance(value, str):
        raise _wrong(machine, field, "is not text")
    if needed and not value:
        raise _wrong(machine, field, "is missing")
    return value


def _number(machine: contract.Machine, section: Mapping[str, Any], field: str) -> int:
    value = section.get(field) or 0
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise _wrong(machine, field, f"is {value!r}, not a whole number of 0 or more")
    return value


def _flag(machine: contract.Machine, field: str) -> bool | None:
    value = machine.provider_spec.get(field)
    if value is not None and not isinstance(value, bool):
        raise _wrong(machine, field, "is neither true nor false")
    return value


def _section(machine: contract.Machine, field: str) -> Mapping[str, Any]:
    value = machine.provider_spec.get(field) or {}
    if not isinstance(value, Mapping):
        raise _wrong(machine, field, "is not a section")
    return value


def _sections(machine: contract.Machine, field: str) -> Sequence[Mapping[str, Any]]:
    value = machine.provider_spec.get(field) or []
    if not isinstance(value, list | tuple) or not all(isinstance(each, Mapping) for each in value):
        raise _wrong(machine, field, "is not a list of sections")
    return value


def _texts(machine: contract.Machine, field: str) -> tuple[str, ...]:
    value = machine.provider_spec.get(field) or []
    if not isinstance(value, list | tuple) or not all(isinstance(each, str) for each in value):
        raise _wrong(machine, field, "is not a list of names")
    return tuple(value)


# -- asking for a VM ---------------------------------------------------------------------------------------------------


def wanted(machine: contract.Machine, spec: Spec, template: Template, hosts: Collection[str]) -> types.Vm:
    """The VM to ask for; ``hosts`` are those it may be pinned to."""
    vm = types.Vm(
        name=machine.name,
        description=names.mark(machine.infra_id),
        cluster=types.Cluster(id=spec.cluster_id),
        template=types.Template(id=template.id),
        initialization=types.Initialization(custom_script=machine.user_data.decode(), host_name=machine.name),
    )
    if template.os_type:
        vm.os = types.OperatingSystem(type=template.os_type)
    if spec.vm_type:
        vm.type = types.VmType(spec.vm_type)
    if spec.instance_type_id:
        vm.instance_type = types.InstanceType(id=spec.instance_type_id)
    if spec.cores:
        vm.cpu = types.Cpu(topology=types.CpuTopology(cores=spec.cores, sockets=spec.sockets, threads=spec.threads))
    if spec.memory:
        vm.memory = spec.memory
        vm.memory_policy = types.MemoryPolicy(
            guaranteed=spec.guaranteed_memory,
            max=spec.memory,
            ballooning=None if spec.vm_type != "high_performance" and not spec.hugepages else False,
        )
    if spec.hugepages:
        vm.custom_properties = [types.CustomProperty(name="hugepages", value=str(spec.hugepages))]
    if spec.pinned:
        vm.placement_policy = types.VmPlacementPolicy(
            affinity=types.VmAffinity.PINNED, hosts=[types.Host(id=host) for host in hosts]
        )
    if spec.copied:
        vm.disk_attachments = [types.DiskAttachment(disk=_disk(spec, each)) for each in template.disk_ids]
    return vm


def _disk(spec: Spec, disk_id: str) -> types.Disk:
    disk = types.Disk(id=disk_id)
    if spec.format:
        disk.format = types.DiskFormat.RAW if spec.format == "raw" else types.DiskFormat.COW
    if spec.sparse is not None:
        disk.sparse = spec.sparse
    if spec.storage_domain_id:
        disk.storage_domains = [types.StorageDomain(id=spec.storage_domain_id)]
    return disk


# -- what a VM lacks ---------------------------------------------------------------------------------------------------


def lacks_properties(vm: Any, spec: Spec) -> bool:
    held = {each.name: each.value for each in vm.custom_properties or []}
    return bool(spec.hugepages) and held.get("hugepages") != str(spec.hugepages)


def lacks_disk_size(vm: Any, spec: Spec) -> Any | None:
    """The attachment of a boot disk that is smaller than wanted; disks never shrink."""
    attachment = vms.boot_disk(vm)
    if attachment is None or attachment.disk is None or not spec.disk_size:
        return None
    return attachment if (attachment.disk.provisioned_size or 0) < spec.disk_size else None


def disk_is_locked(vm: Any) -> bool:
    return any(each.disk is not None and str(each.disk.status) == "locked" for each in vm.disk_attachments or [])


def nics_to_change(vm: Any, spec: Spec) -> list[tuple[Any | None, types.Nic]]:
    """The network cards that are in another network or missing (None), each as it is to be."""
    held = sorted(vm.nics or [], key=lambda nic: str(nic.name))
    found: list[tuple[Any | None, types.Nic]] = []
    for number, profile in enumerate(filter(None, spec.vnic_profiles)):
        nic = held[number] if number < len(held) else None
        wanted = types.Nic(vnic_profile=types.VnicProfile(id=profile))
        if nic is None:
            wanted.name, wanted.interface = f"nic{number + 1}", types.NicInterface.VIRTIO
        if nic is None or nic.vnic_profile is None or nic.vnic_profile.id != profile:
            found.append((nic, wanted))
    return found


def tags_wanted(machine: contract.Machine) -> tuple[str, ...]:
    """The tags of a machine's VM, in the order in which they are given: the last one says that all is done."""
    special = (names.bootstrap_tag(machine.infra_id),) if machine.role == "bootstrap" else ()
    return (*special, names.tag(machine.infra_id))


# -- what a VM is ------------------------------------------------------------------------------------------------------


def instance(vm: Any, machine: contract.Machine, waiting_for: str = "") -> contract.Instance:
    """The VM as the rest of the program sees it."""
    state = vms.status(vm)
    lacking = [tag for tag in tags_wanted(machine) if tag not in vms.tags_of(vm)]
    ready = state in RUNNING and not lacking and not waiting_for
    if not ready and not waiting_for:
        untagged = f"its tag {lacking[0]}, which somebody has taken off" if state in RUNNING and lacking else ""
        waiting_for = untagged or _WAITING.get(state, "it to be complete and switched on")
    return contract.Instance(
        id=str(vm.id),
        provider_id=names.provider_id(str(vm.id)),
        state=state,
        ready=ready,
        addresses=addresses(vm, machine.not_addresses) if state in _TALKING else (),
        waiting_for=waiting_for,
        type=size(vm),
    )


def size(vm: Any) -> str:
    """What the VM is made of, as clouds name their types: ``4cpu-16gib``. Empty if the engine does not tell."""
    topology = vm.cpu.topology if vm.cpu is not None else None
    if topology is None or not vm.memory:
        return ""
    cpus = (topology.cores or 1) * (topology.sockets or 1) * (topology.threads or 1)
    memory = f"{vm.memory // GIB}gib" if vm.memory % GIB == 0 else f"{vm.memory // MIB}mib"
    return f"{cpus}cpu-{memory}"


def addresses(vm: Any, others: Collection[str]) -> tuple[str, ...]:
    """The VM's own addresses: from its real interfaces, without the VIPs it may carry, always in the same order.

    Guests list what they have as it comes: an address that a node carries for a while may well be the first one.
    """
    virtual = {ipaddress.ip_address(each) for each in others}
    found: set[tuple[bool, str, int, int]] = set()
    for device in vm.reported_devices or []:
        if not is_own(device):
            continue
        name = str(device.name)
        for each in device.ips or []:
            address = _address(each.address)
            if address is not None and address not in virtual:
                # The bridge takes the address over from the card below it.
                found.add((not name.startswith("br-ex"), name, address.version, int(address)))
    ordered = [str(_of(version, number)) for _, _, version, number in sorted(found)]
    return tuple(dict.fromkeys(ordered))


def is_own(device: Any) -> bool:
    """Whether a reported device is a real interface: guests tell of those of their pods and tunnels too."""
    return _OWN_INTERFACES.match(str(device.name or "")) is not None


def _address(text: str | None) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """What may be a machine's own on its network; guests say what they like."""
    try:
        found = ipaddress.ip_address(re.split("[/%]", str(text or ""))[0])
    except ValueError:
        return None
    # An IPv4 address in IPv6's clothes would be a certificate's IPv4 address, and might be a VIP.
    is_disguised = isinstance(found, ipaddress.IPv6Address) and found.ipv4_mapped is not None
    is_nobodys = found.is_link_local or found.is_unspecified or found.is_multicast
    return None if is_disguised or is_nobodys or any(found in each for each in _EVERY_HOSTS) else found


def _of(version: int, number: int) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    return ipaddress.IPv4Address(number) if version == 4 else ipaddress.IPv6Address(number)
