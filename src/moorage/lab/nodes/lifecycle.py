"""What a cluster does about nodes that fall silent: it declares them lost, taints them, and moves their pods away.

A node is judged by its Lease alone, as the controller of a real cluster does. Pods on a lost node count as not ready at
once, leave it when their tolerations have run out, and are removed for good only when their Node is gone.
"""

from __future__ import annotations

import math
from typing import Any

from moorage.lab.kube import api as apis
from moorage.lab.kube import placement, problem, store
from moorage.lab.nodes import cluster as clusters
from moorage.lab.nodes import conditions, pacing

Object = dict[str, Any]

# Cloud seconds: how old a Lease may be; how often it is looked at; how long pods stay whose Node was deleted.
GRACE_SECONDS = 50.0
EVERY_SECONDS = 5.0
_ORPHAN_SECONDS = 40.0
# However fast the cloud's time runs, nobody looks more often than this (real seconds).
_FASTEST_LOOK = 0.5

NOT_READY, UNREACHABLE = "node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"
_SILENT = ("NodeStatusUnknown", "Kubelet stopped posting node status.")


async def run(cluster: clusters.Cluster) -> None:
    """Look after the nodes for as long as the cluster lives."""
    warden = Warden(cluster)
    while True:
        await cluster.passed(_between_looks(cluster))
        await cluster.until_alive()
        warden.look()


def _between_looks(cluster: clusters.Cluster) -> float:
    return max(EVERY_SECONDS, _FASTEST_LOOK * cluster.clock.speed)


class Warden:
    """The memory of one cluster's node controller."""

    def __init__(self, cluster: clusters.Cluster) -> None:
        self._cluster = cluster
        self._api = cluster.api
        self._nodes, self._pods = self._api.kind("", "Node"), self._api.kind("", "Pod")
        self._leases = self._api.kind("coordination.k8s.io", "Lease")
        self._known: set[str] = set()
        # Cloud seconds in which we were awake, and when we last were: where there was no API or no processor for a
        # while not all nodes are dead, for they could not be heard.
        self._awake, self._looked = 0.0, self._api.clock.now()
        # The last renewal seen of each node and when it was seen: the nodes' clocks may differ from ours.
        self._beats: dict[str, tuple[str, float]] = {}
        self._orphans: dict[store.Name, float] = {}

    def look(self) -> None:
        """Judge every node once."""
        now = self._api.clock.now()
        self._awake += min(now - self._looked, 2 * _between_looks(self._cluster))
        self._looked = now
        grace = pacing.silence(self._cluster.site, GRACE_SECONDS)
        lost: dict[str, float] = {}
        entries = self._api.entries(self._nodes)
        for entry in entries:
            name = entry.object["metadata"]["name"]
            silent = self._silence(name)
            try:
                self._judge(entry.object, lost=silent > grace)
            except problem.Problem:
                continue
            if silent > grace:
                lost[name] = silent - grace
        known = {entry.object["metadata"]["name"] for entry in entries}
        self._beats = {name: beat for name, beat in self._beats.items() if name in known}
        self._move_pods(known, lost)

    def _silence(self, name: str) -> float:
        lease = self._api.find(self._leases, "kube-node-lease", name)
        renewed = str((lease.object.get("spec") or {}).get("renewTime", "")) if lease is not None else ""
        if self._beats.get(name, ("", 0.0))[0] != renewed or name not in self._beats:
            self._beats[name] = (renewed, self._awake)
        return self._awake - self._beats[name][1]

    def _judge(self, node: Object, *, lost: bool) -> None:
        ready = conditions.found(node, "Ready").get("status", "Unknown")
        wanted = UNREACHABLE if lost or ready == "Unknown" else NOT_READY if ready != "True" else ""
        has = {taint["key"] for taint in node["spec"].get("taints") or () if _evicts(taint)}
        if not (lost and ready != "Unknown") and has == ({wanted} if wanted else set()):
            return
        name = node["metadata"]["name"]
        self._api.apply_status(self._nodes, "", name, lambda content: self._mark(content, wanted, lost=lost))
        if lost and ready != "Unknown":
            self._unready_pods(name)

    def _mark(self, node: Object, taint: str, *, lost: bool) -> None:
        now = self._api.time()
        if lost:
            for kind in ("MemoryPressure", "DiskPressure", "PIDPressure", "Ready"):
                conditions.put(node, now, kind, "Unknown", *_SILENT)
        kept = [each for each in node["spec"].get("taints") or () if not _evicts(each)]
        made = [{"key": taint, "effect": "NoExecute", "timeAdded": now}] if taint else []
        node["spec"]["taints"] = kept + made
        if not node["spec"]["taints"]:
            del node["spec"]["taints"]

    def _unready_pods(self, node: str) -> None:
        """Nobody knows how the pods of a lost node are: those who count on them must not."""
        for entry in self._api.entries(self._pods, fields=f"spec.nodeName={node}"):
            if conditions.true(entry.object, "Ready"):
                metadata = entry.object["metadata"]
                self._api.apply_status(self._pods, metadata["namespace"], metadata["name"], self._unready)

    def _unready(self, pod: Object) -> None:
        conditions.put(pod, self._api.time(), "Ready", "False", *_SILENT)

    def _move_pods(self, known: set[str], lost: dict[str, float]) -> None:
        """Delete pods of lost nodes that tolerate it no longer, and remove those whose node is gone."""
        now = self._api.clock.now()
        orphans: dict[store.Name, float] = {}
        # Only when a node is lost or gone is it worth looking at all pods.
        worth = bool(lost or self._orphans or self._known - known)
        self._known = known
        for entry in self._api.entries(self._pods) if worth else ():
            pod = entry.object
            node, metadata = pod["spec"].get("nodeName"), pod["metadata"]
            name = (metadata["namespace"], metadata["name"])
            if node and node not in known:
                orphans[name] = self._orphans.get(name, now)
                if now - orphans[name] >= _ORPHAN_SECONDS:
                    self._delete(name, metadata["uid"], grace=0)
            elif node in lost and not metadata.get("deletionTimestamp") and lost[node] > _tolerated(pod):
                self._delete(name, metadata["uid"])
        self._orphans = orphans

    def _delete(self, name: store.Name, uid: str, grace: int | None = None) -> None:
        try:
            self._api.delete(self._pods, *name, apis.DeleteOptions(grace_seconds=grace, uid=uid))
        except problem.Problem:
            return


def _evicts(taint: Object) -> bool:
    """Whether a taint is one of ours. Those that keep new pods away follow from the conditions: `scheduling.Taints`."""
    return taint.get("effect") == "NoExecute" and taint["key"] in (NOT_READY, UNREACHABLE)


def _tolerated(pod: Object) -> float:
    """How long a pod bears a node that cannot be reached: the shortest time of those tolerations that speak of it."""
    taint = {"key": UNREACHABLE, "effect": "NoExecute"}
    borne = [each for each in pod["spec"].get("tolerations") or () if placement.tolerated([each], taint)]
    if not borne:
        return 0.0
    return min((float(each["tolerationSeconds"]) for each in borne if "tolerationSeconds" in each), default=math.inf)
