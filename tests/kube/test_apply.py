"""Server-side apply: whoever applied a field owns it; others must agree, or force it."""

from __future__ import annotations

import pytest

from tests.kube import calls, objects


@pytest.fixture
def path(namespace: str) -> str:
    return f"/api/v1/namespaces/{namespace}/configmaps/chart"


def managers(content: calls.Object) -> dict[str, tuple[str, str]]:
    """Who manages fields of an object: operation and subresource."""
    entries = content["metadata"]["managedFields"]
    return {each["manager"]: (each["operation"], each.get("subresource", "")) for each in entries}


def owned(content: calls.Object, manager: str) -> calls.Object:
    entries = content["metadata"]["managedFields"]
    found: calls.Object = next(each["fieldsV1"] for each in entries if each["manager"] == manager)
    return found


def test_what_is_applied_is_made(admin: calls.Caller, path: str) -> None:
    made = admin.apply(path, objects.config_map("chart", {"a": "1"}), "pilot").got(201)

    (entry,) = made["metadata"]["managedFields"]
    assert (entry["manager"], entry["operation"], entry["apiVersion"]) == ("pilot", "Apply", "v1")
    assert entry["fieldsType"] == "FieldsV1"
    assert entry["fieldsV1"] == {"f:data": {"f:a": {}}}
    again = admin.apply(path, objects.config_map("chart", {"a": "1"}), "pilot").got(200)
    assert again["metadata"]["resourceVersion"] == made["metadata"]["resourceVersion"]


def test_what_is_no_longer_applied_goes(admin: calls.Caller, path: str) -> None:
    admin.apply(path, objects.config_map("chart", {"a": "1", "b": "2"}), "pilot").got(201)

    applied = admin.apply(path, objects.config_map("chart", {"b": "2"}), "pilot").got()

    assert applied["data"] == {"b": "2"}


def test_two_may_own_what_they_agree_on(admin: calls.Caller, path: str) -> None:
    """Given two who applied the same value, when one lets go, then it stays for the other."""
    admin.apply(path, objects.config_map("chart", {"a": "1"}), "pilot").got(201)
    shared = admin.apply(path, objects.config_map("chart", {"a": "1", "b": "2"}), "mate").got()
    assert set(managers(shared)) == {"pilot", "mate"}

    left = admin.apply(path, objects.config_map("chart"), "pilot").got()

    assert left["data"] == {"a": "1", "b": "2"}
    assert set(managers(left)) == {"mate"}


def test_who_disagrees_is_told_with_whom(admin: calls.Caller, path: str) -> None:
    admin.apply(path, objects.config_map("chart", {"a": "1"}), "pilot").got(201)

    refused = admin.apply(path, objects.config_map("chart", {"a": "2"}), "mate")

    refusal = refused.refused(409, "Conflict")
    assert refusal["message"] == 'Apply failed with 1 conflict: conflict with "pilot": .data.a'
    assert refusal["details"]["causes"] == [
        {"reason": "FieldManagerConflict", "message": 'conflict with "pilot"', "field": ".data.a"}
    ]
    assert admin.get(path).got()["data"] == {"a": "1"}


def test_force_takes_the_field(admin: calls.Caller, path: str) -> None:
    admin.apply(path, objects.config_map("chart", {"a": "1", "b": "1"}), "pilot").got(201)

    forced = admin.apply(path, objects.config_map("chart", {"a": "2"}), "mate", force=True).got()

    assert forced["data"] == {"a": "2", "b": "1"}
    assert owned(forced, "mate") == {"f:data": {"f:a": {}}}
    assert owned(forced, "pilot") == {"f:data": {"f:b": {}}}


def test_an_update_takes_what_it_changes(admin: calls.Caller, path: str) -> None:
    """Given an applied object, when somebody updates a field of it, then applying it again is a conflict."""
    admin.apply(path, objects.config_map("chart", {"a": "1", "b": "1"}), "pilot").got(201)
    updated = admin.patch(path, {"data": {"a": "2"}}, fieldManager="hand").got()
    assert managers(updated) == {"pilot": ("Apply", ""), "hand": ("Update", "")}
    assert owned(updated, "hand") == {"f:data": {"f:a": {}}}

    refused = admin.apply(path, objects.config_map("chart", {"a": "1", "b": "1"}), "pilot")

    assert 'conflict with "hand" using v1: .data.a' in refused.refused(409, "Conflict")["message"]


