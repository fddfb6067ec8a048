"""Where the cluster is to go, as the engine knows it: whether the places exist, and whether they belong together.

An id in an install-config may be stale, or of another data center; the engine would say so half-way through the
installation, one thing at a time. Here all of them are looked up once, and every misfit is told with what there is.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from ovirtsdk4 import types

from moorage.config import findings, model, text
from moorage.platforms import contract
from moorage.platforms.ovirt import client as clients
from moorage.platforms.ovirt import config as sections
from moorage.platforms.ovirt import rules

HERE: Final = "platform.ovirt"
ROLES: Final[tuple[sections.Role, ...]] = ("master", "worker")
GIB: Final = 1024**3
_LISTED: Final = 8


@dataclasses.dataclass(frozen=True)
class Places:
    """What was found; None where there is nothing, which `problems` tells."""

    problems: tuple[findings.Finding, ...]
    cluster: types.Cluster | None = None
    storage: types.StorageDomain | None = None
    network: types.Network | None = None
    profile: types.VnicProfile | None = None
    template: types.Template | None = None
    instance_types: Mapping[str, types.InstanceType] = dataclasses.field(default_factory=dict)

    @property
    def center_id(self) -> str:
        return str(self.cluster.data_center.id) if self.cluster and self.cluster.data_center else ""


def look(client: clients.Client, config: model.InstallConfig) -> Places:
    """Look up all that the config names; what depends on a missing place is not looked for."""
    wanted = sections.settings(config)
    problems: list[findings.Finding] = []
    cluster = client.look(
        "look at the cluster",
        lambda api: api.clusters_service().cluster_service(wanted.ovirt_cluster_id).get(follow="networks"),
    )
    found = Places((), cluster, instance_types=_instance_types(client, config, problems))
    if cluster is None:
        there = client.call("list the clusters", lambda api: clients.everything(api.clusters_service()))
        problems.append(_missing("ovirt_cluster_id", "cluster", wanted.ovirt_cluster_id, there))
        return dataclasses.replace(found, problems=tuple(problems))
    problems += _cluster(cluster)
    storage = _storage(client, wanted, cluster, problems)
    network, profile = _network(client, wanted, cluster, problems)
    template = _template(client, wanted, cluster, problems) if wanted.template else None
    if template is not None:
        problems += _template_fits(template, config)
    return dataclasses.replace(
        found, problems=tuple(problems), storage=storage, network=network, profile=profile, template=template
    )


def reused(places: Places) -> Iterator[contract.Reused]:
    """The user's things that the cluster will use."""
    for kind, thing in (
        ("cluster", places.cluster),
        ("storage domain", places.storage),
        ("network", places.network),
        ("vNIC profile", places.profile),
        ("template", places.template),
    ):
        if thing is not None:
            yield contract.Reused(kind, thing.name, "machines are made from it" if kind == "template" else "")


def called(things: Iterable[Any]) -> str:
    """The names of some things, not too many of them."""
    names = sorted(str(thing.name) for thing in things)
    more = f" and {len(names) - _LISTED} more" if len(names) > _LISTED else ""
    return ", ".join(names[:_LISTED]) + more if names else "none"


def _missing(field: str, kind: str, identity: str, there: Iterable[Any]) -> findings.Finding:
    choices = [f"{thing.id} ({thing.name})" for thing in there]
    remedy = f"use {text.one_of(choices[:_LISTED])}" if choices else f"there is no {kind} that this user may see"
    return findings.Finding(f"{HERE}.{field}", f"there is no {kind} {identity}", remedy=remedy)


def _cluster(cluster: types.Cluster) -> Iterator[findings.Finding]:
    field = f"{HERE}.ovirt_cluster_id"
    if cluster.data_center is None:
        yield findings.Finding(field, f"cluster {cluster.name} is in no data center", remedy="attach it to one")
    architecture = cluster.cpu.architecture if cluster.cpu else None
    if architecture not in (None, types.Architecture.X86_64, types.Architecture.UNDEFINED):
        yield findings.Finding(
            field, f"cluster {cluster.name} has hosts of {architecture.value}", remedy="choose a cluster of x86_64"
        )
    if cluster.virt_service is False:
        yield findings.Finding(
            field, f"cluster {cluster.name} runs no virtual machines", remedy="choose one with the virt service"
        )


def _storage(
    client: clients.Client, wanted: sections.Platform, cluster: types.Cluster, problems: list[findings.Finding]
) -> types.StorageDomain | None:
    """The domain as it is used in the cluster's data center: only there has it a status."""
    if cluster.data_center is None:
        return None
    center, field = cluster.data_center.id, f"{HERE}.ovirt_storage_domain_id"
    attached = client.call(
        "list the storage of the data center",
        lambda api: clients.everything(
            api.data_centers_service().data_center_service(center).storage_domains_service()
        ),
    )
    usable = [each for each in attached if _usable(each)]
    domain = next((each for each in attached if each.id == wanted.ovirt_storage_domain_id), None)
    if domain is None:
        problems.append(
            _missing(
                "ovirt_storage_domain_id", "storage domain in this data center", wanted.ovirt_storage_domain_id, usable
            )
        )
        return None
    if domain.type != types.StorageDomainType.DATA:
        problems.append(
            findings.Finding(
                field,
                f"storage domain {domain.name} is of type {_word(domain.type)}, not data",
                remedy=f"data domains there: {called(usable)}",
            )
        )
    elif domain.status != types.StorageDomainStatus.ACTIVE:
        problems.append(
            findings.Finding(
                field,
                f"storage domain {domain.name} is {_word(domain.status)}, not active",
                remedy=f"activate it, or use another: {called(usable)}",
            )
        )
    return domain


