"""What the machine controller works with: the cluster's API on one side, a platform on the other, and the right to act.

``check`` is called before every call that makes or removes something on the platform: it raises if this process is no
longer the one to act, by its own clock and not by a flag that a stopped process could not have seen change.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from moorage.engine import clock as clocks
from moorage.engine import errors
from moorage.machines import events, objects
from moorage.machines.machine_status import CREATE, DELETE, UPDATE, Writer
from moorage.machines.runtime import client as clients
from moorage.machines.runtime import metrics
from moorage.platforms import contract

Object = Mapping[str, Any]

#: Cloud seconds after which an instance that was asked for, and whose fate is not known, would be seen.
SETTLE: Final = 60.0

_FAILED: Final = {CREATE: metrics.CREATE_FAILED, UPDATE: metrics.UPDATE_FAILED, DELETE: metrics.DELETE_FAILED}


@dataclasses.dataclass(frozen=True)
class Workshop:
    """Shared by threads."""

    client: clients.Client
    actuator: contract.Actuator
    clock: clocks.Clock
    check: Callable[[], None]
    infra_id: str
    recorder: events.Recorder
    writer: Writer
    vips: Callable[[], Sequence[str]] = tuple
    settle: float = SETTLE

    def wanted(self, machine: Object, user_data: bytes = b"") -> contract.Machine:
        """The machine as the platform is asked for it."""
        return objects.wanted(machine, user_data, self.infra_id, self.vips())

    def labels(self, wanted: contract.Machine, instance: contract.Instance) -> Mapping[str, str]:
        """What the Machine is labelled with, as far as the platform tells: what its instance is, and where.

        They are for people and for the scheduler. No machine waits for them.
        """
        place = contract.Place()
        if isinstance(self.actuator, contract.Locating):
            with contextlib.suppress(errors.PlatformFailure):
                place = self.actuator.place(wanted)
        told = {
            objects.TYPE_LABEL: instance.type,
            objects.REGION_LABEL: place.region,
            objects.ZONE_LABEL: place.zone,
        }
        return {label: word for label, word in told.items() if word}

    def failed(self, machine: Object, verb: str, failure: errors.PlatformFailure) -> None:
        """Count a call that failed, and tell the machine's observers."""
        reason = type(failure).__name__
        _FAILED[verb].labels(objects.name(machine), objects.namespace(machine), reason).inc()
        self.recorder.event(machine, "Warning", f"Failed{verb}", f"{verb}: {failure.told()}")

    def forget(self, machine: Object) -> None:
        """A machine that is gone is not counted for ever."""
        for counter in _FAILED.values():
            for reason in _REASONS:
                with contextlib.suppress(KeyError):
                    counter.forget(objects.name(machine), objects.namespace(machine), reason)


def _names(root: type[errors.PlatformFailure]) -> list[str]:
    return [root.__name__, *(name for child in root.__subclasses__() for name in _names(child))]


_REASONS: Final = tuple(_names(errors.PlatformFailure))
