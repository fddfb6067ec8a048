"""DaemonSets: one pod on every node that fits, bound to it by the pod's affinity and tolerating what befalls nodes.

Nodes are looked at one by one as they come, change and go; only counting and rolling a new template out look at all
nodes of a DaemonSet, and not more often than is useful.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from moorage.lab.kube import indexes, kinds, loop, placement, rules_workloads, shares, store, workloads

if TYPE_CHECKING:
    from moorage.lab.kube import api as apis

Object = store.Object
Turn = tuple[str, str, str]
"""Namespace and name of a DaemonSet, and a node to look at; no node: roll out and count."""

KEY: kinds.Key = ("apps", "daemonsets")
NODES: kinds.Key = ("", "nodes")

_HARD = ("NoSchedule", "NoExecute")
# What is there may stay when new ones may not come.
_HARDEST = ("NoExecute",)
# Real seconds between two counts, however fast the cloud's time runs: a thousand nodes may join at once.
_BETWEEN_COUNTS = 0.2


def _toleration(what: str, effect: str) -> Object:
    return {"key": f"node.kubernetes.io/{what}", "operator": "Exists", "effect": effect}


_TOLERATIONS = (
    _toleration("not-ready", "NoExecute"),
    _toleration("unreachable", "NoExecute"),
    _toleration("disk-pressure", "NoSchedule"),
    _toleration("memory-pressure", "NoSchedule"),
    _toleration("pid-pressure", "NoSchedule"),
    _toleration("unschedulable", "NoSchedule"),
)
_NETWORK = _toleration("network-unavailable", "NoSchedule")


def daemon_spec(template: Mapping[str, Any]) -> Object:
    """The pod spec of a template with what every daemon tolerates."""
    spec = dict(template.get("spec") or {})
    known = list(spec.get("tolerations") or ())
    wanted = (*_TOLERATIONS, *((_NETWORK,) if spec.get("hostNetwork") else ()))
    spec["tolerations"] = known + [dict(each) for each in wanted if each not in known]
    return spec


def fits(spec: Mapping[str, Any], node: Mapping[str, Any], effects: tuple[str, ...] = _HARD) -> bool:
    """Whether a daemon of this spec belongs on a node: cordoned or not, but not if it does not tolerate its taints."""
    if not placement.chosen(spec, node):
        return False
    taints = (node.get("spec") or {}).get("taints") or ()
    return all(
        placement.tolerated(spec.get("tolerations"), taint) for taint in taints if taint.get("effect") in effects
    )


def _matters(event: store.Event) -> bool:
    """Whether a change of a node can change which daemons belong there."""
    if event.type != store.MODIFIED or event.before is None:
        return True
    before, after = event.before.object, event.entry.object
    return (before["metadata"].get("labels"), (before.get("spec") or {}).get("taints")) != (
        after["metadata"].get("labels"),
        (after.get("spec") or {}).get("taints"),
    )


class DaemonSets:
    """Makes and deletes the pods of DaemonSets."""

    def __init__(self, api: apis.Api, index: indexes.Index) -> None:
        self._api = api
        self._index = index
        self.loop: loop.Loop[Turn] = loop.Loop(api, "daemonsets", self._reconcile, self._all, pause=workloads.PAUSE)
        self.loop.follow(KEY, self._of_set)
        self.loop.follow(NODES, self._of_node)
        self.loop.follow(indexes.PODS, self._of_pod)

    def _all(self) -> Iterable[Turn]:
        for namespace, name in self._api.store.names(KEY):
            yield from self._everywhere(namespace, name)

    def _everywhere(self, namespace: str, name: str) -> Iterable[Turn]:
        yield namespace, name, ""
        for _, node in self._api.store.names(NODES):
            yield namespace, name, node

    def _of_set(self, event: store.Event) -> Iterable[Turn]:
        if event.before is None or event.before.object["spec"] != event.entry.object["spec"]:
            return self._everywhere(*event.name)
        return ()

    def _of_node(self, event: store.Event) -> Iterable[Turn]:
        if _matters(event):
            for namespace, name in self._api.store.names(KEY):
                yield namespace, name, event.name[1]

    def _of_pod(self, event: store.Event) -> Iterable[Turn]:
        for namespace, name in workloads.owner_of(event, "DaemonSet"):
            gone = event.type == store.DELETED or not workloads.active(event.entry.object)
            if gone:
                yield namespace, name, indexes.target(event.entry.object)
            self._count_soon(namespace, name)

    def _count_soon(self, namespace: str, name: str) -> None:
        self.loop.offer((namespace, name, ""), max(workloads.PAUSE, _BETWEEN_COUNTS * self._api.clock.speed))

    def _reconcile(self, turn: Turn) -> float | None:
        namespace, name, node = turn
        entry = self._api.store.get(KEY, (namespace, name))
        if entry is None:
            return None
        if node:
            if not entry.object["metadata"].get("deletionTimestamp"):
                self._look_at(entry.object, node)
            self._count_soon(namespace, name)
            return None
        return self._count(entry.object)

    def _look_at(self, wanted: Object, node: str) -> None:
        found = self._api.store.get(NODES, ("", node))
        pods = [each.object for each in self._index.placed(wanted["metadata"]["uid"], node)]
        kind = self._api.kind("", "Pod")
        spec = daemon_spec(wanted["spec"]["template"])
        stays = found is not None and fits(spec, found.object, _HARDEST)
        belongs = found is not None and stays and fits(spec, found.object)
        living = [pod for pod in pods if workloads.active(pod)]
        for pod in pods:
            done = not workloads.active(pod) and not pod["metadata"].get("deletionTimestamp")
            if done or (not stays and not pod["metadata"].get("deletionTimestamp")):
                workloads.delete(self._api, kind, pod)
        for pod in sorted(living, key=lambda each: each["metadata"]["creationTimestamp"])[1:] if stays else ():
            workloads.delete(self._api, kind, pod)
        # One that is still going holds the place of the next.
        if belongs and not living and not any(pod["metadata"].get("deletionTimestamp") for pod in pods):
            self._api.create(kind, wanted["metadata"]["namespace"], self._made(wanted, spec, node))

    def _made(self, wanted: Object, spec: Object, node: str) -> Object:
        pod = workloads.pod_from(wanted, {**wanted["spec"]["template"], "spec": spec})
        pod["metadata"]["labels"][workloads.REVISION_LABEL] = workloads.digest(wanted["spec"]["template"])
        annotations = wanted["metadata"].get("annotations") or {}
        generation = annotations.get(rules_workloads.TEMPLATE_GENERATION)
        if generation:
            pod["metadata"]["labels"]["pod-template-generation"] = generation
        only = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}
        affinity = pod["spec"].setdefault("affinity", {}).setdefault("nodeAffinity", {})
        affinity["requiredDuringSchedulingIgnoredDuringExecution"] = {"nodeSelectorTerms": [only]}
        return pod

    def _count(self, wanted: Object) -> float | None:
        spec, uid = wanted["spec"], wanted["metadata"]["uid"]
        daemon = daemon_spec(spec["template"])
        current = workloads.digest(spec["template"])
        belongs = {
            entry.object["metadata"]["name"] for entry in self._api.store.entries(NODES) if fits(daemon, entry.object)
        }
        pods = [
            each.object
            for each in self._index.owned(uid, indexes.PODS)
            if not each.object["metadata"].get("deletionTimestamp")
        ]
        placed = {indexes.target(pod): pod for pod in pods}
        right = [pod for node, pod in placed.items() if node in belongs]
        counts = workloads.counted(self._api, right, spec.get("minReadySeconds", 0))
        if not wanted["metadata"].get("deletionTimestamp"):
            self._roll(wanted, right, current, len(belongs))
        status = {
            "currentNumberScheduled": len(right),
            "numberMisscheduled": len(placed) - len(right),
            "desiredNumberScheduled": len(belongs),
            "numberReady": counts.ready,
            "observedGeneration": wanted["metadata"].get("generation", 1),
            "updatedNumberScheduled": sum(
                pod["metadata"]["labels"].get(workloads.REVISION_LABEL) == current for pod in right
            ),
            "numberAvailable": counts.available,
            "numberUnavailable": len(belongs) - counts.available,
        }
        always = ("currentNumberScheduled", "numberMisscheduled", "desiredNumberScheduled", "numberReady")
        workloads.set_status(self._api, self._api.kind("apps", "DaemonSet"), wanted, status, keep=always)
        return counts.again

    def _roll(self, wanted: Object, pods: list[Object], current: str, total: int) -> None:
        """Delete pods of an older template, so many at a time as may be unavailable."""
        strategy = wanted["spec"].get("updateStrategy") or {}
        if strategy.get("type", "RollingUpdate") != "RollingUpdate":
            return
        rolling = strategy.get("rollingUpdate") or {}
        limit = shares.of(rolling.get("maxUnavailable", 1), total, up=True)
        limit = limit or shares.of(rolling.get("maxSurge", 0), total, up=True) or 1
        least = wanted["spec"].get("minReadySeconds", 0)
        serving = [pod for pod in pods if workloads.waits_for(self._api, pod, least) == 0]
        old = [pod for pod in pods if pod["metadata"]["labels"].get(workloads.REVISION_LABEL) != current]
        spare = limit - (total - len(serving))
        serving_uids = {pod["metadata"]["uid"] for pod in serving}
        kind = self._api.kind("", "Pod")
        for pod in old:
            if pod["metadata"]["uid"] not in serving_uids:
                workloads.delete(self._api, kind, pod)
            elif spare > 0:
                workloads.delete(self._api, kind, pod)
                spare -= 1
