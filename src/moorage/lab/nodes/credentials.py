"""Certificates and keys of a cluster: read from files that may be missing or wrong, and signed anew by its signers.

Certificates live in real time, whatever the speed of the cloud: the programs that check them look at real clocks.
"""

from __future__ import annotations

import dataclasses
import datetime
import ipaddress
from collections.abc import Sequence

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes
from cryptography.x509 import oid

DAY = datetime.timedelta(days=1)
# Clocks of machines differ a little; a certificate must not come from the future.
_SKEW = datetime.timedelta(seconds=60)


class Unusable(Exception):  # noqa: N818 - a finding about a file
    """A certificate or key cannot be used; says which and why."""


@dataclasses.dataclass(frozen=True)
class Pair:
    """A certificate (with its chain, if it has one) and its key, in PEM."""

    certificate: str
    key: str


def now() -> datetime.datetime:
    return datetime.datetime.now(datetime.UTC)


def certificates(pem: bytes | str, name: str) -> list[x509.Certificate]:
    """All certificates of a file; `Unusable` if there is none or one is broken."""
    data = pem.encode() if isinstance(pem, str) else pem
    try:
        found = x509.load_pem_x509_certificates(data)
    except ValueError as problem:
        raise Unusable(f"{name}: failed to parse certificate: {problem}") from problem
    if not found:
        raise Unusable(f"{name}: no certificate found")
    return found


def private_key(pem: bytes | str, name: str) -> PrivateKeyTypes:
    data = pem.encode() if isinstance(pem, str) else pem
    try:
        # Whether an RSA key's numbers fit each other takes long to check; whether it fits its certificate does not.
        return serialization.load_pem_private_key(data, None, unsafe_skip_rsa_key_validation=True)
    except (ValueError, TypeError) as problem:
        raise Unusable(f"{name}: failed to parse private key: {problem}") from problem


def public_key(pem: bytes, name: str) -> None:
    """Raise `Unusable` unless the file is a public key."""
    try:
        serialization.load_pem_public_key(pem)
    except ValueError as problem:
        raise Unusable(f"{name}: failed to parse public key: {problem}") from problem


def pair(certificate: bytes, key: bytes, name: str) -> Pair:
    """A certificate and its key; `Unusable` if they do not belong together."""
    leaf = certificates(certificate, f"{name}.crt")[0]
    own = private_key(key, f"{name}.key")
    if _public(own.public_key()) != _public(leaf.public_key()):
        raise Unusable(f"{name}: tls: private key does not match public key")
    return Pair(certificate.decode(), key.decode())


def expiry(pem: bytes | str, moment: datetime.datetime | None = None) -> str:
    """What is wrong with the time of a certificate, if anything, in the words of those who check it."""
    leaf = certificates(pem, "certificate")[0]
    at = moment or now()
    if at > leaf.not_valid_after_utc:
        return f"current time {_rfc3339(at)} is after {_rfc3339(leaf.not_valid_after_utc)}"
    if at < leaf.not_valid_before_utc:
        return f"current time {_rfc3339(at)} is before {_rfc3339(leaf.not_valid_before_utc)}"
    return ""


def worn(pem: str, moment: datetime.datetime | None = None) -> bool:
    """Whether two thirds of a certificate's life are over, so that its successor should be made."""
    leaf = certificates(pem, "certificate")[0]
    life = leaf.not_valid_after_utc - leaf.not_valid_before_utc
    return (moment or now()) >= leaf.not_valid_before_utc + life * 2 / 3


def bundle(*pems: str) -> str:
    """The certificates of all, each once, in order."""
    blocks: dict[str, None] = {}
    for pem in pems:
        for certificate in certificates(pem, "bundle"):
            blocks[certificate.public_bytes(serialization.Encoding.PEM).decode()] = None
    return "".join(blocks)


def authority(name: str, life: datetime.timedelta) -> Pair:
    """A new signer."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(oid.NameOID.COMMON_NAME, name)])
    start = now() - _SKEW
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(start)
        .not_valid_after(start + life)
        .add_extension(x509.BasicConstraints(True, None), critical=True)
        .add_extension(_usage(signer=True), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )
    return Pair(_pem(builder.sign(key, hashes.SHA256())), _key_pem(key))


def serving(signer: Pair, common_name: str, names: Sequence[str], life: datetime.timedelta) -> Pair:
    """A new serving certificate for names and addresses, its signer's certificate behind it as a chain."""
    issuer = certificates(signer.certificate, "signer")[0]
    signing = private_key(signer.key, "signer")
    if not isinstance(signing, rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey):
        raise Unusable("signer: the key is neither RSA nor elliptic")
    key = ec.generate_private_key(ec.SECP256R1())
    start = now() - _SKEW
    builder = (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(oid.NameOID.COMMON_NAME, common_name)]))
        .issuer_name(issuer.subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(start)
        # Nothing outlives its signer.
        .not_valid_after(min(start + life, issuer.not_valid_after_utc) if issuer.not_valid_after_utc > start else start)
        .add_extension(x509.BasicConstraints(False, None), critical=True)
        .add_extension(_usage(signer=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([oid.ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.SubjectAlternativeName([_general_name(name) for name in names]), critical=False)
    )
    leaf = builder.sign(signing, hashes.SHA256())
    return Pair(_pem(leaf) + _pem(issuer), _key_pem(key))


def fresh_key() -> tuple[str, str]:
    """A key and its public half, for signing tokens."""
    key = ec.generate_private_key(ec.SECP256R1())
    return _key_pem(key), _public(key.public_key()).decode()


def _general_name(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _usage(*, signer: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        key_encipherment=True,
        key_cert_sign=signer,
        crl_sign=False,
        content_commitment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _public(key: object) -> bytes:
    encode = key.public_bytes  # type: ignore[attr-defined]
    found: bytes = encode(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    return found


def _pem(certificate: x509.Certificate) -> str:
    return certificate.public_bytes(serialization.Encoding.PEM).decode()


def _key_pem(key: ec.EllipticCurvePrivateKey) -> str:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    ).decode()


def _rfc3339(moment: datetime.datetime) -> str:
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")
