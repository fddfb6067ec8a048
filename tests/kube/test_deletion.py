"""Deletion: finalizers hold an object back, and what it owned goes with it, before it, or stays."""

from __future__ import annotations

import pytest

from tests.kube import calls, objects


@pytest.fixture
def path(namespace: str) -> str:
    return f"/api/v1/namespaces/{namespace}/configmaps"


def gone(admin: calls.Caller, path: str) -> None:
    calls.eventually(lambda: admin.get(path).code == 404, f"{path} gone")


def test_a_finalizer_holds_an_object_back(admin: calls.Caller, path: str) -> None:
    admin.post(path, objects.config_map("held", {"a": "1"}, finalizers=["example.com/hold"])).got(201)

    going = admin.delete(f"{path}/held").got()

    assert (going["kind"], going["metadata"]["deletionGracePeriodSeconds"]) == ("ConfigMap", 0)
    assert going["metadata"]["deletionTimestamp"]
    again = admin.delete(f"{path}/held").got()
    assert again["metadata"]["deletionTimestamp"] == going["metadata"]["deletionTimestamp"]
    assert admin.patch(f"{path}/held", {"data": {"a": "2"}}).got()["data"] == {"a": "2"}

    last = admin.patch(f"{path}/held", {"metadata": {"finalizers": []}}).got()
    assert last["metadata"]["deletionTimestamp"]
    assert admin.get(f"{path}/held").code == 404


def test_no_finalizer_is_added_to_what_is_going(admin: calls.Caller, path: str) -> None:
    admin.post(path, objects.config_map("held", finalizers=["example.com/hold"])).got(201)
    admin.delete(f"{path}/held").got()

    refused = admin.patch(f"{path}/held", {"metadata": {"finalizers": ["example.com/hold", "example.com/more"]}})

    words = "no new finalizers can be added if the object is being deleted"
    refused.refused(422, "Invalid", f"metadata.finalizers: Forbidden: {words}")
    admin.patch(f"{path}/held", {"metadata": {"finalizers": None}}).got()


def test_the_end_of_a_held_object_is_watched(admin: calls.Caller, path: str) -> None:
    made = admin.post(path, objects.config_map("held", finalizers=["example.com/hold"])).got(201)
    with admin.watch(
        path, resourceVersion=made["metadata"]["resourceVersion"], fieldSelector="metadata.name=held"
    ) as watching:
        admin.delete(f"{path}/held").got()
        assert watching.named() == ("MODIFIED", "held")
        admin.patch(f"{path}/held", {"metadata": {"finalizers": None}}).got()
        assert watching.named() == ("DELETED", "held")


def family(admin: calls.Caller, path: str, **reference: object) -> None:
    """A parent, a child of it, and a child of that."""
    parent = admin.post(path, objects.config_map("parent")).got(201)
    child = admin.post(path, objects.config_map("child", ownerReferences=[objects.owner(parent, **reference)])).got(201)
    admin.post(path, objects.config_map("grandchild", ownerReferences=[objects.owner(child, **reference)])).got(201)


def test_what_is_owned_goes_after_its_owner(admin: calls.Caller, path: str) -> None:
    family(admin, path)

    said = admin.delete(f"{path}/parent", propagationPolicy="Background").got()

    assert said["kind"] == "Status"
    assert admin.get(f"{path}/parent").code == 404
    gone(admin, f"{path}/child")
    gone(admin, f"{path}/grandchild")


def test_orphans_stay_and_forget_their_owner(admin: calls.Caller, path: str) -> None:
    family(admin, path)

    admin.delete(f"{path}/parent", propagationPolicy="Orphan").got()

    gone(admin, f"{path}/parent")
    child = admin.get(f"{path}/child").got()
    assert "ownerReferences" not in child["metadata"]
    assert admin.get(f"{path}/grandchild").got()["metadata"]["ownerReferences"][0]["name"] == "child"


def test_an_owner_can_wait_for_what_it_owns(admin: calls.Caller, path: str) -> None:
    """Given a child that blocks and is held back, then its owner waits for it."""
    parent = admin.post(path, objects.config_map("parent")).got(201)
    references = [objects.owner(parent, blockOwnerDeletion=True)]
    admin.post(path, objects.config_map("child", ownerReferences=references, finalizers=["example.com/hold"])).got(201)
    admin.post(path, objects.config_map("loose", ownerReferences=references)).got(201)

    going = admin.delete(f"{path}/parent", propagationPolicy="Foreground").got()
    assert going["metadata"]["finalizers"] == ["foregroundDeletion"]
    gone(admin, f"{path}/loose")
    calls.eventually(
        lambda: admin.get(f"{path}/child").got()["metadata"].get("deletionTimestamp"), "the child being deleted"
    )
    assert admin.get(f"{path}/parent").code == 200

    admin.patch(f"{path}/child", {"metadata": {"finalizers": None}}).got()
    gone(admin, f"{path}/child")
    gone(admin, f"{path}/parent")


