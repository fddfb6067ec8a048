"""What runs the pods of a cluster's nodes: a pod bound to a node that is up becomes Running, a deleted one ends.

All nodes of a cluster share this one loop; a thousand kubelets that each watched their own pods would only be slower. A
node that is off or cut off does nothing: its pods stay as they were last seen, as in life. Nothing is executed but the
few programs that `programs` really runs.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

from moorage.lab.kube import api as apis
from moorage.lab.kube import kinds, loop, store
from moorage.lab.nodes import cluster as clusters
from moorage.lab.nodes import conditions, container_status, instance, programs

Object = dict[str, Any]

# Cloud seconds: pulling an image and starting it; ending a process that was asked to; between looks at a lost node.
START_SECONDS = 8.0
STOP_SECONDS = 2.0
LOST_SECONDS = 10.0
# However fast the cloud's time runs, a lost node is not looked at more often than this (real seconds).
_FASTEST_LOOK = 0.2

_PODS: kinds.Key = ("", "pods")
_MIRROR = "kubernetes.io/config.mirror"


async def run(cluster: clusters.Cluster) -> None:
    """Run the pods of all nodes, for as long as the cluster lives."""
    runtime = Runtime(cluster)
    runtime.loop.start()
    try:
        await asyncio.get_running_loop().create_future()
    finally:
        await runtime.loop.stop()
        await runtime.programs.stop()


class Runtime:
    """The kubelets' work on pods."""

    def __init__(self, cluster: clusters.Cluster) -> None:
        self._cluster = cluster
        self._api = cluster.api
        self._kind = cluster.api.kind("", "Pod")
        self._node_kind = cluster.api.kind("", "Node")
        # What each pod is at, and since when.
        self._begun: dict[store.Name, tuple[str, float]] = {}
        self.loop: loop.Loop[store.Name] = loop.Loop(self._api, "kubelets", self._reconcile, self._everything)
        self.loop.follow(_PODS, _touched)
        self.programs = programs.Programs(cluster, self._machine, lambda name: self.loop.offer(name))
        self._api.pod_log = self.programs.log

    def _everything(self) -> Iterable[store.Name]:
        return self._api.store.names(_PODS)

    def _reconcile(self, name: store.Name) -> float | None:
        entry = self._api.find(self._kind, *name)
        node = entry.object["spec"].get("nodeName") if entry is not None else None
        if entry is None or not node:
            self._begun.pop(name, None)
            self.programs.abandon(name)
            return None
        machine = self._machine(node)
        if machine is None or not machine.reachable or not self._cluster.alive:
            return max(LOST_SECONDS, _FASTEST_LOOK * self._api.clock.speed)
        if entry.object["metadata"].get("deletionTimestamp"):
            return self._ended(name, entry.object)
        if (entry.object.get("status") or {}).get("phase", "Pending") == "Pending":
            return self._started(name, entry.object, machine)
        if self._real(entry.object):
            self.programs.keep(name, entry.object)
        elif not _mirrors(entry.object):
            self._restored(name, entry.object)
        return None

    def _real(self, pod: Object) -> frozenset[str]:
        """The containers of a pod that really run; what static pods say is done by whoever plays their programs."""
        return frozenset() if _mirrors(pod) else frozenset(each["name"] for each in self.programs.containers(pod))

    def _restored(self, name: store.Name, pod: Object) -> None:
        """A pod that ran on while its node could not be heard is ready again; a mirror is others' affair."""
        if pod["status"]["phase"] == "Running" and not conditions.true(pod, "Ready"):
            self._api.apply_status(self._kind, *name, lambda content: _ready(content, self._api.time()))

    def _ended(self, name: store.Name, pod: Object) -> float | None:
        grace = int(pod["metadata"].get("deletionGracePeriodSeconds") or 0)
        if not self.programs.ended(name, pod["metadata"]["uid"], float(grace)):
            # It is looked at again when they have.
            return None
        left = self._left(name, f"stop {pod['metadata']['uid']}", min(float(grace), STOP_SECONDS))
        if left > 0:
            return left
        self._begun.pop(name, None)
        uid = pod["metadata"]["uid"]
        self._api.delete(self._kind, *name, apis.DeleteOptions(grace_seconds=0, uid=uid))
        return None

    def _started(self, name: store.Name, pod: Object, machine: instance.Instance) -> float | None:
        left = self._left(name, f"start {pod['metadata']['uid']}", START_SECONDS)
        if left > 0:
            return left
        self._begun.pop(name, None)
        real, now = self._real(pod), self._api.time()
        self._api.apply_status(self._kind, *name, lambda content: _run(content, machine.address, now, real))
        return None

    def _left(self, name: store.Name, what: str, seconds: float) -> float:
        now = self._api.clock.now()
        if self._begun.get(name, ("", now))[0] != what:
            self._begun[name] = (what, now)
        return self._begun[name][1] + seconds - now

    def _machine(self, node: str) -> instance.Instance | None:
        found = self._api.find(self._node_kind, "", node)
        return None if found is None else self._cluster.machine_of(found.object)


def _touched(event: store.Event) -> Iterable[store.Name]:
    return (event.name,)


def _ready(pod: Object, now: str) -> None:
    conditions.put(pod, now, "Ready", "True", "", "")


def _mirrors(pod: Object) -> bool:
    return _MIRROR in (pod["metadata"].get("annotations") or {})


def _run(pod: Object, address: str, now: str, real: frozenset[str]) -> None:
    """Write that it runs; of the containers in ``real`` nobody knows that yet."""
    host = bool(pod["spec"].get("hostNetwork"))
    # An address of the pod network: never used, but every program expects a pod to have one of its own.
    digits = int(pod["metadata"]["uid"].replace("-", "")[:6], 16)
    own = address if host else f"10.128.{digits >> 8 & 255}.{digits & 255 or 1}"
    kinds_ = ("PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled")
    untrue = ("Ready", "ContainersReady") if real else ()
    pod["status"] = {
        **(pod.get("status") or {}),
        "phase": "Running",
        "hostIP": address,
        "podIP": own,
        "podIPs": [{"ip": own}],
        "startTime": now,
        "conditions": [
            {"type": kind, "status": "False" if kind in untrue else "True", "lastTransitionTime": now}
            for kind in kinds_
        ],
        "containerStatuses": [
            container_status.fresh(each) if each["name"] in real else _container(each, now)
            for each in pod["spec"]["containers"]
        ],
    }


def _container(container: Object, now: str) -> Object:
    return {
        "name": container["name"],
        "image": container.get("image", ""),
        "imageID": "",
        "ready": True,
        "started": True,
        "restartCount": 0,
        "state": {"running": {"startedAt": now}},
    }
