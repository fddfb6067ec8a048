"""The roles of a new cluster."""

from __future__ import annotations

import pytest

from moorage.lab.kube import authorization, rbac, roles, users
from tests.unit.lab.kube import access_world as worlds


def rules_of(world: worlds.World, name: str) -> list[dict[str, list[str]]]:
    entry = world.store.get(rbac.CLUSTER_ROLES, ("", name))
    assert entry is not None
    return list(entry.object["rules"])


@pytest.fixture
def world() -> worlds.World:
    world = worlds.World()
    roles.bootstrap(world.api)
    return world


@pytest.mark.parametrize(
    ("role", "verb", "resource", "allowed"),
    [
        ("view", "list", "pods", True),
        ("view", "get", "secrets", False),
        ("view", "create", "pods", False),
        ("edit", "create", "pods", True),
        ("edit", "list", "pods", True),
        ("edit", "create", "rolebindings", False),
        ("admin", "create", "rolebindings", True),
        ("admin", "create", "pods", True),
        ("admin", "create", "nodes", False),
        ("cluster-admin", "create", "nodes", True),
    ],
)
def test_the_roles_for_people(world: worlds.World, role: str, verb: str, resource: str, allowed: bool) -> None:
    world.put(worlds.binding("ann", role, worlds.user_subject("ann"), namespace="shop"))
    group = rbac.GROUP if resource == "rolebindings" else ""
    asked = authorization.Attributes(verb, group, resource, namespace="shop")

    assert authorization.allowed(world.api, users.authenticated("ann"), asked)[0] is allowed


def test_a_role_with_the_label_becomes_a_part_of_the_aggregated_one_and_ceases_to(world: worlds.World) -> None:
    machines = worlds.rule("get list", "machine.openshift.io", "machines")
    part = worlds.role("machine-view", machines)
    part["metadata"]["labels"] = {"rbac.authorization.k8s.io/aggregate-to-view": "true"}

    world.put(part)
    assert all(machines in rules_of(world, role) for role in ("view", "edit", "admin"))

    world.store.remove(rbac.CLUSTER_ROLES, ("", "machine-view"))
    assert not any(machines in rules_of(world, role) for role in ("view", "edit", "admin"))


def test_roles_that_are_made_of_each_other_settle(world: worlds.World) -> None:
    for name, other, rule in (("a", "b", worlds.rule("get", "", "x")), ("b", "a", worlds.rule("get", "", "y"))):
        source = worlds.role(f"{name}-part", rule)
        source["metadata"]["labels"] = {f"to-{name}": "true"}
        whole = worlds.role(name, aggregationRule={"clusterRoleSelectors": [{"matchLabels": {f"to-{name}": "true"}}]})
        whole["metadata"]["labels"] = {f"to-{other}": "true"}
        world.put(source)
        world.put(whole)

    assert sorted(map(str, rules_of(world, "a"))) == sorted(map(str, rules_of(world, "b")))
    assert len(rules_of(world, "a")) == 2


def test_what_somebody_changed_is_left_alone_when_a_cluster_starts_again(world: worlds.World) -> None:
    changed = worlds.role("system:discovery")
    world.put(changed)

    roles.bootstrap(world.api)

    assert rules_of(world, "system:discovery") == []


def test_a_new_machine_may_ask_for_its_certificate_and_for_nothing_else(world: worlds.World) -> None:
    groups = ("system:serviceaccounts:openshift-machine-config-operator", "system:serviceaccounts")
    name = "system:serviceaccount:openshift-machine-config-operator:node-bootstrapper"
    machine = users.authenticated(name, groups)
    csr = "certificates.k8s.io", "certificatesigningrequests"
    wanted = [authorization.Attributes(verb, *csr) for verb in ("create", "get", "list", "watch", "delete")]
    before = [authorization.allowed(world.api, machine, each)[0] for each in wanted]

    roles.openshift(world.api)

    assert before == [False] * 5
    assert [authorization.allowed(world.api, machine, each)[0] for each in wanted] == [True] * 4 + [False]
    for verb, resource in (("create", "nodes"), ("list", "secrets"), ("get", "nodes")):
        assert not authorization.allowed(world.api, machine, authorization.Attributes(verb, resource=resource))[0]


def test_the_administrator_of_a_new_cluster_may_do_everything() -> None:
    admin = users.authenticated("system:admin", (users.MASTERS,))

    assert authorization.allowed(worlds.World().api, admin, authorization.Attributes("delete", resource="nodes"))[0]
