"""Questions to the API about itself: may I, may they, what may I, who am I, whose token is this, give me a token.

Reviews are created and never stored: the answer is the question with its status filled in. They ask the same code that
judges requests, so that an answer and what would happen cannot differ.
"""

from __future__ import annotations

import datetime
import json
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from moorage.lab.kube import (
    authentication,
    authorization,
    kinds,
    metadata,
    node_restriction,
    problem,
    rbac,
    tokens,
    users,
)

if TYPE_CHECKING:
    from moorage.lab.kube import api as apis

Object = dict[str, Any]

_WHO = "authentication.k8s.io"
_MAY = "authorization.k8s.io"
_ACCOUNTS: kinds.Key = ("", "serviceaccounts")
_HOUR = 3600
_SHORTEST, _LONGEST = 600, 1 << 32


def answer(
    api: apis.Api,
    access: authentication.Access,
    user: users.User,
    kind: str,
    namespace: str,
    name: str,
    content: Mapping[str, Any],
) -> Object:
    """The answer to a review; ``kind`` is its name. For a TokenRequest, ``name`` is the service account's."""
    if kind == "TokenRequest":
        node_restriction.check_token(api, user, namespace, name, content)
        return _token(api, access, namespace, name, content)
    if kind == "TokenReview":
        return _token_review(api, access, content)
    if kind == "SelfSubjectReview":
        meta = {"creationTimestamp": metadata.timestamp(api.clock.wall())}
        frame: Object = {"kind": kind, "apiVersion": f"{_WHO}/v1", "metadata": meta}
        return {**frame, "status": {"userInfo": users.to_json(user)}}
    reviewed = _REVIEWS.get(kind)
    if reviewed is None:
        raise problem.no_such_path()
    return reviewed(api, user, namespace, content)


def _framed(kind: str, group: str, content: Mapping[str, Any], status: Object) -> Object:
    meta = {
        "creationTimestamp": None,
        **{key: value for key, value in (content.get("metadata") or {}).items() if value},
    }
    meta.pop("managedFields", None)
    frame: Object = {"kind": kind, "apiVersion": f"{group}/v1", "metadata": meta}
    return {**frame, "spec": content.get("spec") or {}, "status": status}


def _may_i(api: apis.Api, user: users.User, _namespace: str, content: Mapping[str, Any]) -> Object:
    spec = content.get("spec") or {}
    _check(content, _wrongs(spec) + _named(content, ()))
    return _framed("SelfSubjectAccessReview", _MAY, content, _verdict(api, user, spec))


def _may_they(api: apis.Api, _user: users.User, _namespace: str, content: Mapping[str, Any]) -> Object:
    spec = content.get("spec") or {}
    _check(content, _wrongs(spec) + _nobody(spec) + _named(content, ()))
    return _framed("SubjectAccessReview", _MAY, content, _verdict(api, _other(spec), spec))


def _may_they_here(api: apis.Api, _user: users.User, namespace: str, content: Mapping[str, Any]) -> Object:
    spec = content.get("spec") or {}
    wrongs = _wrongs(spec) + _nobody(spec) + _named(content, ("namespace",))
    asked = spec.get("resourceAttributes")
    if asked is not None and asked.get("namespace", "") != namespace:
        wrongs.append(
            _invalid("spec.resourceAttributes.namespace", asked.get("namespace", ""), "must match metadata.namespace")
        )
    if spec.get("nonResourceAttributes") is not None:
        path = spec["nonResourceAttributes"]
        wrongs.append(_invalid("spec.nonResourceAttributes", path, "disallowed on this kind of request"))
    _check(content, wrongs)
    placed = {**content, "metadata": {**(content.get("metadata") or {}), "namespace": namespace}}
    return _framed("LocalSubjectAccessReview", _MAY, placed, _verdict(api, _other(spec), spec))


