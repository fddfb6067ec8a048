"""Namespaces begin with an account, and end when everything in them has ended."""

from __future__ import annotations

from collections.abc import Callable

from tests.kube import calls, objects


def test_a_namespace_begins_active_and_furnished(admin: calls.Caller, namespace: str) -> None:
    found = admin.get(f"/api/v1/namespaces/{namespace}").got()

    assert found["status"]["phase"] == "Active"
    assert found["spec"]["finalizers"] == ["kubernetes"]
    assert found["metadata"]["labels"]["kubernetes.io/metadata.name"] == namespace
    inside = f"/api/v1/namespaces/{namespace}"
    bundle = calls.eventually(
        lambda: admin.get(f"{inside}/configmaps/kube-root-ca.crt").body.get("data"), "the bundle of the cluster's CA"
    )
    assert "BEGIN CERTIFICATE" in bundle["ca.crt"]


def test_the_system_namespaces_are_there(admin: calls.Caller) -> None:
    names = {each["metadata"]["name"] for each in admin.get("/api/v1/namespaces").got()["items"]}

    assert {"default", "kube-system", "kube-public", "kube-node-lease"} <= names


def test_nothing_is_made_in_a_namespace_that_is_not_there(admin: calls.Caller, unique: Callable[[str], str]) -> None:
    name = unique("nowhere")

    refusal = admin.post(f"/api/v1/namespaces/{name}/configmaps", objects.config_map("chart")).refused(404, "NotFound")

    assert refusal["message"] == f'namespaces "{name}" not found'
    assert admin.get(f"/api/v1/namespaces/{name}/configmaps").got()["items"] == []


def test_a_namespace_takes_its_content_with_it(
    admin: calls.Caller, unique: Callable[[str], str], harbours: objects.Custom
) -> None:
    """Given objects of several kinds, one of which holds on, when the namespace is deleted, then it waits for that."""
    name = unique("doomed")
    inside = f"/api/v1/namespaces/{name}"
    admin.post("/api/v1/namespaces", objects.namespace(name)).got(201)
    admin.post(f"{inside}/configmaps", objects.config_map("held", finalizers=["example.com/hold"])).got(201)
    admin.post(f"{inside}/secrets", objects.secret("loose", {"a": "1"})).got(201)
    admin.post(harbours.at(name), harbours.object("north")).got(201)

    said = admin.delete(inside).got()
    assert said["status"]["phase"] == "Terminating"
    assert said["metadata"]["deletionTimestamp"]
    calls.eventually(lambda: admin.get(f"{inside}/secrets/loose").code == 404, "the secret gone")
    calls.eventually(lambda: admin.get(harbours.at(name, "north")).code == 404, "the harbour gone")

    refused = admin.post(f"{inside}/configmaps", objects.config_map("late"))
    refused.refused(
        403, "Forbidden", f"unable to create new content in namespace {name} because it is being terminated"
    )
    assert [cause["reason"] for cause in refused.body["details"]["causes"]] == ["NamespaceTerminating"]
    calls.eventually(
        lambda: admin.get(f"{inside}/configmaps/held").got()["metadata"].get("deletionTimestamp"),
        "the config map being deleted",
    )

    admin.patch(f"{inside}/configmaps/held", {"metadata": {"finalizers": None}}).got()
    calls.eventually(lambda: admin.get(inside).code == 404, "the namespace gone")


def test_a_namespace_tells_what_it_waits_for(admin: calls.Caller, unique: Callable[[str], str]) -> None:
    name = unique("doomed")
    inside = f"/api/v1/namespaces/{name}"
    admin.post("/api/v1/namespaces", objects.namespace(name)).got(201)
    admin.post(f"{inside}/configmaps", objects.config_map("held", finalizers=["example.com/hold"])).got(201)

    admin.delete(inside).got()

    def conditions() -> dict[str, str]:
        found = admin.get(inside).got()["status"].get("conditions", [])
        return {each["type"]: each["status"] for each in found}

    calls.eventually(
        lambda: (
            conditions().get("NamespaceFinalizersRemaining") == "True"
            and conditions().get("NamespaceContentRemaining") == "True"
        ),
        "the conditions that tell why",
    )
    admin.patch(f"{inside}/configmaps/held", {"metadata": {"finalizers": None}}).got()
    calls.eventually(lambda: admin.get(inside).code == 404, "the namespace gone")


def test_system_namespaces_cannot_be_deleted(admin: calls.Caller) -> None:
    for name in ("default", "kube-system", "kube-public"):
        refusal = admin.delete(f"/api/v1/namespaces/{name}").refused(403, "Forbidden")
        assert refusal["message"] == f'namespaces "{name}" is forbidden: this namespace may not be deleted'
