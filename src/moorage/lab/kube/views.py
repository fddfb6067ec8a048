"""How an answer looks: which form of an object the client accepts, and the bytes of it.

Objects are stored as the bytes they are sent as; other versions differ in their first line only, so that nothing is
encoded again. Only tables, bare metadata, YAML and pretty print cost more.
"""

from __future__ import annotations

import dataclasses
import datetime
import functools
import json
from collections.abc import Mapping

import yaml

from moorage.lab.kube import kinds, lists, problem, store, tables

TABLE = "Table"
PARTIAL = "PartialObjectMetadata"
JSON = "application/json"
YAML = "application/yaml"
_ANY = ("*/*", "application/*")
_KNOWN = f"{JSON}, {YAML}, application/vnd.kubernetes.protobuf"


@dataclasses.dataclass(frozen=True)
class View:
    """The form that a client accepts: the object itself, a table, or its metadata alone; as JSON or YAML."""

    form: str = ""
    media: str = JSON
    include: str = tables.METADATA
    pretty: bool = False


@functools.lru_cache(maxsize=256)
def accepted(accept: str, query: str = "") -> View:
    """The first form in an Accept header that can be served; ``query`` is the includeObject of the request."""
    for clause in accept.split(",") if accept.strip() else (JSON,):
        media, *given = (part.strip() for part in clause.split(";"))
        parameters = dict(part.partition("=")[::2] for part in given)
        if media not in (JSON, YAML, *_ANY):
            continue
        form = parameters.get("as", "").removesuffix("List")
        fitting = parameters.get("g") == "meta.k8s.io" and parameters.get("v") in ("v1", "v1beta1")
        if form and not (form in (TABLE, PARTIAL) and fitting):
            continue
        return View(form, YAML if media == YAML else JSON, query or tables.METADATA)
    if "as=" in accept:
        raise problem.not_acceptable(f"only the following media types are accepted: {_KNOWN}")
    raise problem.not_acceptable(
        f"406: Not Acceptable\n\nAvailable representations: {_KNOWN}, application/json;stream=watch,"
        " application/vnd.kubernetes.protobuf;stream=watch"
    )


def versioned(kind: kinds.Kind, entry: store.Entry) -> store.Entry:
    """The object in the version of ``kind``, whatever it is stored in."""
    stored = entry.object["apiVersion"]
    if stored == kind.api_version:
        return entry
    front = store.encoded({"apiVersion": stored})[:-1]
    data = store.encoded({"apiVersion": kind.api_version})[:-1] + entry.data[len(front) :]
    return store.Entry({**entry.object, "apiVersion": kind.api_version}, data, entry.revision)


def one(view: View, kind: kinds.Kind, entry: store.Entry, now: datetime.datetime, *, columns: bool = True) -> bytes:
    """One object."""
    entry = versioned(kind, entry)
    if view.form == TABLE:
        meta = {"resourceVersion": str(entry.revision)}
        return tables.table(kind, [entry], meta, now, view.include, columns=columns)
    if view.form == PARTIAL:
        return store.encoded(tables.partial(entry))
    return entry.data


def many(view: View, kind: kinds.Kind, page: lists.Page, now: datetime.datetime) -> bytes:
    """A list."""
    entries = [versioned(kind, entry) for entry in page.entries]
    if view.form == TABLE:
        return tables.table(kind, entries, page.metadata(), now, view.include)
    if view.form == PARTIAL:
        items = [store.encoded(tables.partial(entry)) for entry in entries]
        return _listed("PartialObjectMetadataList", tables.API_VERSION, page.metadata(), items)
    return _listed(kind.list_name, kind.api_version, page.metadata(), _items(kind, entries))


def _items(kind: kinds.Kind, entries: list[store.Entry]) -> list[bytes]:
    """Those of built-in kinds do not say again what they are: who counts on it would fail on a real server."""
    if kind.custom:
        return [entry.data for entry in entries]
    front = store.encoded({"apiVersion": kind.api_version, "kind": kind.name})[:-1] + b","
    return [b"{" + entry.data.removeprefix(front) if entry.data.startswith(front) else entry.data for entry in entries]


def _listed(name: str, api_version: str, metadata: Mapping[str, object], items: list[bytes]) -> bytes:
    head = store.encoded({"kind": name, "apiVersion": api_version, "metadata": metadata})
    return head[:-1] + b',"items":[' + b",".join(items) + b"]}"


def finished(view: View, data: bytes) -> bytes:
    """The bytes as the client wants them spelled."""
    if view.media == YAML:
        return yaml.safe_dump(json.loads(data), default_flow_style=False).encode()
    if view.pretty:
        return json.dumps(json.loads(data), indent=2, ensure_ascii=False).encode()
    return data
