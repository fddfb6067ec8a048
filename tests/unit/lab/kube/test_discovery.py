"""Discovery: what clients are told is served, and that they are told of changes."""

from __future__ import annotations

import pytest

from moorage.lab.kube import builtin_kinds, discovery, kinds


@pytest.fixture
def served() -> kinds.Kinds:
    found = kinds.Kinds()
    for kind in builtin_kinds.kinds():
        found.add(kind)
    return found


def thing(version: str, **more: object) -> kinds.Kind:
    return kinds.Kind("example.com", version, "Thing", "things", custom=True, **more)  # type: ignore[arg-type]


def test_the_core_group_has_its_own_document(served: kinds.Kinds) -> None:
    assert discovery.api_versions(served, "127.0.0.1:6443") == {
        "kind": "APIVersions",
        "versions": ["v1"],
        "serverAddressByClientCIDRs": [{"clientCIDR": "0.0.0.0/0", "serverAddress": "127.0.0.1:6443"}],
    }
    assert "" not in [group["name"] for group in discovery.group_list(served)["groups"]]
    assert discovery.group(served, "") is None


def test_a_group_offers_its_best_version_first(served: kinds.Kinds) -> None:
    for version in ("v1alpha1", "v2beta1", "v1", "v10", "v2beta10", "old"):
        served.add(thing(version))

    found = discovery.group(served, "example.com")

    assert found is not None
    assert [each["version"] for each in found["versions"]] == ["v10", "v1", "v2beta10", "v2beta1", "v1alpha1", "old"]
    assert found["preferredVersion"] == {"groupVersion": "example.com/v10", "version": "v10"}
    assert found["versions"] == next(
        group["versions"] for group in discovery.group_list(served)["groups"] if group["name"] == "example.com"
    )


def test_resources_are_listed_with_their_subresources(served: kinds.Kinds) -> None:
    found = discovery.resource_list(served, "", "v1")
    assert found is not None
    by_name = {resource["name"]: resource for resource in found["resources"]}

    assert by_name["pods"] == {
        "name": "pods",
        "singularName": "pod",
        "namespaced": True,
        "kind": "Pod",
        "verbs": ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"],
        "shortNames": ["po"],
        "categories": ["all"],
    }
    assert by_name["pods/eviction"] == {
        "name": "pods/eviction",
        "singularName": "",
        "namespaced": True,
        "group": "policy",
        "version": "v1",
        "kind": "Eviction",
        "verbs": ["create"],
    }
    assert by_name["namespaces/status"]["verbs"] == ["get", "patch", "update"]
    assert "deletecollection" not in by_name["namespaces"]["verbs"]


def test_nothing_is_listed_where_nothing_is_served(served: kinds.Kinds) -> None:
    assert discovery.resource_list(served, "apps", "v2") is None
    assert discovery.group(served, "example.com") is None


@pytest.mark.parametrize("version", discovery.AGGREGATED)
def test_everything_can_be_asked_for_at_once(served: kinds.Kinds, version: str) -> None:
    served.add(thing("v1", subresources=frozenset({"scale", "status"}), short_names=("th",), singular="thing"))

    found = discovery.aggregated(served, False, version)

    assert (found["kind"], found["apiVersion"]) == ("APIGroupDiscoveryList", f"apidiscovery.k8s.io/{version}")
    group = next(item for item in found["items"] if item["metadata"]["name"] == "example.com")
    assert group["versions"] == [
        {
            "version": "v1",
            "resources": [
                {
                    "resource": "things",
                    "responseKind": {"group": "example.com", "version": "v1", "kind": "Thing"},
                    "scope": "Namespaced",
                    "singularResource": "thing",
                    "verbs": list(kinds.ALL_VERBS),
                    "shortNames": ["th"],
                    "subresources": [
                        {
                            "subresource": "scale",
                            "responseKind": {"group": "autoscaling", "version": "v1", "kind": "Scale"},
                            "verbs": ["get", "patch", "update"],
                        },
                        {
                            "subresource": "status",
                            "responseKind": {"group": "example.com", "version": "v1", "kind": "Thing"},
                            "verbs": ["get", "patch", "update"],
                        },
                    ],
                }
            ],
            "freshness": "Current",
        }
    ]
    assert [item["metadata"] for item in discovery.aggregated(served, True, version)["items"]] == [
        {"creationTimestamp": None}
    ]


def test_a_document_is_kept_until_the_kinds_change(served: kinds.Kinds) -> None:
    before = discovery.resource_list(served, "apps", "v1")
    assert discovery.resource_list(served, "apps", "v1") is before
    assert discovery.resource_list(served, "example.com", "v1") is None

    served.add(thing("v1"))
    assert discovery.resource_list(served, "example.com", "v1") is not None

    served.remove("example.com", "things")
    assert discovery.resource_list(served, "example.com", "v1") is None


def test_two_apis_do_not_share_their_documents(served: kinds.Kinds) -> None:
    other = kinds.Kinds()
    other.add(thing("v1"))

    assert discovery.resource_list(served, "example.com", "v1") is None
    assert discovery.resource_list(other, "example.com", "v1") is not None
