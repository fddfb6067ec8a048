"""Rules, bindings, what is remembered of them, and that nobody hands out more than they hold."""

from __future__ import annotations

import contextlib
from typing import Any

import hypothesis
import pytest
from hypothesis import strategies

from moorage.lab.kube import authorization, escalation, problem, rbac, users
from tests.unit.lab.kube import access_world as worlds

ANN = users.authenticated("ann")
LIST_PODS = authorization.Attributes("list", resource="pods", namespace="shop")


def may(world: worlds.World, user: users.User = ANN) -> bool:
    return authorization.allowed(world.api, user, LIST_PODS)[0]


def test_a_change_of_a_role_or_a_binding_counts_at_once() -> None:
    world = worlds.World()
    reads, nothing = worlds.role("reader", worlds.rule("list", "", "pods")), worlds.role("reader")
    bound = worlds.binding("ann-reads", "reader", worlds.user_subject("ann"))
    seen = [may(world)]

    for step in (reads, bound, nothing, reads):
        world.put(step)
        seen.append(may(world))
    world.store.remove(rbac.CLUSTER_ROLE_BINDINGS, ("", "ann-reads"))
    seen.append(may(world))

    assert seen == [False, False, True, False, True, False]


def test_two_clusters_do_not_share_what_they_remember() -> None:
    one, other = worlds.World(), worlds.World()
    one.put(worlds.role("reader", worlds.rule("list", "", "pods")))
    one.put(worlds.binding("ann-reads", "reader", worlds.user_subject("ann")))

    assert (may(one), may(other)) == (True, False)


def test_a_service_account_without_a_namespace_is_of_the_bindings_own() -> None:
    world = worlds.World()
    world.put(worlds.role("reader", worlds.rule("list", "", "pods")))
    subject = {"kind": "ServiceAccount", "name": "robot"}
    world.put(worlds.binding("here", "reader", subject, namespace="shop"))
    world.put(worlds.binding("nowhere", "reader", {"kind": "ServiceAccount", "name": "lost"}))

    assert may(world, users.service_account("shop", "robot"))
    assert not may(world, users.service_account("bank", "robot"))
    assert not may(world, users.User("system:serviceaccount::lost"))


def test_what_cannot_be_followed_is_told_once() -> None:
    world = worlds.World()
    for number in (1, 2):
        world.put(worlds.binding(f"astray{number}", "missing", worlds.user_subject("ann")))
    world.put(worlds.binding("odd", "x", worlds.user_subject("ann"), kind="Widget"))

    reason = authorization.allowed(world.api, ANN, LIST_PODS)[1]

    missing = 'clusterrole.rbac.authorization.k8s.io "missing" not found'
    assert reason == f'RBAC: [{missing}, unsupported role reference kind: "Widget"]'


@pytest.mark.parametrize(
    ("pattern", "path", "covered"),
    [("/a", "/a", True), ("/a", "/a/", False), ("/a/*", "/a/b/c", True), ("/a/*", "/a", False), ("*", "/x", True)],
)
def test_paths(pattern: str, path: str, covered: bool) -> None:
    assert rbac.covers_path(pattern, path) is covered


@pytest.mark.parametrize(
    "row", worlds.RECORDED["escalations"], ids=lambda row: f"{row['user']}-{row['object']['kind']}-{row['code']}"
)
def test_a_grant_is_judged_as_by_the_real_server(row: dict[str, Any]) -> None:
    world = worlds.recorded_world()
    content = row["object"]
    key = (rbac.GROUP, content["kind"].lower() + "s")
    namespace = content["metadata"].get("namespace", "")

    with contextlib.nullcontext() if row["code"] == 201 else pytest.raises(problem.Problem) as refusal:
        escalation.check(world.api, worlds.recorded_user(row["user"]), key, namespace, None, content)

    if refusal is not None:
        assert (refusal.value.code, refusal.value.message) == (row["code"], row["message"])


def test_a_change_of_owners_alone_hands_out_nothing() -> None:
    world = worlds.recorded_world()
    before = worlds.role("mighty", worlds.rule("*", "*", "*"), namespace="shop")
    after = {**before, "metadata": {**before["metadata"], "finalizers": ["x"]}}
    owen = worlds.recorded_user("owen")

    escalation.check(world.api, owen, rbac.ROLES, "shop", before, after)
    labelled = {**before, "metadata": {**before["metadata"], "labels": {"a": "b"}}}
    with pytest.raises(problem.Problem, match="not currently held"):
        escalation.check(world.api, owen, rbac.ROLES, "shop", before, labelled)


@pytest.mark.parametrize(
    ("names", "wanted", "covered"),
    [(["a", "b"], ["a"], True), (["a"], ["b"], False), (["a"], [], False), ([], ["a"], True)],
)
def test_who_holds_a_name_does_not_hold_them_all(names: list[str], wanted: list[str], covered: bool) -> None:
    world = worlds.World()
    pods = worlds.rule("get", "", "pods")
    world.put(worlds.role("held", {**pods, "resourceNames": names}))
    world.put(worlds.binding("ann-holds", "held", worlds.user_subject("ann")))
    copy = worlds.role("copy", {**pods, "resourceNames": wanted})

    with contextlib.nullcontext() if covered else pytest.raises(problem.Problem, match="not currently held"):
        escalation.check(world.api, ANN, rbac.CLUSTER_ROLES, "", None, copy)


WORDS = strategies.sampled_from(["*", "get", "pods", "pods/log", "*/log", "apps", ""])
LISTS = strategies.lists(WORDS, min_size=1, max_size=3)
RULES = strategies.fixed_dictionaries(
    {"verbs": LISTS, "apiGroups": LISTS, "resources": LISTS}, optional={"resourceNames": LISTS}
)


@hypothesis.settings(deadline=None)
@hypothesis.given(RULES)
def test_everybody_may_hand_on_exactly_what_they_hold(rule: dict[str, list[str]]) -> None:
    world = worlds.World()
    held = worlds.role("held", rule)
    world.put(held)
    world.put(worlds.binding("ann-holds", "held", worlds.user_subject("ann")))

    escalation.check(world.api, ANN, rbac.CLUSTER_ROLES, "", None, worlds.role("copy", rule))
