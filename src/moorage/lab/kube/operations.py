"""The operations that an API offers on its kinds: paths, methods, parameters, and what they take and give.

Both generations of OpenAPI documents are written from this one list. Watch paths of the old style (``/watch/…``) are
not on it: nobody should use them, and the server does not offer them.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from moorage.lab.kube import discovery, shapes
from moorage.lab.kube import kinds as kinds_

Document = dict[str, Any]

META = "io.k8s.apimachinery.pkg.apis.meta.v1"
PATCH_TYPES = ("application/json-patch+json", "application/merge-patch+json", "application/apply-patch+yaml")
STRATEGIC = "application/strategic-merge-patch+json"

# name: (type, what it does)
PARAMETERS = {
    "allowWatchBookmarks": ("boolean", "Send bookmarks, which tell how far a watch has come."),
    "continue": ("string", "Where a list in pieces goes on; from the piece before."),
    "dryRun": ("string", "All: do everything but store the result."),
    "fieldManager": ("string", "Who changes the object."),
    "fieldSelector": ("string", "Only objects with these values in their fields."),
    "fieldValidation": ("string", "What to do about unknown fields: Ignore, Warn or Strict."),
    "force": ("boolean", "Take over fields that others manage; only for apply."),
    "gracePeriodSeconds": ("integer", "Seconds until the object is gone."),
    "labelSelector": ("string", "Only objects with these labels."),
    "limit": ("integer", "The most objects to give at once."),
    "orphanDependents": ("boolean", "Older than propagationPolicy: keep what the object owns."),
    "pretty": ("string", "Write the answer for people."),
    "propagationPolicy": ("string", "What becomes of owned objects: Orphan, Background or Foreground."),
    "resourceVersion": ("string", "From which revision on to watch, or how fresh a list must be."),
    "resourceVersionMatch": ("string", "How a list's resourceVersion is meant: Exact or NotOlderThan."),
    "sendInitialEvents": ("boolean", "Begin a watch with the objects that are there."),
    "timeoutSeconds": ("integer", "When to end the call."),
    "watch": ("boolean", "Send changes as they happen."),
}
_LIST = (
    "allowWatchBookmarks",
    "continue",
    "fieldSelector",
    "labelSelector",
    "limit",
    "resourceVersion",
    "resourceVersionMatch",
    "sendInitialEvents",
    "timeoutSeconds",
    "watch",
)
_WRITE = ("dryRun", "fieldManager", "fieldValidation")
_DELETE = ("dryRun", "gracePeriodSeconds", "orphanDependents", "propagationPolicy")
_WORDS = {"get": "read", "list": "list", "post": "create", "put": "replace", "patch": "patch", "delete": "delete"}
_METHODS = (("get", "get"), ("update", "put"), ("delete", "delete"), ("patch", "patch"), ("create", "post"))


@dataclasses.dataclass(frozen=True)
class Operation:
    """One method of one path. ``takes`` and ``gives`` are full names of definitions, empty for none."""

    path: str
    method: str
    action: str
    identifier: str
    description: str
    tag: str
    kind: tuple[str, str, str]
    parameters: tuple[str, ...] = ()
    takes: str = ""
    gives: str = ""
    codes: tuple[int, ...] = (200,)
    consumes: tuple[str, ...] = ("*/*",)


def definition_name(group: str, version: str, kind: str) -> str:
    """The full name under which a kind is defined: io.k8s.api.core.v1.Pod, com.example.v1.Thing."""
    shape = shapes.shapes().get(f"{shapes.alias_of(group, version)}.{kind}")
    # A custom group may begin like one of ours: apps.example.com.
    if shape is not None and (group == "" or "." not in group or group.endswith(".k8s.io")):
        return shape.full_name
    return ".".join([*reversed(group.split(".")), version, kind])


def of(kinds: Iterable[kinds_.Kind]) -> Iterator[Operation]:
    """All operations on these kinds."""
    for kind in kinds:
        yield from _of_kind(kind)


def paths(
    served: Iterable[kinds_.Kind],
    path_parameter: Callable[[str], Document],
    common: Document,
    written: Callable[[Operation], Document],
) -> Document:
    """All operations by path and method, as a generation of OpenAPI writes each; ``common`` is a parameter of all."""
    found: dict[str, Document] = {}
    for operation in of(served):
        if operation.path not in found:
            found[operation.path] = {"parameters": [*map(path_parameter, path_parameters(operation.path)), common]}
        found[operation.path][operation.method] = written(operation)
    return dict(sorted(found.items()))


def path_parameters(path: str) -> list[str]:
    """The names in braces of a path."""
    return [part[1:-1] for part in path.split("/") if part.startswith("{")]


def _of_kind(kind: kinds_.Kind) -> Iterator[Operation]:
    base = f"/apis/{kind.group}/{kind.version}" if kind.group else f"/api/{kind.version}"
    place = f"{base}/namespaces/{{namespace}}/{kind.plural}" if kind.namespaced else f"{base}/{kind.plural}"
    if kind.namespaced and "list" in kind.verbs:
        yield _list(kind, f"{base}/{kind.plural}", everywhere=True)
    yield from _on_collection(kind, place)
    yield from _on_object(kind, f"{place}/{{name}}")
    for subresource in sorted(kind.subresources):
        yield from _on_part(kind, f"{place}/{{name}}/{subresource}", subresource)


def _on_collection(kind: kinds_.Kind, place: str) -> Iterator[Operation]:
    if "list" in kind.verbs:
        yield _list(kind, place)
    if "create" in kind.verbs:
        name = definition_name(kind.group, kind.version, kind.name)
        made = _operation(kind, place, "post", f"create a {kind.name}", parameters=_WRITE, takes=name, gives=name)
        yield dataclasses.replace(made, codes=(200, 201, 202))
    if "deletecollection" in kind.verbs:
        words = f"delete a collection of {kind.name}"
        yield dataclasses.replace(
            _operation(
                kind, place, "delete", words, "Collection", parameters=(*_LIST, *_DELETE), gives=f"{META}.Status"
            ),
            action="deletecollection",
            takes=f"{META}.DeleteOptions",
        )


def _list(kind: kinds_.Kind, path: str, *, everywhere: bool = False) -> Operation:
    gives = definition_name(kind.group, kind.version, kind.name) + "List"
    suffix = "ForAllNamespaces" if everywhere else ""
    words = f"list objects of kind {kind.name}"
    found = _operation(kind, path, "get", words, parameters=_LIST, gives=gives, everywhere=everywhere)
    identifier = "list" + found.identifier.removeprefix("read") + suffix
    return dataclasses.replace(found, action="list", identifier=identifier)


def _on_object(kind: kinds_.Kind, path: str) -> Iterator[Operation]:
    name = definition_name(kind.group, kind.version, kind.name)
    for verb, method in _METHODS:
        if verb in kind.verbs and verb != "create":
            yield _write_or_read(kind, path, method, name, (kind.group, kind.version, kind.name), "")


def _on_part(kind: kinds_.Kind, path: str, subresource: str) -> Iterator[Operation]:
    gvk = discovery.subresource_kind(kind, subresource)
    for verb, method in _METHODS:
        if verb in discovery.subresource_verbs(subresource):
            yield _write_or_read(kind, path, method, definition_name(*gvk), gvk, subresource)


def _write_or_read(
    kind: kinds_.Kind, path: str, method: str, name: str, gvk: tuple[str, str, str], subresource: str
) -> Operation:
    words = f"{_WORDS[method]} {subresource + ' of ' if subresource else ''}the specified {kind.name}"
    found = dataclasses.replace(_operation(kind, path, method, words, suffix=subresource.capitalize()), kind=gvk)
    if method == "get":
        return dataclasses.replace(found, gives=name)
    if method == "delete":
        options = f"{META}.DeleteOptions"
        return dataclasses.replace(found, takes=options, gives=f"{META}.Status", parameters=_DELETE, codes=(200, 202))
    if method == "patch":
        types = PATCH_TYPES if kind.custom else (*PATCH_TYPES, STRATEGIC)
        return dataclasses.replace(
            found, takes=f"{META}.Patch", gives=name, parameters=(*_WRITE, "force"), codes=(200, 201), consumes=types
        )
    return dataclasses.replace(found, takes=name, gives=name, parameters=_WRITE, codes=(200, 201))


def _operation(
    kind: kinds_.Kind,
    path: str,
    method: str,
    description: str,
    infix: str = "",
    *,
    suffix: str = "",
    parameters: tuple[str, ...] = (),
    takes: str = "",
    gives: str = "",
    everywhere: bool = False,
) -> Operation:
    group = "".join(part.capitalize() for part in kind.group.replace("-", ".").split(".")) or "Core"
    version = kind.version.capitalize()
    scope = "Namespaced" if kind.namespaced and not everywhere else ""
    return Operation(
        path=path,
        method=method,
        action=method,
        identifier=f"{_WORDS[method]}{group}{version}{infix}{scope}{kind.name}{suffix}",
        description=description,
        tag=f"{group[0].lower()}{group[1:]}_{kind.version}",
        kind=(kind.group, kind.version, kind.name),
        parameters=parameters,
        takes=takes,
        gives=gives,
    )
