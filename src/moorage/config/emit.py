"""YAML that every reader understands alike.

Its readers are people and Go programs, whose YAML takes some words for numbers or booleans that Python's does not
(`1e3`, `y`); those are quoted. The same data gives the same bytes everywhere: with or without libyaml, today and on
the next run. Multi-line texts such as keys and certificates become blocks, so that a person can read and replace them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import yaml

_FASTEST: Any = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
_NEVER_FOLD = 1_000_000
_NOT_A_STRING_IN_GO = re.compile(
    r"[yYnN]|[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?"
    r"|[-+]?[0-9._]*[0-9][0-9._]*[eE][-+]?[0-9]+|[-+]?0o?[0-9_]+|[-+]?0[xXbB]\w+"
)


def _write_text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    style = "|" if "\n" in text else "'" if _NOT_A_STRING_IN_GO.fullmatch(text) else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


class Dumper(_FASTEST):  # type: ignore[misc]
    """Block style, multi-line text as it is, and no anchors: a value that occurs twice is written twice."""

    def ignore_aliases(self, data: object) -> bool:
        return True


Dumper.add_representer(str, _write_text)


def dump(data: Mapping[str, Any], dumper: Any = Dumper) -> str:
    """The data as YAML, its keys in the order given."""
    written: str = yaml.dump(
        data, Dumper=dumper, sort_keys=False, default_flow_style=False, allow_unicode=True, width=_NEVER_FOLD
    )
    return written
