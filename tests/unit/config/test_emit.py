"""YAML that Go and Python read alike."""

from __future__ import annotations

import re

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from moorage.config import emit, source


@pytest.mark.parametrize("text", ["1e3", "y", "N", "0123", "on", "null", "~", "0o17", "1.5", "", "2024-01-01", "1:30"])
def test_text_that_some_reader_takes_for_something_else_is_quoted(text: str) -> None:
    assert re.fullmatch(r"a: (['\"]).*\1\n", emit.dump({"a": text}))


def test_long_texts_are_blocks() -> None:
    assert emit.dump({"a": "one\ntwo\n"}) == "a: |\n  one\n  two\n"


def test_the_same_list_twice_is_written_twice() -> None:
    shared = ["x"]

    assert emit.dump({"a": shared, "b": shared}) == "a:\n- x\nb:\n- x\n"


@given(st.text(st.characters(codec="utf-8", exclude_categories=("Cc", "Cs"))))
def test_any_text_is_read_back_by_both_readers(text: str) -> None:
    written = emit.dump({"a": text, "b": [text, f"{text}\n"]})

    assert yaml.safe_load(written) == {"a": text, "b": [text, f"{text}\n"]}
    assert source.load(written).data == {"a": text, "b": [text, f"{text}\n"]}
