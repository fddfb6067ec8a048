"""Definitions that a server does not take: names, versions and schemas that are wrong, and groups that are protected.

The words in the tables were heard from a real server, version 1.33.
"""

from __future__ import annotations

import pytest

from tests.unit.lab.kube.crd_world import Object, World, conditions, definition, refused, version, with_schema


@pytest.fixture
def world() -> World:
    return World()


LABEL = (
    "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character,"
    " and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for validation is"
    " '[a-z]([-a-z0-9]*[a-z0-9])?')"
)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (
            {**definition(), "metadata": {"name": "others.example.com"}},
            'metadata.name: Invalid value: "others.example.com": must be spec.names.plural+"."+spec.group',
        ),
        (
            definition(scope="Galaxy"),
            'spec.scope: Unsupported value: "Galaxy": supported values: "Cluster", "Namespaced"',
        ),
        (definition(names={"shortNames": ["F_"]}), f'spec.names.shortNames[0]: Invalid value: "F_": {LABEL}'),
        (
            definition(names={"listKind": "Thing"}),
            'spec.names.listKind: Invalid value: "Thing": kind and listKind may not be the same',
        ),
        (
            definition(preserveUnknownFields=True),
            "spec.preserveUnknownFields: Invalid value: true: cannot set to true, set"
            " x-kubernetes-preserve-unknown-fields to true in spec.versions[*].schema instead",
        ),
        (
            definition(conversion={"strategy": "Webhook"}),
            'spec.conversion.strategy: Invalid value: "Webhook": conversion by webhook is not supported by this server;'
            " use None",
        ),
        (
            definition(versions=[{**version(), "schema": None}]),
            "spec.versions[0].schema.openAPIV3Schema: Required value: schemas are required",
        ),
        (
            definition(versions=[version(deprecationWarning="old")]),
            'spec.versions[0].deprecationWarning: Invalid value: "old": can only be set for deprecated versions',
        ),
        (
            definition(versions=[version(storage=False)]),
            "spec.versions: Invalid value: [v1]: must have exactly one version marked as storage version",
        ),
        (
            definition(
                versions=[
                    version(subresources={"scale": {"specReplicasPath": ".n", "statusReplicasPath": ".status.n"}})
                ]
            ),
            'spec.subresources.scale.specReplicasPath: Invalid value: ".n": should be a json path under .spec',
        ),
        (
            definition(versions=[version(additionalPrinterColumns=[{"name": "A", "type": "x", "jsonPath": ".a"}])]),
            'spec.additionalPrinterColumns[0].type: Invalid value: "x":'
            " must be one of boolean,date,integer,number,string",
        ),
    ],
)
def test_a_definition_is_refused(world: World, content: Object, message: str) -> None:
    assert refused(world, content) == [message]


A = "spec.validation.openAPIV3Schema.properties[a]"


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        ({"properties": {}}, f"{A}.type: Required value: must not be empty for specified object fields"),
        ({"type": "array"}, f"{A}.items: Required value: must be specified"),
        (
            {"type": "array", "items": {}},
            f"{A}.items.type: Required value: must not be empty for specified array items",
        ),
        (
            {"type": "odd"},
            f'{A}.type: Unsupported value: "odd": supported values: "array", "boolean", "integer", "number", "object",'
            ' "string"',
        ),
        ({"$ref": "#/x"}, f"{A}.$ref: Forbidden: $ref is not supported"),
        (
            {
                "type": "object",
                "properties": {"x": {"type": "string"}},
                "additionalProperties": {"type": "string"},
            },
            f"{A}.additionalProperties: Forbidden: additionalProperties and properties are mutual exclusive",
        ),
        (
            {"type": "object", "anyOf": [{"type": "object"}]},
            f"{A}.anyOf[0].type: Forbidden: must be empty to be structural",
        ),
        (
            {"type": "array", "x-kubernetes-list-type": "map", "items": {"type": "object"}},
            f"{A}.x-kubernetes-list-map-keys: Required value: must not be empty if x-kubernetes-list-type is map",
        ),
        (
            {
                "type": "array",
                "x-kubernetes-list-type": "map",
                "x-kubernetes-list-map-keys": ["k"],
                "items": {"type": "object", "properties": {"k": {"type": "string"}}},
            },
            f"{A}.items.properties[k].default: Required value: this property is in x-kubernetes-list-map-keys, so it"
            " must have a default or be a required property",
        ),
        (
            {"type": "integer", "default": "x"},
            f'{A}.default: Invalid value: "string":  in body must be of type integer: "string"',
        ),
        (
            {"type": "object", "default": {"q": 1}, "properties": {"x": {"type": "string"}}},
            f'{A}.default: Invalid value: map[string]interface {{}}{{"q":1}}: must not have unknown fields',
        ),
        (
            {"type": "object", "x-kubernetes-embedded-resource": True},
            f"{A}.properties: Required value: must not be empty if x-kubernetes-embedded-resource is true without"
            " x-kubernetes-preserve-unknown-fields",
        ),
    ],
)
def test_a_schema_that_is_not_structural_is_refused(world: World, schema: Object, message: str) -> None:
    assert refused(world, with_schema(a=schema)) == [message]


def test_a_wrong_schema_is_told_with_its_version_if_versions_differ(world: World) -> None:
    wrong = {"openAPIV3Schema": {"type": "object", "properties": {"a": {"type": "array"}}}}
    versions = [version("v1"), {**version("v2", storage=False), "schema": wrong}]

    assert refused(world, definition(versions=versions)) == [
        "spec.versions[1].schema.openAPIV3Schema.properties[a].items: Required value: must be specified"
    ]


def test_a_protected_group_needs_an_approval(world: World) -> None:
    content = definition(group="x.k8s.io")
    content["metadata"]["name"] = "things.x.k8s.io"
    assert refused(world, content) == [
        "metadata.annotations[api-approved.kubernetes.io]: Required value:"
        ' protected groups must have approval annotation "api-approved.kubernetes.io", see https://github.com/kubernetes/enhancements/pull/1111'
    ]

    content["metadata"]["annotations"] = {"api-approved.kubernetes.io": "https://example.com"}
    found = world.define(content)

    approved = ("True", "ApprovedAnnotation", "approved in https://example.com")
    assert conditions(found)["KubernetesAPIApprovalPolicyConformant"] == approved
