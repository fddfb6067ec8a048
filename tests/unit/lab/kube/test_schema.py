"""Structural schemas: what is refused with which words, what is completed, what is dropped.

The words in the tables were heard from a real server, version 1.33.
"""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from moorage.lab.kube import kinds, schema

SPEC: dict[str, Any] = {
    "size": {"type": "integer", "format": "int32", "minimum": 1, "maximum": 10},
    "color": {"type": "string", "enum": ["red", "green"], "default": "red"},
    "name": {"type": "string", "pattern": "^[a-z]+$", "minLength": 2, "maxLength": 5},
    "port": {"x-kubernetes-int-or-string": True},
    "when": {"type": "string", "format": "date-time"},
    "tags": {
        "type": "array",
        "items": {"type": "string"},
        "x-kubernetes-list-type": "set",
        "minItems": 1,
        "maxItems": 3,
    },
    "conditions": {
        "type": "array",
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["type", "of"],
        "items": {
            "type": "object",
            "required": ["type"],
            "properties": {"type": {"type": "string"}, "of": {"type": "integer", "default": 1}},
        },
    },
    "labels": {
        "type": "object",
        "additionalProperties": {"type": "string"},
        "maxProperties": 2,
        "minProperties": 1,
    },
    "nothing": {"type": "string", "nullable": True},
    "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
    "ratio": {"type": "number", "multipleOf": 0.5, "minimum": 0, "exclusiveMinimum": True},
    "less": {"type": "integer", "maximum": 5, "exclusiveMaximum": True},
    "flag": {"type": "boolean"},
    "pod": {
        "type": "object",
        "x-kubernetes-embedded-resource": True,
        "x-kubernetes-preserve-unknown-fields": True,
    },
    "either": {
        "type": "object",
        "properties": {"a": {"type": "string"}, "b": {"type": "string"}},
        "oneOf": [{"required": ["a"]}, {"required": ["b"]}],
    },
    "some": {
        "type": "object",
        "properties": {"a": {"type": "string"}, "b": {"type": "string"}},
        "anyOf": [{"required": ["a"]}, {"required": ["b"]}],
    },
    "never": {"type": "object", "properties": {"a": {"type": "string"}}, "not": {"required": ["a"]}},
    "both": {
        "type": "object",
        "properties": {"a": {"type": "string"}},
        "allOf": [{"properties": {"a": {"minLength": 3}}}, {"required": ["a"]}],
    },
    "deep": {"type": "array", "items": {"type": "object", "properties": {"x": {"type": "integer", "default": 5}}}},
    "made": {"type": "object", "default": {}, "properties": {"y": {"type": "string", "default": "yes"}}},
}
THING: dict[str, Any] = {
    "type": "object",
    "required": ["spec"],
    "properties": {"spec": {"type": "object", "required": ["size"], "properties": SPEC}},
}


def wrongs(**spec: Any) -> list[tuple[str, str, str]]:
    content = {"spec": {"size": 1, **spec}}
    schema.apply_defaults(THING, content)
    return [(cause.field, cause.reason, cause.message) for cause in schema.validate(THING, content)]


