"""The verbs: what happens to objects that are created and updated, whoever asks."""

from __future__ import annotations

import re
from typing import Any

import pytest

from moorage.lab.kube import options
from tests.unit.lab.kube.api_world import OLD_WIDGETS, WIDGETS, Refused, World, asked, meta

Object = dict[str, Any]


@pytest.fixture
def world() -> World:
    return World()


def test_a_new_object_gets_what_belongs_to_the_server_and_nothing_that_was_claimed(world: World) -> None:
    claimed = {
        "uid": "mine",
        "creationTimestamp": "1999-01-01T00:00:00Z",
        "deletionTimestamp": "1999-01-01T00:00:00Z",
        "generation": 9,
        "labels": {"kept": "yes"},
    }
    found = meta(world.api.create(world.maps, "default", {"metadata": {"name": "a", **claimed}}))

    assert re.fullmatch(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", found["uid"])
    assert found["creationTimestamp"] == "2026-01-01T00:00:00Z"
    assert found["namespace"] == "default"
    assert found["labels"] == {"kept": "yes"}
    assert not {"deletionTimestamp", "generation"} & found.keys()


def test_the_caller_keeps_what_it_gave(world: World) -> None:
    given: Object = {"metadata": {"name": "a"}, "data": {"k": "v"}}

    stored = world.api.create(world.maps, "default", given).object
    given["data"]["k"] = "changed"

    assert stored["data"] == {"k": "v"}
    assert given["metadata"] == {"name": "a"}


def test_a_generated_name_begins_as_asked_and_ends_in_five_safe_signs(world: World) -> None:
    for base, kept in (("job-", "job-"), ("x" * 80, "x" * 58)):
        made = world.api.create(world.maps, "default", {"metadata": {"generateName": base}})

        assert re.fullmatch(re.escape(kept) + "[bcdfghjklmnpqrstvwxz2456789]{5}", meta(made)["name"])
        assert meta(made)["generateName"] == base


@pytest.mark.parametrize(
    ("metadata", "field", "words"),
    [
        ({}, "metadata.name", "Required value: name or generateName is required"),
        ({"name": "A_b"}, "metadata.name", 'Invalid value: "A_b": a lowercase RFC 1123 subdomain must consist of'),
        ({"name": "x" * 254}, "metadata.name", "must be no more than 253 characters"),
        ({"name": "a", "labels": {"b c": ""}}, "metadata.labels", 'Invalid value: "b c": name part must consist of'),
        ({"name": "a", "labels": {"k": "d e"}}, "metadata.labels", 'Invalid value: "d e": a valid label must be'),
        ({"name": "a", "labels": {"k": "v" * 64}}, "metadata.labels", "must be no more than 63 characters"),
        ({"name": "a", "annotations": {"/x": ""}}, "metadata.annotations", "prefix part must be non-empty"),
        ({"name": "a", "annotations": {"k": "v" * 300_000}}, "metadata.annotations", "Too long"),
        ({"name": "a", "finalizers": ["short"]}, "metadata.finalizers[0]", "neither a standard finalizer name"),
        (
            {"name": "a", "ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "p"}]},
            "metadata.ownerReferences.uid",
            'Invalid value: "": uid must not be empty',
        ),
        (
            {
                "name": "a",
                "ownerReferences": [
                    {"apiVersion": "v1", "kind": "Pod", "name": name, "uid": name, "controller": True} for name in "pq"
                ],
            },
            "metadata.ownerReferences",
            'Only one reference can have Controller set to true. Found "true" in references for Pod/p and Pod/q',
        ),
    ],
)
def test_metadata_that_breaks_a_rule_is_refused(world: World, metadata: Object, field: str, words: str) -> None:
    with Refused(422, "Invalid", words) as refused:
        world.api.create(world.maps, "default", {"metadata": metadata})

    assert [cause["field"] for cause in refused.problem.details["causes"]] == [field]


@pytest.mark.parametrize(
    ("kind", "name", "fine"),
    [
        (("", "Namespace"), "a.b", False),
        (("", "Namespace"), "1a", True),
        (("", "Service"), "1a", False),
        (("rbac.authorization.k8s.io", "ClusterRole"), "system:Node", True),
        (("rbac.authorization.k8s.io", "ClusterRole"), "a/b", False),
        (("", "Node"), "a.b", True),
    ],
)
def test_names_are_held_to_the_rules_of_their_kind(world: World, kind: tuple[str, str], name: str, fine: bool) -> None:
    served = world.api.kind(*kind)
    content: Object = {"metadata": {"name": name}}
    if served.name == "Service":
        content["spec"] = {"ports": [{"port": 80}]}
    if fine:
        assert meta(world.api.create(served, "", content))["name"] == name
    else:
        with Refused(422, "Invalid", "metadata.name"):
            world.api.create(served, "default" if served.namespaced else "", content)


def test_what_cannot_be_created_is_refused_in_the_servers_words(world: World) -> None:
    world.map("a")
    with Refused(409, "AlreadyExists", 'configmaps "a" already exists'):
        world.map("a")
    with Refused(404, "NotFound", 'namespaces "nowhere" not found'):
        world.map("b", namespace="nowhere")
    with Refused(400, "BadRequest", "does not match the namespace sent on the request"):
        world.api.create(world.maps, "default", {"metadata": {"name": "b", "namespace": "other"}})
    with Refused(500, "", "resourceVersion should not be set on objects to be created"):
        world.api.create(world.maps, "default", {"metadata": {"name": "b", "resourceVersion": "5"}})
    with Refused(400, "BadRequest", "cannot unmarshal number into Go struct field ObjectMeta.metadata.labels"):
        world.api.create(world.maps, "default", {"metadata": {"name": "b", "labels": {"a": 1}}})


def test_an_update_names_what_it_replaces(world: World) -> None:
    world.map("a", k="1")
    update = lambda metadata: world.api.update(world.maps, "default", "a", {"metadata": metadata}, asked())  # noqa: E731

    with Refused(400, "BadRequest", "the name of the object (a based on URL) was undeterminable"):
        update({})
    with Refused(400, "BadRequest", "the name of the object (b) does not match the name on the URL (a)"):
        update({"name": "b"})
    with Refused(400, "BadRequest", "does not match the namespace"):
        update({"name": "a", "namespace": "other"})
    with Refused(409, "Conflict", "the object has been modified; please apply your changes to the latest version"):
        update({"name": "a", "resourceVersion": "1"})
    with Refused(500, "", 'strconv.ParseUint: parsing "x": invalid syntax'):
        update({"name": "a", "resourceVersion": "x"})
    with Refused(409, "Conflict", "Precondition failed: UID in precondition: other"):
        update({"name": "a", "uid": "other"})
    with Refused(422, "Invalid", "metadata.deletionTimestamp"):
        update({"name": "a", "deletionTimestamp": "2001-01-01T00:00:00Z"})


def test_an_update_of_nothing_creates_only_kinds_that_are_made_so(world: World) -> None:
    leases = world.api.kind("coordination.k8s.io", "Lease")
    with Refused(404, "NotFound", 'configmaps "a" not found'):
        world.api.update(world.maps, "default", "a", {"metadata": {"name": "a"}}, asked())

    made = world.api.update(leases, "default", "l", {"metadata": {"name": "l"}, "spec": {}}, asked())

    assert meta(made)["uid"]


def test_some_kinds_must_be_told_which_version_is_replaced(world: World) -> None:
    made = world.widget("w")
    content = {"metadata": {"name": "w"}, "spec": {"size": 1}}

    with Refused(422, "Invalid", "metadata.resourceVersion: Invalid value: 0x0: must be specified for an update"):
        world.api.update(WIDGETS, "default", "w", content, asked())
    versioned = {**content, "metadata": {"name": "w", "resourceVersion": str(made.revision)}}
    assert world.api.update(WIDGETS, "default", "w", versioned, asked()).object["spec"] == {"size": 1}


def test_the_server_keeps_its_own_fields_through_an_update(world: World) -> None:
    before = meta(world.map("a", k="1"))

    claimed = {"name": "a", "creationTimestamp": "1999-01-01T00:00:00Z", "generation": 4, "selfLink": "/x"}
    after = meta(world.api.update(world.maps, "default", "a", {"metadata": claimed, "data": {"k": "2"}}))

    for field in ("uid", "creationTimestamp", "generation", "selfLink", "namespace"):
        assert after.get(field) == before.get(field), field


def test_an_update_that_changes_nothing_writes_nothing(world: World) -> None:
    first = world.map("a", labels={"x": "y"}, k="1")
    watch = world.api.watch(world.maps)

    again = world.change("a", labels={"x": "y"}, k="1")
    patched = world.api.patch(world.maps, "default", "a", options.MERGE_PATCH, {"data": {"k": "1"}})

    assert (again.revision, patched.revision) == (first.revision, first.revision)
    assert watch.ready() == []


def test_generation_counts_changes_of_the_spec_alone(world: World) -> None:
    world.widget("w", {"size": 1})
    generation = lambda: meta(world.api.get(WIDGETS, "default", "w"))["generation"]  # noqa: E731
    patch = lambda body, part="": world.api.patch(WIDGETS, "default", "w", options.MERGE_PATCH, body, asked(), part)  # noqa: E731
    assert generation() == 1

    patch({"metadata": {"labels": {"a": "b"}}})
    patch({"status": {"phase": "Up"}}, "status")
    assert generation() == 1
    patch({"spec": {"size": 2}})
    assert generation() == 2


def test_status_is_written_through_its_own_door_and_nothing_else_is(world: World) -> None:
    made = world.widget("w", {"size": 1})
    assert "status" not in made.object

    both: Object = {"spec": {"size": 2}, "status": {"phase": "Up"}, "metadata": {"labels": {"a": "b"}}}
    main = world.api.patch(WIDGETS, "default", "w", options.MERGE_PATCH, both, asked())
    assert "status" not in main.object
    both["spec"]["size"] = 3
    both["metadata"]["labels"]["a"] = "c"
    status = world.api.patch(WIDGETS, "default", "w", options.MERGE_PATCH, both, asked(), "status").object

    assert (status["spec"], status["status"]) == ({"size": 2}, {"phase": "Up"})
    assert status["metadata"]["labels"] == {"a": "b"}


def test_a_kubelet_registers_its_node_with_status_and_labels_it_with_its_status(world: World) -> None:
    nodes = world.api.kind("", "Node")
    made = world.api.create(nodes, "", {"metadata": {"name": "n"}, "status": {"nodeInfo": {"osImage": "x"}}}, asked())
    assert made.object["status"]["nodeInfo"]["osImage"] == "x"

    patch = {"metadata": {"labels": {"zone": "a"}}, "status": {"capacity": {"cpu": "4"}}}
    after = world.api.patch(nodes, "", "n", options.STRATEGIC_PATCH, patch, asked(), "status").object

    assert after["metadata"]["labels"]["zone"] == "a"
    assert after["status"]["capacity"] == {"cpu": "4"}


def test_a_scale_is_read_and_written_as_an_object_of_its_own(world: World) -> None:
    world.widget("w", {"replicas": 2})
    scale = {"apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": {"name": "w"}, "spec": {"replicas": 5}}

    updated = world.api.update(WIDGETS, "default", "w", scale, asked(), "scale")
    patched = world.api.patch(WIDGETS, "default", "w", options.MERGE_PATCH, {"spec": {"replicas": 7}}, asked(), "scale")

    assert (updated.object["spec"], patched.object["spec"]) == ({"replicas": 5}, {"replicas": 7})
    with Refused(422, "Invalid", "spec.replicas: Invalid value: -1: must be greater than or equal to 0"):
        world.api.update(WIDGETS, "default", "w", {**scale, "spec": {"replicas": -1}}, asked(), "scale")


def test_what_is_written_in_one_version_is_stored_in_the_preferred_one(world: World) -> None:
    made = world.api.create(OLD_WIDGETS, "default", {"metadata": {"name": "w"}, "spec": {"size": 1}}, asked())

    assert made.object["apiVersion"] == "example.com/v1"
    assert made.data.startswith(b'{"apiVersion":"example.com/v1","kind":"Widget","metadata"')


def test_a_dry_run_answers_as_if_and_writes_nothing(world: World) -> None:
    world.map("a", k="1")
    revision = world.store.revision

    made = world.api.create(world.maps, "default", {"metadata": {"name": "b"}}, asked(dry_run=True))
    changed = world.api.update(
        world.maps, "default", "a", {"metadata": {"name": "a"}, "data": {"k": "2"}}, asked(dry_run=True)
    )
    assert world.delete("a", dry_run=True) is None

    assert (meta(made)["name"], changed.object["data"]) == ("b", {"k": "2"})
    assert "resourceVersion" not in meta(made)
    assert world.store.revision == revision
    assert world.api.get(world.maps, "default", "a").object["data"] == {"k": "1"}


def test_unknown_fields_are_dropped_with_a_warning_or_refused(world: World) -> None:
    content = {"metadata": {"name": "a", "bar": 1}, "foo": 2}
    warned, ignored = asked(field_validation=options.WARN), asked(field_validation=options.IGNORE)

    with Refused(400, "BadRequest", 'strict decoding error: unknown field "metadata.bar", unknown field "foo"'):
        world.api.create(world.maps, "default", content, asked(field_validation=options.STRICT))
    made = world.api.create(world.maps, "default", content, warned)
    world.api.create(world.maps, "default", {**content, "metadata": {"name": "b"}}, ignored)

    assert warned.warnings == ['unknown field "metadata.bar"', 'unknown field "foo"']
    assert ignored.warnings == []
    assert "foo" not in made.object
    assert "bar" not in meta(made)


def test_the_lab_itself_writes_whole_objects(world: World) -> None:
    whole = {
        "apiVersion": "example.com/v1",
        "kind": "Widget",
        "metadata": {"name": "w", "namespace": "default"},
        "spec": {"size": 1},
        "status": {"phase": "Up"},
    }
    first = world.api.put(whole)
    second = world.api.put({**whole, "status": {"phase": "Down"}})
    third = world.api.apply_status(WIDGETS, "default", "w", lambda widget: widget["status"].update(note="x"))

    assert first.object["status"] == {"phase": "Up"}
    assert meta(second)["uid"] == meta(first)["uid"]
    assert third.object["status"] == {"phase": "Down", "note": "x"}
    unchanged = world.api.apply_status(WIDGETS, "default", "w", lambda _: None)
    assert unchanged.revision == third.revision