def _what_may_i(api: apis.Api, user: users.User, _namespace: str, content: Mapping[str, Any]) -> Object:
    namespace = (content.get("spec") or {}).get("namespace")
    if not namespace:
        raise problem.bad_request("no namespace on request")
    found = rbac.grants(api, user, namespace)
    rules = [grant.rule.content for grant in found if grant.rule is not None]
    status: Object = {
        "resourceRules": [
            _part(rule, "apiGroups", "resources", "resourceNames") for rule in rules if rule.get("resources")
        ],
        "nonResourceRules": [_part(rule, "nonResourceURLs") for rule in rules if rule.get("nonResourceURLs")],
        "incomplete": bool(users.node_name(user)),
    }
    problems = [grant.problem for grant in found if grant.problem]
    if users.node_name(user):
        problems.insert(0, "node authorizer does not support user rule resolution")
    if problems:
        status["evaluationError"] = rbac.together(problems)
    # The answer leaves the question out, as the real one does.
    return _framed("SelfSubjectRulesReview", _MAY, {}, status)


_REVIEWS: Mapping[str, Callable[[apis.Api, users.User, str, Mapping[str, Any]], Object]] = {
    "SelfSubjectAccessReview": _may_i,
    "SubjectAccessReview": _may_they,
    "LocalSubjectAccessReview": _may_they_here,
    "SelfSubjectRulesReview": _what_may_i,
}


def _part(rule: Mapping[str, Any], *keys: str) -> Object:
    return {"verbs": rule.get("verbs") or [], **{key: rule[key] for key in keys if rule.get(key)}}


def _verdict(api: apis.Api, user: users.User, spec: Mapping[str, Any]) -> Object:
    yes, reason = authorization.allowed(api, user, _attributes(spec))
    return {"allowed": yes, **({"reason": reason} if reason else {})}


def _attributes(spec: Mapping[str, Any]) -> authorization.Attributes:
    asked = spec.get("resourceAttributes")
    if asked is None:
        path = spec["nonResourceAttributes"]
        return authorization.Attributes(path.get("verb", ""), path=path.get("path", ""))
    parts = {key: asked.get(key) or "" for key in ("verb", "group", "resource", "subresource", "namespace", "name")}
    return authorization.Attributes(**parts, fields=_fields(asked.get("fieldSelector") or {}))


