"""Objects are made, read, changed and deleted; a write that is based on something old is refused."""

from __future__ import annotations

import re
from collections.abc import Callable

import kubernetes
import pytest

from tests.kube import calls, objects


def at(namespace: str, name: str = "") -> str:
    return f"/api/v1/namespaces/{namespace}/configmaps" + (f"/{name}" if name else "")


def test_a_new_object_gets_an_identity(admin: calls.Caller, namespace: str) -> None:
    made = admin.post(at(namespace), objects.config_map("chart", {"a": "1"})).got(201)

    assert (made["apiVersion"], made["kind"]) == ("v1", "ConfigMap")
    assert re.fullmatch(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", made["metadata"]["uid"])
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", made["metadata"]["creationTimestamp"])
    assert int(made["metadata"]["resourceVersion"]) > 0
    assert made["metadata"]["namespace"] == namespace
    assert admin.get(at(namespace, "chart")).got() == made


def test_the_official_client_does_it_all(admin: calls.Caller, namespace: str) -> None:
    core = admin.core
    core.create_namespaced_config_map(namespace, objects.config_map("chart", {"a": "1"}))

    core.patch_namespaced_config_map("chart", namespace, {"data": {"b": "2"}})
    assert core.read_namespaced_config_map("chart", namespace).data == {"a": "1", "b": "2"}
    listed = core.list_namespaced_config_map(namespace, field_selector="metadata.name=chart").items
    assert [each.metadata.name for each in listed] == ["chart"]

    core.delete_namespaced_config_map("chart", namespace)
    with pytest.raises(kubernetes.client.ApiException) as refused:
        core.read_namespaced_config_map("chart", namespace)
    assert refused.value.status == 404


def test_the_dynamic_client_finds_kinds_by_discovery(
    admin: calls.Caller, namespace: str, harbours: objects.Custom
) -> None:
    dynamic = kubernetes.dynamic.DynamicClient(admin.client)
    resource = dynamic.resources.get(api_version=f"{harbours.group}/v1", kind="Harbour")

    resource.create(body=harbours.object("north", {"berths": 3}), namespace=namespace)
    assert resource.get(name="north", namespace=namespace).spec.berths == 3
    body = {"metadata": {"name": "north"}, "spec": {"berths": 4}}
    resource.patch(body=body, namespace=namespace, content_type=calls.MERGE)
    assert [each.spec.berths for each in resource.get(namespace=namespace).items] == [4]
    resource.delete(name="north", namespace=namespace)
    with pytest.raises(kubernetes.dynamic.exceptions.NotFoundError):
        resource.get(name="north", namespace=namespace)


def test_a_name_is_given_once(admin: calls.Caller, namespace: str) -> None:
    admin.post(at(namespace), objects.config_map("chart")).got(201)

    refusal = admin.post(at(namespace), objects.config_map("chart")).refused(409, "AlreadyExists")

    assert refusal["message"] == 'configmaps "chart" already exists'
    assert refusal["details"] == {"name": "chart", "kind": "configmaps"}


def test_what_is_absent_is_not_found(admin: calls.Caller, namespace: str, harbours: objects.Custom) -> None:
    message = 'configmaps "chart" not found'
    body = objects.config_map("chart")
    assert admin.get(at(namespace, "chart")).refused(404, "NotFound")["message"] == message
    assert admin.patch(at(namespace, "chart"), {"data": {}}).refused(404, "NotFound")["message"] == message
    assert admin.delete(at(namespace, "chart")).refused(404, "NotFound")["message"] == message
    versioned = {**body, "metadata": {"name": "chart", "resourceVersion": "5"}}
    assert admin.put(at(namespace, "chart"), versioned).refused(404, "NotFound")["message"] == message

    told = admin.get(harbours.at(namespace, "north")).refused(404, "NotFound")
    assert told["message"] == f'{harbours.name} "north" not found'
    assert told["details"] == {"name": "north", "group": harbours.group, "kind": "harbours"}


def test_paths_of_no_kind_are_not_found(admin: calls.Caller) -> None:
    assert admin.get("/apis/nowhere.example.com/v1/ships").code == 404
    assert admin.get("/api/v1/ships").code == 404
    assert admin.get("/api/v1/ships").message == "the server could not find the requested resource"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"kind": "Secret"}, "Secret"),
        ({"apiVersion": "v2"}, "v2"),
        ({"metadata": {"name": "chart", "namespace": "elsewhere"}}, "does not match the namespace"),
    ],
)
def test_a_body_must_fit_its_path(admin: calls.Caller, namespace: str, change: calls.Object, words: str) -> None:
    admin.post(at(namespace), {**objects.config_map("chart"), **change}).refused(400, "BadRequest", words)


