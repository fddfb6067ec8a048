"""What a cluster on oVirt is told: what it stands on, its machines, and who carries its addresses.

By default the cluster believes to be on platform ``External``, for which nobody brings VIP pods or machine
controllers: ours are among the manifests then. With ``platformType: oVirt`` the machine-config operator brings its own
pods (4.20 still does), so ours stay out; nobody makes machines there any more, so the first workers are the
installer's. No password is in any of this: manifests are part of the bootstrap's user data, which every user of the
engine who may see the machine may read. The installer hands the credentials over through the cluster's API.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from moorage.assets import machine_api_manifests, platform, values
from moorage.config import model
from moorage.network import settings as network_settings
from moorage.network import stack
from moorage.platforms.ovirt import config as sections
from moorage.platforms.ovirt import machines_manifests, tfvars


class Ovirt:
    """The manifests hook of oVirt."""

    name = "ovirt"

    def api_vips(self, config: model.InstallConfig) -> tuple[str, ...]:
        return sections.settings(config).api_vips

    def ingress_vips(self, config: model.InstallConfig) -> tuple[str, ...]:
        return sections.settings(config).ingress_vips

    def infrastructure(self, context: platform.Context) -> platform.Infrastructure:
        if not machines_manifests.is_native(context):
            return platform.Infrastructure(
                type="External",
                spec={"external": {"platformName": "ovirt"}},
                # With "External" every node would wait, tainted, for a cloud controller that oVirt does not have.
                status={"external": {"cloudControllerManager": {"state": "None"}}},
            )
        chosen = sections.settings(context.config)
        return platform.Infrastructure(
            type="oVirt",
            spec={"ovirt": {}},
            status={
                "ovirt": {
                    "apiServerInternalIP": chosen.api_vips[0],
                    "apiServerInternalIPs": list(chosen.api_vips),
                    "ingressIP": chosen.ingress_vips[0],
                    "ingressIPs": list(chosen.ingress_vips),
                    "loadBalancer": {"type": "OpenShiftManagedDefault"},
                }
            },
        )

    def cloud_config(self, context: platform.Context) -> Mapping[str, str]:
        return {}

    def credentials(self, context: platform.Context) -> tuple[str, Mapping[str, str]] | None:
        """None: they never are in a manifest."""
        return None

    def masters(self, context: platform.Context) -> Sequence[values.Manifest]:
        return machines_manifests.masters(context)

    def control_plane_machine_set(self, context: platform.Context) -> values.Manifest | None:
        """None: its operator, part of the release, knows no provider spec of oVirt and would report itself degraded."""
        return None

    def workers(self, context: platform.Context) -> Sequence[values.Manifest]:
        return machines_manifests.worker_sets(context)

    def worker_machines(self, context: platform.Context) -> Sequence[values.Manifest]:
        return machines_manifests.workers(context)

    def extra(self, context: platform.Context) -> Mapping[str, values.Manifest]:
        if machines_manifests.is_native(context):
            return {}
        wanted = network(context)
        controllers = machine_api_manifests.manifests(machine_controllers(context))
        return {**stack.machine_configs(wanted), **stack.cluster_manifests(wanted), **controllers}

    def bootstrap_files(self, context: platform.Context) -> Sequence[values.IgnitionFile]:
        return () if machines_manifests.is_native(context) else tuple(stack.bootstrap_files(network(context)))

    def bootstrap_units(self, context: platform.Context) -> Sequence[values.IgnitionUnit]:
        return ()

    def metadata(self, context: platform.Context) -> Mapping[str, object]:
        chosen = sections.settings(context.config)
        return {
            "cluster_id": chosen.ovirt_cluster_id,
            "storage_domain_id": chosen.ovirt_storage_domain_id,
            # A template that the user brought is the user's.
            "remove_template": not chosen.template,
        }

    def companion_files(self, context: platform.Context) -> values.Files:
        return {tfvars.FILE: tfvars.render(context)}


def network(context: platform.Context) -> network_settings.Settings:
    """What the nodes must know to carry the cluster's addresses."""
    chosen, config = sections.settings(context.config), context.config
    return network_settings.Settings(
        infra_id=context.infra_id,
        cluster_domain=config.cluster_domain,
        api_vips=chosen.api_vips,
        ingress_vips=chosen.ingress_vips,
        dns_vips=chosen.dns_vips,
        machine_networks=tuple(each.cidr for each in config.networking.machine_network),
        image=chosen.network_image,
        mdns=False,
    )


def machine_controllers(context: platform.Context) -> machine_api_manifests.Wanted:
    """Who looks after the machines: the release has nobody for them on platform External."""
    return machine_api_manifests.Wanted(
        platform="ovirt",
        # One image has everything that runs on nodes and in clusters.
        image=sections.settings(context.config).network_image,
        credentials=machines_manifests.CREDENTIALS,
        replicas=2 if context.config.control_plane_replicas > 1 else 1,
    )


MANIFESTS: platform.Manifests = Ovirt()
