"""Watches: every change after a version, in order, until the server ends it or has forgotten."""

from __future__ import annotations

import kubernetes
import pytest

from tests.kube import calls, objects


@pytest.fixture
def path(namespace: str) -> str:
    return f"/api/v1/namespaces/{namespace}/configmaps"


def made(admin: calls.Caller, path: str, name: str, **labels: str) -> str:
    """Makes a config map of the story; returns its version."""
    version = admin.post(path, objects.config_map(name, labels={"story": "yes", **labels})).got(201)
    return str(version["metadata"]["resourceVersion"])


def test_a_watch_tells_what_came_after(admin: calls.Caller, path: str) -> None:
    first = made(admin, path, "a")
    made(admin, path, "b")
    admin.patch(f"{path}/a", {"data": {"x": "1"}}).got()
    admin.delete(f"{path}/b").got()

    with admin.watch(path, resourceVersion=first, labelSelector="story") as watching:
        assert watching.named() == ("ADDED", "b")
        kind, changed = watching.next()
        assert (kind, changed["data"], changed["kind"]) == ("MODIFIED", {"x": "1"}, "ConfigMap")
        kind, gone = watching.next()
        assert (kind, gone["metadata"]["name"]) == ("DELETED", "b")
        assert int(gone["metadata"]["resourceVersion"]) > int(changed["metadata"]["resourceVersion"])

        made(admin, path, "c")
        assert watching.named() == ("ADDED", "c")


def test_a_watch_from_any_version_begins_with_what_is_there(admin: calls.Caller, path: str) -> None:
    made(admin, path, "a")
    made(admin, path, "b")

    with admin.watch(path, resourceVersion="0", labelSelector="story") as watching:
        assert {watching.named(), watching.named()} == {("ADDED", "a"), ("ADDED", "b")}
    with admin.watch(path, labelSelector="story") as watching:
        assert {watching.named(), watching.named()} == {("ADDED", "a"), ("ADDED", "b")}
        admin.delete(f"{path}/a").got()
        assert watching.named() == ("DELETED", "a")


def test_objects_enter_and_leave_a_selection(admin: calls.Caller, path: str) -> None:
    """Given a watch by label, an object that begins to match is added, and one that ceases to is deleted."""
    version = made(admin, path, "a", colour="red")
    with admin.watch(path, resourceVersion=version, labelSelector="colour=green") as watching:
        admin.patch(f"{path}/a", {"metadata": {"labels": {"colour": "green"}}}).got()
        assert watching.named() == ("ADDED", "a")
        admin.patch(f"{path}/a", {"data": {"x": "1"}}).got()
        assert watching.named() == ("MODIFIED", "a")
        left = admin.patch(f"{path}/a", {"metadata": {"labels": {"colour": "blue"}}}).got()
        kind, last = watching.next()

        assert (kind, last["metadata"]["labels"]["colour"]) == ("DELETED", "green")
        assert last["metadata"]["resourceVersion"] == left["metadata"]["resourceVersion"]


def test_one_object_is_watched_by_its_name(admin: calls.Caller, path: str) -> None:
    version = made(admin, path, "a")
    with admin.watch(path, resourceVersion=version, fieldSelector="metadata.name=b") as watching:
        made(admin, path, "c")
        made(admin, path, "b")
        assert watching.named() == ("ADDED", "b")


def test_all_namespaces_are_watched_at_once(admin: calls.Caller, harbours: objects.Custom, namespace: str) -> None:
    everywhere = f"/apis/{harbours.group}/v1/harbours"
    version = admin.get(everywhere).got()["metadata"]["resourceVersion"]
    with admin.watch(everywhere, resourceVersion=version) as watching:
        admin.post(harbours.at(namespace), harbours.object("north")).got(201)
        admin.post(harbours.at("default"), harbours.object("south")).got(201)
        assert [watching.named() for _ in range(2)] == [("ADDED", "north"), ("ADDED", "south")]


def test_a_watch_ends_when_its_time_is_over(admin: calls.Caller, path: str) -> None:
    version = made(admin, path, "a")
    with admin.watch(path, resourceVersion=version, timeoutSeconds=1) as watching:
        assert watching.ended()


def test_a_watch_of_the_future_is_no_watch_of_the_past(admin: calls.Caller, path: str) -> None:
    """Version 1 is older than any history a server keeps; who asks for it has to list again."""
    made(admin, path, "a")
    with admin.watch(path, resourceVersion="1", timeoutSeconds=5) as watching:
        kind, status = watching.next()
    assert (kind, status["code"], status["reason"]) == ("ERROR", 410, "Expired")
    assert "too old resource version: 1" in status["message"]


def test_bookmarks_come_on_request(admin: calls.Caller, path: str) -> None:
    """A bookmark before the end of a watch tells from where to go on."""
    version = made(admin, path, "a")
    query = {"resourceVersion": version, "allowWatchBookmarks": True, "timeoutSeconds": 6}
    with admin.watch(path, **query) as watching:
        kind, mark = watching.next()
    assert (kind, mark["kind"]) == ("BOOKMARK", "ConfigMap")
    assert int(mark["metadata"]["resourceVersion"]) >= int(version)
    assert "name" not in mark["metadata"]


def test_initial_events_end_with_a_bookmark(admin: calls.Caller, path: str) -> None:
    """A list by watch: what is there, then a bookmark that says so, then what comes."""
    made(admin, path, "a")
    made(admin, path, "b")
    query = {"sendInitialEvents": True, "resourceVersionMatch": "NotOlderThan", "allowWatchBookmarks": True}
    with admin.watch(path, **query, labelSelector="story") as watching:
        kind, first = watching.next()
        if kind == "ERROR" and "RequestWatchProgress is disabled" in first["message"]:
            pytest.skip("needs etcd 3.4.25 or newer: an older one cannot say how far a watch has come")
        assert {(kind, first["metadata"]["name"]), watching.named()} == {("ADDED", "a"), ("ADDED", "b")}
        kind, mark = watching.next()
        assert kind == "BOOKMARK"
        assert mark["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}
        made(admin, path, "c")
        assert watching.named() == ("ADDED", "c")


def test_initial_events_need_a_match_rule(admin: calls.Caller, path: str) -> None:
    answer = admin.get(path, watch=1, sendInitialEvents=True)
    answer.refused(422, "Invalid", "resourceVersionMatch")


def test_a_watch_can_speak_in_tables(admin: calls.Caller, path: str) -> None:
    version = made(admin, path, "a")
    admin.patch(f"{path}/a", {"data": {"x": "1"}}).got()
    accept = {"Accept": "application/json;as=Table;v=v1;g=meta.k8s.io"}
    answer = admin.call("GET", f"{path}?watch=1&resourceVersion={version}&timeoutSeconds=1", headers=accept)

    event = answer.got()

    assert (event["type"], event["object"]["kind"]) == ("MODIFIED", "Table")
    assert event["object"]["rows"][0]["cells"][:2] == ["a", 1]


def test_the_official_client_watches(admin: calls.Caller, namespace: str, path: str) -> None:
    version = made(admin, path, "a")
    made(admin, path, "b")
    watch = kubernetes.watch.Watch()

    stream = watch.stream(
        admin.core.list_namespaced_config_map, namespace, resource_version=version, label_selector="story"
    )

    for event in stream:
        assert (event["type"], event["object"].metadata.name) == ("ADDED", "b")
        watch.stop()
