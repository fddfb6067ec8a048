"""YAML that every reader understands alike.

PyYAML writes `1e3` and `y` without quotes, and Go then reads a number and a boolean; strings of that kind are quoted
here. Long texts such as keys and certificates become blocks, so that a person can read and replace them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import yaml

_AMBIGUOUS = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?|[yYnN]|0o[0-7]+")


class _Dumper(yaml.SafeDumper):
    def ignore_aliases(self, data: Any) -> bool:
        return True

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:
        # Lists below a key are indented like any other value.
        super().increase_indent(flow, False)


def _text(dumper: yaml.SafeDumper, value: str) -> yaml.ScalarNode:
    style = None
    if "\n" in value and not re.search(r"[ \t]\n|[^\n]\n\n+\Z|\A\s|\t", value):
        style = "|"
    elif _AMBIGUOUS.fullmatch(value):
        style = "'"
    return dumper.represent_scalar("tag:yaml.org,2002:str", value, style=style)


_Dumper.add_representer(str, _text)


def dump(data: Mapping[str, Any]) -> str:
    """The data as YAML, in its own order."""
    written: str = yaml.dump(dict(data), Dumper=_Dumper, sort_keys=False, width=10_000, allow_unicode=True)
    return written
