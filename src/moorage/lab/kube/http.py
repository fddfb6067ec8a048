"""What a request asks for, read from its method, path, query and body, before anything is known about kinds.

Paths of resources are /api/v1/… and /apis/GROUP/VERSION/…; everything else is a path of its own. Options that make no
sense are refused here, in the words of a real server.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from typing import Any

from moorage.lab.kube import (
    authorization,
    documents,
    kinds,
    lists,
    options,
    patches,
    problem,
    protobuf,
    selectors,
    users,
    watching,
)

Object = dict[str, Any]

MOST_BYTES = 3 * 1024 * 1024
_VERBS = {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete", "GET": "get", "HEAD": "get"}
_POLICIES = (options.BACKGROUND, options.FOREGROUND, options.ORPHAN)
_VALIDATIONS = (options.IGNORE, options.WARN, options.STRICT)
_LONGEST_MANAGER = 128
_SHOWN = 1024
# What a real server reads first of a body, as Go prints the type.
_ENVELOPE = r'struct { APIVersion string "json:\"apiVersion,omitempty\""; Kind string "json:\"kind,omitempty\"" }'
_NAMESPACE_PARTS = ("status", "finalize")


@dataclasses.dataclass(frozen=True)
class Asked:
    """A request: a verb on a resource, or on a path that is none (then ``plural`` is empty)."""

    verb: str
    path: str
    group: str = ""
    version: str = ""
    plural: str = ""
    namespace: str = ""
    name: str = ""
    subresource: str = ""

    def attributes(self, fields: str = "") -> authorization.Attributes:
        """What has to be allowed."""
        if not self.plural:
            return authorization.Attributes(self.verb, path=self.path)
        name = self.name
        equal: tuple[tuple[str, str], ...] = ()
        if fields and not name:
            terms = selectors.field_terms(fields)
            equal = tuple((field, value) for field, is_equal, value in terms if is_equal)
            name = dict(equal).get("metadata.name", "")
        namespace = self.namespace
        if (self.group, self.plural) == ("", "namespaces"):
            # A namespace lies within itself, so that a role in it can allow to read it.
            namespace = self.name
        return authorization.Attributes(
            self.verb, self.group, self.plural, self.subresource, namespace, name, fields=equal
        )


def asked(method: str, path: str, query: Mapping[str, str]) -> Asked:
    """What a request asks for."""
    verb = _VERBS.get(method, method.lower())
    parts = path.removeprefix("/").removesuffix("/").split("/")
    if parts[0] == "api" and len(parts) > 2:
        group, version, rest = "", parts[1], parts[2:]
    elif parts[0] == "apis" and len(parts) > 3:
        group, version, rest = parts[1], parts[2], parts[3:]
    else:
        return Asked(verb, path)
    namespace = ""
    if rest[0] == "namespaces" and len(rest) > 2 and rest[2] not in _NAMESPACE_PARTS:
        namespace, rest = rest[1], rest[2:]
    plural, name, subresource = [*rest, "", ""][:3]
    if len(rest) > 3:
        subresource = "/".join(rest[2:])
    if not name and method in ("GET", "HEAD", "DELETE"):
        verb = "deletecollection" if method == "DELETE" else "watch" if flag(query, "watch") else "list"
    return Asked(verb, path, group, version, plural, namespace, name, subresource)


def flag(query: Mapping[str, str], name: str) -> bool:
    """A switch in a query: on if it is there, unless it says no."""
    return name in query and query[name].lower() not in ("false", "0")


def number(query: Mapping[str, str], name: str) -> int | None:
    """A whole number in a query."""
    text = query.get(name, "")
    if not text:
        return None
    try:
        return int(text)
    except ValueError:
        raise problem.bad_request(f'strconv.ParseInt: parsing "{text}": invalid syntax') from None


def list_query(query: Mapping[str, str]) -> lists.Query:
    """What is to be listed."""
    if "sendInitialEvents" in query:
        words = "Forbidden: sendInitialEvents is forbidden for list"
        raise lists.options_invalid([("FieldValueForbidden", words, "sendInitialEvents")])
    return lists.Query(
        query.get("labelSelector", ""),
        query.get("fieldSelector", ""),
        number(query, "limit") or 0,
        query.get("continue", ""),
        query.get("resourceVersion", ""),
        query.get("resourceVersionMatch", ""),
    )


def watch_query(query: Mapping[str, str], namespace: str) -> watching.Wanted:
    """What is to be watched."""
    return watching.Wanted(
        namespace,
        query.get("labelSelector", ""),
        query.get("fieldSelector", ""),
        query.get("resourceVersion", ""),
        query.get("resourceVersionMatch", ""),
        flag(query, "sendInitialEvents") if "sendInitialEvents" in query else None,
        flag(query, "allowWatchBookmarks"),
        number(query, "timeoutSeconds") or 0,
    )


def write_options(
    query: Mapping[str, str], user: users.User, agent: str, verb: str, patch_type: str = ""
) -> options.Options:
    """How to create, update or patch."""
    causes = _dry_run_wrongs(query.get("dryRun"))
    validation = query.get("fieldValidation") or options.WARN
    if validation not in _VALIDATIONS:
        words = f'Unsupported value: "{validation}": supported values: "", "Ignore", "Strict", "Warn"'
        causes.append(("FieldValueNotSupported", words, "fieldValidation"))
    manager = query.get("fieldManager", "")
    if len(manager.encode()) > _LONGEST_MANAGER:
        words = f"Too long: may not be more than {_LONGEST_MANAGER} bytes"
        causes.append(("FieldValueTooLong", words, "fieldManager"))
    applies = patch_type == options.APPLY_PATCH
    if applies and not manager:
        causes.append(("FieldValueRequired", "Required value: is required for apply patch", "fieldManager"))
    if "force" in query and verb == "patch" and not applies:
        words = "Forbidden: may not be specified for non-apply patch"
        causes.append(("FieldValueForbidden", words, "force"))
    if causes:
        raise lists.options_invalid(causes, f"{verb.capitalize()}Options")
    # Who gives no name is known by their program's.
    manager = manager or agent.partition("/")[0][:_LONGEST_MANAGER] or "unknown"
    return options.Options(user, manager, query.get("dryRun") == "All", validation, flag(query, "force"))


def _dry_run_wrongs(value: str | None) -> list[tuple[str, str, str]]:
    if value in (None, "", "All"):
        return []
    return [("FieldValueNotSupported", f'Unsupported value: []string{{"{value}"}}: supported values: "All"', "dryRun")]


def delete_options(query: Mapping[str, str], body: Object, user: users.User) -> options.DeleteOptions:
    """How to delete: from the body, or else from the query."""
    dry_run = body.get("dryRun") or ([query["dryRun"]] if query.get("dryRun") else [])
    causes = _dry_run_wrongs(dry_run[0] if dry_run else None)
    propagation = body.get("propagationPolicy") or query.get("propagationPolicy", "")
    if propagation and propagation not in _POLICIES:
        words = f'Unsupported value: "{propagation}": supported values: "Foreground", "Background", "Orphan", "nil"'
        causes.append(("FieldValueNotSupported", words, "propagationPolicy"))
    orphan = body.get("orphanDependents")
    if orphan is None and "orphanDependents" in query:
        orphan = flag(query, "orphanDependents")
    if orphan is not None and propagation:
        words = f'Invalid value: "{propagation}": orphanDependents and deletionPropagation cannot be both set'
        causes.append(("FieldValueInvalid", words, "propagationPolicy"))
    if causes:
        raise lists.options_invalid(causes, "DeleteOptions")
    if orphan is not None:
        propagation = options.ORPHAN if orphan else options.BACKGROUND
    grace = body.get("gracePeriodSeconds")
    conditions = body.get("preconditions") or {}
    return options.DeleteOptions(
        user,
        bool(dry_run),
        number(query, "gracePeriodSeconds") if grace is None else grace,
        propagation,
        conditions.get("uid") or "",
        conditions.get("resourceVersion") or "",
    )


def parsed(kind: kinds.Kind, media: str, body: bytes) -> tuple[Object, list[str]]:
    """The object in a body, and the fields that it gives twice."""
    twice: list[str] = []
    try:
        if media == protobuf.MEDIA:
            return protobuf.decoded(body), twice
        found = documents.from_yaml(body) if media == "application/yaml" else documents.from_json(body)
    except (ValueError, RecursionError) as wrong:
        shown = body[:_SHOWN].decode(errors="replace") or "<empty>"
        raise _unrecognized(kind, str(wrong), shown) from None
    if found is None:
        return {}, twice
    if not isinstance(found, dict):
        words = f"json: cannot unmarshal {patches.json_type(found)} into Go value of type {_ENVELOPE}"
        raise _unrecognized(kind, words, body[:_SHOWN].hex())
    if media != "application/yaml":
        _find_twice(body, twice)
    return found, twice


def _unrecognized(kind: kinds.Kind, words: str, shown: str) -> problem.Problem:
    return problem.bad_request(
        f"the object provided is unrecognized (must be of type {kind.name}): couldn't get version/kind;"
        f" json parse error: {words} ({shown})"
    )


class _Pairs(list[tuple[str, Any]]):
    """The fields of an object in a body, as they stand there."""


def _find_twice(body: bytes, twice: list[str]) -> None:
    seen = False

    def look(pairs: list[tuple[str, Any]]) -> _Pairs:
        nonlocal seen
        seen = seen or len({key for key, _ in pairs}) < len(pairs)
        return _Pairs(pairs)

    tree = json.loads(body, object_pairs_hook=look)
    if seen:
        _name_twice(tree, "", twice)


def _name_twice(value: Any, path: str, twice: list[str]) -> None:
    if isinstance(value, _Pairs):
        known: set[str] = set()
        for key, each in value:
            below = f"{path}.{key}" if path else key
            if key in known:
                twice.append(f'duplicate field "{below}"')
            known.add(key)
            _name_twice(each, below, twice)
    elif isinstance(value, list):
        for place, each in enumerate(value):
            _name_twice(each, f"{path}[{place}]", twice)


def check_kind(kind: kinds.Kind, content: Mapping[str, Any], body: bytes) -> None:
    """Refuse an object that says it is of another kind than its path does."""
    version, name = content.get("apiVersion"), content.get("kind")
    if not version and not name and not kind.custom:
        return
    if not name or not version:
        missing = "Kind" if not name else "apiVersion"
        shown = body[:_SHOWN].decode(errors="replace")
        raise problem.bad_request(
            f"the object provided is unrecognized (must be of type {kind.name}):"
            f" Object '{missing}' is missing in '{shown}' ({shown})"
        )
    if name == kind.name and version == kind.api_version:
        return
    if kind.custom and name != kind.name:
        cause = problem.Cause("FieldValueInvalid", f'Invalid value: "{name}": must be {kind.name}', "kind")
        own = str((content.get("metadata") or {}).get("name", ""))
        raise problem.invalid(kind.group, str(name), own, [cause])
    if kind.custom:
        raise problem.bad_request(
            f"the API version in the data ({version}) does not match the expected API version ({kind.api_version})"
        )
    raise problem.bad_request(
        f'{name} in version "{str(version).rpartition("/")[2]}" cannot be handled as a {kind.name}:'
        f" an object of {version} is no {kind.name} of {kind.api_version}"
    )


def warning_headers(warnings: Sequence[str]) -> list[tuple[str, str]]:
    """The headers by which a client is told of what it should mend."""
    found = []
    for each in dict.fromkeys(warnings):
        told = "".join(sign if sign.isprintable() else " " for sign in each)
        quoted = told.replace("\\", "\\\\").replace('"', '\\"')
        found.append(("Warning", f'299 - "{quoted}"'))
    return found
