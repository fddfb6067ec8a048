"""The install-config of platform `ovirt`: where in the engine the cluster goes, and how large its machines are.

Field names are openshift-install's (the last release that knew oVirt was 4.13), so that its files still work. What a
machine finally gets comes from three layers: its pool, then ``defaultMachinePlatform``, then the numbers below;
`defaults` puts them together, and nobody else should. Rules are in `rules`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Final, Literal, cast

import pydantic

from moorage import network
from moorage.config import findings, model, rule, stanza
from moorage.config.model import about
from moorage.platforms.ovirt import rules

NETWORK: Final = "ovirtmgmt"
CONTROL_PLANE_GROUP: Final = "controlplane"
COMPUTE_GROUP: Final = "compute"

VmType = Literal["desktop", "server", "high_performance"]
Role = Literal["master", "worker"]

_DEFAULT_POOL: Final = "platform.ovirt.defaultMachinePlatform"


class Cpu(model.Section):
    """The virtual processors of a machine: sockets times cores times threads."""

    cores: Annotated[pydantic.StrictInt, about("Cores per socket.", rule="at least 1")]
    sockets: Annotated[pydantic.StrictInt, about("Sockets.", rule="at least 1")] = 1
    threads: Annotated[pydantic.StrictInt, about("Threads per core.", rule="at least 1")] = 1

    @property
    def total(self) -> int:
        return self.cores * self.sockets * self.threads


class OsDisk(model.Section):
    """The disk a machine boots from."""

    size_gb: Annotated[
        pydantic.StrictInt,
        about("Its size in GiB.", rule="at least 1, and no smaller than the boot image; 100 or more", alias="sizeGB"),
    ]


class MachinePool(model.Section):
    """How the virtual machines of a pool are made. What is not set comes from defaultMachinePlatform."""

    instance_type_id: Annotated[
        str,
        about(
            "An instance type of the engine, which brings processors and memory.",
            rule="a UUID; never together with cpu or memoryMB",
            alias="instanceTypeID",
        ),
    ] = ""
    cpu: Annotated[Cpu | None, about("The virtual processors.", rule="4 or more; 2 are enough for workers")] = None
    memory_mb: Annotated[
        pydantic.StrictInt,
        about("Memory in MiB.", rule="16384 or more, workers 8192; 0 stands for the default", alias="memoryMB"),
    ] = 0
    os_disk: Annotated[OsDisk | None, about("The disk the machine boots from.")] = None
    vm_type: Annotated[
        Literal["", "desktop", "server", "high_performance"],
        about("What the engine tunes the machine for.", rule="server unless you have a reason"),
    ] = ""
    auto_pinning_policy: Annotated[
        Literal["", "none", "resize_and_pin"],
        about("Whether the engine fits the processors to the host's and pins them; a pinned machine cannot migrate."),
    ] = ""
    hugepages: Annotated[
        Literal[0, 2048, 1048576],
        about("Size in KiB of the host's huge pages to take the memory from; 0 for none.", rule="0, 2048 or 1048576"),
    ] = 0
    format: Annotated[
        Literal["", "raw", "cow"],
        about("The disk's format; the template's if empty.", rule="raw needs clone: true"),
    ] = ""
    clone: Annotated[
        pydantic.StrictBool | None,
        about("Whether the disk is copied from the template; if not, it depends on the template for ever."),
    ] = None
    sparse: Annotated[
        pydantic.StrictBool | None,
        about("Whether the disk takes space as it is written, not beforehand.", rule="false needs format: raw"),
    ] = None
    affinity_groups_names: Annotated[
        tuple[str, ...] | None,
        about(
            "The affinity groups that the machines join.",
            rule="names of platform.ovirt.affinityGroups; by default controlplane or compute, if there is such a group",
        ),
    ] = None


class AffinityGroup(model.Section):
    """A group of machines that are kept on different hosts."""

    name: Annotated[
        str,
        about("The group's name; in the engine it begins with the cluster's.", rule="letters, digits, '-', '_', '.'"),
    ]
    priority: Annotated[pydantic.StrictInt, about("Its weight against other groups.", rule="0 to 5")] = 0
    description: Annotated[str, about("What it is for.")] = ""
    enforcing: Annotated[
        pydantic.StrictBool,
        about(
            "Whether a machine rather stays off than shares a host with another of the group.",
            rule="if true, there must be as many hosts as machines in the group",
        ),
    ] = False


def default_groups() -> tuple[AffinityGroup, ...]:
    """What a file that says nothing of groups means: no two machines of a kind on one host."""
    return (
        AffinityGroup(
            name=CONTROL_PLANE_GROUP,
            priority=5,
            description="control-plane machines of one cluster, each on its own host",
            enforcing=True,
        ),
        AffinityGroup(
            name=COMPUTE_GROUP, priority=3, description="workers of one cluster, each on its own host", enforcing=True
        ),
    )


class Platform(model.Section):
    """Where the machines are made, and the addresses they share.

    The engine's URL and password are not here but in the file that OVIRT_CONFIG names, or ~/.ovirt/ovirt-config.yaml.
    """

    ovirt_cluster_id: Annotated[
        str, about("The engine's cluster that the machines run in.", rule="a UUID", alias="ovirt_cluster_id")
    ]
    ovirt_storage_domain_id: Annotated[
        str, about("The data domain for the machines' disks.", rule="a UUID", alias="ovirt_storage_domain_id")
    ]
    ovirt_network_name: Annotated[
        str, about("The logical network that the machines are on.", alias="ovirt_network_name")
    ] = NETWORK
    vnic_profile_id: Annotated[
        str,
        about(
            "The vNIC profile of the machines' network cards.",
            rule="a UUID, a profile of that network; may be left out if the network has just one",
            alias="vnicProfileID",
        ),
    ] = ""
    api_vips: Annotated[
        tuple[str, ...],
        about(
            "Addresses of the cluster's API, carried by one control-plane machine at a time.",
            rule="one, or one per family; free, inside networking.machineNetwork",
            alias="api_vips",
        ),
    ] = ()
    ingress_vips: Annotated[
        tuple[str, ...],
        about(
            "Addresses of the cluster's routes (*.apps), carried by a machine that runs a router.",
            rule="one, or one per family; free, inside networking.machineNetwork, others than the API's",
            alias="ingress_vips",
        ),
    ] = ()
    dns_vips: Annotated[
        tuple[str, ...],
        about(
            "Addresses at which the cluster's own names can be asked for; nodes do not need them.",
            rule="one, or one per family; free, inside networking.machineNetwork, unlike the others",
            alias="dns_vips",
        ),
    ] = ()
    template: Annotated[
        str,
        about(
            "Name or id of a template of yours to make the machines from; empty: the boot image is uploaded.",
            rule="RHCOS of the release, with the guest agent, in that cluster; it is never changed or removed",
        ),
    ] = ""
    affinity_groups: Annotated[
        tuple[AffinityGroup, ...],
        about(
            "Groups of machines that are kept on different hosts. Without a word of them there are controlplane and "
            "compute, both enforcing: no more masters than hosts, and no more workers either, now or later.",
            rule="an empty list: none",
        ),
    ] = pydantic.Field(default_factory=default_groups)
    default_machine_platform: Annotated[
        MachinePool | None, about("Settings of all machines, where their pool does not say otherwise.")
    ] = None
    platform_type: Annotated[
        Literal["External", "oVirt"],
        about("What the cluster is told it runs on: External, or oVirt for components that know it by this name."),
    ] = "External"
    network_image: Annotated[
        str,
        about(
            "The image of the nodes' shared addresses and of the machine controllers. Nobody publishes it yet: build "
            "it from the Containerfile, push it to where the nodes can pull it, and name it here.",
            rule="a reference the nodes can pull",
        ),
    ] = network.IMAGE


# Processors, memory and disk are openshift-install's, its 16348 MiB put right.
_BASE: Final = {"vm_type": "server", "auto_pinning_policy": "none"}
_CPU: Final = Cpu(cores=4)
_MEMORY_MB: Final = 16384
_DISK: Final = OsDisk(size_gb=120)
_SIZING: Final = frozenset({"cpu", "memory_mb", "instance_type_id"})


def settings(config: model.InstallConfig) -> Platform:
    """The platform's section of a config that goes to oVirt."""
    return cast(Platform, config.platform.settings)


