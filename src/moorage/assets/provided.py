"""CAs and keys that the user brings in ``tls/``: taken when sound, refused with the reason when not."""

from __future__ import annotations

from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from moorage import errors
from moorage.assets import values


def signer(name: str, given: values.Files) -> values.CertKey | None:
    """The user's CA of that name; None where there is none."""
    cert, key = (given.get(f"tls/{name}.{suffix}") for suffix in ("crt", "key"))
    if cert is None and key is None:
        return None
    if cert is None or key is None:
        raise _refused(name, "the certificate and its key must both be there", "crt" if cert is None else "key")
    private = _private(name, key)
    try:
        parsed = x509.load_pem_x509_certificate(cert)
    except ValueError as problem:
        raise _refused(name, "not a PEM certificate", "crt") from problem
    if parsed.public_key() != private.public_key():
        raise _refused(name, "the key does not belong to the certificate", "key")
    if not _is_ca(parsed):
        raise _refused(name, "not a CA certificate (basicConstraints CA:TRUE)", "crt")
    return values.CertKey(cert.decode(), key.decode())


def key_pair(name: str, given: values.Files) -> values.KeyPair | None:
    """The user's key pair of that name; the public half may be left out."""
    public, key = (given.get(f"tls/{name}.{suffix}") for suffix in ("pub", "key"))
    if key is None:
        if public is not None:
            raise _refused(name, "the private key is missing", "key")
        return None
    private = _private(name, key)
    derived = private.public_key().public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    if public is not None:
        try:
            same = serialization.load_pem_public_key(public) == private.public_key()
        except ValueError as problem:
            raise _refused(name, "not a PEM public key", "pub") from problem
        if not same:
            raise _refused(name, "the public key does not belong to the private one", "pub")
    return values.KeyPair(derived.decode(), key.decode())


def _private(name: str, pem: bytes) -> rsa.RSAPrivateKey:
    try:
        key = serialization.load_pem_private_key(pem, None)
    except (ValueError, TypeError) as problem:
        raise _refused(name, "not an unencrypted PEM private key", "key") from problem
    if not isinstance(key, rsa.RSAPrivateKey):
        raise _refused(name, "not an RSA key", "key")
    return key


def _is_ca(certificate: x509.Certificate) -> bool:
    try:
        return certificate.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    except x509.ExtensionNotFound:
        return False


def _refused(name: str, reason: str, suffix: str) -> errors.MoorageError:
    return errors.MoorageError(
        f"tls/{name}.{suffix}: {reason}", remedy=f"correct the file, or move tls/{name}.* away to have it generated"
    )