@pytest.mark.parametrize(
    ("spec", "field", "reason", "message"),
    [
        (
            {"size": "x"},
            "spec.size",
            "TypeInvalid",
            'Invalid value: "string": spec.size in body must be of type integer: "string"',
        ),
        (
            {"size": 1.5},
            "spec.size",
            "TypeInvalid",
            'Invalid value: "number": spec.size in body must be of type integer: "number"',
        ),
        (
            {"size": 0},
            "spec.size",
            "Invalid",
            "Invalid value: 0: spec.size in body should be greater than or equal to 1",
        ),
        (
            {"size": 11},
            "spec.size",
            "Invalid",
            "Invalid value: 11: spec.size in body should be less than or equal to 10",
        ),
        ({"less": 5}, "spec.less", "Invalid", "Invalid value: 5: spec.less in body should be less than 5"),
        ({"ratio": 0.7}, "spec.ratio", "Invalid", "Invalid value: 0.7: spec.ratio in body should be a multiple of 0.5"),
        (
            {"color": "blue"},
            "spec.color",
            "NotSupported",
            'Unsupported value: "blue": supported values: "red", "green"',
        ),
        (
            {"name": "a"},
            "spec.name",
            "Invalid",
            'Invalid value: "a": spec.name in body should be at least 2 chars long',
        ),
        ({"name": "abcdef"}, "spec.name", "TooLong", "Too long: may not be more than 5 bytes"),
        ({"name": "AB"}, "spec.name", "Invalid", "Invalid value: \"AB\": spec.name in body should match '^[a-z]+$'"),
        (
            {"name": "ab\n"},
            "spec.name",
            "Invalid",
            "Invalid value: \"ab\\n\": spec.name in body should match '^[a-z]+$'",
        ),
        (
            {"port": True},
            "spec.port",
            "TypeInvalid",
            'Invalid value: "boolean": spec.port in body must be of type integer,string: "boolean"',
        ),
        (
            {"when": "soon"},
            "spec.when",
            "TypeInvalid",
            'Invalid value: "soon": spec.when in body must be of type date-time: "soon"',
        ),
        ({"tags": []}, "spec.tags", "Invalid", "Invalid value: 0: spec.tags in body should have at least 1 items"),
        ({"tags": list("abcd")}, "spec.tags", "TooMany", "Too many: 4: must have at most 3 items"),
        ({"tags": ["a", "a"]}, "spec.tags[1]", "Duplicate", 'Duplicate value: "a"'),
        (
            {"conditions": [{"type": "a"}, {"type": "a"}]},
            "spec.conditions[1]",
            "Duplicate",
            'Duplicate value: map[string]interface {}{"of":1, "type":"a"}',
        ),
        ({"conditions": [{"of": 1}]}, "spec.conditions[0].type", "Required", "Required value"),
        (
            {"labels": {}},
            "spec.labels",
            "Invalid",
            "Invalid value: 0: spec.labels in body should have at least 1 properties",
        ),
        ({"labels": {"a": "", "b": "", "c": ""}}, "spec.labels", "TooMany", "Too many: 3: must have at most 2 items"),
        (
            {"labels": {"a": 1}},
            "spec.labels.a",
            "TypeInvalid",
            'Invalid value: "integer": spec.labels.a in body must be of type string: "integer"',
        ),
        (
            {"deep": [{}, {"x": "1"}]},
            "spec.deep[1].x",
            "TypeInvalid",
            'Invalid value: "string": spec.deep[1].x in body must be of type integer: "string"',
        ),
        (
            {"deep": [None]},
            "spec.deep[0]",
            "TypeInvalid",
            'Invalid value: "null": spec.deep[0] in body must be of type object: "null"',
        ),
        (
            {"either": {"a": "1", "b": "2"}},
            "<nil>",
            "Invalid",
            'Invalid value: "": "spec.either" must validate one and only one schema (oneOf).'
            " Found 2 valid alternatives",
        ),
        (
            {"never": {"a": "1"}},
            "<nil>",
            "Invalid",
            'Invalid value: "": "spec.never" must not validate the schema (not)',
        ),
    ],
)
def test_a_wrong_value_is_refused_in_the_words_of_a_real_server(
    spec: dict[str, Any], field: str, reason: str, message: str
) -> None:
    assert wrongs(**spec) == [(field, f"FieldValue{reason}", message)]


def test_alternatives_that_all_fail_show_what_the_first_lacks() -> None:
    none = 'Invalid value: "": "spec.either" must validate one and only one schema (oneOf). Found none valid'
    some = 'Invalid value: "": "spec.some" must validate at least one schema (anyOf)'
    both = 'Invalid value: "": "spec.both" must validate all the schemas (allOf)'
    short = 'Invalid value: "1": spec.both.a in body should be at least 3 chars long'

    assert [message for _, _, message in wrongs(either={})] == [none, "Required value"]
    assert [message for _, _, message in wrongs(some={})] == [some, "Required value"]
    assert [message for _, _, message in wrongs(both={"a": "1"})] == [short, both]


