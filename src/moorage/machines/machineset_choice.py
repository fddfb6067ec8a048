"""Which machines a set gives up when it has too many.

Every policy gives each machine a priority from 0 to 100, by the formulas that MachineSets have always had, and the
highest go. Where they are equal the choice still does not depend on chance or on the order of a list: whoever looks
at the same machines, now or after a restart, chooses the same ones.
"""

from __future__ import annotations

import datetime
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from moorage import errors
from moorage.machines import conditions, objects, phases

Object = Mapping[str, Any]

#: Somebody (the cluster autoscaler, as a rule) wants this very machine to go; the second is the older spelling.
MARKS: Final = ("machine.openshift.io/delete-machine", "machine.openshift.io/cluster-api-delete-machine")
POLICIES: Final = ("Random", "Newest", "Oldest")

MUST: Final = 100.0
BETTER: Final = 50.0
PREFER: Final = 40.0
COULD: Final = 20.0
MUST_NOT: Final = 0.0

_HUNDRED_DAYS: Final = 100 * 24 * 3600.0


class UnknownPolicy(errors.MoorageError):
    """The set asks for a policy that there is not."""


def chosen(
    machines: Sequence[Object],
    count: int,
    policy: str,
    now: datetime.datetime,
    is_ready: Callable[[Object], bool] = lambda machine: True,
) -> list[Object]:
    """The ``count`` machines to delete, the first to go first.

    ``is_ready`` tells whether a machine's node is: of machines that a policy holds equal, the useless one goes.
    """
    if policy not in ("", *POLICIES):
        raise UnknownPolicy(f"there is no delete policy {policy!r}", remedy=f"use one of {', '.join(POLICIES)}")

    def place(machine: Object) -> tuple[float, bool, bool, float, bool, str]:
        born = _created(machine)
        # Beyond some ten years the formula saturates, and ages are compared themselves.
        age = (now - born).total_seconds() if born else 0.0
        aging = {"Newest": age, "Oldest": -age}.get(policy, 0.0)
        return (
            -priority(machine, policy, now),
            not is_marked(machine),
            not has_failed(machine),
            aging,
            is_ready(machine),
            objects.name(machine),
        )

    return sorted(machines, key=place)[: max(count, 0)]


def priority(machine: Object, policy: str, now: datetime.datetime) -> float:
    """How readily a machine is given up, from 0 to 100."""
    if objects.is_deleted(machine):
        return MUST
    if is_marked(machine) or has_failed(machine):
        return MUST if policy in ("Newest", "Oldest") else BETTER
    if policy == "Oldest":
        return _by_age(machine, now)
    if policy == "Newest":
        return MUST - _by_age(machine, now)
    # No node yet, so nothing runs there that would be missed.
    return COULD if objects.node_name(machine) else PREFER


def is_marked(machine: Object) -> bool:
    return any(objects.notes(machine).get(mark) for mark in MARKS)


def has_failed(machine: Object) -> bool:
    return objects.failure(machine) is not None or phases.is_failed(machine)


def _by_age(machine: Object, now: datetime.datetime) -> float:
    born = _created(machine)
    if born is None or born > now:
        return MUST_NOT
    return BETTER * (1.0 - math.exp(-(now - born).total_seconds() / _HUNDRED_DAYS))


def _created(machine: Object) -> datetime.datetime | None:
    return conditions.moment(objects.metadata(machine).get("creationTimestamp"))