def _fields(selector: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    """What the selector says must be equal."""
    found = []
    for piece in filter(None, (selector.get("rawSelector") or "").split(",")):
        key, equals, value = piece.partition("=")
        if equals and not key.endswith("!"):
            found.append((key, value.removeprefix("=")))
    for each in selector.get("requirements") or ():
        if each.get("operator") == "In" and len(each.get("values") or ()) == 1:
            found.append((each.get("key", ""), each["values"][0]))
    return tuple(found)


def _other(spec: Mapping[str, Any]) -> users.User:
    extra = {key: tuple(values) for key, values in (spec.get("extra") or {}).items()}
    return users.User(spec.get("user") or "", tuple(spec.get("groups") or ()), spec.get("uid") or "", extra)


def _wrongs(spec: Mapping[str, Any]) -> list[problem.Cause]:
    one, other = spec.get("resourceAttributes"), spec.get("nonResourceAttributes")
    if one is not None and other is not None:
        return [
            _invalid("spec.nonResourceAttributes", other, "cannot be specified in combination with resourceAttributes")
        ]
    if one is None and other is None:
        why = "exactly one of nonResourceAttributes or resourceAttributes must be specified"
        return [_invalid("spec.resourceAttributes", "null", why)]
    return []


def _nobody(spec: Mapping[str, Any]) -> list[problem.Cause]:
    if spec.get("user") or spec.get("groups"):
        return []
    return [_invalid("spec.user", "", "at least one of user or group must be specified")]


def _named(content: Mapping[str, Any], allowed: tuple[str, ...]) -> list[problem.Cause]:
    meta = {key: value for key, value in (content.get("metadata") or {}).items() if value and key != "managedFields"}
    if all(key in allowed for key in meta):
        return []
    return [_invalid("metadata", meta, "must be empty except for namespace" if allowed else "must be empty")]


def _invalid(field: str, value: object, why: str) -> problem.Cause:
    return problem.Cause("FieldValueInvalid", f"Invalid value: {json.dumps(value)}: {why}", field)


def _check(_content: Mapping[str, Any], wrongs: list[problem.Cause]) -> None:
    if wrongs:
        # The real server forgets the kind of a review when it refuses one.
        raise problem.invalid(_MAY, "", "", wrongs)


def _token_review(api: apis.Api, access: authentication.Access, content: Mapping[str, Any]) -> Object:
    spec = content.get("spec") or {}
    if not spec.get("token"):
        raise problem.bad_request("token is required for TokenReview in authentication")
    status: Object = {"user": {}, "error": "invalid bearer token"}
    try:
        found = authentication.token_user(access, api, spec["token"], tuple(spec.get("audiences") or ()))
    except tokens.Invalid as wrong:
        status["error"] = f"[invalid bearer token, {wrong}]"
        found = None
    if found is not None:
        user, audiences = found
        status = {"authenticated": True, "user": users.to_json(user), "audiences": list(audiences)}
    return _framed("TokenReview", _WHO, content, status)


def _token(
    api: apis.Api, access: authentication.Access, namespace: str, name: str, content: Mapping[str, Any]
) -> Object:
    spec, meta = content.get("spec") or {}, content.get("metadata") or {}
    for field, mine in (("name", name), ("namespace", namespace)):
        if meta.get(field) and meta[field] != mine:
            why = f"must match the service account {field} if specified"
            raise problem.invalid(_WHO, "TokenRequest", name, [_invalid(f"metadata.{field}", meta[field], why)])
    account = api.store.get(_ACCOUNTS, (namespace, name))
    if account is None:
        raise problem.not_found(*_ACCOUNTS, name)
    seconds = spec.get("expirationSeconds", _HOUR)
    if not _SHORTEST <= seconds <= _LONGEST:
        why = "less than 10 minutes" if seconds < _SHORTEST else "larger than 2^32 seconds"
        cause = _invalid("spec.expirationSeconds", seconds, f"may not specify a duration {why}")
        raise problem.invalid(_WHO, "TokenRequest", "", [cause])
    if not access.service_account_key:
        raise problem.internal("failed to generate token: this server has no key to sign tokens with")
    reference = spec.get("boundObjectRef")
    bound = {} if reference is None else _bound(api, namespace, name, reference)
    audiences = spec.get("audiences") or [access.issuer]
    now = api.clock.wall()
    claims = tokens.bound_claims(access, account.object, bound, audiences, now, seconds)
    until = now + datetime.timedelta(seconds=seconds)
    return {
        "kind": "TokenRequest",
        "apiVersion": f"{_WHO}/v1",
        "metadata": {"name": name, "namespace": namespace, "creationTimestamp": metadata.timestamp(now)},
        "spec": {"audiences": audiences, "expirationSeconds": seconds, "boundObjectRef": reference},
        "status": {
            "token": tokens.signed(access.service_account_key, claims),
            "expirationTimestamp": metadata.timestamp(until),
        },
    }


def _bound(api: apis.Api, namespace: str, account: str, reference: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """What a token is to be bound to; a pod brings the node it runs on."""
    version, kind, name = (reference.get(key) or "" for key in ("apiVersion", "kind", "name"))
    plural = {"Pod": "pods", "Secret": "secrets", "Node": "nodes"}.get(kind)
    if plural is None or "/" in version:
        group, _, rest = version.rpartition("/")
        raise problem.bad_request(f"cannot bind token to object of type {group}/{rest}, Kind={kind}")
    entry = api.store.get(("", plural), ("" if kind == "Node" else namespace, name))
    if entry is None:
        raise problem.not_found("", plural, name)
    found = entry.object
    if kind == "Pod" and found["spec"].get("serviceAccountName") != account:
        raise problem.bad_request(
            f'cannot bind token for serviceaccount "{account}" to pod running with different serviceaccount name.'
        )
    uid = reference.get("uid")
    if uid and uid != found["metadata"].get("uid"):
        why = (
            f"the UID in the bound object reference ({uid}) does not match the UID in record."
            " The object might have been deleted and then recreated"
        )
        raise problem.conflict("", kind, name, why)
    bound: dict[str, Mapping[str, Any]] = {str(kind).lower(): found}
    home = found["spec"].get("nodeName") if kind == "Pod" else ""
    if home:
        node = api.store.get(("", "nodes"), ("", home))
        bound["node"] = {"metadata": {"name": home}} if node is None else node.object
    return bound
