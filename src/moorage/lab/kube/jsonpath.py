"""The JSONPath of kubectl, as far as columns need it: fields, places in lists, whole lists, filters by equality."""

from __future__ import annotations

import dataclasses
import functools
import re
from collections.abc import Mapping
from typing import Any

_STEP = re.compile(
    r"""
    \.(?P<field>(?:[^.\[\]\\]|\\.)+)                                   # .spec, .foo\.bar/baz
    | \[(?P<place>-?\d+)\]                                             # [0]
    | \[\*\]                                                           # [*]
    | \[(?P<quote>['"])(?P<quoted>.*?)(?P=quote)\]                     # ['foo\.bar']
    | \[\?\(\s*@(?P<path>[^=!<>\s]+)\s*==\s*(?P<value>[^)]*?)\s*\)\]   # [?(@.type=="Ready")]
    """,
    re.VERBOSE,
)


@dataclasses.dataclass(frozen=True)
class _Step:
    field: str | None = None
    place: int | None = None
    path: str | None = None
    value: str = ""


def first(content: Any, path: str) -> Any:
    """The first value at a path, None if there is none."""
    found = [content]
    for step in _steps(path):
        found = [value for each in found for value in _taken(each, step)]
        if not found:
            return None
    return found[0]


@functools.lru_cache(maxsize=4096)
def _steps(path: str) -> tuple[_Step, ...]:
    path = path.strip().removeprefix("{").removesuffix("}").removeprefix("$")
    steps, place = [], 0
    while place < len(path):
        found = _STEP.match(path, place)
        if found is None:
            return (_Step(field="\0"),)
        place = found.end()
        steps.append(_step(found))
    return tuple(steps)


def _step(found: re.Match[str]) -> _Step:
    if found["field"] is not None:
        return _Step(field=re.sub(r"\\(.)", r"\1", found["field"]))
    if found["quoted"] is not None:
        return _Step(field=re.sub(r"\\(.)", r"\1", found["quoted"]))
    if found["place"] is not None:
        return _Step(place=int(found["place"]))
    if found["path"] is not None:
        return _Step(path=found["path"], value=found["value"].strip("'\""))
    return _Step()


def _taken(content: Any, step: _Step) -> list[Any]:
    if step.field is not None:
        return [content[step.field]] if isinstance(content, Mapping) and step.field in content else []
    if not isinstance(content, list):
        return list(content.values()) if isinstance(content, Mapping) and step == _Step() else []
    if step.place is not None:
        return content[step.place :][:1] if -len(content) <= step.place < len(content) else []
    if step.path is not None:
        return [each for each in content if _text(first(each, step.path)) == step.value]
    return list(content)


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
