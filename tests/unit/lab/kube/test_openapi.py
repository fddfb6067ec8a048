"""OpenAPI documents: complete in themselves, the same in every form, and changed when the kinds are."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from typing import Any

import pytest

from moorage.lab.kube import builtin_kinds, gnostic, kinds, openapi, openapi_v2

SCHEMA = {
    "type": "object",
    "description": "A thing.",
    "required": ["spec"],
    "properties": {
        "spec": {
            "type": "object",
            "properties": {
                "size": {"type": "integer", "minimum": 1, "default": 3},
                "maybe": {"type": "string", "nullable": True},
                "port": {"x-kubernetes-int-or-string": True, "anyOf": [{"type": "integer"}, {"type": "string"}]},
                "either": {"type": "object", "oneOf": [{"required": ["a"]}], "properties": {"a": {"type": "string"}}},
            },
        }
    },
}
THING = kinds.Kind(
    "example.com",
    "v1",
    "Thing",
    "things",
    custom=True,
    schema=SCHEMA,
    subresources=frozenset({"status", "scale"}),
)


@pytest.fixture
def served() -> kinds.Kinds:
    found = kinds.Kinds()
    for kind in builtin_kinds.kinds():
        found.add(kind)
    found.add(THING)
    return found


def document(served: kinds.Kinds, group: str, version: str) -> dict[str, Any]:
    data = openapi.document(served, group, version)
    assert data is not None
    found: dict[str, Any] = json.loads(data)
    return found


def references(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        for key, each in value.items():
            # JSONSchemaProps has a field of this name.
            if key == "$ref" and isinstance(each, str):
                yield each
            else:
                yield from references(each)
    elif isinstance(value, list):
        for each in value:
            yield from references(each)


def test_every_document_of_the_index_holds_all_it_refers_to(served: kinds.Kinds) -> None:
    for path, where in openapi.index(served)["paths"].items():
        group, version = ("", path.split("/")[1]) if path.startswith("api/") else tuple(path.split("/")[1:])
        found = document(served, group, version)
        known = {f"#/components/schemas/{name}" for name in found["components"]["schemas"]}

        assert set(references(found)) <= known, path
        assert where["serverRelativeURL"].startswith(f"/openapi/v3/{path}?hash=")


def test_an_object_is_found_by_its_path_as_kubectl_explain_does(served: kinds.Kinds) -> None:
    found = document(served, "apps", "v1")

    got = found["paths"]["/apis/apps/v1/namespaces/{namespace}/deployments/{name}"]["get"]
    wanted = got["x-kubernetes-group-version-kind"]
    defined = [
        name
        for name, each in found["components"]["schemas"].items()
        if wanted in each.get("x-kubernetes-group-version-kind", ())
    ]

    assert wanted == {"group": "apps", "version": "v1", "kind": "Deployment"}
    assert defined == ["io.k8s.api.apps.v1.Deployment"]


def test_a_write_takes_the_parameters_that_kubectl_looks_for(served: kinds.Kinds) -> None:
    for group, version, path in (
        ("", "v1", "/api/v1/namespaces/{namespace}/pods/{name}"),
        ("example.com", "v1", "/apis/example.com/v1/namespaces/{namespace}/things/{name}"),
    ):
        patch = document(served, group, version)["paths"][path]["patch"]
        assert {"dryRun", "fieldManager", "fieldValidation", "force"} == {each["name"] for each in patch["parameters"]}
        strategic = "application/strategic-merge-patch+json" in patch["requestBody"]["content"]
        assert strategic == (group == ""), "custom kinds know no strategic merge"


def test_fields_say_how_they_are_merged_and_what_they_hold(served: kinds.Kinds) -> None:
    schemas = document(served, "", "v1")["components"]["schemas"]

    container = schemas["io.k8s.api.core.v1.Container"]
    assert container["required"] == ["name"], "image is needed, but documents do not say so"
    assert container["properties"]["ports"]["x-kubernetes-list-map-keys"] == ["containerPort", "protocol"]
    assert container["properties"]["imagePullPolicy"]["enum"] == ["Always", "IfNotPresent", "Never"]
    assert container["properties"]["livenessProbe"]["allOf"] == [
        {"$ref": "#/components/schemas/io.k8s.api.core.v1.Probe"}
    ]
    assert not [key for each in container["properties"].values() for key in each if key.startswith("x-native")]


def test_a_custom_kind_is_described_by_its_definition(served: kinds.Kinds) -> None:
    found = document(served, "example.com", "v1")["components"]["schemas"]["com.example.v1.Thing"]

    assert found["properties"]["spec"] == SCHEMA["properties"]["spec"]  # type: ignore[index]
    assert found["properties"]["metadata"]["allOf"] == [
        {"$ref": "#/components/schemas/io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"}
    ]
    assert found["x-kubernetes-group-version-kind"] == [{"group": "example.com", "kind": "Thing", "version": "v1"}]


def test_the_hash_changes_with_the_document(served: kinds.Kinds) -> None:
    before = openapi.index(served)["paths"]
    served.add(kinds.Kind("example.com", "v1", "Thing", "things", custom=True, schema={"type": "object"}))
    after = openapi.index(served)["paths"]

    assert before["apis/example.com/v1"] != after["apis/example.com/v1"]
    assert before["apis/apps/v1"] == after["apis/apps/v1"]
    assert openapi.document(served, "example.com", "v2") is None


def test_the_older_document_says_less_where_it_has_no_words(served: kinds.Kinds) -> None:
    found = openapi_v2.swagger(served)["definitions"]

    spec = found["com.example.v1.Thing"]["properties"]["spec"]["properties"]
    assert spec["size"] == {"type": "integer", "minimum": 1}
    assert spec["maybe"] == {}
    assert spec["port"] == {"x-kubernetes-int-or-string": True}
    assert spec["either"] == {"type": "object", "properties": {"a": {"type": "string"}}}
    assert found["io.k8s.apimachinery.pkg.util.intstr.IntOrString"] == {"type": "string", "format": "int-or-string"}


def test_the_older_document_holds_all_it_refers_to(served: kinds.Kinds) -> None:
    found = json.loads(openapi_v2.document(served))

    assert set(references(found)) <= {f"#/definitions/{name}" for name in found["definitions"]}
    assert '"allOf": [' not in json.dumps(found)


Fields = dict[int, list[Any]]


def decoded(data: bytes) -> Fields:
    """The fields of a protobuf message: bytes for what has a length, numbers for the rest."""
    found: Fields = {}
    at = 0

    def varint() -> int:
        nonlocal at
        value = shift = 0
        while True:
            byte = data[at]
            at += 1
            value |= (byte & 0x7F) << shift
            if not byte & 0x80:
                return value
            shift += 7

    while at < len(data):
        tag = varint()
        value: Any
        if tag & 7 == 2:
            length = varint()
            value, at = data[at : at + length], at + length
        elif tag & 7 == 1:
            value, at = struct.unpack("<d", data[at : at + 8])[0], at + 8
        else:
            assert tag & 7 == 0
            value = varint()
        found.setdefault(tag >> 3, []).append(value)
    return found


def pairs(data: bytes, field: int = 1) -> dict[str, bytes]:
    """Repeated pairs of a name and a value."""
    found = {}
    for pair in decoded(data).get(field, []):
        fields = decoded(pair)
        found[fields[1][0].decode()] = fields[2][0]
    return found


def test_the_protobuf_form_says_what_the_json_form_says(served: kinds.Kinds) -> None:
    plain = openapi_v2.swagger(served)
    message = decoded(openapi_v2.document(served, True))

    definitions, paths = pairs(message[9][0]), pairs(message[8][0], 2)
    assert message[1] == [b"2.0"]
    assert list(definitions) == list(plain["definitions"])
    assert list(paths) == list(plain["paths"])
    for name, data in definitions.items():
        schema, expected = decoded(data), plain["definitions"][name]
        assert [each.decode() for each in schema.get(19, [])] == expected.get("required", [])
        assert list(pairs(schema[25][0]) if 25 in schema else {}) == list(expected.get("properties", {}))
        extensions = {key: decoded(value)[2][0] for key, value in pairs(data, 31).items()}
        shown = {key: json.dumps(value).encode() for key, value in expected.items() if key.startswith("x-")}
        assert extensions == shown


def test_every_part_of_a_schema_has_its_place_in_the_protobuf_form() -> None:
    schema = {
        "type": "object",
        "format": "f",
        "description": "ü",
        "minimum": 1.5,
        "exclusiveMaximum": True,
        "uniqueItems": False,
        "maxLength": 300,
        "enum": ["a", 1],
        "items": {"type": "string"},
        "additionalProperties": {"$ref": "#/definitions/x"},
    }
    message = decoded(gnostic.encoded({"definitions": {"n": schema}}))

    found = decoded(pairs(message[9][0])["n"])

    assert decoded(found[22][0]) == {1: [b"object"]}
    assert (found[2], found[4]) == ([b"f"], ["ü".encode()])
    assert (found[9], found[8], found[11]) == ([1.5], [1], [300])
    assert 16 not in found, "what is false is not written"
    assert [decoded(each)[2] for each in found[20]] == [[b'"a"'], [b"1"]]
    assert decoded(decoded(decoded(found[23][0])[1][0])[22][0]) == {1: [b"string"]}
    assert decoded(decoded(found[21][0])[1][0]) == {1: [b"#/definitions/x"]}


def test_a_patch_of_the_protobuf_form_says_that_it_can_be_tried(served: kinds.Kinds) -> None:
    """Where kubectl of old looks before it sends a dry run."""
    message = decoded(openapi_v2.document(served, True))
    item = decoded(pairs(message[8][0], 2)["/apis/example.com/v1/namespaces/{namespace}/things/{name}"])
    patch = decoded(item[8][0])

    extensions = {name: json.loads(decoded(value)[2][0]) for name, value in pairs(item[8][0], 13).items()}
    names = set()
    for each in patch[8]:
        parameter = decoded(decoded(each)[1][0])
        if 2 in parameter:
            names.add(decoded(decoded(parameter[2][0])[3][0])[4][0])

    assert extensions["x-kubernetes-group-version-kind"] == {"group": "example.com", "kind": "Thing", "version": "v1"}
    assert b"dryRun" in names
