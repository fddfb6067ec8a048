"""The cluster-wide settings the installer decides: infrastructure, names, networks, ingress, scheduling, proxy.

The operators' render commands on the bootstrap node read these by file name, so the names are fixed. What depends on
the platform is asked of its manifests hook; no platform is named here.
"""

from __future__ import annotations

from collections.abc import Mapping

from moorage.assets import objects, proxy, topology, trust_manifests, values
from moorage.assets import platform as platforms
from moorage.assets.graph import asset
from moorage.config import model

_ABOUT_INSTALL_CONFIG = (
    "The install-config this cluster was made from, without its secrets. The cluster may have changed since: "
    "for its present state look at its configuration resources."
)


@asset()
def context(
    install_config: model.InstallConfig, cluster_id: values.ClusterID, release: values.Release
) -> platforms.Context:
    """What the platform's manifests may depend on."""
    return platforms.Context(install_config, cluster_id, release)


@asset()
def infrastructure_manifest(
    context: platforms.Context, platform: platforms.Manifests, endpoints: values.Endpoints
) -> values.Files:
    """The Infrastructure object: what the cluster stands on, and where its API is."""
    block = platform.infrastructure(context)
    cloud_config = platform.cloud_config(context)
    modes = topology.of(context.config)
    manifest = objects.cluster_config(
        "Infrastructure",
        spec={
            "cloudConfig": _cloud_config_reference(cloud_config),
            "platformSpec": {"type": block.type, **block.spec},
        },
        status={
            "infrastructureName": context.infra_id,
            "platform": block.type,
            "platformStatus": {"type": block.type, **block.status},
            "etcdDiscoveryDomain": "",
            "apiServerURL": endpoints.api_url,
            "apiServerInternalURI": endpoints.api_int_url,
            "controlPlaneTopology": modes.control_plane,
            "infrastructureTopology": modes.infrastructure,
            "cpuPartitioning": context.config.cpu_partitioning_mode,
        },
    )
    return objects.file("manifests/cluster-infrastructure-02-config.yml", manifest)


def _cloud_config_reference(cloud_config: Mapping[str, str]) -> dict[str, object]:
    if not cloud_config:
        return {"name": ""}
    key = "config" if "config" in cloud_config else next(iter(cloud_config))
    return {"key": key, "name": "cloud-provider-config"}


@asset()
def cloud_provider_manifest(context: platforms.Context, platform: platforms.Manifests) -> values.Files:
    """The cloud provider's settings, where the platform has any."""
    cloud_config = platform.cloud_config(context)
    if not cloud_config:
        return {}
    manifest = objects.config_map("openshift-config", "cloud-provider-config", cloud_config)
    return objects.file("manifests/cloud-provider-config.yaml", manifest)


@asset()
def dns_manifest(install_config: model.InstallConfig) -> values.Files:
    """The DNS object: the domain below which all of the cluster's names lie."""
    manifest = objects.cluster_config("DNS", spec={"baseDomain": install_config.cluster_domain})
    return objects.file("manifests/cluster-dns-02-config.yml", manifest)


@asset()
def network_manifest(install_config: model.InstallConfig) -> values.Files:
    """The Network object: addresses of pods and services, and the plug-in that connects them."""
    networking = install_config.networking
    manifest = objects.cluster_config(
        "Network",
        spec={
            "clusterNetwork": _cluster_network(networking),
            # An empty policy forbids Services to claim external addresses, which would let any project's owner
            # take over somebody else's traffic.
            "externalIP": {"policy": {}},
            "networkType": networking.network_type,
            "serviceNetwork": list(networking.service_network),
        },
    )
    return objects.file("manifests/cluster-network-02-config.yml", manifest)


def _cluster_network(networking: model.Networking) -> list[dict[str, object]]:
    return [{"cidr": network.cidr, "hostPrefix": network.host_prefix} for network in networking.cluster_network]


