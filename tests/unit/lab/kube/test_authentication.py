"""Who asks: certificates, tokens of all sorts, impersonation, nobody."""

from __future__ import annotations

import base64
import dataclasses
import json
from typing import Any

import multidict
import pytest
from aiohttp import test_utils
from cryptography.x509.oid import ExtendedKeyUsageOID

from moorage.lab.kube import authentication, callers, problem, reviews, tokens, users
from tests.unit.lab.kube import access_world as worlds

CA_NAME = worlds.name("client-ca")
CA = worlds.certificate(CA_NAME, signed_by=worlds.key("ca"), ca=True, hours=(-2, 24))
STRANGER = worlds.certificate(CA_NAME, signed_by=worlds.key("stranger"), ca=True)
SA_KEY = worlds.private_pem(worlds.key("sa"))
ACCESS = authentication.Access(
    client_ca=worlds.pem(CA),
    tokens={"sesame": users.User("alice", ("devs",), "u1")},
    service_account_key=SA_KEY,
)

ADMIN = users.authenticated("system:admin", (users.MASTERS,))


def shown(*subject: str, access: authentication.Access = ACCESS, **certificate: Any) -> users.User:
    made = {"issuer": CA_NAME, "signed_by": worlds.key("ca"), **certificate}
    leaf = worlds.der(worlds.certificate(worlds.name(*subject), **made))
    return authentication.authenticate(access, worlds.World().api, leaf)


def test_a_certificate_names_its_user_and_their_groups() -> None:
    user = shown("system:node:n1", "system:nodes", "others")

    assert (user.name, user.groups) == ("system:node:n1", ("system:nodes", "others", "system:authenticated"))
    [proof] = user.extra["authentication.kubernetes.io/credential-id"]
    assert proof.startswith("X509SHA256=")


@pytest.mark.parametrize(
    "wrong",
    [
        {"signed_by": worlds.key("stranger")},
        {"issuer": worlds.name("somebody else")},
        {"hours": (-3, -1)},
        {"hours": (1, 2)},
        {"usage": ExtendedKeyUsageOID.SERVER_AUTH},
    ],
    ids=["forged", "unknown issuer", "expired", "not yet", "for servers"],
)
def test_a_certificate_that_does_not_hold_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(problem.Problem) as refusal:
        shown("system:admin", "system:masters", **wrong)

    assert (refusal.value.code, refusal.value.message) == (401, "Unauthorized")


@pytest.mark.parametrize("usage", [None, ExtendedKeyUsageOID.ANY_EXTENDED_KEY_USAGE])
def test_a_certificate_for_anything_is_for_clients_too(usage: Any) -> None:
    assert shown("bob", usage=usage).name == "bob"


def test_an_authority_whose_time_is_over_vouches_for_nobody() -> None:
    old = worlds.certificate(CA_NAME, signed_by=worlds.key("ca"), ca=True, hours=(-3, -1))

    with pytest.raises(problem.Problem):
        shown("bob", access=dataclasses.replace(ACCESS, client_ca=worlds.pem(old)))


def test_one_of_several_authorities_is_enough() -> None:
    both = dataclasses.replace(ACCESS, client_ca=worlds.pem(STRANGER) + worlds.pem(CA))

    assert [shown("bob", access=both, signed_by=worlds.key(ca)).name for ca in ("ca", "stranger")] == ["bob", "bob"]


def test_what_was_examined_once_is_remembered_but_not_beyond_its_time() -> None:
    access = dataclasses.replace(ACCESS)
    leaf = worlds.der(worlds.certificate(worlds.name("bob"), issuer=CA_NAME, signed_by=worlds.key("ca")))
    api = worlds.World().api
    first = authentication.authenticate(access, api, leaf)

    assert authentication.authenticate(access, api, leaf) is first
    access.proofs[leaf] = dataclasses.replace(access.proofs[leaf], not_after=access.proofs[leaf].not_before)
    with pytest.raises(problem.Problem):
        authentication.authenticate(access, api, leaf)


