"""What a platform declares: one `Resource` for each thing that shall exist.

A resource knows how to find itself, how to be made, how to tell that it is ready, and how to be removed. The engine
decides when: it always looks up, then creates, then waits, then records, so a resource need not remember anything.
"""

from __future__ import annotations

import abc
import dataclasses
from typing import ClassVar, Generic, TypeVar

from moorage.engine import context, errors, outputs

Output = TypeVar("Output")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Resource(abc.ABC, Generic[Output]):
    """One thing on a platform; subclass it as a frozen dataclass, one class per kind of thing.

    ``name`` is part of the journal's format: unique in its flow, the same in every run, never reused for another
    thing. ``needs`` are the names of the resources whose outputs it takes; it starts when they are finished.
    The output (a mapping or a frozen dataclass of plain values) is journaled, so it holds ids and addresses and never
    a secret.
    """

    kind: ClassVar[str]

    name: str
    needs: tuple[str, ...] = ()
    #: Cloud seconds it usually takes; `plan` adds them up along the critical path.
    expected: float = 1.0
    #: Cloud seconds after which it is given up.
    timeout: float = 1800.0
    #: Cloud seconds a fresh thing may stay invisible to `lookup` on a platform that is only eventually consistent.
    settle: float = 0.0
    #: Cloud seconds between two looks while waiting for it to appear or to go.
    every: float = 5.0

    @abc.abstractmethod
    def lookup(self, inputs: outputs.Inputs, ctx: context.Context) -> Output | None:
        """Find the thing by its name and mark (or by ``ctx.created_id``); None (or `NotFound`) if it is not there.

        What is being deleted counts as there, so that no one builds on it and its removal is waited for.
        """

    @abc.abstractmethod
    def create(self, inputs: outputs.Inputs, ctx: context.Context) -> str | None:
        """Ask for the thing, once, without waiting for it; return what the platform calls it, if it says so."""

    def wait(self, inputs: outputs.Inputs, ctx: context.Context) -> Output:
        """Return the output once the thing is ready to be built upon; as it stands, when it can be looked up."""

        def there() -> Output | None:
            try:
                return self.lookup(inputs, ctx)
            except errors.NotFound:
                return None

        return ctx.poll(there, what=f"{self.describe} to appear", every=self.every)

    @abc.abstractmethod
    def delete(self, inputs: outputs.Inputs, output: Output, ctx: context.Context) -> None:
        """Ask for the removal of what `lookup` found; the engine waits until it is gone. `NotFound` is success."""

    @property
    def describe(self) -> str:
        """A person's words for it."""
        return f"{self.kind} {self.name}"
