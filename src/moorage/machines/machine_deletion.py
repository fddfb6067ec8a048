"""The end of a machine, in an order that loses nothing: pods first, then the instance, then the node, then the object.

Every step is looked at anew each time and none is waited for, so it does not matter who began: a hook that holds it, a
pod that may not leave or a platform that takes its time end the turn. The object goes last, and only when there surely
is no instance: neither one that is going, nor one that was asked for and has not shown yet, nor one that was there and
is not seen just now.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from moorage.engine import errors
from moorage.machines import conditions, drain, machine_absence, machine_status, machine_twins, objects, phases
from moorage.machines import workshop as workshops
from moorage.machines.machine_status import DELETE, FAILED, PROCESSING, SUCCESSFUL
from moorage.machines.runtime import controller, kinds
from moorage.machines.runtime import errors as api_errors

Object = Mapping[str, Any]

#: Cloud seconds until an instance that is going is looked at again.
GOING: Final = 20.0


class Deletion:
    """Removes what machines leave behind; shared by threads."""

    def __init__(
        self,
        shop: workshops.Workshop,
        drainer: drain.Drainer,
        twins: machine_twins.Twins,
        absences: machine_absence.Absences,
    ) -> None:
        self._shop = shop
        self._drainer = drainer
        self._twins = twins
        self._absences = absences

    def proceed(self, machine: Object) -> controller.Result:
        """Do what can be done now towards the end of a machine whose deletion was asked for."""
        if objects.FINALIZER not in objects.finalizers(machine):
            return controller.Result()
        machine = self._enter(machine)
        if elder := self._twins.elder(machine, surely=True):
            # Nothing that is there is this machine's: neither pods nor instance nor node.
            self._shop.check()
            kept = f"{objects.provider_id(machine)} stays: it is the instance of Machine {objects.name(elder)}"
            self._shop.recorder.event(machine, "Normal", DELETE, kept)
            return self._end(machine)
        if not conditions.is_true(objects.conditions(machine), conditions.DRAINED):
            outcome = self._drain(machine)
            if outcome is None:
                return controller.Result()
            machine = self._note(machine, outcome)
            if not outcome.drained:
                return controller.Result(outcome.again)
        if objects.hooks(machine, "preTerminate"):
            return controller.Result()
        pause = self._remove_instance(machine)
        if pause is not None:
            return controller.Result(pause)
        # The platform may have taken its time to answer: what is there now may be another leader's work.
        self._shop.check()
        self._remove_node(machine)
        return self._end(machine)

    def _end(self, machine: Object) -> controller.Result:
        kept = [each for each in objects.finalizers(machine) if each != objects.FINALIZER]
        self._shop.writer.finalizers(machine, kept)
        self._drainer.forget(machine)
        self._absences.forget(machine)
        self._shop.forget(machine)
        return controller.Result()

    def _enter(self, machine: Object) -> Object:
        status = machine_status.draft(machine)
        machine_status.enter(status, phases.DELETING)
        return self._shop.writer.status(machine, status)

    # -- pods ------------------------------------------------------------------------------------------------------

    def _drain(self, machine: Object) -> drain.Outcome | None:
        """An attempt to drain its node; None if a hook forbids."""
        recorder = self._shop.recorder
        if objects.EXCLUDE_DRAIN in objects.notes(machine) or not objects.node_name(machine):
            recorder.event(machine, "Normal", "DrainSkipped", "Node drain skipped")
            return drain.Outcome(True, "Node drain skipped")
        if objects.hooks(machine, "preDrain"):
            recorder.event(machine, "Normal", "DrainBlocked", "Drain blocked by pre-drain hook")
            return None
        self._shop.check()
        recorder.event(machine, "Normal", "DrainProceeds", "Node drain proceeds")
        outcome = self._drainer.attempt(machine)
        if outcome.drained:
            recorder.event(machine, "Normal", "DrainSucceeded", "Node drain succeeded")
        else:
            recorder.event(machine, "Normal", "DrainRequeued", f"Node drain requeued: {outcome.message}")
        return outcome

    def _note(self, machine: Object, outcome: drain.Outcome) -> Object:
        now, status = self._shop.clock.wall(), machine_status.draft(machine)
        if outcome.drained:
            machine_status.set_condition(status, now, conditions.DRAINED, "True", message=outcome.message)
        else:
            machine_status.set_condition(
                status, now, conditions.DRAINED, "False", conditions.DRAIN_ERROR, outcome.message, "Warning"
            )
        return self._shop.writer.status(machine, status)

    # -- instance --------------------------------------------------------------------------------------------------

    def _remove_instance(self, machine: Object) -> float | None:
        """Take the next step of its removal; says when to look again, or None if there surely is no instance."""
        shop = self._shop
        wanted = shop.wanted(machine)
        shop.check()
        try:
            is_ordered = shop.actuator.delete(wanted)
        except errors.NotFound:
            return self._doubt(machine)
        except errors.Terminal as refused:
            # A spec that never made sense: no instance can have been made of it, if the platform says so too.
            if phases.is_provisioned(machine) or shop.actuator.exists(wanted) is not None:
                self._not_removed(machine, refused)
            return self._doubt(machine)
        except errors.PlatformFailure as failure:
            self._not_removed(machine, failure)
        self._proceeds(machine, is_ordered=is_ordered)
        shop.recorder.event(machine, "Normal", DELETE, f"Deleting the instance of {objects.name(machine)}")
        return GOING

    def _proceeds(self, machine: Object, *, is_ordered: bool) -> None:
        now, status = self._shop.clock.wall(), machine_status.draft(machine)
        # It was found: what was missed before counts no more.
        self._absences.forget(machine)
        machine_status.set_condition(status, now, conditions.INSTANCE_EXISTS, "True")
        state = SUCCESSFUL if is_ordered else PROCESSING
        machine_status.operation(status, now, DELETE, state, "the instance is being removed")
        self._shop.writer.status(machine, status)

    def _doubt(self, machine: Object) -> float | None:
        """It was not found. When to look again, if that does not mean that there surely is none."""
        was_there = phases.is_provisioned(machine) or machine_status.is_met(machine)
        rest = self._missed(machine) if was_there and not machine_status.is_ordered(machine) else 0.0
        return max(filter(None, (rest, self._unseen(machine))), default=None)

    def _missed(self, machine: Object) -> float:
        """For how long it is looked for yet: it was there, and nobody has seen it go."""
        status = machine_status.draft(machine)
        rest = self._absences.miss(machine, status, self._shop.clock.wall())
        self._shop.writer.status(machine, status)
        return rest

    def _unseen(self, machine: Object) -> float | None:
        """Whether an instance may yet show: one that was made a moment ago, or asked for by somebody who then died."""
        begun = machine_status.unseen_since(machine)
        if begun is None:
            return None
        rest = self._shop.settle - (self._shop.clock.wall() - begun).total_seconds()
        return min(rest, GOING) if rest > 0 else None

    def _not_removed(self, machine: Object, failure: errors.PlatformFailure) -> None:
        self._shop.failed(machine, DELETE, failure)
        # While an instance may yet show, the last operation says since when, and nothing else may take its place.
        if self._unseen(machine) is None:
            now, status = self._shop.clock.wall(), machine_status.draft(machine)
            # What is ordered stays so: one that is being removed may be locked, and is gone at the next look.
            state = SUCCESSFUL if machine_status.is_ordered(machine) else FAILED
            machine_status.operation(status, now, DELETE, state, failure.told())
            self._shop.writer.status(machine, status)
        raise failure

    # -- node ------------------------------------------------------------------------------------------------------

    def _remove_node(self, machine: Object) -> None:
        if not objects.node_name(machine) and not phases.is_provisioned(machine) and not machine_status.is_met(machine):
            # It never was an instance, so what bears its name is somebody else's.
            return
        # One that has come and was not linked yet bears the machine's name: nobody else would ever remove it.
        name = objects.node_name(machine) or objects.name(machine)
        try:
            node = self._shop.client.get(kinds.NODE, name)
            if self._is_its(machine, node):
                self._shop.client.delete(kinds.NODE, name, uid=objects.uid(node))
        except (api_errors.NotFound, api_errors.Conflict):
            # Gone, or another one has its name by now, which is not ours to remove.
            return

    def _is_its(self, machine: Object, node: Object) -> bool:
        """A node of that name may be another machine's by now, even of one that is called as this one was."""
        named, known = objects.provider_id(node), objects.provider_id(machine)
        if named and known and named != known:
            return False
        marked = objects.notes(node).get(objects.MACHINE_ANNOTATION) or ""
        if marked:
            return marked == objects.key(machine)
        return named in ("", known) and objects.node_uid(machine) in ("", objects.uid(node))
