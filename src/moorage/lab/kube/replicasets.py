"""ReplicaSets: as many pods as are wanted, and the right ones to go when there are too many.

First go those that would be missed least: not yet on a node, not yet running, not ready, cheap to delete, crowded onto
one node, young.
"""

from __future__ import annotations

import collections
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from moorage.lab.kube import indexes, kinds, labels, loop, metadata, store, workloads

if TYPE_CHECKING:
    from moorage.lab.kube import api as apis

Object = store.Object

KEY: kinds.Key = ("apps", "replicasets")
DELETION_COST = "controller.kubernetes.io/pod-deletion-cost"
# So many pods are made or deleted at one turn.
_BURST = 500
_PHASES = {"Pending": 0, "Unknown": 1, "Running": 2}


def in_order_of_going(pods: list[Object]) -> list[Object]:
    """Pods, first those to be deleted first."""
    crowd = collections.Counter(pod["spec"].get("nodeName") for pod in pods)

    def weight(pod: Object) -> tuple[Any, ...]:
        spec, status, meta = pod["spec"], pod.get("status") or {}, pod["metadata"]
        since = workloads.ready_since(pod)
        restarts = max((each.get("restartCount", 0) for each in status.get("containerStatuses") or ()), default=0)
        return (
            bool(spec.get("nodeName")),
            _PHASES.get(status.get("phase", ""), 2),
            bool(since),
            _cost(meta),
            -crowd[spec.get("nodeName")],
            -metadata.moment(since).timestamp() if since else 0,
            -restarts,
            -metadata.moment(meta["creationTimestamp"]).timestamp(),
            meta["name"],
        )

    return sorted(pods, key=weight)


def _cost(meta: Mapping[str, Any]) -> int:
    try:
        return int((meta.get("annotations") or {}).get(DELETION_COST, 0))
    except ValueError:
        return 0


class ReplicaSets:
    """Makes and deletes the pods of ReplicaSets."""

    def __init__(self, api: apis.Api, index: indexes.Index) -> None:
        self._api = api
        self._index = index
        self.loop: loop.Loop[store.Name] = loop.Loop(
            api, "replicasets", self._reconcile, self._all, pause=workloads.PAUSE
        )
        self.loop.follow(KEY, lambda event: [event.name])
        self.loop.follow(indexes.PODS, self._of_pod)

    def _all(self) -> Iterable[store.Name]:
        return self._api.store.names(KEY)

    def _of_pod(self, event: store.Event) -> Iterable[store.Name]:
        yield from workloads.owner_of(event, "ReplicaSet")
        if event.type != store.DELETED and indexes.controller(event.entry.object) is None:
            found = event.entry.object["metadata"].get("labels")
            for name in self._api.store.names(KEY, event.name[0]):
                entry = self._api.store.get(KEY, name)
                if entry is not None and labels.matches(entry.object["spec"].get("selector"), found):
                    yield name

    def _reconcile(self, name: store.Name) -> float | None:
        entry = self._api.store.get(KEY, name)
        if entry is None:
            return None
        wanted = entry.object
        pods = [each.object for each in workloads.claimed(self._api, self._index, wanted, indexes.PODS)]
        living = [pod for pod in pods if workloads.active(pod)]
        if not wanted["metadata"].get("deletionTimestamp"):
            living = self._scale(wanted, living)
        return self._tell(wanted, living)

    def _scale(self, wanted: Object, living: list[Object]) -> list[Object]:
        kind = self._api.kind("", "Pod")
        missing = wanted["spec"].get("replicas", 1) - len(living)
        for _ in range(min(missing, _BURST)):
            pod = workloads.pod_from(wanted, wanted["spec"]["template"])
            living.append(self._api.create(kind, wanted["metadata"]["namespace"], pod).object)
        if missing < 0:
            ordered = in_order_of_going(living)
            many = min(-missing, _BURST)
            for pod in ordered[:many]:
                workloads.delete(self._api, kind, pod)
            living = ordered[many:]
        return living

    def _tell(self, wanted: Object, living: list[Object]) -> float | None:
        spec = wanted["spec"]
        counts = workloads.counted(self._api, living, spec.get("minReadySeconds", 0))
        template = spec["template"].get("metadata", {}).get("labels") or {}
        fully = sum(template.items() <= (pod["metadata"].get("labels") or {}).items() for pod in living)
        status = {
            "replicas": counts.total,
            "fullyLabeledReplicas": fully,
            "readyReplicas": counts.ready,
            "availableReplicas": counts.available,
            "observedGeneration": wanted["metadata"].get("generation", 1),
        }
        workloads.set_status(self._api, self._api.kind("apps", "ReplicaSet"), wanted, status, keep=("replicas",))
        return counts.again
