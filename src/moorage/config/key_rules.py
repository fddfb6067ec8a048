"""Keys, secrets and certificates: what is pasted into an install-config, and pasted wrong.

Nothing here echoes what it checks. A private key in the place of a public one is said loudly, since it is about to be
copied to every node.
"""

from __future__ import annotations

import base64
import binascii
import datetime
import json
import re
from collections.abc import Iterator
from typing import Any, Final

from moorage.config import findings, model, rule, stanza

_CURVES: Final = {"nistp256": 65, "nistp384": 97, "nistp521": 133}
_ALGORITHMS: Final = (
    "ssh-rsa",
    "ssh-ed25519",
    *(f"ecdsa-sha2-{curve}" for curve in _CURVES),
    "sk-ssh-ed25519@openssh.com",
    "sk-ecdsa-sha2-nistp256@openssh.com",
)
_FIPS: Final = re.compile(r"ssh-rsa|ecdsa-sha2-nistp\d{3}")
_RSA_BITS: Final = 2048
_PRIVATE: Final = re.compile(r"-----BEGIN [A-Z0-9 ]*PRIVATE KEY-----|PuTTY-User-Key-File")
_PEM: Final = re.compile(r"-----BEGIN ([A-Z0-9 ]+)-----\s.*?-----END \1-----", re.DOTALL)


class _MalformedError(Exception):
    """A key that does not hold what its algorithm needs."""


def ssh_keys(field: str, lines: str) -> Iterator[findings.Finding]:
    """Every line must be an OpenSSH public key."""
    if _PRIVATE.search(lines):
        yield findings.Finding(
            field,
            "holds a PRIVATE key: it would be copied to every node, and must be kept secret",
            remedy="paste the public half, the file that ends in .pub; replace the key if this file was shared",
        )
        return
    several = len([line for line in lines.splitlines() if line.strip()]) > 1
    for number, line in enumerate(lines.splitlines(), start=1):
        if line.strip():
            where = f"key {number}: " if several else ""
            yield from _ssh_key(field, line.strip(), where)


def _ssh_key(field: str, line: str, where: str) -> Iterator[findings.Finding]:
    remedy = "paste one line of a .pub file, such as ~/.ssh/id_ed25519.pub"
    words = _without_options(line)
    if words and words[0] == "ssh-dss":
        yield findings.Finding(
            field, f"{where}DSA keys are refused by the nodes", remedy="make one with: ssh-keygen -t ed25519"
        )
        return
    if len(words) < 2 or words[0] not in _ALGORITHMS:
        yield findings.Finding(field, f"{where}is not an OpenSSH public key", remedy=remedy)
        return
    algorithm = words[0]
    try:
        bits = _parse_blob(algorithm, base64.b64decode(words[1], validate=True))
    except binascii.Error:
        yield findings.Finding(field, f"{where}is cut off or damaged: it is not base64", remedy=remedy)
        return
    except _MalformedError as error:
        yield findings.Finding(field, f"{where}{error}", remedy=remedy)
        return
    if bits is not None and bits < _RSA_BITS:
        yield findings.Finding(
            field,
            f"{where}is an RSA key of {bits} bits; the nodes' SSH server wants {_RSA_BITS} at least",
            "warning",
            "make one with: ssh-keygen -t ed25519",
        )


def _without_options(line: str) -> list[str]:
    """The words from the algorithm on; options of authorized_keys may stand before it."""
    words = line.split()
    if words and words[0] not in (*_ALGORITHMS, "ssh-dss"):
        for index, word in enumerate(words):
            if word in _ALGORITHMS and line.split(word, 1)[0].count('"') % 2 == 0:
                return words[index:]
    return words


def _parse_blob(algorithm: str, blob: bytes) -> int | None:
    """Check the key's own fields; the size of an RSA modulus comes back."""
    strings = _strings(blob)
    inner = strings[0].decode("ascii", "replace") if strings else ""
    if inner != algorithm:
        raise _MalformedError(f"says {algorithm} but holds another kind of key")
    fields = strings[1:]
    if algorithm == "ssh-rsa":
        if len(fields) != 2 or not fields[1].lstrip(b"\0"):
            raise _MalformedError("is not a complete RSA key")
        return int.from_bytes(fields[1]).bit_length()
    if algorithm.startswith("sk-"):
        if not fields or not fields[-1]:
            raise _MalformedError("does not name the application of its security key")
        fields = fields[:-1]
    if "ed25519" in algorithm:
        if [len(value) for value in fields] != [32]:
            raise _MalformedError("is not a complete Ed25519 key")
        return None
    curve = algorithm.removeprefix("sk-").removeprefix("ecdsa-sha2-").removesuffix("@openssh.com")
    if len(fields) != 2 or fields[0] != curve.encode() or len(fields[1]) != _CURVES[curve]:
        raise _MalformedError("is not a complete ECDSA key")
    return None


def _strings(blob: bytes) -> list[bytes]:
    strings = []
    while blob:
        length = int.from_bytes(blob[:4])
        if len(blob) < 4 + length:
            raise _MalformedError("is cut off")
        strings.append(blob[4 : 4 + length])
        blob = blob[4 + length :]
    return strings


