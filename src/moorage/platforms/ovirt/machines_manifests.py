"""The machines of a cluster on oVirt, as the machine-api writes them: what each is called and what it is made of.

There is one description of a machine, `provider_spec`, and all who need one read it from here: the Machine objects in
the manifests, the MachineSets of the workers, and `machines`, from which the first ones are made. So what the installer
makes and what the cluster later believes to have cannot differ. Workers are the cluster's own affair where it brings
controllers that make them; a cluster that calls itself oVirt has none, and gets its first workers from the installer.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Final

from moorage.assets import openshift_manifests, platform, values
from moorage.platforms import contract
from moorage.platforms.ovirt import config as sections
from moorage.platforms.ovirt import names

API: Final = "machine.openshift.io/v1beta1"
SPEC: Final = "ovirtproviderconfig.machine.openshift.io/v1beta1"
CREDENTIALS: Final = "ovirt-credentials"

_CLUSTER: Final = "machine.openshift.io/cluster-api-cluster"
_ROLE: Final = "machine.openshift.io/cluster-api-machine-role"
_TYPE: Final = "machine.openshift.io/cluster-api-machine-type"
_SET: Final = "machine.openshift.io/cluster-api-machineset"
# As Kubernetes' own: no vowels, so that no word comes out, and nothing that looks like something else.
_LETTERS: Final = "bcdfghjklmnpqrstvwxz2456789"
_SUFFIX: Final = 5


def masters(context: platform.Context) -> tuple[values.Manifest, ...]:
    """The control plane's Machines."""
    spec = _spec_of(context, "master")
    return tuple(_machine(context, name, "master", spec) for name in master_names(context))


def worker_sets(context: platform.Context) -> tuple[values.Manifest, ...]:
    """A MachineSet for each pool of workers."""
    spec = _spec_of(context, "worker")
    return tuple(
        {
            "apiVersion": API,
            "kind": "MachineSet",
            "metadata": _metadata(set_name(context, index), _labels(context, "worker")),
            "spec": {
                "replicas": pool.replicas,
                "selector": {
                    "matchLabels": {_SET: set_name(context, index), _CLUSTER: context.infra_id},
                },
                "template": {
                    "metadata": {"labels": _labels(context, "worker", set_name(context, index))},
                    "spec": {"providerSpec": {"value": spec}},
                },
            },
        }
        for index, pool in enumerate(context.config.compute)
    )


def workers(context: platform.Context) -> tuple[values.Manifest, ...]:
    """The Machines of the workers that the installer makes: none, where MachineSets do.

    They bear the labels that their MachineSet selects: whoever acts on it one day adopts them and makes no more.
    """
    spec = _spec_of(context, "worker")
    return tuple(_machine(context, name, "worker", spec, owner) for owner, name in _made_workers(context))


def _made_workers(context: platform.Context) -> list[tuple[str, str]]:
    """Set and name of each worker that is made on day 1.

    Releases that know platform oVirt still bring its address pods, but nobody who makes its machines.
    """
    if not is_native(context):
        return []
    return [
        (set_name(context, index), name)
        for index, pool in enumerate(context.config.compute)
        for name in worker_names(context, index, pool.replicas)
    ]


def is_native(context: platform.Context) -> bool:
    """Whether the cluster believes to be on platform oVirt: then no controllers of ours are in it."""
    return sections.settings(context.config).platform_type == "oVirt"


def machines(cluster: contract.Cluster) -> tuple[contract.Machine, ...]:
    """Everything that day 1 makes, ready for the actuator: bootstrap, masters, workers if nobody else does."""
    context = platform.Context(cluster.config, cluster.cluster_id, cluster.release)
    temporary = provider_spec(context, "bootstrap", bootstrap_pool(context))
    wanted: list[tuple[str, str, Mapping[str, object]]] = [("bootstrap", names.bootstrap(context.infra_id), temporary)]
    wanted += [("master", name, _spec_of(context, "master")) for name in master_names(context)]
    wanted += [("worker", name, _spec_of(context, "worker")) for _, name in _made_workers(context)]
    chosen = sections.settings(cluster.config)
    shared = (*chosen.api_vips, *chosen.ingress_vips, *chosen.dns_vips)
    return tuple(
        contract.Machine(name, context.infra_id, role, spec, cluster.ignition[role], not_addresses=shared)
        for role, name, spec in wanted
    )


def bootstrap_pool(context: platform.Context) -> sections.MachinePool:
    """What the bootstrap is made of: as large as openshift-install's, and in nobody's affinity group.

    It lives for half an hour, so its disk is a thin layer over the template. A template of the user's own may lie on
    another storage domain, where thin layers would have to lie too: then it is copied.
    """
    return sections.MachinePool(
        cpu=sections.Cpu(cores=4),
        memory_mb=8192,
        os_disk=sections.OsDisk(size_gb=120),
        vm_type="server",
        auto_pinning_policy="none",
        clone=bool(sections.settings(context.config).template),
        affinity_groups_names=(),
    )


