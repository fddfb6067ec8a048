"""Who may join: every rule, and what those try who should not."""

from __future__ import annotations

import base64
import datetime
import ipaddress
from collections.abc import Sequence
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509 import oid

from moorage.machines import approval

NODE = "berth-x7k2p-worker-0-q7xk2"
OTHER = "berth-x7k2p-worker-0-zz4bb"
MADE = datetime.datetime(2026, 3, 1, 12, 0, 0, tzinfo=datetime.UTC)
ASKED = MADE + datetime.timedelta(minutes=20)
MACHINE = approval.Machine(NODE, MADE, addresses=("10.0.0.31", "fd00::31"))
NEIGHBOUR = approval.Machine(OTHER, MADE, addresses=("10.0.0.32",))
KEY = ec.generate_private_key(ec.SECP256R1())

NEW_MACHINE: dict[str, Any] = {
    "username": approval.BOOTSTRAPPER,
    "groups": [
        "system:serviceaccounts:openshift-machine-config-operator",
        "system:serviceaccounts",
        "system:authenticated",
    ],
    "signerName": approval.CLIENT,
    "usages": ["digital signature", "client auth"],
}
ITSELF: dict[str, Any] = {
    "username": f"system:node:{NODE}",
    "groups": ["system:nodes", "system:authenticated"],
    "signerName": approval.SERVING,
    "usages": ["digital signature", "server auth"],
}
OWN = (x509.DNSName(NODE), x509.IPAddress(ipaddress.ip_address("10.0.0.31")))


def subject(
    common: str = f"system:node:{NODE}", organizations: Sequence[str] = ("system:nodes",), *more: x509.NameAttribute
) -> x509.Name:
    named = [x509.NameAttribute(oid.NameOID.ORGANIZATION_NAME, name) for name in organizations]
    return x509.Name([*named, x509.NameAttribute(oid.NameOID.COMMON_NAME, common), *more])


def csr(
    of: x509.Name | None = None,
    names: Sequence[x509.GeneralName] = (),
    extra: Sequence[x509.ExtensionType] = (),
) -> bytes:
    builder = x509.CertificateSigningRequestBuilder().subject_name(of if of is not None else subject())
    if names:
        builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
    for extension in extra:
        builder = builder.add_extension(extension, critical=False)
    return builder.sign(KEY, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)


def asking(content: bytes, spec: dict[str, Any], at: datetime.datetime = ASKED, **changes: Any) -> dict[str, Any]:
    return {
        "metadata": {"name": "csr-7", "creationTimestamp": at.strftime("%Y-%m-%dT%H:%M:%SZ")},
        "spec": {**spec, **changes, "request": base64.b64encode(content).decode()},
        "status": {},
    }


def client(content: bytes | None = None, at: datetime.datetime = ASKED, **changes: Any) -> dict[str, Any]:
    return asking(csr() if content is None else content, NEW_MACHINE, at, **changes)


def serving(content: bytes | None = None, **changes: Any) -> dict[str, Any]:
    return asking(csr(names=OWN) if content is None else content, ITSELF, **changes)


def judged(
    request: dict[str, Any],
    machines: Sequence[approval.Machine] = (MACHINE, NEIGHBOUR),
    nodes: Sequence[str] = (),
    pending: int = 1,
    shown: x509.Certificate | None = None,
) -> approval.Verdict:
    return approval.judge(request, machines, nodes, pending, ASKED, shown)


def why_not(verdict: approval.Verdict) -> str:
    assert isinstance(verdict, approval.Refuse), verdict
    return verdict.reason


def test_a_new_machine_is_let_in() -> None:
    assert judged(client()) == approval.Approve(NODE, "client")


def test_a_node_gets_its_serving_certificate() -> None:
    assert judged(serving(), nodes=[NODE]) == approval.Approve(NODE, "serving")


@pytest.mark.parametrize("make", [client, serving])
def test_older_kubelets_ask_for_encipherment_too(make: Any) -> None:
    purpose = "client auth" if make is client else "server auth"
    request = make(usages=["digital signature", "key encipherment", purpose])

    assert isinstance(judged(request, nodes=[NODE] if make is serving else []), approval.Approve)


