"""What may be written into a CertificateSigningRequest, by whom, and through which door.

A request tells who made it, whatever it says itself, and never changes. Approval and denial are written by those who
may approve for the signer, certificates by those who may sign for it; nothing that was decided is ever taken back.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from cryptography import x509
from cryptography.x509.oid import NameOID

from moorage.lab.kube import authorization, certificates, problem, users

if TYPE_CHECKING:
    from moorage.lab.kube import api as apis

Object = dict[str, Any]

_KIND = "CertificateSigningRequest"
_FINAL = (certificates.APPROVED, certificates.DENIED, certificates.FAILED)
_DECISIONS = (certificates.APPROVED, certificates.DENIED)
_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_LABEL_WORDS = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with"
    " an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is"
    " '[a-z0-9]([-a-z0-9]*[a-z0-9])?')"
)


def prepare_create(_api: apis.Api, content: Object, user: users.User | None) -> None:
    """Write the one who asks into a new request, and refuse what no signer could use."""
    spec = content.setdefault("spec", {})
    if user is not None:
        for field in ("username", "uid", "groups", "extra"):
            spec.pop(field, None)
        spec.update(users.to_json(user))
    content["status"] = {}
    name = content["metadata"].get("name", "")
    causes = list(_spec_wrongs(spec))
    if causes:
        raise problem.invalid(certificates.GROUP, _KIND, name, causes)
    _forbid_masters(name, spec)


def prepare_update(
    api: apis.Api, before: Mapping[str, Any], after: Object, subresource: str | None, user: users.User | None
) -> None:
    """Keep what a write through this door may not touch, and refuse what it tries to; None is the lab itself."""
    if subresource is None:
        return
    old = before.get("status") or {}
    new = after.get("status") or {}
    after["spec"] = before["spec"]
    if subresource == "approval":
        new = {**{key: value for key, value in old.items() if key != "conditions"}, **_conditions(api, old, new)}
    elif subresource == "status":
        new = {**new, **_conditions(api, old, _preserved(old, new))}
    else:
        new = dict(old)
    after["status"] = new
    name = before["metadata"]["name"]
    if subresource == "approval":
        _require(api, user, "approve", name, before)
    elif subresource == "status" and any(old.get(part) != new.get(part) for part in ("certificate", "conditions")):
        _require(api, user, "sign", name, before)
    causes = [*_condition_wrongs(new.get("conditions") or []), *_change_wrongs(old, new, subresource)]
    if causes:
        raise problem.invalid(certificates.GROUP, _KIND, name, causes)


def _require(api: apis.Api, user: users.User | None, verb: str, name: str, before: Mapping[str, Any]) -> None:
    signer = before["spec"].get("signerName", "")
    if user is None:
        return
    for each in (signer, f"{signer.partition('/')[0]}/*"):
        asked = authorization.Attributes(verb, certificates.GROUP, "signers", name=each)
        if authorization.allowed(api, user, asked)[0]:
            return
    why = f'user not permitted to {verb} requests with signerName "{signer}"'
    raise problem.forbidden(*certificates.REQUESTS, name, why)


def _forbid_masters(name: str, spec: Mapping[str, Any]) -> None:
    if spec.get("signerName") != certificates.CLIENT:
        return
    try:
        request = certificates.parsed(spec.get("request") or "")
    except certificates.Refused as wrong:
        raise problem.forbidden(*certificates.REQUESTS, name, f"failed to parse CSR: {wrong}") from None
    if users.MASTERS in certificates.subject(request, NameOID.ORGANIZATION_NAME):
        why = f"use of {certificates.CLIENT} signer with {users.MASTERS} group is not allowed"
        raise problem.forbidden(*certificates.REQUESTS, name, why)


def _spec_wrongs(spec: Mapping[str, Any]) -> Iterator[problem.Cause]:
    request = spec.get("request") or ""
    try:
        certificates.verified(request)
    except certificates.Refused as wrong:
        yield problem.Cause("FieldValueInvalid", f"Invalid value: {_bytes(request)}: {wrong}", "spec.request")
    usages = spec.get("usages") or []
    if not usages:
        yield _required("spec.usages")
    known = sorted(certificates.USAGES)
    for place, usage in enumerate(usages):
        if usage not in certificates.USAGES:
            yield _unsupported(f"spec.usages[{place}]", usage, known)
    for place, usage in enumerate(usages):
        if usage in usages[:place]:
            yield problem.Cause("FieldValueDuplicate", f"Duplicate value: {json.dumps(usage)}", f"spec.usages[{place}]")
    yield from _signer_wrongs(spec.get("signerName") or "")
    seconds = spec.get("expirationSeconds")
    if seconds is not None and seconds < 600:
        yield _invalid(
            "spec.expirationSeconds", seconds, "may not specify a duration less than 600 seconds (10 minutes)"
        )


def _signer_wrongs(signer: str) -> Iterator[problem.Cause]:
    domain, slash, path = signer.partition("/")
    if not signer:
        yield _required("spec.signerName")
    elif signer == certificates.LEGACY:
        yield _invalid("spec.signerName", signer, "the legacy signerName is not allowed via this API version")
    elif not (slash and domain and path) or "/" in path:
        form = "must be a fully qualified domain and path of the form 'example.com/signer-name'"
        yield _invalid("spec.signerName", signer, form)
    elif "." not in domain:
        yield _invalid("spec.signerName", domain, "should be a domain with at least two segments separated by dots")
    else:
        for label in domain.split("."):
            if not _LABEL.fullmatch(label):
                yield _invalid("spec.signerName", domain, f'validating label "{label}": {_LABEL_WORDS}')


def _condition_wrongs(conditions: list[Mapping[str, Any]]) -> Iterator[problem.Cause]:
    seen: list[str] = []
    for place, each in enumerate(conditions):
        where, kind, status = f"status.conditions[{place}]", each.get("type") or "", each.get("status") or ""
        if not kind:
            yield _required(f"{where}.type")
        values = ["True"] if kind in _FINAL else ["False", "True", "Unknown"]
        if not status:
            yield _required(f"{where}.status")
        elif status not in values:
            yield _unsupported(f"{where}.status", status, values)
        if kind in _DECISIONS and any(other in seen for other in _DECISIONS if other != kind):
            yield _invalid(f"{where}.type", kind, "Approved and Denied conditions are mutually exclusive")
        if kind in seen:
            yield problem.Cause("FieldValueDuplicate", f"Duplicate value: {json.dumps(kind)}", f"{where}.type")
        seen.append(kind)


def _change_wrongs(old: Mapping[str, Any], new: Mapping[str, Any], subresource: str) -> Iterator[problem.Cause]:
    certificate = new.get("certificate") or ""
    changed = certificate != (old.get("certificate") or "")
    if changed and certificate:
        wrong = _certificate_wrong(certificate)
        if wrong:
            yield problem.Cause(
                "FieldValueInvalid", f'Invalid value: "<certificate data>": {wrong}', "status.certificate"
            )
    for kind in _FINAL:
        if len(_of(new, kind)) < len(_of(old, kind)):
            yield _forbidden("status.conditions", f'updates may not remove a condition of type "{kind}"')
    for kind in () if subresource == "approval" else _DECISIONS:
        if len(_of(new, kind)) > len(_of(old, kind)):
            yield _forbidden("status.conditions", f'updates may not add a condition of type "{kind}"')
    if changed and old.get("certificate"):
        yield _forbidden("status.certificate", "updates may not modify existing certificate content")


def _certificate_wrong(certificate: str) -> str:
    try:
        found = x509.load_pem_x509_certificates(base64.b64decode(certificate))
    except (ValueError, binascii.Error):
        found = []
    return "" if found else "must contain at least one CERTIFICATE PEM block"


def _preserved(old: Mapping[str, Any], new: Mapping[str, Any]) -> Mapping[str, Any]:
    """The new status with decisions as they were: whoever writes status has no say in them."""
    conditions = list(new.get("conditions") or [])
    for kind in _DECISIONS:
        places = [place for place, each in enumerate(conditions) if each.get("type") == kind]
        kept = _of(old, kind)
        if len(places) == len(kept):
            for place, each in zip(places, kept, strict=True):
                conditions[place] = each
    return {**new, "conditions": conditions}


def _conditions(api: apis.Api, old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, list[Any]]:
    """The conditions with the times that nobody gave."""
    found = [_timed(api, old, each) for each in new.get("conditions") or ()]
    return {"conditions": found} if found else {}


def _timed(api: apis.Api, old: Mapping[str, Any], condition: Mapping[str, Any]) -> Object:
    timed = dict(condition)
    timed["lastUpdateTime"] = timed.get("lastUpdateTime") or api.time()
    if not timed.get("lastTransitionTime"):
        same = [each for each in _of(old, timed.get("type")) if each.get("status") == timed.get("status")]
        since = next((each["lastTransitionTime"] for each in same if each.get("lastTransitionTime")), None)
        timed["lastTransitionTime"] = since or api.time()
    return timed


def _of(status: Mapping[str, Any], kind: object) -> list[Mapping[str, Any]]:
    return [each for each in status.get("conditions") or () if each.get("type") == kind]


def _bytes(request: str) -> str:
    try:
        data = base64.b64decode(request)
    except (binascii.Error, ValueError):
        data = b""
    return f"[]byte{{{', '.join(hex(byte) for byte in data)}}}"


def _required(field: str) -> problem.Cause:
    return problem.Cause("FieldValueRequired", "Required value", field)


def _invalid(field: str, value: object, why: str) -> problem.Cause:
    return problem.Cause("FieldValueInvalid", f"Invalid value: {json.dumps(value)}: {why}", field)


def _unsupported(field: str, value: object, values: list[str]) -> problem.Cause:
    told = ", ".join(json.dumps(each) for each in values)
    message = f"Unsupported value: {json.dumps(value)}: supported values: {told}"
    return problem.Cause("FieldValueNotSupported", message, field)


def _forbidden(field: str, why: str) -> problem.Cause:
    return problem.Cause("FieldValueForbidden", f"Forbidden: {why}", field)
