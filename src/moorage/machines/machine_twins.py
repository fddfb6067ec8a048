"""Two Machines that name one instance: it is the older one's, and the other has none.

That is what comes of a Machine that was copied with its ``spec.providerID``. Whoever took the copy's word for it would
remove an instance that is at work when somebody tidies the copy away. The cache tells whether there may be another; it
is believed only if the API says the same, as it decides what is removed and what is left behind.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from moorage.machines import nodelink, objects
from moorage.machines.runtime import client as clients
from moorage.machines.runtime import errors, informer, kinds

Object = Mapping[str, Any]


def told(machine: Object, elder: Object) -> str:
    """Why the machine has no instance, and what to do."""
    return (
        f"spec.providerID {objects.provider_id(machine)} is the instance of Machine {objects.name(elder)}, which is "
        "older; delete this Machine (that instance stays), and make it anew without spec.providerID"
    )


class Twins:
    """Tells whose an instance is. ``machines`` must have been indexed by `nodelink.index`."""

    def __init__(self, client: clients.Client, machines: informer.Informer) -> None:
        self._client = client
        self._machines = machines

    def elder(self, machine: Object, *, surely: bool = False) -> Object | None:
        """The machine whose instance it is that this one names; None if it is its own.

        ``surely`` is for who is about to remove it: unless the instance was seen to be this machine's, the cache is not
        believed that there is no other either.
        """
        for each in nodelink.of_instance(objects.provider_id(machine), self._machines):
            if _is_elder(each, machine) and (found := self._now(each)) and _is_elder(found, machine):
                return found
        if not surely or not objects.provider_id(machine) or _was_seen(machine):
            return None
        listed, _ = self._client.list(kinds.MACHINE, objects.namespace(machine))
        return next((each for each in listed if _is_elder(each, machine)), None)

    def _now(self, machine: Object) -> Object | None:
        try:
            return self._client.get(kinds.MACHINE, objects.name(machine), objects.namespace(machine))
        except errors.NotFound:
            return None


def _is_elder(other: Object, machine: Object) -> bool:
    is_twin = objects.provider_id(other) == objects.provider_id(machine) and objects.uid(other) != objects.uid(machine)
    return is_twin and objects.age(other) < objects.age(machine)


def _was_seen(machine: Object) -> bool:
    """Whether the platform has shown the instance as this machine's: it was not shown for a copy."""
    return bool((objects.status(machine).get("providerStatus") or {}).get("instanceId"))
