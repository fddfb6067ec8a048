"""Walks the models: which section a path leads to, and what its fields are called in YAML.

Both the loader (nearest match for a misspelt field) and `explain` need this; it reads pydantic's own field table, so a
new field is known everywhere as soon as it is in the model.
"""

from __future__ import annotations

import types
import typing
from collections.abc import Sequence
from typing import Any

from pydantic import fields

from moorage.config import model


def field_named(section: type[model.Section], yaml_name: str) -> fields.FieldInfo | None:
    """The field written ``yaml_name`` in YAML."""
    for name, field in section.model_fields.items():
        if (field.alias or name) == yaml_name:
            return field
    return None


def yaml_names(section: type[model.Section]) -> list[str]:
    """The fields of a section as they are written, in the model's order."""
    return [field.alias or name for name, field in section.model_fields.items()]


def inner(annotation: Any) -> Any:
    """The type without ``Annotated`` and ``| None``."""
    origin = typing.get_origin(annotation)
    if origin is typing.Annotated:
        return inner(typing.get_args(annotation)[0])
    if origin in (typing.Union, types.UnionType):
        present = [arg for arg in typing.get_args(annotation) if arg is not type(None)]
        return inner(present[0]) if len(present) == 1 else annotation
    return annotation


def section_of(annotation: Any) -> type[model.Section] | None:
    """The section a field holds, alone or as the items of a list."""
    annotation = inner(annotation)
    if typing.get_origin(annotation) in (tuple, list):
        return section_of(typing.get_args(annotation)[0])
    if isinstance(annotation, type) and issubclass(annotation, model.Section):
        return annotation
    return None


def section_at(root: type[model.Section], location: Sequence[str | int]) -> type[model.Section] | None:
    """The section that ``location`` (field names and indices) leads to."""
    section: type[model.Section] | None = root
    for part in location:
        if isinstance(part, int):
            continue
        field = field_named(section, part) if section is not None else None
        section = section_of(field.annotation) if field is not None else None
    return section


def choices(annotation: Any) -> tuple[str, ...]:
    """The values an enumeration allows; empty for anything else."""
    annotation = inner(annotation)
    if typing.get_origin(annotation) is typing.Literal:
        return tuple(str(value) for value in typing.get_args(annotation))
    return ()


def type_name(annotation: Any) -> str:
    """The type in a reader's words."""
    annotation = inner(annotation)
    origin = typing.get_origin(annotation)
    if choices(annotation):
        return "one of " + ", ".join(value or '""' for value in choices(annotation))
    if origin in (tuple, list):
        return f"list of {type_name(typing.get_args(annotation)[0])}"
    if origin is dict:
        return "mapping of text to text" if typing.get_args(annotation) == (str, str) else "mapping"
    if section_of(annotation) is not None:
        return "mapping"
    return _PLAIN.get(getattr(annotation, "__name__", ""), "text")


_PLAIN = {
    "str": "text",
    "int": "whole number",
    "bool": "true or false",
    "float": "number",
    "SecretStr": "text (secret)",
}
