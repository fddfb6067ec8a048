"""Lengths of time as Kubernetes' objects write them, which is Go's way: ``90s``, ``1h30m``, ``1.5h``, ``0``."""

from __future__ import annotations

import re
from typing import Final

from moorage import errors

_UNITS: Final = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "μs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}
_PART: Final = re.compile(r"([0-9]+\.?[0-9]*|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h)")
_WHOLE: Final = re.compile(rf"([+-]?)((?:{_PART.pattern})+|0)")


class InvalidDuration(errors.MoorageError):
    """It is not a length of time."""


def seconds(text: str) -> float:
    """The duration in seconds."""
    found = _WHOLE.fullmatch(text)
    if found is None:
        raise InvalidDuration(f"{text!r} is not a duration such as 300s, 5m or 1h30m")
    length = sum(float(number) * _UNITS[unit] for number, unit in _PART.findall(found[2]))
    return -length if found[1] == "-" else length