def defaults(config: model.InstallConfig, role: Role) -> MachinePool:
    """What the machines of a role are made with, complete: nothing is left unset but format and sparse.

    ``cpu`` is None and ``memory_mb`` 0 exactly if ``instance_type_id`` decides them.
    """
    platform = settings(config)
    pool = config.control_plane if role == "master" else next(iter(config.compute), None)
    merged: dict[str, object] = dict(_BASE)
    for layer in (platform.default_machine_platform, pool.platform if pool is not None else None):
        given = _given(cast(MachinePool | None, layer))
        if _SIZING & given.keys():
            # An instance type goes with no other size, so whichever the upper layer names drives out the other.
            out = _SIZING if "instance_type_id" in given else {"instance_type_id"}
            merged = {key: value for key, value in merged.items() if key not in out}
        merged |= given
    if not merged.get("instance_type_id"):
        merged = {"cpu": _CPU, "memory_mb": _MEMORY_MB, **merged}
    # A desktop's disk is thin, as the engine's own dialogue has it.
    merged.setdefault("clone", merged["vm_type"] != "desktop")
    merged.setdefault("os_disk", _DISK)
    merged.setdefault("affinity_groups_names", _own_group(platform, role))
    return MachinePool.model_validate(merged, by_name=True)


def _given(layer: MachinePool | None) -> dict[str, object]:
    """What a layer sets; empty text and 0 set nothing, as in openshift-install."""
    if layer is None:
        return {}
    values = {name: getattr(layer, name) for name in MachinePool.model_fields}
    return {name: value for name, value in values.items() if value is False or value not in (None, "", 0)}


