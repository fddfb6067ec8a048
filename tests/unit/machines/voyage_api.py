"""The API of a voyage: it counts the faults that strike, and watches laws that hold at every moment.

What is written is judged when it is written: a node that is called drained while pods run on it, and a node that is
removed while its instance is up, are found out even if all looks well in the end.
"""

from __future__ import annotations

import collections
import copy
from collections.abc import Callable, Mapping
from typing import Any, Final

from moorage.engine import clock as clocks
from moorage.machines import conditions, objects
from moorage.machines.runtime import informer, kinds
from tests.unit.machines import followed, memory

Object = dict[str, Any]

#: Cloud seconds after which a cache tells all it has once more.
RESYNC: Final = 600.0
#: Moments of calls at which a leader may be stopped: an instance is about to be asked for, that was written down.
BEGUN: Final = "begun"


class Killed(BaseException):
    """The controllers' process was killed (-9)."""


def nothing(_moment: str) -> None:
    """Nobody waits for any moment."""


class Api(memory.Memory):
    """Does not keep events: there are many. ``fired`` counts what went wrong, ``broken`` tells of laws that were."""

    def __init__(self, clock: clocks.Clock) -> None:
        super().__init__(clock)
        self.fired: collections.Counter[str] = collections.Counter()
        self.broken: list[str] = []
        #: Told of each write of a controller, right after it.
        self.passed: Callable[[str], None] = nothing
        #: Names of instances that are up.
        self.up: Callable[[], set[str]] = set
        self._by_hand = False

    def create(self, kind: kinds.Kind, body: Mapping[str, Any]) -> Object:
        if kind == kinds.EVENT:
            with self._called("create events"):
                self.fired[f"told: {body.get('reason')}"] += 1
                return copy.deepcopy(dict(body))
        made = super().create(kind, body)
        self._passed(f"create {kind.plural}")
        return made

    def patch(self, kind: kinds.Kind, name: str, ns: str, body: Any, **how: Any) -> Object:
        found = super().patch(kind, name, ns, body, **how)
        if kind == kinds.MACHINE:
            self._judge_drained(found, body)
        last = ((body.get("status") or {}).get("lastOperation") or {}).get("description")
        if last == "the instance is asked for":
            self._passed(BEGUN)
        self._passed(f"patch {kind.plural}")
        return found

    def delete(self, kind: kinds.Kind, name: str, ns: str = "", *, uid: str = "", **more: Any) -> None:
        super().delete(kind, name, ns, uid=uid, **more)
        if kind == kinds.NODE and name in self.up():
            self.broken.append(f"node {name} was removed, and its instance is up")
        self._passed(f"delete {kind.plural}")

    def calm(self) -> None:
        """No trouble is to come any more."""
        self._troubles.clear()

    def by_hand(self, act: Callable[[], object]) -> None:
        """Somebody else's call, which no ordered trouble meets."""
        troubles, self._troubles, self._by_hand = self._troubles, [], True
        try:
            act()
        finally:
            self._troubles, self._by_hand = troubles, False

    def pods_on(self, node: str) -> list[Object]:
        pods = [each for (kind, _, _), each in self.objects.items() if kind == str(kinds.POD)]
        return [each for each in pods if each["spec"]["nodeName"] == node]

    def _judge_drained(self, machine: Object, body: Mapping[str, Any]) -> None:
        said = (body.get("status") or {}).get("conditions") or ()
        node = objects.node_name(machine)
        if not node or not conditions.is_true(said, conditions.DRAINED) or self.have(kinds.NODE, node) is None:
            return
        if left := [objects.name(pod) for pod in self.pods_on(node)]:
            self.broken.append(f"node {node} was called drained, and has {left}")

    def _passed(self, moment: str) -> None:
        if not self._by_hand:
            self.passed(moment)

    def _called(self, call: str) -> Any:
        found = super()._called(call)
        if found._failure is not None:
            self.fired[f"API: {type(found._failure).__name__} {found._when}"] += 1
        return found


class Cache(followed.Followed):
    """Is up to date unless its watch is stuck, and tells all it has now and then, as informers do."""

    def __init__(self, api: Api, kind: kinds.Kind, clock: clocks.Clock) -> None:
        super().__init__(api, kind)
        self._counted = api.fired
        self._clock = clock
        self._told = clock.now()
        self.stuck_until = 0.0

    def step(self) -> None:
        is_behind = self._is_behind()
        if self._clock.now() < self.stuck_until:
            self._counted["cache: behind"] += is_behind
            return
        if is_behind:
            super().step()
        if self._clock.now() - self._told >= RESYNC:
            self._told = self._clock.now()
            for each in self.list():
                for handler in self._handlers:
                    handler(informer.Change(each, each))

    def _is_behind(self) -> bool:
        now = {
            each["metadata"]["resourceVersion"]
            for (kind, _, _), each in self._api.objects.items()
            if kind == str(self.kind)
        }
        return now != {each["metadata"]["resourceVersion"] for each in self._known.values()}
