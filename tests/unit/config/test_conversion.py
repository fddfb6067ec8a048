"""Old spellings are understood as openshift-install understands them; what only it serves is refused by name."""

from __future__ import annotations

from typing import Any

import pytest

from moorage.config import conversion, load

from .conftest import Check, Make


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ({"networking.machineCIDR": "10.9.0.0/16"}, {"networking.machineNetwork": [{"cidr": "10.9.0.0/16"}]}),
        ({"networking.serviceCIDR": "172.31.0.0/16"}, {"networking.serviceNetwork": ["172.31.0.0/16"]}),
        ({"networking.type": "Calico"}, {"networking.networkType": "Calico"}),
        (
            {"networking.clusterNetworks": [{"cidr": "10.128.0.0/14", "hostPrefix": 22}]},
            {"networking.clusterNetwork": [{"cidr": "10.128.0.0/14", "hostPrefix": 22}]},
        ),
        (
            {"networking.clusterNetwork": [{"cidr": "10.128.0.0/14", "hostSubnetLength": 10}]},
            {"networking.clusterNetwork": [{"cidr": "10.128.0.0/14", "hostPrefix": 22}]},
        ),
        ({"apiVersion": "v1beta4"}, {"apiVersion": "v1"}),
        ({"compute": []}, {}),
    ],
)
def test_an_old_spelling_means_the_new_one_and_warns(
    make: Make, stanzas: Any, old: dict[str, Any], new: dict[str, Any]
) -> None:
    converted, warnings = load.parse(make(old), stanzas)
    modern, _ = load.parse(make(new), stanzas)

    assert converted == modern
    assert [warning.severity for warning in warnings] == ["warning"]


@pytest.mark.parametrize(
    "same",
    [
        {"kind": "InstallConfig"},
        {"metadata.creationTimestamp": ""},
        {"publish": ""},
        {"featureSet": "Default"},
        {"networking.networkType": "ovnKubernetes"},
        {"networking.machineNetwork": []},
        {"controlPlane.platform": {}},
    ],
)
def test_ways_of_saying_nothing_are_silent(make: Make, stanzas: Any, same: dict[str, Any]) -> None:
    text = make(same).replace("creationTimestamp: ''", "creationTimestamp: null")

    assert load.parse(text, stanzas) == load.parse(make(), stanzas)


def test_a_platform_without_settings_may_be_written_without_braces(make: Make, stanzas: Any) -> None:
    assert load.parse(make().replace("none: {}", "none:"), stanzas) == load.parse(make(), stanzas)


def test_the_new_spelling_wins_over_the_old(make: Make, stanzas: Any) -> None:
    config, warnings = load.parse(
        make({"networking.machineCIDR": "10.9.0.0/16", "networking.machineNetwork": [{"cidr": "10.8.0.0/16"}]}),
        stanzas,
    )

    assert config.networking.machine_network[0].cidr == "10.8.0.0/16"
    assert len(warnings) == 2


def test_errors_in_an_old_spelling_have_its_line(make: Make, stanzas: Any) -> None:
    text = make({"networking.machineCIDR": "10.9.0.5/16"})

    error = next(finding for finding in load.check(text, stanzas) if finding.severity == "error")

    assert text.splitlines()[(error.line or 0) - 1].strip() == "machineCIDR: 10.9.0.5/16"


@pytest.mark.parametrize("names", conversion.UNSUPPORTED)
def test_fields_of_openshift_install_alone_are_refused_by_name(check: Check, names: tuple[str, ...]) -> None:
    *parents, name = names
    changes: dict[str, Any] = {".".join(names): {"a": 1}}
    field = ".".join(names)
    if parents == ["compute"]:
        changes, field = {"compute": [{"name": "worker", name: {"a": 1}}]}, f"compute[0].{name}"

    [finding] = check(changes)

    assert (finding.field, finding.message) == (field, "is known to openshift-install but not to moorage")
    assert finding.remedy
