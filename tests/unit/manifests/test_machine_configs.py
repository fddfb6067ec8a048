"""MachineConfigs: one per matter and role."""

import pytest

from moorage.config import model

PREFIX = "99_openshift-machineconfig_"
ROLE = "machineconfiguration.openshift.io/role"


def configs(files):
    return {name.removeprefix(PREFIX).removesuffix(".yaml"): m for name, m in files.items() if name.startswith(PREFIX)}


def test_a_plain_cluster_needs_none(parsed):
    assert configs(parsed()) == {}


@pytest.mark.parametrize("role", ["master", "worker"])
def test_keys_of_those_who_may_log_in(parsed, configure, role):
    config = configure(ssh_key="ssh-ed25519 AAAA one\n\n  ssh-rsa BBBB two\n")

    manifest = configs(parsed(config))[f"99-{role}-ssh"]

    assert manifest["apiVersion"] == "machineconfiguration.openshift.io/v1"
    assert manifest["metadata"] == {"name": f"99-{role}-ssh", "labels": {ROLE: role}}
    assert manifest["spec"]["config"] == {
        "ignition": {"version": "3.2.0"},
        "passwd": {"users": [{"name": "core", "sshAuthorizedKeys": ["ssh-ed25519 AAAA one", "ssh-rsa BBBB two"]}]},
    }


def test_workers_that_come_later_get_the_keys_too(parsed, configure):
    config = configure(workers=0, ssh_key="ssh-ed25519 AAAA one")

    assert set(configs(parsed(config))) == {"99-master-ssh", "99-worker-ssh"}


@pytest.mark.parametrize(
    ("control_plane", "compute", "written"),
    [
        ("Disabled", "Enabled", {"99-master-disable-hyperthreading"}),
        ("Enabled", "Disabled", {"99-worker-disable-hyperthreading"}),
        ("Disabled", "Disabled", {"99-master-disable-hyperthreading", "99-worker-disable-hyperthreading"}),
    ],
)
def test_hyperthreading_is_switched_off_per_pool(parsed, configure, control_plane, compute, written):
    config = configure(
        control_plane=model.ControlPlanePool(hyperthreading=control_plane),
        compute=(model.MachinePool(hyperthreading=compute),),
    )

    found = configs(parsed(config))

    assert set(found) == written
    assert all(m["spec"]["kernelArguments"] == ["nosmt", "smt-enabled=off"] for m in found.values())


def test_fips_is_for_all_nodes(parsed, configure):
    found = configs(parsed(configure(fips=True)))

    assert set(found) == {"99-master-fips", "99-worker-fips"}
    assert all(m["spec"]["fips"] is True for m in found.values())


def test_dual_stack_nodes_ask_for_both_addresses(parsed, configure):
    networking = model.Networking(service_network=("172.30.0.0/16", "fd02::/112"))

    found = configs(parsed(configure(networking=networking)))

    assert set(found) == {"99-dual-stack-master", "99-dual-stack-worker"}
    assert all(m["spec"]["kernelArguments"] == ["ip=dhcp,dhcp6"] for m in found.values())


def test_ipv6_alone_is_not_dual_stack(parsed, configure):
    assert configs(parsed(configure(networking=model.Networking(service_network=("fd02::/112",))))) == {}
