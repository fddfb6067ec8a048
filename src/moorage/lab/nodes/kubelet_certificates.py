"""How a kubelet gets its certificates: it makes a key, asks the cluster to sign, and waits to be let in.

The first time it asks with the credentials that came with its config (a bootstrap identity that may do nothing else),
later with its own. The key never leaves the machine's disk.
"""

from __future__ import annotations

import base64
import contextlib
import datetime
import ipaddress
import weakref
from collections.abc import Iterator

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509 import oid

from moorage import lab
from moorage.lab import site as sites
from moorage.lab.nodes import api_client, instance, pacing

CLIENT_PATH = "/var/lib/kubelet/pki/kubelet-client-current.pem"
SERVING_PATH = "/var/lib/kubelet/pki/kubelet-server-current.pem"
REQUESTS = "/apis/certificates.k8s.io/v1/certificatesigningrequests"

_SIGNERS = {
    CLIENT_PATH: ("kubernetes.io/kube-apiserver-client-kubelet", "client auth"),
    SERVING_PATH: ("kubernetes.io/kubelet-serving", "server auth"),
}
# Asking is done in real time too: a thousand machines waiting to be let in must not drown the API at any speed.
_FIRST_PAUSE, _LONGEST_PAUSE = 0.1, 2.0
_GIVEN_UP_AFTER, _SHORTEST_PATIENCE = 15 * 60.0, 20.0
_waiting: weakref.WeakKeyDictionary[sites.Site, int] = weakref.WeakKeyDictionary()


class NotLetIn(Exception):  # noqa: N818 - said on the console, and tried again
    """The request was denied, failed, or left unanswered for too long."""


def stored(machine: instance.Instance, path: str) -> tuple[str, str] | None:
    """The certificate and key on the disk, if they are there and still good."""
    text = machine.kept.get(path, b"").decode()
    if not text:
        return None
    certificate, _, key = text.partition("-----BEGIN PRIVATE KEY-----")
    if _left(certificate) <= 0:
        machine.say(f"kubelet: the certificate in {path} has expired")
        return None
    return certificate, f"-----BEGIN PRIVATE KEY-----{key}"


def due(machine: instance.Instance, path: str) -> bool:
    """Whether it is time for a new certificate: a fifth of the old one's life is left."""
    found = stored(machine, path)
    return found is None or _left(found[0]) < 0.2


async def obtained(machine: instance.Instance, client: api_client.Client, node: str, path: str) -> tuple[str, str]:
    """Ask for a certificate and wait until it is there; it is kept on the disk."""
    key = ec.generate_private_key(ec.SECP256R1())
    signer, usage = _SIGNERS[path]
    request = {
        "apiVersion": "certificates.k8s.io/v1",
        "kind": "CertificateSigningRequest",
        "metadata": {"generateName": "csr-"},
        "spec": {
            "request": base64.b64encode(_request(key, node, machine.address, serving=path == SERVING_PATH)).decode(),
            "signerName": signer,
            "usages": ["digital signature", usage],
        },
    }
    made = await client.create(REQUESTS, request)
    name = made["metadata"]["name"]
    machine.say(f"kubelet: waiting for certificate signing request {name} ({signer}) to be approved and issued")
    certificate = await _issued(machine, client, name)
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    ).decode()
    machine.kept[path] = f"{certificate.rstrip()}\n{private}".encode()
    return certificate, private


async def _issued(machine: instance.Instance, client: api_client.Client, name: str) -> str:
    deadline = machine.clock.deadline(pacing.patience(machine.site, _GIVEN_UP_AFTER, _SHORTEST_PATIENCE))
    pause = _FIRST_PAUSE
    while True:
        certificate = _granted(name, await _looked(client, name))
        if certificate:
            return certificate
        if deadline.expired:
            raise NotLetIn(f"certificate signing request {name} was not approved within 15 minutes")
        with _asking(machine.site) as many:
            await lab.sleep(machine.clock, pacing.question(machine.site, pause, many))
        pause = min(pause * 1.5, _LONGEST_PAUSE)


@contextlib.contextmanager
def _asking(site: sites.Site) -> Iterator[int]:
    """Be one of those who wait to be let in; how many they are."""
    _waiting[site] = _waiting.get(site, 0) + 1
    try:
        yield _waiting[site]
    finally:
        _waiting[site] -= 1


async def _looked(client: api_client.Client, name: str) -> api_client.Object:
    """The status of a request; nothing while the API is away, for the request is still there."""
    try:
        return (await client.get(f"{REQUESTS}/{name}")).get("status") or {}
    except api_client.Refused as refusal:
        if refusal.status != 429 and refusal.status < 500:
            raise
    except (OSError, TimeoutError):
        pass
    return {}


def _granted(name: str, status: api_client.Object) -> str:
    for condition in status.get("conditions") or ():
        if condition["type"] in ("Denied", "Failed"):
            words = f"certificate signing request {name} was {condition['type'].lower()}"
            raise NotLetIn(f"{words}: {condition.get('message') or condition.get('reason', '')}")
    return base64.b64decode(status.get("certificate") or "").decode()


def _request(key: ec.EllipticCurvePrivateKey, node: str, address: str, *, serving: bool) -> bytes:
    names = [
        x509.NameAttribute(oid.NameOID.ORGANIZATION_NAME, "system:nodes"),
        x509.NameAttribute(oid.NameOID.COMMON_NAME, f"system:node:{node}"),
    ]
    builder = x509.CertificateSigningRequestBuilder().subject_name(x509.Name(names))
    if serving:
        alternatives = [x509.DNSName(node), x509.IPAddress(ipaddress.ip_address(address))]
        builder = builder.add_extension(x509.SubjectAlternativeName(alternatives), critical=False)
    return builder.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)


def _left(certificate: str) -> float:
    """The part of a certificate's life that is left, from 1 to 0; by the real clock, as everybody checks it."""
    try:
        found = x509.load_pem_x509_certificate(certificate.encode())
    except ValueError:
        return 0.0
    begin, end = found.not_valid_before_utc, found.not_valid_after_utc
    return max(0.0, (end - datetime.datetime.now(datetime.UTC)) / (end - begin))
