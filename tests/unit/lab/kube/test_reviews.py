"""Questions about access, answered as the real server answers them."""

from __future__ import annotations

from typing import Any

import pytest

from moorage.lab.kube import authentication, authorization, problem, reviews, users
from tests.unit.lab.kube import access_world as worlds

WORLD = worlds.recorded_world()
ACCESS = authentication.Access(
    tokens={"sesame": users.User("alice", ("devs",), "u1")}, service_account_key=worlds.private_pem(worlds.key("sa"))
)
ADMIN = users.authenticated("system:admin", (users.MASTERS,))
LIST = {"verb": "list", "resource": "pods", "namespace": "shop"}


def ask(kind: str, spec: dict[str, Any], user: users.User = ADMIN, namespace: str = "", name: str = "") -> Any:
    return reviews.answer(WORLD.api, ACCESS, user, kind, namespace, name, {"spec": spec})


def refused(kind: str, spec: dict[str, Any], namespace: str = "", name: str = "") -> tuple[int, str]:
    with pytest.raises(problem.Problem) as refusal:
        ask(kind, spec, namespace=namespace, name=name)
    return refusal.value.code, refusal.value.message


def test_may_i() -> None:
    bob, carol = worlds.recorded_user("bob"), worlds.recorded_user("carol")

    answer = ask("SelfSubjectAccessReview", {"resourceAttributes": LIST}, bob)

    source = 'RoleBinding "devs-read/shop" of Role "pod-reader" to Group "devs"'
    assert answer == {
        "kind": "SelfSubjectAccessReview",
        "apiVersion": "authorization.k8s.io/v1",
        "metadata": {"creationTimestamp": None},
        "spec": {"resourceAttributes": LIST},
        "status": {"allowed": True, "reason": f"RBAC: allowed by {source}"},
    }
    assert ask("SelfSubjectAccessReview", {"resourceAttributes": LIST}, carol)["status"] == {"allowed": False}


@pytest.mark.parametrize("row", worlds.RECORDED["decisions"][::7], ids=lambda row: f"{row['user']}-{row['verb']}")
def test_may_they_is_answered_as_they_would_be_judged(row: dict[str, Any]) -> None:
    user = worlds.recorded_user(row["user"])
    keys = ("verb", "group", "resource", "subresource", "namespace", "name")
    spec: dict[str, Any] = {"user": user.name, "groups": list(user.groups)}
    if row.get("path"):
        spec["nonResourceAttributes"] = {"verb": row["verb"], "path": row["path"]}
    else:
        spec["resourceAttributes"] = {key: row[key] for key in keys if key in row}
        spec["resourceAttributes"]["fieldSelector"] = {"rawSelector": row.get("fields", "")}

    status = ask("SubjectAccessReview", spec)["status"]

    assert (status["allowed"], status.get("reason", "")) == (row["allowed"], row["reason"])


@pytest.mark.parametrize(
    ("selector", "allowed"),
    [
        ({"rawSelector": "spec.nodeName=n1"}, True),
        ({"rawSelector": "status.phase=Running,spec.nodeName==n1"}, True),
        ({"rawSelector": "spec.nodeName!=n1"}, False),
        ({"requirements": [{"key": "spec.nodeName", "operator": "In", "values": ["n1"]}]}, True),
        ({"requirements": [{"key": "spec.nodeName", "operator": "NotIn", "values": ["n1"]}]}, False),
        ({"requirements": [{"key": "spec.nodeName", "operator": "In", "values": ["n1", "n2"]}]}, False),
    ],
)
def test_a_node_may_list_its_own_pods_alone(selector: dict[str, Any], allowed: bool) -> None:
    asked = {"verb": "list", "resource": "pods", "fieldSelector": selector}
    answer = ask("SelfSubjectAccessReview", {"resourceAttributes": asked}, worlds.recorded_user("n1"))

    assert answer["status"]["allowed"] is allowed


def test_may_they_here() -> None:
    spec = {"user": "bob", "groups": ["devs"], "resourceAttributes": LIST}

    answer = ask("LocalSubjectAccessReview", spec, namespace="shop")

    assert answer["status"]["allowed"] is True
    assert answer["metadata"] == {"creationTimestamp": None, "namespace": "shop"}


BOTH = {"resourceAttributes": LIST, "nonResourceAttributes": {"verb": "get", "path": "/x"}}
GROUP = '.authorization.k8s.io "" is invalid: '


@pytest.mark.parametrize(
    ("kind", "spec", "words"),
    [
        (
            "SelfSubjectAccessReview",
            {},
            'spec.resourceAttributes: Invalid value: "null": exactly one of nonResourceAttributes or resourceAttributes'
            " must be specified",
        ),
        (
            "SubjectAccessReview",
            {"resourceAttributes": LIST},
            'spec.user: Invalid value: "": at least one of user or group must be specified',
        ),
        (
            "LocalSubjectAccessReview",
            {"user": "bob", "resourceAttributes": {**LIST, "namespace": "bar"}},
            'spec.resourceAttributes.namespace: Invalid value: "bar": must match metadata.namespace',
        ),
    ],
)
def test_a_question_that_makes_no_sense_is_refused(kind: str, spec: dict[str, Any], words: str) -> None:
    assert refused(kind, spec, namespace="shop") == (422, GROUP + words)


def test_a_question_for_two_things_is_refused() -> None:
    assert "cannot be specified in combination with resourceAttributes" in refused("SelfSubjectAccessReview", BOTH)[1]


def test_a_question_has_no_name() -> None:
    content = {"metadata": {"name": "x"}, "spec": {"resourceAttributes": LIST}}

    with pytest.raises(problem.Problem, match="must be empty"):
        reviews.answer(WORLD.api, ACCESS, ADMIN, "SelfSubjectAccessReview", "", "", content)


