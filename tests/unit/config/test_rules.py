"""Names, pools, capabilities, features: one change to a sound config, and what is said about it."""

from __future__ import annotations

import string
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from moorage.config import names, rules

from .conftest import Check

COMPUTE = {"name": "worker", "replicas": 2}
DOCK = {"platform": {"dock": {"password": "x"}}}


def test_a_sound_config_has_no_findings(check: Check) -> None:
    assert check() == []


@pytest.mark.parametrize(
    ("changes", "field", "severity", "words"),
    [
        ({"metadata.name": "Demo"}, "metadata.name", "error", "upper-case"),
        ({"metadata.name": "de_mo"}, "metadata.name", "error", "'_' is not allowed"),
        ({"metadata.name": "-demo"}, "metadata.name", "error", "begins or ends with '-'"),
        ({"metadata.name": "a..b"}, "metadata.name", "error", "between its dots"),
        ({"metadata.name": "a" * 55}, "metadata.name", "error", "room for 54"),
        ({"metadata.name": ""}, "metadata.name", "error", "is empty"),
        ({"baseDomain": "exa mple.com"}, "baseDomain", "error", "not a DNS name"),
        ({"baseDomain": "."}, "baseDomain", "error", "is empty"),
        ({"baseDomain": ".".join(["a" * 63] * 4)}, "baseDomain", "error", "at most 253"),
        ({"baseDomain": "b" * 64 + ".com"}, "baseDomain", "error", "more than 63"),
        ({"baseDomain": ".".join(["a" * 62] * 4)}, "metadata.name", "error", "DNS allows 253"),
        ({"controlPlane.name": "boss"}, "controlPlane.name", "error", "always called master"),
        ({"controlPlane.replicas": 2}, "controlPlane.replicas", "error", "no majority"),
        ({"controlPlane.replicas": 0}, "controlPlane.replicas", "error", "not 0"),
        ({"controlPlane.replicas": -3}, "controlPlane.replicas", "error", "not -3"),
        ({"controlPlane.replicas": 7}, "controlPlane.replicas", "error", "not 7"),
        ({"controlPlane.replicas": 4}, "controlPlane.replicas", "warning", "survive one failure"),
        ({"controlPlane.replicas": 1}, "controlPlane.replicas", "warning", "all is lost"),
        ({"compute": [{"name": "worker", "replicas": -1}]}, "compute[0].replicas", "error", "is -1"),
        ({"compute": [{"name": "workers"}]}, "compute[0].name", "error", "role comes from the pool's name"),
        ({"compute": [{"name": "edge"}]}, "compute[0].name", "error", "aws only"),
        ({"compute": [COMPUTE, COMPUTE]}, "compute[1].name", "error", "compute[0] too"),
        (
            {"compute": [{"name": "worker", "architecture": "arm64"}]},
            "compute[0].architecture",
            "error",
            "control plane is amd64",
        ),
        (
            {"fips": True, "controlPlane.architecture": "arm64", "compute": [{**COMPUTE, "architecture": "arm64"}]},
            "fips",
            "warning",
            "not on arm64",
        ),
        ({"publish": "Internal"}, "publish", "error", "platform none"),
        ({"credentialsMode": "Manual"}, "credentialsMode", "error", "no choice"),
        (
            {"capabilities.additionalEnabledCapabilities": ["Consol"]},
            "capabilities.additionalEnabledCapabilities[0]",
            "error",
            "no capability 'Consol'",
        ),
        (
            {"capabilities.baselineCapabilitySet": "None"},
            "capabilities.additionalEnabledCapabilities",
            "error",
            "Ingress must be enabled",
        ),
        (
            {
                "capabilities.baselineCapabilitySet": "None",
                "capabilities.additionalEnabledCapabilities": ["Ingress", "marketplace"],
            },
            "capabilities.additionalEnabledCapabilities",
            "error",
            "OperatorLifecycleManager must be enabled: marketplace needs it",
        ),
        (
            {
                "capabilities.baselineCapabilitySet": "None",
                "capabilities.additionalEnabledCapabilities": ["Ingress", "baremetal"],
            },
            "capabilities.additionalEnabledCapabilities",
            "error",
            "MachineAPI must be enabled: baremetal needs it",
        ),
        (
            {
                "cpuPartitioningMode": "AllNodes",
                "capabilities.baselineCapabilitySet": "None",
                "capabilities.additionalEnabledCapabilities": ["Ingress"],
            },
            "cpuPartitioningMode",
            "warning",
            "NodeTuning",
        ),
        ({"featureSet": "TechPreviewNoUpgrade"}, "featureSet", "warning", "never be upgraded"),
        ({"featureGates": ["A=true"]}, "featureGates", "error", "CustomNoUpgrade"),
    ],
)
def test_one_mistake_has_one_finding(
    check: Check, changes: dict[str, Any], field: str, severity: str, words: str
) -> None:
    [finding] = check(changes)

    assert (finding.field, finding.severity) == (field, severity)
    assert words in finding.message


