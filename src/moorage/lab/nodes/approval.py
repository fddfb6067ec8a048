"""approve-csr on the bootstrap machine: it lets the first nodes in, and nobody else, until bootkube is done.

A node asks twice: for a client certificate, with the credentials that the machine-config server hands out; then, under
its own name, for a serving certificate with its own addresses. Whatever else is asked for stays pending.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from cryptography import x509
from cryptography.x509.oid import NameOID

from moorage import lab
from moorage.engine import clock as clocks
from moorage.lab.kube import certificates
from moorage.lab.nodes import api_client

Object = Mapping[str, Any]

EVERY_SECONDS = 20.0
BOOTSTRAPPER = "system:serviceaccount:openshift-machine-config-operator:node-bootstrapper"
REQUESTS = "/apis/certificates.k8s.io/v1/certificatesigningrequests"
_PREFIX = "system:node:"


async def run(
    client: api_client.Client, clock: clocks.Clock, say: Callable[[str], None], done: Callable[[], bool]
) -> None:
    """Review what is pending again and again, until ``done``."""
    left: set[str] = set()
    silent = ""
    while not done():
        try:
            await review(client, say, left)
            silent = ""
        except (OSError, TimeoutError, api_client.Refused) as problem:
            words = client.words(problem)
            if words != silent:
                say(f"error: {words}")
                silent = words
        await lab.sleep(clock, EVERY_SECONDS)
    say("bootkube is done; the cluster approves for itself from now on")


async def review(client: api_client.Client, say: Callable[[str], None], left: set[str]) -> None:
    """Approve what nodes may ask for; ``left`` remembers what was already mentioned as left alone."""
    requests = (await client.get(REQUESTS)).get("items") or []
    pending = [request for request in requests if not (request.get("status") or {}).get("conditions")]
    if not pending:
        return
    nodes = {node["metadata"]["name"]: node for node in (await client.get("/api/v1/nodes")).get("items") or []}
    for request in pending:
        name, spec = request["metadata"]["name"], request["spec"]
        why = refusal(request, nodes)
        if not why:
            await _approve(client, request)
            say(f"certificatesigningrequest.certificates.k8s.io/{name} approved ({spec.get('username')})")
        elif name not in left:
            left.add(name)
            say(f"leaving {name} of {spec.get('username')} for {spec.get('signerName')} pending: {why}")


def refusal(request: Object, nodes: Mapping[str, Object]) -> str:
    """Why this is not how a node joins; empty if it is."""
    spec = request["spec"]
    try:
        asked = certificates.parsed(str(spec.get("request") or ""))
    except certificates.Refused as wrong:
        return str(wrong)
    name = certificates.common_name(asked)
    if not name.startswith(_PREFIX) or name == _PREFIX:
        return f"it is for {name!r}, which is no node"
    if certificates.subject(asked, NameOID.ORGANIZATION_NAME) != ["system:nodes"]:
        return "its organization is not system:nodes alone"
    signer, user = spec.get("signerName"), spec.get("username")
    if signer == certificates.KUBELET_CLIENT:
        return "" if user == BOOTSTRAPPER else f"{user} is not the node bootstrapper"
    if signer != certificates.KUBELET_SERVING:
        return f"nodes do not ask {signer}"
    if user != name:
        return f"{user} asks in the name of {name}"
    strange = sorted(_names(asked) - _own(name, nodes.get(name.removeprefix(_PREFIX))))
    return f"{', '.join(strange)} is not the node's own" if strange else ""


def _names(asked: x509.CertificateSigningRequest) -> set[str]:
    try:
        found: Iterable[x509.GeneralName] = asked.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return set()
    return {str(name.value) for name in found}


def _own(name: str, node: Object | None) -> set[str]:
    addresses = ((node or {}).get("status") or {}).get("addresses") or ()
    return {name.removeprefix(_PREFIX), *(str(each.get("address")) for each in addresses)}


async def _approve(client: api_client.Client, request: Object) -> None:
    condition = {
        "type": "Approved",
        "status": "True",
        "reason": "KubectlApprove",
        "message": "This CSR was approved by kubectl certificate approve.",
    }
    content = {**request, "status": {**(request.get("status") or {}), "conditions": [condition]}}
    await client.replace(f"{REQUESTS}/{request['metadata']['name']}/approval", content)
