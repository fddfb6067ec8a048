"""A platform that is nothing but a list in memory, and a cluster to put there: for tests of the story around them."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import ClassVar

from moorage.engine import clock as clocks
from moorage.engine import context, errors, outputs, resource, secret
from moorage.platforms import contract


@dataclasses.dataclass(frozen=True, kw_only=True)
class Berth(resource.Resource[dict[str, str]]):
    """A resource that is only planned, never made."""

    kind: ClassVar[str] = "berth"

    def lookup(self, inputs: outputs.Inputs, ctx: context.Context) -> dict[str, str] | None:
        raise AssertionError("a plan calls nobody")

    def create(self, inputs: outputs.Inputs, ctx: context.Context) -> str | None:
        raise AssertionError("a plan calls nobody")

    def delete(self, inputs: outputs.Inputs, output: dict[str, str], ctx: context.Context) -> None:
        raise AssertionError("a plan calls nobody")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Crane(Berth):
    kind: ClassVar[str] = "crane"


class Quay:
    """Things by name and stage. ``refuse`` are faults by name, one per removal; ``lingers`` looks after removal."""

    SETTLE = 30.0

    def __init__(self, **stages: int) -> None:
        self.things = dict(stages)
        self.refuse: dict[str, list[Exception]] = {}
        self.lingers: dict[str, int] = {}
        self.hidden = 0
        self.ghosts: dict[str, int] = {}
        self.removed: list[str] = []
        #: What hangs on a thing and stays, by the thing's name.
        self.holds: dict[str, list[str]] = {}
        self.looks = 0

    def discover(
        self, metadata: contract.Metadata, scope: contract.Scope, around: contract.Surroundings
    ) -> Sequence[contract.Remnant]:
        self.looks += 1
        if self.looks <= self.hidden:
            return []
        return [self._remnant(name, stage) for name, stage in {**self.things, **self.ghosts}.items()]

    def secrets(self, metadata: contract.Metadata, around: contract.Surroundings) -> Sequence[secret.Secret]:
        return ()

    def _remnant(self, name: str, stage: int) -> contract.Remnant:
        held = self.holds.get(name, [])
        return contract.Remnant("thing", name, stage, lambda: self._remove(name), lambda: self._present(name), held)

    def _remove(self, name: str) -> None:
        if name not in self.things:
            raise errors.NotFound(f"no {name}")
        if self.refuse.get(name):
            raise self.refuse[name].pop(0)
        self.removed.append(name)
        if not self.lingers.get(name):
            del self.things[name]

    def _present(self, name: str) -> bool:
        if name in self.things and name in self.removed:
            self.lingers[name] -= 1
            if self.lingers[name] <= 0:
                del self.things[name]
        return name in self.things


def around(clock: clocks.Clock | None = None) -> contract.Surroundings:
    return contract.Surroundings({}, clock or clocks.ManualClock(), lambda _line: None)
