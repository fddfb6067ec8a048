"""How a collection was before its last change: what a reader sees who is answered from a copy that lags behind."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


class Past:
    """Remembers one change. Things are documents by name; None stands for one that is not there."""

    def __init__(self) -> None:
        self._before: dict[str, Any] = {}

    def note(self, before: Mapping[str, Any], after: Mapping[str, Any]) -> None:
        """A change came about; what makes no difference is none."""
        if before != after:
            self._before = {**dict.fromkeys(after), **before}

    def over(self, now: Mapping[str, Any]) -> dict[str, Any]:
        """The collection as it was."""
        return {name: thing for name, thing in {**now, **self._before}.items() if thing is not None}

    def forget(self) -> None:
        self._before = {}