CLIENT_RULES = {
    "somebody else's username": (client(username="system:serviceaccount:default:default"), "is not who new machines"),
    "a node in place of the bootstrapper": (client(username=f"system:node:{OTHER}"), "is not who new machines"),
    "the administrator": (client(username="system:admin"), "is not who new machines"),
    "a group less": (client(groups=NEW_MACHINE["groups"][1:]), "groups"),
    "a group more": (client(groups=[*NEW_MACHINE["groups"], "system:masters"]), "groups"),
    "no groups": (client(groups=None), "groups"),
    "a second organization": (client(csr(subject(organizations=("system:nodes", "system:masters")))), "organization"),
    "another organization": (client(csr(subject(organizations=("system:masters",)))), "organization"),
    "no organization": (client(csr(subject(organizations=()))), "organization"),
    "not a node's name": (client(csr(subject("admin"))), "which is no node"),
    "a node without a name": (client(csr(subject("system:node:"))), "which is no node"),
    "two names": (
        client(csr(subject("system:node:x", ("system:nodes",), x509.NameAttribute(oid.NameOID.COMMON_NAME, "y")))),
        "which is no node",
    ),
    "more in the subject": (
        client(
            csr(subject(f"system:node:{NODE}", ("system:nodes",), x509.NameAttribute(oid.NameOID.COUNTRY_NAME, "DE")))
        ),
        "says more",
    ),
    "names in a client certificate": (client(csr(names=OWN)), "besides its subject"),
    "a CA in a client certificate": (client(csr(extra=[x509.BasicConstraints(True, None)])), "besides its subject"),
    "a server's usage": (client(usages=["digital signature", "server auth"]), "wants to be used for"),
    "both usages": (client(usages=["digital signature", "client auth", "server auth"]), "wants to be used for"),
    "signing certificates": (client(usages=["digital signature", "client auth", "cert sign"]), "cert sign"),
    "the same usage twice": (client(usages=["digital signature", "client auth", "client auth"]), "used for"),
    "no usages": (client(usages=[]), "used for nothing"),
    "another signer": (client(signerName="kubernetes.io/kube-apiserver-client"), "nodes do not ask"),
    "a signer of one's own": (client(signerName="example.org/me"), "nodes do not ask"),
    "no signer": (client(signerName=""), "nodes do not ask nobody"),
    "a machine that nobody made": (client(csr(subject("system:node:stranger"))), "no machine was made for stranger"),
    "a name that only begins alike": (client(csr(subject(f"system:node:{NODE}2"))), "no machine was made"),
    "no request in it": (client(b""), "no certificate request that can be read"),
    "nonsense in it": (
        client(b"-----BEGIN CERTIFICATE REQUEST-----\nAAAA\n-----END"),
        "no certificate request that can be read",
    ),
}


@pytest.mark.parametrize(("request_", "words"), CLIENT_RULES.values(), ids=CLIENT_RULES)
def test_what_a_new_machine_may_not(request_: dict[str, Any], words: str) -> None:
    assert words in why_not(judged(request_))


def test_a_request_signed_with_another_key_is_refused() -> None:
    # Given somebody who copied a request and put another node's key into it.
    own = x509.load_pem_x509_csr(csr())
    stolen = own.public_bytes(serialization.Encoding.DER)
    point = KEY.public_key().public_bytes(serialization.Encoding.X962, serialization.PublicFormat.UncompressedPoint)
    other = ec.generate_private_key(ec.SECP256R1()).public_key()
    forged = stolen.replace(
        point, other.public_bytes(serialization.Encoding.X962, serialization.PublicFormat.UncompressedPoint)
    )
    pem = b"-----BEGIN CERTIFICATE REQUEST-----\n" + base64.encodebytes(forged) + b"-----END CERTIFICATE REQUEST-----\n"

    assert "does not have the key" in why_not(judged(client(pem)))


def test_base64_with_rubbish_is_refused() -> None:
    request = client()
    request["spec"]["request"] = "!" + request["spec"]["request"]

    assert "no certificate request that can be read" in why_not(judged(request))


def test_nobody_becomes_a_node_that_exists() -> None:
    assert "there is a node" in why_not(judged(client(), nodes=[NODE]))


def test_a_machine_becomes_one_node_only() -> None:
    joined = approval.Machine(NODE, MADE, node="somewhere-else")

    assert "is the node somewhere-else already" in why_not(judged(client(), [joined]))


def test_a_machine_is_known_by_the_platforms_names_for_it() -> None:
    machine = approval.Machine("machine-5", MADE, names=(NODE,))

    assert judged(client(), [machine]) == approval.Approve(NODE, "client")


