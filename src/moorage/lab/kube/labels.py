"""The selectors that objects carry in their specs, as controllers need them: held against labels alone.

Unlike a selector in a request, one that is absent here chooses nothing; and those of nodes may compare numbers.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def matches(selector: Mapping[str, Any] | None, labels: Mapping[str, str] | None) -> bool:
    """Whether a LabelSelector chooses these labels; no selector chooses nothing, an empty one everything."""
    if selector is None:
        return False
    labels = labels or {}
    wanted = selector.get("matchLabels") or {}
    if any(labels.get(key) != value for key, value in wanted.items()):
        return False
    return all(fits(requirement, labels) for requirement in selector.get("matchExpressions") or ())


def fits(requirement: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
    """Whether labels meet one requirement; Gt and Lt are those of node selectors."""
    key, operator, values = requirement.get("key", ""), requirement.get("operator"), requirement.get("values") or []
    if operator == "In":
        return key in labels and labels[key] in values
    if operator == "NotIn":
        return key not in labels or labels[key] not in values
    if operator == "Exists":
        return key in labels
    if operator == "DoesNotExist":
        return key not in labels
    if operator in ("Gt", "Lt"):
        return _compares(labels.get(key), operator, values)
    return False


def _compares(found: str | None, operator: str, values: list[str]) -> bool:
    try:
        left, right = int(found or ""), int(values[0])
    except (ValueError, IndexError):
        return False
    return left > right if operator == "Gt" else left < right
