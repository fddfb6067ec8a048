"""The cluster-wide settings, read as the operators' render commands read them: by file name."""

import pytest
import yaml

from moorage.config import model

INFRASTRUCTURE = "cluster-infrastructure-02-config.yml"
INGRESS = "cluster-ingress-02-config.yml"
CONTROLLER = "cluster-ingress-default-ingresscontroller.yaml"
PROXY = "cluster-proxy-01-config.yaml"


def test_infrastructure_of_a_cluster_on_the_users_machines(parsed):
    manifest = parsed()[INFRASTRUCTURE]

    assert (manifest["kind"], manifest["metadata"]["name"]) == ("Infrastructure", "cluster")
    assert manifest["spec"] == {"cloudConfig": {"name": ""}, "platformSpec": {"type": "None"}}
    assert manifest["status"] == {
        "infrastructureName": "berth-x7k2p",
        "platform": "None",
        "platformStatus": {"type": "None"},
        "etcdDiscoveryDomain": "",
        "apiServerURL": "https://api.berth.example.org:6443",
        "apiServerInternalURI": "https://api-int.berth.example.org:6443",
        "controlPlaneTopology": "HighlyAvailable",
        "infrastructureTopology": "HighlyAvailable",
        "cpuPartitioning": "None",
    }


def test_infrastructure_carries_the_platforms_block_and_points_to_its_cloud_config(parsed, harbour):
    files = parsed(on=harbour)
    manifest = files[INFRASTRUCTURE]

    assert manifest["spec"]["platformSpec"] == {"type": "External", "external": {"platformName": "harbour"}}
    assert manifest["status"]["platform"] == "External"
    assert manifest["status"]["platformStatus"]["external"] == {"cloudControllerManager": {"state": "External"}}
    reference = manifest["spec"]["cloudConfig"]
    assert reference["key"] in files["cloud-provider-config.yaml"]["data"]
    assert reference["name"] == files["cloud-provider-config.yaml"]["metadata"]["name"]


@pytest.mark.parametrize(
    ("masters", "workers", "modes"),
    [(3, 0, ("HighlyAvailable", "HighlyAvailable")), (1, 0, ("SingleReplica", "SingleReplica"))],
)
def test_infrastructure_says_how_redundant_the_cluster_is(parsed, configure, masters, workers, modes):
    status = parsed(configure(masters=masters, workers=workers))[INFRASTRUCTURE]["status"]

    assert (status["controlPlaneTopology"], status["infrastructureTopology"]) == modes


def test_infrastructure_repeats_the_cpu_partitioning(parsed, configure):
    status = parsed(configure(cpu_partitioning_mode="AllNodes"))[INFRASTRUCTURE]["status"]

    assert status["cpuPartitioning"] == "AllNodes"


def test_cloud_config_is_written_as_the_platform_gives_it(parsed, harbour):
    manifest = parsed(on=harbour)["cloud-provider-config.yaml"]

    assert manifest["metadata"] == {"name": "cloud-provider-config", "namespace": "openshift-config"}
    assert manifest["data"] == {"harbour.conf": "[berth]\nnumber = 7\n"}


def test_no_cloud_config_where_the_platform_has_none(parsed):
    assert "cloud-provider-config.yaml" not in parsed()


def test_dns_is_the_clusters_own_domain(parsed):
    assert parsed()["cluster-dns-02-config.yml"]["spec"] == {"baseDomain": "berth.example.org"}


def test_network_of_the_defaults(parsed):
    spec = parsed()["cluster-network-02-config.yml"]["spec"]

    assert spec == {
        "clusterNetwork": [{"cidr": "10.128.0.0/14", "hostPrefix": 23}],
        "externalIP": {"policy": {}},
        "networkType": "OVNKubernetes",
        "serviceNetwork": ["172.30.0.0/16"],
    }


@pytest.mark.parametrize(
    ("pods", "services"),
    [
        ([("fd01::/48", 64)], ["fd02::/112"]),
        ([("10.128.0.0/14", 23), ("fd01::/48", 64)], ["172.30.0.0/16", "fd02::/112"]),
    ],
    ids=["IPv6", "dual stack"],
)
def test_network_keeps_families_and_their_order(parsed, configure, pods, services):
    networking = model.Networking(
        cluster_network=tuple(model.ClusterNetwork(cidr=cidr, host_prefix=prefix) for cidr, prefix in pods),
        service_network=tuple(services),
    )

    spec = parsed(configure(networking=networking))["cluster-network-02-config.yml"]["spec"]

    assert [(network["cidr"], network["hostPrefix"]) for network in spec["clusterNetwork"]] == pods
    assert spec["serviceNetwork"] == services


def test_network_names_the_plugin_that_was_chosen(parsed, configure):
    config = configure(networking=model.Networking(network_type="Calico"))

    assert parsed(config)["cluster-network-02-config.yml"]["spec"]["networkType"] == "Calico"


def test_the_network_operator_is_left_alone_unless_asked(parsed):
    assert "cluster-network-03-config.yml" not in parsed()


def test_a_join_range_of_the_users_reaches_the_network_operator(parsed, configure):
    join = model.OvnKubernetes(ipv4=model.OvnAddresses(internal_join_subnet="100.99.0.0/16"))

    manifest = parsed(configure(networking=model.Networking(ovn_kubernetes_config=join)))[
        "cluster-network-03-config.yml"
    ]

    assert manifest["apiVersion"] == "operator.openshift.io/v1"
    assert manifest["spec"]["defaultNetwork"] == {
        "type": "OVNKubernetes",
        "ovnKubernetesConfig": {"ipv4": {"internalJoinSubnet": "100.99.0.0/16"}},
    }
    assert manifest["spec"]["clusterNetwork"] == [{"cidr": "10.128.0.0/14", "hostPrefix": 23}]


