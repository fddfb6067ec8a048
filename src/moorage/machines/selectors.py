"""Label selectors as objects carry them (``matchLabels``, ``matchExpressions``): what they choose, and how it is told.

A selector is read once into a `Selector`, which is then asked about many objects. Whether an empty one means everything
or nothing is for its owner to say: MachineSets and MachineHealthChecks differ in that.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, Final

from moorage import errors

Object = Mapping[str, Any]

_WITH_VALUES: Final = {"In": "in", "NotIn": "notin"}
_WITHOUT_VALUES: Final = ("Exists", "DoesNotExist")


class InvalidSelector(errors.MoorageError):
    """It cannot be read, so it chooses nothing."""


@dataclasses.dataclass(frozen=True)
class _Requirement:
    key: str
    operator: str
    values: tuple[str, ...] = ()

    def holds(self, labels: Mapping[str, str]) -> bool:
        match self.operator:
            case "Exists":
                return self.key in labels
            case "DoesNotExist":
                return self.key not in labels
            case "NotIn":
                return labels.get(self.key) not in self.values
        return labels.get(self.key) in self.values

    def __str__(self) -> str:
        match self.operator:
            case "Exists":
                return self.key
            case "DoesNotExist":
                return f"!{self.key}"
            case "Equals":
                return f"{self.key}={self.values[0]}"
        return f"{self.key} {_WITH_VALUES[self.operator]} ({','.join(sorted(self.values))})"


@dataclasses.dataclass(frozen=True)
class Selector:
    """All its requirements must hold; as a string it is what a list of the API is asked with."""

    requirements: tuple[_Requirement, ...]

    @property
    def empty(self) -> bool:
        return not self.requirements

    def matches(self, labels: Mapping[str, str] | None) -> bool:
        return all(each.holds(labels or {}) for each in self.requirements)

    def chooses(self, found: Object) -> bool:
        """Whether an object's labels match."""
        return self.matches((found.get("metadata") or {}).get("labels"))

    def __str__(self) -> str:
        return ",".join(map(str, self.requirements))


def read(selector: Object | None) -> Selector:
    """The selector of an object; `InvalidSelector` if the API's rules do not allow it."""
    selector = selector or {}
    found = [_Requirement(key, "Equals", (str(value),)) for key, value in (selector.get("matchLabels") or {}).items()]
    found += [_expression(each) for each in selector.get("matchExpressions") or ()]
    return Selector(tuple(sorted(found, key=lambda each: each.key)))


def _expression(found: Object) -> _Requirement:
    key, operator = str(found.get("key") or ""), str(found.get("operator") or "")
    values = tuple(map(str, found.get("values") or ()))
    if not key:
        raise InvalidSelector("an expression of the selector has no key")
    if operator in _WITH_VALUES:
        if not values:
            raise InvalidSelector(f"the selector's expression on {key} needs values: {operator}")
    elif operator not in _WITHOUT_VALUES:
        raise InvalidSelector(f"the selector's expression on {key} has an unknown operator: {operator or 'none'}")
    elif values:
        raise InvalidSelector(f"the selector's expression on {key} must have no values: {operator}")
    return _Requirement(key, operator, values)
