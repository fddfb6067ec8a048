"""Patches of all types, and whose the fields are that they write."""

from __future__ import annotations

from typing import Any

import pytest

from moorage.lab.kube import options, users
from tests.unit.lab.kube.api_world import WIDGETS, Refused, World, asked, meta


@pytest.fixture
def world() -> World:
    return World()


def test_patches_of_all_types_change_what_they_say(world: World) -> None:
    world.map("a", k="1", gone="x")
    patch = lambda type_, body: world.api.patch(world.maps, "default", "a", type_, body, asked()).object["data"]  # noqa: E731

    assert patch(options.MERGE_PATCH, b'{"data":{"k":"2","gone":null}}') == {"k": "2"}
    assert patch(options.STRATEGIC_PATCH, {"data": {"s": "3"}}) == {"k": "2", "s": "3"}
    assert patch(options.JSON_PATCH, [{"op": "replace", "path": "/data/k", "value": "4"}]) == {"k": "4", "s": "3"}
    applied = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"own": "5"}}
    assert patch(options.APPLY_PATCH, applied) == {"k": "4", "s": "3", "own": "5"}


@pytest.mark.parametrize(
    ("body", "code", "reason", "words"),
    [
        ({"metadata": {"name": "b"}}, 400, "BadRequest", "does not match the name on the URL"),
        ({"metadata": {"namespace": "b"}}, 400, "BadRequest", "does not match the namespace"),
        ({"metadata": {"uid": "b"}}, 422, "Invalid", 'metadata.uid: Invalid value: "b": field is immutable'),
        ({"metadata": {"resourceVersion": "1"}}, 409, "Conflict", "the object has been modified"),
        ({"kind": "Secret"}, 422, "Invalid", "patch: Invalid value"),
        (b"{x", 400, "BadRequest", "error decoding patch"),
    ],
)
def test_patches_that_may_not_be_are_refused(world: World, body: Any, code: int, reason: str, words: str) -> None:
    world.map("a")
    with Refused(code, reason, words):
        world.api.patch(world.maps, "default", "a", options.MERGE_PATCH, body, asked())


def test_custom_kinds_take_no_strategic_patches(world: World) -> None:
    world.widget("w")
    with Refused(415, "UnsupportedMediaType", "accepted media types include: application/json-patch+json"):
        world.api.patch(WIDGETS, "default", "w", options.STRATEGIC_PATCH, {}, asked())


def test_what_is_applied_and_not_there_is_created(world: World) -> None:
    applied = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "n"}, "data": {"own": "5"}}

    made = meta(world.api.patch(world.maps, "default", "n", options.APPLY_PATCH, applied, asked()))

    assert [(entry["manager"], entry["operation"]) for entry in made["managedFields"]] == [("test", "Apply")]
    with Refused(404, "NotFound"):
        world.api.patch(
            WIDGETS,
            "default",
            "n",
            options.APPLY_PATCH,
            {**applied, "apiVersion": "example.com/v1", "kind": "Widget"},
            asked(),
            "status",
        )


def test_who_writes_is_noted_once_per_manager(world: World) -> None:
    world.api.create(world.maps, "default", {"metadata": {"name": "a"}, "data": {"k": "1"}}, asked())
    other = options.Options(user=users.authenticated("bob"), manager="other")
    world.api.patch(world.maps, "default", "a", options.MERGE_PATCH, {"data": {"o": "1"}}, other)

    managers = meta(world.api.get(world.maps, "default", "a"))["managedFields"]

    assert {each["manager"]: each["fieldsV1"]["f:data"].keys() - {"."} for each in managers} == {
        "test": {"f:k"},
        "other": {"f:o"},
    }


@pytest.mark.parametrize(
    ("patch", "told", "why"),
    [
        ({"data": "x"}, "map[data:x]", "cannot restore map from string"),
        ({"data": [1]}, "map[data:[1]]", "cannot restore map from slice"),
        ({"data": {"a": 1}}, "map[data:map[a:1]]", "cannot convert int64 to string"),
        ({"data": {"a": {}}}, "map[data:map[a:map[]]]", "unrecognized type: string"),
        ({"immutable": "x"}, "map[immutable:x]", "unrecognized type: bool"),
        (
            {"binaryData": {"a": "!!"}},
            "map[binaryData:map[a:!!]]",
            "error decoding from json: illegal base64 data at input byte 0",
        ),
        ({"metadata": "x"}, "map[metadata:x]", "cannot restore struct from: string"),
        ({"metadata": {"labels": {"a": True}}}, "map[metadata:map[labels:map[a:true]]]", "unrecognized type: string"),
        (
            {"metadata": {"creationTimestamp": "x"}},
            "map[metadata:map[creationTimestamp:x]]",
            'parsing time "x" as "2006-01-02T15:04:05Z07:00": cannot parse "x" as "2006"',
        ),
    ],
)
def test_a_strategic_patch_that_fits_no_type_is_invalid(world: World, patch: Any, told: str, why: str) -> None:
    world.map("a", labels={"a": "b"}, k="1")
    with Refused(422, "Invalid") as refused:
        world.api.patch(world.maps, "default", "a", options.STRATEGIC_PATCH, patch, asked())

    assert refused.problem.message == f' "" is invalid: patch: Invalid value: "{told}": {why}'


@pytest.mark.parametrize(
    ("patch", "shown", "why"),
    [
        (
            {"data": {"k": 5}},
            r'"data\":{\"k\":5}',
            "json: cannot unmarshal number into Go struct field ConfigMap.data of type string",
        ),
        (
            {"metadata": {"labels": {"a": 1}}},
            r'"labels\":{\"a\":1}',
            "json: cannot unmarshal number into Go struct field ObjectMeta.metadata.labels of type string",
        ),
        ({"frob": 1}, r'"frob\":1', 'strict decoding error: unknown field "frob"'),
    ],
)
def test_a_merge_patch_that_makes_what_cannot_be_read_is_invalid(
    world: World, patch: Any, shown: str, why: str
) -> None:
    world.map("a", k="1")
    with Refused(422, "Invalid") as refused:
        how = asked(field_validation=options.STRICT)
        world.api.patch(world.maps, "default", "a", options.MERGE_PATCH, patch, how)

    begin, message = ' "" is invalid: patch: Invalid value: "{', refused.problem.message
    assert message.startswith(begin)
    assert message.endswith(f'}}": {why}')
    assert shown in message
    assert [cause["field"] for cause in refused.problem.details["causes"]] == ["patch"]


@pytest.mark.parametrize("there", [True, False])
def test_values_that_are_applied_and_cannot_be_read_are_refused(world: World, there: bool) -> None:
    if there:
        world.map("a", k="1")
    applied = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "binaryData": {"k": "!!"}}
    with Refused(500, "") as refused:
        world.api.patch(world.maps, "default", "a", options.APPLY_PATCH, applied, asked())

    assert refused.problem.message == (
        "failed to convert new object (/a; /v1, Kind=ConfigMap) to proper version: unable to convert unstructured"
        " object to /v1, Kind=ConfigMap: error decoding from json: illegal base64 data at input byte 0"
    )
