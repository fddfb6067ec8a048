"""Tables: what kubectl shows of objects."""

from __future__ import annotations

import datetime
import json
from typing import Any

import pytest

from moorage.lab.kube import jsonpath, kinds, store, tables

NOW = datetime.datetime(2026, 1, 1, 1, tzinfo=datetime.UTC)
AN_HOUR_AGO = "2026-01-01T00:00:00Z"


def entry(**content: Any) -> store.Entry:
    whole = {"metadata": {"name": "x", "resourceVersion": "7", "creationTimestamp": AN_HOUR_AGO}, **content}
    return store.Entry(whole, store.encoded(whole), 7)


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        (-5, "<invalid>"),
        (-1, "0s"),
        (0, "0s"),
        (119.9, "119s"),
        (120, "2m"),
        (125, "2m5s"),
        (599, "9m59s"),
        (600, "10m"),
        (3 * 3600 - 1, "179m"),
        (3 * 3600, "3h"),
        (3 * 3600 + 60, "3h1m"),
        (8 * 3600, "8h"),
        (48 * 3600 - 1, "47h"),
        (48 * 3600, "2d"),
        (8 * 86400 - 3600, "7d23h"),
        (8 * 86400, "8d"),
        (729 * 86400, "729d"),
        (730 * 86400, "2y"),
        (731 * 86400, "2y1d"),
        (8 * 365 * 86400, "8y"),
    ],
)
def test_ages_have_fewer_digits_the_longer_they_are(seconds: float, shown: str) -> None:
    assert tables.duration(seconds) == shown


CONTENT = {
    "spec": {"a": 1, "list": [{"n": "one"}, {"n": "two"}]},
    "status": {"conditions": [{"type": "Ready", "status": "True"}, {"type": "Live", "status": "False"}]},
    "metadata": {"annotations": {"example.com/a.b": "dotted"}},
}


@pytest.mark.parametrize(
    ("path", "found"),
    [
        (".spec.a", 1),
        ("{.spec.a}", 1),
        (".spec.list[1].n", "two"),
        (".spec.list[-1].n", "two"),
        (".spec.list[*].n", "one"),
        (".spec.list[7].n", None),
        ('.status.conditions[?(@.type=="Live")].status', "False"),
        (".status.conditions[?(@.type=='Gone')].status", None),
        (r".metadata.annotations.example\.com/a\.b", "dotted"),
        (".metadata.annotations['example.com/a.b']", "dotted"),
        (r".metadata.annotations['example\.com/a\.b']", "dotted"),
        (".spec.none.deeper", None),
        ("nonsense[", None),
    ],
)
def test_paths_find_what_columns_show(path: str, found: object) -> None:
    assert jsonpath.first(CONTENT, path) == found


KIND = kinds.Kind(
    "example.com",
    "v1",
    "Widget",
    "widgets",
    custom=True,
    columns=(
        kinds.Column("Size", ".spec.size", "integer"),
        kinds.Column("Note", ".spec.note", priority=1),
        kinds.Column("Age", ".metadata.creationTimestamp", "date"),
        kinds.Column("Up", value=lambda content: len(content["metadata"]["name"])),
    ),
)


def shown(include: str = tables.METADATA, *, columns: bool = True, **content: Any) -> dict[str, Any]:
    found = tables.table(KIND, [entry(**content)], {"resourceVersion": "9"}, NOW, include, columns=columns)
    document: dict[str, Any] = json.loads(found)
    return document


def test_a_row_has_a_cell_for_every_column_and_begins_with_the_name() -> None:
    table = shown(spec={"size": 3, "note": {"a": [1]}})

    assert [column["name"] for column in table["columnDefinitions"]] == ["Name", "Size", "Note", "Age", "Up"]
    assert [column["priority"] for column in table["columnDefinitions"]] == [0, 0, 1, 0, 0]
    assert table["rows"][0]["cells"] == ["x", 3, '{"a":[1]}', "60m", 1]
    assert table["metadata"] == {"resourceVersion": "9"}


def test_a_value_of_another_type_than_its_column_is_not_shown() -> None:
    assert shown(spec={"size": "three"})["rows"][0]["cells"][1:3] == [None, None]


@pytest.mark.parametrize(
    ("include", "kind"), [(tables.METADATA, "PartialObjectMetadata"), (tables.OBJECT, None), (tables.NONE, "absent")]
)
def test_as_much_of_the_object_comes_along_as_is_wanted(include: str, kind: str | None) -> None:
    row = shown(include, spec={"size": 3})["rows"][0]

    assert row.get("object", {"kind": "absent"}).get("kind") == kind
    assert ("spec" in row.get("object", {})) is (include == tables.OBJECT)


def test_later_tables_of_a_stream_do_not_repeat_their_columns() -> None:
    assert shown(columns=False)["columnDefinitions"] is None


def test_a_kind_without_columns_shows_name_and_birth() -> None:
    plain = kinds.Kind("example.com", "v1", "Plain", "plains")

    table = json.loads(tables.table(plain, [entry()], {}, NOW))

    assert table["rows"][0]["cells"] == ["x", "60m"]
