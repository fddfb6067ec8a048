"""Tables: what `kubectl get` shows, rows of cells made by the server from the columns of a kind.

A column of type ``date`` is shown as an age, in the short spelling that kubectl has for durations.
"""

from __future__ import annotations

import datetime
import json
from collections.abc import Iterable, Mapping
from typing import Any

from moorage.lab.kube import jsonpath, kinds, store

API_VERSION = "meta.k8s.io/v1"
NONE, METADATA, OBJECT = "None", "Metadata", "Object"

_NAME = kinds.Column("Name", ".metadata.name", format="name", description="Name must be unique within a namespace.")
_AGE = kinds.Column("Created At", ".metadata.creationTimestamp", "date")


def partial(entry: store.Entry) -> dict[str, Any]:
    """The metadata of an object as an object of its own."""
    return {"kind": "PartialObjectMetadata", "apiVersion": API_VERSION, "metadata": entry.object["metadata"]}


def table(
    kind: kinds.Kind,
    entries: Iterable[store.Entry],
    metadata: Mapping[str, object],
    now: datetime.datetime,
    include: str = METADATA,
    *,
    columns: bool = True,
) -> bytes:
    """A Table as JSON. ``include`` says how much of each object goes with its row."""
    shown = _columns(kind)
    rows = b",".join(_row(shown, entry, now, include) for entry in entries)
    head = {
        "kind": "Table",
        "apiVersion": API_VERSION,
        "metadata": metadata,
        "columnDefinitions": [_definition(column) for column in shown] if columns else None,
    }
    return store.encoded(head)[:-1] + b',"rows":[' + rows + b"]}"


def _columns(kind: kinds.Kind) -> tuple[kinds.Column, ...]:
    columns = kind.columns or (_NAME, _AGE)
    # Custom kinds name only what is their own, and all their tables begin with the name.
    return columns if not kind.custom or columns[0].path == _NAME.path else (_NAME, *columns)


def _definition(column: kinds.Column) -> dict[str, Any]:
    return {
        "name": column.name,
        "type": column.type,
        "format": column.format,
        "description": column.description,
        "priority": column.priority,
    }


def _row(columns: tuple[kinds.Column, ...], entry: store.Entry, now: datetime.datetime, include: str) -> bytes:
    cells = store.encoded([_cell(column, entry.object, now) for column in columns])
    if include == OBJECT:
        return b'{"cells":' + cells + b',"object":' + entry.data + b"}"
    if include == NONE:
        return b'{"cells":' + cells + b"}"
    return b'{"cells":' + cells + b',"object":' + store.encoded(partial(entry)) + b"}"


def _cell(column: kinds.Column, content: Mapping[str, Any], now: datetime.datetime) -> object:
    found = column.value(content) if column.value is not None else jsonpath.first(content, column.path)
    if isinstance(found, kinds.Since) or (column.type == "date" and column.value is None):
        # Built-in kinds show what is missing, custom ones leave it out.
        return _age(found, now) if found else "<unknown>"
    if found is None or column.value is not None:
        return found
    return _typed(found, column.type)


def _typed(value: Any, type_: str) -> object:
    if type_ == "integer":
        return value if isinstance(value, int) else None
    if type_ == "number":
        return value if isinstance(value, int | float) else None
    if type_ == "boolean":
        return value if isinstance(value, bool) else None
    if isinstance(value, bool):
        return str(value).lower()
    return json.dumps(value, separators=(",", ":")) if isinstance(value, dict | list) else str(value)


def _age(timestamp: object, now: datetime.datetime) -> str:
    try:
        born = datetime.datetime.fromisoformat(str(timestamp))
    except ValueError:
        return "<invalid>"
    if born.tzinfo is None:
        born = born.replace(tzinfo=datetime.UTC)
    return duration((now - born).total_seconds())


def duration(passed: float) -> str:
    """Seconds as kubectl writes them: fewer digits the longer it is."""
    seconds = int(passed)
    if seconds < -1:
        return "<invalid>"
    if seconds < 0:
        return "0s"
    minutes, hours, days = seconds // 60, seconds // 3600, seconds // 86400
    if seconds < 120:
        return f"{seconds}s"
    if minutes < 10:
        return f"{minutes}m" + (f"{seconds % 60}s" if seconds % 60 else "")
    if hours < 3:
        return f"{minutes}m"
    if hours < 8:
        return f"{hours}h" + (f"{minutes % 60}m" if minutes % 60 else "")
    if hours < 48:
        return f"{hours}h"
    if days < 8:
        return f"{days}d" + (f"{hours % 24}h" if hours % 24 else "")
    if days < 2 * 365:
        return f"{days}d"
    years, rest = divmod(days, 365)
    return f"{years}y{rest}d" if days < 8 * 365 and rest else f"{years}y"