@asset()
def network_operator_manifest(install_config: model.InstallConfig) -> values.Files:
    """Settings for the network operator itself, where its defaults do not fit."""
    networking = install_config.networking
    if networking.join_subnet is None:
        return {}
    manifest: values.Manifest = {
        "apiVersion": "operator.openshift.io/v1",
        "kind": "Network",
        "metadata": {"name": "cluster"},
        "spec": {
            "managementState": "Managed",
            "clusterNetwork": _cluster_network(networking),
            "serviceNetwork": list(networking.service_network),
            "defaultNetwork": {
                "type": networking.network_type,
                "ovnKubernetesConfig": {"ipv4": {"internalJoinSubnet": networking.join_subnet}},
            },
        },
    }
    return objects.file("manifests/cluster-network-03-config.yml", manifest)


@asset()
def ingress_manifest(context: platforms.Context, platform: platforms.Manifests) -> values.Files:
    """The Ingress object: the domain of routes, and on which nodes routers run."""
    config = context.config
    manifest = objects.cluster_config(
        "Ingress",
        spec={"domain": f"apps.{config.cluster_domain}"},
        status={"defaultPlacement": "ControlPlane" if _node_is_the_balancer(context, platform) else "Workers"},
    )
    files = objects.file("manifests/cluster-ingress-02-config.yml", manifest)
    if config.publish == "Internal" and platform.cloud_config(context) and not platform.ingress_vips(config):
        return objects.merge(files, _internal_ingress_controller())
    return files


def _node_is_the_balancer(context: platforms.Context, platform: platforms.Manifests) -> bool:
    # A single node of the user's own has api and *.apps pointed straight at it. Workers added later must not attract
    # the router, or the cluster would suddenly need a balancer.
    single = topology.of(context.config).control_plane == topology.SINGLE_REPLICA
    return single and not platform.masters(context) and not platform.ingress_vips(context.config)


def _internal_ingress_controller() -> values.Files:
    # Left to itself, the ingress operator orders a public balancer from the cloud.
    manifest = {
        "apiVersion": "operator.openshift.io/v1",
        "kind": "IngressController",
        "metadata": {"name": "default", "namespace": "openshift-ingress-operator"},
        "spec": {
            "endpointPublishingStrategy": {"type": "LoadBalancerService", "loadBalancer": {"scope": "Internal"}},
        },
    }
    return objects.file("manifests/cluster-ingress-default-ingresscontroller.yaml", manifest)


@asset()
def scheduler_manifest(install_config: model.InstallConfig) -> values.Files:
    """The Scheduler object: whether workloads may run on the control plane, as they must where it is all there is."""
    manifest = objects.cluster_config("Scheduler", spec={"mastersSchedulable": install_config.is_compact})
    return objects.file("manifests/cluster-scheduler-02-config.yml", manifest)


@asset()
def proxy_manifest(install_config: model.InstallConfig, endpoints: values.Endpoints) -> values.Files:
    """The Proxy object: the way out, and what goes directly."""
    spec: dict[str, object] = {}
    status: dict[str, object] = {}
    way_out = install_config.proxy
    if way_out is not None:
        urls = {"httpProxy": way_out.http_proxy, "httpsProxy": way_out.https_proxy}
        used = {key: url for key, url in urls.items() if url}
        # Tidied here too: the operator starts from this spec and must come to the same list as the status below.
        direct = ",".join(proxy.user_entries(way_out.no_proxy))
        spec = {**used, "noProxy": direct} if direct else {**used}
        status = {**used, "noProxy": proxy.effective_no_proxy(install_config, endpoints)} if used else {}
    if trust_manifests.is_trusted_by_all(install_config):
        spec["trustedCA"] = {"name": trust_manifests.USER_CA_BUNDLE}
    return objects.file(
        "manifests/cluster-proxy-01-config.yaml", objects.cluster_config("Proxy", spec=spec, status=status)
    )


@asset()
def install_config_manifest(install_config: model.InstallConfig) -> values.Files:
    """What the cluster is told about its own making: the install-config without secrets."""
    manifest = objects.config_map(
        "kube-system",
        "cluster-config-v1",
        {"install-config": objects.to_yaml(install_config.redacted()).decode()},
        metadata={"annotations": {"kubernetes.io/description": _ABOUT_INSTALL_CONFIG}},
    )
    return objects.file("manifests/cluster-config.yaml", manifest)
