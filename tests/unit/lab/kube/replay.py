"""The recorded cases, ready to be replayed: every step with what the real server had before and answered after it."""

from __future__ import annotations

import dataclasses
import functools
import json
import pathlib
from typing import Any

from moorage.lab.kube import builtin_kinds, kinds, managed
from tests.unit.lab.kube import patch_cases, patch_cases_apply, patch_cases_managed, patch_cases_plain

KEPT = pathlib.Path(__file__).parent / "data" / "patch_cases.json"


def all_cases() -> tuple[patch_cases.Case, ...]:
    return (
        *patch_cases_plain.JSON_CASES,
        *patch_cases_plain.MERGE_CASES,
        *patch_cases_plain.STRATEGIC_CASES,
        *patch_cases_managed.UPDATE_CASES,
        *patch_cases_apply.APPLY_CASES,
    )


@dataclasses.dataclass(frozen=True)
class Moment:
    """A step of a case: ``before`` is the object as it was (None: there was none), ``after`` as it became."""

    case: patch_cases.Case
    number: int
    step: patch_cases.Step
    before: dict[str, Any] | None
    after: dict[str, Any] | None
    code: int
    status: dict[str, Any]
    time: str

    @property
    def sent(self) -> Any:
        return patch_cases.sent(self.case, self.step, self.before)

    @property
    def kind(self) -> kinds.Kind:
        return kind(self.case.kind)

    @property
    def reset(self) -> managed.Paths:
        return managed.reset_fields(self.kind, self.step.subresource)

    def __str__(self) -> str:
        return f"{self.case.name}-{self.number}"


@functools.cache
def kind(name: str) -> kinds.Kind:
    """The kind of a case: a built-in one, or that of the widgets' definition."""
    if name != "Widget":
        return next(each for each in builtin_kinds.kinds() if each.name == name)
    spec = patch_cases.WIDGETS["spec"]
    version = spec["versions"][0]
    return kinds.Kind(
        group=spec["group"],
        version=version["name"],
        name=name,
        plural="widgets",
        subresources=frozenset({"status", "scale"}),
        schema=version["schema"]["openAPIV3Schema"],
        custom=True,
    )


@functools.cache
def moments() -> tuple[Moment, ...]:
    """All steps of all cases."""
    kept = json.loads(KEPT.read_text(encoding="utf-8"))
    found = []
    for case in all_cases():
        before = None
        for number, (step, answer) in enumerate(zip(case.steps, kept[case.name], strict=True)):
            after = answer.get("object")
            status, code, time = answer.get("status", {}), answer["code"], answer["time"]
            found.append(Moment(case, number, step, before, after, code, status, time))
            before = after or before
    return tuple(found)


def plain(content: Any) -> Any:
    """An object without its managed fields."""
    meta = {key: value for key, value in content["metadata"].items() if key != "managedFields"}
    return {**content, "metadata": meta}


def books(content: Any) -> list[Any]:
    """An object's managed fields."""
    return content["metadata"].get("managedFields", [])


def covers(real: Any, ours: Any) -> bool:
    """Whether the real object has all that ours has; what a server fills in may be more. Empty is as good as absent."""
    if isinstance(ours, dict) and isinstance(real, dict):
        return all(covers(real.get(key), value) for key, value in ours.items())
    if isinstance(ours, list) and isinstance(real, list):
        return len(ours) == len(real) and all(map(covers, real, ours))
    return bool(real == ours or (not ours and real is None and not isinstance(ours, bool | int | float)))
