"""Certificates on request: which requests a signer accepts, the `Signer` that signs them, the `Approver` of renewals.

A CertificateSigningRequest is approved by somebody who may, and signed by the cluster's signer if it keeps the rules of
the signer it names; otherwise it fails, and says why. Certificates live by the real clock, because real programs check
them with theirs. What may be written into a request is in `certificate_requests`.
"""

from __future__ import annotations

import abc
import base64
import binascii
import datetime
import logging
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from cryptography import exceptions, x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from moorage.lab.kube import authorization, kinds, store, users

if TYPE_CHECKING:
    from moorage.lab.kube import api as apis

Object = dict[str, Any]

GROUP = "certificates.k8s.io"
REQUESTS: kinds.Key = (GROUP, "certificatesigningrequests")
KUBELET_CLIENT = "kubernetes.io/kube-apiserver-client-kubelet"
KUBELET_SERVING = "kubernetes.io/kubelet-serving"
CLIENT = "kubernetes.io/kube-apiserver-client"
LEGACY = "kubernetes.io/legacy-unknown"
APPROVED, DENIED, FAILED = "Approved", "Denied", "Failed"

_BACKDATE = datetime.timedelta(minutes=5)
_SHORTEST = datetime.timedelta(minutes=10)
# A certificate shorter than this gets all of its time from now on; five minutes would be too much of it.
_SHORT = datetime.timedelta(hours=8)

_KEY_USAGES = {
    "signing": "digital_signature",
    "digital signature": "digital_signature",
    "content commitment": "content_commitment",
    "key encipherment": "key_encipherment",
    "key agreement": "key_agreement",
    "data encipherment": "data_encipherment",
    "cert sign": "key_cert_sign",
    "crl sign": "crl_sign",
    "encipher only": "encipher_only",
    "decipher only": "decipher_only",
}
_EXTENDED_USAGES = {
    "any": ExtendedKeyUsageOID.ANY_EXTENDED_KEY_USAGE,
    "server auth": ExtendedKeyUsageOID.SERVER_AUTH,
    "client auth": ExtendedKeyUsageOID.CLIENT_AUTH,
    "code signing": ExtendedKeyUsageOID.CODE_SIGNING,
    "email protection": ExtendedKeyUsageOID.EMAIL_PROTECTION,
    "s/mime": ExtendedKeyUsageOID.EMAIL_PROTECTION,
    "ipsec end system": x509.ObjectIdentifier("1.3.6.1.5.5.7.3.5"),
    "ipsec tunnel": x509.ObjectIdentifier("1.3.6.1.5.5.7.3.6"),
    "ipsec user": x509.ObjectIdentifier("1.3.6.1.5.5.7.3.7"),
    "timestamping": ExtendedKeyUsageOID.TIME_STAMPING,
    "ocsp signing": ExtendedKeyUsageOID.OCSP_SIGNING,
    "microsoft sgc": x509.ObjectIdentifier("1.3.6.1.4.1.311.10.3.3"),
    "netscape sgc": x509.ObjectIdentifier("2.16.840.1.113730.4.1"),
}
USAGES = frozenset(_KEY_USAGES) | frozenset(_EXTENDED_USAGES)

_log = logging.getLogger(__name__)


class Refused(Exception):  # noqa: N818 - becomes a condition of the request
    """Why a request cannot be read or accepted."""


def parsed(request: str) -> x509.CertificateSigningRequest:
    """The PKCS #10 request in ``spec.request`` (base64 of PEM); its signature is not checked."""
    try:
        data = base64.b64decode(request, validate=True)
    except (binascii.Error, ValueError):
        raise Refused("illegal base64 data") from None
    if b"-----BEGIN CERTIFICATE REQUEST-----" not in data:
        raise Refused("PEM block type must be CERTIFICATE REQUEST")
    try:
        return x509.load_pem_x509_csr(data)
    except ValueError as wrong:
        raise Refused(f"asn1: structure error: {wrong}") from None


def verified(request: str) -> x509.CertificateSigningRequest:
    """The same, if whoever made it holds its key."""
    found = parsed(request)
    try:
        genuine = found.is_signature_valid
    except (ValueError, exceptions.UnsupportedAlgorithm):
        genuine = False
    if not genuine:
        names = {"RSA": rsa.RSAPublicKey, "ECDSA": ec.EllipticCurvePublicKey, "Ed25519": ed25519.Ed25519PublicKey}
        key = found.public_key()
        kind = next((name for name, of in names.items() if isinstance(key, of)), "signature")
        raise Refused("crypto/rsa: verification error" if kind == "RSA" else f"x509: {kind} verification failure")
    return found


def subject(request: x509.CertificateSigningRequest, oid: x509.ObjectIdentifier) -> list[str]:
    """The values of one attribute of the subject."""
    return [str(each.value) for each in request.subject.get_attributes_for_oid(oid)]


def common_name(request: x509.CertificateSigningRequest) -> str:
    """The name by which the holder of the certificate will be known."""
    return (subject(request, NameOID.COMMON_NAME) or [""])[-1]


