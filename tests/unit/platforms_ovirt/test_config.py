"""The install-config for oVirt: every rule in a table, old files understood, and what machines come out as."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from moorage import network
from moorage.config import emit, explain, findings, load, model
from moorage.platforms import registry
from moorage.platforms.ovirt import config as ovirt

CLUSTER = "00000000-aaaa-4000-8000-000000000001"
STORAGE = "00000000-bbbb-4000-8000-000000000002"
PROFILE = "00000000-cccc-4000-8000-000000000003"
INSTANCE = "00000000-dddd-4000-8000-000000000004"
IMAGE = "registry.example.com/moorage/moorage:1.0"

BASE: dict[str, Any] = {
    "apiVersion": "v1",
    "metadata": {"name": "demo"},
    "baseDomain": "example.com",
    "pullSecret": '{"auths":{"registry.example.com":{"auth":"dXNlcjpwYXNz"}}}',
    "controlPlane": {"name": "master", "replicas": 3},
    "compute": [{"name": "worker", "replicas": 2}],
    "networking": {"machineNetwork": [{"cidr": "10.0.0.0/16"}]},
    "platform": {
        "ovirt": {
            "ovirt_cluster_id": CLUSTER,
            "ovirt_storage_domain_id": STORAGE,
            "vnicProfileID": PROFILE,
            "api_vips": ["10.0.0.2"],
            "ingress_vips": ["10.0.0.3"],
            "networkImage": IMAGE,
        }
    },
}
SHARED = "platform.ovirt.defaultMachinePlatform"


def written(
    platform: dict[str, Any] | None = None,
    masters: dict[str, Any] | None = None,
    workers: dict[str, Any] | None = None,
    **top: Any,
) -> str:
    """The sound file with fields of its sections set; None removes one."""
    data = copy.deepcopy(BASE)
    data |= top
    for key, value in (platform or {}).items():
        data["platform"]["ovirt"][key] = value
        if value is None:
            del data["platform"]["ovirt"][key]
    if masters is not None:
        data["controlPlane"]["platform"] = {"ovirt": masters}
    if workers is not None:
        data["compute"][0]["platform"] = {"ovirt": workers}
    return emit.dump(data)


def check(text: str) -> list[findings.Finding]:
    return load.check(text, registry.stanzas())


def parse(text: str) -> model.InstallConfig:
    return load.parse(text, registry.stanzas())[0]


def told(text: str) -> list[tuple[str, str, str]]:
    return [(finding.field, finding.severity, finding.message) for finding in check(text)]


def test_a_sound_file_has_no_finding_and_survives_being_written_again() -> None:
    config = parse(written())

    assert check(written()) == []
    assert parse(emit.dump(config.to_dict())) == config
    assert config.credentials_mode == "Manual"


PLATFORM_MISTAKES = [
    ({"ovirt_cluster_id": "Default"}, "ovirt_cluster_id", "'Default' is not the id of a cluster"),
    ({"ovirt_storage_domain_id": "data"}, "ovirt_storage_domain_id", "'data' is not the id of a storage domain"),
    ({"ovirt_storage_domain_id": STORAGE.replace("-", "")}, "ovirt_storage_domain_id", "is not the id of"),
    ({"ovirt_cluster_id": None}, "ovirt_cluster_id", "is required"),
    ({"vnicProfileID": "ovirtmgmt"}, "vnicProfileID", "'ovirtmgmt' is not the id of a vNIC profile"),
    ({"ovirt_network_name": " "}, "ovirt_network_name", "is empty"),
    ({"template": "Blank"}, "template", "no disk to boot from"),
    ({"api_vips": None}, "api_vips", "is required"),
    ({"ingress_vips": None}, "ingress_vips", "is required"),
    ({"api_vips": ["10.0.0.2", "10.0.0.9", "10.0.0.10"]}, "api_vips", "has 3 addresses"),
    ({"api_vips": ["10.0.0.2", "10.0.0.9"]}, "api_vips", "has two IPv4 addresses"),
    ({"api_vips": ["ten"]}, "api_vips[0]", "'ten' is not an IP address"),
    ({"api_vips": ["10.1.0.2"]}, "api_vips[0]", "is outside networking.machineNetwork, 10.0.0.0/16"),
    ({"api_vips": ["10.0.255.255"]}, "api_vips[0]", "is the broadcast address"),
    ({"ingress_vips": ["10.0.0.2"]}, "ingress_vips[0]", "is given at platform.ovirt.api_vips too"),
    ({"dns_vips": ["10.0.0.2"]}, "dns_vips[0]", "is given at platform.ovirt.api_vips too"),
    ({"dns_vips": ["10.0.0.3"]}, "dns_vips[0]", "is given at platform.ovirt.ingress_vips too"),
    ({"dns_vips": ["10.0.0.7", "10.0.0.8", "10.0.0.9"]}, "dns_vips", "has 3 addresses"),
    ({"affinityGroups": [{"name": "a b"}]}, "affinityGroups[0].name", "'a b' is no name for a group"),
    ({"affinityGroups": [{"name": "a"}, {"name": "a"}]}, "affinityGroups[1].name", "there are two groups 'a'"),
    ({"affinityGroups": [{"name": "a", "priority": 6}]}, "affinityGroups[0].priority", "is 6"),
    ({"affinityGroups": [{"name": "a", "priority": -1}]}, "affinityGroups[0].priority", "is -1"),
    ({"affinityGroups": [{"name": "a", "priority": "5"}]}, "affinityGroups[0].priority", "must be a whole number"),
    ({"platformType": "Ovirt"}, "platformType", "must be External or oVirt"),
    ({"networkImage": "not an image"}, "networkImage", "is not an image reference"),
    ({"loadBalancer": {"type": "UserManaged"}}, "loadBalancer", "known to openshift-install but not to moorage"),
    ({"ovirt_url": "https://engine"}, "ovirt_url", "there is no field `ovirt_url` here"),
]


@pytest.mark.parametrize(("changes", "field", "words"), PLATFORM_MISTAKES)
def test_a_mistake_in_the_platforms_section(changes: dict[str, Any], field: str, words: str) -> None:
    [finding] = check(written(changes))

    assert (finding.field, finding.severity) == (f"platform.ovirt.{field}", "error")
    assert words in finding.message
    assert finding.line is not None


@pytest.mark.parametrize("changes", [changes for changes, _, _ in PLATFORM_MISTAKES])
def test_every_mistake_comes_with_something_to_do(changes: dict[str, Any]) -> None:
    unhelped = ("is the broadcast address", "is not an IP address")

    assert [f for f in check(written(changes)) if not f.remedy and not any(w in f.message for w in unhelped)] == []


POOL_MISTAKES = [
    ({"cpu": {"cores": 0}}, "cpu.cores", "is 0"),
    ({"cpu": {"cores": 4, "sockets": 0}}, "cpu.sockets", "is 0"),
    ({"cpu": {"cores": 4, "threads": -1}}, "cpu.threads", "is -1"),
    ({"cpu": {"sockets": 4}}, "cpu.cores", "is required"),
    ({"cpu": {"cores": 64, "sockets": 16, "threads": 2}}, "cpu", "makes 2048 processors"),
    ({"memoryMB": -1}, "memoryMB", "is -1"),
    ({"memoryMB": "16384"}, "memoryMB", "must be a whole number"),
    ({"osDisk": {"sizeGB": 0}}, "osDisk.sizeGB", "is 0"),
    ({"vmType": "laptop"}, "vmType", "must be desktop, server or high_performance"),
    ({"instanceTypeID": "Large"}, "instanceTypeID", "'Large' is not the id of an instance type"),
    ({"instanceTypeID": INSTANCE, "cpu": {"cores": 4}}, "cpu", "together with instanceTypeID"),
    ({"instanceTypeID": INSTANCE, "memoryMB": 16384}, "memoryMB", "together with instanceTypeID"),
    ({"autoPinningPolicy": "existing"}, "autoPinningPolicy", "must be none or resize_and_pin"),
    ({"hugepages": 4096}, "hugepages", "must be 0, 2048 or 1048576"),
    ({"format": "qcow2"}, "format", "must be raw or cow"),
    ({"clone": "yes"}, "clone", "must be true or false"),
    ({"affinityGroupsNames": ["contolplane"]}, "affinityGroupsNames[0]", "there is no group 'contolplane'"),
    ({"affinityGroupsNames": ["compute", "compute"]}, "affinityGroupsNames[1]", "'compute' is listed twice"),
]


@pytest.mark.parametrize(("pool", "field", "words"), POOL_MISTAKES)
def test_a_mistake_in_a_pool_is_found_wherever_the_pool_is_written(
    pool: dict[str, Any], field: str, words: str
) -> None:
    places = {
        "controlPlane.platform.ovirt": written(masters=pool),
        "compute[0].platform.ovirt": written(workers=pool),
        "platform.ovirt.defaultMachinePlatform": written({"defaultMachinePlatform": pool}),
    }

    for place, text in places.items():
        [finding] = check(text)
        assert (finding.field, finding.severity) == (f"{place}.{field}", "error")
        assert words in finding.message
        assert finding.line is not None


@pytest.mark.parametrize(
    ("pool", "field", "severity", "words"),
    [
        ({"cpu": {"cores": 1}}, "cpu", "warning", "1 processors are less than OpenShift's minimum"),
        ({"memoryMB": 4096}, "memoryMB", "warning", "4096 MiB are less"),
        ({"osDisk": {"sizeGB": 40}}, "osDisk.sizeGB", "warning", "40 GiB are less"),
        ({"autoPinningPolicy": "resize_and_pin"}, "autoPinningPolicy", "warning", "cannot migrate"),
        ({"vmType": "high_performance"}, "vmType", "warning", "a server without a console"),
        ({"hugepages": 1048576, "memoryMB": 16385}, "memoryMB", "error", "whole number of huge pages of 1024 MiB"),
        ({"format": "cow", "sparse": False}, "sparse", "error", "a cow disk always grows"),
        ({"format": "raw", "clone": False}, "format", "error", "layered on it"),
        ({"sparse": False, "clone": False}, "sparse", "error", "layered on it"),
        ({"format": "raw", "vmType": "desktop"}, "format", "error", "layered on it"),
    ],
)
def test_what_becomes_of_a_pool_is_judged(pool: dict[str, Any], field: str, severity: str, words: str) -> None:
    [finding] = check(written(workers=pool))

    assert (finding.field, finding.severity) == (f"compute[0].platform.ovirt.{field}", severity)
    assert words in finding.message
    assert finding.remedy


def test_what_two_layers_make_together_is_judged_where_the_pool_is() -> None:
    found = told(written({"defaultMachinePlatform": {"clone": False}}, masters={"format": "raw"}))

    assert [(field, severity) for field, severity, _ in found] == [("controlPlane.platform.ovirt.format", "error")]


def test_what_only_the_shared_layer_says_is_judged_there() -> None:
    found = told(written({"defaultMachinePlatform": {"memoryMB": 12288}}))

    # Enough for workers, too little for the control plane.
    assert [(field, severity) for field, severity, _ in found] == [(f"{SHARED}.memoryMB", "warning")]


def test_a_pool_without_machines_is_not_judged() -> None:
    text = written(compute=[{"name": "worker", "replicas": 0, "platform": {"ovirt": {"memoryMB": 1024}}}])

    assert check(text) == []


@pytest.mark.parametrize("shown", [network.IMAGE, None])
def test_the_image_nobody_publishes_is_warned_of_once(shown: str | None) -> None:
    [finding] = check(written({"networkImage": shown}))

    assert (finding.field, finding.severity) == ("platform.ovirt.networkImage", "warning")
    assert network.IMAGE in finding.message
    assert "Containerfile" in finding.remedy


@pytest.mark.parametrize("image", ["quay.io/a/b@sha256:" + "0" * 64, "localhost:5000/b:latest", "registry.example/b"])
def test_images_that_can_be_pulled(image: str) -> None:
    assert check(written({"networkImage": image})) == []


@pytest.mark.parametrize(
    ("old", "new"), [("api_vip", "api_vips"), ("ingress_vip", "ingress_vips"), ("dns_vip", "dns_vips")]
)
def test_an_old_singular_address_means_a_list_of_one_and_warns(old: str, new: str) -> None:
    text = written({new: None, old: "10.0.0.77"})

    config, warnings = load.parse(text, registry.stanzas())

    assert getattr(ovirt.settings(config), new) == ("10.0.0.77",)
    [warning] = warnings
    assert (warning.field, warning.severity) == (f"platform.ovirt.{old}", "warning")
    assert warning.remedy == f"write it as platform.ovirt.{new}"
    assert text.splitlines()[(warning.line or 0) - 1].strip().startswith(f"{old}:")


def test_a_mistake_in_an_old_singular_address_is_told_at_its_line() -> None:
    text = written({"api_vips": None, "api_vip": "10.1.0.2"})

    [finding] = [finding for finding in check(text) if finding.severity == "error"]

    assert "is outside networking.machineNetwork" in finding.message
    assert "api_vip:" in text.splitlines()[(finding.line or 0) - 1]


def test_an_old_address_beside_a_new_one_is_ignored_and_said_to_be() -> None:
    config, warnings = load.parse(written({"api_vip": "10.0.0.77"}), registry.stanzas())

    assert ovirt.settings(config).api_vips == ("10.0.0.2",)
    assert ["deprecated" in warning.message or "ignored" in warning.message for warning in warnings] == [True, True]


@pytest.mark.parametrize(
    ("top", "field", "words"),
    [
        ({"metadata": {"name": "de.mo"}}, "metadata.name", "'.'"),
        ({"publish": "Internal"}, "publish", "cannot be had on platform ovirt"),
        ({"credentialsMode": "Mint"}, "credentialsMode", "cannot be had on platform ovirt"),
        ({"controlPlane": {"name": "master", "replicas": 3, "architecture": "ppc64le"},
          "compute": [{"name": "worker", "replicas": 2, "architecture": "ppc64le"}]}, "controlPlane.architecture",
         "not to be had on platform ovirt"),
        ({"capabilities": {"baselineCapabilitySet": "None", "additionalEnabledCapabilities": ["Ingress"]}},
         "capabilities.additionalEnabledCapabilities", "MachineAPI must be enabled"),
    ],
)  # fmt: skip
def test_what_ovirt_has_not(top: dict[str, Any], field: str, words: str) -> None:
    found = [finding for finding in check(written(**top)) if finding.severity == "error"]

    assert [finding.field for finding in found] == [field]
    assert words in found[0].message


def test_two_families_when_ipv4_leads() -> None:
    networking = {
        "machineNetwork": [{"cidr": "10.0.0.0/16"}, {"cidr": "fd00::/64"}],
        "clusterNetwork": [{"cidr": "10.128.0.0/14"}, {"cidr": "fd01::/48"}],
        "serviceNetwork": ["172.30.0.0/16", "fd02::/112"],
    }
    vips = {"api_vips": ["10.0.0.2", "fd00::2"], "ingress_vips": ["10.0.0.3", "fd00::3"]}
    turned = {key: list(reversed(value)) for key, value in networking.items()}

    assert check(written(vips, networking=networking)) == []
    assert any("is not possible on platform ovirt" in message for _, _, message in told(written(networking=turned)))


def test_machines_get_the_defaults_where_nobody_says_anything() -> None:
    config = parse(written())

    masters, workers = ovirt.defaults(config, "master"), ovirt.defaults(config, "worker")

    assert masters == ovirt.MachinePool(
        cpu=ovirt.Cpu(cores=4, sockets=1, threads=1),
        memory_mb=16384,
        os_disk=ovirt.OsDisk(size_gb=120),
        vm_type="server",
        auto_pinning_policy="none",
        clone=True,
        affinity_groups_names=("controlplane",),
    )
    assert workers == masters.model_copy(update={"affinity_groups_names": ("compute",)})


def test_the_default_groups_keep_machines_of_a_kind_apart() -> None:
    groups = ovirt.settings(parse(written())).affinity_groups

    assert [(group.name, group.priority, group.enforcing) for group in groups] == [
        ("controlplane", 5, True),
        ("compute", 3, True),
    ]


@pytest.mark.parametrize(
    ("groups", "names"),
    [([], ()), ([{"name": "mine"}], ()), ([{"name": "controlplane"}, {"name": "mine"}], ("controlplane",))],
)
def test_a_default_group_is_joined_only_if_there_is_one(groups: list[Any], names: tuple[str, ...]) -> None:
    config = parse(written({"affinityGroups": groups}))

    assert ovirt.defaults(config, "master").affinity_groups_names == names


def test_machines_may_join_no_group_or_others() -> None:
    config = parse(written(masters={"affinityGroupsNames": []}, workers={"affinityGroupsNames": ["controlplane"]}))

    assert ovirt.defaults(config, "master").affinity_groups_names == ()
    assert ovirt.defaults(config, "worker").affinity_groups_names == ("controlplane",)


@pytest.mark.parametrize(
    ("shared", "own", "expected"),
    [
        ({"memoryMB": 32768}, {"cpu": {"cores": 8}}, (8, 32768, "")),
        ({"cpu": {"cores": 8}, "memoryMB": 32768}, {"memoryMB": 65536}, (8, 65536, "")),
        ({"memoryMB": 32768}, {"memoryMB": 0}, (4, 32768, "")),
        ({"instanceTypeID": INSTANCE}, {}, (None, 0, INSTANCE)),
        ({"cpu": {"cores": 8}, "memoryMB": 32768}, {"instanceTypeID": INSTANCE}, (None, 0, INSTANCE)),
        ({"instanceTypeID": INSTANCE}, {"cpu": {"cores": 8}}, (8, 16384, "")),
        ({"instanceTypeID": INSTANCE}, {"memoryMB": 32768}, (4, 32768, "")),
    ],
)
def test_a_pool_goes_over_the_shared_layer_and_an_instance_type_decides_alone(
    shared: dict[str, Any], own: dict[str, Any], expected: tuple[int | None, int, str]
) -> None:
    made = ovirt.defaults(parse(written({"defaultMachinePlatform": shared}, workers=own)), "worker")

    assert (made.cpu and made.cpu.total, made.memory_mb, made.instance_type_id) == expected


def test_an_instance_type_is_not_measured_against_a_minimum() -> None:
    assert check(written({"defaultMachinePlatform": {"instanceTypeID": INSTANCE, "hugepages": 1048576}})) == []


@pytest.mark.parametrize(
    ("shared", "own", "clone"),
    [
        ({}, {}, True),
        ({"vmType": "desktop"}, {}, False),
        ({"vmType": "desktop"}, {"vmType": "server"}, True),
        ({"clone": False}, {}, False),
        ({"clone": False}, {"clone": True}, True),
        ({"vmType": "desktop", "clone": True}, {}, True),
        ({"clone": False}, {"vmType": "server"}, False),
    ],
)
def test_a_desktop_is_thin_unless_somebody_says_otherwise(
    shared: dict[str, Any], own: dict[str, Any], clone: bool
) -> None:
    made = ovirt.defaults(parse(written({"defaultMachinePlatform": shared}, workers=own)), "worker")

    assert made.clone is clone


def test_threads_are_the_users() -> None:
    made = ovirt.defaults(parse(written(workers={"cpu": {"cores": 2, "sockets": 3, "threads": 4}})), "worker")

    assert made.cpu == ovirt.Cpu(cores=2, sockets=3, threads=4)


def test_every_field_is_explained() -> None:
    stanzas = registry.stanzas()

    for path in ("installconfig.platform.ovirt", "installconfig.compute.platform.ovirt"):
        fields = explain.describe(path, stanzas).fields
        assert fields
        for field in fields:
            assert explain.describe(f"{path}.{field.name}", stanzas).description
    assert explain.describe("installconfig.platform.ovirt.ovirt_network_name", stanzas).default == "ovirtmgmt"
    groups = explain.describe("installconfig.platform.ovirt.affinityGroups.priority", stanzas)
    assert groups.rule == "0 to 5"
