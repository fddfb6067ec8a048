"""How a rule says which fields it needs, so that it can speak even when others are broken.

A file with one malformed field should still have everything else checked. So each rule names the fields it reads, and
`applicable` drops only those rules whose fields did not survive parsing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeVar

from moorage.config import findings, model, stanza

Rule = Callable[[model.InstallConfig, stanza.Stanza], Iterable[findings.Finding]]
Marked = TypeVar("Marked", bound=Callable[..., Iterable[findings.Finding]])


def reads(*fields: str) -> Callable[[Marked], Marked]:
    """Marks a rule with the fields it reads (``networking.serviceNetwork``), whole lists, no indices."""

    def mark(function: Marked) -> Marked:
        function.reads = fields  # type: ignore[attr-defined]
        return function

    return mark


def applies(rule: Callable[..., Iterable[findings.Finding]], broken: Sequence[str]) -> bool:
    """Whether all that the rule reads is sound; one that does not say what it reads needs the whole file."""
    fields: tuple[str, ...] | None = getattr(rule, "reads", None)
    if fields is None:
        return not broken
    return not any(_touch(field, bad) for field in fields for bad in broken)


def applicable(rules: Iterable[Rule], broken: Sequence[str]) -> Iterator[Rule]:
    """The rules whose fields are sound."""
    return (rule for rule in rules if applies(rule, broken))


def _touch(one: str, other: str) -> bool:
    first, second = one.split("."), other.split(".")
    length = min(len(first), len(second))
    return first[:length] == second[:length]
