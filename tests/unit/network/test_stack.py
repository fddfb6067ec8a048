"""What the installer hands out for nodes, and that the lab's nodes find their programs in it."""

from __future__ import annotations

import base64
from typing import Any

import pytest
import yaml

from moorage.lab.nodes import vip_pods
from moorage.network import corefile, haproxy, keepalived, pods, settings, stack, view

ROLES = ("master", "worker")


def contents(manifest: dict[str, Any]) -> dict[str, bytes]:
    files = manifest["spec"]["config"]["storage"]["files"]
    return {each["path"]: base64.b64decode(each["contents"]["source"].partition("base64,")[2]) for each in files}


class Files:
    """A disk, as the lab's reading of pods wants one."""

    def __init__(self, found: dict[str, bytes]) -> None:
        self._found = found

    def find(self, path: str) -> bytes | None:
        return self._found.get(path)

    def exists(self, path: str) -> bool:
        return path in self._found

    def below(self, folder: str) -> dict[str, bytes]:
        start = f"{folder}/"
        return {path.removeprefix(start): text for path, text in self._found.items() if path.startswith(start)}


def test_masters_and_workers_get_the_same_files_and_their_own_pod(wanted: settings.Settings) -> None:
    found = stack.machine_configs(wanted)
    masters, workers = (contents(each) for each in found.values())

    assert [each["metadata"]["name"] for each in found.values()] == [f"99-{role}-moorage-network" for role in ROLES]
    assert [each["metadata"]["labels"]["machineconfiguration.openshift.io/role"] for each in found.values()] == [*ROLES]
    assert masters.keys() == workers.keys()
    assert {path for path in masters if masters[path] != workers[path]} == {pods.PATH}
    assert settings.from_json(masters[settings.PATH]) == wanted


def test_the_bootstrap_gets_them_as_files(wanted: settings.Settings) -> None:
    found = {each.path: each for each in stack.bootstrap_files(wanted)}

    assert yaml.safe_load(found[pods.PATH].contents)["metadata"]["labels"]["role"] == "bootstrap"
    assert found[f"/etc/NetworkManager/dispatcher.d/{stack.DISPATCHER}"].mode == 0o755
    assert settings.from_json(found[settings.PATH].contents) == wanted


def test_the_shell_reads_the_settings_it_needs(dual: settings.Settings) -> None:
    text = next(each.contents for each in stack.bootstrap_files(dual) if each.path == stack.ENVIRONMENT_PATH).decode()

    assert "MOORAGE_MACHINE_NETWORKS='10.0.0.0/24 fd00::/64'\n" in text
    assert "MOORAGE_VIPS='10.0.0.5 fd00::5 10.0.0.6 fd00::6 10.0.0.7'\n" in text


@pytest.mark.parametrize(
    ("role", "names"),
    [
        (view.BOOTSTRAP, ["keepalived", "coredns", "network-monitor"]),
        (view.MASTER, ["keepalived", "coredns", "haproxy", "network-monitor"]),
        (view.WORKER, ["keepalived", "coredns", "network-monitor"]),
    ],
)
def test_the_pod_has_the_containers_of_its_role(wanted: settings.Settings, role: str, names: list[str]) -> None:
    spec: Any = pods.pod(wanted, role)["spec"]
    containers = {each["name"]: each for each in spec["containers"]}

    assert list(containers) == names
    assert spec["hostNetwork"]
    assert spec["shareProcessNamespace"]
    assert containers["network-monitor"]["command"] == ["moorage", "node-network", "run", "--role", role]
    assert spec["initContainers"][0]["command"] == ["moorage", "node-network", "render", "--role", role]
    assert {each["image"] for each in (*spec["containers"], *spec["initContainers"])} == {wanted.image}
    volumes = {each["name"] for each in spec["volumes"]}
    mounted = {mount["name"] for each in spec["containers"] for mount in each["volumeMounts"]}
    assert mounted == volumes


def test_the_agent_may_read_the_credentials_of_its_role(wanted: settings.Settings) -> None:
    for role in view.ROLES:
        spec: Any = pods.pod(wanted, role)["spec"]
        mounts = {mount["mountPath"]: mount for mount in spec["containers"][-1]["volumeMounts"]}
        folder = pods.KUBECONFIGS[role].rpartition("/")[0]
        assert mounts[folder]["readOnly"], role


def test_the_lab_finds_the_programs_and_their_monitor(wanted: settings.Settings) -> None:
    disk = contents(stack.machine_configs(wanted)["99_openshift-machineconfig_99-master-moorage-network.yaml"])
    disk |= {keepalived.PATH: b"k", haproxy.PATH: b"h", corefile.PATH: b"c"}

    found = vip_pods.programs(Files(disk))  # type: ignore[arg-type]

    assert {(each.name, each.path, each.config, each.monitored) for each in found} == {
        ("keepalived", keepalived.PATH, "k", True),
        ("coredns", corefile.PATH, "c", True),
        ("haproxy", haproxy.PATH, "h", True),
    }


def test_kubelets_may_read_all_nodes(wanted: settings.Settings) -> None:
    found = stack.cluster_manifests(wanted)
    kinds = {each["kind"]: each for each in found.values()}

    assert kinds["ClusterRole"]["rules"] == [
        {"apiGroups": [""], "resources": ["nodes"], "verbs": ["get", "list", "watch"]}
    ]
    binding: Any = kinds["ClusterRoleBinding"]
    assert binding["subjects"] == [{"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": "system:nodes"}]
    assert binding["roleRef"]["name"] == kinds["ClusterRole"]["metadata"]["name"]
    assert kinds["Namespace"]["metadata"]["name"] == pods.NAMESPACE