def test_a_certificate_without_a_name_proves_nothing() -> None:
    assert shown("", "system:masters").name == "system:anonymous"


@pytest.mark.parametrize(
    ("header", "name"),
    [
        ("Bearer sesame", "alice"),
        ("bearer sesame", "alice"),
        ("", "system:anonymous"),
        ("Basic c2VzYW1l", "system:anonymous"),
        ("Bearer", "system:anonymous"),
        ("Bearer wrong", None),
        ("Bearer a.b.c", None),
    ],
)
def test_headers(header: str, name: str | None) -> None:
    def ask() -> users.User:
        return authentication.authenticate(ACCESS, worlds.World().api, None, header)

    if name is None:
        with pytest.raises(problem.Problem, match="Unauthorized"):
            ask()
    else:
        assert ask().name == name


def test_groups_tell_who_has_proved_something() -> None:
    api = worlds.World().api

    assert authentication.authenticate(ACCESS, api, None, "Bearer sesame").groups == ("devs", "system:authenticated")
    assert authentication.authenticate(ACCESS, api, None, "").groups == ("system:unauthenticated",)


def test_where_nobody_may_be_anonymous_nobody_is() -> None:
    with pytest.raises(problem.Problem, match="Unauthorized"):
        authentication.authenticate(dataclasses.replace(ACCESS, anonymous=False), worlds.World().api, None, "")


def bootstrap_secret(world: worlds.World, kind: str = tokens.BOOTSTRAP_TOKEN, **data: str) -> None:
    plain = {
        "token-id": "abcdef",
        "token-secret": "0123456789abcdef",
        "usage-bootstrap-authentication": "true",
        "auth-extra-groups": "system:bootstrappers:workers,system:bootstrappers:a",
        **data,
    }
    meta = {"name": "bootstrap-token-abcdef", "namespace": "kube-system"}
    data = {key: worlds.encoded(value) for key, value in plain.items()}
    world.put({"apiVersion": "v1", "kind": "Secret", "metadata": meta, "type": kind, "data": data})


def test_a_bootstrap_token_names_its_groups_until_the_clouds_clock_ends_it() -> None:
    world = worlds.World()
    bootstrap_secret(world, expiration="2999-01-01T00:00:00Z")
    header = "Bearer abcdef.0123456789abcdef"

    user = authentication.authenticate(ACCESS, world.api, None, header)

    assert user.name == "system:bootstrap:abcdef"
    extra = ("system:bootstrappers", "system:bootstrappers:a", "system:bootstrappers:workers")
    assert user.groups == (*extra, "system:authenticated")
    world.later(days=400_000)
    with pytest.raises(problem.Problem):
        authentication.authenticate(ACCESS, world.api, None, header)


@pytest.mark.parametrize(
    "wrong",
    [
        {"token-secret": "0123456789abcdeX"},
        {"token-id": "fedcba"},
        {"usage-bootstrap-authentication": "false"},
        {"auth-extra-groups": "system:masters"},
        {"expiration": "2001-01-01T00:00:00Z"},
        {"expiration": "soon"},
        {"kind": "Opaque"},
    ],
    ids=str,
)
def test_a_bootstrap_token_that_is_not_meant_for_it_is_refused(wrong: dict[str, str]) -> None:
    world = worlds.World()
    bootstrap_secret(world, **wrong)

    with pytest.raises(problem.Problem, match="Unauthorized"):
        authentication.authenticate(ACCESS, world.api, None, "Bearer abcdef.0123456789abcdef")


@dataclasses.dataclass
class Robot:
    """A service account in a world, and how to get tokens for it."""

    world: worlds.World
    access: authentication.Access = ACCESS

    def token(self, **spec: Any) -> str:
        asked = {"spec": spec}
        made = reviews.answer(self.world.api, self.access, users.anonymous(), "TokenRequest", "shop", "robot", asked)
        return str(made["status"]["token"])

    def name(self, token: str) -> str:
        return authentication.authenticate(self.access, self.world.api, None, f"Bearer {token}").name


