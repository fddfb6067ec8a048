"""Who somebody is: by certificate, by token of several kinds, or nobody."""

from __future__ import annotations

import base64
import datetime
import json
import secrets
from collections.abc import Callable, Iterator

import pytest
import urllib3

from tests.kube import calls, objects, pki
from tests.kube import cluster as clusters

REVIEW = "/apis/authentication.k8s.io/v1/selfsubjectreviews"


def whoami(caller: calls.Caller) -> calls.Object:
    """What the server takes somebody for."""
    body = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
    found: calls.Object = caller.post(REVIEW, body).got(201)["status"]["userInfo"]
    return found


def test_a_certificate_names_a_user_and_groups(cluster: clusters.Cluster) -> None:
    info = whoami(cluster.caller("alice", ("sailors", "cooks")))

    assert info["username"] == "alice"
    assert info["groups"] == ["sailors", "cooks", "system:authenticated"]


def test_a_certificate_of_somebody_else_is_none(cluster: clusters.Cluster) -> None:
    """Signed by an authority the server does not know: the caller is refused, not let in as nobody."""
    stranger = cluster.with_pair("stranger", pki.Authority("elsewhere").client("admin", clusters.ADMINS))

    try:
        answer = stranger.get("/api/v1/namespaces")
    except urllib3.exceptions.HTTPError:
        # Python's TLS cannot let a bad certificate pass the handshake, only to refuse it afterwards.
        assert cluster.kind == "lab"
    else:
        answer.refused(401, "Unauthorized", "Unauthorized")


def test_a_static_token_names_a_user(cluster: clusters.Cluster) -> None:
    for token, (user, groups) in clusters.TOKENS.items():
        info = whoami(cluster.with_token(token))
        assert (info["username"], info["groups"]) == (user, [*groups, "system:authenticated"])


def test_a_wrong_token_is_refused(cluster: clusters.Cluster) -> None:
    refusal = cluster.with_token("nonsense").get("/api/v1/namespaces").refused(401, "Unauthorized")
    assert refusal["message"] == "Unauthorized"


def test_nobody_may_see_health_and_little_else(cluster: clusters.Cluster) -> None:
    nobody = cluster.with_token()

    refusal = nobody.get("/api/v1/namespaces").refused(403, "Forbidden")

    assert refusal["message"] == (
        'namespaces is forbidden: User "system:anonymous" cannot list resource "namespaces" in API group "" '
        "at the cluster scope"
    )
    assert nobody.get("/version").code == 200
    assert nobody.get("/api").code == 403


@pytest.fixture
def bootstrap_token(admin: calls.Caller) -> Iterator[Callable[..., str]]:
    """Makes bootstrap tokens."""
    made: list[str] = []

    def make(**changes: str) -> str:
        identity, secret = secrets.token_hex(3), secrets.token_hex(8)
        data = {"token-id": identity, "token-secret": secret, "usage-bootstrap-authentication": "true", **changes}
        body = objects.secret(f"bootstrap-token-{identity}", data, "bootstrap.kubernetes.io/token")
        admin.post("/api/v1/namespaces/kube-system/secrets", body).got(201)
        made.append(identity)
        # An apiserver looks at a cache of secrets.
        calls.eventually(lambda: cache_has(admin, identity), "the token known")
        return f"{identity}.{secret}"

    yield make
    for identity in made:
        admin.delete(f"/api/v1/namespaces/kube-system/secrets/bootstrap-token-{identity}")


def cache_has(admin: calls.Caller, identity: str) -> bool:
    path = f"/api/v1/namespaces/kube-system/secrets/bootstrap-token-{identity}"
    return admin.get(path, resourceVersion="0").code == 200


def moment(seconds: int) -> str:
    then = datetime.datetime.now(datetime.UTC) + datetime.timedelta(seconds=seconds)
    return then.strftime("%Y-%m-%dT%H:%M:%SZ")


def test_a_bootstrap_token_names_a_bootstrapper(cluster: clusters.Cluster, bootstrap_token: Callable[..., str]) -> None:
    token = bootstrap_token(expiration=moment(3600), **{"auth-extra-groups": "system:bootstrappers:nodes"})
    bootstrapper = cluster.with_token(token)

    info = calls.eventually(
        lambda: bootstrapper.post(REVIEW, {}).code != 401 and whoami(bootstrapper), "the token accepted"
    )

    assert info["username"] == f"system:bootstrap:{token[:6]}"
    assert info["groups"] == ["system:bootstrappers", "system:bootstrappers:nodes", "system:authenticated"]


