"""A node's kubelet, and the certificates that it shows to who knocks at its port."""

from __future__ import annotations

import contextlib
import datetime
import ipaddress
import socket
import ssl
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509 import oid

from tests.unit.machines import test_approval as rules
from tests.unit.machines.test_approval import NODE

OWN = [x509.DNSName(NODE), x509.IPAddress(ipaddress.ip_address("10.0.0.31"))]
NEW = [x509.DNSName(NODE), x509.IPAddress(ipaddress.ip_address("10.0.0.99"))]


def node(name: str = NODE) -> dict[str, Any]:
    return {"metadata": {"name": name}, "status": {"addresses": [{"type": "InternalIP", "address": "10.0.0.31"}]}}


class Authority:
    def __init__(self) -> None:
        self.key = ec.generate_private_key(ec.SECP256R1())
        name = x509.Name([x509.NameAttribute(oid.NameOID.COMMON_NAME, "kube-csr-signer")])
        self.certificate = (
            _dated(name, name, self.key, 24)
            .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
            .sign(self.key, hashes.SHA256())
        )

    @property
    def pem(self) -> str:
        return self.certificate.public_bytes(serialization.Encoding.PEM).decode()


def _dated(subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey, hours: float) -> Any:
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=2))
        .not_valid_after(now + datetime.timedelta(hours=hours))
    )


def signed(
    authority: Authority,
    name: str,
    names: list[Any],
    *,
    hours: float = 5,
    usage: x509.ObjectIdentifier = oid.ExtendedKeyUsageOID.SERVER_AUTH,
) -> x509.Certificate:
    found: x509.Certificate = (
        _dated(rules.subject(f"system:node:{name}"), authority.certificate.subject, rules.KEY, hours)
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(x509.ExtendedKeyUsage([usage]), critical=False)
        .sign(authority.key, hashes.SHA256())
    )
    return found


@contextlib.contextmanager
def kubelet(certificate: x509.Certificate, folder: Path) -> Iterator[dict[str, Any]]:
    """A kubelet that shows this certificate; the Node that says where it listens."""
    file = folder / "kubelet.pem"
    private = rules.KEY.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    file.write_bytes(private + certificate.public_bytes(serialization.Encoding.PEM))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(file)
    with socket.create_server(("127.0.0.1", 0)) as door:

        def serve() -> None:
            with contextlib.suppress(OSError):
                while True:
                    plain, _ = door.accept()
                    with contextlib.suppress(OSError), context.wrap_socket(plain, server_side=True) as caller:
                        caller.recv(1)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield {
            "metadata": {"name": NODE},
            "status": {
                "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}],
                "daemonEndpoints": {"kubeletEndpoint": {"Port": door.getsockname()[1]}},
            },
        }
        door.shutdown(socket.SHUT_RDWR)
        thread.join(5)
