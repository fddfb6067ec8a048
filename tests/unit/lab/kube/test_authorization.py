"""Decisions and refusals, word for word as a real API server made them about the same objects."""

from __future__ import annotations

import contextlib
import timeit
from typing import Any

import pytest

from moorage.lab.kube import authorization, guards, kinds, problem, users
from tests.unit.lab.kube import access_world as worlds

RECORDED = worlds.RECORDED
WORLD = worlds.recorded_world()


def asked(row: dict[str, Any]) -> authorization.Attributes:
    keys = ("verb", "group", "resource", "subresource", "namespace", "name", "path")
    fields = tuple((key, value) for key, _, value in [row["fields"].partition("=")]) if row.get("fields") else ()
    return authorization.Attributes(**{key: row.get(key, "") for key in keys}, fields=fields)


def told(row: dict[str, Any]) -> str:
    what = row.get("path") or "/".join(row.get(key, "") for key in ("group", "resource", "subresource", "name"))
    return f"{row['user']}-{row['verb']}-{row.get('namespace', '')}-{what}-{row.get('fields', '')}"


def test_the_table_is_long_enough_to_mean_something() -> None:
    verdicts = [row["allowed"] for row in RECORDED["decisions"]]

    assert min(verdicts.count(True), verdicts.count(False)) > 60


@pytest.mark.parametrize("row", RECORDED["decisions"], ids=told)
def test_a_request_is_judged_as_by_the_real_server(row: dict[str, Any]) -> None:
    yes, reason = authorization.allowed(WORLD.api, worlds.recorded_user(row["user"]), asked(row))

    assert (yes, reason) == (row["allowed"], row["reason"])


@pytest.mark.parametrize("row", RECORDED["refusals"], ids=told)
def test_a_refusal_has_the_words_of_the_real_server(row: dict[str, Any]) -> None:
    user = worlds.recorded_user(row["user"])

    with pytest.raises(problem.Problem) as refusal:
        authorization.require(WORLD.api, user, asked(row))

    assert (refusal.value.code, refusal.value.message) == (403, row["message"])
    assert refusal.value.details == row["details"]


def test_the_lab_itself_may_do_everything() -> None:
    authorization.require(WORLD.api, None, authorization.Attributes("delete", resource="nodes", name="n1"))


def test_a_path_is_no_way_to_put_markup_into_an_answer() -> None:
    with pytest.raises(problem.Problem, match="/&lt;script&gt;&amp;"):
        authorization.require(WORLD.api, users.anonymous(), authorization.Attributes("get", path="/<script>&"))


@pytest.mark.parametrize("row", RECORDED["node_writes"], ids=lambda row: f"{row['method']}-{row['message'][-50:]}")
def test_what_a_kubelet_writes_is_judged_as_by_the_real_server(row: dict[str, Any]) -> None:
    content = row["object"]
    group, _, version = content["apiVersion"].rpartition("/")
    kind = kinds.Kind(group, version, content["kind"], content["kind"].lower() + "s")
    node = WORLD.store.get(("", "nodes"), ("", "n1"))
    assert node is not None
    uid = node.object["metadata"]["uid"]
    for owner in content["metadata"].get("ownerReferences", ()):
        content = {
            **content,
            "metadata": {
                **content["metadata"],
                "ownerReferences": [{**owner, "uid": owner["uid"].replace("@n1", uid)}],
            },
        }

    with contextlib.nullcontext() if row["code"] < 300 else pytest.raises(problem.Problem) as refusal:
        write(row["method"], kind, content)

    if refusal is not None:
        assert (refusal.value.code, refusal.value.message.replace(uid, "@n1")) == (row["code"], row["message"])


def write(method: str, kind: kinds.Kind, content: dict[str, Any], world: worlds.World = WORLD) -> None:
    """What a server does about a write of node n1 before it stores anything."""
    user, name = worlds.recorded_user("n1"), content["metadata"]["name"]
    if method == "POST":
        guards.before_create(world.api, kind, content, user)
    elif method == "PUT":
        before = world.store.get(kind.key, ("", name))
        assert before is not None
        guards.before_update(world.api, kind, before.object, content, "", user)
    else:
        authorization.require(world.api, user, authorization.Attributes("delete", *kind.key, name=name))


def test_a_cluster_may_let_kubelets_say_which_role_they_have() -> None:
    world = worlds.recorded_world()
    world.kubelet_label_domains = ("node-role.kubernetes.io",)
    labels = {"node-role.kubernetes.io/worker": ""}
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1", "labels": labels}}

    write("PUT", world.kind("", "Node"), node, world)
    labels["node-restriction.kubernetes.io/a"] = "b"
    with pytest.raises(problem.Problem, match=r"is not allowed to modify labels: node-restriction\.kubernetes\.io/a$"):
        write("PUT", world.kind("", "Node"), node, world)


def test_a_pod_that_moves_or_goes_takes_its_secrets_from_the_node() -> None:
    world = worlds.recorded_world()
    wanted = authorization.Attributes("get", resource="secrets", namespace="shop", name="foreign")
    pod = {
        **RECORDED["objects"][0],
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "late", "namespace": "shop"},
    }
    pod["spec"] = {"nodeName": "n1", "volumes": [{"name": "v", "secret": {"secretName": "foreign"}}]}
    node = worlds.recorded_user("n1")

    seen = [authorization.allowed(world.api, node, wanted)[0]]
    world.put(pod)
    seen.append(authorization.allowed(world.api, node, wanted)[0])
    world.store.remove(("", "pods"), ("shop", "late"))
    seen.append(authorization.allowed(world.api, node, wanted)[0])

    assert seen == [False, True, False]


def test_a_heartbeat_is_judged_in_microseconds() -> None:
    node = worlds.recorded_user("n1")
    beat = authorization.Attributes("update", "coordination.k8s.io", "leases", "", "kube-node-lease", "n1")

    best = min(timeit.repeat(lambda: authorization.allowed(WORLD.api, node, beat), number=500, repeat=5)) / 500

    assert best < 50e-6
