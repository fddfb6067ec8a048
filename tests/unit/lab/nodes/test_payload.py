"""The payload's kinds: the notation becomes schemas that accept what clusters are made of and refuse the rest."""

from __future__ import annotations

from typing import Any

import pytest

from moorage.lab.kube import schema
from moorage.lab.nodes import payload

DEFINITIONS = {each["metadata"]["name"]: each for each in payload.definitions()}


def version(name: str) -> dict[str, Any]:
    found: dict[str, Any] = DEFINITIONS[name]["spec"]["versions"][0]
    return found


def shape(name: str) -> dict[str, Any]:
    found: dict[str, Any] = version(name)["schema"]["openAPIV3Schema"]
    return found


def field(name: str, path: str) -> dict[str, Any]:
    found = shape(name)
    for key in path.split("."):
        found = found["items"] if key == "[]" else found["properties"][key]
    return found


def test_every_definition_is_named_after_its_plural_and_group() -> None:
    for name, definition in DEFINITIONS.items():
        spec = definition["spec"]
        assert name == f"{spec['names']['plural']}.{spec['group']}"
        assert spec["scope"] in ("Cluster", "Namespaced")


@pytest.mark.parametrize(
    ("name", "path", "wanted"),
    [
        ("dnses.config.openshift.io", "spec.baseDomain", {"type": "string"}),
        ("machineconfigs.machineconfiguration.openshift.io", "spec.fips", {"type": "boolean"}),
        ("machinesets.machine.openshift.io", "spec.replicas", {"type": "integer", "format": "int32", "default": 1}),
        ("proxies.config.openshift.io", "spec.readinessEndpoints.[]", {"type": "string"}),
        (
            "machineconfigs.machineconfiguration.openshift.io",
            "spec.config",
            {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
        ),
        (
            "infrastructures.config.openshift.io",
            "status.cpuPartitioning",
            {"type": "string", "enum": ["None", "AllNodes"], "default": "None"},
        ),
        (
            "infrastructures.config.openshift.io",
            "spec.platformSpec.powervs.serviceEndpoints.[].url",
            {"type": "string", "pattern": "^https://"},
        ),
        (
            "clusterversions.config.openshift.io",
            "status.history.[].completionTime",
            {"type": "string", "format": "date-time", "nullable": True},
        ),
    ],
)
def test_a_line_says_what_a_field_is(name: str, path: str, wanted: dict[str, Any]) -> None:
    assert field(name, path) == wanted


def test_lists_say_what_tells_their_items_apart() -> None:
    overrides = field("clusterversions.config.openshift.io", "spec.overrides")

    assert overrides["x-kubernetes-list-map-keys"] == ["kind", "group", "namespace", "name"]
    assert sorted(overrides["items"]["required"]) == ["group", "kind", "name", "namespace", "unmanaged"]


def test_parts_are_put_where_they_are_used() -> None:
    conditions = field("etcds.operator.openshift.io", "status.conditions")

    assert conditions["items"]["properties"]["status"]["enum"] == ["True", "False", "Unknown"]
    assert field("kubeapiservers.operator.openshift.io", "status.nodeStatuses.[].currentRevision")["type"] == "integer"


def test_subresources_and_columns_come_from_the_first_lines() -> None:
    machine_sets = version("machinesets.machine.openshift.io")

    assert machine_sets["subresources"]["scale"]["labelSelectorPath"] == ".status.labelSelector"
    assert [each["name"] for each in version("clusteroperators.config.openshift.io")["additionalPrinterColumns"]] == [
        "Version",
        "Available",
        "Progressing",
        "Degraded",
        "Since",
    ]
    assert "subresources" not in version("machineconfigs.machineconfiguration.openshift.io")


@pytest.mark.parametrize(
    ("name", "content", "field_named"),
    [
        ("infrastructures.config.openshift.io", {"spec": {"platformSpec": {"type": "Nowhere"}}}, "platformSpec.type"),
        ("infrastructures.config.openshift.io", {"spec": {"platformSpec": "None"}}, "platformSpec"),
        ("networks.config.openshift.io", {"spec": {"serviceNetwork": "172.30.0.0/16"}}, "serviceNetwork"),
        ("dnses.config.openshift.io", {}, "spec"),
        ("schedulers.config.openshift.io", {"spec": {"mastersSchedulable": "yes"}}, "mastersSchedulable"),
        ("featuregates.config.openshift.io", {"spec": {"featureSet": "Everything"}}, "featureSet"),
        ("machineconfigs.machineconfiguration.openshift.io", {"spec": {"kernelArguments": "nosmt"}}, "kernelArguments"),
        (
            "clusterversions.config.openshift.io",
            {"spec": {"clusterID": "x", "overrides": [{"kind": "DNS", "group": "", "name": "cluster"}]}},
            "overrides[0].namespace",
        ),
        (
            "imagedigestmirrorsets.config.openshift.io",
            {"spec": {"imageDigestMirrors": [{"source": "https://quay.io/x"}]}},
            "source",
        ),
    ],
)
def test_wrong_manifests_are_refused(name: str, content: dict[str, Any], field_named: str) -> None:
    causes = schema.validate(shape(name), content)

    assert [cause for cause in causes if field_named in cause.field], causes


@pytest.mark.parametrize(
    ("name", "content", "unknown"),
    [
        ("infrastructures.config.openshift.io", {"spec": {"platfromSpec": {}}}, "spec.platfromSpec"),
        (
            "machines.machine.openshift.io",
            {"spec": {"providerSpec": {"value": {"anything": "goes"}}, "provider": {}}},
            "spec.provider",
        ),
        ("ingresses.config.openshift.io", {"spec": {"domain": "x"}, "status": {"placement": ""}}, "status.placement"),
    ],
)
def test_fields_that_nobody_knows_are_noticed(name: str, content: dict[str, Any], unknown: str) -> None:
    assert schema.unknown_fields(shape(name), content) == [f'unknown field "{unknown}"']


@pytest.mark.parametrize("line", ["name string what", "name string ~nothing", "name @nothing", "name len~4"])
def test_a_line_without_sense_is_not_guessed_at(line: str) -> None:
    words = payload._Words("part x\n  a string\n")

    with pytest.raises((payload.NotationError, KeyError)):
        payload._fields([f"  {line}"], 2, words)
