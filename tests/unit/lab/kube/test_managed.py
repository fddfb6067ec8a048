"""Who manages which fields after plain writes: as recorded from a real server, and what always holds."""

from __future__ import annotations

import copy

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from moorage.lab.kube import comparing, fieldsets, managed, typed
from tests.unit.lab.kube import patch_cases, replay

NOW = "2024-05-01T00:00:00Z"
LATER = "2024-05-01T00:00:10Z"

# What admission and allocation set after the books were written: it is nobody's.
_GIVEN_LATER = {
    "update-create-service-0": ("clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy"),
    "strategic-unschedulable-0": ("taints",),
}


def _written(moment: replay.Moment) -> dict:
    """The object as it was written, with the managed fields that the writer sent."""
    after = copy.deepcopy(replay.plain(moment.after))
    for name in _GIVEN_LATER.get(str(moment), ()):
        del after["spec"][name]
    source = moment.before if moment.step.verb == "patch" else moment.sent
    sent = (source or {}).get("metadata", {}).get("managedFields")
    if sent is not None:
        after["metadata"]["managedFields"] = sent
    return after


@pytest.mark.parametrize(
    "moment",
    [m for m in replay.moments() if m.step.type != patch_cases.APPLY and m.after is not None],
    ids=str,
)
def test_a_write_leaves_the_managers_that_a_real_server_has_after_it(moment):
    before = copy.deepcopy(moment.before)
    after = _written(moment)

    managed.updated(
        moment.kind.schema,
        moment.before,
        after,
        moment.step.manager or "recorder",
        moment.step.subresource,
        moment.time,
        moment.kind.api_version,
        reset=moment.reset,
    )

    assert replay.books(after) == replay.books(moment.after)
    assert moment.before == before


def _lease(**spec) -> dict:
    return {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": "n", "namespace": "d", "uid": "1"},
        "spec": spec,
    }


def _write(before, after, manager="kubelet", time=NOW, subresource="", kind="Lease", **more):
    found = replay.kind(kind)
    managed.updated(found.schema, before, after, manager, subresource, time, found.api_version, **more)
    return after


def test_a_renewal_by_the_holder_moves_the_time_and_shares_the_fields():
    first = _write(None, _lease(holderIdentity="n", renewTime="a"))

    second = _write(first, _lease(holderIdentity="n", renewTime="b"), time=LATER)

    (was,), (now,) = replay.books(first), replay.books(second)
    assert (was["time"], now["time"]) == (NOW, LATER)
    assert now["fieldsV1"] is was["fieldsV1"]


def test_a_write_of_what_is_there_already_keeps_the_times():
    first = _write(None, _lease(holderIdentity="n"))

    second = _write(first, _lease(holderIdentity="n"), "other", LATER)

    assert replay.books(second) == replay.books(first)


def test_what_somebody_takes_away_is_nobodys():
    first = _write(None, _lease(holderIdentity="n", renewTime="a"))

    second = _write(first, _lease(renewTime="a"), "other", LATER)

    assert replay.books(second) == [{**replay.books(first)[0], "fieldsV1": {"f:spec": {"f:renewTime": {}}}}]


def test_without_a_name_a_manager_is_unknown():
    assert replay.books(_write(None, _lease(renewTime="a"), ""))[0]["manager"] == "unknown"


@pytest.mark.parametrize(
    "sent",
    [
        [{"manager": "m", "operation": "Update", "apiVersion": "v1"}],
        [{"manager": "m", "operation": "Update", "apiVersion": "", "fieldsType": "FieldsV1"}],
        [{"manager": "m", "operation": "Update", "apiVersion": "v1", "fieldsType": "FieldsV1", "fieldsV1": {"x": {}}}],
        [
            {
                "manager": "m",
                "operation": "Update",
                "apiVersion": "v1",
                "fieldsType": "FieldsV1",
                "fieldsV1": {"k:1": {}},
            }
        ],
        [{"manager": "m", "operation": "Update", "apiVersion": "v1", "fieldsType": "FieldsV1", "fieldsV1": []}],
        "text",
        ["text"],
    ],
)
def test_managers_that_make_no_sense_are_not_taken_over(sent):
    first = _write(None, _lease(renewTime="a"))
    after = _lease(renewTime="a")
    after["metadata"]["managedFields"] = sent

    assert replay.books(_write(first, after, time=LATER)) == replay.books(first)


def test_sent_fields_are_kept_in_one_spelling():
    fields = {"f:spec": {'k:{"protocol":"TCP", "port": 1}': {".": {}}, 'v: "a"': {}, "i:01": {}, "z:new": {}}}

    assert fieldsets.parsed(fields) == {"f:spec": {'k:{"port":1,"protocol":"TCP"}': {}, 'v:"a"': {}, "i:1": {}}}