@pytest.fixture
def robot() -> Robot:
    world = worlds.World()
    world.put({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "robot", "namespace": "shop"}})
    world.put({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}})
    spec = {"serviceAccountName": "robot", "nodeName": "n1"}
    world.put({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web", "namespace": "shop"}, "spec": spec})
    world.put({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "lock", "namespace": "shop"}})
    return Robot(world)


@pytest.mark.parametrize("curve", [True, False], ids=["ES256", "RS256"])
def test_a_service_account_is_known_by_its_token(robot: Robot, curve: bool) -> None:
    robot.access = dataclasses.replace(ACCESS, service_account_key=worlds.private_pem(worlds.key("sa2", curve)))
    token = robot.token()

    user = authentication.authenticate(robot.access, robot.world.api, None, f"Bearer {token}")

    assert user.name == "system:serviceaccount:shop:robot"
    assert user.groups == ("system:serviceaccounts", "system:serviceaccounts:shop", "system:authenticated")
    header = json.loads(base64.urlsafe_b64decode(token.split(".")[0] + "=="))
    assert header["alg"] == ("ES256" if curve else "RS256")


def test_a_public_key_is_enough_to_believe(robot: Robot) -> None:
    believing = authentication.Access(service_account_public_keys=[SA_KEY])

    assert Robot(robot.world, believing).name(robot.token()) == "system:serviceaccount:shop:robot"


def test_a_token_ends_on_the_clouds_clock(robot: Robot) -> None:
    token = robot.token(expirationSeconds=600)
    robot.world.later(minutes=9)
    assert robot.name(token)
    robot.world.later(minutes=3)

    with pytest.raises(problem.Problem, match="Unauthorized"):
        robot.name(token)


def forged(token: str) -> str:
    head, claims, signature = token.split(".")
    told = json.loads(base64.urlsafe_b64decode(claims + "=="))
    told["kubernetes.io"]["serviceaccount"]["name"] = "admin"
    return ".".join((head, base64.urlsafe_b64encode(json.dumps(told).encode()).rstrip(b"=").decode(), signature))


def unsigned(token: str) -> str:
    head = base64.urlsafe_b64encode(b'{"alg":"none"}').rstrip(b"=").decode()
    return f"{head}.{token.split('.')[1]}."


@pytest.mark.parametrize("spoilt", [forged, unsigned], ids=["forged", "unsigned"])
def test_a_token_nobody_signed_is_refused(robot: Robot, spoilt: Any) -> None:
    with pytest.raises(problem.Problem, match="Unauthorized"):
        robot.name(spoilt(robot.token()))


def test_a_token_for_others_is_not_for_this_api(robot: Robot) -> None:
    with pytest.raises(problem.Problem, match="Unauthorized"):
        robot.name(robot.token(audiences=["vault"]))


@pytest.mark.parametrize(("kind", "name"), [("Pod", "web"), ("Secret", "lock"), ("Node", "n1")])
def test_a_token_dies_with_what_it_is_bound_to(robot: Robot, kind: str, name: str) -> None:
    plural = kind.lower() + "s"
    token = robot.token(boundObjectRef={"apiVersion": "v1", "kind": kind, "name": name})
    assert robot.name(token)

    place = ("" if kind == "Node" else "shop", name)
    gone = robot.world.store.remove(("", plural), place)
    with pytest.raises(problem.Problem, match="Unauthorized"):
        robot.name(token)
    # One of the same name is another.
    assert gone is not None
    again = {**gone.object, "metadata": {**gone.object["metadata"], "uid": "another"}}
    robot.world.store.put(("", plural), place, again)
    with pytest.raises(problem.Problem, match="Unauthorized"):
        robot.name(token)


def test_a_token_dies_with_its_account(robot: Robot) -> None:
    token = robot.token()
    robot.world.store.remove(("", "serviceaccounts"), ("shop", "robot"))

    with pytest.raises(problem.Problem, match="Unauthorized"):
        robot.name(token)


def test_a_token_of_a_pod_tells_pod_and_node(robot: Robot) -> None:
    token = robot.token(boundObjectRef={"apiVersion": "v1", "kind": "Pod", "name": "web"})

    extra = authentication.authenticate(ACCESS, robot.world.api, None, f"Bearer {token}").extra

    told = {key.rpartition("/")[2]: values[0] for key, values in extra.items()}
    assert (told["pod-name"], told["node-name"]) == ("web", "n1")


def test_a_token_in_a_secret_is_good_for_as_long_as_the_secret_holds_it(robot: Robot) -> None:
    account = robot.world.store.get(("", "serviceaccounts"), ("shop", "robot"))
    assert account is not None
    meta = {"name": "old", "namespace": "shop"}
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": meta, "type": tokens.SERVICE_ACCOUNT_TOKEN}
    data = tokens.secret_data(ACCESS, secret, account.object, "CA")
    token = base64.b64decode(data["token"]).decode()
    with pytest.raises(problem.Problem):
        robot.name(token)

    robot.world.put({**secret, "data": data})
    robot.world.later(days=10_000)
    assert robot.name(token) == "system:serviceaccount:shop:robot"
    robot.world.put({**secret, "data": {**data, "token": worlds.encoded("changed")}})
    with pytest.raises(problem.Problem):
        robot.name(token)


def acting(world: worlds.World, token: str, *headers: tuple[str, str]) -> users.User:
    access = authentication.Access(tokens={"ivan": worlds.recorded_user("ivan"), "admin": ADMIN})
    proof = ("Authorization", f"Bearer {token}")
    request = test_utils.make_mocked_request("GET", "/", headers=multidict.CIMultiDict([proof, *headers]))
    return callers.caller(world.api, access, request)


def test_only_those_who_may_act_as_others() -> None:
    world = worlds.recorded_world()

    user = acting(world, "ivan", ("Impersonate-User", "bob"), ("Impersonate-Group", "devs"))

    assert (user.name, user.groups) == ("bob", ("devs", "system:authenticated"))
    with pytest.raises(problem.Problem) as refusal:
        acting(world, "ivan", ("Impersonate-User", "system:admin"))
    assert refusal.value.message == (
        'users "system:admin" is forbidden: User "ivan" cannot impersonate resource "users" in API group "" at the'
        " cluster scope"
    )


def test_one_acts_as_a_service_account_with_its_groups() -> None:
    headers = [("Impersonate-User", "system:serviceaccount:shop:robot"), ("Impersonate-Extra-Reason", "drill")]

    user = acting(worlds.World(), "admin", *headers, ("Impersonate-Uid", "7"))

    assert user.uid == "7"
    assert user.groups == ("system:serviceaccounts", "system:serviceaccounts:shop", "system:authenticated")
    assert user.extra == {"reason": ("drill",)}


def test_one_may_act_as_somebody_who_has_proved_nothing() -> None:
    user = acting(worlds.World(), "admin", ("Impersonate-User", "bob"), ("Impersonate-Group", "system:unauthenticated"))

    assert user.groups == ("system:unauthenticated",)


def test_who_acts_as_nobody_keeps_the_groups_they_asked_for() -> None:
    headers = [
        ("Impersonate-User", "system:anonymous"),
        ("Impersonate-Group", "devs"),
        ("Impersonate-Uid", "7"),
        ("Impersonate-Extra-Reason", "drill"),
    ]

    user = acting(worlds.World(), "admin", *headers)

    assert (user.groups, user.uid) == (("devs", "system:unauthenticated"), "7")
    assert user.extra == {"reason": ("drill",)}
