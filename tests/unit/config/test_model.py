"""The config as others use it: what it computes, what it writes, what it hides."""

from __future__ import annotations

from typing import Any

import pydantic
import pytest

from moorage.config import model, schema


def test_defaults_are_those_of_openshift_install(parse: Any) -> None:
    assert parse().to_dict() == {
        "apiVersion": "v1",
        "metadata": {"name": "demo"},
        "baseDomain": "example.com",
        "platform": {"none": {}},
        "pullSecret": '{"auths":{"registry.example.com":{"auth":"dXNlcjpwYXNz"}}}',
        "controlPlane": {"name": "master", "replicas": 3, "architecture": "amd64", "hyperthreading": "Enabled"},
        "compute": [{"name": "worker", "replicas": 3, "architecture": "amd64", "hyperthreading": "Enabled"}],
        "networking": {
            "networkType": "OVNKubernetes",
            "clusterNetwork": [{"cidr": "10.128.0.0/14", "hostPrefix": 23}],
            "machineNetwork": [{"cidr": "10.0.0.0/16"}],
            "serviceNetwork": ["172.30.0.0/16"],
        },
        "publish": "External",
        "additionalTrustBundlePolicy": "Proxyonly",
        "cpuPartitioningMode": "None",
        "fips": False,
    }


def test_ipv6_pods_have_a_host_prefix_of_64(parse: Any) -> None:
    config = parse(
        {
            "networking.machineNetwork": [{"cidr": "fd00::/64"}],
            "networking.clusterNetwork": [{"cidr": "fd01::/48"}],
            "networking.serviceNetwork": ["fd02::/112"],
        }
    )

    assert config.networking.cluster_network[0].host_prefix == 64
    assert config.ip_families == ("IPv6",)


@pytest.mark.parametrize(
    ("control_plane", "workers", "single", "compact"),
    [(3, 3, False, False), (3, 0, False, True), (1, 0, True, True), (1, 2, False, False)],
)
def test_the_size_of_the_cluster(parse: Any, control_plane: int, workers: int, single: bool, compact: bool) -> None:
    config = parse(
        {"controlPlane.replicas": control_plane, "compute": [{"name": "worker", "replicas": workers}]},
    )

    assert (config.control_plane_replicas, config.worker_replicas) == (control_plane, workers)
    assert (config.is_single_node, config.is_compact) == (single, compact)


@pytest.mark.parametrize("domain", ["example.com", "example.com."])
def test_the_clusters_domain_has_no_trailing_dot(parse: Any, domain: str) -> None:
    assert parse({"baseDomain": domain}).cluster_domain == "demo.example.com"


def test_what_the_cluster_is_told_has_no_secret(parse: Any, ssh_keys: dict[str, str]) -> None:
    config = parse(
        {
            "platform": {"dock": {"password": "hunter2"}},
            "sshKey": ssh_keys["rsa"],
            "proxy": {"httpProxy": "http://me:hunter2@proxy:3128/", "httpsProxy": "https://proxy:3129"},
        }
    )

    told = config.redacted()

    assert told["pullSecret"] == ""
    assert told["platform"] == {"dock": {"password": "", "berth": 1, "labels": {}}}
    assert told["proxy"] == {"httpProxy": "http://redacted@proxy:3128/", "httpsProxy": "https://proxy:3129"}
    assert "hunter2" not in str(told)
    assert "dXNlcjpwYXNz" not in str(told)
    assert {
        key: value for key, value in config.to_dict().items() if key not in ("pullSecret", "platform", "proxy")
    } == {key: value for key, value in told.items() if key not in ("pullSecret", "platform", "proxy")}


def test_secrets_stay_out_of_what_python_prints(parse: Any, ssh_keys: dict[str, str]) -> None:
    config = parse({"platform": {"dock": {"password": "hunter2"}}, "sshKey": ssh_keys["rsa"]})

    assert "hunter2" not in repr(config)
    assert "dXNlcjpwYXNz" not in repr(config)


def test_a_config_cannot_be_changed(parse: Any) -> None:
    with pytest.raises(pydantic.ValidationError):
        parse().base_domain = "other.com"


@pytest.mark.parametrize(("value", "kind"), [(True, "int_type"), ("3", "int_type"), (3.0, "int_type")])
def test_numbers_are_numbers(value: object, kind: str) -> None:
    with pytest.raises(pydantic.ValidationError) as caught:
        model.MachinePool.model_validate({"replicas": value})

    assert caught.value.errors()[0]["type"] == kind


def test_every_field_says_what_it_is_for() -> None:
    seen: set[type[model.Section]] = set()
    waiting: list[type[model.Section]] = [model.InstallConfig]
    while waiting:
        section = waiting.pop()
        seen.add(section)
        assert section.__doc__, section
        for name, field in section.model_fields.items():
            assert field.description, f"{section.__name__}.{name}"
            inner = schema.section_of(field.annotation)
            if inner is not None and inner not in seen:
                waiting.append(inner)

    assert len(seen) == 14