def test_what_may_i_lists_what_i_may() -> None:
    bob = worlds.recorded_user("bob")

    status = ask("SelfSubjectRulesReview", {"namespace": "shop"}, bob)["status"]

    assert {"verbs": ["get", "list", "watch"], "apiGroups": [""], "resources": ["pods", "pods/log"]} in status[
        "resourceRules"
    ]
    named = {"verbs": ["get", "update"], "apiGroups": [""], "resources": ["configmaps"], "resourceNames": ["settings"]}
    assert named in status["resourceRules"]
    assert status["incomplete"] is False
    for rule in status["resourceRules"]:
        group, resource, verb = rule["apiGroups"][0], rule["resources"][0], rule["verbs"][0]
        name = rule.get("resourceNames", [""])[0]
        plural, _, sub = resource.replace("*", "any").partition("/")
        asked = authorization.Attributes(verb, group, plural, sub, "shop", name)
        assert authorization.allowed(WORLD.api, bob, asked)[0]


def test_what_may_i_says_what_it_does_not_know() -> None:
    node = ask("SelfSubjectRulesReview", {"namespace": "shop"}, worlds.recorded_user("n1"))["status"]
    lena = ask("SelfSubjectRulesReview", {"namespace": "shop"}, worlds.recorded_user("lena"))["status"]

    assert (node["incomplete"], node["evaluationError"]) == (
        True,
        "node authorizer does not support user rule resolution",
    )
    assert 'role.rbac.authorization.k8s.io "nowhere" not found' in lena["evaluationError"]
    assert refused("SelfSubjectRulesReview", {}) == (400, "no namespace on request")


def test_who_am_i() -> None:
    user = users.User("alice", ("devs",), "u1", {"why": ("a", "b")})

    info = ask("SelfSubjectReview", {}, user)["status"]["userInfo"]

    assert info == {"username": "alice", "uid": "u1", "groups": ["devs"], "extra": {"why": ["a", "b"]}}


@pytest.mark.parametrize(
    ("spec", "status"),
    [
        (
            {"token": "sesame"},
            {
                "authenticated": True,
                "user": {"username": "alice", "uid": "u1", "groups": ["devs", "system:authenticated"]},
                "audiences": ["https://kubernetes.default.svc"],
            },
        ),
        ({"token": "nonsense"}, {"user": {}, "error": "invalid bearer token"}),
        ({"token": "sesame", "audiences": ["x"]}, {"user": {}, "error": "invalid bearer token"}),
    ],
)
def test_whose_token(spec: dict[str, Any], status: dict[str, Any]) -> None:
    assert ask("TokenReview", spec)["status"] == status


def test_a_token_is_required_to_know_whose_it_is() -> None:
    assert refused("TokenReview", {}) == (400, "token is required for TokenReview in authentication")


@pytest.fixture
def account() -> None:
    meta = {"name": "robot", "namespace": "bank"}
    WORLD.put({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": meta})


@pytest.mark.usefixtures("account")
def test_a_token_for_a_vault_is_good_at_the_vault() -> None:
    made = ask("TokenRequest", {"audiences": ["vault"], "expirationSeconds": 700}, namespace="bank", name="robot")
    token = made["status"]["token"]

    here = ask("TokenReview", {"token": token})["status"]
    there = ask("TokenReview", {"token": token, "audiences": ["z", "vault"]})["status"]

    words = 'token audiences ["vault"] is invalid for the target audiences ["https://kubernetes.default.svc"]'
    assert here == {"user": {}, "error": f"[invalid bearer token, {words}]"}
    assert (there["authenticated"], there["audiences"]) == (True, ["vault"])
    assert made["spec"] == {"audiences": ["vault"], "expirationSeconds": 700, "boundObjectRef": None}


@pytest.mark.usefixtures("account")
@pytest.mark.parametrize(
    ("spec", "name", "told"),
    [
        (
            {"expirationSeconds": 5},
            "robot",
            (
                422,
                'TokenRequest.authentication.k8s.io "" is invalid: spec.expirationSeconds: Invalid value: 5: may not'
                " specify a duration less than 10 minutes",
            ),
        ),
        (
            {"boundObjectRef": {"apiVersion": "v1", "kind": "Pod", "name": "nix"}},
            "robot",
            (404, 'pods "nix" not found'),
        ),
        (
            {"boundObjectRef": {"apiVersion": "v1", "kind": "ConfigMap", "name": "nix"}},
            "robot",
            (400, "cannot bind token to object of type /v1, Kind=ConfigMap"),
        ),
        ({}, "nobody", (404, 'serviceaccounts "nobody" not found')),
    ],
)
def test_a_token_that_cannot_be_is_refused(spec: dict[str, Any], name: str, told: tuple[int, str]) -> None:
    assert refused("TokenRequest", spec, "bank", name) == told


@pytest.mark.parametrize(
    ("reference", "words"),
    [
        ({}, "node requested token not bound to a pod"),
        ({"name": "web"}, "node requested token with a pod binding without a uid"),
        ({"name": "elsewhere", "uid": "x"}, "node requested token bound to a pod scheduled on a different node"),
    ],
)
def test_a_node_gets_tokens_for_its_own_pods_alone(reference: dict[str, str], words: str) -> None:
    node = worlds.recorded_user("n1")
    spec = {"boundObjectRef": {"apiVersion": "v1", "kind": "Pod", **reference}} if reference else {}

    with pytest.raises(problem.Problem) as refusal:
        ask("TokenRequest", spec, node, "shop", "clerk")

    assert refusal.value.message == f'serviceaccounts "clerk" is forbidden: {words}'


def test_other_questions_are_not_answered() -> None:
    assert refused("Oracle", {})[0] == 404
