"""Certificates and keys for a cluster of the tests: one authority signs the server, the users and the nodes."""

from __future__ import annotations

import dataclasses
import datetime
import functools
import ipaddress
from collections.abc import Sequence

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

LIFETIME = datetime.timedelta(days=1)

Key = ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey


@dataclasses.dataclass(frozen=True)
class Pair:
    """A certificate and its key, both PEM."""

    certificate: str
    key: str


def key_pem(key: Key) -> str:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    ).decode()


def public_pem(key: Key) -> str:
    return (
        key.public_key()
        .public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
        .decode()
    )


@functools.cache
def service_account_key() -> rsa.RSAPrivateKey:
    """What signs the tokens of service accounts."""
    return rsa.generate_private_key(public_exponent=65537, key_size=2048)


def _name(common_name: str, groups: Sequence[str] = ()) -> x509.Name:
    return x509.Name(
        [x509.NameAttribute(NameOID.ORGANIZATION_NAME, group) for group in groups]
        # Not held to the 64 characters of RFC 5280: the node-bootstrapper's name is longer, and readers take it.
        + [x509.NameAttribute(NameOID.COMMON_NAME, common_name, _validate=False)]
    )


def _begun(subject: x509.Name, issuer: x509.Name, key: Key) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(minutes=5))
        .not_valid_after(now + LIFETIME)
    )


class Authority:
    """A certificate authority."""

    def __init__(self, name: str = "kubernetes") -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _name(name)
        usage = x509.KeyUsage(True, False, False, False, False, True, True, False, False)
        certificate = (
            _begun(self._name, self._name, self._key)
            .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
            .add_extension(usage, critical=True)
            .sign(self._key, hashes.SHA256())
        )
        self.pair = Pair(certificate.public_bytes(serialization.Encoding.PEM).decode(), key_pem(self._key))

    def server(self, *addresses: str, names: Sequence[str] = ("kubernetes", "kubernetes.default.svc")) -> Pair:
        """A serving certificate for addresses and names."""
        alternatives: list[x509.GeneralName] = [x509.DNSName(name) for name in names]
        alternatives += [x509.IPAddress(ipaddress.ip_address(address)) for address in addresses]
        key = ec.generate_private_key(ec.SECP256R1())
        builder = _begun(_name("kube-apiserver"), self._name, key).add_extension(
            x509.SubjectAlternativeName(alternatives), critical=False
        )
        return self._signed(builder, key, ExtendedKeyUsageOID.SERVER_AUTH)

    def client(self, user: str, groups: Sequence[str] = ()) -> Pair:
        """What a user shows: the common name is the user's, the organizations are the groups."""
        key = ec.generate_private_key(ec.SECP256R1())
        return self._signed(_begun(_name(user, groups), self._name, key), key, ExtendedKeyUsageOID.CLIENT_AUTH)

    def _signed(self, builder: x509.CertificateBuilder, key: Key, usage: x509.ObjectIdentifier) -> Pair:
        certificate = builder.add_extension(x509.ExtendedKeyUsage([usage]), critical=False).sign(
            self._key, hashes.SHA256()
        )
        return Pair(certificate.public_bytes(serialization.Encoding.PEM).decode(), key_pem(key))


def request(user: str, groups: Sequence[str] = (), names: Sequence[str] = ()) -> tuple[str, str]:
    """A certificate signing request and its key, both PEM."""
    key = ec.generate_private_key(ec.SECP256R1())
    builder = x509.CertificateSigningRequestBuilder().subject_name(_name(user, groups))
    if names:
        builder = builder.add_extension(
            x509.SubjectAlternativeName([x509.DNSName(name) for name in names]), critical=False
        )
    signed = builder.sign(key, hashes.SHA256())
    return signed.public_bytes(serialization.Encoding.PEM).decode(), key_pem(key)
