"""Spans of time in a person's words, the same on the screen, in the log and on the timeline."""

from __future__ import annotations


def words(seconds: float) -> str:
    """Two units at most: what the third one would say is over before it is read."""
    whole = round(max(seconds, 0.0))
    if seconds < 9.95:
        return f"{max(seconds, 0.0):.1f} s".replace(".0 s", " s")
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return _two(whole // 60, "min", whole % 60, "s")
    minutes = round(whole / 60)
    if minutes < 48 * 60:
        return _two(minutes // 60, "h", minutes % 60, "min")
    hours = round(whole / 3600)
    return _two(hours // 24, "d", hours % 24, "h")


def _two(large: int, unit: str, small: int, part: str) -> str:
    return f"{large} {unit} {small} {part}" if small else f"{large} {unit}"
