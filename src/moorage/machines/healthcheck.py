"""MachineHealthChecks: machines whose nodes are sick for too long are replaced, as long as most are well.

A check judges all machines that it selects, by `healthcheck_rules`. If more are unhealthy than it allows, the cause is
likely to be elsewhere (the network, a power cut) and nothing is touched; else `remediation` sees to each. What is not
unhealthy yet is looked at again at the very moment when it would be.
"""

from __future__ import annotations

import dataclasses
import datetime
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from moorage.engine import clock as clocks
from moorage.machines import conditions, events, healthcheck_rules, machineset_rules, objects, phases, remediation
from moorage.machines.runtime import client as clients
from moorage.machines.runtime import controller, errors, informer, kinds, metrics, queue

Object = Mapping[str, Any]

REMEDIATION_ALLOWED: Final = "RemediationAllowed"
TEMPLATE_AVAILABLE: Final = "ExternalRemediationTemplateAvailable"
REQUEST_AVAILABLE: Final = "ExternalRemediationRequestAvailable"
TOO_MANY: Final = "TooManyUnhealthy"
INVALID: Final = "InvalidConfiguration"
RESTRICTED: Final = "RemediationRestricted"
DETECTED: Final = "DetectedUnhealthy"

#: Cloud seconds after which a machine that may become unhealthy is looked at again, at the latest.
_LATEST: Final = 3600.0
_NODE: Final = "node of a check"


@dataclasses.dataclass(frozen=True)
class Judged:
    """A machine and how it is."""

    machine: Object
    verdict: healthcheck_rules.Verdict


@dataclasses.dataclass(frozen=True)
class Tally:
    """All machines of a check, and how many of them may be unhealthy."""

    judged: tuple[Judged, ...]
    limit: int

    @property
    def healthy(self) -> list[Object]:
        return [each.machine for each in self.judged if isinstance(each.verdict, healthcheck_rules.Healthy)]

    @property
    def unhealthy(self) -> list[Object]:
        """Those to be remediated; what may become unhealthy or is going counts as not healthy, and is not here."""
        return [each.machine for each in self.judged if isinstance(each.verdict, healthcheck_rules.Unhealthy)]

    @property
    def not_healthy(self) -> int:
        return len(self.judged) - len(self.healthy)

    @property
    def is_allowed(self) -> bool:
        return self.not_healthy <= self.limit

    @property
    def soonest(self) -> float | None:
        """When the next machine may become unhealthy, in seconds."""
        waits = [each.verdict.seconds for each in self.judged if isinstance(each.verdict, healthcheck_rules.Waiting)]
        return min(_LATEST, *waits) if waits else None


