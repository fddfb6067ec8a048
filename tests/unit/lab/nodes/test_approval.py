"""approve-csr: nodes that join are let in, and nobody else."""

from __future__ import annotations

import asyncio
import base64
import ipaddress
from typing import Any, cast

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from moorage.engine import clock as clocks
from moorage.lab.nodes import api_client, approval

Object = dict[str, Any]

CLIENT = "kubernetes.io/kube-apiserver-client-kubelet"
SERVING = "kubernetes.io/kubelet-serving"
ADMIN = "kubernetes.io/kube-apiserver-client"
NODE = {
    "metadata": {"name": "master-0"},
    "status": {
        "addresses": [{"type": "InternalIP", "address": "127.9.1.1"}, {"type": "Hostname", "address": "master-0"}]
    },
}
_KEY = ec.generate_private_key(ec.SECP256R1())


def asked(common_name: str, *organizations: str, names: tuple[str, ...] = ()) -> str:
    """A certificate request, as it stands in spec.request."""
    attributes = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, each) for each in organizations]
    subject = x509.Name([*attributes, x509.NameAttribute(NameOID.COMMON_NAME, common_name)])
    builder = x509.CertificateSigningRequestBuilder().subject_name(subject)
    if names:
        alternatives: list[x509.GeneralName] = [
            x509.IPAddress(ipaddress.ip_address(name)) if name[0].isdigit() else x509.DNSName(name) for name in names
        ]
        builder = builder.add_extension(x509.SubjectAlternativeName(alternatives), critical=False)
    pem = builder.sign(_KEY, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
    return base64.b64encode(pem).decode()


def request(name: str, signer: str, user: str, content: str) -> Object:
    return {"metadata": {"name": name}, "spec": {"signerName": signer, "username": user, "request": content}}


OURS = asked("system:node:master-0", "system:nodes")
OWN = asked("system:node:master-0", "system:nodes", names=("master-0", "127.9.1.1"))
SELF = "system:node:master-0"


@pytest.mark.parametrize(
    ("signer", "user", "content", "why"),
    [
        (CLIENT, approval.BOOTSTRAPPER, OURS, ""),
        (SERVING, SELF, OWN, ""),
        (CLIENT, "system:node:worker-0", OURS, "not the node bootstrapper"),
        (CLIENT, "system:anonymous", OURS, "not the node bootstrapper"),
        (CLIENT, approval.BOOTSTRAPPER, asked("system:admin", "system:nodes"), "no node"),
        (CLIENT, approval.BOOTSTRAPPER, asked("system:node:", "system:nodes"), "no node"),
        (CLIENT, approval.BOOTSTRAPPER, asked(SELF, "system:masters"), "not system:nodes alone"),
        (CLIENT, approval.BOOTSTRAPPER, asked(SELF, "system:nodes", "system:masters"), "not system:nodes alone"),
        (CLIENT, approval.BOOTSTRAPPER, "bm9uc2Vuc2U=", "PEM"),
        (ADMIN, approval.BOOTSTRAPPER, OURS, "nodes do not ask"),
        (SERVING, approval.BOOTSTRAPPER, OWN, "in the name of"),
        (SERVING, "system:node:worker-0", OWN, "in the name of"),
        (SERVING, SELF, asked(SELF, "system:nodes", names=("master-0", "127.9.1.2")), "127.9.1.2 is not"),
        (SERVING, SELF, asked(SELF, "system:nodes", names=("api-int.harbour.example.com",)), "api-int"),
    ],
)
def test_who_is_let_in(signer: str, user: str, content: str, why: str) -> None:
    told = approval.refusal(request("csr-1", signer, user, content), {"master-0": NODE})

    assert (why in told) if why else told == ""


class Api:
    """Requests and nodes, and what was approved."""

    def __init__(self, *requests: Object) -> None:
        self.requests = list(requests)
        self.approved: list[str] = []
        self.problem: Exception | None = None

    async def get(self, path: str) -> Object:
        if self.problem is not None:
            raise self.problem
        return {"items": self.requests if path == approval.REQUESTS else [NODE]}

    async def replace(self, path: str, content: Object) -> Object:
        assert path == f"{approval.REQUESTS}/{content['metadata']['name']}/approval"
        assert content["status"]["conditions"][0]["type"] == "Approved"
        self.approved.append(content["metadata"]["name"])
        self.requests = [content if each["metadata"] == content["metadata"] else each for each in self.requests]
        return content

    def words(self, problem: BaseException) -> str:
        return str(problem)


def test_each_is_approved_once_and_strangers_are_mentioned_once() -> None:
    api = Api(request("ours", CLIENT, approval.BOOTSTRAPPER, OURS), request("theirs", CLIENT, "mallory", OURS))
    denied = request("denied", CLIENT, approval.BOOTSTRAPPER, OURS)
    api.requests.append({**denied, "status": {"conditions": [{"type": "Denied", "status": "True"}]}})
    said: list[str] = []
    rounds = iter([False, False, False, True])

    asyncio.run(approval.run(cast(api_client.Client, api), clocks.Clock(100_000), said.append, lambda: next(rounds)))

    assert api.approved == ["ours"]
    assert [line for line in said if "theirs" in line] == [
        f"leaving theirs of mallory for {CLIENT} pending: mallory is not the node bootstrapper"
    ]


def test_a_silent_api_is_asked_again_and_mentioned_once() -> None:
    api = Api(request("ours", CLIENT, approval.BOOTSTRAPPER, OURS))
    api.problem = ConnectionRefusedError("connection refused")
    said: list[str] = []
    rounds = 0

    def done() -> bool:
        nonlocal rounds
        rounds += 1
        if rounds == 4:
            api.problem = None
        return rounds == 6

    asyncio.run(approval.run(cast(api_client.Client, api), clocks.Clock(100_000), said.append, done))

    assert said.count("error: connection refused") == 1
    assert api.approved == ["ours"]
