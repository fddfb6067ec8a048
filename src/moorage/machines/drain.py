"""Draining a node before its instance is taken away: closed to new pods first, then every pod is asked to leave.

An attempt asks each pod once and returns with those that are left, so that no worker waits for a pod; the controller
comes again, ever later as long as nothing moves. Budgets are honoured always: a pod that may not be disturbed holds the
machine, and the machine says which budget it is. Control-plane nodes go one at a time, or etcd would lose its quorum.
"""

from __future__ import annotations

import dataclasses
import functools
import threading
from collections.abc import Mapping
from typing import Any, Final

from moorage.engine import clock as clocks
from moorage.machines import drain_pods, objects
from moorage.machines.runtime import client as clients
from moorage.machines.runtime import errors, kinds

Object = Mapping[str, Any]

#: Cloud seconds: of one attempt, from one to the next, and until one that was not permitted is tried again.
ATTEMPT: Final = 20.0
SOONEST, LATEST = 5.0, 1000.0
NOT_PERMITTED: Final = 20.0

_SHOWN: Final = 10


@dataclasses.dataclass(frozen=True)
class Outcome:
    """Whether the node is empty; if not, why, and when to come again."""

    drained: bool
    message: str
    again: float | None = None


@dataclasses.dataclass(frozen=True)
class _Left:
    """A pod that is still there."""

    key: str
    why: str
    retry_after: float = 0.0

    def __str__(self) -> str:
        return f"{self.key} ({self.why})"


class Drainer:
    """Drains nodes; shared by threads."""

    def __init__(self, client: clients.Client, clock: clocks.Clock) -> None:
        self._client = client
        self._clock = clock
        # One control-plane node is chosen at a time: two that look at once would both see no other.
        self._choosing = threading.Lock()
        #: By the machine's uid: what was left the last time, and how often that has not changed.
        self._stuck: dict[str, tuple[frozenset[str], int]] = {}

    def attempt(self, machine: Object) -> Outcome:
        """Ask whatever is on the machine's node to leave, once."""
        name = objects.node_name(machine)
        try:
            node = self._client.get(kinds.NODE, name)
        except errors.NotFound:
            # Whoever deleted the node has ended its pods with it.
            return self._finished(machine, f"there is no node {name} any more")
        if (marked := objects.notes(node).get(objects.MACHINE_ANNOTATION)) not in (None, "", objects.key(machine)):
            # Its pods are not this machine's to end.
            return self._finished(machine, f"node {name} is another machine's by now: {marked}")
        refused = self._close(node)
        if refused is not None:
            return refused
        left = self._ask(name, unreachable=drain_pods.is_unreachable(node))
        if not left:
            return self._finished(machine, "Drain finished successfully")
        return Outcome(False, _told(name, left), self._pause(machine, left))

    def forget(self, machine: Object) -> None:
        """The machine is gone, or drained."""
        self._stuck.pop(objects.uid(machine), None)

    # -- closing ---------------------------------------------------------------------------------------------------

    def _close(self, node: Object) -> Outcome | None:
        """Let no new pods onto the node. One that is closed already is being drained: it is finished, not queued."""
        if drain_pods.is_cordoned(node):
            return None
        with self._choosing:
            if drain_pods.is_control_plane(node) and (other := self._other_closed(node)):
                why = f"control-plane node {other} is closed and may be drained just now: one goes at a time"
                return Outcome(False, why, NOT_PERMITTED)
            try:
                self._client.patch(kinds.NODE, objects.name(node), "", {"spec": {"unschedulable": True}})
            except errors.NotFound:
                return None
            except errors.ApiError as refused:
                return Outcome(False, f"node {objects.name(node)} cannot be closed: {refused.message}", NOT_PERMITTED)
        return None

    def _other_closed(self, node: Object) -> str:
        nodes, _ = self._client.list(kinds.NODE)
        found = sorted(
            objects.name(each)
            for each in nodes
            if objects.name(each) != objects.name(node)
            and drain_pods.is_control_plane(each)
            and drain_pods.is_cordoned(each)
        )
        return found[0] if found else ""

    # -- asking ----------------------------------------------------------------------------------------------------

    def _ask(self, node: str, *, unreachable: bool) -> list[_Left]:
        deadline = self._clock.deadline(ATTEMPT)
        grace = drain_pods.UNREACHABLE_GRACE if unreachable else None
        # Each set is asked for once in an attempt: a node has many pods of few sets.
        has_daemon_set = functools.cache(self._has_daemon_set)
        pods, _ = self._client.list(kinds.POD, fields=f"spec.nodeName={node}")
        left: list[_Left] = []
        for pod in sorted(pods, key=objects.key):
            verdict = drain_pods.judge(pod, has_daemon_set, unreachable=unreachable, now=self._clock.wall())
            if verdict is drain_pods.Verdict.STAYS:
                continue
            if verdict is drain_pods.Verdict.IS_GOING:
                left.append(_Left(objects.key(pod), "it is ending"))
            elif deadline.expired:
                left.append(_Left(objects.key(pod), "its turn comes with the next attempt"))
            elif (held := self._evict(pod, grace)) is not None:
                left.append(held)
        return left

    def _evict(self, pod: Object, grace: int | None) -> _Left | None:
        key = objects.key(pod)
        try:
            self._client.evict(objects.namespace(pod), objects.name(pod), uid=objects.uid(pod), grace=grace)
        except errors.NotFound:
            return None
        except errors.TooManyRequests as refused:
            return _Left(key, _budget(refused), refused.retry_after or 0.0)
        except (errors.Unauthorized, errors.Unavailable) as failure:
            if failure.code in (0, 401):
                # No pod's own trouble: the others would fare no better.
                raise
            return _Left(key, failure.words or failure.message)
        except errors.Conflict:
            # Another pod has its name by now; the next look shows where that one is.
            return _Left(key, "it was replaced meanwhile")
        except errors.ApiError as refused:
            if refused.because("NamespaceTerminating"):
                return _Left(key, "its namespace is ending")
            return _Left(key, refused.words or refused.message)
        return _Left(key, "it is ending")

    def _has_daemon_set(self, namespace: str, name: str) -> bool:
        try:
            self._client.get(kinds.DAEMON_SET, name, namespace)
        except errors.NotFound:
            return False
        return True

    # -- pace ------------------------------------------------------------------------------------------------------

    def _pause(self, machine: Object, left: list[_Left]) -> float:
        """Soon while pods leave; ever later while none does, as some need hours to finish what they do."""
        now_left = frozenset(each.key for each in left)
        before, times = self._stuck.get(objects.uid(machine), (frozenset(), 0))
        times = times + 1 if now_left == before else 0
        self._stuck[objects.uid(machine)] = (now_left, times)
        pause = min(LATEST, SOONEST * 2.0 ** min(times, 10))
        return max(pause, *(each.retry_after for each in left))

    def _finished(self, machine: Object, message: str) -> Outcome:
        self.forget(machine)
        return Outcome(True, message)


def _budget(refused: errors.TooManyRequests) -> str:
    """The budget's own words, which name it; a server that is merely busy has none."""
    words = [cause.message for cause in refused.causes if cause.reason == "DisruptionBudget" and cause.message]
    return words[0] if words else refused.words or refused.message


def _told(node: str, left: list[_Left]) -> str:
    shown = "; ".join(map(str, left[:_SHOWN]))
    more = f"; and {len(left) - _SHOWN} more" if len(left) > _SHOWN else ""
    return f"could not drain machine: {len(left)} pods are left on node {node}: {shown}{more}"
