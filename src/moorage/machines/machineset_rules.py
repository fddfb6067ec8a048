"""What a MachineSet asks for, and whether it can be had: a set that contradicts itself is told so and left alone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from moorage import errors
from moorage.machines import machineset_choice, objects, selectors

Object = Mapping[str, Any]

#: Whoever bears it is left alone; the word is Cluster API's, and MachineHealthChecks have always known it.
PAUSE: Final = "cluster.x-k8s.io/paused"


class InvalidSet(errors.MoorageError):
    """The set contradicts itself: nothing can be done for it until it is corrected."""


def is_paused(thing: Object) -> bool:
    return PAUSE in objects.notes(thing)


def replicas(machine_set: Object) -> int:
    """How many machines are wanted; one, if nobody says."""
    found = objects.spec(machine_set).get("replicas")
    return 1 if found is None else int(found)


def checked(machine_set: Object) -> selectors.Selector:
    """The set's selector; `InvalidSet` if machines of its template would not be its own."""
    spec = objects.spec(machine_set)
    try:
        selector = selectors.read(spec.get("selector"))
    except selectors.InvalidSelector as wrong:
        raise InvalidSet(f"spec.selector: {wrong.message}") from wrong
    if selector.empty:
        raise InvalidSet("spec.selector: it is empty, and would choose every machine there is")
    if not selector.chooses(spec.get("template") or {}):
        raise InvalidSet("spec.selector does not match spec.template.metadata.labels")
    if (policy := spec.get("deletePolicy") or "") not in ("", *machineset_choice.POLICIES):
        raise InvalidSet(f"spec.deletePolicy: {policy!r} is not one of {', '.join(machineset_choice.POLICIES)}")
    if replicas(machine_set) < 0:
        raise InvalidSet("spec.replicas: it is less than 0")
    return selector