def test_an_embedded_object_says_what_it_is() -> None:
    found = wrongs(pod={})

    assert [(field, message) for field, _, message in found] == [
        ("spec.pod.apiVersion", "Required value: must not be empty"),
        ("spec.pod.kind", "Required value: must not be empty"),
    ]


def test_everything_wrong_is_told_at_once() -> None:
    assert {field for field, _, _ in wrongs(size="1", color="blue", flag=1)} == {"spec.size", "spec.color", "spec.flag"}


def test_a_required_field_may_be_null_where_null_is_a_value() -> None:
    asked = {"type": "object", "required": ["a"], "properties": {"a": {"type": "string", "nullable": True}}}

    assert schema.validate(asked, {"a": None}) == []
    assert [cause.message for cause in schema.validate(asked, {})] == ["Required value"]


def test_defaults_are_filled_in_at_every_depth_and_reach_nulls() -> None:
    content = {"spec": {"size": 1, "color": None, "name": None, "nothing": None, "deep": [{}, {"x": 7}]}}

    schema.apply_defaults(THING, content)

    assert content["spec"] == {
        "size": 1,
        "color": "red",
        "nothing": None,
        "deep": [{"x": 5}, {"x": 7}],
        "made": {"y": "yes"},
    }


def test_a_default_is_not_shared_between_objects() -> None:
    first: dict[str, Any] = {"spec": {"size": 1}}
    second: dict[str, Any] = {"spec": {"size": 1}}
    schema.apply_defaults(THING, first)
    first["spec"]["made"]["y"] = "changed"

    schema.apply_defaults(THING, second)

    assert second["spec"]["made"] == {"y": "yes"}


def test_unknown_fields_are_named_in_order_and_pruned() -> None:
    content = {
        "spec": {
            "size": 1,
            "foo": 1,
            "deep": [{"z": 1}],
            "free": {"anything": {"goes": 1}},
            "labels": {"any": "key"},
            "pod": {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a", "oops": 1}, "spec": {"x": 1}},
        }
    }

    assert schema.unknown_fields(THING, content) == [
        'unknown field "spec.deep[0].z"',
        'unknown field "spec.foo"',
        'unknown field "spec.pod.metadata.oops"',
    ]
    schema.prune(THING, content)
    assert schema.unknown_fields(THING, content) == []
    assert content["spec"]["free"] == {"anything": {"goes": 1}}
    assert content["spec"]["pod"]["spec"] == {"x": 1}


def objects() -> st.SearchStrategy[dict[str, Any]]:
    scalars = st.none() | st.booleans() | st.integers(-3, 12) | st.sampled_from(["", "a", "red", "abc"])
    values = st.recursive(
        scalars,
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from([*SPEC, "a", "x", "odd"]), inner),
        max_leaves=8,
    )
    return st.fixed_dictionaries({"spec": st.dictionaries(st.sampled_from([*SPEC, "odd"]), values)})


@settings(deadline=None)
@given(objects())
def test_pruning_leaves_nothing_unknown_and_completing_twice_changes_nothing(content: dict[str, Any]) -> None:
    schema.prune(THING, content)
    assert schema.unknown_fields(THING, content) == []

    schema.apply_defaults(THING, content)
    once = copy.deepcopy(content)
    schema.apply_defaults(THING, content)
    assert content == once
    # Whatever it is, it can be judged.
    schema.validate(THING, content)


def test_a_custom_object_is_read_by_its_metadata_alone() -> None:
    kind = kinds.Kind("example.com", "v1", "Thing", "things", schema=THING, custom=True)

    assert schema.undecodable(kind, {"spec": {"size": "not a number"}}) == ""
    assert schema.undecodable(kind, {"metadata": {"labels": {"a": 1}}}) == (
        'Thing in version "v1" cannot be handled as a Thing:'
        " json: cannot unmarshal number into Go struct field ObjectMeta.labels of type string"
    )