def provider_spec(context: platform.Context, role: str, pool: sections.MachinePool) -> dict[str, object]:
    """``spec.providerSpec.value`` of a machine: the provider's own field names; what is not set is not there.

    ``storage_domain_id`` is ours: the provider of old put disks wherever the template's were.
    """
    chosen = sections.settings(context.config)
    spec: dict[str, object] = {
        "apiVersion": SPEC,
        "kind": "OvirtMachineProviderSpec",
        "cluster_id": chosen.ovirt_cluster_id,
        "template_name": template(context),
        "storage_domain_id": chosen.ovirt_storage_domain_id,
        "instance_type_id": pool.instance_type_id,
        "cpu": _cpu(pool.cpu),
        "memory_mb": pool.memory_mb,
        # All of it: an overcommitted host that takes memory back makes etcd miss its deadlines.
        "guaranteed_memory_mb": pool.memory_mb,
        "os_disk": {"size_gb": pool.os_disk.size_gb} if pool.os_disk else None,
        "type": pool.vm_type,
        "network_interfaces": [{"vnic_profile_id": chosen.vnic_profile_id}] if chosen.vnic_profile_id else None,
        "affinity_groups_names": [affinity_group(context, name) for name in pool.affinity_groups_names or ()],
        "auto_pinning_policy": pool.auto_pinning_policy,
        "hugepages": pool.hugepages,
        "format": pool.format,
        "clone": pool.clone,
        "sparse": pool.sparse,
        "credentialsSecret": {"name": CREDENTIALS},
        # A bootstrap is no machine of the cluster: its user data is never in a Secret there.
        "userDataSecret": {"name": f"{role}-user-data"} if role != "bootstrap" else None,
    }
    return {key: value for key, value in spec.items() if value is False or value not in (None, "", 0, [])}


def template(context: platform.Context) -> str:
    """The template that machines are made from: the user's own, or the one that is made for this cluster."""
    return sections.settings(context.config).template or names.template(context.infra_id)


def affinity_group(context: platform.Context, name: str) -> str:
    """A group's name in the engine: those that are made for the cluster bear its mark, others are somebody else's."""
    declared = {group.name for group in sections.settings(context.config).affinity_groups}
    return names.affinity_group(context.infra_id, name) if name in declared else name


def master_names(context: platform.Context) -> tuple[str, ...]:
    return tuple(f"{context.infra_id}-master-{number}" for number in range(context.config.control_plane_replicas))


def set_name(context: platform.Context, index: int) -> str:
    return f"{context.infra_id}-worker-{index}"


def worker_names(context: platform.Context, index: int, count: int) -> tuple[str, ...]:
    """Names such as a MachineSet gives, but the same in every run: what an earlier run made is found again.

    A pool that grows keeps the names it has.
    """
    found: list[str] = []
    for number in range(count):
        turn = 0
        while (name := f"{set_name(context, index)}-{_suffix(context.infra_id, index, number, turn)}") in found:
            turn += 1
        found.append(name)
    return tuple(found)


def _suffix(*parts: object) -> str:
    number = int.from_bytes(hashlib.sha256("/".join(map(str, parts)).encode()).digest(), "big")
    letters = ""
    for _ in range(_SUFFIX):
        number, place = divmod(number, len(_LETTERS))
        letters += _LETTERS[place]
    return letters


def _spec_of(context: platform.Context, role: sections.Role) -> dict[str, object]:
    return provider_spec(context, role, sections.defaults(context.config, role))


def _cpu(cpu: sections.Cpu | None) -> dict[str, int] | None:
    return {"sockets": cpu.sockets, "cores": cpu.cores, "threads": cpu.threads} if cpu else None


def _machine(
    context: platform.Context, name: str, role: str, spec: Mapping[str, object], machine_set: str = ""
) -> values.Manifest:
    return {
        "apiVersion": API,
        "kind": "Machine",
        "metadata": _metadata(name, _labels(context, role, machine_set)),
        "spec": {"providerSpec": {"value": dict(spec)}},
    }


def _metadata(name: str, labels: Mapping[str, str]) -> dict[str, object]:
    return {"name": name, "namespace": openshift_manifests.MACHINE_API, "labels": dict(labels)}


def _labels(context: platform.Context, role: str, machine_set: str = "") -> dict[str, str]:
    labels = {_CLUSTER: context.infra_id, _ROLE: role, _TYPE: role}
    return {**labels, _SET: machine_set} if machine_set else labels
