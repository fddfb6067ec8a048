"""Who it is that asks: by client certificate, by bearer token, or nobody in particular.

Certificates are checked against the client CAs with the real clock, because real programs check them so; tokens live by
the cloud's. What a certificate proves is remembered by its bytes, so that a thousand nodes on kept connections cost one
look-up per request. Who shows something that does not hold is refused; who shows nothing is anonymous.
"""

from __future__ import annotations

import dataclasses
import datetime
import functools
import hashlib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from cryptography import exceptions, x509
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from moorage.lab.kube import problem, tokens, users

if TYPE_CHECKING:
    from moorage.lab.kube import api as apis

# How Kubernetes writes the uid of a user into a certificate.
_UID = x509.ObjectIdentifier("1.3.6.1.4.1.57683.2")
_MOST_CERTIFICATES = 10_000
_PublicKeys = tuple[tokens.PublicKey, ...]


@dataclasses.dataclass(frozen=True)
class _Proof:
    """What a certificate shows, and between which moments."""

    user: users.User | None
    not_before: datetime.datetime
    not_after: datetime.datetime


@dataclasses.dataclass(frozen=True)
class Access:
    """Whom a server believes.

    ``client_ca`` is a bundle of certificates in PEM; ``service_account_public_keys`` are PEM texts of public keys,
    certificates or private keys. With ``service_account_key`` (a private key) tokens can be issued.
    """

    client_ca: str = ""
    tokens: Mapping[str, users.User] = dataclasses.field(default_factory=dict)
    service_account_public_keys: Sequence[str] = ()
    service_account_key: str = ""
    issuer: str = "https://kubernetes.default.svc"
    anonymous: bool = True
    proofs: dict[bytes, _Proof] = dataclasses.field(default_factory=dict, init=False, repr=False, compare=False)
    verified_tokens: dict[str, Mapping[str, Any]] = dataclasses.field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    @functools.cached_property
    def authorities(self) -> tuple[x509.Certificate, ...]:
        """The certificates of the client CAs."""
        return tuple(x509.load_pem_x509_certificates(self.client_ca.encode())) if self.client_ca.strip() else ()

    @functools.cached_property
    def public_keys(self) -> _PublicKeys:
        """The keys by which tokens of service accounts are believed."""
        own = (self.service_account_key,) if self.service_account_key else ()
        return tuple(tokens.public_key(pem) for pem in (*own, *self.service_account_public_keys))


def authenticate(
    access: Access, api: apis.Api, peer_certificate: bytes | None, authorization_header: str = ""
) -> users.User:
    """The user who asks; ``peer_certificate`` is DER, as ``getpeercert(binary_form=True)`` gives it.

    Raises 401 if nothing that they show holds.
    """
    shown = False
    if peer_certificate and access.authorities:
        proof = _proof(access, peer_certificate)
        if proof is not None and proof.user is not None:
            return proof.user
        shown = proof is None
    token = bearer(authorization_header)
    if token:
        try:
            found = token_user(access, api, token)
        except tokens.Invalid:
            found = None
        if found is not None:
            return found[0]
        shown = True
    if shown or not access.anonymous:
        raise problem.unauthorized()
    return users.anonymous()


def bearer(header: str) -> str:
    """The bearer token in an Authorization header; empty if there is none."""
    parts = header.strip().split(" ", 2)
    return parts[1] if len(parts) > 1 and parts[0].lower() == "bearer" else ""


def token_user(
    access: Access, api: apis.Api, token: str, audiences: Sequence[str] = ()
) -> tuple[users.User, tuple[str, ...]] | None:
    """Whose token it is, and for which of the audiences it is good; None if nobody's, `tokens.Invalid` if spoilt.

    Only tokens of service accounts name their audiences; all others are meant for this API alone.
    """
    if audiences and access.issuer not in audiences:
        return tokens.service_account_user(access, api, token, audiences)
    user = access.tokens.get(token)
    if user is None:
        user = tokens.bootstrap_user(api, token)
    if user is not None:
        groups = _with_authenticated(user.groups)
        return dataclasses.replace(user, groups=groups), (access.issuer,)
    return tokens.service_account_user(access, api, token, audiences)


def _with_authenticated(groups: tuple[str, ...]) -> tuple[str, ...]:
    told = users.AUTHENTICATED in groups or users.UNAUTHENTICATED in groups
    return groups if told else (*groups, users.AUTHENTICATED)


def _proof(access: Access, der: bytes) -> _Proof | None:
    proof = access.proofs.get(der)
    if proof is None:
        proof = _examined(access, der)
        if proof is None:
            return None
        if len(access.proofs) >= _MOST_CERTIFICATES:
            access.proofs.clear()
        access.proofs[der] = proof
    now = datetime.datetime.now(datetime.UTC)
    return proof if proof.not_before <= now <= proof.not_after else None


def _examined(access: Access, der: bytes) -> _Proof | None:
    """What a certificate proves, if one of the authorities has issued it for clients."""
    try:
        certificate = x509.load_der_x509_certificate(der)
        issuer = next((each for each in access.authorities if _issued(certificate, each)), None)
        if issuer is None or not _for_clients(certificate):
            return None
        user = _subject(certificate, der)
    except (ValueError, x509.DuplicateExtension):
        return None
    # Nothing is proved any longer than the one who vouches for it is in office.
    not_before = max(certificate.not_valid_before_utc, issuer.not_valid_before_utc)
    return _Proof(user, not_before, min(certificate.not_valid_after_utc, issuer.not_valid_after_utc))


def _issued(certificate: x509.Certificate, issuer: x509.Certificate) -> bool:
    if certificate.issuer != issuer.subject:
        return False
    try:
        certificate.verify_directly_issued_by(issuer)
        constraints = issuer.extensions.get_extension_for_class(x509.BasicConstraints)
    except x509.ExtensionNotFound:
        return False
    except (ValueError, TypeError, exceptions.InvalidSignature):
        return False
    return constraints.value.ca


def _for_clients(certificate: x509.Certificate) -> bool:
    try:
        usages = certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    except x509.ExtensionNotFound:
        return True
    return any(
        usage in usages for usage in (ExtendedKeyUsageOID.CLIENT_AUTH, ExtendedKeyUsageOID.ANY_EXTENDED_KEY_USAGE)
    )


def _subject(certificate: x509.Certificate, der: bytes) -> users.User | None:
    """Common name and organizations; the last common name counts, as everywhere."""
    names = certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    if not names or not names[-1].value:
        return None
    groups = [str(each.value) for each in certificate.subject.get_attributes_for_oid(NameOID.ORGANIZATION_NAME)]
    uids = [str(each.value) for each in certificate.subject.get_attributes_for_oid(_UID)]
    if len(uids) > 1 or uids == [""]:
        raise ValueError("a user has one uid")
    extra = {tokens.CREDENTIAL_ID: (f"X509SHA256={hashlib.sha256(der).hexdigest()}",)}
    return users.User(str(names[-1].value), _with_authenticated(tuple(groups)), "".join(uids), extra)
