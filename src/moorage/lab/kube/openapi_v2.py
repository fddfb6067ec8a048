"""OpenAPI v2 (Swagger): one document for the whole API, for clients that are too old for v3.

It is given as JSON and in the protobuf form that kubectl up to 1.26 reads, `gnostic`. Where v2 has no words for what a
schema says (nullable, alternatives, numbers or texts), it says less, as real servers do.
"""

from __future__ import annotations

import json
from typing import Any

from moorage.lab.kube import discovery, gnostic, openapi, operations
from moorage.lab.kube import kinds as kinds_

Document = dict[str, Any]

PROTOBUF = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf"
"""What clients ask for; not a media type that Go's own library would accept as an answer."""
ANSWERED = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"
"""What it is called in the answer."""

_PREFIX = "#/definitions/"
_UNSPEAKABLE = ("allOf", "anyOf", "oneOf", "not", "nullable", "default", "x-kubernetes-validations")
_FREE = ("x-kubernetes-preserve-unknown-fields", "x-kubernetes-int-or-string", "x-kubernetes-embedded-resource")
_NUMBER_OR_TEXT = {
    "io.k8s.apimachinery.pkg.util.intstr.IntOrString": {"type": "string", "format": "int-or-string"},
    "io.k8s.apimachinery.pkg.api.resource.Quantity": {"type": "string"},
}


@discovery.per_generation
def document(kinds: kinds_.Kinds, protobuf: bool = False) -> bytes:
    """``/openapi/v2``."""
    content = swagger(kinds)
    return gnostic.encoded(content) if protobuf else json.dumps(content, separators=(",", ":")).encode()


@discovery.per_generation
def swagger(kinds: kinds_.Kinds) -> Document:
    """The document itself."""
    served = sorted(kinds, key=lambda kind: (kind.group, kind.version, kind.plural))
    definitions = {name: _spoken(schema) for name, schema in openapi.definitions(served, _PREFIX).items()}
    definitions |= _NUMBER_OR_TEXT
    return {
        "swagger": "2.0",
        "info": {"title": "Kubernetes", "version": "1.33"},
        "paths": _paths(served),
        "definitions": definitions,
        "securityDefinitions": {
            "BearerToken": {
                "description": "A bearer token",
                "type": "apiKey",
                "name": "authorization",
                "in": "header",
            }
        },
        "security": [{"BearerToken": []}],
    }


def _spoken(schema: Document) -> Document:
    """A schema in the words that v2 has."""
    if references := [each for each in schema.get("allOf", ()) if "$ref" in each]:
        found = {**references[0]}
        if "description" in schema:
            found["description"] = schema["description"]
        return found | {key: value for key, value in schema.items() if key.startswith("x-kubernetes-")}
    if schema.get("nullable") or any(schema.get(key) for key in _FREE):
        # Whatever is said here about the type would be too much: old clients know no null, and no alternatives.
        kept = ("description", "x-kubernetes-group-version-kind", *_FREE)
        return {key: schema[key] for key in kept if key in schema}
    found = {key: value for key, value in schema.items() if key not in _UNSPEAKABLE}
    if "properties" in found:
        found["properties"] = {name: _spoken(each) for name, each in found["properties"].items()}
    for key in ("items", "additionalProperties"):
        if isinstance(found.get(key), dict):
            found[key] = _spoken(found[key])
    return found


def _paths(served: list[kinds_.Kind]) -> Document:
    return operations.paths(served, _path_parameter, _query_parameter("pretty"), _operation)


def _operation(operation: operations.Operation) -> Document:
    group, version, kind = operation.kind
    parameters: list[Document] = []
    if operation.takes:
        required = {} if operation.method == "delete" else {"required": True}
        parameters.append({"name": "body", "in": "body", **required, "schema": _reference(operation.takes)})
    parameters.extend(_query_parameter(name) for name in operation.parameters)
    answer = {"schema": _reference(operation.gives)} if operation.gives else {}
    words = {200: "OK", 201: "Created", 202: "Accepted"}
    responses: Document = {str(code): {"description": words[code], **answer} for code in operation.codes}
    responses["401"] = {"description": "Unauthorized"}
    return {
        "tags": [operation.tag],
        "description": operation.description,
        "operationId": operation.identifier,
        "consumes": list(operation.consumes),
        "produces": ["application/json", "application/yaml"],
        "schemes": ["https"],
        **({"parameters": parameters} if parameters else {}),
        "responses": responses,
        "x-kubernetes-action": operation.action,
        "x-kubernetes-group-version-kind": {"group": group, "kind": kind, "version": version},
    }


def _reference(name: str) -> Document:
    return {"$ref": f"{_PREFIX}{name}"}


def _query_parameter(name: str) -> Document:
    kind, words = operations.PARAMETERS[name]
    return {"name": name, "in": "query", "description": words, "type": kind, "uniqueItems": True}


def _path_parameter(name: str) -> Document:
    words = f"{name} of the object"
    return {"name": name, "in": "path", "description": words, "required": True, "type": "string", "uniqueItems": True}
