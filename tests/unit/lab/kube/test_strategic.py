"""Strategic merge patches, as recorded from a real server."""

from __future__ import annotations

import copy

import pytest

from moorage.lab.kube import problem, strategic
from tests.unit.lab.kube import patch_cases, replay

# Refused by what comes after the patch: the reading of the object that came of it.
_BY_READING = {"strategic-type-change-1"}
# What no kind knows is dropped when the object is read.
_DROPPED = {"strategic-unknown-field-1"}


def _moments(accepted: bool) -> list[replay.Moment]:
    ours = [m for m in replay.moments() if m.step.type == patch_cases.STRATEGIC and not isinstance(m.step.body, str)]
    return [m for m in ours if (m.after is not None) == accepted]


def _patched(moment: replay.Moment):
    strategic.check_type(moment.kind, moment.step.type)
    return strategic.merge(moment.kind.schema, moment.before, moment.step.body)


@pytest.mark.parametrize("moment", _moments(accepted=True), ids=str)
def test_a_patch_makes_of_an_object_what_a_real_server_makes_of_it(moment):
    before, sent = copy.deepcopy(moment.before), copy.deepcopy(moment.step.body)

    found = _patched(moment)

    if str(moment) in _DROPPED:
        found["spec"].pop("frob")
    assert replay.covers(replay.plain(moment.after), replay.plain(found))
    assert replay.covers(_bare(found), _bare(moment.after))
    assert (moment.before, moment.step.body) == (before, sent)


def _bare(content):
    """Without what a server fills into new containers and changed strategies, so that both sides can be compared."""
    filled = (
        "imagePullPolicy",
        "resources",
        "terminationMessagePath",
        "terminationMessagePolicy",
        "protocol",
        "podCIDRs",
    )
    if isinstance(content, dict):
        inner = {key: _bare(value) for key, value in content.items() if key not in (*filled, "managedFields")}
        return {key: value for key, value in inner.items() if value is not None}
    return [_bare(each) for each in content] if isinstance(content, list) else content


@pytest.mark.parametrize("moment", _moments(accepted=False), ids=str)
def test_a_patch_is_refused_in_the_words_of_a_real_server(moment):
    if str(moment) in _BY_READING:
        assert strategic.merge(moment.kind.schema, moment.before, moment.step.body)["data"] == "x"
        return

    with pytest.raises(problem.Problem) as refused:
        _patched(moment)

    told, real = refused.value, moment.status
    assert (told.code, told.reason, told.message) == (moment.code, real.get("reason", ""), real["message"])


def test_a_list_of_lists_cannot_be_merged():
    with pytest.raises(problem.Problem) as refused:
        strategic.merge(_SCHEMA, {"merged": [["a"]]}, {"merged": [["b"]]})

    assert refused.value.code == 422


_SCHEMA = {
    "type": "object",
    "properties": {
        "merged": {"type": "array", "x-kubernetes-patch-strategy": "merge"},
        "keyed": {"type": "array", "x-kubernetes-patch-strategy": "merge", "x-kubernetes-patch-merge-key": "k"},
        "replaced": {"type": "object", "x-kubernetes-patch-strategy": "replace"},
    },
}


@pytest.mark.parametrize(
    ("before", "patch", "after"),
    [
        ({"merged": ["a", "b"]}, {"merged": ["b", "c"]}, {"merged": ["a", "b", "c"]}),
        ({"merged": ["a", "b"]}, {"$deleteFromPrimitiveList/merged": ["a", "z"]}, {"merged": ["b"]}),
        ({}, {"$deleteFromPrimitiveList/merged": ["a"]}, {}),
        ({"replaced": {"a": 1}}, {"replaced": {"b": 2}}, {"replaced": {"b": 2}}),
        ({"other": [1, 2]}, {"other": [3]}, {"other": [3]}),
        ({"keyed": [{"k": 1, "a": 1}]}, {"keyed": [{"k": 1, "b": 2}]}, {"keyed": [{"k": 1, "a": 1, "b": 2}]}),
        ({"keyed": [{"k": 1, "a": 1}]}, {"keyed": [{"k": 1, "a": None}]}, {"keyed": [{"k": 1}]}),
        ({"keyed": [{"k": 1}]}, {"keyed": [{"k": 1, "$patch": "delete"}]}, {"keyed": []}),
        ({"a": {"b": 1}}, {"a": {"$patch": "delete"}}, {"a": {}}),
        ({}, {"a": {"$patch": "delete"}}, {}),
        ({}, {"a": {"b": None, "c": {"d": None}}}, {"a": {"c": {}}}),
        ({"a": {"b": 1, "c": 2}}, {"a": {"$retainKeys": ["c", "d"], "d": 3}}, {"a": {"c": 2, "d": 3}}),
        (
            {"keyed": [{"k": 1}, {"k": 2}, {"k": 3}]},
            {"$setElementOrder/keyed": [{"k": 3}, {"k": 1}], "keyed": [{"k": 1, "x": 0}]},
            {"keyed": [{"k": 2}, {"k": 3}, {"k": 1, "x": 0}]},
        ),
    ],
)
def test_directives_say_how_a_patch_is_meant(before, patch, after):
    assert strategic.merge(_SCHEMA, before, patch) == after


def test_custom_kinds_take_every_other_patch():
    for patch_type in (patch_cases.JSON, patch_cases.MERGE, patch_cases.APPLY):
        strategic.check_type(replay.kind("Widget"), patch_type)

    with pytest.raises(problem.Problem) as refused:
        strategic.check_type(replay.kind("Node"), "application/json")

    assert refused.value.code == 415
    assert patch_cases.STRATEGIC in refused.value.message
