"""Who keeps a Machine or a MachineSet: the machine-api, or the cluster-api, while which it rests here.

In clusters that can migrate between the two, ``spec.authoritativeAPI`` says what is wanted and ``status`` what is so.
A new object has only the wish: it is recorded before anything is done, and from then on the status decides. In all
other clusters nobody says anything, and the machine-api keeps everything.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from moorage.machines import conditions, objects

Object = Mapping[str, Any]

FIELD: Final = "authoritativeAPI"
HERE: Final = "MachineAPI"
ELSEWHERE: Final = ("ClusterAPI", "Migrating")


class Told(NamedTuple):
    """What the condition ``Paused`` says of it."""

    status: conditions.Status
    reason: str
    message: str
    severity: conditions.Severity


def of(thing: Object) -> str:
    """Who keeps it; empty where nobody can choose."""
    return str(objects.status(thing).get(FIELD) or objects.spec(thing).get(FIELD) or "")


def is_ours(thing: Object) -> bool:
    """Whether to act. A word that is not known yet is somebody else's."""
    return of(thing) in ("", HERE)


def recorded(thing: Object) -> dict[str, str]:
    """What its status is to say; empty where nobody can choose."""
    found = of(thing)
    return {FIELD: found} if found in (HERE, *ELSEWHERE) else {}


def told(thing: Object) -> Told | None:
    """How that is told; None where nobody can choose, or the word is not known."""
    found = of(thing)
    message = f"The AuthoritativeAPI status is set to '{found}'"
    if found == HERE:
        return Told("False", conditions.AUTHORITY_HERE, message, "Info")
    return Told("True", conditions.AUTHORITY_ELSEWHERE, message, "") if found in ELSEWHERE else None
