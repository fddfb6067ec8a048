"""The actuator: a yard of this process that asks for a password at every call.

``BERTH_NAME`` tells which yard; a test puts its own into `BERTHS`. The yard counts what was ever made for a machine, so
that a second instance is found out even if it was removed again.
"""

from __future__ import annotations

import collections
from collections.abc import Callable
from pathlib import Path

from moorage.engine import clock as clocks
from moorage.engine import errors
from moorage.platforms import contract
from tests.unit.machines import yard

BERTHS: dict[str, Berths] = {}


class Berths(yard.Yard):
    """A yard with a password. ``made`` counts the instances ever made for a machine, by what ``whose`` calls that.

    By its name alone would not do: a machine may be called as one that has long gone.
    """

    def __init__(self, clock: clocks.Clock, password: str, whose: Callable[[str], str]) -> None:
        super().__init__(clock, building=2, leaving=2)
        self.password = password
        self._whose = whose
        self.made: collections.Counter[str] = collections.Counter()

    def create(self, machine: contract.Machine) -> contract.Instance:
        known = {each.id for each in self.instances}
        try:
            return super().create(machine)
        finally:
            self.made.update(self._whose(each.name) for each in self.instances if each.id not in known)

    def delete(self, machine: contract.Machine) -> None:
        for each in self.instances:
            if each.provider_id == machine.provider_id:
                # Lists may miss it; asked for by its id, it is there. Nothing is called gone for a list alone.
                each.hidden_until = 0.0
        super().delete(machine)


def actuator(around: contract.Surroundings) -> Actuator:
    return Actuator(BERTHS[around.environ["BERTH_NAME"]], Path(around.environ["BERTH_PASSWORD"]).read_text())


class Actuator:
    """What somebody who signed in with this password may do."""

    def __init__(self, berths: Berths, password: str) -> None:
        self._berths = berths
        self._password = password

    def exists(self, machine: contract.Machine) -> contract.Instance | None:
        return self._entered().exists(machine)

    def create(self, machine: contract.Machine) -> contract.Instance:
        return self._entered().create(machine)

    def update(self, machine: contract.Machine) -> contract.Instance:
        return self._entered().update(machine)

    def delete(self, machine: contract.Machine) -> None:
        self._entered().delete(machine)

    def _entered(self) -> Berths:
        if self._password != self._berths.password:
            raise errors.Unauthorized("the token has expired")
        return self._berths
