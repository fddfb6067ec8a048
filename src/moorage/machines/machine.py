"""The machine controller: sees that every Machine has exactly one instance on the platform, and says how it is.

Before an instance is asked for, that is written down on the Machine, over the very version that was read: two who
would both make it cannot both begin, and who comes after one that was killed in between knows of it and waits until
an instance would have shown. An instance that is not found is missed twice before its machine is given up.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from moorage.engine import clock as clocks
from moorage.engine import errors
from moorage.machines import (
    authority,
    conditions,
    drain,
    events,
    foundling,
    machine_absence,
    machine_deletion,
    machine_status,
    machine_twins,
    objects,
    phases,
    user_data,
)
from moorage.machines import workshop as workshops
from moorage.machines.machine_status import CREATE, FAILED, PROCESSING, SUCCESSFUL, UPDATE
from moorage.machines.runtime import client as clients
from moorage.machines.runtime import controller, informer, queue
from moorage.machines.runtime import errors as api_errors
from moorage.platforms import contract

Object = Mapping[str, Any]

#: Cloud seconds until a machine is looked at again: while it is built, and while it has not become a node.
BUILDING: Final = 20.0
WAITING: Final = 30.0
#: After a conflict, at least: the cache is about to bring what was written.
OUTDATED: Final = 1.0
#: A call without an answer: look soon whether it took effect.
UNANSWERED: Final = 5.0

_OWN_LABELS: Final = frozenset((objects.TYPE_LABEL, objects.REGION_LABEL, objects.ZONE_LABEL))
_MISSING: Final = "Instance not found on provider"


def concerns(old: Object | None, new: Object | None) -> bool:
    """Whether a change is one to act upon. What the controller itself has written is not.

    Else every failure that is noted would bring the machine back at once, past the pause that it is to make.
    """
    if old is None or new is None:
        return True
    if objects.revision(old) == objects.revision(new):
        # Nothing has changed: it is time to look again at what is out there.
        return True
    is_loose = objects.FINALIZER in objects.finalizers(old) and objects.FINALIZER not in objects.finalizers(new)
    return is_loose or _others_words(old) != _others_words(new)


def _others_words(machine: Object) -> tuple[object, ...]:
    """What other people and programs say of a machine."""
    status = objects.status(machine)
    return (
        objects.uid(machine),
        objects.is_deleted(machine),
        {key: value for key, value in objects.spec(machine).items() if key != "providerID"},
        {key: value for key, value in objects.labels(machine).items() if key not in _OWN_LABELS},
        {key: value for key, value in objects.notes(machine).items() if key != objects.STATE_ANNOTATION},
        status.get("nodeRef"),
        status.get(authority.FIELD),
    )


class Machines:
    """Reconciles Machines; its keys are ``namespace/name``."""

    def __init__(
        self,
        client: clients.Client,
        machines: informer.Informer,
        actuator: contract.Actuator,
        clock: clocks.Clock,
        check: Callable[[], None],
        *,
        infra_id: str,
        vips: Callable[[], Sequence[str]] = tuple,
        recorder: events.Recorder | None = None,
        settle: float = workshops.SETTLE,
        source: Callable[[], object] = lambda: None,
    ) -> None:
        """``source`` tells by whose word ``actuator`` answers at the moment, as it may change its credentials."""
        self._machines = machines
        self._user_data = user_data.UserData(client, clock)
        shop = workshops.Workshop(
            client=client,
            actuator=actuator,
            clock=clock,
            check=check,
            infra_id=infra_id,
            recorder=recorder or events.Recorder(client, clock, "machine-controller"),
            writer=machine_status.Writer(client, clock),
            vips=vips,
            settle=settle,
        )
        self._shop = shop
        #: Instances that were made for nobody, by key, until whoever leads knows of them.
        self._foundlings: dict[str, tuple[Object, str]] = {}
        self._twins = machine_twins.Twins(client, machines)
        self._absences = machine_absence.Absences(client, source)
        self._deletion = machine_deletion.Deletion(shop, drain.Drainer(client, clock), self._twins, self._absences)

    def feed(self, keys: queue.Queue) -> None:
        """Have the machines looked at that a change is about."""

        def changed(change: informer.Change) -> None:
            found = change.new or change.old
            if found is not None and concerns(change.old, change.new):
                keys.add(objects.key(found))

        self._machines.on(changed)

    def reconcile(self, key: str) -> controller.Result:
        if key in self._foundlings:
            return self._lay_down(key)
        machine = self._machines.get(key)
        if machine is None:
            return controller.Result()
        try:
            return self._reconcile(machine)
        except api_errors.Conflict as late:
            # Passed on, so that the pauses grow while somebody keeps writing against us.
            late.retry_after = max(late.retry_after or 0.0, OUTDATED)
            raise
        except machine_status.Ended:
            return controller.Result()

    def _reconcile(self, machine: Object) -> controller.Result:
        machine, is_ours = self._authority(machine)
        if not is_ours:
            return controller.Result()
        if objects.is_deleted(machine):
            return self._deletion.proceed(machine)
        if foundling.is_one(machine):
            foundling.remove(self._shop.client, machine)
            return controller.Result()
        if wrong := self._misplaced(machine):
            return self._refuse(machine, wrong)
        if objects.FINALIZER not in objects.finalizers(machine):
            # First of all: nothing may be made, or left behind, for a machine that could end without us.
            machine = self._shop.writer.finalizers(machine, [*objects.finalizers(machine), objects.FINALIZER])
        if phases.is_failed(machine):
            return controller.Result()
        if elder := self._twins.elder(machine):
            return self._refuse_copy(machine, machine_twins.told(machine, elder))
        try:
            wanted = self._shop.wanted(machine)
        except errors.Terminal as wrong_spec:
            return self._give_up(machine, objects.Failure(objects.INVALID, wrong_spec.told()))
        return self._provide(machine, wanted)

    # -- whether to act at all -------------------------------------------------------------------------------------

    def _authority(self, machine: Object) -> tuple[Object, bool]:
        """Whether the machine is ours to keep. Who keeps it is written down before anything else is done."""
        is_ours, told = authority.is_ours(machine), authority.told(machine)
        if told is None:
            return machine, is_ours
        now, status = self._shop.clock.wall(), {**machine_status.draft(machine), **authority.recorded(machine)}
        machine_status.set_condition(status, now, conditions.PAUSED, *told)
        return self._shop.writer.status(machine, status), is_ours

    def _misplaced(self, machine: Object) -> str:
        """Why it is not a machine of this cluster; empty if it is."""
        label = objects.labels(machine).get(objects.CLUSTER_LABEL) or ""
        if label == self._shop.infra_id:
            return ""
        said = f"is {label}" if label else "is missing"
        return f"label {objects.CLUSTER_LABEL} {said}: machines of this cluster bear {self._shop.infra_id}"

    def _refuse(self, machine: Object, wrong: str) -> controller.Result:
        """Leave it alone, and say why. It is looked at again when somebody corrects it."""
        now, status = self._shop.clock.wall(), machine_status.draft(machine)
        kind, reason = conditions.INSTANCE_EXISTS, conditions.FAILED_VALIDATE
        machine_status.set_condition(status, now, kind, "Unknown", reason, wrong)
        self._shop.writer.status(machine, status)
        self._shop.recorder.event(machine, "Warning", reason, wrong)
        return controller.Result()

    def _refuse_copy(self, machine: Object, wrong: str) -> controller.Result:
        now, status = self._shop.clock.wall(), machine_status.draft(machine)
        kind, reason = conditions.INSTANCE_EXISTS, conditions.FAILED_VALIDATE
        machine_status.set_condition(status, now, kind, "Unknown", reason, wrong)
        return self._give_up(machine, objects.Failure(objects.INVALID, wrong), status)

    # -- the instance ----------------------------------------------------------------------------------------------

    def _provide(self, machine: Object, wanted: contract.Machine) -> controller.Result:
        is_built = phases.phase(machine) in phases.COMPLETE
        if wanted.provider_id and not is_built:
            # It needs no look besides the one that completing it takes.
            return self._complete(machine)
        try:
            instance = self._shop.actuator.exists(wanted)
        except errors.PlatformFailure as failure:
            return self._not_seen(machine, failure)
        if instance is None:
            return self._missing(machine) if phases.is_provisioned(machine) else self._create(machine)
        if is_built or instance.ready:
            return self._seen(machine, wanted, instance)
        # Known from here on: should the next look miss it, no second one is made.
        return self._complete(self._shop.writer.identity(machine, provider_id=instance.provider_id))

    def _complete(self, machine: Object) -> controller.Result:
        try:
            wanted = self._shop.wanted(machine, self._user_data.of(machine))
            self._shop.check()
            instance = self._shop.actuator.update(wanted)
        except errors.NotFound as gone:
            return self._missing(machine, gone.words)
        except errors.Exhausted as full:
            # Not the machine's fault: it goes on when somebody makes room.
            return self._not_updated(machine, full)
        except errors.Terminal as never:
            self._shop.failed(machine, CREATE, never)
            return self._give_up(machine, objects.Failure(objects.INVALID, never.told()))
        except errors.PlatformFailure as failure:
            return self._not_updated(machine, failure)
        return self._seen(machine, wanted, instance)

    def _create(self, machine: Object) -> controller.Result:
        shop = self._shop
        begun = machine_status.creating_since(machine)
        if begun is not None and (rest := shop.settle - (shop.clock.wall() - begun).total_seconds()) > 0:
            return controller.Result(min(rest, BUILDING))
        try:
            data = self._user_data.of(machine)
        except errors.Terminal as wrong_spec:
            return self._give_up(machine, objects.Failure(objects.INVALID, wrong_spec.told()))
        except errors.Transient as missing:
            return self._not_created(machine, missing)
        machine = self._begin(machine)
        wanted = shop.wanted(machine, data)
        shop.check()
        try:
            instance = shop.actuator.create(wanted)
        except errors.Ambiguous as lost:
            shop.failed(machine, CREATE, lost)
            return controller.Result(UNANSWERED)
        except errors.Exhausted as full:
            return self._not_created(machine, full)
        except errors.Terminal as never:
            shop.failed(machine, CREATE, never)
            return self._give_up(machine, objects.Failure(objects.INVALID, never.told()))
        except errors.PlatformFailure as failure:
            return self._not_created(machine, failure)
        shop.recorder.event(machine, "Normal", CREATE, f"Created Machine {objects.name(machine)}")
        try:
            return self._seen(machine, wanted, instance)
        except machine_status.Ended:
            self._foundlings[objects.key(machine)] = (machine, instance.provider_id)
            return self._lay_down(objects.key(machine))

    def _lay_down(self, key: str) -> controller.Result:
        """Have the instance removed that was made under this key for a machine which is no more."""
        foundling.lay_down(self._shop.client, *self._foundlings[key])
        del self._foundlings[key]
        # Whatever bears the name now is looked at as any other.
        return controller.Result(OUTDATED)

    def _begin(self, machine: Object) -> Object:
        """Write down that an instance is about to be asked for. Who read an outdated machine fails here."""
        now, status = self._shop.clock.wall(), machine_status.draft(machine)
        machine_status.enter(status, phases.PROVISIONING)
        machine_status.set_condition(
            status,
            now,
            conditions.INSTANCE_EXISTS,
            "False",
            conditions.INSTANCE_NOT_CREATED,
            "Instance has not been created",
            "Warning",
        )
        # Its date makes it another note each time, so it is sent, and the version checked: that is what it is for.
        machine_status.operation(status, now, CREATE, PROCESSING, "the instance is asked for", anew=True)
        return self._shop.writer.status(machine, status)

    # -- what came of it -------------------------------------------------------------------------------------------

    def _seen(self, machine: Object, wanted: contract.Machine, instance: contract.Instance) -> controller.Result:
        shop, known = self._shop, objects.provider_id(machine)
        if known and instance.provider_id != known:
            # What a machine's instance is known as never changes: nodes and volumes refer to it.
            return self._missing(machine, f"another instance, {instance.provider_id}, bears its name")
        self._absences.forget(machine)
        labels = shop.labels(wanted, instance)
        machine = shop.writer.identity(machine, provider_id=instance.provider_id, state=instance.state, labels=labels)
        now, status = shop.clock.wall(), machine_status.draft(machine)
        phase = phases.with_instance(machine, complete=instance.ready)
        machine_status.enter(status, phase)
        machine_status.set_condition(status, now, conditions.INSTANCE_EXISTS, "True")
        machine_status.show_instance(status, now, instance)
        status["addresses"] = objects.addresses(machine, instance)
        if phase == phases.PROVISIONING:
            machine_status.operation(status, now, CREATE, PROCESSING, f"waiting for {instance.waiting_for}")
        elif phases.phase(machine) not in phases.COMPLETE:
            machine_status.operation(status, now, CREATE, SUCCESSFUL, "the instance is complete")
        elif instance.waiting_for:
            machine_status.operation(status, now, UPDATE, PROCESSING, f"waiting for {instance.waiting_for}")
        elif (status.get("lastOperation") or {}).get("type") != CREATE:
            machine_status.operation(status, now, UPDATE, SUCCESSFUL, "the instance is as it should be")
        machine = shop.writer.status(machine, status)
        if phase == phases.PROVISIONING:
            return controller.Result(BUILDING)
        has_address = any(each["type"] == "InternalIP" for each in status["addresses"])
        is_settled = phase == phases.RUNNING and instance.ready and has_address
        return controller.Result(None if is_settled else WAITING)

    def _missing(self, machine: Object, words: str = "") -> controller.Result:
        """No instance where there was one."""
        now, status = self._shop.clock.wall(), machine_status.draft(machine)
        if rest := self._absences.miss(machine, status, now):
            self._shop.writer.status(machine, status)
            return controller.Result(rest)
        kind, reason = conditions.INSTANCE_EXISTS, conditions.INSTANCE_MISSING
        machine_status.set_condition(status, now, kind, "False", reason, _MISSING, "Warning")
        known = objects.provider_id(machine) or objects.name(machine)
        told = f"can't find created instance {known}{f': {words}' if words else ''}"
        return self._give_up(machine, objects.Failure("", told), status)

    def _not_seen(self, machine: Object, failure: errors.PlatformFailure) -> controller.Result:
        now, status = self._shop.clock.wall(), machine_status.draft(machine)
        told = f"Failed to check if machine exists: {failure.told()}"
        machine_status.set_condition(
            status, now, conditions.INSTANCE_EXISTS, "Unknown", conditions.ERROR_CHECKING, told
        )
        self._shop.writer.status(machine, status)
        raise failure

    def _not_updated(self, machine: Object, failure: errors.PlatformFailure) -> controller.Result:
        self._shop.failed(machine, UPDATE, failure)
        now, status = self._shop.clock.wall(), machine_status.draft(machine)
        machine_status.operation(status, now, UPDATE, FAILED, failure.told())
        self._shop.writer.status(machine, status)
        raise failure

    def _not_created(self, machine: Object, failure: errors.PlatformFailure) -> controller.Result:
        """It was answered: there is no instance, and the next try need not wait for one to show."""
        self._shop.failed(machine, CREATE, failure)
        now, status = self._shop.clock.wall(), machine_status.draft(machine)
        machine_status.enter(status, phases.PROVISIONING)
        machine_status.operation(status, now, CREATE, FAILED, failure.told())
        machine_status.show_failed(status, now, failure.told())
        self._shop.writer.status(machine, status)
        raise failure

    def _give_up(
        self, machine: Object, failure: objects.Failure, status: machine_status.Draft | None = None
    ) -> controller.Result:
        """Failed, for good: nothing is made, completed or looked at for this machine any more."""
        now = self._shop.clock.wall()
        noted = machine_status.draft(machine) if status is None else status
        machine = self._shop.writer.identity(machine, state=machine_status.UNKNOWN)
        machine_status.give_up(noted, failure)
        if failure.reason:
            machine_status.operation(noted, now, CREATE, FAILED, failure.message)
            if not phases.is_provisioned(machine):
                machine_status.show_failed(noted, now, failure.message)
        self._shop.writer.status(machine, noted)
        self._shop.recorder.event(machine, "Warning", FAILED, failure.message)
        return controller.Result()
