"""Bringing a set to its number: machines are made one after another, and given up as its policy says.

The cache says that there is something to do; what, is decided on what the API itself says now. Before each step the
cache is looked at again: who corrects a number need not wait for the wrong one. Each step is noted in
`expectations` before it is asked for. A machine whose create was not answered is found by the list before the next
attempt, or, if it is still on its way then, by its name: that one is the same as long as nothing has changed.
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from moorage.engine import clock as clocks
from moorage.machines import (
    authority,
    expectations,
    machineset_choice,
    machineset_claims,
    machineset_names,
    machineset_rules,
    machineset_status,
    objects,
    selectors,
)
from moorage.machines.runtime import client as clients
from moorage.machines.runtime import errors, informer, kinds

Object = Mapping[str, Any]

#: So many names may be somebody else's before something else must be wrong.
_NAMES: Final = 8


def template(machine_set: Object, name: str) -> dict[str, Any]:
    """The machine that is to be made."""
    wanted = objects.spec(machine_set).get("template") or {}
    meta: dict[str, Any] = {
        "name": name,
        "namespace": objects.namespace(machine_set),
        "ownerReferences": [machineset_claims.reference(machine_set)],
    }
    meta |= {part: dict(found) for part in ("labels", "annotations") if (found := objects.metadata(wanted).get(part))}
    # An instance is one machine's: a template that was copied from a Machine may name that one's.
    spec = {part: found for part, found in objects.spec(wanted).items() if part != "providerID"}
    return {"metadata": meta, "spec": copy.deepcopy(spec)}


def active(machines: Sequence[Object]) -> list[Object]:
    """Those that count: what is being deleted is as good as gone."""
    return [each for each in machines if not objects.is_deleted(each)]


@dataclasses.dataclass
class Attempt:
    """One set being brought to its number; ``machines`` is what it has, as far as the attempt got."""

    key: str
    machine_set: Object
    selector: selectors.Selector
    machines: list[Object]
    #: What to say if it fails from here on.
    doing: str = machineset_status.FAILED

    @property
    def namespace(self) -> str:
        return objects.namespace(self.machine_set)

    @property
    def uid(self) -> str:
        return objects.uid(self.machine_set)


class Scaling:
    """Makes and deletes machines; shared by workers. ``check`` raises if this process may no longer act."""

    def __init__(
        self,
        client: clients.Client,
        sets: informer.Informer,
        machines: informer.Informer,
        expected: expectations.Expectations,
        departed: machineset_names.Departed,
        clock: clocks.Clock,
        check: Callable[[], None],
        is_ready: Callable[[Object], bool],
    ) -> None:
        self._client = client
        self._sets = sets
        self._machines = machines
        self._expected = expected
        self._departed = departed
        self._clock = clock
        self._check = check
        self._is_ready = is_ready

    def settle(self, attempt: Attempt) -> None:
        """Make or delete what the difference is. What the API refuses ends it, and is raised."""
        if not self._still_so(attempt):
            return
        listed, _ = self._client.list(kinds.MACHINE, attempt.namespace, labels=str(attempt.selector))
        claims = machineset_claims.Claims(self._client, attempt.machine_set, attempt.selector)
        own = claims.settle(listed)
        attempt.machines = active(own)
        missing = machineset_rules.replicas(attempt.machine_set) - len(attempt.machines)
        if missing > 0:
            attempt.doing = machineset_status.FAILED_CREATE
            crew = machineset_names.Crew.of(own).together_with(self._departed.of(attempt.uid))
            self._make(attempt, missing, crew)
        elif missing < 0:
            attempt.doing = machineset_status.FAILED_DELETE
            self._give_up(attempt, -missing)

    def _still_so(self, attempt: Attempt) -> bool:
        """Whether the set is still the one in the cache. If not, the cache will learn it, and then it is looked at."""
        try:
            current = self._client.get(
                kinds.MACHINE_SET, objects.name(attempt.machine_set), objects.namespace(attempt.machine_set)
            )
        except errors.NotFound:
            return False
        return _holds(current, attempt.machine_set)

    def _still_wanted(self, attempt: Attempt) -> bool:
        """The same, as far as the cache has heard: it costs nothing, so it is asked before every step."""
        cached = self._sets.get(attempt.key)
        return cached is not None and _holds(cached, attempt.machine_set)

    def _make(self, attempt: Attempt, missing: int, crew: machineset_names.Crew) -> None:
        for _ in range(missing):
            if not self._still_wanted(attempt):
                return
            made = self._make_one(attempt, crew)
            attempt.machines.append(made)
            crew = crew.joined_by(made)

    def _make_one(self, attempt: Attempt, crew: machineset_names.Crew) -> Object:
        for number in range(_NAMES):
            name = machineset_names.next_name(attempt.machine_set, crew, number)
            self._check()
            self._expected.expect_creation(attempt.key, attempt.namespace, name)
            made: Object | None = None
            try:
                made = self._create(attempt, name)
            finally:
                if made is None:
                    # Refused, or not answered: what came of it is told by the list before the next attempt.
                    self._expected.give_up_creation(attempt.namespace, name)
            if made is not None:
                return made
        raise errors.Conflict(f"the next {_NAMES} names for a machine of {attempt.key} are all taken")

    def _create(self, attempt: Attempt, name: str) -> Object | None:
        """The machine of that name; None if the name is somebody else's."""
        try:
            return self._client.create(kinds.MACHINE, template(attempt.machine_set, name))
        except errors.AlreadyExists:
            found = self._client.get(kinds.MACHINE, name, attempt.namespace)
        if machineset_claims.controller_uid(found) != attempt.uid or objects.is_deleted(found):
            return None
        if self._machines.get(objects.key(found)) is not None:
            # It was in the cache before anybody waited for it there, and will not be announced again.
            self._expected.give_up_creation(attempt.namespace, name)
        return found

    def _give_up(self, attempt: Attempt, surplus: int) -> None:
        policy = str(objects.spec(attempt.machine_set).get("deletePolicy") or "")
        going = machineset_choice.chosen(attempt.machines, surplus, policy, self._clock.wall(), self._is_ready)
        for machine in going:
            if not self._still_wanted(attempt):
                return
            self._check()
            self._delete(attempt, machine)
            attempt.machines.remove(machine)

    def _delete(self, attempt: Attempt, machine: Object) -> None:
        uid = objects.uid(machine)
        self._expected.expect_deletion(attempt.key, uid)
        asked = False
        try:
            self._client.delete(kinds.MACHINE, objects.name(machine), attempt.namespace, uid=uid)
            asked = True
        except (errors.NotFound, errors.Conflict):
            # It has gone; a conflict means that another has its name by now.
            pass
        finally:
            if not asked:
                self._expected.give_up_deletion(uid)


def _holds(current: Object, judged: Object) -> bool:
    """Whether a decision about the one holds for the other: the same set with the same spec, not deleted or at rest."""

    def identity(machine_set: Object) -> tuple[str, object]:
        return objects.uid(machine_set), objects.metadata(machine_set).get("generation")

    is_at_rest = machineset_rules.is_paused(current) or not authority.is_ours(current)
    return identity(current) == identity(judged) and not objects.is_deleted(current) and not is_at_rest