def test_routes_live_below_apps(parsed):
    assert parsed()[INGRESS]["spec"] == {"domain": "apps.berth.example.org"}


@pytest.mark.parametrize(
    ("masters", "workers", "placement"),
    [(3, 3, "Workers"), (3, 0, "Workers"), (1, 0, "ControlPlane"), (1, 2, "ControlPlane")],
)
def test_the_router_stays_on_a_single_node_of_the_users_own(parsed, configure, masters, workers, placement):
    manifest = parsed(configure(masters=masters, workers=workers))[INGRESS]

    assert manifest["status"] == {"defaultPlacement": placement}


def test_where_the_platform_brings_vips_the_router_follows_the_workers(parsed, configure, harbour):
    manifest = parsed(configure(masters=1, workers=0), on=harbour)[INGRESS]

    assert manifest["status"] == {"defaultPlacement": "Workers"}


def test_an_internal_cluster_orders_an_internal_balancer(parsed, configure, cloud):
    manifest = parsed(configure(publish="Internal"), on=cloud)[CONTROLLER]

    assert manifest["metadata"] == {"name": "default", "namespace": "openshift-ingress-operator"}
    strategy = manifest["spec"]["endpointPublishingStrategy"]
    assert strategy == {"type": "LoadBalancerService", "loadBalancer": {"scope": "Internal"}}


def test_a_published_cluster_leaves_the_balancer_to_the_operator(parsed, configure, cloud):
    assert CONTROLLER not in parsed(configure(publish="External"), on=cloud)


@pytest.mark.parametrize("place", ["harbour", "none"])
def test_no_balancer_is_ordered_where_there_is_no_cloud_to_order_from(parsed, configure, harbour, place):
    more = {"on": harbour} if place == "harbour" else {}

    assert CONTROLLER not in parsed(configure(publish="Internal"), **more)


@pytest.mark.parametrize(
    ("masters", "workers", "schedulable"), [(3, 3, False), (3, 1, False), (3, 0, True), (1, 0, True)]
)
def test_the_control_plane_takes_workloads_only_where_nobody_else_can(parsed, configure, masters, workers, schedulable):
    manifest = parsed(configure(masters=masters, workers=workers))["cluster-scheduler-02-config.yml"]

    assert manifest["spec"] == {"mastersSchedulable": schedulable}


def test_without_a_proxy_the_object_is_there_and_empty(parsed):
    manifest = parsed()[PROXY]

    assert (manifest["kind"], manifest["spec"], manifest["status"]) == ("Proxy", {}, {})


def test_a_proxy_is_in_the_spec_and_in_force(parsed, configure):
    way_out = model.Proxy(
        http_proxy="http://squid.example.org:3128",
        https_proxy="https://squid.example.org:3129",
        no_proxy="b.example.com, a.example.com",
    )

    manifest = parsed(configure(proxy=way_out))[PROXY]

    assert manifest["spec"] == {
        "httpProxy": "http://squid.example.org:3128",
        "httpsProxy": "https://squid.example.org:3129",
        "noProxy": "b.example.com,a.example.com",
    }
    assert manifest["status"]["httpsProxy"] == "https://squid.example.org:3129"
    exempt = manifest["status"]["noProxy"].split(",")
    assert {"a.example.com", "b.example.com", "api-int.berth.example.org", "172.30.0.0/16"} < set(exempt)


@pytest.mark.parametrize(
    ("bundle", "policy", "proxied", "trusted"),
    [
        ("", "Always", True, False),
        ("pem", "Proxyonly", False, False),
        ("pem", "Proxyonly", True, True),
        ("pem", "Always", False, True),
        ("pem", "Always", True, True),
    ],
)
def test_the_additional_bundle_is_trusted_by_all_as_the_policy_says(
    parsed, configure, pairs, bundle, policy, proxied, trusted
):
    config = configure(
        additional_trust_bundle=pairs[0].cert if bundle else "",
        additional_trust_bundle_policy=policy,
        proxy=model.Proxy(http_proxy="http://squid.example.org:3128") if proxied else None,
    )

    spec = parsed(config)[PROXY]["spec"]

    assert spec.get("trustedCA") == ({"name": "user-ca-bundle"} if trusted else None)


def test_the_cluster_is_told_its_install_config(parsed, configure):
    config = configure(workers=2)

    manifest = parsed(config)["cluster-config.yaml"]
    told = yaml.safe_load(manifest["data"]["install-config"])

    assert (manifest["metadata"]["namespace"], manifest["metadata"]["name"]) == ("kube-system", "cluster-config-v1")
    assert told == config.redacted()
    assert told["controlPlane"]["replicas"] == 3
    assert told["networking"]["machineNetwork"] == [{"cidr": "10.0.0.0/16"}]


def test_the_cluster_is_not_told_the_proxys_password(parsed, configure):
    config = configure(proxy=model.Proxy(http_proxy="http://sailor:rum@squid.example.org:3128"))

    told = parsed(config)["cluster-config.yaml"]["data"]["install-config"]

    assert "squid.example.org" in told
    assert "rum" not in told
