"""Certificate signing requests: asked for by anybody who may, approved by somebody, signed if they keep the rules."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator

import pytest
from cryptography import x509
from cryptography.x509.oid import NameOID

from tests.kube import calls, pki
from tests.kube import cluster as clusters

REQUESTS = "/apis/certificates.k8s.io/v1/certificatesigningrequests"
CLIENT = "kubernetes.io/kube-apiserver-client"
KUBELET = "kubernetes.io/kube-apiserver-client-kubelet"
SERVING = "kubernetes.io/kubelet-serving"
FOR_CLIENTS = ["digital signature", "client auth"]
FOR_SERVERS = ["digital signature", "server auth"]


def body(name: str, pem: str, signer: str = CLIENT, usages: list[str] | None = None, **spec: object) -> calls.Object:
    head = {"apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest", "metadata": {"name": name}}
    encoded = base64.b64encode(pem.encode()).decode()
    return {**head, "spec": {"request": encoded, "signerName": signer, "usages": usages or FOR_CLIENTS, **spec}}


def conditions(content: calls.Object) -> dict[str, calls.Object]:
    return {each["type"]: each for each in content.get("status", {}).get("conditions", [])}


@pytest.fixture
def name(admin: calls.Caller, unique: Callable[[str], str]) -> Iterator[str]:
    found = unique("csr")
    yield found
    admin.delete(f"{REQUESTS}/{found}")


def approve(admin: calls.Caller, name: str, kind: str = "Approved") -> calls.Answer:
    found = admin.get(f"{REQUESTS}/{name}").got()
    condition = {"type": kind, "status": "True", "reason": "Tested", "message": "by a story"}
    found["status"] = {**found.get("status", {}), "conditions": [condition]}
    return admin.put(f"{REQUESTS}/{name}/approval", found)


def signed(admin: calls.Caller, name: str) -> x509.Certificate:
    found = calls.eventually(
        lambda: admin.get(f"{REQUESTS}/{name}").got().get("status", {}).get("certificate"), "the certificate"
    )
    return x509.load_pem_x509_certificate(base64.b64decode(found))


def test_a_request_knows_who_asked(cluster: clusters.Cluster, admin: calls.Caller, name: str) -> None:
    pem, _key = pki.request("alice", ["sailors"])
    forged = body(name, pem, username="somebody-else", groups=["system:masters"])

    made = admin.post(REQUESTS, forged).got(201)

    assert made["spec"]["username"] == "admin"
    assert made["spec"]["groups"] == ["system:masters", "system:authenticated"]
    assert made["status"] == {}


def test_an_approved_request_is_signed_and_the_certificate_lets_in(
    cluster: clusters.Cluster, admin: calls.Caller, name: str
) -> None:
    pem, key = pki.request("alice", ["sailors"])
    admin.post(REQUESTS, body(name, pem, expirationSeconds=3600)).got(201)

    approved = approve(admin, name).got()

    assert conditions(approved)["Approved"]["reason"] == "Tested"
    certificate = signed(admin, name)
    (common_name,) = certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    assert common_name.value == "alice"
    lifetime = certificate.not_valid_after_utc - certificate.not_valid_before_utc
    assert 3600 <= lifetime.total_seconds() <= 3600 + 600
    pem_found = admin.get(f"{REQUESTS}/{name}").got()["status"]["certificate"]
    alice = cluster.with_pair("alice", pki.Pair(base64.b64decode(pem_found).decode(), key))
    refusal = alice.get("/api/v1/nodes").refused(403, "Forbidden")
    assert 'User "alice" cannot list' in refusal["message"]


def test_kubectl_approves_and_denies(
    cluster: clusters.Cluster, admin: calls.Caller, unique: Callable[[str], str]
) -> None:
    good, bad = unique("csr"), unique("csr")
    for each in (good, bad):
        admin.post(REQUESTS, body(each, pki.request("alice")[0])).got(201)
    assert "Pending" in cluster.kubectl("get", "csr", good)

    assert f"certificatesigningrequest.certificates.k8s.io/{good} approved" in cluster.kubectl(
        "certificate", "approve", good
    )
    assert f"certificatesigningrequest.certificates.k8s.io/{bad} denied" in cluster.kubectl("certificate", "deny", bad)

    signed(admin, good)
    assert "Approved,Issued" in cluster.kubectl("get", "csr", good)
    assert "Denied" in cluster.kubectl("get", "csr", bad)
    assert "certificate" not in admin.get(f"{REQUESTS}/{bad}").got()["status"]
    for each in (good, bad):
        admin.delete(f"{REQUESTS}/{each}").got()


def test_what_is_decided_stays_decided(admin: calls.Caller, name: str) -> None:
    admin.post(REQUESTS, body(name, pki.request("alice")[0])).got(201)
    approve(admin, name, "Denied").got()

    approve(admin, name, "Approved").refused(422, "Invalid")


def test_approval_needs_the_right_to_that_signer(cluster: clusters.Cluster, admin: calls.Caller, name: str) -> None:
    admin.post(REQUESTS, body(name, pki.request("alice")[0])).got(201)
    rules = [
        {"apiGroups": ["certificates.k8s.io"], "resources": ["certificatesigningrequests"], "verbs": ["get"]},
        {
            "apiGroups": ["certificates.k8s.io"],
            "resources": ["certificatesigningrequests/approval"],
            "verbs": ["update"],
        },
    ]
    rbac = "/apis/rbac.authorization.k8s.io/v1"
    head = {"apiVersion": "rbac.authorization.k8s.io/v1", "metadata": {"name": name}}
    admin.post(f"{rbac}/clusterroles", {**head, "kind": "ClusterRole", "rules": rules}).got(201)
    group = "rbac.authorization.k8s.io"
    bound = {
        "subjects": [{"kind": "User", "name": name, "apiGroup": group}],
        "roleRef": {"kind": "ClusterRole", "name": name, "apiGroup": group},
    }
    admin.post(f"{rbac}/clusterrolebindings", {**head, "kind": "ClusterRoleBinding", **bound}).got(201)
    approver = cluster.caller(name)
    calls.eventually(lambda: approver.get(f"{REQUESTS}/{name}").code == 200, "the role in force")

    refused = approve(approver, name)

    refused.refused(403, "Forbidden", f'user not permitted to approve requests with signerName "{CLIENT}"')
    admin.delete(f"{rbac}/clusterrolebindings/{name}").got()
    admin.delete(f"{rbac}/clusterroles/{name}").got()


def test_a_kubelet_gets_its_client_certificate(cluster: clusters.Cluster, admin: calls.Caller, name: str) -> None:
    pem, _key = pki.request("system:node:harbour-1", ["system:nodes"])
    admin.post(REQUESTS, body(name, pem, KUBELET)).got(201)

    approve(admin, name).got()

    (common_name,) = signed(admin, name).subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    assert common_name.value == "system:node:harbour-1"


@pytest.mark.parametrize(
    ("user", "groups", "names", "signer", "usages", "words"),
    [
        ("harbour-1", ["system:nodes"], [], KUBELET, FOR_CLIENTS, "does not begin with system:node:"),
        ("system:node:h", ["system:masters"], [], KUBELET, FOR_CLIENTS, "subject organization is not system:nodes"),
        ("system:node:h", ["system:nodes"], ["h"], KUBELET, FOR_CLIENTS, "DNS subjectAltNames are not allowed"),
        ("system:node:h", ["system:nodes"], [], KUBELET, FOR_SERVERS, "usages did not match"),
        (
            "system:node:h",
            ["system:nodes"],
            [],
            SERVING,
            FOR_SERVERS,
            "DNS or IP subjectAltName is required",
        ),
    ],
)
def test_an_approved_request_that_breaks_the_rules_fails(
    admin: calls.Caller,
    name: str,
    user: str,
    groups: list[str],
    names: list[str],
    signer: str,
    usages: list[str],
    words: str,
) -> None:
    pem, _key = pki.request(user, groups, names)
    admin.post(REQUESTS, body(name, pem, signer, usages)).got(201)

    approve(admin, name).got()

    failed = calls.eventually(
        lambda: conditions(admin.get(f"{REQUESTS}/{name}").got()).get("Failed"), "the signer's refusal"
    )
    assert failed["reason"] == "SignerValidationFailure"
    assert words in failed["message"]


def test_nonsense_cannot_be_asked_for(admin: calls.Caller, name: str) -> None:
    admin.post(REQUESTS, body(name, "no request")).refused(422, "Invalid", "spec.request: Invalid value")
    pem, _key = pki.request("alice")
    admin.post(REQUESTS, body(name, pem, "")).refused(422, "Invalid", "spec.signerName: Required value")
    admin.post(REQUESTS, body(name, pem, usages=["flying"])).refused(422, "Invalid", "spec.usages[0]")
    admin.post(REQUESTS, body(name, pem, expirationSeconds=60)).refused(422, "Invalid", "spec.expirationSeconds")
    masters, _key = pki.request("alice", ["system:masters"])
    refused = admin.post(REQUESTS, body(name, masters))
    refused.refused(
        403, "Forbidden", "use of kubernetes.io/kube-apiserver-client signer with system:masters group is not allowed"
    )
