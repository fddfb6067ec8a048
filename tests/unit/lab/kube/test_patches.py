"""JSON patches and merge patches: as recorded from a real server, and the laws of the two RFCs."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from moorage.lab.kube import patches, problem
from tests.unit.lab.kube import patch_cases, replay

# Refused by what comes after the patch: the validation of the object.
_BY_VALIDATION = {"json-escapes-3"}
# The patch goes through; what it says about the part it was not sent to is then undone.
_UNDONE = {"merge-status-1", "merge-status-2", "merge-status-by-main-1", "merge-status-by-main-2"}
_OURS = (patch_cases.JSON, patch_cases.MERGE)


def _patched(content: Any, step: patch_cases.Step) -> Any:
    return (patches.json_patch if step.type == patch_cases.JSON else patches.merge_patch)(content, step.body)


def _moments(accepted: bool) -> list[replay.Moment]:
    ours = [m for m in replay.moments() if m.step.type in _OURS and m.step.subresource != "scale"]
    return [m for m in ours if (m.after is not None) == accepted and not isinstance(m.step.body, str)]


@pytest.mark.parametrize("moment", _moments(accepted=True), ids=str)
def test_a_patch_makes_of_an_object_what_a_real_server_makes_of_it(moment):
    before = copy.deepcopy(moment.before)

    found = _patched(moment.before, moment.step)

    if str(moment) not in _UNDONE:
        assert replay.covers(replay.plain(moment.after), replay.plain(found))
        assert replay.covers(replay.plain(found).get("data"), moment.after.get("data"))
    assert moment.before == before


@pytest.mark.parametrize("moment", _moments(accepted=False), ids=str)
def test_a_patch_is_refused_in_the_words_of_a_real_server(moment):
    if str(moment) in _BY_VALIDATION:
        assert "a~0b" in _patched(moment.before, moment.step)["metadata"]["annotations"]
        return

    with pytest.raises(problem.Problem) as refused:
        _patched(moment.before, moment.step)

    told = refused.value
    assert (told.code, told.reason, told.message) == (moment.code, moment.status["reason"], moment.status["message"])


@pytest.mark.parametrize(
    ("document", "operation", "expected"),
    [
        ({"a~b": 1, "c/d": 2}, {"op": "remove", "path": "/a~0b"}, {"c/d": 2}),
        ({"a~b": 1, "c/d": 2}, {"op": "remove", "path": "/c~1d"}, {"a~b": 1}),
        ({"~1": 1}, {"op": "replace", "path": "/~01", "value": 2}, {"~1": 2}),
        ({"": 1}, {"op": "replace", "path": "/", "value": 2}, {"": 2}),
        ({"a": [1, 2]}, {"op": "add", "path": "/a/-", "value": 3}, {"a": [1, 2, 3]}),
        ({"a": [1, 2]}, {"op": "copy", "path": "/a/0", "from": "/a/1"}, {"a": [2, 1, 2]}),
        ({"a": [1, 2]}, {"op": "move", "path": "/a/0", "from": "/a/1"}, {"a": [2, 1]}),
        ({"a": {"b": 1}}, {"op": "move", "path": "/c", "from": "/a/b"}, {"a": {}, "c": 1}),
        ({"a": 1}, {"op": "replace", "path": "", "value": {"b": 2}}, {"b": 2}),
        ({"a": 1}, {"op": "test", "path": "", "value": {"a": 1}}, {"a": 1}),
        ({"a": 1}, {"op": "add", "path": "/b"}, {"a": 1, "b": None}),
    ],
)
def test_an_operation_reaches_what_its_pointer_means(document, operation, expected):
    assert patches.json_patch(document, [operation]) == expected


@pytest.mark.parametrize(("one", "other"), [(1, True), (0, False), (1, 1.0), ("1", 1), ([], {}), (None, False)])
def test_a_test_tells_values_apart_that_python_takes_for_equal(one, other):
    with pytest.raises(problem.Problem):
        patches.json_patch({"a": {"b": [one]}}, [{"op": "test", "path": "/a", "value": {"b": [other]}}])


def test_operations_before_a_refused_one_leave_nothing_behind():
    document = {"a": {"b": [1]}}

    with pytest.raises(problem.Problem):
        patches.json_patch(document, [{"op": "add", "path": "/a/b/-", "value": 2}, {"op": "remove", "path": "/z"}])

    assert document == {"a": {"b": [1]}}


def test_a_patch_of_too_many_operations_is_too_large():
    many = [{"op": "test", "path": "/a", "value": 1}] * (patches.MOST_OPERATIONS + 1)

    with pytest.raises(problem.Problem, match="maximum operations in a JSON patch is 10000, got 10001") as refused:
        patches.json_patch({"a": 1}, many)

    assert refused.value.code == 413


_names = st.text("ab~/-0", max_size=2)
_leaves = st.none() | st.booleans() | st.integers(-3, 3) | st.text("xy", max_size=2)
# A null within a list is taken literally or not, depending on what the list replaces: it is left out of the laws.
_lists = st.lists(_leaves.filter(lambda leaf: leaf is not None), max_size=3)
_values = st.recursive(_leaves | _lists, lambda inner: st.dictionaries(_names, inner, max_size=3), max_leaves=6)
_documents = st.dictionaries(_names, _values, max_size=4)


@settings(deadline=None)
@given(_documents, _documents)
def test_merging_a_patch_again_changes_nothing(document, patch):
    once = patches.merge_patch(document, patch)

    assert patches.merge_patch(once, patch) == once


@settings(deadline=None)
@given(_documents, _documents)
def test_nothing_that_a_merge_patch_makes_null_is_left(document, patch):
    merged = patches.merge_patch(document, patch)

    assert all(key not in merged for key, value in patch.items() if value is None)
    assert all(merged[key] == value for key, value in document.items() if key not in patch)


def _pointer(keys: list[str]) -> str:
    return "".join("/" + key.replace("~", "~0").replace("/", "~1") for key in keys)


def _places(value: Any, keys: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    """The pointers to everything in a document."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    here = [(*keys, str(key)) for key, _ in inner]
    return [*here, *(place for key, below in inner if below for place in _places(below, (*keys, str(key))))]


@settings(deadline=None)
@given(st.data(), _documents, _values)
def test_an_operation_and_its_inverse_leave_the_document_as_it_was(data, document, value):
    places = _places(document)
    if not places:
        return
    pointer = _pointer(list(data.draw(st.sampled_from(places))))
    held = patches._get(document, patches._split(pointer))

    removed = patches.json_patch(document, [{"op": "remove", "path": pointer}])
    replaced = patches.json_patch(document, [{"op": "replace", "path": pointer, "value": value}])

    assert patches.json_patch(removed, [{"op": "add", "path": pointer, "value": held}]) == document
    assert patches.json_patch(replaced, [{"op": "replace", "path": pointer, "value": held}]) == document


@settings(deadline=None)
@given(st.data(), _documents)
def test_what_is_there_passes_its_own_test(data, document):
    places = _places(document)
    if places:
        pointer = _pointer(list(data.draw(st.sampled_from(places))))
        held = patches._get(document, patches._split(pointer))
        assert patches.json_patch(document, [{"op": "test", "path": pointer, "value": held}]) == document