def check(signer: str, request: x509.CertificateSigningRequest, usages: Iterable[str]) -> None:
    """Refuse what breaks the rules of the signer, in the words of the real controller."""
    asked = set(usages)
    if signer == KUBELET_CLIENT:
        _check_kubelet_client(request, asked)
    elif signer == KUBELET_SERVING:
        _check_kubelet_serving(request, asked)
    elif signer == CLIENT:
        odd = [usage for usage in usages if usage not in ("digital signature", "key encipherment", "client auth")]
        if odd:
            raise Refused(f"invalid usage for client certificate: {odd[0]}")
        if "client auth" not in asked:
            raise Refused("missing required usage for client certificate: client auth")


def _check_kubelet_client(request: x509.CertificateSigningRequest, usages: set[str]) -> None:
    _check_nodes(request)
    names = _names(request)
    for kind, words in ((x509.DNSName, "DNS"), (x509.RFC822Name, "Email"), (x509.IPAddress, "IP")):
        if _some(names, kind):
            raise Refused(f"{words} subjectAltNames are not allowed")
    if _some(names, x509.UniformResourceIdentifier):
        raise Refused("URI subjectAltNames are not allowed")
    _check_node_name(request)
    _check_usages(usages, "client auth")


def _check_kubelet_serving(request: x509.CertificateSigningRequest, usages: set[str]) -> None:
    _check_nodes(request)
    names = _names(request)
    if not _some(names, x509.DNSName) and not _some(names, x509.IPAddress):
        raise Refused("DNS or IP subjectAltName is required")
    if _some(names, x509.RFC822Name):
        raise Refused("Email subjectAltNames are not allowed")
    if _some(names, x509.UniformResourceIdentifier):
        raise Refused("URI subjectAltNames are not allowed")
    _check_usages(usages, "server auth")
    _check_node_name(request)


def _check_nodes(request: x509.CertificateSigningRequest) -> None:
    if subject(request, NameOID.ORGANIZATION_NAME) != [users.NODES]:
        raise Refused("subject organization is not system:nodes")


def _check_node_name(request: x509.CertificateSigningRequest) -> None:
    if not common_name(request).startswith(users.NODE_PREFIX):
        raise Refused("subject common name does not begin with system:node:")


def _check_usages(usages: set[str], purpose: str) -> None:
    required = {"digital signature", "key encipherment", purpose}
    # Only RSA keys encipher others.
    if usages not in (required, required - {"key encipherment"}):
        raise Refused(f"usages did not match [{' '.join(sorted(required))}]")


def _names(request: x509.CertificateSigningRequest) -> list[x509.GeneralName]:
    try:
        return list(request.extensions.get_extension_for_class(x509.SubjectAlternativeName).value)
    except x509.ExtensionNotFound:
        return []


def _some(names: list[x509.GeneralName], kind: type[x509.GeneralName]) -> bool:
    return any(isinstance(name, kind) for name in names)


def condition(content: Mapping[str, Any], kind: str) -> bool:
    """Whether a request has a condition of this type."""
    conditions = (content.get("status") or {}).get("conditions") or ()
    return any(each.get("type") == kind and each.get("status") == "True" for each in conditions)


class _Controller(abc.ABC):
    """Looks at every request, those that are there and those that come, until it is stopped."""

    def __init__(self, api: apis.Api) -> None:
        self.api = api

    async def run(self) -> None:
        """Work for ever; to stop, cancel."""
        while True:
            watch = self.api.store.watch(REQUESTS)
            self.look()
            try:
                while True:
                    await watch.wait()
                    for event in watch.ready():
                        current = self.api.store.get(REQUESTS, event.name)
                        if current is not None:
                            self.handle(current)
            except store.Compacted:
                continue

    def look(self) -> None:
        """Handle all requests there are."""
        for entry in self.api.store.entries(REQUESTS):
            self.handle(entry)

    @abc.abstractmethod
    def handle(self, entry: store.Entry) -> None:
        """Do what there is to do about one request."""

    def change(self, entry: store.Entry, edit: Callable[[Object], None]) -> None:
        """Let ``edit`` change the status of a request."""

        def changed(content: Object) -> None:
            edit(content.setdefault("status", {}))

        kind = self.api.kind(GROUP, "CertificateSigningRequest")
        self.api.apply_status(kind, "", entry.object["metadata"]["name"], changed)

    def append(self, entry: store.Entry, condition: Object) -> None:
        """Give a request one more condition."""
        self.change(entry, lambda status: status.setdefault("conditions", []).append(condition))

    def condition(self, kind: str, reason: str, message: str) -> Object:
        """A condition as of now."""
        now = self.api.time()
        return {
            "type": kind,
            "status": "True",
            "reason": reason,
            "message": message,
            "lastUpdateTime": now,
            "lastTransitionTime": now,
        }