def test_a_machine_whose_names_are_told_is_called_nothing_else() -> None:
    machine = approval.Machine(NODE, MADE, names=("somebody-else",), addresses=MACHINE.addresses)

    assert "no machine was made" in why_not(judged(client(), [machine]))
    assert "no machine was made" in why_not(judged(serving(), [machine], nodes=[NODE]))


def test_a_machine_that_has_no_name_yet_is_waited_for() -> None:
    machine = approval.Machine(NODE, MADE, names=(), addresses=MACHINE.addresses)

    assert judged(client(), [machine]) == approval.Wait(
        f"its machine {NODE} has no instance yet, so nobody can ask for it"
    )


def test_a_serving_certificate_has_no_name_that_is_not_told() -> None:
    machine = approval.Machine("machine-5", MADE, names=(NODE,), addresses=MACHINE.addresses, node=NODE)
    request = serving(csr(names=(*OWN, x509.DNSName("machine-5"))))

    assert why_not(judged(request, [machine], nodes=[NODE])) == "machine-5 is not a name of machine-5"


def test_two_machines_of_one_name_are_none() -> None:
    twin = approval.Machine("twin", MADE, names=(NODE,))

    assert "are all called" in why_not(judged(client(), [MACHINE, twin]))


@pytest.mark.parametrize(
    ("seconds", "is_new"), [(-11, False), (-10, True), (0, True), (7200, True), (7201, False), (86400, False)]
)
def test_a_machine_asks_while_it_is_new(seconds: int, is_new: bool) -> None:
    verdict = judged(client(at=MADE + datetime.timedelta(seconds=seconds)))

    assert isinstance(verdict, approval.Approve) is is_new


def test_who_is_vouched_for_anew_has_two_hours_more() -> None:
    tomorrow = MADE + datetime.timedelta(days=1)
    machine = approval.Machine(NODE, MADE, vouched=tomorrow)

    assert isinstance(judged(client(at=tomorrow + datetime.timedelta(hours=2)), [machine]), approval.Approve)
    assert isinstance(judged(client(at=tomorrow + datetime.timedelta(hours=3)), [machine]), approval.Refuse)


@pytest.mark.parametrize("moment", ["", "yesterday", None])
def test_a_request_without_a_date_is_refused(moment: str | None) -> None:
    request = client()
    request["metadata"]["creationTimestamp"] = moment

    assert "does not say when" in why_not(judged(request))


SERVING_RULES = {
    "another node's username": (serving(username=f"system:node:{OTHER}"), f"system:node:{OTHER} asks in the name of"),
    "the bootstrapper": (serving(username=approval.BOOTSTRAPPER), "asks in the name of"),
    "not in the nodes' group": (serving(groups=["system:authenticated"]), "groups"),
    "a second organization": (
        serving(csr(subject(organizations=("system:nodes", "system:masters")), OWN)),
        "organization",
    ),
    "another node's name": (serving(csr(names=[x509.DNSName(OTHER)])), f"{OTHER} is not a name of"),
    "the API's name": (serving(csr(names=[*OWN, x509.DNSName("api.berth.example.org")])), "api.berth.example.org is"),
    "a wildcard": (serving(csr(names=[x509.DNSName("*")])), "* is not a name of"),
    "another node's address": (
        serving(csr(names=[x509.DNSName(NODE), x509.IPAddress(ipaddress.ip_address("10.0.0.32"))])),
        "10.0.0.32 is not an address of",
    ),
    "this very host": (
        serving(csr(names=[x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])),
        "127.0.0.1 is not an address of",
    ),
    "a URI": (
        serving(csr(names=[*OWN, x509.UniformResourceIdentifier("spiffe://berth/admin")])),
        "UniformResourceIdentifier",
    ),
    "a mail address": (serving(csr(names=[*OWN, x509.RFC822Name("a@example.org")])), "RFC822Name"),
    "no names": (serving(csr()), "needs a name or an address"),
    "a CA": (serving(csr(names=OWN, extra=[x509.BasicConstraints(True, None)])), "asks for more"),
    "a client's usage": (serving(usages=["digital signature", "client auth"]), "wants to be used for"),
    "both usages": (serving(usages=["digital signature", "server auth", "client auth"]), "wants to be used for"),
}


@pytest.mark.parametrize(("request_", "words"), SERVING_RULES.values(), ids=SERVING_RULES)
def test_what_a_node_may_not_serve_as(request_: dict[str, Any], words: str) -> None:
    assert words in why_not(judged(request_, nodes=[NODE, OTHER]))


