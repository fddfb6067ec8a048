"""Discovery and OpenAPI: a server tells what it serves, and how it is spelled."""

from __future__ import annotations

import re
import shutil

import pytest

from tests.kube import calls, objects
from tests.kube import cluster as clusters

AGGREGATED = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json"


def test_the_server_tells_its_version_and_health(cluster: clusters.Cluster) -> None:
    nobody = cluster.with_token()

    version = nobody.get("/version").got()
    assert (version["major"], version["minor"].rstrip("+")) == ("1", "33")
    assert version["gitVersion"].startswith("v1.33.")
    for path in ("/healthz", "/livez", "/readyz"):
        assert (nobody.get(path).code, nobody.get(path).data) == (200, b"ok")
    assert b"check passed" in nobody.get("/readyz?verbose").data


def test_the_groups_are_listed(admin: calls.Caller, harbours: objects.Custom) -> None:
    assert admin.get("/api").got()["versions"] == ["v1"]

    groups = {each["name"]: each for each in admin.get("/apis").got()["groups"]}

    expected = (
        "apps",
        "rbac.authorization.k8s.io",
        "certificates.k8s.io",
        "coordination.k8s.io",
        "policy",
        harbours.group,
    )
    assert set(expected) <= set(groups)
    assert groups[harbours.group]["preferredVersion"] == {"groupVersion": f"{harbours.group}/v1", "version": "v1"}
    assert admin.get("/apis/apps").got()["preferredVersion"]["groupVersion"] == "apps/v1"


def test_the_resources_of_a_group_are_listed(admin: calls.Caller, harbours: objects.Custom) -> None:
    resources = {each["name"]: each for each in admin.get(f"/apis/{harbours.group}/v1").got()["resources"]}

    assert set(resources) == {"harbours", "harbours/status", "harbours/scale"}
    harbour = resources["harbours"]
    assert (harbour["kind"], harbour["singularName"], harbour["namespaced"]) == ("Harbour", "harbour", True)
    assert (harbour["shortNames"], harbour["categories"]) == (["hb"], ["ports"])
    assert set(harbour["verbs"]) == {
        "create", "delete", "deletecollection", "get", "list", "patch", "update", "watch",
    }  # fmt: skip
    scale = resources["harbours/scale"]
    assert (scale["group"], scale["version"], scale["kind"]) == ("autoscaling", "v1", "Scale")

    core = {each["name"]: each for each in admin.get("/api/v1").got()["resources"]}
    assert core["pods/eviction"]["kind"] == "Eviction"
    assert core["serviceaccounts/token"]["kind"] == "TokenRequest"
    assert core["pods"]["shortNames"] == ["po"]
    assert core["nodes"]["namespaced"] is False


def test_discovery_is_aggregated_on_request(admin: calls.Caller, harbours: objects.Custom) -> None:
    def groups(path: str) -> dict[str, calls.Object]:
        answer = admin.call("GET", path, headers={"Accept": AGGREGATED})
        assert "as=APIGroupDiscoveryList" in answer.headers["Content-Type"]
        return {each["metadata"].get("name", ""): each for each in answer.got()["items"]}

    calls.eventually(lambda: harbours.group in groups("/apis"), "the new group in the aggregated discovery")
    (version,) = groups("/apis")[harbours.group]["versions"]
    (resource,) = version["resources"]
    assert (resource["resource"], resource["scope"], resource["responseKind"]["kind"]) == (
        "harbours",
        "Namespaced",
        "Harbour",
    )
    assert sorted(each["subresource"] for each in resource["subresources"]) == ["scale", "status"]
    core = {each["resource"] for each in groups("/api")[""]["versions"][0]["resources"]}
    assert {"pods", "nodes", "secrets", "events"} <= core


def test_kubectl_lists_what_there_is(cluster: clusters.Cluster, harbours: objects.Custom) -> None:
    said = cluster.kubectl("api-resources", f"--api-group={harbours.group}", "--cached=false")
    assert re.search(rf"harbours +hb +{re.escape(harbours.group)}/v1 +true +Harbour", said)

    core = cluster.kubectl("api-resources", "--api-group=", "--namespaced=false", "--cached=false")
    assert re.search(r"nodes +no +v1 +false +Node", core)
    assert f"{harbours.group}/v1\n" in cluster.kubectl("api-versions")


def test_openapi_describes_every_group(admin: calls.Caller, harbours: objects.Custom) -> None:
    def paths() -> calls.Object:
        found: calls.Object = admin.get("/openapi/v3").got()["paths"]
        return found

    key = f"apis/{harbours.group}/v1"
    calls.eventually(lambda: key in paths(), "the new group in the OpenAPI index")
    url = paths()[key]["serverRelativeURL"]
    assert re.fullmatch(rf"/openapi/v3/apis/{re.escape(harbours.group)}/v1\?hash=[0-9A-Za-z]+", url)
    document = admin.get(url).got()
    assert document["openapi"].startswith("3.")
    kinds = [
        gvk
        for schema in document["components"]["schemas"].values()
        for gvk in schema.get("x-kubernetes-group-version-kind", [])
    ]
    assert {"group": harbours.group, "version": "v1", "kind": "Harbour"} in kinds
    collection = document["paths"][f"/apis/{harbours.group}/v1/namespaces/{{namespace}}/harbours"]
    names = {each["name"] for each in collection["post"]["parameters"]}
    assert {"fieldValidation", "dryRun", "fieldManager"} <= names


def test_openapi_v2_is_there_for_older_clients(admin: calls.Caller) -> None:
    document = admin.get("/openapi/v2").got()

    assert document["swagger"] == "2.0"
    assert "io.k8s.api.core.v1.Pod" in document["definitions"]
    accept = {"Accept": "application/com.github.proto-openapi.spec.v2@v1.0+protobuf"}
    answer = admin.call("GET", "/openapi/v2", headers=accept)
    assert answer.code == 200
    assert b"io.k8s.api.core.v1.Pod" in answer.data


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("pods.spec.containers.image", "string"),
        ("deployments.spec.replicas", "integer"),
        ("nodes.spec.taints", "taint"),
        ("configmaps", "ConfigMap"),
    ],
)
def test_kubectl_explains_built_in_kinds(cluster: clusters.Cluster, path: str, words: str) -> None:
    assert words in cluster.kubectl("explain", path)


def test_kubectl_explains_custom_kinds(
    cluster: clusters.Cluster, admin: calls.Caller, harbours: objects.Custom
) -> None:
    cluster.needs_kubectl(24)
    calls.eventually(
        lambda: f"apis/{harbours.group}/v1" in admin.get("/openapi/v3").got()["paths"], "the kind in the OpenAPI index"
    )

    calls.eventually(
        lambda: harbours.group in cluster.kubectl("api-resources", "--cached=false"), "the kind in discovery"
    )
    # explain believes an older list of groups for hours, and api-resources reads past that without renewing it.
    shutil.rmtree(cluster.folder / "cache")
    said = cluster.kubectl("explain", f"--api-version={harbours.group}/v1", "harbours.spec")

    assert "berths" in said
    assert "KIND:       Harbour" in said