@pytest.mark.parametrize(
    "changes",
    [
        {"metadata.name": "a" * 54},
        {"metadata.name": "0.9"},
        {"baseDomain": "example.com."},
        {"controlPlane.replicas": 5},
        {"controlPlane.replicas": 1, "compute": [{"name": "worker", "replicas": 0}]},
        {"compute": [{"name": "worker", "replicas": 0}]},
        {"capabilities.baselineCapabilitySet": "v4.18"},
        {
            "capabilities.baselineCapabilitySet": "v4.14",
            "capabilities.additionalEnabledCapabilities": ["Ingress", "OperatorLifecycleManager"],
        },
        {"cpuPartitioningMode": "AllNodes"},
        {"controlPlane.architecture": "ppc64le", "compute": [{**COMPUTE, "architecture": "ppc64le"}], "fips": True},
    ],
)
def test_what_is_unusual_but_sound_has_no_finding(check: Check, changes: dict[str, Any]) -> None:
    assert check(changes) == []


@pytest.mark.parametrize("gate", ["A", "A=", "A=yes", "=true", "A=true=false", "A =true"])
def test_feature_gates_are_name_and_value(check: Check, gate: str) -> None:
    found = check({"featureSet": "CustomNoUpgrade", "featureGates": ["Good=false", gate]})

    assert [finding.field for finding in found if finding.severity == "error"] == ["featureGates[1]"]


@pytest.mark.parametrize(
    ("changes", "field", "words"),
    [
        ({"sshKey": None}, "sshKey", "is required on platform dock"),
        ({"metadata.name": "de.mo"}, "metadata.name", "must not contain '.'"),
        ({"controlPlane.architecture": "arm64"}, "controlPlane.architecture", "not to be had on platform dock"),
        ({"credentialsMode": "Passthrough"}, "credentialsMode", "cannot be had on platform dock"),
        (
            {"capabilities.baselineCapabilitySet": "None", "capabilities.additionalEnabledCapabilities": ["Ingress"]},
            "capabilities.additionalEnabledCapabilities",
            "CloudCredential must be enabled: platform dock needs it",
        ),
        (
            {
                "networking.machineNetwork": [{"cidr": "fd00::/64"}],
                "networking.clusterNetwork": [{"cidr": "fd01::/48"}],
                "networking.serviceNetwork": ["fd02::/112"],
            },
            "networking.serviceNetwork",
            "IPv6 is not possible",
        ),
    ],
)
def test_the_platform_narrows_what_is_possible(
    check: Check, ssh_keys: dict[str, str], changes: dict[str, Any], field: str, words: str
) -> None:
    compute = [{**COMPUTE, "architecture": changes.get("controlPlane.architecture", "amd64")}]

    [finding] = check({**DOCK, "sshKey": ssh_keys["ed25519"], "compute": compute, **changes})

    assert finding.field == field
    assert words in finding.message


def test_capability_sets_grow_to_all_seventeen() -> None:
    sizes = [len(found) for found in rules.CAPABILITY_SETS.values()]

    assert sizes == [0, 4, 8, 9, 12, 14, 16, 16, 17, 17]
    assert len(rules.CAPABILITIES) == 17


def spelt_out(name: str) -> bool:
    """The rule of DNS names again, character by character."""
    if not name or len(name) > 253:
        return False
    length = 0
    previous = "."
    for character in name + ".":
        if character == ".":
            if length == 0 or length > 63 or previous == "-":
                return False
            length = 0
        elif character == "-":
            if length == 0:
                return False
            length += 1
        elif character in string.ascii_lowercase or character in string.digits:
            length += 1
        else:
            return False
        previous = character
    return True


@given(st.one_of(st.text(alphabet="ab9-.A_\n", max_size=12), st.text(alphabet="a.", min_size=50, max_size=300)))
@example("a" * 63 + ".b")
@example("a" * 64 + ".b")
@example(".".join(["a" * 63] * 3) + "." + "a" * 61)
@example(".".join(["a" * 63] * 3) + "." + "a" * 62)
@example("a\n")
def test_dns_names_are_what_the_rule_spelt_out_says(name: str) -> None:
    assert names.is_dns_name(name) == spelt_out(name)
    assert bool(list(names.dns_name("f", name))) != spelt_out(name)
