"""Lists: selected by labels and fields, in pages of one moment, as tables and as metadata alone."""

from __future__ import annotations

import pytest

from tests.kube import calls, objects
from tests.kube import cluster as clusters

FLEET = {
    "anna": {"class": "tug", "size": "small"},
    "bella": {"class": "tug", "size": "large"},
    "carla": {"class": "ferry", "size": "large"},
    "dora": {"class": "ferry"},
    "emma": {"fleet": "yes"},
}


@pytest.fixture
def fleet(admin: calls.Caller, namespace: str) -> str:
    """The path of config maps with the labels of FLEET; each is labelled as one of the fleet."""
    path = f"/api/v1/namespaces/{namespace}/configmaps"
    for name, labels in FLEET.items():
        admin.post(path, objects.config_map(name, {"n": name}, labels={**labels, "fleet": "yes"})).got(201)
    return path


def names(answer: calls.Answer) -> list[str]:
    return [each["metadata"]["name"] for each in answer.got()["items"]]


def test_a_list_is_in_order_and_of_one_version(admin: calls.Caller, fleet: str) -> None:
    found = admin.get(fleet, labelSelector="fleet=yes").got()

    assert (found["kind"], found["apiVersion"]) == ("ConfigMapList", "v1")
    assert [each["metadata"]["name"] for each in found["items"]] == sorted(FLEET)
    assert not any("kind" in each or "apiVersion" in each for each in found["items"])
    newest = max(int(each["metadata"]["resourceVersion"]) for each in found["items"])
    assert int(found["metadata"]["resourceVersion"]) >= newest


@pytest.mark.parametrize(
    ("selector", "expected"),
    [
        ("class=tug", "anna bella"),
        ("class==tug,size=large", "bella"),
        ("class!=tug", "carla dora emma"),
        ("class in (tug, ferry),size", "anna bella carla"),
        ("class notin (tug)", "carla dora emma"),
        ("!class", "emma"),
        ("class=", ""),
    ],
)
def test_labels_select(admin: calls.Caller, fleet: str, selector: str, expected: str) -> None:
    assert " ".join(names(admin.get(fleet, labelSelector=f"fleet=yes,{selector}"))) == expected


@pytest.mark.parametrize("selector", ["class=tug,,", "class in tug", "a b", "-x=1", "class=_"])
def test_a_selector_that_cannot_be_read_is_refused(admin: calls.Caller, fleet: str, selector: str) -> None:
    admin.get(fleet, labelSelector=selector).refused(400, "BadRequest")


def test_fields_select(admin: calls.Caller, namespace: str, fleet: str) -> None:
    assert names(admin.get(fleet, fieldSelector="metadata.name=carla")) == ["carla"]
    rest = admin.get(fleet, fieldSelector="metadata.name!=carla", labelSelector="fleet=yes")
    assert names(rest) == ["anna", "bella", "dora", "emma"]
    everywhere = admin.get("/api/v1/configmaps", fieldSelector=f"metadata.namespace={namespace},metadata.name=dora")
    assert names(everywhere) == ["dora"]

    answer = admin.get(fleet, fieldSelector="data.n=anna")
    answer.refused(400, "BadRequest", '"data.n" is not a known field selector: only "metadata.name"')


def test_some_kinds_have_fields_of_their_own(admin: calls.Caller, namespace: str) -> None:
    pods, secrets = (f"/api/v1/namespaces/{namespace}/{plural}" for plural in ("pods", "secrets"))
    admin.post(pods, objects.pod("bound", "some-node")).got(201)
    admin.post(pods, objects.pod("loose")).got(201)
    admin.post(secrets, objects.secret("typed", {"a": "1"}, "example.com/kind")).got(201)

    assert names(admin.get(pods, fieldSelector="spec.nodeName=some-node")) == ["bound"]
    assert names(admin.get(pods, fieldSelector="spec.nodeName=")) == ["loose"]
    assert names(admin.get(pods, fieldSelector="status.phase!=Pending")) == []
    assert names(admin.get(secrets, fieldSelector="type=example.com/kind")) == ["typed"]
    answer = admin.get(pods, fieldSelector="spec.colour=red")
    answer.refused(400, "BadRequest", "field label not supported: spec.colour")


def test_pages_show_one_moment(admin: calls.Caller, fleet: str) -> None:
    """Given a list begun in pages, when objects come and go meanwhile, then the pages show the list as it was."""
    query = {"labelSelector": "fleet=yes", "limit": 2}
    first = admin.get(fleet, **query).got()
    admin.delete(f"{fleet}/carla").got()
    admin.post(fleet, objects.config_map("zora", labels={"fleet": "yes"})).got(201)

    second = admin.get(fleet, **query, **{"continue": first["metadata"]["continue"]}).got()
    third = admin.get(fleet, **query, **{"continue": second["metadata"]["continue"]}).got()

    pages = [[each["metadata"]["name"] for each in page["items"]] for page in (first, second, third)]
    assert pages == [["anna", "bella"], ["carla", "dora"], ["emma"]]
    assert "continue" not in third["metadata"]
    versions = {page["metadata"]["resourceVersion"] for page in (first, second, third)}
    assert len(versions) == 1


def test_an_unselected_page_says_how_many_remain(admin: calls.Caller, namespace: str, harbours: objects.Custom) -> None:
    for name in FLEET:
        admin.post(harbours.at(namespace), harbours.object(name)).got(201)

    page = admin.get(harbours.at(namespace), limit=2).got()

    assert page["metadata"]["remainingItemCount"] == 3
    everywhere = admin.get(f"/apis/{harbours.group}/v1/harbours", limit=5).got()
    assert len(everywhere["items"]) == 5
    assert everywhere["metadata"].get("continue", "") == ""


