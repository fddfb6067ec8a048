"""A cluster with machines to try the machine controller on: an API in memory, a yard as platform, a clock at hand."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from moorage.engine import clock as clocks
from moorage.machines import machine, nodelink, objects
from moorage.machines.runtime import kinds
from tests.unit.machines import memory, yard

INFRA = "harbour-x7k2p"
NAMESPACE = "openshift-machine-api"
NAME = "harbour-x7k2p-worker-0-abcde"
KEY = f"{NAMESPACE}/{NAME}"
USER_DATA = b'{"ignition":{"version":"3.2.0"}}'
NODE_UID = "uid-of-the-node"


def machine_object(name: str = NAME, **spec: Any) -> dict[str, Any]:
    """A Machine as a person or a MachineSet writes it."""
    return {
        "apiVersion": objects.API,
        "kind": "Machine",
        "metadata": {
            "name": name,
            "namespace": NAMESPACE,
            "labels": {objects.CLUSTER_LABEL: INFRA, objects.ROLE_LABEL: "worker"},
        },
        "spec": {"providerSpec": {"value": {"userDataSecret": {"name": "worker-user-data"}}}, **spec},
    }


def node(name: str = NAME, *, ready: str = "True", **labels: str) -> dict[str, Any]:
    return {
        "metadata": {"name": name, "uid": f"uid-of-{name}", "labels": labels},
        "spec": {},
        "status": {"conditions": [{"type": "Ready", "status": ready}]},
    }


class KilledError(Exception):
    """The controller's process was killed."""


class Cache:
    """An informer over the API in memory, which can be late: ``hold`` keeps it at what it has seen."""

    def __init__(self, api: memory.Memory) -> None:
        self._api = api
        self._held: dict[str, dict[str, Any] | None] = {}
        self._indexes: dict[str, Callable[[Mapping[str, Any]], Iterable[str]]] = {}

    def get(self, key: str) -> dict[str, Any] | None:
        if key in self._held:
            return self._held[key]
        namespace, name = objects.split(key)
        return self._api.have(kinds.MACHINE, name, namespace)

    def add_index(self, name: str, function: Callable[[Mapping[str, Any]], Iterable[str]]) -> None:
        self._indexes[name] = function

    def by_index(self, name: str, value: str) -> list[dict[str, Any]]:
        listed = [f"{space}/{each}" for (kind, space, each) in self._api.objects if kind == str(kinds.MACHINE)]
        found = [each for key in {*listed, *self._held} if (each := self.get(key)) is not None]
        return [each for each in found if value in self._indexes[name](each)]

    def hold(self, key: str) -> None:
        self._held[key] = self.get(key)

    def release(self) -> None:
        self._held.clear()


