"""The first login, credentials, machines, feature gates."""

import base64
import dataclasses

import pytest

import moorage

MACHINES = "99_openshift-cluster-api_master-machines-"
MACHINE_SET = "99_openshift-machine-api_master-control-plane-machine-set.yaml"
CREDENTIALS = "99_cloud-creds-secret.yaml"
READER = "99_role-cloud-creds-secret-reader.yaml"
OKD = "90-okd-sca-pull-disable.yaml"


def decoded(manifest):
    return {key: base64.b64decode(content).decode() for key, content in manifest["data"].items()}


def test_kubeadmin_is_a_hash(parsed):
    manifest = parsed()["99_kubeadmin-password-secret.yaml"]

    assert manifest["metadata"] == {"name": "kubeadmin", "namespace": "kube-system"}
    assert decoded(manifest) == {"kubeadmin": "$2b$10$abcdefghijklmnopqrstuv"}


@pytest.mark.parametrize(
    ("role", "pointer"),
    [
        ("master", '{"ignition":{"version":"3.2.0"}}'),
        ("worker", '{"ignition":{"version":"3.2.0","config":{}}}'),
    ],
)
def test_machines_are_started_with_the_pointer_of_their_role(parsed, role, pointer):
    manifest = parsed()[f"99_openshift-cluster-api_{role}-user-data-secret.yaml"]

    assert manifest["metadata"] == {"name": f"{role}-user-data", "namespace": "openshift-machine-api"}
    assert decoded(manifest) == {"disableTemplating": "true\n", "userData": pointer}


def test_machines_are_numbered_in_order(parsed, harbour):
    files = parsed(on=harbour)

    names = {name: m["metadata"]["name"] for name, m in files.items() if name.startswith(MACHINES)}

    assert names == {f"{MACHINES}{n}.yaml": f"berth-x7k2p-master-{n}" for n in range(3)}
    assert files["99_openshift-cluster-api_worker-machineset-0.yaml"]["kind"] == "MachineSet"


def test_the_first_workers_are_machines_too(parsed, harbour):
    harbour.worker_machines = lambda context: [
        {"kind": "Machine", "metadata": {"name": f"{context.infra_id}-worker-0-{letters}"}} for letters in ("aa", "bb")
    ]

    files = parsed(on=harbour)

    names = {name: m["metadata"]["name"] for name, m in files.items() if "_worker-machines-" in name}
    assert names == {
        "99_openshift-cluster-api_worker-machines-0.yaml": "berth-x7k2p-worker-0-aa",
        "99_openshift-cluster-api_worker-machines-1.yaml": "berth-x7k2p-worker-0-bb",
    }


def test_the_control_plane_machine_set_is_written_for_more_than_one_master(parsed, configure, harbour):
    assert parsed(on=harbour)[MACHINE_SET]["kind"] == "ControlPlaneMachineSet"
    assert MACHINE_SET not in parsed(configure(masters=1, workers=0), on=harbour)


def test_who_brings_the_machines_gets_no_machine_objects(parsed):
    kinds = {manifest["kind"] for manifest in parsed().values()}

    assert not kinds & {"Machine", "MachineSet", "ControlPlaneMachineSet"}


def test_credentials_and_the_right_to_read_just_them(parsed, harbour):
    files = parsed(on=harbour)

    assert files[CREDENTIALS]["metadata"] == {"name": "harbour-credentials", "namespace": "kube-system"}
    assert decoded(files[CREDENTIALS]) == {"token": "s3same"}
    assert files[READER]["metadata"] == {"name": "harbour-creds-secret-reader", "namespace": "kube-system"}
    (rule,) = files[READER]["rules"]
    assert (rule["resources"], rule["resourceNames"], rule["verbs"]) == (["secrets"], ["harbour-credentials"], ["get"])


def test_in_manual_mode_the_credentials_stay_out(parsed, configure, harbour):
    files = parsed(configure(credentials_mode="Manual"), on=harbour)

    assert CREDENTIALS not in files
    assert READER in files


def test_no_credentials_where_there_is_nothing_to_log_in_to(parsed):
    assert not {CREDENTIALS, READER} & parsed().keys()


def test_the_feature_gate_is_there_even_if_empty(parsed):
    manifest = parsed()["99_feature-gate.yaml"]

    assert (manifest["kind"], manifest["metadata"], manifest["spec"]) == ("FeatureGate", {"name": "cluster"}, {})


def test_a_feature_set_is_named(parsed, configure):
    spec = parsed(configure(feature_set="TechPreviewNoUpgrade"))["99_feature-gate.yaml"]["spec"]

    assert spec == {"featureSet": "TechPreviewNoUpgrade"}


def test_single_features_are_sorted_by_their_state(parsed, configure):
    config = configure(feature_set="CustomNoUpgrade", feature_gates=("Sails=true", "Oars=false", "Keel=true"))

    spec = parsed(config)["99_feature-gate.yaml"]["spec"]

    assert spec == {
        "featureSet": "CustomNoUpgrade",
        "customNoUpgrade": {"enabled": ["Sails", "Keel"], "disabled": ["Oars"]},
    }


def test_the_cluster_knows_who_made_it(parsed):
    manifest = parsed()["openshift-install-manifests.yaml"]

    assert manifest["metadata"] == {"name": "openshift-install-manifests", "namespace": "openshift-config"}
    assert manifest["data"] == {"invoker": "user", "version": f"moorage-v{moorage.__version__}"}


def test_okd_does_not_ask_for_entitlements(parsed, release):
    manifest = parsed(release=dataclasses.replace(release, stream="okd"))[OKD]

    assert manifest["metadata"] == {"name": "support", "namespace": "openshift-config"}
    assert decoded(manifest) == {"scaPullDisabled": "true"}


def test_openshift_keeps_its_subscriptions(parsed):
    assert OKD not in parsed()
