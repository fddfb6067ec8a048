"""Certificates judged as the programs on nodes judge them, which are written in Go, and refused in Go's words.

OpenSSL checks the chain and the dates (by the real clock). The name is checked here, against the subject alternative
names only, because OpenSSL would not say which names the certificate has, and that is what the reader of a console
needs to know.
"""

from __future__ import annotations

import datetime
import ipaddress
import re
import ssl

_UNKNOWN_AUTHORITY = frozenset({2, 7, 18, 19, 20, 21, 24, 25})
_DATES = frozenset({9, 10, 13, 14})
_PURPOSE = 26
_NAMES = (62, 63, 64)


class WrongName(ssl.SSLCertVerificationError):
    """The certificate is good, but somebody else's."""

    def __init__(self, names: list[str], wanted: str) -> None:
        said = (
            f"certificate is valid for {', '.join(names)}, not {wanted}"
            if names
            else f"certificate is not valid for any names, but wanted to match {wanted}"
        )
        super().__init__(1, said)
        self.verify_code = 62
        self.verify_message = said


class _Judging(ssl.SSLObject):
    """A client's end of TLS that looks at the names of the peer once the chain is found good."""

    def do_handshake(self) -> None:
        super().do_handshake()
        wanted = self.server_hostname or ""
        names = _names(self, ipaddress_of(wanted))
        if wanted and not any(matches(name, wanted) for name in names):
            raise WrongName(names, wanted)


def _names(peer: ssl.SSLObject, address: str) -> list[str]:
    said = (peer.getpeercert() or {}).get("subjectAltName", ())
    kind = "IP Address" if address else "DNS"
    return [str(entry[1]) for entry in said if isinstance(entry, tuple) and entry[0] == kind]


def ipaddress_of(name: str) -> str:
    """The name as an address in its canonical form, empty if it is none."""
    try:
        return str(ipaddress.ip_address(name.strip("[]")))
    except ValueError:
        return ""


def matches(pattern: str, name: str) -> bool:
    """Whether a name in a certificate stands for the one asked for: a star stands for one whole first label."""
    if address := ipaddress_of(name):
        return ipaddress_of(pattern) == address
    ours, theirs = (text.lower().rstrip(".").split(".") for text in (pattern, name))
    if len(ours) != len(theirs) or not all(theirs):
        return False
    return (ours[0] in ("*", theirs[0])) and ours[1:] == theirs[1:]


def client_context(authorities: str = "") -> ssl.SSLContext:
    """A client's TLS that trusts these authorities (PEM) and, as the lab's machines do, no others."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.check_hostname = False
    context.sslobject_class = _Judging
    # Go trusts any certificate that it was told to trust, be it signed by another or not.
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    if authorities.strip():
        context.load_verify_locations(cadata=authorities)
    return context


def words(problem: ssl.SSLError, now: datetime.datetime | None = None) -> str:
    """Why TLS did not come about."""
    if isinstance(problem, ssl.SSLCertVerificationError):
        return f"tls: failed to verify certificate: x509: {_refusal(problem, now)}"
    reason = problem.reason or ""
    if reason in ("WRONG_VERSION_NUMBER", "HTTP_REQUEST", "UNKNOWN_PROTOCOL"):
        return "tls: first record does not look like a TLS handshake"
    if found := re.search(r"ALERT_(\w+)", reason):
        return f"remote error: tls: {found[1].lower().replace('_', ' ')}"
    return (
        "EOF" if isinstance(problem, ssl.SSLEOFError) else f"tls: {(reason or str(problem)).lower().replace('_', ' ')}"
    )


def _refusal(problem: ssl.SSLCertVerificationError, now: datetime.datetime | None) -> str:
    code = int(problem.verify_code)
    if code in _UNKNOWN_AUTHORITY:
        return "certificate signed by unknown authority"
    if code in _DATES:
        moment = now or datetime.datetime.now(datetime.UTC)
        when = "before its beginning" if code in (9, 13) else "after its end"
        return f"certificate has expired or is not yet valid: current time {moment:%Y-%m-%dT%H:%M:%SZ} is {when}"
    if code == _PURPOSE:
        return "certificate specifies an incompatible key usage"
    return problem.verify_message
