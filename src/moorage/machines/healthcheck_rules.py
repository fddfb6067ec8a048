"""Whether a machine is healthy, by what its MachineHealthCheck says; and how many may be unhealthy at once.

Nothing here calls anybody. A machine is unhealthy when it has failed, when its node is gone or never came, or when its
node has been in one of the conditions listed for longer than is allowed there. A machine that only *may* become so is
not healthy either, and it is told when to look again. What is neither (it is being deleted, its start is not timed)
counts as not healthy, and is left alone.
"""

from __future__ import annotations

import dataclasses
import datetime
import re
from collections.abc import Mapping
from typing import Any, Final

from moorage import errors
from moorage.machines import conditions, durations, objects, phases, selectors

Object = Mapping[str, Any]

#: Whoever bears it is nobody's to remediate. The word is Cluster API's, like the one that pauses a check.
SKIP: Final = "cluster.x-k8s.io/skip-remediation"
#: Somebody outside was asked to see to the machine, and has not finished.
EXTERNAL: Final = "host.metal3.io/external-remediation"

DEFAULT_STARTUP: Final = "10m"
_LIMIT: Final = re.compile(r"(-?[0-9]+)(%?)")


class InvalidCheck(errors.MoorageError):
    """The check cannot be read, so nothing is done by it."""


@dataclasses.dataclass(frozen=True)
class Ailment:
    """A condition of a node that is not to last longer than ``timeout`` seconds."""

    type: str
    status: str
    timeout: float


@dataclasses.dataclass(frozen=True)
class Rules:
    """A MachineHealthCheck, read. ``startup`` is in seconds; 0 means that a machine may take as long as it wants."""

    selector: selectors.Selector
    ailments: tuple[Ailment, ...]
    startup: float

    def covers(self, machine: Object) -> bool:
        """Whether the machine is the check's to look at; an empty selector takes all."""
        return self.selector.chooses(machine) and SKIP not in objects.notes(machine)


@dataclasses.dataclass(frozen=True)
class Healthy:
    """It has a node, and nothing is wrong with it."""


@dataclasses.dataclass(frozen=True)
class Unhealthy:
    """It is to be remediated."""

    why: str


@dataclasses.dataclass(frozen=True)
class Waiting:
    """It will be unhealthy in so many seconds if nothing changes; ``why`` is empty while it merely starts."""

    seconds: float
    why: str = ""


@dataclasses.dataclass(frozen=True)
class Neither:
    """It counts as not healthy, and is left alone."""


Verdict = Healthy | Unhealthy | Waiting | Neither


def read(check: Object) -> Rules:
    """The rules of a check; `InvalidCheck` tells which field cannot be read."""
    spec = objects.spec(check)
    try:
        selector = selectors.read(spec.get("selector"))
    except selectors.InvalidSelector as wrong:
        raise InvalidCheck(f"spec.selector: {wrong.message}") from wrong
    startup = spec.get("nodeStartupTimeout")
    return Rules(
        selector,
        tuple(
            Ailment(
                str(each.get("type") or ""),
                str(each.get("status") or ""),
                _seconds("spec.unhealthyConditions.timeout", each.get("timeout")),
            )
            for each in spec.get("unhealthyConditions") or ()
        ),
        _seconds("spec.nodeStartupTimeout", DEFAULT_STARTUP if startup is None else startup),
    )


def limit(check: Object, total: int) -> int:
    """How many of ``total`` machines may be unhealthy: a number, or a share, rounded down; all, if nothing is said."""
    found = objects.spec(check).get("maxUnhealthy")
    read_as = _LIMIT.fullmatch(str("100%" if found is None else found).strip())
    if read_as is None or isinstance(found, bool):
        raise InvalidCheck(f"spec.maxUnhealthy: {found!r} is neither a number nor a percentage")
    number = int(read_as[1])
    return max(0, number * total // 100 if read_as[2] else number)


def judge(machine: Object, node: Object | None, rules: Rules, now: datetime.datetime) -> Verdict:
    """How a machine is. ``node`` is the one that it names; None if there is no such node, or it names none."""
    if objects.is_deleted(machine):
        return Neither()
    if phases.is_failed(machine):
        return Unhealthy("the machine has failed")
    if not objects.node_name(machine):
        return _starting(machine, rules.startup, now)
    if node is None:
        return Unhealthy(f"its node {objects.node_name(machine)} does not exist")
    waits: list[Waiting] = []
    for ailment in rules.ailments:
        match _suffering(node, ailment, now):
            case Unhealthy() as found:
                return found
            case Waiting() as found:
                waits.append(found)
    if waits:
        return min(waits, key=lambda each: each.seconds)
    if EXTERNAL in objects.notes(machine):
        return Neither()
    return Healthy()


def _starting(machine: Object, startup: float, now: datetime.datetime) -> Verdict:
    if startup == 0:
        return Neither()
    since = conditions.moment(objects.status(machine).get("lastUpdated"))
    if since is None:
        # Nobody has begun with it yet.
        return Waiting(startup)
    gone = (now - since).total_seconds()
    if gone > startup:
        return Unhealthy(f"it has not become a node within {startup:g} s")
    return Waiting(startup - gone + 1.0)


def _suffering(node: Object, ailment: Ailment, now: datetime.datetime) -> Verdict:
    found = conditions.find(objects.conditions(node), ailment.type)
    if found is None or found.get("status") != ailment.status:
        return Healthy()
    why = f"its node {objects.name(node)} has been {ailment.type}={ailment.status} for more than {ailment.timeout:g} s"
    since = conditions.moment(found.get("lastTransitionTime"))
    if since is None:
        # Since when is not known, so it cannot be known to be too long.
        return Waiting(ailment.timeout + 1.0, why)
    gone = (now - since).total_seconds()
    if gone > ailment.timeout:
        return Unhealthy(why)
    # A second more, as the API's dates are cut to whole seconds.
    return Waiting(ailment.timeout - gone + 1.0, why)


def _seconds(field: str, found: object) -> float:
    try:
        return durations.seconds(str(found)) if found is not None else 0.0
    except durations.InvalidDuration as wrong:
        raise InvalidCheck(f"{field}: {wrong.message}") from wrong
