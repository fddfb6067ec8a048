"""What labels, annotations, finalizers and names may look like, in Kubernetes' own words."""

from __future__ import annotations

import re

_NAME_PART = re.compile(r"([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]")
_VALUE = re.compile(r"(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?")
_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_LETTER_FIRST = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")

_NAME_PART_WORDS = (
    "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric"
    " character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is"
    " '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"
)
_VALUE_WORDS = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and"
    " end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is"
    " '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"
)
_SUBDOMAIN_WORDS = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and"
    " end with an alphanumeric character (e.g. 'example.com', regex used for validation is"
    " '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
)
_LABEL_WORDS = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with"
    " an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is"
    " '[a-z0-9]([-a-z0-9]*[a-z0-9])?')"
)
_LETTER_FIRST_WORDS = (
    "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character,"
    " and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for validation is"
    " '[a-z]([-a-z0-9]*[a-z0-9])?')"
)
_FORMS = {
    "subdomain": (_SUBDOMAIN, 253, _SUBDOMAIN_WORDS),
    "label": (_LABEL, 63, _LABEL_WORDS),
    "letter first": (_LETTER_FIRST, 63, _LETTER_FIRST_WORDS),
}
_LONGEST_PART = 63


def name_wrongs(name: str, form: str) -> list[str]:
    """What is wrong with a name that should be a ``subdomain``, a ``label``, or a label with a ``letter first``."""
    pattern, longest, words = _FORMS[form]
    found = [f"must be no more than {longest} characters"] if len(name) > longest else []
    return found if pattern.fullmatch(name) else [*found, words]


def path_wrongs(name: str) -> list[str]:
    """What is wrong with a name that is only a segment of a path, such as system:node."""
    if name in (".", ".."):
        return [f"may not be '{name}'"]
    return [f"may not contain '{sign}'" for sign in "/%" if sign in name]


def key_wrongs(key: str) -> list[str]:
    """What is wrong with the key of a label or annotation: a name, perhaps after a domain and a slash."""
    prefix, slash, name = key.rpartition("/")
    if "/" in prefix:
        return [
            "a qualified name must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an"
            " alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is"
            " '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]') with an optional DNS subdomain prefix and '/'"
            " (e.g. 'example.com/MyName')"
        ]
    found = []
    if slash and not prefix:
        found.append("prefix part must be non-empty")
    elif slash:
        found += [f"prefix part {wrong}" for wrong in name_wrongs(prefix, "subdomain")]
    if not name:
        found.append("name part must be non-empty")
    elif len(name) > _LONGEST_PART:
        found.append(f"name part must be no more than {_LONGEST_PART} characters")
    if not _NAME_PART.fullmatch(name):
        found.append(_NAME_PART_WORDS)
    return found


def value_wrongs(value: str) -> list[str]:
    """What is wrong with the value of a label."""
    found = [f"must be no more than {_LONGEST_PART} characters"] if len(value) > _LONGEST_PART else []
    return found if _VALUE.fullmatch(value) else [*found, _VALUE_WORDS]