def _usable(domain: types.StorageDomain) -> bool:
    return bool(domain.type == types.StorageDomainType.DATA and domain.status == types.StorageDomainStatus.ACTIVE)


def _word(value: Any) -> str:
    return str(value.value) if value is not None else "unknown"


def _network(
    client: clients.Client, wanted: sections.Platform, cluster: types.Cluster, problems: list[findings.Finding]
) -> tuple[types.Network | None, types.VnicProfile | None]:
    networks = list(cluster.networks or ())
    network = next((each for each in networks if each.name == wanted.ovirt_network_name), None)
    if network is None:
        problems.append(
            findings.Finding(
                f"{HERE}.ovirt_network_name",
                f"cluster {cluster.name} has no network {wanted.ovirt_network_name!r}",
                remedy=f"its networks: {called(networks)}",
            )
        )
        return None, None
    profiles = client.call(
        "list the vNIC profiles of the network",
        lambda api: clients.everything(api.networks_service().network_service(network.id).vnic_profiles_service()),
    )
    field = f"{HERE}.vnicProfileID"
    if wanted.vnic_profile_id:
        profile = next((each for each in profiles if each.id == wanted.vnic_profile_id), None)
        if profile is None:
            problems.append(
                _missing("vnicProfileID", f"vNIC profile of network {network.name}", wanted.vnic_profile_id, profiles)
            )
        return network, profile
    if len(profiles) == 1:
        return network, profiles[0]
    choices = [f"{each.id} ({each.name})" for each in profiles[:_LISTED]]
    problems.append(
        findings.Finding(
            field,
            f"network {network.name} has {len(profiles)} vNIC profiles, so that one must be named",
            remedy=f"use {text.one_of(choices)}" if choices else "have one made in the engine",
        )
    )
    return network, None


def _instance_types(
    client: clients.Client, config: model.InstallConfig, problems: list[findings.Finding]
) -> dict[str, types.InstanceType]:
    found: dict[str, types.InstanceType] = {}
    for role in ROLES:
        identity = sections.defaults(config, role).instance_type_id
        if not identity or identity in found:
            continue
        there = client.call("list the instance types", lambda api: clients.everything(api.instance_types_service()))
        match = next((each for each in there if each.id == identity), None)
        if match is not None:
            found[identity] = match
            continue
        choices = [f"{each.id} ({each.name})" for each in there[:_LISTED]]
        problems.append(
            findings.Finding(
                f"{pool_field(config, role)}.instanceTypeID",
                f"there is no instance type {identity}",
                remedy=f"use {text.one_of(choices)}" if choices else "use cpu and memoryMB instead",
            )
        )
    return found


def pool_field(config: model.InstallConfig, role: sections.Role) -> str:
    """Where a person sets what the machines of a role are made with."""
    pool = config.control_plane if role == "master" else next(iter(config.compute), None)
    if (pool is None or pool.platform is None) and sections.settings(config).default_machine_platform is not None:
        return f"{HERE}.defaultMachinePlatform"
    return "controlPlane.platform.ovirt" if role == "master" else "compute[0].platform.ovirt"


def _template(
    client: clients.Client, wanted: sections.Platform, cluster: types.Cluster, problems: list[findings.Finding]
) -> types.Template | None:
    """The user's template, by id or by name; the newest version of several."""
    field, follow = f"{HERE}.template", "disk_attachments.disk"
    if rules.is_uuid(wanted.template):
        found = client.look(
            "look at the template",
            lambda api: api.templates_service().template_service(wanted.template).get(follow=follow),
        )
        candidates = [found] if found is not None else []
    else:
        candidates = client.named("templates", wanted.template, follow=follow)
    here = [each for each in candidates if each.cluster is None or each.cluster.id == cluster.id]
    if not here:
        elsewhere = " in this cluster, only in another" if candidates else ""
        problems.append(
            findings.Finding(
                field,
                f"there is no template {wanted.template!r}{elsewhere}",
                remedy="correct the name, or remove the field: the boot image is then uploaded",
            )
        )
        return None
    return max(here, key=lambda each: each.version.version_number if each.version else 0)


def _template_fits(template: types.Template, config: model.InstallConfig) -> Iterator[findings.Finding]:
    field, wanted = f"{HERE}.template", sections.settings(config)
    if template.status not in (None, types.TemplateStatus.OK):
        yield findings.Finding(
            field, f"template {template.name} is {_word(template.status)}", remedy="wait, or repair it"
        )
    disks = [each.disk for each in template.disk_attachments or () if each.disk is not None]
    if not disks:
        yield findings.Finding(
            field,
            f"template {template.name} has no disk to boot from",
            remedy="use one with RHCOS, or remove the field",
        )
        return
    largest = max(disk.provisioned_size or 0 for disk in disks) / GIB
    domains = {domain.id for disk in disks for domain in disk.storage_domains or ()}
    for role in ROLES:
        if not (config.control_plane_replicas if role == "master" else config.worker_replicas):
            continue
        pool = sections.defaults(config, role)
        if pool.os_disk is not None and pool.os_disk.size_gb < largest:
            yield findings.Finding(
                f"{pool_field(config, role)}.osDisk.sizeGB",
                f"is {pool.os_disk.size_gb}, and the template's disk has {largest:g} GiB: disks only grow",
                remedy=f"use {-(-largest // 1):g} or more",
            )
        if pool.clone is False and domains and wanted.ovirt_storage_domain_id not in domains:
            yield findings.Finding(
                f"{pool_field(config, role)}.clone",
                "the machines' disks are layered on the template's, which lies in another storage domain",
                remedy="set clone: true, or copy the template's disk to the storage domain of the machines",
            )