def test_an_owner_that_never_was_takes_its_own_with_it(admin: calls.Caller, path: str) -> None:
    reference = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "name": "ghost",
        "uid": "00000000-0000-0000-0000-00000000dead",
    }

    admin.post(path, objects.config_map("child", ownerReferences=[reference])).got(201)

    gone(admin, f"{path}/child")


def test_one_owner_that_is_left_is_enough(admin: calls.Caller, path: str) -> None:
    first = admin.post(path, objects.config_map("first")).got(201)
    second = admin.post(path, objects.config_map("second")).got(201)
    references = [objects.owner(first), objects.owner(second)]
    admin.post(path, objects.config_map("child", ownerReferences=references)).got(201)

    admin.delete(f"{path}/first").got()

    def owners() -> list[str]:
        return [each["name"] for each in admin.get(f"{path}/child").got()["metadata"]["ownerReferences"]]

    calls.eventually(lambda: owners() == ["second"], "the child with one owner left")
    admin.delete(f"{path}/second").got()
    gone(admin, f"{path}/child")


def test_a_reference_must_be_whole(admin: calls.Caller, path: str) -> None:
    reference = {"apiVersion": "v1", "kind": "ConfigMap", "name": "parent"}
    refused = admin.post(path, objects.config_map("child", ownerReferences=[reference]))
    refused.refused(422, "Invalid", 'metadata.ownerReferences.uid: Invalid value: "": uid must not be empty')

    both = [{**reference, "uid": str(number), "controller": True} for number in range(2)]
    refused = admin.post(path, objects.config_map("child", ownerReferences=both))
    refused.refused(422, "Invalid", "Only one reference can have Controller set to true")


def test_a_deployment_takes_its_pods_along(admin: calls.Caller, namespace: str) -> None:
    apps, pods = f"/apis/apps/v1/namespaces/{namespace}", f"/api/v1/namespaces/{namespace}/pods"
    admin.post(f"{apps}/deployments", objects.workload("Deployment", "ship", 2)).got(201)

    def count(path: str) -> int:
        return len(admin.get(path, labelSelector="app=ship").got()["items"])

    calls.eventually(lambda: count(pods) == 2 and count(f"{apps}/replicasets") == 1, "a replica set and two pods")
    (replica_set,) = admin.get(f"{apps}/replicasets", labelSelector="app=ship").got()["items"]
    assert replica_set["metadata"]["ownerReferences"][0]["controller"] is True

    admin.delete(f"{apps}/deployments/ship", propagationPolicy="Background").got()

    calls.eventually(lambda: count(f"{apps}/replicasets") == 0 and count(pods) == 0, "all gone")


def test_an_unknown_policy_is_refused(admin: calls.Caller, path: str) -> None:
    admin.post(path, objects.config_map("chart")).got(201)
    refused = admin.delete(f"{path}/chart", propagationPolicy="Sometimes")
    refused.refused(422, "Invalid", 'propagationPolicy: Unsupported value: "Sometimes"')


def test_a_pod_on_a_node_is_given_time(admin: calls.Caller, namespace: str) -> None:
    """Its kubelet has to end it first; a pod nobody runs goes at once, and so does one deleted without grace."""
    pods = f"/api/v1/namespaces/{namespace}/pods"
    bound = objects.pod("bound", "some-node")
    bound["spec"]["terminationGracePeriodSeconds"] = 30
    admin.post(pods, bound).got(201)
    admin.post(pods, objects.pod("loose")).got(201)

    going = admin.delete(f"{pods}/bound").got()
    assert (going["kind"], going["metadata"]["deletionGracePeriodSeconds"]) == ("Pod", 30)
    assert admin.get(f"{pods}/bound").code == 200
    admin.delete(f"{pods}/bound", gracePeriodSeconds=0).got()
    assert admin.get(f"{pods}/bound").code == 404
    admin.delete(f"{pods}/loose").got()
    assert admin.get(f"{pods}/loose").code == 404