def test_lists_with_keys_are_owned_by_item(admin: calls.Caller, namespace: str) -> None:
    path = f"/apis/apps/v1/namespaces/{namespace}/deployments/ship"
    body = objects.workload("Deployment", "ship", 0)
    admin.apply(path, body, "pilot").got(201)
    env = [{"name": "A", "value": "1"}]
    spec = {"containers": [{"name": "ship", "env": env}]}
    mate = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "ship"}}
    mate |= {"spec": {"template": {"spec": spec}}}

    applied = admin.apply(path, mate, "mate").got()

    (container,) = applied["spec"]["template"]["spec"]["containers"]
    assert (container["image"], container["env"]) == (objects.IMAGE, env)
    fields = owned(applied, "mate")["f:spec"]["f:template"]["f:spec"]["f:containers"]
    assert set(fields) == {'k:{"name":"ship"}'}
    assert set(fields['k:{"name":"ship"}']) == {".", "f:name", "f:env"}
    without = admin.apply(path, {**mate, "spec": {"template": {"spec": {"containers": []}}}}, "mate").got()
    assert "env" not in without["spec"]["template"]["spec"]["containers"][0]


def test_custom_kinds_are_applied_too(admin: calls.Caller, namespace: str, harbours: objects.Custom) -> None:
    path = harbours.at(namespace, "north")
    made = admin.apply(path, harbours.object("north", {"berths": 3, "options": {"a": "1"}}), "pilot").got(201)
    assert owned(made, "pilot") == {"f:spec": {"f:berths": {}, "f:options": {"f:a": {}}}}

    refused = admin.apply(path, harbours.object("north", {"berths": 4}), "mate")
    assert refused.refused(409, "Conflict")["message"].endswith('conflict with "pilot": .spec.berths')

    mine = admin.apply(path, harbours.object("north", {"options": {"b": "2"}}), "mate").got()
    assert mine["spec"] == {"berths": 3, "options": {"a": "1", "b": "2"}}


def test_status_is_applied_apart(admin: calls.Caller, namespace: str, harbours: objects.Custom) -> None:
    path = harbours.at(namespace, "north")
    admin.apply(path, harbours.object("north", {"berths": 3}), "pilot").got(201)
    condition = {"type": "Open", "status": "True"}
    body = {**harbours.object("north"), "status": {"conditions": [condition]}}
    del body["spec"]

    applied = admin.apply(f"{path}/status", body, "watch").got()

    assert applied["status"]["conditions"] == [condition]
    assert managers(applied) == {"pilot": ("Apply", ""), "watch": ("Apply", "status")}
    assert set(owned(applied, "watch")["f:status"]["f:conditions"]) == {'k:{"type":"Open"}'}


def test_an_apply_needs_a_manager(admin: calls.Caller, path: str) -> None:
    answer = admin.patch(path, objects.config_map("chart"), calls.APPLY)
    answer.refused(422, "Invalid", "fieldManager: Required value: is required for apply patch")


def test_an_apply_needs_a_kind(admin: calls.Caller, path: str) -> None:
    answer = admin.apply(path, {"data": {"a": "1"}}, "pilot")
    answer.refused(400, "BadRequest", "invalid object type: /, Kind=")


def test_an_apply_cannot_bring_managed_fields(admin: calls.Caller, path: str) -> None:
    made = admin.apply(path, objects.config_map("chart", {"a": "1"}), "pilot").got(201)
    admin.apply(path, made, "pilot").refused(400, "BadRequest", "metadata.managedFields must be nil")


def test_whoever_writes_is_named(admin: calls.Caller, namespace: str, path: str) -> None:
    """A writer that names no manager is known by its user agent."""
    collection = path.rpartition("/")[0]
    agent = {"User-Agent": "lighthouse/v1.2 (linux)"}
    made = admin.call("POST", collection, objects.config_map("chart", {"a": "1"}), headers=agent).got(201)

    assert managers(made) == {"lighthouse": ("Update", "")}
    assert owned(made, "lighthouse") == {"f:data": {".": {}, "f:a": {}}}
