"""Making certificates: the few shapes a cluster needs, deterministic for a given key and moment.

RSA PKCS#1 v1.5 signatures have no randomness and the serial is derived from key and subject, so a certificate computed
again is the same certificate.
"""

from __future__ import annotations

import dataclasses
import datetime
import hashlib
import ipaddress
import warnings

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from moorage import errors
from moorage.assets import keys, values

CLIENT = ExtendedKeyUsageOID.CLIENT_AUTH
SERVER = ExtendedKeyUsageOID.SERVER_AUTH


@dataclasses.dataclass(frozen=True)
class Leaf:
    """What sets one end-entity certificate apart."""

    common_name: str
    usages: tuple[x509.ObjectIdentifier, ...]
    organizations: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    addresses: tuple[str, ...] = ()


def authority(
    common_name: str, unit: str, key: rsa.RSAPrivateKey, start: datetime.datetime, end: datetime.datetime
) -> str:
    """A self-signed CA certificate, PEM."""
    subject = x509.Name(
        [
            x509.NameAttribute(NameOID.ORGANIZATIONAL_UNIT_NAME, unit),
            x509.NameAttribute(NameOID.COMMON_NAME, common_name),
        ]
    )
    builder = (
        _builder(subject, subject, key.public_key(), start, end)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .add_extension(_key_usage(signs_certificates=True), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )
    return _pem(builder.sign(key, hashes.SHA256()))


def leaf(shape: Leaf, key: rsa.RSAPrivateKey, issuer: values.CertKey, end: datetime.datetime) -> str:
    """A certificate signed by ``issuer``, valid from the moment its issuer is, PEM."""
    ca = parse(issuer.cert)
    ca_key = keys.load(issuer.key)
    subject = x509.Name(
        [
            *(x509.NameAttribute(NameOID.ORGANIZATION_NAME, name) for name in shape.organizations),
            _common_name(shape.common_name),
        ]
    )
    start = ca.not_valid_before_utc
    public = key.public_key()
    builder = (
        _builder(subject, ca.subject, public, start, end)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_key_usage(signs_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage(shape.usages), critical=False)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
        .add_extension(_authority_key_id(ca), critical=False)
    )
    alternatives = [
        *(x509.DNSName(name) for name in shape.names),
        *(x509.IPAddress(ipaddress.ip_address(address)) for address in shape.addresses),
    ]
    if alternatives:
        builder = builder.add_extension(x509.SubjectAlternativeName(alternatives), critical=False)
    return _pem(builder.sign(ca_key, hashes.SHA256()))


def _common_name(text: str) -> x509.NameAttribute[str]:
    """RFC 5280 bounds a CN at 64 characters; the node-bootstrapper's account name is longer, and readers take it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        return x509.NameAttribute(NameOID.COMMON_NAME, text, _validate=False)


def parse(pem: str) -> x509.Certificate:
    """The first certificate in ``pem``."""
    return x509.load_pem_x509_certificate(pem.encode())


def public_pem(key: rsa.RSAPrivateKey) -> str:
    return (
        key.public_key()
        .public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
        .decode()
    )


def public_ssh(key: rsa.RSAPrivateKey) -> str:
    return key.public_key().public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH).decode()


def _builder(
    subject: x509.Name,
    issuer: x509.Name,
    public: rsa.RSAPublicKey,
    start: datetime.datetime,
    end: datetime.datetime,
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(public)
        .serial_number(_serial(subject, public, start, end))
        .not_valid_before(start)
        .not_valid_after(end)
    )


def _serial(subject: x509.Name, public: rsa.RSAPublicKey, start: datetime.datetime, end: datetime.datetime) -> int:
    """Unique per key, name and validity; 63 bits and positive, as X.509 readers like it."""
    seed = f"{public.public_numbers().n:x}|{subject.rfc4514_string()}|{start.isoformat()}|{end.isoformat()}"
    return int.from_bytes(hashlib.sha256(seed.encode()).digest()[:8], "big") >> 1 | 1


def _authority_key_id(ca: x509.Certificate) -> x509.AuthorityKeyIdentifier:
    try:
        ski = ca.extensions.get_extension_for_class(x509.SubjectKeyIdentifier)
    except x509.ExtensionNotFound:
        return x509.AuthorityKeyIdentifier.from_issuer_public_key(_rsa(ca))
    return x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(ski.value)


def _rsa(certificate: x509.Certificate) -> rsa.RSAPublicKey:
    key = certificate.public_key()
    if not isinstance(key, rsa.RSAPublicKey):
        raise errors.MoorageError("only RSA keys can sign cluster certificates")
    return key


def _key_usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        key_encipherment=True,
        key_cert_sign=signs_certificates,
        content_commitment=False,
        data_encipherment=False,
        key_agreement=False,
        crl_sign=False,
        encipher_only=False,
        decipher_only=False,
    )


def _pem(certificate: x509.Certificate) -> str:
    return certificate.public_bytes(serialization.Encoding.PEM).decode()
