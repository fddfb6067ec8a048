"""Nobody may give away more than they have: the check on roles and bindings that users write.

A rule is broken down to single verbs on single things, and each must be covered by a rule of the one who writes. Who
may ``escalate`` roles or ``bind`` them is spared the check; so is the lab itself.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from moorage.lab.kube import authorization, kinds, problem, rbac, users

if TYPE_CHECKING:
    from moorage.lab.kube import api as apis

Object = Mapping[str, Any]
Rules = Sequence[Mapping[str, Any]]

_EVERYTHING: Rules = (
    {"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]},
    {"nonResourceURLs": ["*"], "verbs": ["*"]},
)
# What the garbage collector changes, which gives nothing to anybody.
_HARMLESS = ("finalizers", "ownerReferences", "managedFields", "resourceVersion", "generation", "selfLink")
_BINDINGS = (rbac.ROLE_BINDINGS, rbac.CLUSTER_ROLE_BINDINGS)


def check(
    api: apis.Api, user: users.User | None, key: kinds.Key, namespace: str, before: Object | None, after: Object
) -> None:
    """Refuse a role or binding that hands out more than the user holds; ``before`` is None for a new one."""
    if user is not None and before is not None and key in _BINDINGS:
        _keep_reference(before, after)
    if user is None or users.MASTERS in user.groups or key[0] != rbac.GROUP:
        return
    if before is not None and _essence(before) == _essence(after):
        return
    if key in (rbac.ROLES, rbac.CLUSTER_ROLES):
        _check_role(api, user, key, namespace, before, after)
    elif key in _BINDINGS:
        _check_binding(api, user, key, namespace, after)


def _keep_reference(before: Object, after: Object) -> None:
    """A binding is to one role for good: who could approve of the first has not seen the second."""
    new = after.get("roleRef") or {}
    if new == before.get("roleRef"):
        return
    fields = (("APIGroup", "apiGroup"), ("Kind", "kind"), ("Name", "name"))
    told = ", ".join(f"{word}:{json.dumps(new.get(field, ''), ensure_ascii=False)}" for word, field in fields)
    message = f"Invalid value: rbac.RoleRef{{{told}}}: cannot change roleRef"
    cause = problem.Cause("FieldValueInvalid", message, "roleRef")
    raise problem.invalid(rbac.GROUP, after["kind"], after["metadata"]["name"], [cause])


def _check_role(
    api: apis.Api, user: users.User, key: kinds.Key, namespace: str, before: Object | None, after: Object
) -> None:
    # A new object has no name in its path, so only those who may escalate every role may escalate a new one.
    name = "" if before is None else after["metadata"]["name"]
    asked = authorization.Attributes("escalate", key[0], key[1], "", namespace, name)
    if authorization.allowed(api, user, asked)[0]:
        return
    _confirm(api, user, key, namespace, after, after.get("rules") or ())
    if any((each.get("aggregationRule") or {}).get("clusterRoleSelectors") for each in (after, before or {})):
        missing, _ = _missing(api, user, namespace, _EVERYTHING)
        if missing:
            why = "must have cluster-admin privileges to use the aggregationRule"
            raise problem.forbidden(*key, after["metadata"].get("name", ""), why)


def _check_binding(api: apis.Api, user: users.User, key: kinds.Key, namespace: str, after: Object) -> None:
    reference = after.get("roleRef") or {}
    plural = {"ClusterRole": "clusterroles", "Role": "roles"}.get(reference.get("kind", ""))
    if plural is not None:
        group, name = reference.get("apiGroup", rbac.GROUP), reference.get("name", "")
        asked = authorization.Attributes("bind", group, plural, "", namespace, name)
        if authorization.allowed(api, user, asked)[0]:
            return
    rules, wrong = rbac.role_rules(api.store, reference, namespace)
    if wrong and plural is not None:
        # The name is the role's, the kind the binding's: so the real server words it.
        raise problem.not_found(*key, reference.get("name", ""))
    if wrong:
        raise problem.internal(wrong)
    _confirm(api, user, key, namespace, after, [rule.content for rule in rules])


def _confirm(api: apis.Api, user: users.User, key: kinds.Key, namespace: str, after: Object, rules: Rules) -> None:
    missing, problems = _missing(api, user, namespace, rules)
    if not missing:
        return
    groups = " ".join(json.dumps(group, ensure_ascii=False) for group in user.groups)
    told = "\n".join(sorted({_words(rule) for rule in _compacted(missing)}))
    why = (
        f'user "{user.name}" (groups=[{groups}]) is attempting to grant RBAC permissions not currently held:\n{told}'
        + (f"; resolution errors: [{rbac.together(problems)}]" if problems else "")
    )
    raise problem.forbidden(*key, after["metadata"].get("name", ""), why)


def _missing(
    api: apis.Api, user: users.User, namespace: str, rules: Rules
) -> tuple[list[Mapping[str, list[str]]], list[str]]:
    held = rbac.grants(api, user, namespace)
    own = [grant.rule for grant in held if grant.rule is not None]
    pieces = [piece for rule in rules for piece in _pieces(rule)]
    missing = [piece for piece in pieces if not any(_covers(rule, piece) for rule in own)]
    return missing, [grant.problem for grant in held if grant.problem]


def _pieces(rule: Mapping[str, Any]) -> Iterator[Mapping[str, list[str]]]:
    """The rule as rules of one verb on one thing each."""
    verbs = rule.get("verbs") or ()
    for group in rule.get("apiGroups") or ():
        for resource in rule.get("resources") or ():
            for verb in verbs:
                piece = {"apiGroups": [group], "resources": [resource], "verbs": [verb]}
                names = rule.get("resourceNames") or ()
                yield from ({**piece, "resourceNames": [name]} for name in names)
                if not names:
                    yield piece
    for path in rule.get("nonResourceURLs") or ():
        yield from ({"nonResourceURLs": [path], "verbs": [verb]} for verb in verbs)


def _covers(rule: rbac.Rule, piece: Mapping[str, list[str]]) -> bool:
    [verb] = piece["verbs"]
    if not ("*" in rule.verbs or verb in rule.verbs):
        return False
    if "nonResourceURLs" in piece:
        return not rule.names and any(rbac.covers_path(pattern, piece["nonResourceURLs"][0]) for pattern in rule.paths)
    [group], [resource] = piece["apiGroups"], piece["resources"]
    _, slash, subresource = resource.partition("/")
    return (
        ("*" in rule.groups or group in rule.groups)
        and (
            "*" in rule.resources
            or resource in rule.resources
            or (bool(slash) and f"*/{subresource}" in rule.resources)
        )
        and (not rule.names or set(piece.get("resourceNames") or ("",)) <= rule.names)
    )


def _compacted(pieces: Iterable[Mapping[str, list[str]]]) -> list[Mapping[str, list[str]]]:
    """The pieces that differ by their verb alone put together, as people would write them."""
    verbs: dict[str, list[str]] = {}
    for piece in pieces:
        rest = json.dumps({key: value for key, value in piece.items() if key != "verbs"})
        # Paths stay one by one, as in the original.
        verbs.setdefault(rest if "resources" in piece else rest + piece["verbs"][0], []).extend(piece["verbs"])
    return [{**json.JSONDecoder().raw_decode(rest)[0], "verbs": found} for rest, found in verbs.items()]


def _words(rule: Mapping[str, list[str]]) -> str:
    parts = ("apiGroups", "resources", "nonResourceURLs", "resourceNames", "verbs")
    told = [
        f"{'APIGroups' if part == 'apiGroups' else part[0].upper() + part[1:]}:"
        f"[{' '.join(json.dumps(value, ensure_ascii=False) for value in rule[part])}]"
        for part in parts
        if rule.get(part)
    ]
    return "{" + ", ".join(told) + "}"


def _essence(content: Object) -> Object:
    meta = {key: value for key, value in content["metadata"].items() if key not in _HARMLESS}
    return {**content, "metadata": meta}
