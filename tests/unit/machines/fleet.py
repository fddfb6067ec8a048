"""Sets, machines, nodes and checks in a cluster of memory, and caches of them that are as late as a test wants."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Mapping
from typing import Any

from moorage.engine import clock as clocks
from moorage.machines import capacity, events, healthcheck, machineset
from moorage.machines.runtime import controller, errors, kinds
from tests.unit.machines import followed, memory

Object = dict[str, Any]

PLACE = "openshift-machine-api"
SET = "berth-worker-0"
KEY = f"{PLACE}/{SET}"
CHECK = "workers"
LABELS = {"machine.openshift.io/cluster-api-machineset": SET}
START = datetime.datetime(2026, 3, 1, 12, 0, 0, tzinfo=datetime.UTC)


class Keys:
    """In the place of a queue: what was added since it was last read."""

    def __init__(self) -> None:
        self._added: set[str] = set()

    def add(self, key: str) -> None:
        self._added.add(key)

    def taken(self) -> set[str]:
        found, self._added = self._added, set()
        return found


class Fleet:
    """A cluster with both controllers. ``leading`` says whether this process may act."""

    def __init__(self, reading: capacity.Reading | None = None) -> None:
        self.clock = clocks.ManualClock(wall=START)
        self.api = memory.Memory(self.clock)
        self.leading = True
        self.boot(reading)

    def boot(self, reading: capacity.Reading | None = None) -> None:
        """Begin anew, as a process that has just started: with empty caches, and no memory of what it expected."""
        kept = (kinds.MACHINE_SET, kinds.MACHINE, kinds.NODE, kinds.MACHINE_HEALTH_CHECK)
        self.sets, self.machines, self.nodes, self.checks = (followed.Followed(self.api, kind) for kind in kept)
        self.keys, self.check_keys = Keys(), Keys()
        api: Any = self.api
        caches: Any = (self.machines, self.nodes)
        recorder = events.Recorder(api, self.clock, "test")
        self.controller = machineset.MachineSets(
            api,
            self.sets,  # type: ignore[arg-type]
            *caches,
            clock=self.clock,
            check=self._check,
            recorder=recorder,
            reading=reading,
        )
        self.controller.feed(self.keys)  # type: ignore[arg-type]
        self.health = healthcheck.HealthChecks(
            api,
            self.checks,  # type: ignore[arg-type]
            *caches,
            clock=self.clock,
            check=self._check,
            recorder=recorder,
        )
        self.health.feed(self.check_keys)  # type: ignore[arg-type]

    def _check(self) -> None:
        if not self.leading:
            raise errors.NotLeader("the lease was lost")

    # -- what happens ------------------------------------------------------------------------------------------------

    def sync(self) -> None:
        for cache in (self.sets, self.machines, self.nodes, self.checks):
            cache.step()

    def reconcile(self, key: str = KEY) -> controller.Result:
        """Look once, with caches that are up to date."""
        self.sync()
        return self.controller.reconcile(key)

    def settle(self) -> None:
        """Follow the events until nothing is to be done any more."""
        self.sync()
        for _ in range(50):
            keys = self.keys.taken()
            if not keys:
                return
            for key in sorted(keys):
                self.controller.reconcile(key)
            self.sync()
        raise AssertionError("it does not come to rest")

    def look(self) -> controller.Result:
        """The check looks once, with caches that are up to date."""
        self.sync()
        return self.health.reconcile(f"{PLACE}/{CHECK}")

    # -- what there is -----------------------------------------------------------------------------------------------

    def add_set(self, replicas: int | None = 3, **spec: Any) -> Object:
        template = {"metadata": {"labels": dict(LABELS)}, "spec": {"providerSpec": {"value": {"size": 1}}}}
        body = {"selector": {"matchLabels": dict(LABELS)}, "template": template, **spec}
        body |= {} if replicas is None else {"replicas": replicas}
        meta = {"name": SET, "namespace": PLACE, "generation": 1}
        return self.api.put(kinds.MACHINE_SET, {**_typed(kinds.MACHINE_SET), "metadata": meta, "spec": body})

    def scale(self, replicas: int) -> None:
        self.edit_set(lambda found: found["spec"].update(replicas=replicas))

    def edit_set(self, how: Callable[[Object], None]) -> None:
        """Change the set's spec."""

        def change(found: Object) -> None:
            how(found)
            found["metadata"]["generation"] += 1

        self.api.change(kinds.MACHINE_SET, SET, PLACE, change)

    def the_set(self) -> Object:
        found = self.api.have(kinds.MACHINE_SET, SET, PLACE)
        assert found is not None
        return found

    def status(self) -> Object:
        return self.the_set().get("status") or {}

    def add_machine(self, name: str, *, owner: Object | None = None, **parts: Any) -> Object:
        """A machine with the set's labels; ``owner`` controls it."""
        meta: Object = {"name": name, "namespace": PLACE, "labels": dict(LABELS), **parts.pop("metadata", {})}
        if owner is not None:
            meta["ownerReferences"] = [reference(owner)]
        return self.api.put(kinds.MACHINE, {**_typed(kinds.MACHINE), "metadata": meta, "spec": {}, **parts})

    def edit_machine(self, name: str, how: Callable[[Object], None]) -> None:
        self.api.change(kinds.MACHINE, name, PLACE, how)

    def machine(self, name: str) -> Object | None:
        return self.api.have(kinds.MACHINE, name, PLACE)

    def names(self) -> list[str]:
        """The machines that are there and not going."""
        return sorted(
            found["metadata"]["name"]
            for (kind, _, _), found in self.api.objects.items()
            if kind == str(kinds.MACHINE) and not found["metadata"].get("deletionTimestamp")
        )

    def add_node(self, name: str, *, ready: str = "True", since: datetime.datetime | None = None) -> Object:
        told = [{"type": "Ready", "status": ready, "lastTransitionTime": memory.stamp(since or self.clock.wall())}]
        body = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}, "status": {"conditions": told}}
        return self.api.put(kinds.NODE, body)

    def become_node(self, machine: str, **node: Any) -> None:
        """The machine's node is there."""
        self.add_node(machine, **node)
        self.edit_machine(machine, lambda found: found.setdefault("status", {}).update(nodeRef={"name": machine}))

    def add_check(self, *, notes: Mapping[str, str] | None = None, **spec: Any) -> Object:
        sick = [{"type": "Ready", "status": status, "timeout": "5m"} for status in ("False", "Unknown")]
        body = {"selector": {"matchLabels": dict(LABELS)}, "unhealthyConditions": sick, **spec}
        meta = {"name": CHECK, "namespace": PLACE, "generation": 1, "annotations": dict(notes or {})}
        kind = kinds.MACHINE_HEALTH_CHECK
        return self.api.put(kind, {**_typed(kind), "metadata": meta, "spec": body})

    def check_status(self) -> Object:
        found = self.api.have(kinds.MACHINE_HEALTH_CHECK, CHECK, PLACE)
        assert found is not None
        return found.get("status") or {}

    def reasons(self) -> list[str]:
        """The reasons of all events."""
        return [found["reason"] for found in self.api.events()]

    def calls(self, verb: str, plural: str = "machines") -> list[str]:
        return [call for call in self.api.calls if call.startswith(f"{verb} {plural} ")]


def reference(owner: Object, *, is_controller: bool = True) -> Object:
    meta = owner["metadata"]
    found = {"apiVersion": owner["apiVersion"], "kind": owner["kind"], "name": meta["name"], "uid": meta["uid"]}
    return {**found, "controller": True, "blockOwnerDeletion": True} if is_controller else found


def condition(status: Object, kind: str) -> Object:
    return next(each for each in status["conditions"] if each["type"] == kind)


def _typed(kind: kinds.Kind) -> Object:
    return {"apiVersion": kind.api_version, "kind": kind.kind}