class HealthChecks:
    """Looks after checks; its keys are theirs. ``check`` raises if this process may no longer act."""

    def __init__(
        self,
        client: clients.Client,
        checks: informer.Informer,
        machines: informer.Informer,
        nodes: informer.Informer,
        *,
        clock: clocks.Clock,
        check: Callable[[], None],
        recorder: events.Recorder,
    ) -> None:
        self._client = client
        self._checks = checks
        self._machines = machines
        self._nodes = nodes
        self._clock = clock
        self._recorder = recorder
        self._remediation = remediation.Remediation(client, clock, recorder, check)
        machines.add_index(_NODE, lambda machine: filter(None, (objects.node_name(machine),)))

    # -- what makes it look ------------------------------------------------------------------------------------------

    def feed(self, keys: queue.Queue) -> None:
        """Have the checks looked at that a change is about."""
        self._checks.on(lambda change: keys.add(change.key))

        def machine_changed(change: informer.Change) -> None:
            old, new = change
            if old is not None and new is not None and old is not new and _relevant(old) == _relevant(new):
                return
            for machine in filter(None, change):
                self._covering(machine, keys)

        def node_changed(change: informer.Change) -> None:
            # Kubelets report every few seconds, and mostly nothing new.
            if _health(change.old) != _health(change.new):
                for machine in self._machines.by_index(_NODE, change.key):
                    self._covering(machine, keys)

        self._machines.on(machine_changed)
        self._nodes.on(node_changed)

    def _covering(self, machine: Object, keys: queue.Queue) -> None:
        for check in self._checks.list():
            if objects.namespace(check) != objects.namespace(machine):
                continue
            try:
                # A machine that has just been marked to be skipped leaves the count.
                if healthcheck_rules.read(check).selector.chooses(machine):
                    keys.add(objects.key(check))
            except healthcheck_rules.InvalidCheck:
                continue

    # -- looking -----------------------------------------------------------------------------------------------------

    def reconcile(self, key: str) -> controller.Result:
        found = self._checks.get(key)
        if found is None or objects.is_deleted(found):
            _forget(key)
            return controller.DONE
        if machineset_rules.is_paused(found):
            return controller.DONE
        try:
            rules = healthcheck_rules.read(found)
            judged = self._judge(found, rules)
            tally = Tally(judged, healthcheck_rules.limit(found, len(judged)))
        except healthcheck_rules.InvalidCheck as wrong:
            self._refuse(found, wrong.message)
            return controller.DONE
        metrics.NODES_COVERED.labels(objects.name(found), objects.namespace(found)).set(len(tally.judged))
        metrics.SHORT_CIRCUIT.labels(objects.name(found), objects.namespace(found)).set(not tally.is_allowed)
        self._announce(found, tally)
        problems = self._act(found, tally, rules) if tally.is_allowed else []
        self._write(found, status(found, tally, problems, self._clock.wall()))
        if problems:
            raise problems[0]
        return controller.Result(tally.soonest)

    def _judge(self, found: Object, rules: healthcheck_rules.Rules) -> tuple[Judged, ...]:
        now, place = self._clock.wall(), objects.namespace(found)
        covered = (each for each in self._machines.list() if objects.namespace(each) == place and rules.covers(each))
        return tuple(
            Judged(machine, healthcheck_rules.judge(machine, self._node_of(machine), rules, now))
            for machine in sorted(covered, key=objects.name)
        )

    def _node_of(self, machine: Object) -> Object | None:
        name = objects.node_name(machine)
        return self._nodes.get(name) if name else None

    def _announce(self, found: Object, tally: Tally) -> None:
        for machine, verdict in ((each.machine, each.verdict) for each in tally.judged):
            if isinstance(verdict, healthcheck_rules.Waiting) and verdict.why:
                node = objects.node_name(machine)
                message = f"Machine {remediation.told(found, machine)} has unhealthy node {node}"
                self._recorder.event(machine, events.NORMAL, DETECTED, message)
        if not tally.is_allowed:
            message = f"Remediation restricted due to exceeded number of unhealthy machines ({_numbers(found, tally)})"
            self._recorder.event(found, events.WARNING, RESTRICTED, message)

    def _act(self, found: Object, tally: Tally, rules: healthcheck_rules.Rules) -> list[errors.ApiError]:
        """See to every unhealthy machine; that one fails does not keep the others waiting."""
        problems: list[errors.ApiError] = []

        def attempt(step: Callable[[], None]) -> None:
            try:
                step()
            except errors.ApiError as refused:
                problems.append(refused)

        if not objects.spec(found).get("remediationTemplate"):
            for machine in tally.unhealthy:
                attempt(functools.partial(self._remediation.remediate, found, machine, rules))
            return problems
        try:
            asked = self._remediation.requests(found)
        except errors.ApiError as refused:
            return [refused]
        for machine in tally.unhealthy:
            if objects.name(machine) not in asked:
                attempt(functools.partial(self._remediation.ask, found, machine, rules))
        for machine in tally.healthy:
            if (made := asked.get(objects.name(machine))) is not None:
                attempt(functools.partial(self._remediation.withdraw, found, made))
        return problems

    # -- writing -----------------------------------------------------------------------------------------------------

    def _refuse(self, found: Object, message: str) -> None:
        now = self._clock.wall()
        listed = conditions.set_condition(
            objects.conditions(found), REMEDIATION_ALLOWED, "False", INVALID, message, "Error", now
        )
        self._write(found, {"remediationsAllowed": 0, "conditions": listed})

    def _write(self, found: Object, wanted: Mapping[str, Any]) -> None:
        present = objects.status(found)
        change = {key: value for key, value in wanted.items() if present.get(key) != value}
        if not change:
            return
        body = {"metadata": {"uid": objects.uid(found)}, "status": change}
        name, place = objects.name(found), objects.namespace(found)
        try:
            self._client.patch(kinds.MACHINE_HEALTH_CHECK, name, place, body, subresource="status")
        except errors.NotFound:
            return  # it has gone, and nobody will miss that


def status(check: Object, tally: Tally, problems: Sequence[errors.ApiError], now: datetime.datetime) -> dict[str, Any]:
    """The check's status after a look at all its machines."""
    found: Sequence[Mapping[str, Any]] = objects.conditions(check)
    if tally.is_allowed:
        found = conditions.set_condition(found, REMEDIATION_ALLOWED, "True", now=now)
        for kind, reason, failure in (
            (TEMPLATE_AVAILABLE, "ExternalRemediationTemplateNotFound", remediation.TemplateMissing),
            (REQUEST_AVAILABLE, "ExternalRemediationRequestCreationFailed", remediation.RequestRefused),
        ):
            problem = next((each for each in problems if isinstance(each, failure)), None)
            if problem is not None:
                found = conditions.set_condition(found, kind, "False", reason, problem.message, "Error", now)
            elif conditions.find(found, kind):
                found = conditions.set_condition(found, kind, "True", now=now)
    else:
        message = (
            "Remediation is not allowed, the number of not started or unhealthy machines exceeds maxUnhealthy "
            f"({_numbers(check, tally)})"
        )
        found = conditions.set_condition(found, REMEDIATION_ALLOWED, "False", TOO_MANY, message, "Warning", now)
    return {
        "expectedMachines": len(tally.judged),
        "currentHealthy": len(tally.healthy),
        "remediationsAllowed": max(0, tally.limit - tally.not_healthy),
        "conditions": list(found),
    }


def _numbers(check: Object, tally: Tally) -> str:
    most = objects.spec(check).get("maxUnhealthy")
    return f"total: {len(tally.judged)}, unhealthy: {tally.not_healthy}, maxUnhealthy: {most}"


def _relevant(machine: Object) -> tuple[object, ...]:
    """What of a machine its checks go by."""
    meta = objects.metadata(machine)
    parts = (objects.uid(machine), objects.labels(machine), meta.get("annotations"), meta.get("deletionTimestamp"))
    return (*parts, phases.phase(machine), objects.node_name(machine), meta.get("ownerReferences"))


def _health(node: Object | None) -> tuple[object, ...] | None:
    if node is None:
        return None
    told = (
        tuple(str(each.get(field)) for field in ("type", "status", "lastTransitionTime"))
        for each in objects.conditions(node)
    )
    return (objects.uid(node), *sorted(told))


def _forget(key: str) -> None:
    place, name = objects.split(key)
    for gauge in (metrics.NODES_COVERED, metrics.SHORT_CIRCUIT):
        try:
            gauge.remove(name, place)
        except KeyError:
            continue
