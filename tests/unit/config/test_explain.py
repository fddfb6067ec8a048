"""`explain` speaks from the models."""

from __future__ import annotations

from typing import Any

import pytest

from moorage import errors
from moorage.config import explain, model, schema
from moorage.platforms import registry


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        (
            "installconfig.networking.clusterNetwork.hostPrefix",
            ("whole number", "23", False, "64 for IPv6"),
        ),
        ("installconfig.metadata.name", ("text", "", True, "at most 54 characters")),
        ("installconfig.publish", ("one of External, Internal", "External", False, "")),
        ("installconfig.controlPlane.name", ("text", "master", False, "always 'master'")),
        ("installconfig.compute.name", ("text", "worker", False, "'worker' for compute")),
        ("installconfig.compute[0].replicas", ("whole number", "3", False, "0 or more")),
        ("installconfig.fips", ("true or false", "false", False, "cannot be turned on")),
        ("installconfig.pullSecret", ("text (secret)", "", True, "auths")),
        ("installconfig.networking.serviceNetwork", ("list of text", '["172.30.0.0/16"]', False, "one IPv4")),
        ("installconfig.controlPlane.platform.dock.cpus", ("whole number", "4", False, "at least 1")),
        ("installconfig.platform.dock.password", ("text (secret)", "", True, "")),
        ("INSTALLCONFIG.baseDomain", ("text", "", True, "lower-case DNS name")),
    ],
)
def test_a_field(stanzas: Any, path: str, expected: tuple[str, str, bool, str]) -> None:
    found = explain.describe(path, stanzas)

    assert (found.type, found.default, found.required) == expected[:3]
    assert expected[3] in found.rule
    assert found.description


def test_the_root_lists_every_field_once(stanzas: Any) -> None:
    found = explain.describe("installconfig", stanzas)

    assert [line.name for line in found.fields] == schema.yaml_names(model.InstallConfig)
    assert all(line.summary for line in found.fields)


@pytest.mark.parametrize("path", ["installconfig.platform", "installconfig.compute.platform"])
def test_platforms_are_listed_where_they_are_chosen(stanzas: Any, path: str) -> None:
    assert [line.name for line in explain.describe(path, stanzas).fields] == ["dock", *sorted(registry.PLATFORMS)]


def test_a_platforms_section_has_its_own_fields(stanzas: Any) -> None:
    cluster = explain.describe("installconfig.platform.dock", stanzas)
    pool = explain.describe("installconfig.compute.platform.dock", stanzas)

    assert [line.name for line in cluster.fields] == ["apiVIPs", "ingressVIPs", "password", "berth", "labels"]
    assert [line.name for line in pool.fields] == ["cpus"]
    assert cluster.description == "A dock. Where ships are."


@pytest.mark.parametrize(
    ("path", "remedy"),
    [
        ("", "fields there: installconfig"),
        ("instalconfig", "did you mean `installconfig`?"),
        ("installconfig.netwroking", "did you mean `networking`?"),
        ("installconfig.networking.clusternetwork", "did you mean `clusterNetwork`?"),
        ("installconfig.platform.doc", "did you mean `dock`?"),
        ("installconfig.platform.none.x", "there are no fields to set"),
        ("installconfig.baseDomain.x", "run: moorage explain installconfig.baseDomain"),
    ],
)
def test_an_unknown_path_has_a_nearest_match(stanzas: Any, path: str, remedy: str) -> None:
    with pytest.raises(errors.MoorageError) as caught:
        explain.describe(path, stanzas)

    assert caught.value.remedy == remedy


def test_the_text_of_a_field(stanzas: Any) -> None:
    text = explain.render(explain.describe("installconfig.networking.clusterNetwork.hostPrefix", stanzas))

    assert text == (
        "installconfig.networking.clusterNetwork.hostPrefix: whole number\n"
        "  The size of the piece each node is given: 23 leaves about 500 addresses for its pods.\n"
        "  default: 23\n"
        "  rule: at least the CIDR's own prefix, equal for all IPv4 ranges, 64 for IPv6; one piece per node\n"
    )


def test_the_text_of_a_section(stanzas: Any) -> None:
    text = explain.render(explain.describe("installconfig.networking.ovnKubernetesConfig.ipv4", stanzas))

    assert text == (
        "installconfig.networking.ovnKubernetesConfig.ipv4: mapping\n"
        "  Its IPv4 addresses.\n"
        "\n"
        "Fields:\n"
        "  internalJoinSubnet (text)\n"
        "      The range that joins the nodes' routers, where 100.64.0.0/16 is taken by something else.\n"
    )
