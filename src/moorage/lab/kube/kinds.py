"""The kinds an API knows: which paths they are served under, what may be done to them, how they look in a table.

Built-in kinds are there from the start; those of CustomResourceDefinitions come and go. Objects of one group and plural
are stored once, whatever version they are asked for in.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from typing import Any

Key = tuple[str, str]
"""Under which objects are stored: group and plural."""

Schema = Mapping[str, Any]
"""An OpenAPI v3 schema with the x-kubernetes extensions, as in a CustomResourceDefinition."""

ALL_VERBS = ("create", "delete", "deletecollection", "get", "list", "patch", "update", "watch")


class Since(str):
    """A timestamp in a cell that shows how long ago it was."""


@dataclasses.dataclass(frozen=True)
class Column:
    """A column of `kubectl get`: where its value is (a JSONPath such as .spec.replicas), or what finds it."""

    name: str
    path: str = ""
    type: str = "string"
    format: str = ""
    description: str = ""
    # 0 is always shown, higher ones only with -o wide.
    priority: int = 0
    value: Callable[[Mapping[str, Any]], object] | None = None


@dataclasses.dataclass(frozen=True)
class ScalePaths:
    """Where the scale subresource finds its numbers."""

    replicas: str = ".spec.replicas"
    status: str = ".status.replicas"
    selector: str = ""


@dataclasses.dataclass(frozen=True)
class Kind:
    """One version of one kind. Subresources: status, scale, and built-in ones such as approval, eviction, token."""

    group: str
    version: str
    name: str
    plural: str
    namespaced: bool = True
    singular: str = ""
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    subresources: frozenset[str] = frozenset()
    verbs: tuple[str, ...] = ALL_VERBS
    schema: Schema | None = None
    columns: tuple[Column, ...] = ()
    scale: ScalePaths | None = None
    # Served from a CustomResourceDefinition: validated, defaulted and pruned by its schema alone.
    custom: bool = False
    # Asked, never stored (SelfSubjectAccessReview and its like): only create is served.
    virtual: bool = False
    preferred: bool = True
    deprecation: str = ""
    # Fields (as paths) that objects can be selected by, beside their name and namespace.
    selectable: tuple[str, ...] = ()

    @property
    def key(self) -> Key:
        return self.group, self.plural

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def list_name(self) -> str:
        return f"{self.name}List"


class Kinds:
    """The kinds served at this moment. ``generation`` grows with every change, so that caches know when to forget."""

    def __init__(self) -> None:
        self.generation = 0
        self._kinds: dict[tuple[str, str, str], Kind] = {}

    def add(self, kind: Kind) -> None:
        """Serve a kind, in place of the one that was served under the same group, version and plural."""
        self._kinds[kind.group, kind.version, kind.plural] = kind
        self.generation += 1

    def remove(self, group: str, plural: str) -> None:
        """Serve no version of this kind any more."""
        gone = [at for at in self._kinds if (at[0], at[2]) == (group, plural)]
        for at in gone:
            del self._kinds[at]
        self.generation += bool(gone)

    def find(self, group: str, version: str, plural: str) -> Kind | None:
        return self._kinds.get((group, version, plural))

    def named(self, api_version: str, name: str) -> Kind | None:
        """The kind that an object's apiVersion and kind mean."""
        group, _, version = api_version.rpartition("/")
        return next((k for k in self._kinds.values() if (k.group, k.version, k.name) == (group, version, name)), None)

    def stored(self, group: str, plural: str) -> Kind | None:
        """The version in which objects of this kind are stored and shown to controllers: the preferred one."""
        found = [kind for kind in self._kinds.values() if kind.key == (group, plural)]
        return next((kind for kind in found if kind.preferred), found[0] if found else None)

    def __iter__(self) -> Iterator[Kind]:
        return iter(list(self._kinds.values()))
