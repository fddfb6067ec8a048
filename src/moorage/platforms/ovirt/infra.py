"""What a cluster is made of on oVirt: tags, affinity groups, a template and VMs.

All VMs start as soon as the template is there: masters wait for their config by themselves. Each VM is driven by the
actuator that also serves the cluster's later life, so that there is one way to make a node. Workers are made by the
cluster's own controllers, with that same actuator; only a cluster that has none gets its first ones here.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, ClassVar, Final

from ovirtsdk4 import types

from moorage.assets import openshift_manifests
from moorage.engine import context, errors, flow, outputs, resource, secret
from moorage.platforms import contract
from moorage.platforms.ovirt import client as clients
from moorage.platforms.ovirt import config as sections
from moorage.platforms.ovirt import credentials as credential
from moorage.platforms.ovirt import images, machine, machines_manifests, names, vms
from moorage.platforms.ovirt import template as templates

FLOW: Final = "infrastructure"
TAG, BOOTSTRAP_TAG, TEMPLATE = "tag", "tag-bootstrap", "template"
#: Where a cluster keeps its platform's credentials, and where its machine controllers look first.
_NAMESPACES: Final = ("kube-system", openshift_manifests.MACHINE_API)


def declare(cluster: contract.Cluster, around: contract.Surroundings) -> flow.Flow:
    """The day-1 flow."""
    platform = sections.settings(cluster.config)
    client = clients.shared(around)
    actuator = machine.Actuator(client)
    common: dict[str, Any] = {"client": client, "infra_id": cluster.infra_id}
    groups = [
        AffinityGroup(name=f"affinity-{each.name}", cluster_id=platform.ovirt_cluster_id, group=each, **common)
        for each in platform.affinity_groups
    ]
    made: list[resource.Resource[Any]] = [
        Tag(name=TAG, tag=names.tag(cluster.infra_id), **common),
        Tag(name=BOOTSTRAP_TAG, tag=names.bootstrap_tag(cluster.infra_id), **common),
        *groups,
    ]
    # A template of the user's own is used and never touched.
    if not platform.template:
        made.append(_template(cluster, platform, client, around))
    for each in machines_manifests.machines(cluster):
        made.append(_node(each, cluster, platform, actuator, groups))
    return flow.Flow(FLOW, tuple(made))


def secrets(_cluster: contract.Cluster, around: contract.Surroundings) -> Sequence[secret.Secret]:
    return credential.read(around.environ).secrets


def cluster_secret(_cluster: contract.Cluster, around: contract.Surroundings) -> contract.ClusterSecret | None:
    """The engine's credentials, under the keys that oVirt's controllers look for."""
    who = credential.read(around.environ)
    plain = {
        "ovirt_url": who.url,
        "ovirt_username": who.username,
        "ovirt_cafile": "",
        "ovirt_insecure": "true" if who.insecure else "false",
        "ovirt_ca_bundle": who.ca_bundle,
    }
    values = {key: secret.Secret(value) for key, value in plain.items()}
    return contract.ClusterSecret(
        _NAMESPACES, machines_manifests.CREDENTIALS, {**values, "ovirt_password": who.password}
    )


def _template(
    cluster: contract.Cluster, platform: sections.Platform, client: clients.Client, around: contract.Surroundings
) -> templates.Template:
    return templates.Template(
        name=TEMPLATE,
        needs=(TAG,),
        client=client,
        environ=around.environ,
        infra_id=cluster.infra_id,
        image=images.wanted(cluster.release),
        cluster_id=platform.ovirt_cluster_id,
        storage_domain_id=platform.ovirt_storage_domain_id,
        network=platform.ovirt_network_name,
        vnic_profile_id=platform.vnic_profile_id,
        expected=240.0,
        timeout=7200.0,
    )


def _node(
    each: contract.Machine,
    cluster: contract.Cluster,
    platform: sections.Platform,
    actuator: contract.Actuator,
    groups: Sequence[AffinityGroup],
) -> Node:
    joined = each.provider_spec.get("affinity_groups_names") or ()
    needs = [TAG]
    needs += [BOOTSTRAP_TAG] if each.role == "bootstrap" else []
    needs += [TEMPLATE] if not platform.template else []
    needs += [group.name for group in groups if isinstance(joined, list | tuple) and group.full_name in joined]
    return Node(
        name=each.name.removeprefix(f"{cluster.infra_id}-"),
        needs=tuple(needs),
        machine=dataclasses.replace(
            each, not_addresses=(*platform.api_vips, *platform.ingress_vips, *platform.dns_vips)
        ),
        actuator=actuator,
        expected=60.0,
        timeout=3600.0,
    )


@dataclasses.dataclass(frozen=True)
class Started:
    """A node's VM."""

    id: str
    provider_id: str
    name: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class Node(resource.Resource[Started]):
    """A VM, complete and switched on."""

    kind: ClassVar[str] = "VM"

    machine: contract.Machine
    actuator: contract.Actuator = dataclasses.field(repr=False)
    settle: float = 10.0
    every: float = vms.EVERY

    def lookup(self, inputs: outputs.Inputs, ctx: context.Context) -> Started | None:
        found = self.actuator.exists(self._known(ctx))
        return None if found is None else self._started(found)

    def create(self, inputs: outputs.Inputs, ctx: context.Context) -> str | None:
        return self.actuator.create(self.machine).id

    def wait(self, inputs: outputs.Inputs, ctx: context.Context) -> Started:
        if ctx.fresh:
            # Its disk has just begun to be made.
            ctx.waiting(f"VM {self.machine.name} to be made")
            ctx.sleep(self.every)

        def ready() -> Started | None:
            found = self.actuator.update(self._known(ctx))
            if found.ready:
                return self._started(found)
            ctx.waiting(f"VM {self.machine.name}: {found.waiting_for}")
            return None

        return ctx.poll(ready, what=f"VM {self.machine.name} to be made", every=self.every)

    def delete(self, inputs: outputs.Inputs, output: Started, ctx: context.Context) -> None:
        def gone() -> bool | None:
            try:
                self.actuator.delete(self._known(ctx))
            except errors.NotFound:
                return True
            return None

        ctx.poll(gone, what=f"VM {self.machine.name} to be gone", every=self.every)

    def _known(self, ctx: context.Context) -> contract.Machine:
        if not ctx.created_id:
            return self.machine
        return dataclasses.replace(self.machine, provider_id=names.provider_id(ctx.created_id))

    def _started(self, found: contract.Instance) -> Started:
        return Started(found.id, found.provider_id, self.machine.name)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Tag(resource.Resource[templates.Made]):
    """A tag. Their names are unique in an engine."""

    kind: ClassVar[str] = "tag"

    client: clients.Client = dataclasses.field(repr=False)
    infra_id: str
    tag: str
    settle: float = 10.0

    def lookup(self, inputs: outputs.Inputs, ctx: context.Context) -> templates.Made | None:
        found = self.client.named("tags", self.tag)
        return _ours("tag", self.tag, found, self.infra_id)

    def create(self, inputs: outputs.Inputs, ctx: context.Context) -> str | None:
        wanted = types.Tag(name=self.tag, description=names.mark(self.infra_id))
        made = self.client.call(f"make tag {self.tag}", lambda api: api.tags_service().add(wanted), safe=False)
        return str(made.id)

    def wait(self, inputs: outputs.Inputs, ctx: context.Context) -> templates.Made:
        # The engine's reply says that it is there, whole.
        return templates.Made(ctx.created_id, self.tag) if ctx.fresh and ctx.created_id else super().wait(inputs, ctx)

    def delete(self, inputs: outputs.Inputs, output: templates.Made, ctx: context.Context) -> None:
        self.client.call(
            f"remove tag {self.tag}", lambda api: api.tags_service().tag_service(output.id).remove(), safe=False
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class AffinityGroup(resource.Resource[templates.Made]):
    """A group whose VMs are kept on different hosts."""

    kind: ClassVar[str] = "affinity group"

    client: clients.Client = dataclasses.field(repr=False)
    infra_id: str
    cluster_id: str
    group: sections.AffinityGroup
    settle: float = 10.0

    @property
    def full_name(self) -> str:
        return names.affinity_group(self.infra_id, self.group.name)

    def lookup(self, inputs: outputs.Inputs, ctx: context.Context) -> templates.Made | None:
        listed = self.client.call(f"look for affinity group {self.full_name}", lambda api: self._service(api).list())
        found = [each for each in listed if each.name == self.full_name]
        return _ours(self.kind, self.full_name, found, self.infra_id)

    def create(self, inputs: outputs.Inputs, ctx: context.Context) -> str | None:
        wanted = types.AffinityGroup(
            name=self.full_name,
            description=names.mark(self.infra_id, self.group.description),
            priority=float(self.group.priority),
            vms_rule=types.AffinityRule(enabled=True, positive=False, enforcing=self.group.enforcing),
            hosts_rule=types.AffinityRule(enabled=False),
        )
        made = self.client.call(
            f"make affinity group {self.full_name}", lambda api: self._service(api).add(wanted), safe=False
        )
        return str(made.id)

    def wait(self, inputs: outputs.Inputs, ctx: context.Context) -> templates.Made:
        if ctx.fresh and ctx.created_id:
            return templates.Made(ctx.created_id, self.full_name)
        return super().wait(inputs, ctx)

    def delete(self, inputs: outputs.Inputs, output: templates.Made, ctx: context.Context) -> None:
        self.client.call(
            f"remove affinity group {self.full_name}",
            lambda api: self._service(api).group_service(output.id).remove(),
            safe=False,
        )

    def _service(self, api: Any) -> Any:
        return api.clusters_service().cluster_service(self.cluster_id).affinity_groups_service()


def _ours(kind: str, name: str, found: Sequence[Any], infra_id: str) -> templates.Made | None:
    """The one that bears the cluster's mark; `Conflict` if there are only others of the name."""
    ours = [each for each in found if names.marked(each.description, infra_id)]
    if found and not ours:
        raise errors.Conflict(
            f"there is a {kind} {name} that does not belong to the cluster",
            remedy=f"rename or remove it: its description is not {names.mark(infra_id)!r}",
        )
    return templates.Made(str(ours[0].id), name) if ours else None
