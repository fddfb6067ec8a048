"""Bearer tokens: JSON Web Tokens of service accounts, old and new, and the bootstrap tokens that are Secrets.

A token of a service account is good for as long as its account, and the pod, Secret or Node it is bound to, exist under
the same uid; time is the cloud's. Signatures are checked once per token, everything else on every use.
"""

from __future__ import annotations

import base64
import binascii
import datetime
import hashlib
import hmac
import json
import re
import uuid
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from cryptography import exceptions, x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa, utils

from moorage.lab.kube import kinds, users

if TYPE_CHECKING:
    from moorage.lab.kube import api as apis
    from moorage.lab.kube import authentication

PublicKey = rsa.RSAPublicKey | ec.EllipticCurvePublicKey
Object = Mapping[str, Any]

LEGACY_ISSUER = "kubernetes/serviceaccount"
SERVICE_ACCOUNT_TOKEN = "kubernetes.io/service-account-token"  # noqa: S105 - the type of a Secret
BOOTSTRAP_TOKEN = "bootstrap.kubernetes.io/token"  # noqa: S105 - the type of a Secret
CREDENTIAL_ID = "authentication.kubernetes.io/credential-id"
_LEGACY = "kubernetes.io/serviceaccount/"
_EXTRA = "authentication.kubernetes.io/"

# Clocks of a cluster differ, and things that have just been deleted are still being told about.
_LEEWAY = datetime.timedelta(minutes=1)

_SECRETS: kinds.Key = ("", "secrets")
_ACCOUNTS: kinds.Key = ("", "serviceaccounts")
_BOUND: Mapping[str, kinds.Key] = {"pod": ("", "pods"), "secret": _SECRETS, "node": ("", "nodes")}
_BOOTSTRAP = re.compile(r"([a-z0-9]{6})\.([a-z0-9]{16})")
_BOOTSTRAP_GROUP = re.compile(r"system:bootstrappers:[a-z0-9:-]{0,255}[a-z0-9]")
# Curves by the length of half a signature, and what they sign.
_CURVES: Mapping[int, tuple[str, hashes.HashAlgorithm]] = {
    32: ("ES256", hashes.SHA256()),
    48: ("ES384", hashes.SHA384()),
    66: ("ES512", hashes.SHA512()),
}


class Invalid(Exception):  # noqa: N818 - told in reviews, not raised to people
    """A token that would be good, were it not for what this says."""


def public_key(pem: str) -> PublicKey:
    """A key from a public key, a private key or a certificate in PEM."""
    data = pem.encode()
    found: object
    if "PRIVATE KEY" in pem:
        found = serialization.load_pem_private_key(data, None).public_key()
    elif "CERTIFICATE" in pem:
        found = x509.load_pem_x509_certificate(data).public_key()
    else:
        found = serialization.load_pem_public_key(data)
    if not isinstance(found, rsa.RSAPublicKey | ec.EllipticCurvePublicKey):
        raise ValueError("service account keys are RSA or elliptic curve keys")
    return found


def key_id(key: PublicKey) -> str:
    """By what name tokens call the key that signed them."""
    data = key.public_bytes(serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)
    return _base64(hashlib.sha256(data).digest())


def signed(key_pem: str, claims: Object) -> str:
    """A JSON Web Token."""
    key = serialization.load_pem_private_key(key_pem.encode(), None)
    if not isinstance(key, rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey):
        raise ValueError("service account keys are RSA or elliptic curve keys")
    half = 0 if isinstance(key, rsa.RSAPrivateKey) else (key.curve.key_size + 7) // 8
    header = {"alg": _CURVES[half][0] if half else "RS256", "kid": key_id(key.public_key())}
    text = ".".join(_base64(json.dumps(part, separators=(",", ":")).encode()) for part in (header, claims))
    if isinstance(key, rsa.RSAPrivateKey):
        return f"{text}.{_base64(key.sign(text.encode(), padding.PKCS1v15(), hashes.SHA256()))}"
    r, s = utils.decode_dss_signature(key.sign(text.encode(), ec.ECDSA(_CURVES[half][1])))
    return f"{text}.{_base64(r.to_bytes(half, 'big') + s.to_bytes(half, 'big'))}"


def bound_claims(
    access: authentication.Access,
    account: Object,
    bound: Mapping[str, Object],
    audiences: Sequence[str],
    now: datetime.datetime,
    seconds: int,
) -> dict[str, Any]:
    """What a token of a service account says; ``bound`` is a pod (with its node), a secret or a node, if anything."""
    meta = account["metadata"]
    issued = int(now.timestamp())
    return {
        "aud": list(audiences),
        "exp": issued + seconds,
        "iat": issued,
        "iss": access.issuer,
        "jti": str(uuid.uuid4()),
        "kubernetes.io": {
            "namespace": meta["namespace"],
            **{kind: _reference(each) for kind, each in bound.items()},
            "serviceaccount": _reference(account),
        },
        "nbf": issued,
        "sub": users.service_account_name(meta["namespace"], meta["name"]),
    }


