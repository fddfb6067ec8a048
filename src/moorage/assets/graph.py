"""The asset graph, read from function signatures.

An asset is a plain function marked with `asset`: its parameters name the assets it is computed from, its return value
is the asset. `collect` gathers the marked functions of some modules and checks that every parameter is produced by
somebody; `check_types`, that it is of that type. Nothing runs here; `resolve` does that.
"""

from __future__ import annotations

import dataclasses
import functools
import graphlib
import typing
from collections.abc import Callable, Iterable, Mapping
from types import ModuleType
from typing import Any, TypeVar

F = TypeVar("F", bound=Callable[..., Any])


@dataclasses.dataclass(frozen=True)
class Asset:
    """One node of the graph. A node without ``make`` is an input: the caller brings its value."""

    name: str
    make: Callable[..., Any] | None
    needs: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    kept: type | None = None
    stale: Callable[..., str | None] | None = None
    summary: str = ""


def asset(
    *, files: tuple[str, ...] = (), kept: bool = False, stale: Callable[..., str | None] | None = None
) -> Callable[[F], F]:
    """Mark a function as an asset.

    ``files``: where it lives in the asset directory, as paths or patterns; the value is then bytes or `values.Files`,
    and what the user wrote there comes first. ``kept``: the value cannot be computed again (a key, an identifier, a
    moment in time), so the state holds it; ``stale`` may say why a kept value must be made anew.
    """

    def mark(function: F) -> F:
        function.__asset__ = {"files": files, "kept": kept, "stale": stale}  # type: ignore[attr-defined]
        return function

    return mark


@dataclasses.dataclass(frozen=True)
class Graph:
    """All assets by name, inputs included."""

    assets: Mapping[str, Asset]

    @functools.cached_property
    def order(self) -> tuple[str, ...]:
        """Every name, parents before children."""
        return tuple(graphlib.TopologicalSorter({a.name: a.needs for a in self.assets.values()}).static_order())

    def waiting_for(self, name: str) -> frozenset[str]:
        """The asset and everything that is computed from it, near or far."""
        found = {name}
        for candidate in self.order:
            if found.intersection(self.assets[candidate].needs):
                found.add(candidate)
        return frozenset(found)

    def ancestry(self, targets: Iterable[str]) -> frozenset[str]:
        """The targets and everything they are computed from."""
        seen: set[str] = set()
        todo = list(targets)
        while todo:
            name = todo.pop()
            if name not in seen:
                seen.add(name)
                todo.extend(self.assets[name].needs)
        return frozenset(seen)


def collect(modules: Iterable[ModuleType], inputs: Mapping[str, type]) -> Graph:
    """The graph of all assets in ``modules``, standing on ``inputs`` (name to type)."""
    assets = {name: Asset(name, None, summary=_summary(kind)) for name, kind in inputs.items()}
    for module in modules:
        for name, function in vars(module).items():
            mark = getattr(function, "__asset__", None)
            if mark is None or function.__module__ != module.__name__:
                continue
            if name in assets:
                raise TypeError(f"two assets are named {name}")
            assets[name] = Asset(
                name=name,
                make=function,
                needs=function.__code__.co_varnames[: function.__code__.co_argcount],
                files=mark["files"],
                kept=typing.get_type_hints(function)["return"] if mark["kept"] else None,
                stale=mark["stale"],
                summary=_summary(function),
            )
    for asset_ in assets.values():
        for need in asset_.needs:
            if need not in assets:
                raise TypeError(f"asset {asset_.name} needs {need}, which nothing produces")
    graph = Graph(assets)
    _ = graph.order  # a cycle is a programming error: raise it here, not half way through a run
    return graph


def check_types(assets: Graph, inputs: Mapping[str, type]) -> None:
    """Refuse a parameter whose type is not what is produced. For tests: resolving all hints takes a while."""
    produced: dict[str, object] = dict(inputs)
    wanted: list[tuple[str, str, object]] = []
    for node in assets.assets.values():
        if node.make is not None:
            hints = typing.get_type_hints(node.make)
            produced[node.name] = hints.pop("return")
            wanted.extend((node.name, need, kind) for need, kind in hints.items())
    for name, need, kind in wanted:
        if produced[need] != kind:
            raise TypeError(f"asset {name} takes {need} as {kind}, but it is {produced[need]}")


def _summary(documented: object) -> str:
    return (getattr(documented, "__doc__", None) or "").strip().partition("\n")[0]
