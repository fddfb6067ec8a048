"""What a cluster on oVirt is told: its platform, its machines, who carries its addresses, and never a password."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from moorage.assets import keys, platform, store, values
from moorage.installer import produce
from moorage.platforms.ovirt import machines_manifests, manifests, tfvars
from tests.unit.platforms_ovirt.manifests_world import (
    CLUSTER_ID,
    DOMAIN_ID,
    IGNITION,
    INFRA,
    NATIVE,
    PROFILE_ID,
    RELEASE,
    cluster,
    configured,
    context,
    install_config,
)

INSTANCE_TYPE = "0a1b2c3d-3333-4444-8555-666677778888"


def name_of(manifest: Mapping[str, Any]) -> str:
    return str(manifest["metadata"]["name"])


def spec_of(machine: Mapping[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = machine["spec"]["providerSpec"]["value"]
    return found


def template_of(machine_set: Mapping[str, Any]) -> dict[str, Any]:
    return spec_of(machine_set["spec"]["template"])


# --- what it stands on -------------------------------------------------------------------------------------------


def test_external_without_a_cloud_controller_by_default() -> None:
    block = manifests.MANIFESTS.infrastructure(context())

    assert block.type == "External"
    assert block.spec == {"external": {"platformName": "ovirt"}}
    assert block.status == {"external": {"cloudControllerManager": {"state": "None"}}}


def test_native_where_it_is_asked_for() -> None:
    block = manifests.MANIFESTS.infrastructure(context(platformType="oVirt"))

    assert (block.type, block.spec) == ("oVirt", {"ovirt": {}})
    status: Any = block.status["ovirt"]
    assert (status["apiServerInternalIP"], status["apiServerInternalIPs"]) == ("10.0.0.5", ["10.0.0.5"])
    assert (status["ingressIP"], status["ingressIPs"]) == ("10.0.0.6", ["10.0.0.6"])


def test_the_addresses_are_the_platforms_own() -> None:
    config = configured()

    assert manifests.MANIFESTS.api_vips(config) == ("10.0.0.5",)
    assert manifests.MANIFESTS.ingress_vips(config) == ("10.0.0.6",)


def test_external_brings_its_own_address_carriers() -> None:
    names = set(manifests.MANIFESTS.extra(context()))  # noqa: S610 - not Django's
    files = manifests.MANIFESTS.bootstrap_files(context())

    assert {f"99_openshift-machineconfig_99-{role}-moorage-network.yaml" for role in ("master", "worker")} <= names
    (settings,) = [json.loads(file.contents) for file in files if file.path == "/etc/moorage/network.json"]
    assert settings["infra_id"] == INFRA
    assert (settings["api_vips"], settings["ingress_vips"]) == (["10.0.0.5"], ["10.0.0.6"])
    assert settings["machine_networks"] == ["10.0.0.0/16"]


def test_the_image_of_the_address_carriers_is_the_users_choice() -> None:
    chosen = manifests.network(context(networkImage="registry.example.com/moorage:1", dns_vips=["10.0.0.7"]))

    assert (chosen.image, chosen.dns_vips) == ("registry.example.com/moorage:1", ("10.0.0.7",))


def test_native_leaves_the_addresses_to_the_machine_config_operator() -> None:
    native = context(platformType="oVirt")

    assert manifests.MANIFESTS.extra(native) == {}  # noqa: S610 - not Django's
    assert not manifests.MANIFESTS.bootstrap_files(native)


def test_no_credentials_in_manifests() -> None:
    assert manifests.MANIFESTS.credentials(context()) is None


@pytest.mark.parametrize(("template", "removed"), [("", True), ("golden-rhcos", False)])
def test_destroy_learns_whose_the_template_is(template: str, removed: bool) -> None:
    found = manifests.MANIFESTS.metadata(context(template=template))

    assert found == {"cluster_id": CLUSTER_ID, "storage_domain_id": DOMAIN_ID, "remove_template": removed}


# --- machines ----------------------------------------------------------------------------------------------------


def test_masters_are_numbered() -> None:
    made = manifests.MANIFESTS.masters(context())

    assert [name_of(machine) for machine in made] == [f"{INFRA}-master-{number}" for number in range(3)]
    assert {(machine["apiVersion"], machine["kind"]) for machine in made} == {
        ("machine.openshift.io/v1beta1", "Machine")
    }
    first: Any = made[0]
    assert first["metadata"]["namespace"] == "openshift-machine-api"
    assert first["metadata"]["labels"] == {
        "machine.openshift.io/cluster-api-cluster": INFRA,
        "machine.openshift.io/cluster-api-machine-role": "master",
        "machine.openshift.io/cluster-api-machine-type": "master",
    }


def test_a_machine_is_described_in_the_providers_words() -> None:
    (machine, *_) = manifests.MANIFESTS.masters(context())

    assert spec_of(machine) == {
        "apiVersion": "ovirtproviderconfig.machine.openshift.io/v1beta1",
        "kind": "OvirtMachineProviderSpec",
        "cluster_id": CLUSTER_ID,
        "template_name": f"{INFRA}-rhcos",
        "storage_domain_id": DOMAIN_ID,
        "cpu": {"sockets": 1, "cores": 4, "threads": 1},
        "memory_mb": 16384,
        "guaranteed_memory_mb": 16384,
        "os_disk": {"size_gb": 120},
        "type": "server",
        "network_interfaces": [{"vnic_profile_id": PROFILE_ID}],
        "affinity_groups_names": [f"{INFRA}-controlplane"],
        "auto_pinning_policy": "none",
        "clone": True,
        "credentialsSecret": {"name": "ovirt-credentials"},
        "userDataSecret": {"name": "master-user-data"},
    }


def test_the_pool_decides_what_its_machines_are_made_of() -> None:
    chosen = context(
        template="golden-rhcos",
        pool={
            "cpu": {"cores": 2, "sockets": 3, "threads": 2},
            "memoryMB": 32768,
            "osDisk": {"sizeGB": 250},
            "vmType": "high_performance",
            "hugepages": 2048,
            "format": "raw",
            "clone": True,
            "sparse": False,
            "autoPinningPolicy": "resize_and_pin",
            "affinityGroupsNames": ["compute"],
        },
    )

    spec = template_of(manifests.MANIFESTS.workers(chosen)[0])

    # Threads too: the provider's predecessor made every worker with one.
    assert spec["cpu"] == {"sockets": 3, "cores": 2, "threads": 2}
    assert (spec["memory_mb"], spec["guaranteed_memory_mb"], spec["os_disk"]) == (32768, 32768, {"size_gb": 250})
    assert (spec["type"], spec["hugepages"], spec["format"]) == ("high_performance", 2048, "raw")
    assert (spec["clone"], spec["sparse"], spec["auto_pinning_policy"]) == (True, False, "resize_and_pin")
    assert (spec["template_name"], spec["affinity_groups_names"]) == ("golden-rhcos", [f"{INFRA}-compute"])
    assert spec["userDataSecret"] == {"name": "worker-user-data"}
    assert spec_of(manifests.MANIFESTS.masters(chosen)[0])["memory_mb"] == 16384


def test_an_instance_type_takes_the_place_of_processors_and_memory() -> None:
    (machine, *_) = manifests.MANIFESTS.masters(context(control={"instanceTypeID": INSTANCE_TYPE}))

    spec = spec_of(machine)
    assert spec["instance_type_id"] == INSTANCE_TYPE
    assert not {"cpu", "memory_mb", "guaranteed_memory_mb"} & spec.keys()


def test_a_network_with_a_single_profile_leaves_the_templates_card() -> None:
    (machine, *_) = manifests.MANIFESTS.masters(context(vnicProfileID=""))

    assert "network_interfaces" not in spec_of(machine)


def test_without_groups_a_machine_is_in_none() -> None:
    (machine, *_) = manifests.MANIFESTS.masters(context(affinityGroups=[]))

    assert "affinity_groups_names" not in spec_of(machine)


def test_workers_are_left_to_the_clusters_own_controllers() -> None:
    (machine_set,) = manifests.MANIFESTS.workers(context())

    assert (machine_set["kind"], name_of(machine_set)) == ("MachineSet", f"{INFRA}-worker-0")
    assert machine_set["spec"]["replicas"] == 2  # type: ignore[index]
    assert manifests.MANIFESTS.worker_machines(context()) == ()
    assert "deployment" in " ".join(manifests.MANIFESTS.extra(context())), "somebody must make them"  # noqa: S610 - not Django's


def test_without_controllers_the_set_would_adopt_the_first_workers_instead_of_making_more() -> None:
    # Given a cluster that calls itself oVirt: nobody in the release makes its machines any more.
    (machine_set,) = manifests.MANIFESTS.workers(context(**NATIVE))
    first = manifests.MANIFESTS.worker_machines(context(**NATIVE))

    assert manifests.MANIFESTS.extra(context(**NATIVE)) == {}  # noqa: S610 - not Django's
    wanted: Any = machine_set["spec"]
    assert wanted["replicas"] == len(first) == 2
    for machine in first:
        labels: Any = machine["metadata"]["labels"]  # type: ignore[index]
        assert wanted["selector"]["matchLabels"].items() <= labels.items()
        assert labels == wanted["template"]["metadata"]["labels"]
        assert spec_of(machine) == wanted["template"]["spec"]["providerSpec"]["value"]


def test_the_set_does_not_reach_for_masters() -> None:
    (machine_set,) = manifests.MANIFESTS.workers(context())

    selected: Any = machine_set["spec"]["selector"]["matchLabels"]  # type: ignore[index]
    for master in manifests.MANIFESTS.masters(context()):
        assert not selected.items() <= master["metadata"]["labels"].items()  # type: ignore[index]


def test_workers_have_the_same_names_in_every_run_and_keep_them_when_their_pool_grows() -> None:
    few = [name_of(machine) for machine in manifests.MANIFESTS.worker_machines(context(workers=2, **NATIVE))]
    many = [name_of(machine) for machine in manifests.MANIFESTS.worker_machines(context(workers=400, **NATIVE))]

    assert many[:2] == few
    assert len(set(many)) == 400
    assert all(name.startswith(f"{INFRA}-worker-0-") and len(name) == len(INFRA) + 15 for name in many)


def test_names_differ_between_clusters_and_pools() -> None:
    here = context()
    there = platform.Context(here.config, values.ClusterID("harbour-99999", "uuid"), RELEASE)

    suffixes = {
        name.rpartition("-")[2]
        for names in (
            machines_manifests.worker_names(here, 0, 5),
            machines_manifests.worker_names(here, 1, 5),
            machines_manifests.worker_names(there, 0, 5),
        )
        for name in names
    }
    assert len(suffixes) == 15


def test_two_workers_never_share_a_name(monkeypatch: pytest.MonkeyPatch) -> None:
    # Given letters that come out the same for every number at the first try.
    monkeypatch.setattr(machines_manifests, "_suffix", lambda _infra, _pool, number, turn: f"{number * (turn > 0)}")

    assert machines_manifests.worker_names(context(), 0, 3) == tuple(f"{INFRA}-worker-0-{n}" for n in range(3))


def test_a_cluster_without_workers_has_an_empty_set() -> None:
    compact = context(workers=0)

    (machine_set,) = manifests.MANIFESTS.workers(compact)
    assert machine_set["spec"]["replicas"] == 0  # type: ignore[index]
    assert manifests.MANIFESTS.worker_machines(context(workers=0, **NATIVE)) == ()


def test_there_is_no_set_of_masters() -> None:
    assert manifests.MANIFESTS.control_plane_machine_set(context()) is None


@pytest.mark.parametrize(("changes", "workers"), [({}, 0), (NATIVE, 2)], ids=["External", "oVirt"])
def test_what_is_made_is_what_the_manifests_say(changes: dict[str, str], workers: int) -> None:
    chosen = context(**changes)

    made = machines_manifests.machines(cluster(**changes))

    assert [machine.role for machine in made] == ["bootstrap", *["master"] * 3, *["worker"] * workers]
    said = [*manifests.MANIFESTS.masters(chosen), *manifests.MANIFESTS.worker_machines(chosen)]
    assert [(machine.name, machine.provider_spec) for machine in made[1:]] == [
        (name_of(manifest), spec_of(manifest)) for manifest in said
    ]
    assert [machine.user_data for machine in made] == [IGNITION[machine.role] for machine in made]
    assert {machine.infra_id for machine in made} == {INFRA}
    assert {machine.not_addresses for machine in made} == {("10.0.0.5", "10.0.0.6")}


def test_the_bootstrap_is_small_and_in_no_group() -> None:
    (bootstrap, *_) = machines_manifests.machines(cluster())

    assert bootstrap.name == f"{INFRA}-bootstrap"
    assert bootstrap.provider_spec["cpu"] == {"sockets": 1, "cores": 4, "threads": 1}
    assert (bootstrap.provider_spec["memory_mb"], bootstrap.provider_spec["os_disk"]) == (8192, {"size_gb": 120})
    assert not {"affinity_groups_names", "userDataSecret"} & bootstrap.provider_spec.keys()
    assert bootstrap.provider_spec["clone"] is False


def test_a_template_of_the_users_own_is_copied_for_the_bootstrap() -> None:
    (bootstrap, *_) = machines_manifests.machines(cluster(template="golden-rhcos"))

    assert (bootstrap.provider_spec["template_name"], bootstrap.provider_spec["clone"]) == ("golden-rhcos", True)


# --- terraform's variables ---------------------------------------------------------------------------------------


def test_terraforms_variables() -> None:
    files = manifests.MANIFESTS.companion_files(context())

    found = json.loads(files["terraform.ovirt.auto.tfvars.json"])
    assert {key: found[key] for key in ("ovirt_cluster_id", "ovirt_storage_domain_id", "ovirt_vnic_profile_id")} == {
        "ovirt_cluster_id": CLUSTER_ID,
        "ovirt_storage_domain_id": DOMAIN_ID,
        "ovirt_vnic_profile_id": PROFILE_ID,
    }
    assert found["ovirt_network_name"] == "ovirtmgmt"
    assert [group["name"] for group in found["ovirt_affinity_groups"]] == [f"{INFRA}-controlplane", f"{INFRA}-compute"]
    assert found["ovirt_master_affinity_groups"] == [f"{INFRA}-controlplane"]
    assert (found["ovirt_master_cores"], found["ovirt_master_memory"], found["ovirt_master_os_disk_gb"]) == (
        4,
        16384,
        120,
    )


def test_terraform_is_told_of_the_users_own_template() -> None:
    assert json.loads(tfvars.render(context(template="golden")))["ovirt_base_image_name"] == "golden"
    assert "ovirt_base_image_name" not in json.loads(tfvars.render(context()))


def test_terraform_gets_no_credentials() -> None:
    secret = {"ovirt_url", "ovirt_username", "ovirt_password", "ovirt_cafile", "ovirt_ca_bundle", "ovirt_insecure"}

    assert not secret & json.loads(tfvars.render(context())).keys()


# --- in the asset directory --------------------------------------------------------------------------------------


@pytest.fixture
def directory(tmp_path: Path, keyring: keys.Keyring) -> Path:
    made = tmp_path / "cluster"
    made.mkdir()
    (made / "install-config.yaml").write_text(install_config())
    with store.opened(made) as opened:
        opened.commit(store.State(kept={"keyring": keyring.to_state()}), {})
    return made


@pytest.mark.parametrize("targets", [produce.MANIFESTS, produce.IGNITION_CONFIGS], ids=["manifests", "ignition"])
def test_the_companion_lies_beside_the_other_assets(directory: Path, targets: tuple[str, ...]) -> None:
    produce.produce(directory, targets, keys.KeySource(0), {})

    assert json.loads((directory / tfvars.FILE).read_bytes())["ovirt_cluster_id"] == CLUSTER_ID


def test_machines_lie_in_openshift(directory: Path) -> None:
    produce.produce(directory, produce.MANIFESTS, keys.KeySource(0), {})

    found = {path.name for path in (directory / "openshift").glob("99_openshift-cluster-api_*")}
    prefix = "99_openshift-cluster-api_"
    assert found == {
        *(f"{prefix}master-machines-{number}.yaml" for number in range(3)),
        f"{prefix}worker-machineset-0.yaml",
        f"{prefix}master-user-data-secret.yaml",
        f"{prefix}worker-user-data-secret.yaml",
    }


def test_nodes_ask_the_virtual_address_for_their_config(directory: Path) -> None:
    produce.produce(directory, produce.IGNITION_CONFIGS, keys.KeySource(0), {})

    pointer = json.loads((directory / "worker.ign").read_bytes())
    assert pointer["ignition"]["config"]["merge"] == [{"source": "https://10.0.0.5:22623/config/worker"}]
    platform_block = json.loads((directory / "metadata.json").read_bytes())["ovirt"]
    assert platform_block["cluster_id"] == CLUSTER_ID