def legacy_claims(account: Object, secret: str) -> dict[str, str]:
    """What a token in a Secret of type kubernetes.io/service-account-token says, for ever."""
    meta = account["metadata"]
    return {
        "iss": LEGACY_ISSUER,
        f"{_LEGACY}namespace": meta["namespace"],
        f"{_LEGACY}secret.name": secret,
        f"{_LEGACY}service-account.name": meta["name"],
        f"{_LEGACY}service-account.uid": meta["uid"],
        "sub": users.service_account_name(meta["namespace"], meta["name"]),
    }


def bootstrap_user(api: apis.Api, token: str) -> users.User | None:
    """Who shows a bootstrap token; None if it is none that may be used to sign in."""
    match = _BOOTSTRAP.fullmatch(token)
    entry = match and api.store.get(_SECRETS, ("kube-system", f"bootstrap-token-{match[1]}"))
    if match is None or not entry or entry.object["metadata"].get("deletionTimestamp"):
        return None
    data = {key: _decoded(value) for key, value in (entry.object.get("data") or {}).items()}
    groups = [group for group in data.get("auth-extra-groups", "").split(",") if group]
    good = (
        entry.object.get("type") == BOOTSTRAP_TOKEN
        and hmac.compare_digest(data.get("token-secret", "").encode(), match[2].encode())
        and data.get("token-id") == match[1]
        and data.get("usage-bootstrap-authentication") == "true"
        and not _expired(data.get("expiration", ""), api.clock.wall())
        and all(_BOOTSTRAP_GROUP.fullmatch(group) for group in groups)
    )
    if not good:
        return None
    return users.User(f"{users.BOOTSTRAP_PREFIX}{match[1]}", tuple(sorted({users.BOOTSTRAPPERS, *groups})))


def service_account_user(
    access: authentication.Access, api: apis.Api, token: str, audiences: Sequence[str] = ()
) -> tuple[users.User, tuple[str, ...]] | None:
    """Whose token it is, and for which of the audiences; None if it is none of ours, `Invalid` if it is spoilt."""
    known = (access.issuer, LEGACY_ISSUER)
    if _unverified(token).get("iss") not in known:
        return None
    claims = _verified(access, token)
    theirs = claims.get("aud") or (access.issuer,)
    theirs = (theirs,) if isinstance(theirs, str) else tuple(theirs)
    wanted = tuple(audiences) or (access.issuer,)
    shared = tuple(each for each in theirs if each in wanted)
    if not shared:
        told = [f"[{' '.join(json.dumps(each) for each in side)}]" for side in (theirs, wanted)]
        raise Invalid(f"token audiences {told[0]} is invalid for the target audiences {told[1]}")
    check = _legacy if claims["iss"] == LEGACY_ISSUER else _current
    return check(api, token, claims), shared


def _current(api: apis.Api, _token: str, claims: Object) -> users.User:
    now = api.clock.wall()
    if now - _LEEWAY > _moment(claims.get("exp"), now):
        raise Invalid("service account token has expired")
    if now + _LEEWAY < _moment(claims.get("nbf"), now):
        raise Invalid("service account token is not valid yet")
    told = claims.get("kubernetes.io") or {}
    namespace, account = told.get("namespace", ""), told.get("serviceaccount") or {}
    found = api.store.get(_ACCOUNTS, (namespace, account.get("name", "")))
    if found is None:
        raise Invalid(f'serviceaccounts "{account.get("name", "")}" not found')
    if found.object["metadata"].get("uid") != account.get("uid"):
        uid = found.object["metadata"].get("uid")
        raise Invalid(f"service account UID ({uid}) does not match claim ({account.get('uid')})")
    for kind in ("secret", "pod", "node"):
        # The node of a pod is told for information alone.
        if told.get(kind) and not (kind == "node" and told.get("pod")):
            _check_bound(api, kind, namespace, told[kind], now)
    return users.service_account(namespace, account["name"], account["uid"], _extra(told, claims.get("jti")))


def _check_bound(api: apis.Api, kind: str, namespace: str, reference: Object, now: datetime.datetime) -> None:
    found = api.store.get(_BOUND[kind], ("" if kind == "node" else namespace, reference.get("name", "")))
    if found is None:
        raise Invalid("service account token has been invalidated")
    meta = found.object["metadata"]
    if meta.get("uid") != reference.get("uid"):
        claim = "service account " + ("secret" if kind == "secret" else kind) + " ref claim"
        raise Invalid(f"{kind} UID ({meta.get('uid')}) does not match {claim} ({reference.get('uid')})")
    deleted = meta.get("deletionTimestamp")
    if deleted and _parsed(deleted) < now - _LEEWAY:
        raise Invalid("service account token has been invalidated")