def _own_group(platform: Platform, role: Role) -> tuple[str, ...]:
    own = CONTROL_PLANE_GROUP if role == "master" else COMPUTE_GROUP
    return tuple(group.name for group in platform.affinity_groups if group.name == own)


@rule.reads("platform", "networking")
def _platform_rules(config: model.InstallConfig) -> Iterator[findings.Finding]:
    yield from rules.platform(settings(config), config)
    yield from rules.network_image(settings(config), network.IMAGE)


@rule.reads("platform", "controlPlane", "compute")
def _pool_rules(config: model.InstallConfig) -> Iterator[findings.Finding]:
    groups = [group.name for group in settings(config).affinity_groups]
    found = [finding for field, pool in _layers(config) for finding in rules.pool(field, pool, groups)]
    yield from found
    if found:
        return  # a mistake in a layer is told where it is written, not again in what comes of it
    roles: tuple[tuple[Role, int], ...]
    roles = (("master", config.control_plane_replicas), ("worker", config.worker_replicas))
    for role, replicas in roles:
        if replicas:
            yield from rules.machines(_home(config, role), role, defaults(config, role))


def _layers(config: model.InstallConfig) -> Iterator[tuple[str, MachinePool]]:
    """Every place that says something of machines, by its field."""
    places: list[tuple[str, model.Section | None]] = [(_DEFAULT_POOL, settings(config).default_machine_platform)]
    places += [("controlPlane.platform.ovirt", config.control_plane.platform)]
    places += [(f"compute[{index}].platform.ovirt", pool.platform) for index, pool in enumerate(config.compute)]
    return ((field, cast(MachinePool, pool)) for field, pool in places if pool is not None)


def _home(config: model.InstallConfig, role: Role) -> str:
    """Where a person would change what a role's machines are made with: where something is said, else in the pool."""
    own = "controlPlane.platform.ovirt" if role == "master" else "compute[0].platform.ovirt"
    said = [field for field, _ in _layers(config)]
    return _DEFAULT_POOL if own not in said and _DEFAULT_POOL in said else own


STANZA = stanza.Stanza(
    name="ovirt",
    title="oVirt",
    platform=Platform,
    machine_pool=MachinePool,
    rules=(_platform_rules, _pool_rules),
    renamed=(
        stanza.Renamed("api_vip", "api_vips", listed=True),
        stanza.Renamed("ingress_vip", "ingress_vips", listed=True),
        stanza.Renamed("dns_vip", "dns_vips", listed=True),
    ),
    unsupported={"loadBalancer": "the nodes carry the API's and the routes' addresses themselves: remove the field"},
    # The engine's credentials reach the cluster by the installer's hand; nobody mints any.
    credentials_modes=("Manual",),
    architectures=("amd64",),
    ip_stacks=(("IPv4",), ("IPv4", "IPv6")),
    dotted_names=False,
    required_capabilities=("MachineAPI",),
)
