"""Role-based access: which rules apply to a user in a namespace, and whether one of them allows what is asked.

Rules only ever add up, so a user's rules can be flattened into one list per namespace. The lists are kept until a role
or a binding is written; nearly every request is then judged by looking through a short list of sets.
"""

from __future__ import annotations

import dataclasses
import json
import weakref
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from moorage.lab.kube import kinds, store, users

if TYPE_CHECKING:
    from moorage.lab.kube import api as apis
    from moorage.lab.kube import authorization

GROUP = "rbac.authorization.k8s.io"
ROLES: kinds.Key = (GROUP, "roles")
CLUSTER_ROLES: kinds.Key = (GROUP, "clusterroles")
ROLE_BINDINGS: kinds.Key = (GROUP, "rolebindings")
CLUSTER_ROLE_BINDINGS: kinds.Key = (GROUP, "clusterrolebindings")
_KEYS = frozenset({ROLES, CLUSTER_ROLES, ROLE_BINDINGS, CLUSTER_ROLE_BINDINGS})

# Users come and go by the thousand in a long life; what is kept about them must not.
_MOST_LISTS = 20_000


@dataclasses.dataclass(frozen=True, slots=True)
class Rule:
    """A PolicyRule, ready to be compared."""

    verbs: frozenset[str]
    groups: frozenset[str]
    resources: frozenset[str]
    names: frozenset[str]
    paths: tuple[str, ...]
    # As it was written, for those who want to see it.
    content: Mapping[str, Any] = dataclasses.field(hash=False, compare=False)


@dataclasses.dataclass(frozen=True, slots=True)
class Grant:
    """A rule and the binding it comes by, or the reason why a binding gives nothing."""

    source: str
    rule: Rule | None = None
    problem: str = ""


def rule(content: Mapping[str, Any]) -> Rule:
    """A PolicyRule as it stands in a role."""
    return Rule(
        frozenset(content.get("verbs") or ()),
        frozenset(content.get("apiGroups") or ()),
        frozenset(content.get("resources") or ()),
        frozenset(content.get("resourceNames") or ()),
        tuple(content.get("nonResourceURLs") or ()),
        content,
    )


def covers_path(pattern: str, path: str) -> bool:
    """Whether a nonResourceURL means a path: itself, or what begins like it up to a star at the end."""
    return pattern == path or (pattern.endswith("*") and path.startswith(pattern.rstrip("*")))


def matches(rule: Rule, asked: authorization.Attributes) -> bool:
    """Whether the rule allows what is asked."""
    if not ("*" in rule.verbs or asked.verb in rule.verbs):
        return False
    if not asked.resource:
        return any(covers_path(pattern, asked.path) for pattern in rule.paths)
    if not ("*" in rule.groups or asked.group in rule.groups):
        return False
    if "*" not in rule.resources:
        full = f"{asked.resource}/{asked.subresource}" if asked.subresource else asked.resource
        if full not in rule.resources and not (asked.subresource and f"*/{asked.subresource}" in rule.resources):
            return False
    return not rule.names or asked.name in rule.names


def allowed(api: apis.Api, user: users.User, asked: authorization.Attributes) -> tuple[bool, str]:
    """Whether a rule allows it, and by which binding; if none does, which bindings could not be followed."""
    problems = []
    for grant in grants(api, user, asked.namespace):
        if grant.rule is None:
            problems.append(grant.problem)
        elif matches(grant.rule, asked):
            return True, f"RBAC: allowed by {grant.source}"
    return False, f"RBAC: {together(problems)}" if problems else ""


def grants(api: apis.Api, user: users.User, namespace: str) -> Sequence[Grant]:
    """All that bindings give to a user, in the whole cluster and in one namespace."""
    lists = _lists(api.store)
    key = (user.name, user.groups, namespace)
    found = lists.get(key)
    if found is None:
        if len(lists) >= _MOST_LISTS:
            lists.clear()
        found = lists[key] = tuple(_granted(api.store, user, namespace))
    return found


def together(problems: Sequence[str]) -> str:
    """Several errors as one text."""
    unique = list(dict.fromkeys(problems))
    return unique[0] if len(unique) == 1 else f"[{', '.join(unique)}]"


def role_rules(store: store.Store, reference: Mapping[str, Any], namespace: str) -> tuple[Sequence[Rule], str]:
    """The rules of the role that a roleRef means, or why there are none."""
    kind, name = reference.get("kind", ""), reference.get("name", "")
    if kind == "Role":
        entry = store.get(ROLES, (namespace, name))
    elif kind == "ClusterRole":
        entry = store.get(CLUSTER_ROLES, ("", name))
    else:
        return (), f"unsupported role reference kind: {json.dumps(kind)}"
    if entry is None:
        return (), f'{kind.lower()}.{GROUP} "{name}" not found'
    return [rule(content) for content in entry.object.get("rules") or ()], ""


_Lists = dict[tuple[str, tuple[str, ...], str], tuple[Grant, ...]]
_kept: weakref.WeakKeyDictionary[store.Store, _Lists] = weakref.WeakKeyDictionary()


def _lists(over: store.Store) -> _Lists:
    lists = _kept.get(over)
    if lists is None:
        lists = _kept[over] = {}
        forget = lists.clear

        def written(key: kinds.Key, _event: store.Event) -> None:
            if key in _KEYS:
                forget()

        # First, so that no other listener judges by what has just been overturned.
        over.on_write.insert(0, written)
    return lists


def _granted(over: store.Store, user: users.User, namespace: str) -> Iterable[Grant]:
    bindings = [(entry.object, "") for entry in over.entries(CLUSTER_ROLE_BINDINGS)]
    if namespace:
        bindings += [(entry.object, namespace) for entry in over.entries(ROLE_BINDINGS, namespace)]
    for binding, where in bindings:
        subject = next((each for each in binding.get("subjects") or () if _means(each, user, where)), None)
        if subject is None:
            continue
        source = _source(binding, subject, where)
        rules, problem = role_rules(over, binding["roleRef"], where)
        if problem:
            yield Grant(source, problem=problem)
        for each in rules:
            yield Grant(source, each)


def _means(subject: Mapping[str, Any], user: users.User, namespace: str) -> bool:
    kind, name = subject.get("kind"), subject.get("name", "")
    if kind == "User":
        return bool(user.name == name)
    if kind == "Group":
        return name in user.groups
    home = subject.get("namespace") or namespace
    return kind == "ServiceAccount" and bool(home) and user.name == users.service_account_name(home, name)


def _source(binding: Mapping[str, Any], subject: Mapping[str, Any], namespace: str) -> str:
    kind, name = ("RoleBinding", f"{binding['metadata']['name']}/{namespace}") if namespace else ("", "")
    if not namespace:
        kind, name = "ClusterRoleBinding", binding["metadata"]["name"]
    who = subject.get("name", "")
    if subject["kind"] == "ServiceAccount":
        who = f"{who}/{subject.get('namespace') or namespace}"
    reference = binding["roleRef"]
    return f'{kind} "{name}" of {reference["kind"]} "{reference["name"]}" to {subject["kind"]} "{who}"'
