"""Server-side apply: as recorded from a real server, and what always holds."""

from __future__ import annotations

import copy

import pytest
from hypothesis import assume, given, settings

from moorage.lab.kube import apply, problem
from tests.unit.lab.kube import patch_cases, replay, test_managed

NOW = "2024-05-01T00:00:00Z"
LATER = "2024-05-01T00:00:10Z"

# Refused by other parts of a server, before or after what is done here.
_BY_OTHERS = {
    "apply-no-key-1": "validation",
    "apply-container-shared-2": "validation",
    "apply-status-absent-0": "there is nothing to apply a status to",
    "apply-no-manager-1": "the options of the request",
    "apply-resource-version-1": "the version is another by now",
}
# The part of the object that the request was not sent to is put back afterwards.
_PUT_BACK = {"apply-widget-status-by-main-0": "status", "apply-status-4": "spec"}


def _moments(accepted: bool) -> list[replay.Moment]:
    ours = [m for m in replay.moments() if m.step.type == patch_cases.APPLY and not isinstance(m.step.body, str)]
    return [m for m in ours if (m.after is not None) == accepted]


def _apply(moment: replay.Moment):
    scaling = moment.step.subresource == "scale"
    sent = apply.behind_scale(moment.kind, moment.sent) if scaling else moment.sent
    apply.check_kind(moment.kind, apply.check_document(sent))
    step = moment.step
    return apply.apply(
        moment.kind.schema,
        moment.before,
        sent,
        step.manager,
        step.force,
        step.subresource,
        moment.time,
        reset=moment.reset,
    )


@pytest.mark.parametrize("moment", _moments(accepted=True), ids=str)
def test_what_is_applied_ends_as_on_a_real_server(moment):
    before = copy.deepcopy(moment.before)

    found = _apply(moment)

    assert replay.books(found) == replay.books(moment.after)
    mine = replay.plain(found)
    mine.pop(_PUT_BACK.get(str(moment), ""), None)
    assert replay.covers(replay.plain(moment.after), mine)
    assert moment.before == before


@pytest.mark.parametrize(
    "moment", [m for m in _moments(accepted=True) if m.before is not None and m.case.kind != "Deployment"], ids=str
)
def test_what_is_not_applied_any_more_goes_as_on_a_real_server(moment):
    kept = {key: value for key, value in moment.after.items() if key != _PUT_BACK.get(str(moment))}

    assert replay.covers(replay.plain(_apply(moment)), replay.plain(_undefaulted(kept)))


def _undefaulted(content):
    """Without the protocol that a server fills into ports."""
    if isinstance(content, dict):
        return {
            key: _undefaulted(value)
            for key, value in content.items()
            if (key, value) != ("protocol", "TCP") and key not in ("size", "targetPort")
        }
    return [_undefaulted(each) for each in content] if isinstance(content, list) else content


@pytest.mark.parametrize("moment", _moments(accepted=False), ids=str)
def test_a_refusal_has_the_words_of_a_real_server(moment):
    if str(moment) in _BY_OTHERS:
        assert _apply(moment)["kind"] == moment.case.kind
        return

    with pytest.raises(problem.Problem) as refused:
        _apply(moment)

    told, real = refused.value, moment.status
    assert (told.code, told.reason, told.message) == (moment.code, real.get("reason", ""), real["message"])
    # A real server has its causes in no order.
    assert _sorted(told.details.get("causes", [])) == _sorted(real.get("details", {}).get("causes", []))


def _sorted(causes):
    return sorted(causes, key=lambda cause: (cause["message"], cause["field"]))


def test_a_body_that_is_no_object_is_refused():
    (moment,) = [m for m in replay.moments() if str(m) == "apply-not-an-object-1"]

    with pytest.raises(problem.Problem) as refused:
        apply.check_document([1])

    assert (refused.value.code, refused.value.message) == (moment.code, moment.status["message"])


def _widget(live, spec, manager="one", force=False, time=NOW, schema=...):
    content = {"apiVersion": "lab.example.com/v1", "kind": "Widget", "metadata": {"name": "w"}, "spec": spec}
    kind = replay.kind("Widget")
    found = apply.apply(kind.schema if schema is ... else schema, live, content, manager, force, "", time)
    return {**found, "metadata": {**found["metadata"], "uid": "1"}}


def test_without_a_schema_objects_merge_by_field_and_lists_are_wholes():
    live = _widget(None, {"list": [{"name": "a"}], "map": {"x": {"y": 1}}}, schema=None)

    after = _widget(live, {"map": {"x": {"z": 2}}}, "two", schema=None)

    assert after["spec"] == {"list": [{"name": "a"}], "map": {"x": {"y": 1, "z": 2}}}
    with pytest.raises(problem.Problem, match=r"conflict with \"one\": \.spec\.list"):
        _widget(live, {"list": [{"name": "b"}]}, "two", schema=None)


def test_what_two_applied_goes_with_the_second_of_them():
    both = _widget(_widget(None, {"tags": ["a", "b"]}), {"tags": ["b"]}, "two")

    one_left = _widget(both, {}, "one")
    none_left = _widget(one_left, {}, "two")

    assert one_left["spec"]["tags"] == ["b"]
    assert "tags" not in none_left.get("spec", {})


def test_force_takes_the_field_and_nothing_else():
    live = _widget(None, {"replicas": 1, "size": "s"})

    after = _widget(live, {"replicas": 2}, "two", force=True, time=LATER)

    assert [(each["manager"], each["fieldsV1"]) for each in replay.books(after)] == [
        ("one", {"f:spec": {"f:size": {}}}),
        ("two", {"f:spec": {"f:replicas": {}}}),
    ]


@settings(deadline=None)
@given(test_managed._specs, test_managed._specs)
def test_applying_twice_is_applying_once(first, second):
    live = _widget(_widget(None, first), second, "two", force=True)

    again = _widget(live, second, "two", time=LATER)

    assert again == live


@settings(deadline=None)
@given(test_managed._specs, test_managed._specs)
def test_what_is_applied_is_there(first, second):
    live = _widget(_widget(None, first), second, "two", force=True)

    for name, value in second.items():
        there = live["spec"].get(name)
        if name in ("replicas", "args", "place"):
            assert there == value
        elif name == "tags":
            assert [tag for tag in there or [] if tag in value] == value
            assert set(first.get("tags", [])) <= set(there or [])


@settings(deadline=None)
@given(test_managed._specs, test_managed._specs)
def test_without_force_nobody_loses_a_value(first, second):
    live = _widget(None, first)

    try:
        after = _widget(live, second, "two")
    except problem.Problem as refused:
        after = live if refused.code == 409 else {}

    scalars = {name: value for name, value in first.items() if name in ("replicas", "args", "place", "limits")}
    assert replay.covers(after.get("spec"), scalars)
    assert set(first.get("tags", [])) <= set(after.get("spec", {}).get("tags", []))


@settings(deadline=None)
@given(test_managed._specs)
def test_applying_nothing_takes_back_all_one_applied(spec):
    live = _widget(None, spec)
    # Who applies an empty set or list map has applied nothing.
    assume(replay.books(live))

    after = _widget(live, {}, time=LATER)

    assert not any(after.get("spec", {}).values())
    assert all(each["fieldsV1"] == {"f:spec": {}} for each in replay.books(after))