class Signer(_Controller):
    """Signs approved requests with the cluster's key (RSA or elliptic curve), for at most ``duration`` real seconds."""

    def __init__(
        self,
        api: apis.Api,
        cert_pem: str,
        key_pem: str,
        duration: float = 365 * 24 * 3600.0,
        signers: Iterable[str] = (KUBELET_CLIENT, KUBELET_SERVING, CLIENT, LEGACY),
    ) -> None:
        super().__init__(api)
        self.duration = datetime.timedelta(seconds=duration)
        self.signers = frozenset(signers)
        self._certificate = x509.load_pem_x509_certificate(cert_pem.encode())
        key = serialization.load_pem_private_key(key_pem.encode(), None)
        if not isinstance(key, rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey):
            raise ValueError("the signer's key is neither RSA nor elliptic curve")
        if key.public_key() != self._certificate.public_key():
            raise ValueError("the signer's key is not that of its certificate")
        self._key = key

    def handle(self, entry: store.Entry) -> None:
        """Sign a request if it is approved, unsigned and ours; note why, if it breaks the rules."""
        content, spec = entry.object, entry.object["spec"]
        done = (content.get("status") or {}).get("certificate") or condition(content, FAILED)
        if done or not condition(content, APPROVED) or condition(content, DENIED):
            return
        if spec.get("signerName") not in self.signers:
            return
        try:
            request = verified(spec["request"])
            check(spec["signerName"], request, spec.get("usages") or ())
        except Refused as wrong:
            self.append(entry, self.condition(FAILED, "SignerValidationFailure", str(wrong)))
            return
        try:
            signed = self.sign(request, spec.get("usages") or (), spec.get("expirationSeconds"))
        except Refused as wrong:
            # The real controller tries again and again, and the request stays Approved.
            _log.warning("cannot sign %s: %s", content["metadata"]["name"], wrong)
            return
        encoded = base64.b64encode(signed.encode()).decode()
        self.change(entry, lambda status: status.update(certificate=encoded))

    def sign(self, request: x509.CertificateSigningRequest, usages: Iterable[str], seconds: int | None = None) -> str:
        """The certificate in PEM: the subject and names of the request, and nothing else of it."""
        now = datetime.datetime.now(datetime.UTC)
        until = self._certificate.not_valid_after_utc
        if now >= until:
            raise Refused(f"refusing to sign a certificate that expired in the past: NotAfter={until}")
        wanted = self.duration if seconds is None else datetime.timedelta(seconds=seconds)
        lasts = min(self.duration, max(wanted, _SHORTEST)) if seconds is not None else wanted
        builder = (
            x509.CertificateBuilder()
            .subject_name(request.subject)
            .issuer_name(self._certificate.subject)
            .public_key(request.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - _BACKDATE)
            .not_valid_after(min(until, now + (lasts if lasts < _SHORT else lasts - _BACKDATE)))
        )
        for extension, critical in _extensions(self._certificate, request, list(usages)):
            builder = builder.add_extension(extension, critical)
        return builder.sign(self._key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM).decode()


class Approver(_Controller):
    """Approves the client certificates of kubelets for those who may have them approved without asking anybody."""

    def handle(self, entry: store.Entry) -> None:
        """Approve a request if its maker may create ``selfnodeclient`` or ``nodeclient`` requests."""
        content, spec = entry.object, entry.object["spec"]
        decided = condition(content, APPROVED) or condition(content, DENIED)
        if decided or (content.get("status") or {}).get("certificate") or spec.get("signerName") != KUBELET_CLIENT:
            return
        try:
            request = parsed(spec["request"])
            check(KUBELET_CLIENT, request, spec.get("usages") or ())
        except Refused:
            return
        user = users.User(spec.get("username", ""), tuple(spec.get("groups") or ()))
        own = user.name == common_name(request)
        for subresource, fits, whose in (("selfnodeclient", own, "self kubelet"), ("nodeclient", True, "kubelet")):
            asked = authorization.Attributes("create", *REQUESTS, subresource)
            if fits and authorization.allowed(self.api, user, asked)[0]:
                message = f"Auto approving {whose} client certificate after SubjectAccessReview."
                self.append(entry, self.condition(APPROVED, "AutoApproved", message))
                return


def _extensions(
    issuer: x509.Certificate, request: x509.CertificateSigningRequest, usages: list[str]
) -> Iterable[tuple[x509.ExtensionType, bool]]:
    flags = {_KEY_USAGES[usage] for usage in usages if usage in _KEY_USAGES}
    purposes = {_EXTENDED_USAGES[usage]: None for usage in usages if usage in _EXTENDED_USAGES}
    if flags:
        # These two say what a key agreement is for, and nothing without one.
        flags -= set() if "key_agreement" in flags else {"encipher_only", "decipher_only"}
        yield x509.KeyUsage(**{flag: flag in flags for flag in dict.fromkeys(_KEY_USAGES.values())}), True
    if purposes:
        yield x509.ExtendedKeyUsage(list(purposes)), False
    yield x509.BasicConstraints(ca=False, path_length=None), True
    try:
        theirs = issuer.extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value
    except x509.ExtensionNotFound:
        pass
    else:
        yield x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(theirs), False
    names = _names(request)
    if names:
        yield x509.SubjectAlternativeName(names), False