class World:
    """Everything together. ``check`` may be replaced by one that raises."""

    def __init__(self, **platform: Any) -> None:
        self.clock = clocks.ManualClock()
        self.api = memory.Memory(self.clock)
        self.yard = yard.Yard(self.clock, **platform)
        self.cache = Cache(self.api)
        nodelink.index(self.cache)  # type: ignore[arg-type]
        self.check: Callable[[], None] = lambda: None
        self.vips: tuple[str, ...] = ()
        #: By whose word the platform answers: replaced when the credentials are.
        self.source = object()
        self.deaths = 0
        self.api.put(
            kinds.SECRET,
            {
                "metadata": {"name": "worker-user-data", "namespace": NAMESPACE},
                "data": {"userData": base64.b64encode(USER_DATA).decode()},
            },
        )
        self.controller = self.restarted()

    def restarted(self, **settings: Any) -> machine.Machines:
        """A controller that remembers nothing, as after a crash."""
        self.controller = machine.Machines(
            self.api,  # type: ignore[arg-type]
            self.cache,  # type: ignore[arg-type]
            self.yard,
            self.clock,
            lambda: self.check(),
            infra_id=INFRA,
            **{"vips": lambda: self.vips, "source": lambda: self.source, **settings},
        )
        return self.controller

    # -- objects ---------------------------------------------------------------------------------------------------

    def put(self, found: Mapping[str, Any] | None = None) -> dict[str, Any]:
        return self.api.put(kinds.MACHINE, found or machine_object())

    @property
    def machine(self) -> dict[str, Any]:
        found = self.api.have(kinds.MACHINE, NAME, NAMESPACE)
        assert found is not None, "the Machine is gone"
        return found

    @property
    def is_gone(self) -> bool:
        return self.api.have(kinds.MACHINE, NAME, NAMESPACE) is None

    @property
    def status(self) -> dict[str, Any]:
        found: dict[str, Any] = self.machine.get("status", {})
        return found

    @property
    def phase(self) -> str:
        return str(self.status.get("phase", ""))

    def condition(self, kind: str) -> dict[str, Any]:
        return next((each for each in self.status.get("conditions", ()) if each["type"] == kind), {})

    def change(self, how: Callable[[dict[str, Any]], None]) -> None:
        self.api.change(kinds.MACHINE, NAME, NAMESPACE, how)

    def join(self) -> None:
        """The machine has become a node."""
        self.api.put(kinds.NODE, node())
        reference = {"kind": "Node", "name": NAME, "uid": f"uid-of-{NAME}"}
        self.change(lambda found: found.setdefault("status", {}).update(nodeRef=reference))

    def fall_silent(self) -> None:
        """Its node has ceased to report."""
        self.api.put(kinds.NODE, node(ready="Unknown"))

    def sink(self) -> None:
        """Its instance is lost, and with it whatever ran there."""
        self.yard.sink(NAME)
        self.fall_silent()

    def delete(self) -> None:
        """Somebody deletes the Machine."""
        self.api.delete(kinds.MACHINE, NAME, NAMESPACE)

    def pod(self, name: str, **content: Any) -> dict[str, Any]:
        found = {
            "metadata": {
                "name": name,
                "namespace": "app",
                "ownerReferences": [
                    {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "controller": True, "uid": "rs"}
                ],
                **content.pop("metadata", {}),
            },
            "spec": {"nodeName": NAME, **content.pop("spec", {})},
            "status": {"phase": "Running", **content.pop("status", {})},
        }
        return self.api.put(kinds.POD, found)

    def reasons(self) -> list[str]:
        """The reasons of the events that were told."""
        return [each["reason"] for each in self.api.events()]

    # -- deaths ----------------------------------------------------------------------------------------------------

    def kill_at(self, place: str, when: str) -> None:
        """Kill the controller at its n-th call of the platform (``platform 2``) or write to the API (``write 3``).

        ``when`` is before it takes effect, or after: who made it does not learn of it.
        """
        side, number = place.split()[0], int(place.split()[1])
        if side == "platform":
            self.yard.before = lambda call: self._kill_platform(call, number, when)
            return
        called = self.api._called

        def at_write(line: str) -> Any:
            if line.split()[0] not in ("get", "list") and len(self.api.writes) == number:
                self.api._called = called  # type: ignore[method-assign]
                self.api.trouble(line, KilledError(), when)
            return called(line)

        self.api._called = at_write  # type: ignore[method-assign]

    def _kill_platform(self, call: str, number: int, when: str) -> None:
        if len(self.yard.calls) != number:
            return
        self.yard.before = lambda _: None
        if when == "before":
            raise KilledError
        self.yard.fail(call.split()[0], KilledError(), after=True)

    def outlive(self, until: Callable[[], bool]) -> None:
        """Reconcile, with a new controller after each death, until something is so."""
        end = self.clock.now() + 3600.0
        while not until():
            assert self.clock.now() < end, "it is not so after an hour"
            if not self.yard.of(NAME) and self.api.have(kinds.NODE, NAME) is not None:
                self.fall_silent()  # no instance, no kubelet
            try:
                wanted = self.turn()
            except KilledError:
                self.deaths += 1
                wanted = 1.0
                self.restarted()
            self.clock.advance(wanted or 30.0)

    def places(self) -> list[str]:
        """Every call of the platform and every write to the API so far."""
        calls = [f"platform {number}" for number in range(len(self.yard.calls))]
        return [*calls, *(f"write {number}" for number in range(len(self.api.writes)))]

    # -- time ------------------------------------------------------------------------------------------------------

    def turn(self) -> float | None:
        """One reconcile; says when the next is wanted."""
        return self.controller.reconcile(KEY).requeue_after

    def run(self, until: Callable[[], bool], seconds: float = 3600.0) -> None:
        """Reconcile whenever it is wanted (after a failure, or if nothing is: in 30 s) until something is so."""
        end = self.clock.now() + seconds
        while not until():
            assert self.clock.now() < end, (
                f"it is not so after {seconds} s: {self.api.have(kinds.MACHINE, NAME, NAMESPACE)}"
            )
            try:
                wanted = self.turn()
            except Exception:  # noqa: BLE001 - as the controller's worker does
                wanted = 30.0
            if not until():
                self.clock.advance(30.0 if wanted is None else wanted)

    def running(self) -> None:
        """Bring a Machine to Running."""
        self.put()
        self.run(lambda: self.phase == "Provisioned")
        self.join()
        self.turn()
        assert self.phase == "Running"
