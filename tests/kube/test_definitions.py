"""Kinds defined at run time: validated, defaulted and pruned by their schema, and gone with their definition."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.kube import calls, objects

Define = Callable[..., objects.Custom]


def conditions(content: calls.Object) -> dict[str, str]:
    return {each["type"]: each["status"] for each in content["status"]["conditions"]}


def test_a_definition_is_established(admin: calls.Caller, harbours: objects.Custom) -> None:
    found = admin.get(harbours.path).got()

    assert conditions(found) == {"NamesAccepted": "True", "Established": "True"}
    assert found["status"]["acceptedNames"]["plural"] == "harbours"
    assert found["status"]["storedVersions"] == ["v1"]
    assert found["spec"]["names"]["listKind"] == "HarbourList"
    assert found["spec"]["conversion"] == {"strategy": "None"}


def test_defaults_are_filled_in(admin: calls.Caller, namespace: str, harbours: objects.Custom) -> None:
    made = admin.post(harbours.at(namespace), harbours.object("north")).got(201)

    assert made["spec"] == {"berths": 1}
    assert made["metadata"]["generation"] == 1


@pytest.mark.parametrize(
    ("spec", "reason", "field", "words"),
    [
        (
            {"cranes": "3"},
            "FieldValueTypeInvalid",
            "spec.cranes",
            'spec.cranes in body must be of type integer: "string"',
        ),
        ({"cranes": -1}, "FieldValueInvalid", "spec.cranes", "should be greater than or equal to 0"),
        ({"cranes": 101}, "FieldValueInvalid", "spec.cranes", "should be less than or equal to 100"),
        ({"depth": "deep"}, "FieldValueInvalid", "spec.depth", "should match '^[0-9]+m$'"),
        (
            {"size": "huge"},
            "FieldValueNotSupported",
            "spec.size",
            'Unsupported value: "huge": supported values: "small", "large"',
        ),
        ({"lights": "red"}, "FieldValueTypeInvalid", "spec.lights", 'must be of type array: "string"'),
        ({"lights": [1]}, "FieldValueTypeInvalid", "spec.lights[0]", 'must be of type string: "integer"'),
        ({"options": {"a": 1}}, "FieldValueTypeInvalid", "spec.options.a", 'must be of type string: "integer"'),
    ],
)
def test_a_schema_refuses(
    admin: calls.Caller,
    namespace: str,
    kept_harbours: objects.Custom,
    spec: calls.Object,
    reason: str,
    field: str,
    words: str,
) -> None:
    refused = admin.post(kept_harbours.at(namespace), kept_harbours.object("north", spec))

    refused.refused(422, "Invalid", words)
    assert refused.causes == [(reason, field)]
    assert refused.message.startswith(f'Harbour.{kept_harbours.group} "north" is invalid: {field}: ')


def test_all_that_is_wrong_is_told_at_once(admin: calls.Caller, namespace: str, harbours: objects.Custom) -> None:
    refused = admin.post(harbours.at(namespace), harbours.object("north", {"cranes": -1, "depth": "deep"}))

    assert refused.code == 422
    assert [field for _, field in refused.causes] == ["spec.cranes", "spec.depth"]


def test_unknown_fields_are_pruned_and_told(admin: calls.Caller, namespace: str, harbours: objects.Custom) -> None:
    """By default, with a warning; strictly, refused; or without a word."""
    spec = {"berths": 2, "flag": "blue", "anything": {"goes": True}}
    path = harbours.at(namespace)

    warned = admin.post(path, harbours.object("north", spec))
    assert warned.got(201)["spec"] == {"berths": 2, "anything": {"goes": True}}
    assert warned.warnings == ['unknown field "spec.flag"']

    strict = admin.post(path, harbours.object("south", spec), fieldValidation="Strict")
    strict.refused(400, "BadRequest", 'strict decoding error: unknown field "spec.flag"')
    silent = admin.post(path, harbours.object("south", spec), fieldValidation="Ignore")
    assert silent.got(201)["spec"] == {"berths": 2, "anything": {"goes": True}}
    assert silent.warnings == []
    patched = admin.patch(f"{path}/south", {"spec": {"mast": 1}}, fieldValidation="Strict")
    patched.refused(422, "Invalid", 'strict decoding error: unknown field "spec.mast"')
    assert patched.causes == [("FieldValueInvalid", "patch")]


def test_built_in_kinds_are_as_strict(admin: calls.Caller, namespace: str) -> None:
    path = f"/api/v1/namespaces/{namespace}/pods"
    body = objects.pod("ship")
    body["spec"]["sails"] = 3

    warned = admin.post(path, body)
    assert warned.got(201)["spec"].get("sails") is None
    assert warned.warnings == ['unknown field "spec.sails"']
    body["metadata"]["name"] = "other"
    strict = admin.post(path, body, fieldValidation="Strict")
    strict.refused(400, "BadRequest", 'strict decoding error: unknown field "spec.sails"')
    twice = '{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"x"},"data":{"a":"1","a":"2"}}'
    strict = admin.post(f"/api/v1/namespaces/{namespace}/configmaps", twice, fieldValidation="Strict")
    strict.refused(400, "BadRequest", 'duplicate field "data.a"')


def test_richer_schemas(admin: calls.Caller, namespace: str, definition: Define) -> None:
    """Nullable, int-or-string, required, formats, lists that are maps, and choices."""
    custom = definition(
        {
            "type": "object",
            "required": ["port"],
            "properties": {
                "port": {"x-kubernetes-int-or-string": True},
                "note": {"type": "string", "nullable": True},
                "since": {"type": "string", "format": "date-time"},
                "berths": {
                    "type": "array",
                    "maxItems": 3,
                    "x-kubernetes-list-type": "map",
                    "x-kubernetes-list-map-keys": ["name"],
                    "items": {
                        "type": "object",
                        "required": ["name"],
                        "properties": {"name": {"type": "string"}, "length": {"type": "integer", "default": 10}},
                    },
                },
                "a": {"type": "string"},
                "b": {"type": "string"},
            },
            "oneOf": [{"required": ["a"]}, {"required": ["b"]}],
        },
        subresources={"status": {}},
    )
    path = custom.at(namespace)
    good = {"port": "http", "a": "x", "note": None, "berths": [{"name": "one"}], "since": "2024-05-01T10:00:00Z"}

    made = admin.post(path, custom.object("good", good)).got(201)
    assert made["spec"]["berths"] == [{"name": "one", "length": 10}]
    assert made["spec"]["note"] is None

    def refused(change: calls.Object) -> list[tuple[str, str]]:
        spec = {key: value for key, value in {**good, **change}.items() if value != "-"}
        answer = admin.post(path, custom.object("bad", spec))
        assert answer.code == 422, answer.data
        return answer.causes

    assert refused({"port": "-"}) == [("FieldValueRequired", "spec.port")]
    assert refused({"since": "yesterday"}) == [("FieldValueTypeInvalid", "spec.since")]
    assert ("FieldValueDuplicate", "spec.berths[1]") in refused({"berths": [{"name": "one"}, {"name": "one"}]})
    assert refused({"berths": [{"name": str(n)} for n in range(4)]}) == [("FieldValueTooMany", "spec.berths")]
    assert refused({"berths": [{}]}) == [("FieldValueRequired", "spec.berths[0].name")]
    assert refused({"b": "y"}) == [("FieldValueInvalid", "<nil>")]
    assert refused({"port": 1.5}) == [("FieldValueTypeInvalid", "spec.port")]


def test_a_definition_must_be_right(admin: calls.Caller, unique: Callable[[str], str]) -> None:
    custom = objects.Custom(unique("sea") + ".example.com")
    wrong_name = custom.definition()
    wrong_name["metadata"]["name"] = "ships.example.com"
    refused = admin.post(objects.DEFINITIONS, wrong_name)
    refused.refused(422, "Invalid", 'must be spec.names.plural+"."+spec.group')

    no_schema = custom.definition()
    del no_schema["spec"]["versions"][0]["schema"]
    refused = admin.post(objects.DEFINITIONS, no_schema)
    refused.refused(422, "Invalid", "schemas are required")

    unstructured = custom.definition()
    unstructured["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"] = {"properties": {"a": {}}}
    refused = admin.post(objects.DEFINITIONS, unstructured)
    refused.refused(422, "Invalid", "Required value: must not be empty for specified object fields")

    twice_stored = custom.definition()
    twice_stored["spec"]["versions"].append({**twice_stored["spec"]["versions"][0], "name": "v2"})
    refused = admin.post(objects.DEFINITIONS, twice_stored)
    refused.refused(422, "Invalid", "must have exactly one version marked as storage version")


def test_versions_show_the_same_object(admin: calls.Caller, namespace: str, unique: Callable[[str], str]) -> None:
    custom = objects.Custom(unique("sea") + ".example.com")
    body = custom.definition()
    body["spec"]["versions"].append({**body["spec"]["versions"][0], "name": "v1beta1", "storage": False})
    admin.post(objects.DEFINITIONS, body).got(201)
    calls.eventually(lambda: custom._served(admin), "the kind served")
    admin.post(custom.at(namespace), custom.object("north", {"berths": 2})).got(201)

    old = calls.eventually(
        lambda: (
            (answer := admin.get(custom.at(namespace, "north").replace("/v1/", "/v1beta1/"))).code == 200 and answer
        ),
        "the other version served",
    ).got()

    assert (old["apiVersion"], old["spec"]) == (f"{custom.group}/v1beta1", {"berths": 2})
    custom.delete(admin)


def test_a_schema_can_change(admin: calls.Caller, namespace: str, harbours: objects.Custom) -> None:
    at = "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/flag"
    operation = {"op": "add", "path": at, "value": {"type": "string", "default": "blue"}}

    admin.patch(harbours.path, [operation], calls.JSON_PATCH).got()

    def flag() -> object:
        answer = admin.post(harbours.at(namespace), harbours.object("north"), dryRun="All")
        # A real server puts the old schema out of service first; who comes in between is told to come again.
        return None if answer.code == 503 else answer.got(201)["spec"].get("flag")

    calls.eventually(lambda: flag() == "blue", "the new schema in force")


def test_instances_go_with_their_definition(admin: calls.Caller, namespace: str, definition: Define) -> None:
    custom = definition(objects.SPEC)
    admin.post(custom.at(namespace), custom.object("north", finalizers=["example.com/hold"])).got(201)

    going = admin.delete(custom.path).got()
    assert going["metadata"]["finalizers"] == ["customresourcecleanup.apiextensions.k8s.io"]
    calls.eventually(
        lambda: admin.get(custom.at(namespace, "north")).got()["metadata"].get("deletionTimestamp"),
        "the instance being deleted",
    )
    admin.patch(custom.at(namespace, "north"), {"metadata": {"finalizers": None}}).got()

    calls.eventually(lambda: admin.get(custom.path).code == 404, "the definition gone")
    calls.eventually(lambda: admin.get(custom.at(namespace)).code == 404, "the kind served no more")
