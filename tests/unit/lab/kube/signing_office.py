"""Requests for certificates, and the office that signs or refuses them."""

from __future__ import annotations

import base64
import ipaddress
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization

from moorage.lab.kube import certificates, guards, store, users
from tests.unit.lab.kube import access_world as worlds

CA_NAME = worlds.name("kubelet-signer")
CLIENT_USAGES = ["digital signature", "client auth"]
SERVING_USAGES = ["digital signature", "server auth"]
NAMES = (x509.DNSName("n1"), x509.IPAddress(ipaddress.ip_address("10.0.0.1")))
HOUR = 3600.0
ADMIN = users.authenticated("system:admin", (users.MASTERS,))


def request(common: str = "system:node:n1", *groups: str, names: tuple[Any, ...] = (), spoilt: bool = False) -> str:
    builder = x509.CertificateSigningRequestBuilder().subject_name(worlds.name(common, *(groups or ("system:nodes",))))
    if names:
        builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
    made = builder.sign(worlds.key("kubelet"), hashes.SHA256())
    data = bytearray(made.public_bytes(serialization.Encoding.DER))
    if spoilt:
        data[-1] ^= 1
    lines = base64.encodebytes(bytes(data)).decode()
    return worlds.encoded(f"-----BEGIN CERTIFICATE REQUEST-----\n{lines}-----END CERTIFICATE REQUEST-----\n")


def asked(signer: str = certificates.KUBELET_CLIENT, **spec: Any) -> dict[str, Any]:
    filled = {"signerName": signer, "usages": CLIENT_USAGES, "request": request(), **spec}
    meta = {"name": "csr-1"}
    return {
        "apiVersion": "certificates.k8s.io/v1",
        "kind": "CertificateSigningRequest",
        "metadata": meta,
        "spec": filled,
    }


class Office:
    """A cluster in which requests are made, decided and signed."""

    def __init__(self, curve: bool = True, hours: tuple[float, float] = (-1, 24), duration: float = 10 * HOUR) -> None:
        self.world = worlds.recorded_world()
        self.kind = self.world.kind("certificates.k8s.io", "CertificateSigningRequest")
        key = worlds.key("signer", curve)
        self.ca = worlds.certificate(CA_NAME, signed_by=key, ca=True, hours=hours)
        self.signer = certificates.Signer(self.world.api, worlds.pem(self.ca), worlds.private_pem(key), duration)

    def create(self, content: dict[str, Any], user: users.User = ADMIN) -> None:
        guards.before_create(self.world.api, self.kind, content, user)
        self.world.put(content)

    def write(
        self, subresource: str, status: dict[str, Any], user: users.User = ADMIN, spec: dict[str, Any] | None = None
    ) -> None:
        before = self.entry.object
        after = {**store.copied(self.entry), "status": status}
        after["spec"] = spec or after["spec"]
        guards.before_update(self.world.api, self.kind, before, after, subresource, user)
        self.world.put(after)

    def approve(self, user: users.User = ADMIN) -> None:
        conditions = [{"type": "Approved", "status": "True", "reason": "KubectlApprove", "message": "m"}]
        self.write("approval", {"conditions": conditions}, user)

    @property
    def entry(self) -> store.Entry:
        found = self.world.store.get(certificates.REQUESTS, ("", "csr-1"))
        assert found is not None
        return found

    @property
    def status(self) -> dict[str, Any]:
        return dict(self.entry.object["status"])

    @property
    def certificate(self) -> x509.Certificate:
        return x509.load_pem_x509_certificate(base64.b64decode(self.status["certificate"]))
