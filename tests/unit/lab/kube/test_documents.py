"""What is no JSON, in the words in which a real server says so."""

from __future__ import annotations

import json
from typing import NoReturn

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from moorage.lab.kube import documents

_ENDED = "unexpected end of JSON input"


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("", _ENDED),
        ("{", _ENDED),
        ('{"a":', _ENDED),
        ('{"a":1', _ENDED),
        ('{"a"', _ENDED),
        ("[1,", _ENDED),
        ('{"a":"b', _ENDED),
        ('{"a":-', _ENDED),
        ('{"a" 1}', "invalid character '1' after object key"),
        ('{"a":1 "b"}', "invalid character '\"' after object key:value pair"),
        ('{"]":["}"],"a":1 2}', "invalid character '2' after object key:value pair"),
        ("[1 2]", "invalid character '2' after array element"),
        ('[{"a":"\\"["} 2]', "invalid character '2' after array element"),
        ('{"a":x}', "invalid character 'x' looking for beginning of value"),
        ("{a:1}", "invalid character 'a' looking for beginning of object key string"),
        ("{} x", "invalid character 'x' after top-level value"),
        ('{"a":tru', "invalid character ' ' in literal true (expecting 'e')"),
        ('{"a":trux}', "invalid character 'x' in literal true (expecting 'e')"),
        ("nul", "invalid character ' ' in literal null (expecting 'l')"),
        ('"\x01"', "invalid character '\\x01' in string literal"),
        ('{"a":1,}', "invalid character '}' looking for beginning of object key string"),
        ("[1,]", "invalid character ']' looking for beginning of value"),
        ('{"a":01}', "invalid character '1' after object key:value pair"),
        ('{"a":-}', "invalid character '}' in numeric literal"),
        ('{"a":"\\x"}', "invalid character 'x' in string escape code"),
        ('{"a":"\\u12x4"}', "invalid character 'x' in \\u hexadecimal character escape"),
        ('{"a":"\\u12', "invalid character ' ' in \\u hexadecimal character escape"),
        ('{"a":"\\', "invalid character ' ' in string escape code"),
        ('{"a":"\\\\', _ENDED),
        ('{"a":"\n"}', "invalid character '\\n' in string literal"),
        ('{\n"a": \u00e9}', "invalid character '\u00c3' looking for beginning of value"),
        ('{"a":-Infinity}', "invalid character 'I' in numeric literal"),
        ('{"a":NaN}', "invalid character 'N' looking for beginning of value"),
    ],
)
def test_what_is_no_json_is_told_in_go_s_words(body: str, words: str) -> None:
    for given_as in (body, body.encode()):
        with pytest.raises(ValueError) as refused:  # noqa: PT011 - the words are what is tested
            documents.from_json(given_as)
        assert str(refused.value) == words


def _no_number(name: str) -> NoReturn:
    """To Python NaN and Infinity are numbers; JSON knows none such."""
    raise ValueError(name)


@settings(deadline=None)
@given(st.text() | st.text('{}[]",:\\\\u0-9.eNaInfity '))
def test_whatever_is_sent_is_read_or_refused(body: str) -> None:
    try:
        expected = json.loads(body, parse_constant=_no_number)
    except ValueError:
        with pytest.raises(ValueError, match=r"^(unexpected end|invalid character)"):
            documents.from_json(body)
    else:
        assert documents.from_json(body) == expected


_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


@settings(deadline=None)
@given(_values, st.data())
def test_a_document_that_was_cut_off_is_never_taken_for_a_whole_one(value: object, data: st.DataObject) -> None:
    text = json.dumps([value])
    cut = data.draw(st.integers(0, len(text) - 1))

    with pytest.raises(ValueError, match=r"unexpected end|invalid character ' ' in"):
        documents.from_json(text[:cut])
