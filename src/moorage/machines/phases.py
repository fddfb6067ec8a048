"""The phases of a machine, and the rules by which it goes from one to the next.

Provisioning until its instance is complete, Provisioned until it has become a node, Running from then on. Deleting
begins with the deletion timestamp and ends with the object. Failed is final: nothing but a deletion leads out of it.
A machine does not go back: an instance that is switched off later is still a provisioned one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from moorage.machines import objects

PROVISIONING: Final = "Provisioning"
PROVISIONED: Final = "Provisioned"
RUNNING: Final = "Running"
DELETING: Final = "Deleting"
FAILED: Final = "Failed"

#: The instance was complete once: from then on it is looked at, and no longer built.
COMPLETE: Final = frozenset((PROVISIONED, RUNNING))


def phase(machine: Mapping[str, Any]) -> str:
    """The phase that is written down; empty for a machine that nobody has looked at yet."""
    return str(objects.status(machine).get("phase") or "")


def with_instance(machine: Mapping[str, Any], *, complete: bool) -> str:
    """The phase of a machine that has an instance; ``complete`` says whether the platform calls it so just now."""
    if objects.node_name(machine):
        return RUNNING
    return PROVISIONED if complete or phase(machine) in COMPLETE else PROVISIONING


def is_provisioned(machine: Mapping[str, Any]) -> bool:
    """Whether it had an instance: if there is none any more, somebody else has removed it."""
    return bool(objects.provider_id(machine) or objects.status(machine).get("addresses"))


def is_failed(machine: Mapping[str, Any]) -> bool:
    return phase(machine) == FAILED
