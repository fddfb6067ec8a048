"""Documents in YAML, read as Kubernetes reads them: as JSON in another spelling.

Keys are texts, and what looks like a date is a text too. JSON is YAML, and much quicker to read as what it is.
"""

from __future__ import annotations

import json
from typing import Any

import yaml

_TIMESTAMP = "tag:yaml.org,2002:timestamp"


class _Loader(yaml.SafeLoader):
    """Knows of no dates."""


_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag != _TIMESTAMP]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


def from_yaml(body: bytes | str) -> Any:
    """The value in a document; ValueError if it cannot be read."""
    try:
        return json.loads(body)
    except ValueError:
        pass
    try:
        return _plain(yaml.load(body, _Loader))  # noqa: S506 - a safe loader, with one resolver less
    except (yaml.YAMLError, UnicodeDecodeError) as wrong:
        raise ValueError(str(wrong)) from None


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {_key(key): _plain(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_plain(each) for each in value]
    if value is None or isinstance(value, str | int | float):
        return value
    raise ValueError(f"a {type(value).__name__} has no place in JSON")


def _key(key: Any) -> str:
    if isinstance(key, bool):
        return str(key).lower()
    if isinstance(key, str | int | float):
        return str(key)
    raise ValueError("a key is a text")
