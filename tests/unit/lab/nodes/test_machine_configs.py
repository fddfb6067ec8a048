"""What machines of a pool are given: whose MachineConfigs, in which order, and what the server adds."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from moorage.engine import clock as clocks
from moorage.lab.nodes import base_configs, fetching, ignition, machine_configs, specs, validation

Object = dict[str, Any]

GIVEN = {"kubeconfig": "the kubeconfig", "root_ca": "the root", "kubelet_ca": "the clients"}


def machine_config(name: str, role: str = "worker", **spec: Any) -> Object:
    config = spec.pop("config", None)
    whole = {"ignition": {"version": "3.2.0"}, **config} if config is not None else None
    return {
        "apiVersion": "machineconfiguration.openshift.io/v1",
        "kind": "MachineConfig",
        "metadata": {"name": name, "labels": {"machineconfiguration.openshift.io/role": role}},
        "spec": {**spec, **({"config": whole} if whole else {})},
    }


def a_file(content: str, path: str = "/etc/a", **more: Any) -> Object:
    return {"storage": {"files": [{"path": path, "contents": {"source": f"data:,{content}"}, **more}]}}


def pool(name: str, **selector: Any) -> Object:
    spec = {"machineConfigSelector": selector} if selector else {}
    api = "machineconfiguration.openshift.io/v1"
    return {"apiVersion": api, "kind": "MachineConfigPool", "metadata": {"name": name}, "spec": spec}


def rendered(manifests: list[Object], name: str = "worker") -> specs.Config:
    config = machine_configs.rendered(manifests, name, **GIVEN)
    assert config is not None
    return config


async def nowhere(url: str, headers: Mapping[str, str], authorities: Sequence[str]) -> fetching.Answer:
    raise AssertionError(url)


def disk_of(manifests: list[Object], name: str = "worker") -> ignition.Provisioned:
    """A machine of the pool after its first boot."""
    raw = json.dumps(rendered(manifests, name)).encode()
    return asyncio.run(ignition.provision(raw, nowhere, lambda line: None, clock=clocks.Clock()))


def spec_of(manifests: list[Object], name: str = "worker") -> Object:
    found = machine_configs.machine_config(manifests, name, root_ca="")
    assert found is not None
    spec: Object = found["spec"]
    return spec


def test_later_names_win() -> None:
    late, early = machine_config("99-late", config=a_file("late")), machine_config("50-early", config=a_file("early"))

    assert disk_of([late, early]).files["/etc/a"].content == b"late"
    assert disk_of([early, late]).files["/etc/a"].content == b"late"


def test_a_custom_pool_has_the_workers_configs_and_the_last_word() -> None:
    manifests = [
        machine_config("99-z", config=a_file("worker")),
        machine_config("50-a", "infra", config=a_file("infra")),
        machine_config("99-other", "master", config=a_file("master", "/etc/b")),
    ]

    done = disk_of(manifests, "infra")

    assert done.files["/etc/a"].content == b"infra"
    assert "/etc/b" not in done.files
    assert (
        "--node-labels=node-role.kubernetes.io/worker,node-role.kubernetes.io/infra,"
        in done.units["kubelet.service"].contents
    )
    assert disk_of(manifests).files["/etc/a"].content == b"worker"


def test_a_pool_takes_what_its_selector_selects() -> None:
    key = "machineconfiguration.openshift.io/role"
    manifests = [
        pool("gpu", matchExpressions=[{"key": key, "operator": "In", "values": ["gpu", "big"]}]),
        machine_config("1", "big", config=a_file("big", "/etc/big")),
        machine_config("2", "gpu", config=a_file("gpu", "/etc/gpu")),
        machine_config("3", "worker", config=a_file("worker", "/etc/worker")),
    ]

    assert {"/etc/big", "/etc/gpu"} == set(disk_of(manifests, "gpu").files) & {"/etc/big", "/etc/gpu", "/etc/worker"}


@pytest.mark.parametrize(
    ("operator", "values", "taken"),
    [
        ("In", ["x"], True),
        ("In", ["y"], False),
        ("NotIn", ["x"], False),
        ("NotIn", ["y"], True),
        ("Exists", [], True),
        ("DoesNotExist", [], False),
    ],
)
def test_the_operators_of_selectors(operator: str, values: list[str], taken: bool) -> None:
    key = "machineconfiguration.openshift.io/role"
    manifests = [
        pool("p", matchExpressions=[{"key": key, "operator": operator, "values": values}]),
        machine_config("1", "x", config=a_file("1")),
    ]

    assert ("/etc/a" in disk_of(manifests, "p").files) is taken


def test_a_pool_that_nobody_speaks_of_is_none() -> None:
    assert machine_configs.rendered([], "infra", **GIVEN) is None
    assert machine_configs.rendered([pool("infra")], "infra", **GIVEN) is not None
    assert machine_configs.rendered([machine_config("1", "infra")], "infra", **GIVEN) is not None


def test_contents_without_compression_do_not_inherit_it() -> None:
    packed = a_file("x", contents={"source": "data:;base64,", "compression": "gzip"})

    done = disk_of([machine_config("1", config=packed), machine_config("2", config=a_file("plain"))])

    assert done.files["/etc/a"].content == b"plain"


def test_units_are_merged_with_their_drop_ins() -> None:
    def unit(**said: Any) -> Object:
        return {"systemd": {"units": [{"name": "a.service", **said}]}}

    done = disk_of(
        [
            machine_config("1", config=unit(contents="[Unit]\n", dropins=[{"name": "1.conf", "contents": "[Unit]\n"}])),
            machine_config("2", config=unit(enabled=True, dropins=[{"name": "2.conf", "contents": "[Service]\n"}])),
        ]
    )

    assert done.units["a.service"] == ignition.Unit(
        "a.service", "[Unit]\n", True, False, {"1.conf": "[Unit]\n", "2.conf": "[Service]\n"}
    )


def test_what_ignition_cannot_do_adds_up() -> None:
    manifests = [
        machine_config("2", kernelArguments=["b", "a"], extensions=["usbguard"], fips=True),
        machine_config("1", kernelArguments=["a"], kernelType="realtime", osImageURL="quay.io/mine"),
        machine_config("3", kernelType="default"),
    ]

    spec = spec_of(manifests)

    assert spec["kernelArguments"] == ["a", "b", "a"]
    assert (spec["extensions"], spec["fips"], spec["kernelType"]) == (["usbguard"], True, "realtime")
    assert spec["osImageURL"] == "quay.io/mine"
    encapsulated = json.loads(disk_of(manifests).files[machine_configs.ENCAPSULATED].content)
    assert encapsulated["spec"]["kernelArguments"] == ["a", "b", "a"]
    assert encapsulated["spec"]["config"] == {"ignition": {"version": "3.5.0"}}


def test_keys_of_core_add_up() -> None:
    def keys(*each: str) -> Object:
        return {"passwd": {"users": [{"name": "core", "sshAuthorizedKeys": list(each)}]}}

    done = disk_of([machine_config("1", config=keys("a", "b")), machine_config("2", config=keys("b", "c"))])

    assert done.users["core"].ssh_keys == ("a", "b", "c")


@pytest.mark.parametrize(
    ("manifest", "words"),
    [
        (machine_config("old", config={"ignition": {"version": "2.2.0"}}), "MachineConfig old failed: unsupported"),
        (machine_config("bad", config=a_file("x", "relative")), "MachineConfig bad failed: .*path not absolute"),
        (machine_config("k", kernelType="realtime", extensions=["kernel-devel"]), "kernel-devel"),
    ],
)
def test_what_makes_no_configuration_is_refused_by_name(manifest: Object, words: str) -> None:
    with pytest.raises(machine_configs.CannotRender, match=words):
        rendered([manifest])


def test_the_server_adds_what_only_it_knows_and_the_machine_config_last() -> None:
    config = rendered([])
    done = disk_of([])

    assert config["storage"]["files"][-1]["path"] == machine_configs.ENCAPSULATED
    assert done.files["/etc/kubernetes/kubeconfig"].content == b"the kubeconfig"
    assert done.files["/etc/kubernetes/kubelet-ca.crt"].content == b"the clients"
    assert done.files["/etc/kubernetes/ca.crt"].content == b"the root"
    notes = json.loads(done.files[machine_configs.ANNOTATIONS].content)
    name = json.loads(done.files[machine_configs.CONTENT].content)["metadata"]["name"]
    assert name.startswith("rendered-worker-")
    assert len(name) == len("rendered-worker-") + 32
    assert notes == {
        "machineconfiguration.openshift.io/currentConfig": name,
        "machineconfiguration.openshift.io/desiredConfig": name,
        "machineconfiguration.openshift.io/firstPivotConfig": name,
        "machineconfiguration.openshift.io/state": "Done",
    }


def test_the_name_tells_what_is_in_it() -> None:
    def name(*manifests: Object) -> str:
        found = machine_configs.machine_config(list(manifests), "worker", root_ca="")
        assert found is not None
        return str(found["metadata"]["name"])

    assert name() == name()
    assert name() != name(machine_config("1", config=a_file("1")))
    assert name(machine_config("1", config=a_file("1"))) != name(machine_config("1", config=a_file("2")))


def singleton(kind: str, *, status: Object | None = None, **spec: Any) -> Object:
    metadata = {"name": "cluster"}
    return {"apiVersion": "config.openshift.io/v1", "kind": kind, "metadata": metadata, "spec": spec, "status": status}


@pytest.mark.parametrize(
    ("name", "manifests", "flags", "without"),
    [
        ("worker", [], ["--node-labels=node-role.kubernetes.io/worker,", "--cloud-provider= "], ["--register-with-"]),
        (
            "master",
            [],
            [
                "--node-labels=node-role.kubernetes.io/control-plane,node-role.kubernetes.io/master,",
                "--register-with-taints=node-role.kubernetes.io/master=:NoSchedule",
            ],
            [],
        ),
        ("master", [singleton("Scheduler", mastersSchedulable=True)], [], ["--register-with-taints"]),
        (
            "worker",
            [singleton("Infrastructure", status={"platformStatus": {"type": "PowerVS"}})],
            ["--cloud-provider=external "],
            [],
        ),
        (
            "worker",
            [
                singleton(
                    "Infrastructure",
                    status={
                        "platformStatus": {
                            "type": "External",
                            "external": {"cloudControllerManager": {"state": "External"}},
                        }
                    },
                )
            ],
            ["--cloud-provider=external "],
            [],
        ),
        *(
            (
                "worker",
                [singleton("Infrastructure", status={"platformStatus": {"type": "External", "external": external}})],
                ["--cloud-provider= "],
                ["--cloud-provider=external"],
            )
            for external in (
                {},
                {"cloudControllerManager": {"state": ""}},
                {"cloudControllerManager": {"state": "None"}},
            )
        ),
    ],
)
def test_the_kubelet_is_told_its_role(name: str, manifests: list[Object], flags: list[str], without: list[str]) -> None:
    unit = disk_of(manifests, name).units["kubelet.service"]

    assert unit.enabled
    assert all(flag in unit.contents for flag in flags)
    assert not any(flag in unit.contents for flag in without)


def test_the_manifests_of_the_cluster_are_on_the_disk() -> None:
    secret = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": "pull-secret", "namespace": "openshift-config"},
        "data": {".dockerconfigjson": base64.b64encode(b'{"auths":{}}').decode()},
    }
    infrastructure = singleton("Infrastructure", status={"apiServerInternalURI": "https://api-int.h.example.com:6443"})

    files = disk_of([secret, infrastructure, singleton("Network", serviceNetwork=["10.9.0.0/16"])]).files

    assert files["/var/lib/kubelet/config.json"].content == b'{"auths":{}}'
    assert files["/var/lib/kubelet/config.json"].mode == 0o600
    assert b"api-int.h.example.com" in files["/etc/kubernetes/apiserver-url.env"].content
    assert yaml.safe_load(files["/etc/kubernetes/kubelet.conf"].content)["clusterDNS"] == ["10.9.0.10"]
    assert b"network_dir" in files["/etc/crio/crio.conf.d/00-default"].content


@pytest.mark.parametrize("name", ["master", "worker"])
def test_the_product_s_manifests_make_a_configuration(cluster_dir: Path, name: str) -> None:
    said = json.loads((cluster_dir / "bootstrap.ign").read_bytes())["storage"]["files"]
    texts = [
        base64.b64decode(file["contents"]["source"].partition(",")[2])
        for file in said
        if file["path"].startswith(("/opt/openshift/manifests/", "/opt/openshift/openshift/"))
    ]
    manifests = [document for text in texts for document in yaml.safe_load_all(text) if document]

    config = rendered(manifests, name)

    assert validation.problems(config) == []
    assert validation.duplicates(config) == []
    done = disk_of(manifests, name)
    assert done.users["core"].ssh_keys
    assert b"registry.example.com" in done.files["/var/lib/kubelet/config.json"].content
    assert b"api-int.harbour.example.com" in done.files["/etc/kubernetes/apiserver-url.env"].content


def test_kernel_arguments_of_ignition_go_to_the_machine_config_for_old_engines() -> None:
    arguments = machine_config(
        "1", config={"ignition": {"version": "3.3.0"}, "kernelArguments": {"shouldExist": ["k"]}}
    )
    config = rendered([arguments])
    assert config["kernelArguments"] == {"shouldExist": ["k"]}

    older = machine_configs.without_kernel_arguments(config)

    assert "kernelArguments" not in older
    raw = json.dumps(older).encode()
    done = asyncio.run(ignition.provision(raw, nowhere, lambda line: None, clock=clocks.Clock()))
    assert json.loads(done.files[machine_configs.ENCAPSULATED].content)["spec"]["kernelArguments"] == ["k"]


def test_templates_are_machine_configs_like_any_other() -> None:
    kubelet = machine_config("99-mine", config=a_file("mine", "/etc/kubernetes/kubelet.conf"))

    assert [each["metadata"]["name"] for each in base_configs.base([], "worker", "")] == [
        "00-worker",
        "01-worker-container-runtime",
        "01-worker-kubelet",
    ]
    assert disk_of([kubelet]).files["/etc/kubernetes/kubelet.conf"].content == b"mine"
