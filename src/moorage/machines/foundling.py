"""An instance that was made for a machine which has ended meanwhile.

Nobody deletes a machine before its instance is gone, but a leader that is frozen with a create on its way wakes to find
just that, and so does one whose machine had its finalizers taken away by hand. Only who made the instance knows of it,
and may have lost the lease by now. So it is made known to whoever leads, as something that is to be removed: a Machine
which names the instance and is deleted at once.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any, Final

from moorage.machines import objects
from moorage.machines.runtime import client as clients
from moorage.machines.runtime import errors, kinds

Object = Mapping[str, Any]

#: Says what a Machine is for; its value is for people.
MARK: Final = "moorage/foundling"

#: What it has of the machine that has ended: whose it is, and not the labels that a set would claim it by.
_LABELS: Final = (objects.CLUSTER_LABEL, objects.ROLE_LABEL)

_log = logging.getLogger(__name__)


def is_one(machine: Object) -> bool:
    return MARK in objects.notes(machine)


def lay_down(client: clients.Client, machine: Object, provider_id: str) -> None:
    """Have the instance removed that was made for a machine which is no more."""
    key = objects.key(machine)
    _log.warning("%s has ended while its instance %s was made: that is removed", key, provider_id)
    labels = {label: value for label, value in objects.labels(machine).items() if label in _LABELS}
    body = {
        "metadata": {
            "name": objects.name(machine),
            "namespace": objects.namespace(machine),
            "labels": labels,
            "annotations": {MARK: "made for a Machine that has ended meanwhile"},
            "finalizers": [objects.FINALIZER],
        },
        "spec": {"providerSpec": objects.spec(machine).get("providerSpec") or {}, "providerID": provider_id},
    }
    try:
        remove(client, client.create(kinds.MACHINE, body))
    except errors.AlreadyExists:
        # Another machine of that name finds the instance by it, and has one then.
        return


def remove(client: clients.Client, machine: Object) -> None:
    """Ask for its end. Whoever laid it down did so too, unless they were killed in between."""
    try:
        client.delete(kinds.MACHINE, objects.name(machine), objects.namespace(machine), uid=objects.uid(machine))
    except (errors.NotFound, errors.Conflict):
        return
