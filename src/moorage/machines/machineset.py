"""MachineSets: as many machines as are wanted, not one more, whatever is lost or late on the way.

Machines are counted in the cache, which costs nothing and may be behind; `machineset_scaling` then acts on what the API
itself says, and until the cache has caught up with that nothing more is done: a storm of events makes nothing twice.
A set that is deleted is left to the garbage collector, which takes its machines along or, if told so, leaves them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from moorage.engine import clock as clocks
from moorage.machines import (
    authority,
    capacity,
    conditions,
    events,
    expectations,
    machineset_claims,
    machineset_names,
    machineset_rules,
    machineset_scaling,
    machineset_status,
    objects,
    selectors,
)
from moorage.machines.runtime import client as clients
from moorage.machines.runtime import controller, errors, informer, kinds, queue

Object = Mapping[str, Any]

RECONCILE_ERROR: Final = "ReconcileError"

_SET: Final = "controller uid"
_NODE: Final = "node of a set"
_ORPHANS: Final = ""


class MachineSets:
    """Looks after sets; its keys are theirs. ``check`` raises if this process may no longer act."""

    def __init__(
        self,
        client: clients.Client,
        sets: informer.Informer,
        machines: informer.Informer,
        nodes: informer.Informer,
        *,
        clock: clocks.Clock,
        check: Callable[[], None],
        recorder: events.Recorder,
        reading: capacity.Reading | None = None,
    ) -> None:
        self._client = client
        self._sets = sets
        self._machines = machines
        self._nodes = nodes
        self._clock = clock
        self._recorder = recorder
        self._reading = reading
        self._expected = expectations.Expectations(clock)
        self._departed = machineset_names.Departed()
        self._scaling = machineset_scaling.Scaling(
            client,
            sets,
            machines,
            self._expected,
            self._departed,
            clock,
            check,
            lambda machine: machineset_status.is_ready(self._node_of(machine)),
        )
        machines.add_index(_SET, lambda machine: (machineset_claims.controller_uid(machine),))
        machines.add_index(_NODE, lambda machine: filter(None, (objects.node_name(machine),)))

    # -- what makes it look ------------------------------------------------------------------------------------------

    def feed(self, keys: queue.Queue) -> None:
        """Have the sets looked at that a change is about."""

        def set_changed(change: informer.Change) -> None:
            if change.old is not None and change.new is None:
                self._departed.forget(objects.uid(change.old))
            keys.add(change.key)

        def machine_changed(change: informer.Change) -> None:
            self._expected.observe(change.old, change.new)
            if change.old is not None and change.new is None:
                self._departed.note(machineset_claims.controller_uid(change.old), change.old)
            for key in self._concerned(change):
                keys.add(key)

        def node_changed(change: informer.Change) -> None:
            if _readiness(change.old) != _readiness(change.new):
                for machine in self._machines.by_index(_NODE, change.key):
                    for key in _controlling(machine):
                        keys.add(key)

        self._sets.on(set_changed)
        self._machines.on(machine_changed)
        self._nodes.on(node_changed)

    def _concerned(self, change: informer.Change) -> set[str]:
        """The keys of the sets that a change of a machine is about: its own, or those that might take it."""
        old, new = change
        if old is not None and new is not None and old is not new and _relevant(old) == _relevant(new):
            return set()
        found = {key for machine in (old, new) if machine is not None for key in _controlling(machine)}
        if new is not None and not objects.is_deleted(new) and objects.owner(new) is None:
            found |= {objects.key(each) for each in self._sets.list() if _might_take(each, new)}
        return found

    # -- looking -----------------------------------------------------------------------------------------------------

    def reconcile(self, key: str) -> controller.Result:
        found = self._sets.get(key)
        if found is None:
            self._expected.forget(key)
            return controller.DONE
        if objects.is_deleted(found):
            return controller.DONE
        now = self._clock.wall()
        if machineset_rules.is_paused(found) or not authority.is_ours(found):
            self._write(found, machineset_status.resting(found, now))
            return controller.DONE
        try:
            selector = machineset_rules.checked(found)
        except machineset_rules.InvalidSet as wrong:
            if self._write(found, machineset_status.invalid(found, wrong.message, now)):
                self._recorder.event(found, events.WARNING, RECONCILE_ERROR, wrong.message)
            return controller.DONE
        self._annotate(found)
        return self._look_after(key, found, selector)

    def _look_after(self, key: str, found: Object, selector: selectors.Selector) -> controller.Result:
        claims = machineset_claims.Claims(self._client, found, selector)
        machines = machineset_scaling.active(claims.settle(self._candidates(found)))
        problem: errors.ApiError | None = None
        trouble: machineset_status.Trouble | None = None
        if len(machines) != machineset_rules.replicas(found) and not self._expected.outstanding(key):
            attempt = machineset_scaling.Attempt(key, found, selector, machines)
            try:
                self._scaling.settle(attempt)
            except errors.ApiError as refused:
                problem, trouble = refused, machineset_status.Trouble(attempt.doing, refused.message)
            machines = attempt.machines
        now = self._clock.wall()
        counts = machineset_status.counted(found, machines, self._node_of, now)
        self._write(found, machineset_status.judged(found, selector, counts, trouble, now))
        if problem is not None:
            self._recorder.event(found, events.WARNING, RECONCILE_ERROR, problem.message)
            raise problem
        waits = (self._expected.outstanding(key), counts.soonest)
        return controller.Result(min(filter(None, waits), default=None))

    def _candidates(self, found: Object) -> list[Object]:
        """The machines that are the set's by their own word, and those that are nobody's."""
        place = objects.namespace(found)
        orphans = (each for each in self._machines.by_index(_SET, _ORPHANS) if objects.namespace(each) == place)
        return [*self._machines.by_index(_SET, objects.uid(found)), *orphans]

    def _node_of(self, machine: Object) -> Object | None:
        name = objects.node_name(machine)
        return self._nodes.get(name) if name else None

    # -- writing -----------------------------------------------------------------------------------------------------

    def _annotate(self, found: Object) -> None:
        missing = capacity.hints(found, self._reading)
        if missing:
            self._patch(found, {"metadata": {"annotations": missing}})

    def _write(self, found: Object, wanted: Mapping[str, Any]) -> bool:
        """Bring the status up to date; whether there was anything to write."""
        change = machineset_status.change(found, wanted)
        if change:
            # The uid, as the counts of a set are not those of another that has its name now.
            self._patch(found, {"metadata": {"uid": objects.uid(found)}, "status": change}, "status")
        return bool(change)

    def _patch(self, found: Object, body: dict[str, Any], subresource: str = "") -> None:
        name, place = objects.name(found), objects.namespace(found)
        try:
            self._client.patch(kinds.MACHINE_SET, name, place, body, subresource=subresource)
        except errors.NotFound:
            return  # it has gone, and nobody will miss that


def _controlling(machine: Object) -> tuple[str, ...]:
    owner = objects.owner(machine) or {}
    if owner.get("kind") != kinds.MACHINE_SET.kind:
        return ()
    return (f"{objects.namespace(machine)}/{owner.get('name')}",)


def _might_take(machine_set: Object, machine: Object) -> bool:
    if objects.namespace(machine_set) != objects.namespace(machine):
        return False
    try:
        return machineset_rules.checked(machine_set).chooses(machine)
    except machineset_rules.InvalidSet:
        return False


def _relevant(machine: Object) -> tuple[object, ...]:
    """What of a machine its set goes by: most changes are none of its business."""
    meta = objects.metadata(machine)
    parts = (objects.uid(machine), objects.labels(machine), meta.get("ownerReferences"), meta.get("deletionTimestamp"))
    return (*parts, objects.node_name(machine))


def _readiness(node: Object | None) -> tuple[object, ...]:
    found = conditions.find(objects.conditions(node or {}), "Ready") or {}
    return node is None, found.get("status"), found.get("lastTransitionTime")
