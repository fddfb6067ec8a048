"""The makers of columns: a heading, and a path or a function in `cells` that fills what stands below it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from moorage.lab.kube import cells, kinds

Object = Mapping[str, Any]
Columns = tuple[kinds.Column, ...]

NAME = kinds.Column("Name", ".metadata.name", format="name")
AGE = kinds.Column("Age", ".metadata.creationTimestamp", "date")
"""As custom kinds have it."""


def at(path: str, default: Any = "") -> Callable[[Object], object]:
    """The value at a dotted path."""
    return lambda content: cells.at(content, path, default)


def column(
    name: str, value: Callable[[Object], object] | str, type_: str = "string", default: Any = ""
) -> kinds.Column:
    if isinstance(value, str):
        value = at(value, default)
    return kinds.Column(name, type=type_, value=value)


def number(name: str, path: str, type_: str = "integer") -> kinds.Column:
    """A number, 0 if it is absent."""
    return column(name, path, type_, 0)


def wide(name: str, value: Callable[[Object], object] | str, default: Any = "") -> kinds.Column:
    """A column that is shown with -o wide alone."""
    made = column(name, value, default=default)
    return kinds.Column(name, priority=1, value=made.value)


def count(name: str, path: str, type_: str = "string") -> kinds.Column:
    """How many there are."""
    return column(name, lambda content: len(cells.at(content, path, ())), type_)


CREATED = kinds.Column("Created At", type="date", value=at("metadata.creationTimestamp"))
AGED = column("Age", lambda content: cells.since(content, "metadata.creationTimestamp"))


def containers(path: str) -> Columns:
    """The names and images of the containers at a path."""
    return (
        wide("Containers", lambda content: cells.names_of(cells.at(content, path))),
        wide("Images", lambda content: cells.images_of(cells.at(content, path))),
    )


TEMPLATE = containers("spec.template.spec.containers")
SELECTOR = wide("Selector", lambda content: cells.selector(cells.at(content, "spec.selector")))
