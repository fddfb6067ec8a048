"""Status and scale: each has a writer of its own, who cannot touch the rest."""

from __future__ import annotations

import pytest

from tests.kube import calls, objects


@pytest.fixture
def north(admin: calls.Caller, namespace: str, harbours: objects.Custom) -> str:
    """The path of a harbour with three berths."""
    admin.post(harbours.at(namespace), harbours.object("north", {"berths": 3})).got(201)
    return harbours.at(namespace, "north")


def test_status_is_not_written_with_the_rest(admin: calls.Caller, namespace: str, harbours: objects.Custom) -> None:
    body = {**harbours.object("north", {"berths": 3}), "status": {"berths": 9}}
    made = admin.post(harbours.at(namespace), body).got(201)
    assert "status" not in made

    path = harbours.at(namespace, "north")
    assert "status" not in admin.put(path, {**made, "status": {"berths": 9}}).got()
    assert "status" not in admin.patch(path, {"status": {"berths": 9}}).got()


def test_the_rest_is_not_written_with_the_status(admin: calls.Caller, north: str) -> None:
    change = {"spec": {"berths": 50}, "status": {"berths": 2}, "metadata": {"labels": {"a": "b"}}}

    changed = admin.patch(f"{north}/status", change).got()

    assert (changed["spec"], changed["status"]) == ({"berths": 3}, {"berths": 2})
    assert changed["metadata"].get("labels") is None
    assert admin.get(f"{north}/status").got() == changed


def test_generation_grows_with_the_spec_alone(admin: calls.Caller, north: str) -> None:
    def generation(answer: calls.Answer) -> int:
        return int(answer.got()["metadata"]["generation"])

    assert generation(admin.get(north)) == 1
    assert generation(admin.patch(f"{north}/status", {"status": {"berths": 1}})) == 1
    assert generation(admin.patch(north, {"metadata": {"labels": {"a": "b"}}})) == 1
    assert generation(admin.patch(north, {"spec": {"berths": 4}})) == 2


def test_the_status_is_validated_too(admin: calls.Caller, north: str) -> None:
    refused = admin.patch(f"{north}/status", {"status": {"conditions": [{"type": "Open"}]}})
    refused.refused(422, "Invalid", "status.conditions[0].status: Required value")


def test_a_status_update_minds_the_version(admin: calls.Caller, north: str) -> None:
    seen = admin.get(north).got()
    admin.patch(north, {"spec": {"berths": 4}}).got()

    admin.put(f"{north}/status", {**seen, "status": {"berths": 3}}).refused(409, "Conflict")


def test_scale_shows_and_sets_the_number(admin: calls.Caller, north: str) -> None:
    admin.patch(f"{north}/status", {"status": {"berths": 2, "selector": "a=b"}}).got()

    scale = admin.get(f"{north}/scale").got()
    assert (scale["kind"], scale["apiVersion"]) == ("Scale", "autoscaling/v1")
    assert scale["spec"] == {"replicas": 3}
    assert scale["status"] == {"replicas": 2, "selector": "a=b"}

    scaled = admin.put(f"{north}/scale", {**scale, "spec": {"replicas": 7}}).got()
    assert scaled["spec"] == {"replicas": 7}
    assert admin.get(north).got()["spec"]["berths"] == 7
    admin.put(f"{north}/scale", {**scale, "spec": {"replicas": 8}}).refused(409, "Conflict")
    assert admin.patch(f"{north}/scale", {"spec": {"replicas": 5}}).got()["spec"] == {"replicas": 5}
    admin.patch(f"{north}/scale", {"spec": {"replicas": -1}}).refused(422, "Invalid")


def test_a_deployment_scales(admin: calls.Caller, namespace: str) -> None:
    path = f"/apis/apps/v1/namespaces/{namespace}/deployments"
    admin.post(path, objects.workload("Deployment", "ship", 0)).got(201)

    scale = admin.patch(f"{path}/ship/scale", {"spec": {"replicas": 2}}).got()

    assert (scale["kind"], scale["spec"]) == ("Scale", {"replicas": 2})
    assert scale["status"]["selector"] == "app=ship"
    pods = f"/api/v1/namespaces/{namespace}/pods"
    calls.eventually(lambda: len(admin.get(pods, labelSelector="app=ship").got()["items"]) == 2, "two pods")


def test_there_is_no_subresource_that_a_kind_does_not_have(admin: calls.Caller, namespace: str) -> None:
    path = f"/api/v1/namespaces/{namespace}/configmaps"
    admin.post(path, objects.config_map("chart")).got(201)

    for word in ("status", "scale", "nonsense"):
        assert admin.get(f"{path}/chart/{word}").code == 404