def _legacy(api: apis.Api, token: str, claims: Object) -> users.User:
    namespace, name, uid, secret = (
        claims.get(_LEGACY + part, "")
        for part in ("namespace", "service-account.name", "service-account.uid", "secret.name")
    )
    if claims.get("sub") != users.service_account_name(namespace, name):
        raise Invalid("sub claim is invalid")
    held = api.store.get(_SECRETS, (namespace, secret))
    if held is None or held.object["metadata"].get("deletionTimestamp"):
        raise Invalid("Token has been invalidated")
    if not hmac.compare_digest(_decoded((held.object.get("data") or {}).get("token", "")).encode(), token.encode()):
        raise Invalid("Token does not match server's copy")
    account = api.store.get(_ACCOUNTS, (namespace, name))
    if account is None:
        raise Invalid(f'serviceaccounts "{name}" not found')
    if account.object["metadata"].get("uid") != uid:
        raise Invalid(f"ServiceAccount UID ({account.object['metadata'].get('uid')}) does not match claim ({uid})")
    return users.service_account(namespace, name, uid)


def _extra(told: Object, token_id: object) -> users.Extra:
    extra: dict[str, tuple[str, ...]] = {}
    for kind in ("pod", "node"):
        for field in ("name", "uid"):
            if (told.get(kind) or {}).get(field):
                extra[f"{_EXTRA}{kind}-{field}"] = (told[kind][field],)
    return extra | ({CREDENTIAL_ID: (f"JTI={token_id}",)} if token_id else {})


def _verified(access: authentication.Access, token: str) -> Object:
    claims = access.verified_tokens.get(token)
    if claims is None:
        text, _, signature = token.rpartition(".")
        if not any(_signed_by(key, text.encode(), _unbase64(signature)) for key in access.public_keys):
            raise Invalid("go-jose/go-jose: error in cryptographic primitive")
        claims = _unverified(token)
        if len(access.verified_tokens) >= 10_000:
            access.verified_tokens.clear()
        access.verified_tokens[token] = claims
    return claims


def _signed_by(key: PublicKey, text: bytes, signature: bytes) -> bool:
    try:
        if isinstance(key, rsa.RSAPublicKey):
            key.verify(signature, text, padding.PKCS1v15(), hashes.SHA256())
            return True
        half = (key.curve.key_size + 7) // 8
        if len(signature) != 2 * half:
            return False
        r, s = (int.from_bytes(part, "big") for part in (signature[:half], signature[half:]))
        key.verify(utils.encode_dss_signature(r, s), text, ec.ECDSA(_CURVES[half][1]))
    except exceptions.InvalidSignature:
        return False
    return True


def _unverified(token: str) -> Object:
    """What a token says of itself; empty if it is no token of this form. Not to be believed before `_verified`."""
    parts = token.split(".")
    if len(parts) != 3:
        return {}
    try:
        found = json.loads(_unbase64(parts[1]))
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _reference(content: Object) -> dict[str, str]:
    meta = content["metadata"]
    return {"name": meta["name"], **({"uid": meta["uid"]} if meta.get("uid") else {})}


def _moment(value: object, otherwise: datetime.datetime) -> datetime.datetime:
    if not isinstance(value, int | float):
        return otherwise
    return datetime.datetime.fromtimestamp(value, datetime.UTC)


def _parsed(text: str) -> datetime.datetime:
    found = datetime.datetime.fromisoformat(text)
    return found if found.tzinfo else found.replace(tzinfo=datetime.UTC)


def _expired(expiration: str, now: datetime.datetime) -> bool:
    if not expiration:
        return False
    try:
        return _parsed(expiration) <= now
    except ValueError:
        return True


def _decoded(value: str) -> str:
    try:
        return base64.b64decode(value, validate=True).decode()
    except (binascii.Error, UnicodeDecodeError):
        return ""


def _base64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def _unbase64(text: str) -> bytes:
    try:
        return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
    except (binascii.Error, ValueError):
        return b""


def secret_data(access: authentication.Access, secret: Object, account: Object, ca_pem: str) -> dict[str, str]:
    """What a Secret of type kubernetes.io/service-account-token holds once it is filled: token, namespace and CA."""
    token = signed(access.service_account_key, legacy_claims(account, secret["metadata"]["name"]))
    plain = {"token": token, "namespace": account["metadata"]["namespace"], "ca.crt": ca_pem}
    return {key: base64.b64encode(value.encode()).decode() for key, value in plain.items()}