def pull_secret(field: str, secret: str) -> Iterator[findings.Finding]:
    """JSON with credentials for at least one registry."""
    remedy = "download it from https://console.redhat.com/openshift/install/pull-secret"
    try:
        data = json.loads(secret)
    except (ValueError, RecursionError) as error:
        place = f" (character {error.pos + 1})" if isinstance(error, json.JSONDecodeError) else ""
        yield findings.Finding(field, f"is not JSON{place}", remedy=remedy)
        return
    auths = data.get("auths") if isinstance(data, dict) else None
    if not isinstance(auths, dict) or not auths:
        yield findings.Finding(field, 'has no "auths": no registry to pull images from', remedy=remedy)
        return
    for registry, entry in auths.items():
        fault = _auth_fault(entry)
        if fault:
            yield findings.Finding(field, f"the entry of {registry[:80]!r} {fault}", remedy=remedy)


def _auth_fault(entry: Any) -> str:
    if not isinstance(entry, dict):
        return "is not a JSON object"
    if "auth" not in entry:
        return "" if "credsStore" in entry else 'has neither "auth" nor "credsStore"'
    auth = entry["auth"]
    try:
        decoded = base64.b64decode(auth, validate=True) if isinstance(auth, str) else b""
    except (binascii.Error, ValueError):
        return 'has an "auth" that is not base64'
    user, colon, password = decoded.partition(b":")
    return "" if colon and user and password else 'has an "auth" that is not the base64 of user:password'


def trust_bundle(field: str, bundle: str, now: datetime.datetime) -> Iterator[findings.Finding]:
    """PEM certificates, all of which can be read and none of which is a key."""
    if _PRIVATE.search(bundle):
        yield findings.Finding(
            field,
            "holds a PRIVATE key: it would be given to every pod",
            remedy="keep the certificates only; replace the key if this file was shared",
        )
        return
    blocks = list(_PEM.finditer(bundle))
    if not blocks:
        yield findings.Finding(field, "holds no PEM certificate", remedy="paste -----BEGIN CERTIFICATE----- blocks")
    if bundle.count("-----BEGIN") > len(blocks):
        yield findings.Finding(field, "has a block that does not end", remedy="paste the certificates whole")
    for number, block in enumerate(blocks, start=1):
        if block[1] not in ("CERTIFICATE", "TRUSTED CERTIFICATE", "X509 CERTIFICATE"):
            yield findings.Finding(field, f"block {number} is a {block[1].lower()}, not a certificate")
        else:
            yield from _certificate(field, number, block[0], now)


def _certificate(field: str, number: int, pem: str, now: datetime.datetime) -> Iterator[findings.Finding]:
    # Late, since most configs have no bundle and the import costs more than all other rules together.
    from cryptography import x509

    try:
        certificate = x509.load_pem_x509_certificate(pem.encode())
        start, end = certificate.not_valid_before_utc, certificate.not_valid_after_utc
    except ValueError:
        yield findings.Finding(
            field, f"certificate {number} cannot be read: it is cut off or damaged", remedy="paste it whole"
        )
        return
    if end < now:
        message = f"certificate {number} expired on {end.date()}"
        yield findings.Finding(field, message, "warning", "replace it with its successor")
    elif start > now:
        yield findings.Finding(field, f"certificate {number} is not valid before {start.date()}", "warning")


@rule.reads("sshKey")
def check_ssh_key(config: model.InstallConfig, _: stanza.Stanza) -> Iterator[findings.Finding]:
    yield from ssh_keys("sshKey", config.ssh_key)


@rule.reads("sshKey", "fips")
def ssh_key_in_fips(config: model.InstallConfig, _: stanza.Stanza) -> Iterator[findings.Finding]:
    for words in map(_without_options, config.ssh_key.splitlines() if config.fips else ()):
        if words and words[0] in _ALGORITHMS and not _FIPS.fullmatch(words[0]):
            yield findings.Finding(
                "sshKey", f"{words[0]} keys do not work in FIPS mode", remedy="use an rsa or ecdsa key, or remove fips"
            )


@rule.reads("sshKey", "platform")
def ssh_key_required(config: model.InstallConfig, chosen: stanza.Stanza) -> Iterator[findings.Finding]:
    if chosen.needs_ssh_key and not config.ssh_key.strip():
        yield findings.Finding("sshKey", f"is required on platform {chosen.name}", remedy="paste a line of a .pub file")


@rule.reads("pullSecret")
def check_pull_secret(config: model.InstallConfig, _: stanza.Stanza) -> Iterator[findings.Finding]:
    yield from pull_secret("pullSecret", config.pull_secret.get_secret_value())


@rule.reads("additionalTrustBundle")
def check_trust_bundle(config: model.InstallConfig, _: stanza.Stanza) -> Iterator[findings.Finding]:
    if config.additional_trust_bundle:
        now = datetime.datetime.now(datetime.UTC)
        yield from trust_bundle("additionalTrustBundle", config.additional_trust_bundle, now)


@rule.reads("additionalTrustBundle", "additionalTrustBundlePolicy", "proxy")
def trust_bundle_policy(config: model.InstallConfig, _: stanza.Stanza) -> Iterator[findings.Finding]:
    if config.additional_trust_bundle_policy == "Always" and not config.additional_trust_bundle:
        yield findings.Finding(
            "additionalTrustBundlePolicy", "there is no additionalTrustBundle to apply", "warning", "remove it"
        )
    ignored = config.additional_trust_bundle_policy == "Proxyonly" and config.proxy is None
    if config.additional_trust_bundle and ignored:
        yield findings.Finding(
            "additionalTrustBundle",
            "is not handed to the cluster's components, since there is no proxy and the policy is Proxyonly",
            "warning",
            "to have it used, set additionalTrustBundlePolicy: Always",
        )


RULES: Final[tuple[rule.Rule, ...]] = (
    check_ssh_key,
    ssh_key_in_fips,
    ssh_key_required,
    check_pull_secret,
    check_trust_bundle,
    trust_bundle_policy,
)
