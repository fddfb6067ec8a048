"""Which objects a client wants: label selectors in both spellings, and field selectors with the fields each kind knows.

A selector is read once into a function from object to bool, which lists, watches and controllers then apply to many.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from moorage.lab.kube import kinds, labelling, problem

Object = Mapping[str, Any]
Matcher = Callable[[Object], bool]
Labels = Mapping[str, Any]
"""Labels that must be equal, or a metav1.LabelSelector (with matchLabels, matchExpressions)."""
Fields = Mapping[str, str]

_LabelTest = Callable[[Mapping[str, str]], bool]

_TOKEN = re.compile(r"\s*(==|!=|[=!<>(),]|[^\s=!<>(),]+|$)")
_FIELD_TERM = re.compile(r"((?:[^=!,\\]|\\.)*)(==|!=|=)((?:[^,=\\]|\\.)*)")
_METADATA = ("metadata.name", "metadata.namespace")
_NODE_DEFAULTS = {"spec.unschedulable": "false"}

_FIELDS: dict[kinds.Key, tuple[str, ...]] = {
    ("", "pods"): (
        "spec.nodeName",
        "spec.restartPolicy",
        "spec.schedulerName",
        "spec.serviceAccountName",
        "spec.hostNetwork",
        "status.phase",
        "status.podIP",
        "status.nominatedNodeName",
    ),
    ("", "nodes"): ("spec.unschedulable",),
    ("", "namespaces"): ("status.phase",),
    ("", "secrets"): ("type",),
    ("", "services"): ("spec.clusterIP", "spec.type"),
    ("", "replicationcontrollers"): ("status.replicas",),
    ("apps", "replicasets"): ("status.replicas",),
    ("batch", "jobs"): ("status.successful",),
    ("certificates.k8s.io", "certificatesigningrequests"): ("spec.signerName",),
    ("", "events"): (
        "involvedObject.kind",
        "involvedObject.namespace",
        "involvedObject.name",
        "involvedObject.uid",
        "involvedObject.apiVersion",
        "involvedObject.resourceVersion",
        "involvedObject.fieldPath",
        "reason",
        "reportingComponent",
        "source",
        "type",
    ),
}


def everything(_: Object) -> bool:
    """The selector that chooses all."""
    return True


def matcher(kind: kinds.Kind, labels: str | Labels | None = None, fields: str | Fields | None = None) -> Matcher:
    """What both selectors choose; `everything` itself if they leave nothing out."""
    by_label = by_labels(labels)
    by_field = _by_fields(kind, fields)
    if by_label is everything:
        return by_field
    if by_field is everything:
        return by_label
    return lambda content: by_label(content) and by_field(content)


def by_labels(labels: str | Labels | None) -> Matcher:
    """What a label selector chooses; none and an empty one choose everything."""
    if not labels:
        return everything
    tests = _parsed(labels) if isinstance(labels, str) else _of_mapping(labels)
    if not tests:
        return everything

    def matches(content: Object) -> bool:
        found = content["metadata"].get("labels") or {}
        return all(test(found) for test in tests)

    return matches


def _of_mapping(labels: Labels) -> list[_LabelTest]:
    if not ("matchLabels" in labels or "matchExpressions" in labels):
        return [_one_of(key, (value,)) for key, value in labels.items()]
    tests = [_one_of(key, (value,)) for key, value in (labels.get("matchLabels") or {}).items()]
    for expression in labels.get("matchExpressions") or []:
        key, values = expression["key"], tuple(expression.get("values") or ())
        match expression["operator"]:
            case "In":
                tests.append(_one_of(key, values))
            case "NotIn":
                tests.append(_none_of(key, values))
            case "Exists":
                tests.append(_present(key))
            case "DoesNotExist":
                tests.append(_absent(key))
            case other:
                raise problem.bad_request(f'"{other}" is not a valid label selector operator')
    return tests


def _one_of(key: str, values: tuple[str, ...]) -> _LabelTest:
    if len(values) == 1:
        only = values[0]
        return lambda labels: labels.get(key) == only
    return lambda labels: key in labels and labels[key] in values


def _none_of(key: str, values: tuple[str, ...]) -> _LabelTest:
    return lambda labels: key not in labels or labels[key] not in values


def _present(key: str) -> _LabelTest:
    return lambda labels: key in labels


def _absent(key: str) -> _LabelTest:
    return lambda labels: key not in labels


def _compared(key: str, sign: str, bound: str) -> _LabelTest:
    try:
        limit = int(bound)
    except ValueError:
        raise problem.bad_request(
            f"values[0][{key}]: Invalid value: \"{bound}\": for 'Gt', 'Lt' operators, the value must be an integer"
        ) from None

    def test(labels: Mapping[str, str]) -> bool:
        try:
            value = int(labels.get(key, ""))
        except ValueError:
            return False
        return value > limit if sign == ">" else value < limit

    return test


class _Reader:
    """The tokens of a label selector in its short spelling."""

    def __init__(self, text: str) -> None:
        self.tokens = [token for token in _TOKEN.findall(text) if token]
        self.place = 0

    def peek(self) -> str:
        return self.tokens[self.place] if self.place < len(self.tokens) else ""

    def take(self) -> str:
        token = self.peek()
        self.place += 1
        return token


def _parsed(text: str) -> list[_LabelTest]:
    reader = _Reader(text)
    tests = []
    while reader.peek():
        tests.append(_requirement(reader))
        comma = reader.take()
        if comma not in ("", ","):
            raise _refused(f"found '{comma}', expected: ',' or 'end of string'")
        if comma and not reader.peek():
            raise _refused("found '', expected: identifier after ','")
    return tests


def _requirement(reader: _Reader) -> _LabelTest:
    if reader.peek() == "!":
        reader.take()
        return _absent(_key(reader))
    key = _key(reader)
    sign = reader.peek()
    if sign in ("", ","):
        return _present(key)
    reader.take()
    if sign in ("=", "=="):
        return _one_of(key, (_value(reader),))
    if sign == "!=":
        return _none_of(key, (_value(reader),))
    if sign in (">", "<"):
        return _compared(key, sign, _value(reader))
    if sign == "in":
        return _one_of(key, _values(reader))
    if sign == "notin":
        return _none_of(key, _values(reader))
    raise _refused(f"found '{sign}', expected: in, notin, =, ==, !=, gt, lt")


def _key(reader: _Reader) -> str:
    key = reader.take()
    if not key or not re.match(r"[^=!<>(),]", key):
        raise _refused(f"found '{key}', expected: identifier")
    wrongs = labelling.key_wrongs(key)
    if wrongs:
        raise _refused(f'<nil>: Invalid value: "{key}": {"; ".join(wrongs)}')
    return key


def _value(reader: _Reader) -> str:
    value = reader.peek()
    if value in ("", ","):
        return ""
    reader.take()
    wrongs = labelling.value_wrongs(value)
    if wrongs:
        raise _refused(f'<nil>: Invalid value: "{value}": {"; ".join(wrongs)}')
    return value


def _values(reader: _Reader) -> tuple[str, ...]:
    opening = reader.take()
    if opening != "(":
        raise _refused(f"found '{opening}' expected: '('")
    values = []
    while True:
        values.append("" if reader.peek() in (",", ")") else _value(reader))
        sign = reader.take()
        if sign == ")":
            return tuple(values)
        if sign != ",":
            raise _refused(f"found '{sign}', expected: ',' or ')'")


def _refused(why: str) -> problem.Problem:
    return problem.bad_request(f"unable to parse requirement: {why}")


def field_terms(text: str) -> list[tuple[str, bool, str]]:
    """The terms of a field selector: field, whether it must be equal, value."""
    terms = []
    for piece in re.split(r"(?<!\\),", text):
        if not piece:
            continue
        found = _FIELD_TERM.fullmatch(piece)
        if found is None:
            raise problem.bad_request(f"invalid selector: '{text}'; can't understand '{piece}'")
        field, sign, value = found.groups()
        terms.append((field.strip(), sign != "!=", re.sub(r"\\([,=\\])", r"\1", value)))
    return terms


def named(fields: str) -> str:
    """The one name that a field selector asks for; empty if it asks for more."""
    return next((value for field, equal, value in field_terms(fields) if field == "metadata.name" and equal), "")


def _by_fields(kind: kinds.Kind, fields: str | Fields | None) -> Matcher:
    if not fields:
        return everything
    terms = field_terms(fields) if isinstance(fields, str) else [(key, True, value) for key, value in fields.items()]
    tests = [_field_test(kind, field, equal, value) for field, equal, value in terms]
    return lambda content: all(test(content) for test in tests)


def selectable(kind: kinds.Kind) -> tuple[str, ...]:
    """The fields beside those of metadata by which objects of a kind can be chosen."""
    custom = tuple(path.removeprefix(".") for path in kind.selectable)
    return _FIELDS.get(kind.key, ()) + custom


def _field_test(kind: kinds.Kind, field: str, equal: bool, value: str) -> Matcher:
    known = selectable(kind)
    if field not in _METADATA and field not in known:
        if known or kind.custom:
            raise problem.bad_request(f"field label not supported: {field}")
        raise problem.bad_request(
            f'"{field}" is not a known field selector: only "metadata.name", "metadata.namespace"'
        )
    path = tuple(("source.component" if field == "source" else field).split("."))
    absent = _NODE_DEFAULTS.get(field, "")
    return lambda content: (_text(content, path, absent) == value) is equal


def _text(content: Object, path: tuple[str, ...], absent: str) -> str:
    found: Any = content
    for step in path:
        if not isinstance(found, Mapping) or step not in found:
            return absent
        found = found[step]
    return str(found).lower() if isinstance(found, bool) else str(found)
