"""Numbers that may be given as a share: 3, or "25%" of what there is."""

from __future__ import annotations


def of(value: int | str | None, total: int, *, up: bool) -> int:
    """What ``value`` means of ``total``; shares are rounded ``up`` or down. Nothing, and what cannot be read, is 0."""
    if isinstance(value, int):
        return value
    text = (value or "").strip()
    if text.endswith("%") and text[:-1].isdigit():
        hundredfold = int(text[:-1]) * total
        return -(-hundredfold // 100) if up else hundredfold // 100
    return 0
