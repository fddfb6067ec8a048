"""A platform to try controllers on: instances with states and addresses, faults to order, and a log of every call.

An instance takes a few looks until it is made and as many until it is gone. The yard does not mind two instances for
one machine, so that whoever makes two is found out: `Yard.instances` has them both. ``lag`` hides a new instance from
looks by name for a while, as platforms with lists that are brought up to date later do.
"""

from __future__ import annotations

import dataclasses
import itertools
import threading
from collections.abc import Callable, Iterable

from moorage.engine import clock as clocks
from moorage.engine import errors
from moorage.platforms import contract


@dataclasses.dataclass
class Vessel:
    """An instance in the yard. ``missing`` are the looks of `update` until it is complete."""

    id: str
    name: str
    infra_id: str
    user_data: bytes
    born: float
    missing: int
    state: str = "building"
    leaving: int = 0
    addresses: tuple[str, ...] = ()
    hidden_until: float = 0.0

    @property
    def provider_id(self) -> str:
        return f"yard://{self.id}"


@dataclasses.dataclass
class Order:
    """A fault: the next ``times`` calls of the verb fail; ``after`` means: once it has been done."""

    verb: str
    failure: Exception
    after: bool
    times: int
    name: str


class Yard:
    """The platform; also the actuator on it. Safe to share between threads."""

    def __init__(self, clock: clocks.Clock, *, building: int = 1, leaving: int = 1, lag: float = 0.0) -> None:
        self.clock = clock
        self.building = building
        self.leaving = leaving
        self.lag = lag
        self.instances: list[Vessel] = []
        self.calls: list[str] = []
        #: Called before every call takes effect, with its line; may raise (a crash, a thief of the lease).
        self.before: Callable[[str], None] = lambda call: None
        self._orders: list[Order] = []
        self._numbers = itertools.count(1)
        self._turn = threading.RLock()

    # -- for tests -------------------------------------------------------------------------------------------------

    def fail(self, verb: str, failure: Exception, *, after: bool = False, times: int = 1, name: str = "") -> None:
        """Let the next calls of a verb (exists, create, update, delete) fail, of one machine or of any."""
        self._orders.append(Order(verb, failure, after, times, name))

    def of(self, name: str) -> list[Vessel]:
        """Every instance there is for the machine."""
        return [each for each in self.instances if each.name == name]

    def only(self, name: str) -> Vessel:
        (found,) = self.of(name)
        return found

    def sink(self, name: str) -> None:
        """Take the instances away, behind the controllers' backs."""
        self.instances = [each for each in self.instances if each.name != name]

    def hide(self, name: str, seconds: float) -> None:
        """Let looks miss it for a while."""
        for each in self.of(name):
            each.hidden_until = self.clock.now() + seconds

    def verbs(self, name: str = "") -> list[str]:
        """The verbs of the calls so far, of one machine or of all."""
        return [call.split()[0] for call in self.calls if not name or call.split()[1] == name]

    # -- as `contract.Actuator` ------------------------------------------------------------------------------------

    def exists(self, machine: contract.Machine) -> contract.Instance | None:
        with self._turn:
            order = self._called("exists", machine)
            found = self._look(machine)
            self._fail_after(order)
            return None if found is None else self._told(found)

    def create(self, machine: contract.Machine) -> contract.Instance:
        with self._turn:
            order = self._called("create", machine)
            number = next(self._numbers)
            made = Vessel(
                f"i-{number}", machine.name, machine.infra_id, machine.user_data, self.clock.now(), self.building
            )
            made.hidden_until = self.clock.now() + self.lag
            if not made.missing:
                self._complete(made)
            self.instances.append(made)
            self._fail_after(order)
            return self._told(made)

    def update(self, machine: contract.Machine) -> contract.Instance:
        with self._turn:
            order = self._called("update", machine)
            found = self._look(machine)
            if found is None:
                self._fail_after(order)
                raise errors.NotFound(f"{machine.name} is not there", resource=machine.name, words="it sank")
            if found.state == "building":
                found.missing -= 1
                if found.missing <= 0:
                    self._complete(found)
            self._fail_after(order)
            return self._told(found)

    def delete(self, machine: contract.Machine) -> bool:
        with self._turn:
            order = self._called("delete", machine)
            found = self._look(machine)
            if found is None:
                self._fail_after(order)
                raise errors.NotFound(f"{machine.name} is gone", resource=machine.name)
            is_ordered = found.state == "leaving" and found.leaving <= 1
            if found.state != "leaving":
                found.state, found.leaving = "leaving", self.leaving
            elif found.leaving > 1:
                found.leaving -= 1
            else:
                self.instances.remove(found)
            self._fail_after(order)
            return is_ordered

    # -- inside ----------------------------------------------------------------------------------------------------

    def _look(self, machine: contract.Machine) -> Vessel | None:
        mine = [each for each in self.instances if each.infra_id == machine.infra_id]
        mine = [each for each in mine if each.hidden_until <= self.clock.now()]
        by_id = (each for each in mine if machine.provider_id and each.provider_id == machine.provider_id)
        return next(by_id, None) or next((each for each in mine if each.name == machine.name), None)

    def _complete(self, vessel: Vessel) -> None:
        vessel.state = "up"
        vessel.addresses = (f"10.0.0.{vessel.id.removeprefix('i-')}",)

    def _told(self, vessel: Vessel) -> contract.Instance:
        ready = vessel.state == "up"
        return contract.Instance(
            vessel.id,
            vessel.provider_id,
            vessel.state,
            ready,
            vessel.addresses,
            "" if ready else f"it to be up: it is {vessel.state}",
        )

    def _called(self, verb: str, machine: contract.Machine) -> Order | None:
        call = f"{verb} {machine.name}"
        self.before(call)
        self.calls.append(call)
        order = next((each for each in self._orders if each.verb == verb and each.name in ("", machine.name)), None)
        if order is None:
            return None
        order.times -= 1
        if not order.times:
            self._orders.remove(order)
        if not order.after:
            raise order.failure
        return order

    def _fail_after(self, order: Order | None) -> None:
        if order is not None:
            raise order.failure


def names(vessels: Iterable[Vessel]) -> list[str]:
    return sorted(each.name for each in vessels)
