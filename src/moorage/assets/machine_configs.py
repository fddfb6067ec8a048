"""What every node is told beyond the operators' own settings: who may log in, kernel arguments, FIPS.

These are MachineConfigs, one per matter and role, so that a user can replace or drop one of them alone.
"""

from __future__ import annotations

from collections.abc import Iterator

from moorage.assets import objects, values
from moorage.assets.graph import asset
from moorage.config import model

IGNITION_VERSION = "3.2.0"
ROLES = ("master", "worker")


def machine_config(
    name: str, role: str, *, kernel_arguments: tuple[str, ...] = (), fips: bool = False, **ignition: object
) -> values.Manifest:
    """A MachineConfig for the nodes of one role; ``ignition`` holds sections of its Ignition config (storage=…)."""
    spec: dict[str, object] = {"config": {"ignition": {"version": IGNITION_VERSION}, **ignition}}
    if fips:
        spec["fips"] = True
    if kernel_arguments:
        spec["kernelArguments"] = list(kernel_arguments)
    return {
        "apiVersion": "machineconfiguration.openshift.io/v1",
        "kind": "MachineConfig",
        "metadata": {"name": name, "labels": {"machineconfiguration.openshift.io/role": role}},
        "spec": spec,
    }


@asset()
def machine_config_manifests(install_config: model.InstallConfig) -> values.Files:
    """The nodes' settings that follow from the install-config, for both roles: workers may also be added later."""
    return objects.merge(*(files for role in ROLES for files in _of_role(install_config, role)))


def _of_role(config: model.InstallConfig, role: str) -> Iterator[values.Files]:
    pools = (config.control_plane,) if role == "master" else config.compute
    if any(pool.hyperthreading == "Disabled" for pool in pools):
        yield _file(f"99-{role}-disable-hyperthreading", role, kernel_arguments=("nosmt", "smt-enabled=off"))
    if keys := [line.strip() for line in config.ssh_key.splitlines() if line.strip()]:
        yield _file(f"99-{role}-ssh", role, passwd={"users": [{"name": "core", "sshAuthorizedKeys": keys}]})
    if config.fips:
        yield _file(f"99-{role}-fips", role, fips=True)
    if len(config.networking.service_network) == 2:
        # Without it the initramfs asks for an IPv4 address only, and the kubelet may register before IPv6 is there.
        yield _file(f"99-dual-stack-{role}", role, kernel_arguments=("ip=dhcp,dhcp6",))


def _file(
    name: str, role: str, *, kernel_arguments: tuple[str, ...] = (), fips: bool = False, **ignition: object
) -> values.Files:
    manifest = machine_config(name, role, kernel_arguments=kernel_arguments, fips=fips, **ignition)
    return objects.file(f"openshift/99_openshift-machineconfig_{name}.yaml", manifest)