def test_fields_below_what_became_atomic_become_one():
    loose = {"type": "object", "properties": {"spec": {"type": "object", "properties": {"a": {"type": "object"}}}}}
    whole = {"type": "object", "x-kubernetes-map-type": "atomic", "properties": {"x": {"type": "integer"}}}
    tight = {"type": "object", "properties": {"spec": {"type": "object", "properties": {"a": whole}}}}
    content = {"apiVersion": "e/v1", "kind": "E", "metadata": {"name": "e", "uid": "1"}}
    first = {**content, "metadata": dict(content["metadata"]), "spec": {"a": {"x": 1}}}
    managed.updated(loose, None, first, "one", "", NOW, "e/v1")
    second = {**content, "metadata": dict(content["metadata"]), "spec": {"a": {"x": 2}}}

    managed.updated(tight, first, second, "two", "", LATER, "e/v1")

    assert [(each["manager"], each["fieldsV1"]) for each in replay.books(second)] == [
        ("one", {"f:spec": {}}),
        ("two", {"f:spec": {"f:a": {}}}),
    ]


# Sets of fields against what they mean: sets of paths.
_elements = st.sampled_from(["f:a", "f:b", 'k:{"n":1}', 'v:"x"'])
_paths = st.sets(st.lists(_elements, min_size=1, max_size=3).map(tuple), max_size=8)


def _set(paths) -> fieldsets.Set:
    found: fieldsets.Set = {}
    for path in sorted(paths):
        fieldsets.put(found, path, {})
    return found


@settings(deadline=None)
@given(_paths, _paths)
def test_sets_of_fields_are_sets_of_paths(one, other):
    a, b = _set(one), _set(other)

    assert set(fieldsets.members(a)) == one
    assert set(fieldsets.members(fieldsets.union(a, b))) == one | other
    assert set(fieldsets.members(fieldsets.difference(a, b))) == one - other
    assert set(fieldsets.members(fieldsets.intersection(a, b))) == one & other
    assert (a, b) == (_set(one), _set(other))


@settings(deadline=None)
@given(_paths, _paths)
def test_an_operation_that_changes_nothing_gives_the_very_set_back(one, other):
    a = _set(one | other)

    assert fieldsets.union(a, _set(other)) is a
    assert fieldsets.difference(_set(one), _set(other - one)) == _set(one)
    untouched = _set(one)
    assert fieldsets.difference(untouched, _set(other - one)) is untouched


@settings(deadline=None)
@given(_paths)
def test_a_set_survives_being_sent(paths):
    assert fieldsets.parsed(fieldsets.ordered(_set(paths))) == _set(paths)


_specs = st.fixed_dictionaries(
    {},
    optional={
        "replicas": st.integers(0, 2),
        "tags": st.lists(st.sampled_from("abc"), unique=True),
        "args": st.lists(st.sampled_from("xy"), max_size=2),
        "ports": st.lists(
            st.fixed_dictionaries(
                {"port": st.integers(1, 2), "protocol": st.sampled_from(["TCP", "UDP"])},
                optional={"note": st.sampled_from("nm")},
            ),
            unique_by=lambda port: (port["port"], port["protocol"]),
        ),
        "place": st.fixed_dictionaries({}, optional={"rack": st.sampled_from("12")}),
        "limits": st.dictionaries(st.sampled_from("ab"), st.sampled_from("12")),
        "free": st.dictionaries(
            st.sampled_from("ab"),
            st.recursive(
                st.integers(0, 1),
                lambda i: st.lists(i, max_size=2) | st.dictionaries(st.sampled_from("ab"), i, max_size=2),
                max_leaves=3,
            ),
            max_size=2,
        ),
    },
)


def widget(spec) -> dict:
    meta = {"name": "w", "namespace": "d", "uid": "1"}
    return {"apiVersion": "lab.example.com/v1", "kind": "Widget", "metadata": meta, "spec": copy.deepcopy(spec)}


@settings(deadline=None)
@given(st.lists(st.tuples(st.sampled_from(["one", "two", "three"]), _specs), min_size=1, max_size=5))
def test_whoever_writes_has_what_was_changed_and_nobody_else(writes):
    type_ = typed.of(replay.kind("Widget").schema)
    before = None
    for manager, spec in writes:
        changes = comparing.compare(type_, before or {}, widget(spec))
        before = _write(before, widget(spec), manager, kind="Widget")
        changed = set(fieldsets.members(changes.added)) | set(fieldsets.members(changes.modified))
        gone = set(fieldsets.members(changes.removed))
        for entry in managed.read(replay.books(before)).values():
            fields = set(fieldsets.members(entry.fields))
            assert not fields & gone
            assert changed <= fields if entry.who[0] == manager else not changed & fields


@settings(deadline=None)
@given(st.lists(st.tuples(st.sampled_from(["one", "two"]), _specs), min_size=1, max_size=5))
def test_every_field_there_is_has_one_updater(writes):
    type_ = typed.of(replay.kind("Widget").schema)
    before = None
    for manager, spec in writes:
        before = _write(before, widget(spec), manager, kind="Widget")
    there = sorted(fieldsets.members(comparing.compare(type_, {}, before).added))

    held = sorted(
        path for each in managed.read(replay.books(before)).values() for path in fieldsets.members(each.fields)
    )

    assert held == there
