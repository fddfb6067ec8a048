"""The rules for CustomResourceDefinitions themselves: names, versions, columns, subresources, and what may change.

`behaviours` calls `create` and `update` when a definition is written. A definition that asks for conversion by webhook
is refused: the lab converts between versions only as the strategy None does, by writing another apiVersion. Rules in
CEL and the paths of selectable fields are stored without being looked at.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from moorage.lab.kube import problem, structural

if TYPE_CHECKING:
    from moorage.lab.kube import api as apis

Object = dict[str, Any]
Cause = problem.Cause

APPROVED = "api-approved.kubernetes.io"

_LABEL = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")
_LABEL_WORDS = (
    "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character,"
    " and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for validation is"
    " '[a-z]([-a-z0-9]*[a-z0-9])?')"
)
_COLUMN_TYPES = ("boolean", "date", "integer", "number", "string")
_COLUMN_FORMATS = ("byte", "date", "date-time", "double", "float", "int32", "int64", "password")
_PROTECTED = re.compile(r"(.*\.)?(k8s\.io|kubernetes\.io)")


def create(api: apis.Api, content: Object) -> None:
    """Complete a new definition, or refuse it."""
    _complete(content)
    _refuse(content, check(content))


def update(api: apis.Api, before: Mapping[str, Any], after: Object, subresource: str | None) -> None:
    """Complete a changed definition, or refuse it; what the lab itself writes is right."""
    if subresource is not None:
        _complete(after)
        _refuse(after, [*check_change(before, after), *check(after)])


def _refuse(content: Mapping[str, Any], causes: Sequence[Cause]) -> None:
    if causes:
        name = content["metadata"].get("name", "")
        raise problem.invalid("apiextensions.k8s.io", "CustomResourceDefinition", name, causes)


def _complete(content: Object) -> None:
    """Derive the names that were not given."""
    spec = content.get("spec")
    names = spec.get("names") if isinstance(spec, dict) else None
    if isinstance(names, dict) and names.get("kind"):
        if not names.get("singular"):
            names["singular"] = str(names["kind"]).lower()
        if not names.get("listKind"):
            names["listKind"] = f"{names['kind']}List"


def check(content: Mapping[str, Any]) -> list[Cause]:
    """Everything wrong with a definition whose types are right."""
    spec, meta = content.get("spec") or {}, content.get("metadata") or {}
    return [
        *_check_identity(spec, meta),
        *_check_versions(spec.get("versions") or []),
        *_check_scope(spec),
        *_check_names(spec.get("names") or {}),
        *_check_conversion(spec.get("conversion") or {}),
        *_check_stored(spec, content.get("status") or {}),
    ]


def check_change(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[Cause]:
    """What must not change once a definition is established."""
    conditions = (before.get("status") or {}).get("conditions") or []
    if not any(each["type"] == "Established" and each["status"] == "True" for each in conditions):
        return []
    old, new = before["spec"], after["spec"]
    pairs = {
        "spec.scope": (old.get("scope"), new.get("scope")),
        "spec.group": (old.get("group"), new.get("group")),
        "spec.names.kind": (old["names"].get("kind"), new["names"].get("kind")),
        "spec.names.plural": (old["names"].get("plural"), new["names"].get("plural")),
    }
    return [structural.invalid(path, is_, "field is immutable") for path, (was, is_) in pairs.items() if was != is_]


def _check_identity(spec: Mapping[str, Any], meta: Mapping[str, Any]) -> Iterator[Cause]:
    group, plural = spec.get("group") or "", (spec.get("names") or {}).get("plural") or ""
    if meta.get("name") != f"{plural}.{group}":
        yield structural.invalid("metadata.name", meta.get("name"), 'must be spec.names.plural+"."+spec.group')
    if not group:
        yield structural.required("spec.group")
    elif "." not in group:
        yield structural.invalid("spec.group", group, "should be a domain with at least one dot")
    if _PROTECTED.fullmatch(group) and not (meta.get("annotations") or {}).get(APPROVED):
        words = (
            f'protected groups must have approval annotation "{APPROVED}",'
            " see https://github.com/kubernetes/enhancements/pull/1111"
        )
        yield structural.required(f"metadata.annotations[{APPROVED}]", words)
    if spec.get("preserveUnknownFields"):
        words = (
            "cannot set to true, set x-kubernetes-preserve-unknown-fields to true in spec.versions[*].schema instead"
        )
        yield structural.invalid("spec.preserveUnknownFields", True, words)


def _check_scope(spec: Mapping[str, Any]) -> Iterator[Cause]:
    scopes = ("Cluster", "Namespaced")
    if not spec.get("scope"):
        yield structural.required("spec.scope")
    elif spec["scope"] not in scopes:
        yield structural.unsupported("spec.scope", spec["scope"], scopes)


def _label(path: str, value: str, before: str = "") -> Iterator[Cause]:
    if not value:
        yield structural.required(path)
    elif not _LABEL.fullmatch(value.lower() if before else value) or len(value) > 63:
        yield structural.invalid(path, value, before + _LABEL_WORDS)


def _check_names(names: Mapping[str, Any]) -> Iterator[Cause]:
    mixed = "may have mixed case, but should otherwise match: "
    yield from _label("spec.names.plural", names.get("plural") or "")
    yield from _label("spec.names.singular", names.get("singular") or "")
    yield from _label("spec.names.kind", names.get("kind") or "", mixed)
    yield from _label("spec.names.listKind", names.get("listKind") or "", mixed)
    for field in ("shortNames", "categories"):
        for at, name in enumerate(names.get(field) or []):
            yield from _label(f"spec.names.{field}[{at}]", name)
    if names.get("kind") and names.get("kind") == names.get("listKind"):
        yield structural.invalid("spec.names.listKind", names["listKind"], "kind and listKind may not be the same")


def _check_conversion(conversion: Mapping[str, Any]) -> Iterator[Cause]:
    strategy = conversion.get("strategy", "None")
    if strategy == "Webhook":
        words = "conversion by webhook is not supported by this server; use None"
        yield structural.invalid("spec.conversion.strategy", strategy, words)
    elif strategy != "None":
        yield structural.unsupported("spec.conversion.strategy", strategy, ("None", "Webhook"))


def _check_stored(spec: Mapping[str, Any], status: Mapping[str, Any]) -> Iterator[Cause]:
    names = {version.get("name") for version in spec.get("versions") or []}
    for at, name in enumerate(status.get("storedVersions") or []):
        if name not in names:
            words = (
                f"missing from spec.versions; {name} was previously a storage version, and must remain in"
                f" spec.versions until a storage migration ensures no data remains persisted in {name} and removes"
                f" {name} from status.storedVersions"
            )
            yield structural.invalid(f"status.storedVersions[{at}]", name, words)


def _check_versions(versions: Sequence[Mapping[str, Any]]) -> Iterator[Cause]:
    names = [version.get("name") for version in versions]
    told = f"[{', '.join(str(name) for name in names)}]"
    if sum(bool(version.get("storage")) for version in versions) != 1:
        yield _about_all(told, "must have exactly one version marked as storage version")
    if len(set(names)) != len(names):
        yield _about_all(told, "must contain unique version names")
    for at, version in enumerate(versions):
        path = f"spec.versions[{at}]"
        yield from _label(f"{path}.name", version.get("name") or "")
        if version.get("deprecationWarning") and not version.get("deprecated"):
            words = "can only be set for deprecated versions"
            yield structural.invalid(f"{path}.deprecationWarning", version["deprecationWarning"], words)
        if not (version.get("schema") or {}).get("openAPIV3Schema"):
            yield structural.required(f"{path}.schema.openAPIV3Schema", "schemas are required")
    yield from _check_parts(versions)


def _about_all(told: str, words: str) -> Cause:
    return Cause("FieldValueInvalid", f"Invalid value: {told}: {words}", "spec.versions")


def _check_parts(versions: Sequence[Mapping[str, Any]]) -> Iterator[Cause]:
    """What each version says for itself. What all versions say alike is told once, as if it were said for all."""
    parts = (
        ("schema", "validation", _check_schema),
        ("subresources", "subresources", _check_subresources),
        ("additionalPrinterColumns", "additionalPrinterColumns", _check_columns),
    )
    for field, common, rules in parts:
        given = [version.get(field) for version in versions]
        if all(each == given[0] for each in given):
            if given and given[0]:
                yield from rules(given[0], f"spec.{common}")
        else:
            for at, each in enumerate(given):
                if each:
                    yield from rules(each, f"spec.versions[{at}].{field}")


def _check_schema(schema: Mapping[str, Any], path: str) -> Iterator[Cause]:
    if schema.get("openAPIV3Schema"):
        yield from structural.check(schema["openAPIV3Schema"], f"{path}.openAPIV3Schema")


def _check_subresources(subresources: Mapping[str, Any], path: str) -> Iterator[Cause]:
    scale = subresources.get("scale")
    if scale is None:
        return
    for field, under in (("specReplicasPath", ".spec"), ("statusReplicasPath", ".status")):
        given = scale.get(field)
        if not given:
            yield structural.required(f"{path}.scale.{field}")
        elif not given.startswith(f"{under}."):
            yield structural.invalid(f"{path}.scale.{field}", given, f"should be a json path under {under}")
    selector = scale.get("labelSelectorPath")
    if selector and not selector.startswith((".spec.", ".status.")):
        words = "should be a json path under either .spec or .status"
        yield structural.invalid(f"{path}.scale.labelSelectorPath", selector, words)


def _check_columns(columns: Sequence[Mapping[str, Any]], path: str) -> Iterator[Cause]:
    for at, column in enumerate(columns):
        where = f"{path}[{at}]"
        if not column.get("name"):
            yield structural.required(f"{where}.name")
        if not column.get("type"):
            yield structural.required(f"{where}.type", f"must be one of {','.join(_COLUMN_TYPES)}")
        elif column["type"] not in _COLUMN_TYPES:
            yield structural.invalid(f"{where}.type", column["type"], f"must be one of {','.join(_COLUMN_TYPES)}")
        if column.get("format") and column["format"] not in _COLUMN_FORMATS:
            words = f"must be one of {','.join(_COLUMN_FORMATS)}"
            yield structural.invalid(f"{where}.format", column["format"], words)
        if not column.get("jsonPath"):
            yield structural.required(f"{where}.JSONPath")
        elif not column["jsonPath"].startswith("."):
            words = "must be a simple json path starting with ."
            yield structural.invalid(f"{where}.JSONPath", column["jsonPath"], words)