def test_bootstrap_tokens_that_are_not_valid(
    cluster: clusters.Cluster, admin: calls.Caller, bootstrap_token: Callable[..., str]
) -> None:
    good = bootstrap_token()
    calls.eventually(lambda: cluster.with_token(good).get("/api").code == 200, "a good token accepted")
    expired = bootstrap_token(expiration=moment(-60))
    other_use = bootstrap_token(**{"usage-bootstrap-authentication": "false"})

    for token in (expired, other_use, good[:7] + "0" * 16):
        cluster.with_token(token).get("/api").refused(401, "Unauthorized")

    admin.delete(f"/api/v1/namespaces/kube-system/secrets/bootstrap-token-{good[:6]}").got()
    calls.eventually(lambda: cluster.with_token(good).get("/api").code == 401, "a deleted token refused")


def account(admin: calls.Caller, namespace: str, name: str) -> str:
    path = f"/api/v1/namespaces/{namespace}/serviceaccounts"
    body = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name}}
    admin.post(path, body).got(201)
    return f"{path}/{name}"


def claims(token: str) -> calls.Object:
    part = token.split(".")[1]
    found: calls.Object = json.loads(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)))
    return found


def test_a_service_account_asks_for_a_token(cluster: clusters.Cluster, admin: calls.Caller, namespace: str) -> None:
    path = account(admin, namespace, "robot")
    body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 3600}}

    made = admin.post(f"{path}/token", body).got(201)

    token = made["status"]["token"]
    robot = cluster.with_token(token)
    info = whoami(robot)
    assert info["username"] == f"system:serviceaccount:{namespace}:robot"
    assert info["groups"] == ["system:serviceaccounts", f"system:serviceaccounts:{namespace}", "system:authenticated"]
    said = claims(token)
    assert (said["iss"], said["sub"]) == ("https://kubernetes.default.svc", info["username"])
    assert said["exp"] - said["iat"] == 3600
    assert said["kubernetes.io"]["serviceaccount"]["name"] == "robot"

    admin.delete(path).got()
    calls.eventually(lambda: robot.get("/api").code == 401, "the token of a deleted account refused")


def test_a_token_for_others_is_none_here(cluster: clusters.Cluster, admin: calls.Caller, namespace: str) -> None:
    path = account(admin, namespace, "robot")
    body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"audiences": ["elsewhere"]}}
    token = admin.post(f"{path}/token", body).got(201)["status"]["token"]

    cluster.with_token(token).get("/api").refused(401, "Unauthorized")
    head, payload, signature = token.split(".")
    changed = "A" if signature[0] != "A" else "B"
    cluster.with_token(f"{head}.{payload}.{changed}{signature[1:]}").get("/api").refused(401, "Unauthorized")
    short = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 60}}
    refused = admin.post(f"{path}/token", short)
    refused.refused(422, "Invalid", "may not specify a duration less than 10 minutes")


def test_tokens_are_reviewed_for_others(cluster: clusters.Cluster, admin: calls.Caller) -> None:
    def review(token: str) -> calls.Object:
        body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {"token": token}}
        found: calls.Object = admin.post("/apis/authentication.k8s.io/v1/tokenreviews", body).got(201)["status"]
        return found

    known = review("token-of-a-developer")
    assert (known["authenticated"], known["user"]["username"]) == (True, "dana")
    assert not review("nonsense").get("authenticated")


def test_kubectl_asks_who_it_is(cluster: clusters.Cluster, admin: calls.Caller, namespace: str) -> None:
    cluster.needs_kubectl(28)
    dana = cluster.token_kubeconfig("token-of-a-developer", "dana")
    said = cluster.kubectl("auth", "whoami", kubeconfig=dana)
    assert "dana" in said
    assert "developers" in said

    account(admin, namespace, "robot")
    token = cluster.kubectl("create", "token", "robot", "-n", namespace).strip()
    assert whoami(cluster.with_token(token))["username"] == f"system:serviceaccount:{namespace}:robot"


def test_an_administrator_can_act_as_another(cluster: clusters.Cluster, admin: calls.Caller) -> None:
    acting = {"Impersonate-User": "alice", "Impersonate-Group": "sailors"}
    found = admin.call(
        "POST", REVIEW, {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}, headers=acting
    )
    info = found.got(201)["status"]["userInfo"]
    assert (info["username"], info["groups"]) == ("alice", ["sailors", "system:authenticated"])

    bob = cluster.caller("bob")
    refusal = bob.call("GET", "/api", headers={"Impersonate-User": "alice"}).refused(403, "Forbidden")
    assert 'users "alice" is forbidden: User "bob" cannot impersonate resource "users"' in refusal["message"]
