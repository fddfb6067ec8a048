"""OpenAPI v3: a document for each group and version, with what kubectl explains, validates and applies by.

Built-in kinds are described by their shapes, custom ones by the schema in their definition. A document holds its own
definitions and all those they refer to. The hash in the index tells clients when to ask again.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from typing import Any

from moorage.lab.kube import discovery, operations, shapes
from moorage.lab.kube import kinds as kinds_

Document = dict[str, Any]

_PREFIX = "#/components/schemas/"
_ALWAYS = ("meta.DeleteOptions", "meta.Status", "meta.ListMeta", "meta.ObjectMeta")
_EXTENSION = "x-kubernetes-group-version-kind"
_PRODUCES = ("application/json", "application/yaml")


def index(kinds: kinds_.Kinds) -> Document:
    """``/openapi/v3``: where the documents are."""
    found = {}
    for group, version in sorted({(kind.group, kind.version) for kind in kinds}):
        path = f"apis/{group}/{version}" if group else f"api/{version}"
        found[path] = {"serverRelativeURL": f"/openapi/v3/{path}?hash={digest(kinds, group, version)}"}
    return {"paths": found}


@discovery.per_generation
def digest(kinds: kinds_.Kinds, group: str, version: str) -> str:
    """Changes whenever the document does."""
    told = [
        (kind.name, kind.plural, sorted(kind.subresources), kind.verbs, kind.schema if kind.custom else None)
        for kind in _served(kinds, group, version)
    ]
    return hashlib.sha512(json.dumps(told, default=_plain, sort_keys=True).encode()).hexdigest().upper()


@discovery.per_generation
def document(kinds: kinds_.Kinds, group: str, version: str) -> bytes | None:
    """``/openapi/v3/apis/GROUP/VERSION``; None if nothing is served there."""
    served = _served(kinds, group, version)
    if not served:
        return None
    content = {
        "openapi": "3.0.0",
        "info": {"title": "Kubernetes", "version": "1.33"},
        "paths": _paths(served),
        "components": {"schemas": definitions(served, _PREFIX)},
    }
    return json.dumps(content, separators=(",", ":"), ensure_ascii=False).encode()


def definitions(served: Iterable[kinds_.Kind], prefix: str) -> dict[str, Document]:
    """The definitions of kinds, of lists of them, and of everything these mention."""
    found: dict[str, Document] = {}
    wanted = list(_ALWAYS)
    marks: dict[str, list[tuple[str, str, str]]] = {}
    for kind in served:
        name = operations.definition_name(kind.group, kind.version, kind.name)
        for subresource in kind.subresources:
            _mark(marks, wanted, discovery.subresource_kind(kind, subresource))
        if kind.custom:
            found[name] = custom(kind, prefix)
        else:
            _mark(marks, wanted, (kind.group, kind.version, kind.name))
        if "list" in kind.verbs:
            found[f"{name}List"] = _list(kind, f"{prefix}{name}", prefix)
    found |= _closure(wanted, prefix)
    for name, gvks in marks.items():
        if name in found:
            found[name][_EXTENSION] = [_gvk(gvk) for gvk in gvks]
    found |= shapes.named_types()
    found[f"{operations.META}.Patch"] = {"type": "object", "description": "A change of an object."}
    return dict(sorted(found.items()))


def custom(kind: kinds_.Kind, prefix: str) -> Document:
    """The definition of a custom kind: its own schema, with the fields every object has."""
    schema: Document = dict(kind.schema or {"type": "object", "x-kubernetes-preserve-unknown-fields": True})
    properties = {
        **schema.get("properties", {}),
        "apiVersion": {"type": "string", "description": "The version of the schema that the object is written in."},
        "kind": {"type": "string", "description": "What kind of object this is."},
        "metadata": {
            "description": "The name of the object, its labels and its history.",
            "allOf": [{"$ref": f"{prefix}{operations.META}.ObjectMeta"}],
        },
    }
    schema = {**schema, "properties": dict(sorted(properties.items()))}
    schema[_EXTENSION] = [_gvk((kind.group, kind.version, kind.name))]
    return schema


def _served(kinds: kinds_.Kinds, group: str, version: str) -> list[kinds_.Kind]:
    return sorted(
        (kind for kind in kinds if (kind.group, kind.version) == (group, version)), key=lambda kind: kind.plural
    )


def _plain(value: object) -> str:
    return repr(value)


def _mark(marks: dict[str, list[tuple[str, str, str]]], wanted: list[str], gvk: tuple[str, str, str]) -> None:
    group, version, name = gvk
    reference = f"{shapes.alias_of(group, version)}.{name}"
    if reference in shapes.shapes():
        wanted.append(reference)
        gvks = marks.setdefault(shapes.shapes()[reference].full_name, [])
        if gvk not in gvks:
            gvks.append(gvk)


def _closure(wanted: list[str], prefix: str) -> dict[str, Document]:
    found: dict[str, Document] = {}
    waiting = list(wanted)
    while waiting:
        reference = waiting.pop()
        shape = shapes.shapes()[reference]
        if shape.full_name not in found:
            found[shape.full_name] = shapes.published(reference, prefix)
            waiting.extend(shapes.references(reference))
    return found


def _list(kind: kinds_.Kind, reference: str, prefix: str) -> Document:
    return {
        "type": "object",
        "description": f"A list of objects of kind {kind.name}.",
        "required": ["items"],
        "properties": {
            "apiVersion": {"type": "string"},
            "items": {"type": "array", "items": {"$ref": reference}},
            "kind": {"type": "string"},
            "metadata": {"$ref": f"{prefix}{operations.META}.ListMeta"},
        },
        _EXTENSION: [_gvk((kind.group, kind.version, kind.list_name))],
    }


def _gvk(gvk: tuple[str, str, str]) -> Document:
    group, version, kind = gvk
    return {"group": group, "kind": kind, "version": version}


def _paths(served: list[kinds_.Kind]) -> Document:
    return operations.paths(served, _path_parameter, _query_parameter("pretty"), _operation)


def _operation(operation: operations.Operation) -> Document:
    found: Document = {
        "tags": [operation.tag],
        "description": operation.description,
        "operationId": operation.identifier,
    }
    if operation.parameters:
        found["parameters"] = [_query_parameter(name) for name in operation.parameters]
    if operation.takes:
        content = {kind: _content(operation.takes) for kind in operation.consumes}
        required = {} if operation.method == "delete" else {"required": True}
        found["requestBody"] = {"content": content, **required}
    answer = {"content": {kind: _content(operation.gives) for kind in _PRODUCES}} if operation.gives else {}
    words = {200: "OK", 201: "Created", 202: "Accepted"}
    found["responses"] = {str(code): {"description": words[code], **answer} for code in operation.codes}
    found["responses"]["401"] = {"description": "Unauthorized"}
    found["x-kubernetes-action"] = operation.action
    found[_EXTENSION] = _gvk(operation.kind)
    return found


def _content(name: str) -> Document:
    return {"schema": {"$ref": f"{_PREFIX}{name}"}}


def _query_parameter(name: str) -> Document:
    kind, words = operations.PARAMETERS[name]
    return {"name": name, "in": "query", "description": words, "schema": {"type": kind, "uniqueItems": True}}


def _path_parameter(name: str) -> Document:
    words = f"{name} of the object"
    return {
        "name": name,
        "in": "path",
        "description": words,
        "required": True,
        "schema": {"type": "string", "uniqueItems": True},
    }
