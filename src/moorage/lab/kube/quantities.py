"""Quantities such as 500m or 1.5Gi, in the one form in which a real server writes each of them."""

from __future__ import annotations

import decimal
import functools
import re

REFUSAL = "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"

_WRITTEN = re.compile(r"([+-]?(?:\d+\.?\d*|\.\d+))(|[KMGTPE]i|[numkMGTPE]|[eE][+-]?\d+)", re.ASCII)
_DECIMAL = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_SUFFIX = {exponent: suffix for suffix, exponent in _DECIMAL.items()}
_BINARY = ("", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei")


@functools.lru_cache(maxsize=4096)
def canonical(written: str) -> str:
    """The quantity as a server writes it; ValueError if it is none."""
    found = _WRITTEN.fullmatch(written)
    if found is None:
        raise ValueError(REFUSAL)
    number, suffix = decimal.Decimal(found[1]), found[2]
    if suffix in _BINARY[1:]:
        return _binary(number * 1024 ** _BINARY.index(suffix))
    if suffix in _DECIMAL:
        mantissa, exponent = _reduced(number.scaleb(_DECIMAL[suffix]))
        return f"{mantissa}{_SUFFIX[exponent]}" if exponent in _SUFFIX else f"{mantissa}e{exponent}"
    mantissa, exponent = _reduced(number.scaleb(int(suffix[1:])))
    return f"{mantissa}e{exponent}" if exponent else str(mantissa)


def _reduced(number: decimal.Decimal) -> tuple[int, int]:
    """A whole number and a power of ten that three divides; nothing is finer than a billionth."""
    scaled = number.scaleb(9).to_integral_value(rounding=decimal.ROUND_UP)
    mantissa, exponent = int(scaled), -9
    if not mantissa:
        return 0, 0
    while mantissa % 1000 == 0:
        mantissa, exponent = mantissa // 1000, exponent + 3
    return mantissa, exponent


def _binary(number: decimal.Decimal) -> str:
    if abs(number) < 1024:
        mantissa, exponent = _reduced(number)
        return f"{mantissa}{_SUFFIX[exponent]}"
    whole, power = int(number.to_integral_value(rounding=decimal.ROUND_UP)), 0
    while whole % 1024 == 0 and power < len(_BINARY) - 1:
        whole, power = whole // 1024, power + 1
    return f"{whole}{_BINARY[power]}"