def test_the_name_in_the_body_must_be_that_of_the_path(admin: calls.Caller, namespace: str) -> None:
    admin.post(at(namespace), objects.config_map("chart")).got(201)

    refusal = admin.put(at(namespace, "chart"), objects.config_map("other")).refused(400, "BadRequest")

    assert refusal["message"] == "the name of the object (other) does not match the name on the URL (chart)"


@pytest.mark.parametrize("name", ["Chart", "-chart", "ch art", "c" * 254])
def test_a_bad_name_is_invalid(admin: calls.Caller, namespace: str, name: str) -> None:
    refused = admin.post(at(namespace), objects.config_map(name))

    refused.refused(422, "Invalid", f'ConfigMap "{name}" is invalid: metadata.name: Invalid value: "{name}"')
    assert refused.causes == [("FieldValueInvalid", "metadata.name")]


def test_a_name_is_required(admin: calls.Caller, namespace: str) -> None:
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {}}

    refused = admin.post(at(namespace), body)

    refused.refused(422, "Invalid", "metadata.name: Required value: name or generateName is required")
    assert refused.causes == [("FieldValueRequired", "metadata.name")]


def test_generate_name_makes_one(admin: calls.Caller, namespace: str) -> None:
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"generateName": "chart-"}}

    names = {admin.post(at(namespace), body).got(201)["metadata"]["name"] for _ in range(5)}

    assert len(names) == 5
    assert all(re.fullmatch(r"chart-[a-z0-9]{5}", name) for name in names)


def test_a_body_that_is_no_json_is_a_bad_request(admin: calls.Caller, namespace: str) -> None:
    admin.post(at(namespace), "{not json").refused(400, "BadRequest")


def test_a_body_of_an_unknown_type_is_refused(admin: calls.Caller, namespace: str) -> None:
    answer = admin.call("POST", at(namespace), "x", headers={"Content-Type": "text/plain"})
    answer.refused(415, "UnsupportedMediaType")


def test_yaml_is_read_too(admin: calls.Caller, namespace: str) -> None:
    body = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: chart\ndata:\n  a: '1'\n"

    made = admin.call("POST", at(namespace), body, headers={"Content-Type": "application/yaml"}).got(201)

    assert made["data"] == {"a": "1"}


def test_only_one_of_two_writers_wins(admin: calls.Caller, namespace: str) -> None:
    """Given two who read the same version, when both write, then the second has to read again."""
    seen = admin.post(at(namespace), objects.config_map("chart", {"a": "1"})).got(201)
    first = admin.put(at(namespace, "chart"), {**seen, "data": {"a": "2"}}).got()
    assert int(first["metadata"]["resourceVersion"]) > int(seen["metadata"]["resourceVersion"])

    refusal = admin.put(at(namespace, "chart"), {**seen, "data": {"a": "3"}}).refused(409, "Conflict")

    assert refusal["message"] == (
        'Operation cannot be fulfilled on configmaps "chart": the object has been modified; '
        "please apply your changes to the latest version and try again"
    )
    assert admin.get(at(namespace, "chart")).got()["data"] == {"a": "2"}


def test_a_write_without_a_version_wins_always(admin: calls.Caller, namespace: str) -> None:
    admin.post(at(namespace), objects.config_map("chart", {"a": "1"})).got(201)

    written = admin.put(at(namespace, "chart"), objects.config_map("chart", {"a": "2"})).got()

    assert written["data"] == {"a": "2"}


def test_a_write_that_changes_nothing_is_no_new_version(admin: calls.Caller, namespace: str) -> None:
    seen = admin.post(at(namespace), objects.config_map("chart", {"a": "1"})).got(201)

    again = admin.put(at(namespace, "chart"), seen).got()

    assert again["metadata"]["resourceVersion"] == seen["metadata"]["resourceVersion"]


