"""How CoreDNS lets each of its plugins be written: how often, with how many arguments, and with which lines.

What a plugin refuses before it looks at what it is asked to do is decided here, in the real words; what the plugins
that answer questions make of their lines is read in `corefile`.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Mapping

from moorage.lab.nodes import corefile_blocks as blocks

Wrong = blocks.Wrong
Stanza = blocks.Stanza

_UNITS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}
_SHORTEST_RELOAD = 2.0


def duration(text: str) -> float | None:
    """The seconds of a duration as Go writes them (1m30s), or None."""
    if text in ("0", "+0", "-0"):
        return 0.0
    parts = re.findall(r"(\d+\.?\d*|\.\d+)(ns|us|µs|ms|s|m|h)", text)
    if not parts or "".join(f"{number}{unit}" for number, unit in parts) != text.lstrip("+-"):
        return None
    return (-1 if text.startswith("-") else 1) * sum(float(number) * _UNITS[unit] for number, unit in parts)


@dataclasses.dataclass(frozen=True)
class _Form:
    """How a plugin may be written: how many arguments, which lines in its block, whether it may be there twice."""

    most: int = 0
    lines: tuple[str, ...] = ()
    once: bool = True
    #: What CoreDNS calls a line in the block that it does not know.
    unknown: Callable[[Stanza], Wrong] = lambda line: line.wrong(f"unknown property '{line.name}'")


def _field(line: Stanza) -> Wrong:
    return line.unexpected(line.name, f"Unknown field {line.name}")


_FORMS: Mapping[str, _Form] = {
    "errors": _Form(1, ("stacktrace", "consolidate"), unknown=_field),
    "log": _Form(999, ("class",), once=False),
    "health": _Form(1, ("lameduck",), once=False),
    "ready": _Form(1, ("monitor",)),
    "cache": _Form(
        999,
        ("success", "denial", "prefetch", "serve_stale", "servfail", "disable", "keepttl"),
        unknown=lambda line: line.count(),
    ),
    "reload": _Form(2, once=False),
    "loop": _Form(0),
    "bufsize": _Form(1, once=False),
    "bind": _Form(999, ("except",), once=False),
    "prometheus": _Form(1, once=False),
    "debug": _Form(0, once=False),
    "loadbalance": _Form(999, ("reload", "prefer"), once=False),
    "minimal": _Form(0, once=False),
    "hosts": _Form(999),
    "template": _Form(999, once=False),
    "forward": _Form(999, once=False),
}
_OWN_LINES = ("hosts", "template", "forward")


def look_at(name: str, stanzas: list[Stanza]) -> None:
    """Refuse what the plugin would refuse about how it is written."""
    form = _FORMS.get(name)
    if form is None:
        raise stanzas[0].wrong("the lab does not play this plugin")
    if form.once and len(stanzas) > 1:
        raise Wrong("this plugin can only be used once per Server Block")
    for stanza in stanzas:
        if len(stanza.args) > form.most:
            raise stanza.count()
        for line in () if name in _OWN_LINES else stanza.block:
            if line.name not in form.lines:
                raise form.unknown(line)
    if name in _CHECKS:
        for stanza in stanzas:
            _CHECKS[name](stanza)


def _check_errors(stanza: Stanza) -> None:
    if stanza.args and stanza.args[0] != "stdout":
        raise stanza.wrong(f"invalid log file: {stanza.args[0]}")


def _check_port(stanza: Stanza) -> None:
    if stanza.args and ":" not in stanza.args[0]:
        raise Wrong(f"address {stanza.args[0]}: missing port in address")
    for line in stanza.block:
        if line.name == "lameduck" and len(line.args) != 1:
            raise line.count()


def _check_reload(stanza: Stanza) -> None:
    for each in stanza.args:
        if duration(each) is None:
            raise Wrong(f'time: invalid duration "{each}"')
    if stanza.args and (duration(stanza.args[0]) or 0.0) < _SHORTEST_RELOAD:
        raise Wrong(f"interval value must be greater or equal to {_SHORTEST_RELOAD:g}s")


def _check_bufsize(stanza: Stanza) -> None:
    if stanza.args and not (stanza.args[0].isdigit() and 512 <= int(stanza.args[0]) <= 4096):
        raise Wrong(f"plugin/bufsize: {stanza.count()}")


_CHECKS: Mapping[str, Callable[[Stanza], None]] = {
    "errors": _check_errors,
    "health": _check_port,
    "ready": _check_port,
    "reload": _check_reload,
    "bufsize": _check_bufsize,
}