def test_addresses_are_compared_as_addresses() -> None:
    machine = approval.Machine(NODE, MADE, addresses=("FD00:0::0031",))
    names = [x509.DNSName(NODE.upper()), x509.IPAddress(ipaddress.ip_address("fd00::31"))]

    assert isinstance(judged(serving(csr(names=names)), [machine], [NODE]), approval.Approve)


def test_a_nodes_certificate_waits_for_its_node() -> None:
    assert judged(serving(), nodes=[]) == approval.Wait(f"there is no node {NODE} yet")


def test_addresses_that_are_not_known_yet_are_waited_for() -> None:
    silent = approval.Machine(NODE, MADE)

    assert judged(serving(), [silent], [NODE]) == approval.Wait(
        f"the platform does not tell the addresses of {NODE} yet"
    )


def test_a_node_without_a_machine_gets_none() -> None:
    assert "no machine was made" in why_not(judged(serving(), [NEIGHBOUR], [NODE]))


def test_the_machine_of_a_node_is_the_one_that_says_so() -> None:
    # Given a machine that has become another node: its name is no longer anybody's way in.
    moved = approval.Machine(NODE, MADE, addresses=MACHINE.addresses, node="elsewhere")

    assert "no machine was made" in why_not(judged(serving(), [moved], [NODE]))


def shown(names: Sequence[x509.GeneralName], common: str = f"system:node:{NODE}", days: int = 1) -> x509.Certificate:
    return (
        x509.CertificateBuilder()
        .subject_name(subject(common))
        .issuer_name(subject("kubelet-signer"))
        .public_key(KEY.public_key())
        .serial_number(7)
        .not_valid_before(MADE - datetime.timedelta(days=2))
        .not_valid_after(MADE + datetime.timedelta(days=days))
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .sign(KEY, hashes.SHA256())
    )


def test_what_a_node_has_it_may_have_again() -> None:
    assert isinstance(judged(serving(), [], [NODE], shown=shown(OWN)), approval.Approve)


@pytest.mark.parametrize(
    "certificate",
    [
        shown(OWN[:1]),
        shown([*OWN, x509.DNSName("more")]),
        shown(OWN, common=f"system:node:{OTHER}"),
        shown(OWN, days=-1),
    ],
    ids=["it has less", "it has more", "another's", "run out"],
)
def test_a_certificate_that_is_not_the_same_renews_nothing(certificate: x509.Certificate) -> None:
    assert "no machine was made" in why_not(judged(serving(), [], [NODE], shown=certificate))


@pytest.mark.parametrize("condition", ["Approved", "Denied", "Failed"])
def test_what_is_decided_stays_so(condition: str) -> None:
    request = client()
    request["status"] = {"conditions": [{"type": condition, "status": "True"}]}

    assert "decided" in why_not(judged(request))


@pytest.mark.parametrize(("pending", "stops"), [(102, False), (103, True)])
def test_a_flood_of_requests_stops_all_approvals(pending: int, stops: bool) -> None:
    assert isinstance(judged(client(), pending=pending), approval.Wait) is stops


def test_the_flood_is_measured_by_the_nodes_too() -> None:
    nodes = [f"node-{number}" for number in range(5)]

    assert isinstance(judged(client(), nodes=nodes, pending=105), approval.Approve)
    assert isinstance(judged(client(), nodes=nodes, pending=106), approval.Wait)


def test_pending_are_the_undecided_of_the_last_hour() -> None:
    hour = datetime.timedelta(hours=1)
    decided = client()
    decided["status"] = {"conditions": [{"type": "Approved", "status": "True"}]}
    requests = [
        client(at=ASKED),
        serving(),
        client(at=ASKED - hour),
        client(at=ASKED - hour - datetime.timedelta(seconds=1)),
        decided,
        client(signerName="example.org/me"),
        # They are nobody who could become a node, so they keep nobody out either.
        client(username="mallory", groups=["system:authenticated"]),
        serving(username="mallory", groups=["system:authenticated"]),
    ]

    assert approval.recently_pending(requests, ASKED) == 3


@pytest.mark.parametrize(
    ("request_", "name"),
    [(client(), NODE), (client(csr(subject("admin"))), ""), (client(b""), ""), ({}, "")],
    ids=["a node's", "a person's", "nobody's", "nothing"],
)
def test_whose_a_request_claims_to_be(request_: dict[str, Any], name: str) -> None:
    assert approval.claimed(request_) == name
