"""Reading YAML: the usual accidents, each with its line, and nothing but findings whatever comes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moorage.config import source

BOMB = "a: &a [x,x,x,x,x,x,x,x,x,x]\n" + "".join(
    f"{chr(98 + i)}: &{chr(98 + i)} [{','.join(['*' + chr(97 + i)] * 10)}]\n" for i in range(8)
)
MERGE_BOMB = "a0: &a0 {}\n" + "".join(f"a{i}: &a{i} {{<<: [{','.join([f'*a{i - 1}'] * 10)}]}}\n" for i in range(1, 12))


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("", None, "is empty"),
        (" \n\n", None, "is empty"),
        ("# nothing\n", None, "nothing but comments"),
        ("a: 1\nb:\n\tc: 2\n", 3, "line 3 is indented with a tab: use spaces"),
        ("a: 1\nb: 'x\nc: 2\n", 2, "ends in the middle of what starts in line 2"),
        ("a: 1\nb: {c: 1,\n", 2, "ends in the middle of what starts in line 2"),
        ("a: [1, 2\nb: 3\n", 2, "is not YAML"),
        ("a: b: c\n", 1, "is not YAML"),
        ("a: *nobody\n", 1, "is not YAML"),
        ("- a\n", 1, "is not a mapping"),
        ("just words\n", 1, "is not a mapping"),
        ("a: 1\n---\nb: 2\n", 2, "second YAML document"),
        ("a: 1\nb: \x07\n", 2, "control character"),
        ("a: 1\nb: \0\n", 2, "NUL"),
        (b"a: 1\nb: \0\n", 2, "NUL"),
        (b"a: 1\nb: \xff\n", 2, "not UTF-8"),
        ("a: \ud800\n", 1, "not valid Unicode"),
        ("a: &a [*a]\n", 1, "contains itself"),
        ("[" * 5000, 1, "nested more than"),
        ("a: " + "x" * source.MAX_BYTES, None, "bytes long"),
        (BOMB, 1, "expands to more than"),
        (MERGE_BOMB, 1, "expands to more than"),
        ("a: 1\n" * (source.MAX_VALUES + 1), source.MAX_VALUES, "expands to more than"),
        ("a: 1\nb: {<<: 3}\n", 2, "merges"),
    ],
)
def test_text_that_cannot_be_used_says_why_and_where(text: str | bytes, line: int | None, words: str) -> None:
    document = source.load(text)

    assert document.data is None
    [fault] = document.faults
    assert words in fault.message
    assert fault.line == line


def test_lines_are_kept_for_every_field_and_item() -> None:
    document = source.load("a:\n  b:\n  - c: 1\n  - d: 2\ne: {f: 3}\n")

    assert document.data == {"a": {"b": [{"c": 1}, {"d": 2}]}, "e": {"f": 3}}
    assert document.lines == {
        ("a",): 1,
        ("a", "b"): 2,
        ("a", "b", 0): 3,
        ("a", "b", 0, "c"): 3,
        ("a", "b", 1): 4,
        ("a", "b", 1, "d"): 4,
        ("e",): 5,
        ("e", "f"): 5,
    }


def test_a_missing_field_has_the_line_of_its_nearest_parent() -> None:
    document = source.load("x: 1\na:\n  b: 1\n")

    assert document.line(("a", "missing", 3)) == 2
    assert document.line(("nothing",)) == 1


def test_byte_order_mark_and_windows_line_ends_are_accepted() -> None:
    document = source.load("\ufeffa: 1\r\nb:\r\n  c: two\r\n".encode())

    assert (document.data, document.faults) == ({"a": 1, "b": {"c": "two"}}, [])
    assert document.lines[("b", "c")] == 3


def test_a_key_given_twice_is_found_with_both_lines() -> None:
    document = source.load("a:\n  b: 1\n  c: 2\n  b: 3\n")

    [fault] = document.faults
    assert (fault.field, fault.message, fault.line) == ("a.b", "is given twice, in lines 2 and 4", 4)


@pytest.mark.parametrize("key", ["1", "on", "~", "2024-01-01", "? [a]\n"])
def test_a_key_that_is_not_text_is_found(key: str) -> None:
    document = source.load(f"good: 1\n{key}: 2\n")

    [fault] = document.faults
    assert (fault.line, fault.remedy) == (2, "put the key in quotes")


def test_merged_keys_give_way_to_own_ones_and_are_no_duplicates() -> None:
    document = source.load("a: &a {b: 1, c: 2}\nd:\n  <<: *a\n  b: 3\n")

    assert document.data == {"a": {"b": 1, "c": 2}, "d": {"b": 3, "c": 2}}
    assert document.faults == []


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ("0123", 83),
        ("on", True),
        ("No", False),
        ("1e3", 1000.0),
        ("'1e3'", "1e3"),
        ("52:54:00:12:34:56", "52:54:00:12:34:56"),
        ("1:30", "1:30"),
        ("~", None),
        ("2024-01-01", source.Unusual("date")),
        ("2024-99-99", source.Unusual("date")),
        ("!!int ''", source.Unusual("number")),
        ("!!bool maybe", source.Unusual("value tagged !!bool")),
        ("!secret x", source.Unusual("value tagged !secret")),
        ("3", 3),
    ],
)
def test_scalars_are_what_the_cluster_will_read(written: str, read: object) -> None:
    document = source.load(f"a: {written}\n")

    assert document.data == {"a": read}
    assert type(document.data["a"]) is type(read)


@given(st.lists(st.one_of(st.from_regex(r"[a-zA-Z]\w*", fullmatch=True), st.integers(0, 999)), min_size=1))
def test_a_path_and_its_location_are_the_same(parts: list[str | int]) -> None:
    location = ("root", *parts)

    assert source.location(source.path(location)) == location


@given(st.one_of(st.binary(), st.text()))
def test_no_text_raises(raw: str | bytes) -> None:
    document = source.load(raw)

    assert document.data is not None or document.faults


@given(st.text(alphabet="ab:-[]{}&*!|>'\"# \n\t?,%@0", max_size=60))
def test_no_text_of_yaml_punctuation_raises(raw: str) -> None:
    document = source.load(raw)

    assert document.data is not None or document.faults