def test_a_deletion_may_name_what_it_means(admin: calls.Caller, namespace: str) -> None:
    """Given an object made anew under the same name, a deletion that means the old one does nothing."""
    old = admin.post(at(namespace), objects.config_map("chart")).got(201)
    admin.delete(at(namespace, "chart")).got()
    admin.post(at(namespace), objects.config_map("chart")).got(201)

    body = {"kind": "DeleteOptions", "apiVersion": "v1", "preconditions": {"uid": old["metadata"]["uid"]}}
    admin.delete(at(namespace, "chart"), body).refused(409, "Conflict", "the UID in the precondition")

    assert admin.get(at(namespace, "chart")).code == 200


def test_a_finished_deletion_is_a_status(admin: calls.Caller, namespace: str) -> None:
    made = admin.post(at(namespace), objects.config_map("chart")).got(201)

    said = admin.delete(at(namespace, "chart")).got()

    assert (said["kind"], said["status"]) == ("Status", "Success")
    assert said["details"] == {"name": "chart", "kind": "configmaps", "uid": made["metadata"]["uid"]}


def test_a_collection_is_deleted_by_label(admin: calls.Caller, namespace: str) -> None:
    for name, colour in (("a", "red"), ("b", "green"), ("c", "red")):
        admin.post(at(namespace), objects.config_map(name, labels={"colour": colour})).got(201)

    admin.delete(at(namespace), labelSelector="colour=red").got()

    left = admin.get(at(namespace), labelSelector="colour").got()["items"]
    assert [each["metadata"]["name"] for each in left] == ["b"]


def test_what_cannot_change_stays(admin: calls.Caller, namespace: str) -> None:
    made = admin.post(at(namespace), objects.config_map("chart", {"a": "1"})).got(201)
    body = objects.config_map("chart", {"a": "2"}, uid=made["metadata"]["uid"], creationTimestamp=None)

    written = admin.put(at(namespace, "chart"), body).got()

    assert written["metadata"]["creationTimestamp"] == made["metadata"]["creationTimestamp"]
    wrong = objects.config_map("chart", {"a": "2"}, uid="00000000-0000-0000-0000-000000000000")
    admin.put(at(namespace, "chart"), wrong).refused(409, "Conflict", "Precondition failed: UID in precondition")


def test_immutable_config_maps_and_secret_types_stay(admin: calls.Caller, namespace: str) -> None:
    admin.post(at(namespace), {**objects.config_map("chart", {"a": "1"}), "immutable": True}).got(201)
    refused = admin.patch(at(namespace, "chart"), {"data": {"a": "2"}})
    refused.refused(422, "Invalid", "field is immutable when `immutable` is set")
    assert refused.causes == [("FieldValueForbidden", "data")]

    secrets = f"/api/v1/namespaces/{namespace}/secrets"
    made = admin.post(secrets, objects.secret("key", {"a": "1"})).got(201)
    assert (made["data"], "stringData" in made) == ({"a": "MQ=="}, False)
    admin.patch(f"{secrets}/key", {"type": "Other"}).refused(422, "Invalid", "type: Invalid value")


def test_a_dry_run_leaves_nothing_behind(admin: calls.Caller, namespace: str, unique: Callable[[str], str]) -> None:
    made = admin.post(at(namespace), objects.config_map("chart", {"a": "1"}), dryRun="All").got(201)
    assert made["metadata"]["uid"]
    assert admin.get(at(namespace, "chart")).code == 404

    kept = admin.post(at(namespace), objects.config_map("chart", {"a": "1"})).got(201)
    assert admin.patch(at(namespace, "chart"), {"data": {"a": "2"}}, dryRun="All").got()["data"] == {"a": "2"}
    admin.delete(at(namespace, "chart"), dryRun="All").got()
    assert admin.get(at(namespace, "chart")).got() == kept

    refused = admin.post(at(namespace), objects.config_map("other"), dryRun="Some")
    refused.refused(422, "Invalid", 'dryRun: Unsupported value: []string{"Some"}: supported values: "All"')
