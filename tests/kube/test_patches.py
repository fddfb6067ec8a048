"""Patches: merged, as JSON operations, strategic, and applied by managers who own what they said."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.kube import calls, objects


@pytest.fixture
def path(admin: calls.Caller, namespace: str) -> str:
    """A config map to patch."""
    collection = f"/api/v1/namespaces/{namespace}/configmaps"
    admin.post(collection, objects.config_map("chart", {"a": "1", "b": "2"}, labels={"x": "y"})).got(201)
    return f"{collection}/chart"


def test_a_merge_patch_sets_and_removes(admin: calls.Caller, path: str) -> None:
    patched = admin.patch(path, {"data": {"a": None, "c": "3"}, "metadata": {"labels": {"z": "w"}}}).got()

    assert patched["data"] == {"b": "2", "c": "3"}
    assert patched["metadata"]["labels"] == {"x": "y", "z": "w"}


def test_a_merge_patch_replaces_lists(admin: calls.Caller, namespace: str, harbours: objects.Custom) -> None:
    admin.post(harbours.at(namespace), harbours.object("north", {"lights": ["red", "green"]})).got(201)

    patched = admin.patch(harbours.at(namespace, "north"), {"spec": {"lights": ["white"]}}).got()

    assert patched["spec"]["lights"] == ["white"]


def test_json_operations_are_done_in_order(admin: calls.Caller, path: str) -> None:
    operations = [
        {"op": "test", "path": "/data/a", "value": "1"},
        {"op": "replace", "path": "/data/a", "value": "9"},
        {"op": "add", "path": "/metadata/labels/example.com~1colour", "value": "red"},
        {"op": "copy", "from": "/data/a", "path": "/data/d"},
        {"op": "move", "from": "/data/b", "path": "/data/e"},
        {"op": "remove", "path": "/metadata/labels/x"},
    ]

    patched = admin.patch(path, operations, calls.JSON_PATCH).got()

    assert patched["data"] == {"a": "9", "d": "9", "e": "2"}
    assert patched["metadata"]["labels"] == {"example.com/colour": "red"}


@pytest.mark.parametrize(
    "operation",
    [
        {"op": "test", "path": "/data/a", "value": "7"},
        {"op": "remove", "path": "/data/nothing"},
        {"op": "add", "path": "/nowhere/at/all", "value": "1"},
    ],
)
def test_an_operation_that_fails_changes_nothing(admin: calls.Caller, path: str, operation: calls.Object) -> None:
    good = {"op": "add", "path": "/data/new", "value": "1"}

    answer = admin.patch(path, [good, operation], calls.JSON_PATCH)

    answer.refused(422, "Invalid", "the server rejected our request due to an error in our request")
    assert "new" not in admin.get(path).got()["data"]


def test_what_is_not_there_can_be_replaced(admin: calls.Caller, path: str) -> None:
    """Against the letter of RFC 6902, and relied upon."""
    operation = {"op": "replace", "path": "/data/nothing", "value": "1"}

    assert admin.patch(path, [operation], calls.JSON_PATCH).got()["data"]["nothing"] == "1"


def test_a_patch_that_is_none_is_a_bad_request(admin: calls.Caller, path: str) -> None:
    admin.patch(path, '{"not": "a list"}', calls.JSON_PATCH).refused(400, "BadRequest")
    admin.patch(path, "[1, 2", calls.MERGE).refused(400, "BadRequest")
    admin.patch(path, {}, "application/json").refused(415, "UnsupportedMediaType")


def test_a_patch_may_insist_on_a_version(admin: calls.Caller, path: str) -> None:
    seen = admin.get(path).got()
    admin.patch(path, {"data": {"c": "3"}}).got()

    stale = {"metadata": {"resourceVersion": seen["metadata"]["resourceVersion"]}, "data": {"c": "4"}}

    admin.patch(path, stale).refused(409, "Conflict", "the object has been modified")


def test_a_patch_cannot_rename(admin: calls.Caller, path: str) -> None:
    admin.patch(path, {"metadata": {"name": "other"}}).refused(
        400, "BadRequest", "the name of the object (other) does not match the name on the URL (chart)"
    )


def test_a_patch_with_a_wrong_type_is_refused(admin: calls.Caller, path: str) -> None:
    answer = admin.patch(path, {"data": {"a": 5}})
    answer.refused(422, "Invalid", "json: cannot unmarshal number into Go struct field ConfigMap.data of type string")
    assert answer.causes == [("FieldValueInvalid", "patch")]


# Strategic merge: lists of things that have a key are merged by it.


@pytest.fixture
def deployment(admin: calls.Caller, namespace: str) -> str:
    """A deployment with two containers, scaled to nothing."""
    body = objects.workload("Deployment", "ship", 0)
    containers = body["spec"]["template"]["spec"]["containers"]
    containers[0]["env"] = [{"name": "A", "value": "1"}, {"name": "B", "value": "2"}]
    containers.append({"name": "tug", "image": objects.IMAGE})
    collection = f"/apis/apps/v1/namespaces/{namespace}/deployments"
    admin.post(collection, body).got(201)
    return f"{collection}/ship"


def containers(deployment: calls.Object) -> dict[str, calls.Object]:
    return {each["name"]: each for each in deployment["spec"]["template"]["spec"]["containers"]}


def in_template(*found: calls.Object, **more: object) -> calls.Object:
    return {"spec": {"template": {"spec": {"containers": list(found), **more}}}}


def test_lists_with_keys_are_merged(admin: calls.Caller, deployment: str) -> None:
    patch = in_template({"name": "ship", "image": "registry.example.com/ship:2", "env": [{"name": "B", "value": "9"}]})

    found = containers(admin.patch(deployment, patch, calls.STRATEGIC).got())

    assert set(found) == {"ship", "tug"}
    assert found["ship"]["image"].endswith(":2")
    assert found["ship"]["env"] == [{"name": "A", "value": "1"}, {"name": "B", "value": "9"}]


def test_a_directive_deletes_from_a_list(admin: calls.Caller, deployment: str) -> None:
    patch = in_template({"name": "tug", "$patch": "delete"})

    assert set(containers(admin.patch(deployment, patch, calls.STRATEGIC).got())) == {"ship"}


def test_a_directive_replaces_a_list(admin: calls.Caller, deployment: str) -> None:
    patch = in_template({"$patch": "replace"}, {"name": "new", "image": objects.IMAGE})

    assert set(containers(admin.patch(deployment, patch, calls.STRATEGIC).got())) == {"new"}


def test_a_directive_orders_a_list(admin: calls.Caller, deployment: str) -> None:
    patch = in_template({"name": "tug", "image": "registry.example.com/tug:2"})
    patch["spec"]["template"]["spec"]["$setElementOrder/containers"] = [{"name": "tug"}, {"name": "ship"}]

    found = containers(admin.patch(deployment, patch, calls.STRATEGIC).got())

    assert list(found) == ["tug", "ship"]


def test_a_directive_deletes_from_a_list_of_words(admin: calls.Caller, namespace: str) -> None:
    collection = f"/api/v1/namespaces/{namespace}/configmaps"
    admin.post(collection, objects.config_map("held", finalizers=["example.com/a", "example.com/b"])).got(201)

    added = admin.patch(f"{collection}/held", {"metadata": {"finalizers": ["example.com/c"]}}, calls.STRATEGIC).got()
    assert sorted(added["metadata"]["finalizers"]) == ["example.com/a", "example.com/b", "example.com/c"]
    patch = {"metadata": {"$deleteFromPrimitiveList/finalizers": ["example.com/b", "example.com/c"]}}
    assert admin.patch(f"{collection}/held", patch, calls.STRATEGIC).got()["metadata"]["finalizers"] == [
        "example.com/a"
    ]
    admin.patch(f"{collection}/held", {"metadata": {"finalizers": None}}).got()


def test_a_directive_keeps_only_some_keys(admin: calls.Caller, deployment: str) -> None:
    patch = {"spec": {"strategy": {"$retainKeys": ["type"], "type": "Recreate"}}}

    assert admin.patch(deployment, patch, calls.STRATEGIC).got()["spec"]["strategy"] == {"type": "Recreate"}
    # Without the directive the two halves of a union would clash.
    admin.patch(deployment, {"spec": {"strategy": {"rollingUpdate": {"maxSurge": 1}}}}, calls.STRATEGIC).refused(
        422, "Invalid", "spec.strategy.rollingUpdate: Forbidden"
    )


def test_conditions_are_merged_by_type(admin: calls.Caller, unique: Callable[[str], str]) -> None:
    name = unique("node")
    admin.post("/api/v1/nodes", objects.node(name)).got(201)
    patch = {"status": {"conditions": [objects.condition("DiskPressure", "False", "Enough", "of it")]}}

    patched = admin.patch(f"/api/v1/nodes/{name}/status", patch, calls.STRATEGIC).got()

    assert sorted(each["type"] for each in patched["status"]["conditions"]) == ["DiskPressure", "Ready"]
    admin.delete(f"/api/v1/nodes/{name}").got()


def test_custom_kinds_know_no_strategy(admin: calls.Caller, namespace: str, harbours: objects.Custom) -> None:
    admin.post(harbours.at(namespace), harbours.object("north")).got(201)

    answer = admin.patch(harbours.at(namespace, "north"), {"spec": {"berths": 2}}, calls.STRATEGIC)

    answer.refused(415, "UnsupportedMediaType", "application/json-patch+json, application/merge-patch+json")
