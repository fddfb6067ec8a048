"""A toy cloud for the engine's tests: it allows two things of one name, so that a careless engine is caught.

Faults are ordered by call and name; every call is written down. `FileCloud` keeps its things in a file, so that it
survives the process that talks to it.
"""

from __future__ import annotations

import collections
import dataclasses
import os
import pathlib
import threading
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import ClassVar, TypeVar

from moorage.engine import context, errors, outputs, resource

T = TypeVar("T")
Fault = Callable[[], None]


def fails(error: BaseException) -> Fault:
    """A fault that raises."""

    def fault() -> None:
        raise error

    return fault


class Cloud:
    """Things in memory, by name. ``before`` and ``after`` faults are used up one per call, in order."""

    def __init__(self) -> None:
        self.things: dict[str, list[str]] = collections.defaultdict(list)
        self.calls: list[tuple[str, str]] = []
        self.before: dict[tuple[str, str], list[Fault]] = collections.defaultdict(list)
        self.after: dict[tuple[str, str], list[Fault]] = collections.defaultdict(list)
        self.unseen: collections.Counter[str] = collections.Counter()
        self.unready: collections.Counter[str] = collections.Counter()
        self.lingers: collections.Counter[str] = collections.Counter()
        self._buried: set[str] = set()
        self._turn = threading.RLock()

    def find(self, name: str) -> str | None:
        return self._call("find", name, lambda: self._find(name))

    def create(self, name: str) -> str:
        return self._call("create", name, lambda: self._add(name))

    def ready(self, name: str) -> bool:
        return self._call("ready", name, lambda: not self._use_up(self.unready, name))

    def delete(self, name: str, ident: str) -> None:
        self._call("delete", name, lambda: self._remove(name, ident))

    def inventory(self) -> dict[str, int]:
        """How many things of each name there are."""
        return {name: len(idents) for name, idents in sorted(self.things.items()) if idents}

    def made(self, call: str) -> list[str]:
        """The names a call was made for, in order."""
        return [name for done, name in self.calls if done == call]

    def _call(self, call: str, name: str, effect: Callable[[], T]) -> T:
        with self._turn:
            self.calls.append((call, name))
            before = self.before[call, name].pop(0) if self.before[call, name] else None
            after = self.after[call, name].pop(0) if self.after[call, name] else None
        if before:
            before()
        with self._turn:
            result = effect()
        if after:
            after()
        return result

    def _use_up(self, counter: collections.Counter[str], name: str) -> bool:
        if counter[name] > 0:
            counter[name] -= 1
            return True
        return False

    def _find(self, name: str) -> str | None:
        if not self.things[name]:
            # What was deleted may be listed a little longer.
            return "dying" if name in self._buried and self._use_up(self.lingers, name) else None
        return None if self._use_up(self.unseen, name) else self.things[name][0]

    def _add(self, name: str) -> str:
        ident = f"{name}-{uuid.uuid4().hex[:8]}"
        self.things[name].append(ident)
        return ident

    def _remove(self, name: str, ident: str) -> None:
        if ident not in self.things[name]:
            raise errors.NotFound(f"no {ident}")
        self.things[name].remove(ident)
        self._buried.add(name)


class FileCloud(Cloud):
    """A cloud that outlives its callers: a file of lines that are added and never changed.

    ``boundary`` is called before every call and after every change: the places where a process may die.
    """

    def __init__(self, path: pathlib.Path, boundary: Callable[[], None] = lambda: None) -> None:
        super().__init__()
        self._path = path
        self._boundary = boundary
        for line in path.read_text().splitlines() if path.exists() else ():
            sign, name, ident = line.split()
            (self.things[name].append if sign == "+" else self.things[name].remove)(ident)

    def _call(self, call: str, name: str, effect: Callable[[], T]) -> T:
        self._boundary()
        return super()._call(call, name, effect)

    def _add(self, name: str) -> str:
        ident = super()._add(name)
        self._write(f"+ {name} {ident}")
        return ident

    def _remove(self, name: str, ident: str) -> None:
        super()._remove(name, ident)
        self._write(f"- {name} {ident}")

    def _write(self, line: str) -> None:
        descriptor = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        os.write(descriptor, f"{line}\n".encode())
        os.close(descriptor)
        self._boundary()


@dataclasses.dataclass(frozen=True, kw_only=True)
class Thing(resource.Resource[Mapping[str, object]]):
    """A thing of the toy cloud; its output names its own id and those it was built on."""

    kind: ClassVar[str] = "thing"
    cloud: Cloud

    def lookup(self, inputs: outputs.Inputs, ctx: context.Context) -> Mapping[str, object] | None:
        ident = self.cloud.find(self.name)
        return None if ident is None else self._output(ident, inputs)

    def create(self, inputs: outputs.Inputs, ctx: context.Context) -> str | None:
        return self.cloud.create(self.name)

    def wait(self, inputs: outputs.Inputs, ctx: context.Context) -> Mapping[str, object]:
        ctx.poll(lambda: self.cloud.ready(self.name) or None, what=f"{self.name} to be ready", every=self.every)
        return super().wait(inputs, ctx)

    def delete(self, inputs: outputs.Inputs, output: Mapping[str, object], ctx: context.Context) -> None:
        self.cloud.delete(self.name, str(output["id"]))

    def _output(self, ident: str, inputs: outputs.Inputs) -> Mapping[str, object]:
        return {"id": ident, "on": [inputs[need]["id"] for need in self.needs]}


def things(cloud: Cloud, needs: Mapping[str, Sequence[str]], **settings: float) -> tuple[Thing, ...]:
    """One thing for each name."""
    return tuple(Thing(name=name, needs=tuple(wanted), cloud=cloud, **settings) for name, wanted in needs.items())


def harbour(cloud: Cloud) -> tuple[Thing, ...]:
    """Six resources in the shape of a small installation: a diamond, a chain and a loner."""
    return things(
        cloud,
        {
            "network": (),
            "image": (),
            "balancer": ("network",),
            "bootstrap": ("network", "image"),
            "master": ("bootstrap", "balancer"),
            "record": (),
        },
    )


def names(many: Iterable[Thing]) -> dict[str, int]:
    """The inventory that a finished flow leaves: one of each."""
    return {thing.name: 1 for thing in sorted(many, key=lambda thing: thing.name)}
