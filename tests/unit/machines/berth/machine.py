"""The actuator: a yard of this process that asks for a password at every call.

``BERTH_NAME`` tells which yard; a test puts its own into `BERTHS`. The yard counts what was ever made for a machine, so
that a second instance is found out even if it was removed again; and it knows whose each instance is, so that one which
is taken away from a machine that is still wanted is found out, too.
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

    By its name alone would not do: a machine may be called as one that has long gone. ``fired`` counts what went wrong.
    """

    def __init__(
        self,
        clock: clocks.Clock,
        password: str,
        whose: Callable[[str], str],
        fired: collections.Counter[str],
    ) -> None:
        super().__init__(clock, building=2, leaving=2)
        self.password = password
        self._whose = whose
        self.fired = fired
        self.made: collections.Counter[str] = collections.Counter()
        #: Whose each instance is, by its id.
        self.owners: dict[str, str] = {}

    def create(self, machine: contract.Machine) -> contract.Instance:
        known = {each.id for each in self.instances}
        try:
            return super().create(machine)
        finally:
            for each in self.instances:
                # Made just now, or by somebody else while this call was on its way.
                if each.id not in known and each.id not in self.owners:
                    self.owners[each.id] = self._whose(each.name)
                    self.made[self.owners[each.id]] += 1

    def delete(self, machine: contract.Machine) -> bool:
        for each in self.instances:
            if each.provider_id == machine.provider_id:
                # Lists may miss it; asked for by its id, it is there. Nothing is called gone for a list alone.
                each.hidden_until = 0.0
        return super().delete(machine)

    def leaving_owners(self) -> set[str]:
        """Whose instances are being taken away."""
        return {self.owners[each.id] for each in self.instances if each.state == "leaving" and each.id in self.owners}

    def _look(self, machine: contract.Machine) -> yard.Vessel | None:
        """By its id alone once that is known: what bears its name then is another machine's."""
        found = super()._look(machine)
        if found is not None and machine.provider_id and found.provider_id != machine.provider_id:
            found = None
        if found is None and self.of(machine.name):
            self.fired["platform: unseen"] += 1
        return found

    def _called(self, verb: str, machine: contract.Machine) -> yard.Order | None:
        try:
            return super()._called(verb, machine)
        except BaseException as failure:
            self.fired[f"platform: {type(failure).__name__} before"] += 1
            raise

    def _fail_after(self, order: yard.Order | None) -> None:
        if order is not None:
            self.fired[f"platform: {type(order.failure).__name__} after"] += 1
        super()._fail_after(order)


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

    def delete(self, machine: contract.Machine) -> bool:
        return self._entered().delete(machine)

    def _entered(self) -> Berths:
        if self._password != self._berths.password:
            self._berths.fired["platform: Unauthorized"] += 1
            raise errors.Unauthorized("the token has expired")
        return self._berths