def test_a_page_of_a_forgotten_moment_has_to_be_begun_anew(
    cluster: clusters.Cluster, admin: calls.Caller, fleet: str
) -> None:
    """Given pages begun at a moment that the store forgets, then 410, with a token that goes on inconsistently."""
    query = {"labelSelector": "fleet=yes", "limit": 2}
    begun = admin.get(fleet, **query).got()["metadata"]["continue"]
    admin.delete(f"{fleet}/carla").got()
    cluster.compact()

    answer = admin.get(fleet, **query, **{"continue": begun})

    refusal = answer.refused(410, "Expired", "The provided continue parameter is too old")
    rest = admin.get(fleet, labelSelector="fleet=yes", **{"continue": refusal["metadata"]["continue"]})
    assert names(rest) == ["dora", "emma"]


def test_a_continue_token_that_is_none_is_refused(admin: calls.Caller, fleet: str) -> None:
    admin.get(fleet, limit=2, **{"continue": "nonsense"}).refused(400, "BadRequest", "continue key is not valid")


def test_a_list_can_be_asked_for_at_a_version(admin: calls.Caller, fleet: str) -> None:
    before = admin.get(fleet, labelSelector="fleet=yes").got()["metadata"]["resourceVersion"]
    admin.delete(f"{fleet}/anna").got()

    exact = admin.get(fleet, labelSelector="fleet=yes", resourceVersion=before, resourceVersionMatch="Exact")
    fresh = admin.get(fleet, labelSelector="fleet=yes")

    assert names(exact) == sorted(FLEET)
    assert names(fresh) == sorted(set(FLEET) - {"anna"})
    admin.get(fleet, resourceVersionMatch="Exact").refused(422, "Invalid", "resourceVersionMatch")
    admin.get(fleet, resourceVersion="abc").refused(400, "BadRequest", "abc")
    future = admin.get(f"{fleet}/bella", resourceVersion=str(int(before) + 1_000_000))
    future.refused(504, "Timeout", "Too large resource version")


TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"


def test_a_list_can_be_a_table(admin: calls.Caller, namespace: str, harbours: objects.Custom) -> None:
    admin.post(harbours.at(namespace), harbours.object("north", {"berths": 3, "depth": "12m"})).got(201)

    table = admin.call("GET", harbours.at(namespace), headers={"Accept": TABLE}).got()

    assert (table["kind"], table["apiVersion"]) == ("Table", "meta.k8s.io/v1")
    assert [(each["name"], each["type"], each["priority"]) for each in table["columnDefinitions"]] == [
        ("Name", "string", 0),
        ("Berths", "integer", 0),
        ("Depth", "string", 1),
        ("Age", "date", 0),
    ]
    (row,) = table["rows"]
    assert row["cells"][:3] == ["north", 3, "12m"]
    assert row["object"]["kind"] == "PartialObjectMetadata"
    assert row["object"]["metadata"]["name"] == "north"


@pytest.mark.parametrize(
    ("plural", "group", "columns"),
    [
        ("configmaps", "/api/v1", "Name Data Age"),
        ("pods", "/api/v1", "Name Ready Status Restarts Age IP Node Nominated_Node Readiness_Gates"),
        ("secrets", "/api/v1", "Name Type Data Age"),
        (
            "nodes",
            "/api/v1",
            "Name Status Roles Age Version Internal-IP External-IP OS-Image Kernel-Version Container-Runtime",
        ),
        ("deployments", "/apis/apps/v1", "Name Ready Up-to-date Available Age Containers Images Selector"),
        (
            "certificatesigningrequests",
            "/apis/certificates.k8s.io/v1",
            "Name Age SignerName Requestor RequestedDuration Condition",
        ),
        ("leases", "/apis/coordination.k8s.io/v1", "Name Holder Age"),
        ("namespaces", "/api/v1", "Name Status Age"),
        ("events", "/api/v1", "Last_Seen Type Reason Object Subobject Source Message First_Seen Count Name"),
        ("services", "/api/v1", "Name Type Cluster-IP External-IP Port(s) Age Selector"),
        ("customresourcedefinitions", "/apis/apiextensions.k8s.io/v1", "Name Created_At"),
        ("poddisruptionbudgets", "/apis/policy/v1", "Name Min_Available Max_Unavailable Allowed_Disruptions Age"),
    ],
)
def test_tables_have_the_columns_people_know(admin: calls.Caller, plural: str, group: str, columns: str) -> None:
    table = admin.call("GET", f"{group}/{plural}", headers={"Accept": TABLE}).got()

    assert [each["name"] for each in table["columnDefinitions"]] == [word.replace("_", " ") for word in columns.split()]


def test_metadata_can_be_had_alone(admin: calls.Caller, fleet: str) -> None:
    accept = {"Accept": "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io,application/json"}
    found = admin.call("GET", f"{fleet}?labelSelector=fleet", headers=accept).got()
    assert found["kind"] == "PartialObjectMetadataList"
    assert [each["kind"] for each in found["items"]] == ["PartialObjectMetadata"] * len(FLEET)
    assert not any("data" in each for each in found["items"])

    accept = {"Accept": "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io,application/json"}
    one = admin.call("GET", f"{fleet}/anna", headers=accept).got()
    assert (one["kind"], one["metadata"]["labels"]["class"]) == ("PartialObjectMetadata", "tug")


def test_what_cannot_be_sent_is_not_acceptable(admin: calls.Caller, fleet: str) -> None:
    assert admin.call("GET", fleet, headers={"Accept": "text/html"}).code == 406
