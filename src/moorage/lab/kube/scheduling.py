"""The scheduler: pods that have no node get one that fits, the emptiest of those looked at.

A pod made for one node (by a DaemonSet) is held against that node alone. Others are tried on nodes in turn until
enough fit; a pod for which there is none says why in its condition, and is tried again when a node changes. The same
module keeps the taints that follow from a node's state: not ready, unreachable, cordoned.
"""

from __future__ import annotations

import collections
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from moorage.lab.kube import indexes, kinds, loop, options, placement, store, subresources

if TYPE_CHECKING:
    from moorage.lab.kube import api as apis

Object = store.Object

NODES: kinds.Key = ("", "nodes")
SCHEDULER = "default-scheduler"

_PAUSE = 1.0
# So many nodes that fit are compared; more would cost more than they bring.
_COMPARED = 50
_DEFAULT_ROOM = 250
# Real seconds between two tries of a pod that fits nowhere, however many nodes come meanwhile.
_BETWEEN_TRIES = 0.2
_UNSCHEDULABLE = "node.kubernetes.io/unschedulable"
_UNREACHABLE = "node.kubernetes.io/unreachable"
_NOT_READY = "node.kubernetes.io/not-ready"


def _set_scheduled(pod: Object, condition: Object, time: str) -> None:
    status = pod.setdefault("status", {})
    known = status.get("conditions") or []
    made = {**condition, "lastProbeTime": None, "lastTransitionTime": time}
    status["conditions"] = [*(each for each in known if each["type"] != "PodScheduled"), made]


def _pending(pod: Mapping[str, Any]) -> bool:
    """Whether this scheduler has to find a node for a pod."""
    spec, phase = pod["spec"], (pod.get("status") or {}).get("phase", "Pending")
    return (
        not spec.get("nodeName")
        and phase == "Pending"
        and not pod["metadata"].get("deletionTimestamp")
        and not spec.get("schedulingGates")
        and spec.get("schedulerName", SCHEDULER) == SCHEDULER
    )


def refusal(pod: Mapping[str, Any], node: Mapping[str, Any], room: int) -> str:
    """Why a pod cannot go to a node, as the scheduler says it; empty if it can."""
    spec = pod["spec"]
    if (node.get("spec") or {}).get("unschedulable") and not placement.tolerated(
        spec.get("tolerations"), {"key": _UNSCHEDULABLE, "effect": "NoSchedule"}
    ):
        return "node(s) were unschedulable"
    taint = placement.untolerated(spec, node)
    if taint is not None:
        return f"node(s) had untolerated taint {{{taint['key']}: {taint.get('value', '')}}}"
    if not placement.chosen(spec, node):
        return "node(s) didn't match Pod's node affinity/selector"
    if not placement.ready(node) and not placement.tolerated(
        spec.get("tolerations"), {"key": _NOT_READY, "effect": "NoSchedule"}
    ):
        # Its taint has not come yet.
        return f"node(s) had untolerated taint {{{_NOT_READY}: }}"
    return "" if room > 0 else "Too many pods"


class Scheduler:
    """Binds pods to nodes."""

    def __init__(self, api: apis.Api, index: indexes.Index) -> None:
        self._api = api
        self._index = index
        self._nowhere: dict[store.Name, None] = {}
        # Where to begin to look: everybody gets a turn.
        self._next = 0
        self.loop: loop.Loop[store.Name] = loop.Loop(api, "scheduler", self._reconcile, self._all, pause=_PAUSE)
        self.loop.follow(indexes.PODS, self._of_pod)
        self.loop.follow(NODES, self._of_node)

    def _all(self) -> Iterable[store.Name]:
        for name in self._api.store.names(indexes.PODS):
            entry = self._api.store.get(indexes.PODS, name)
            if entry is not None and _pending(entry.object):
                yield name

    def _of_pod(self, event: store.Event) -> Iterable[store.Name]:
        """New pods; and where one has gone there may be room for another."""
        if event.type == store.DELETED:
            self._nowhere.pop(event.name, None)
            if event.entry.object["spec"].get("nodeName"):
                self._again()
        elif _pending(event.entry.object) and (event.before is None or _changed(event.before, event.entry)):
            yield event.name

    def _of_node(self, event: store.Event) -> Iterable[store.Name]:
        if self._nowhere and (event.before is None or _node_changed(event.before.object, event.entry.object)):
            self._again()
        return ()

    def _again(self) -> None:
        for name in self._nowhere:
            self.loop.offer(name, max(_PAUSE, _BETWEEN_TRIES * self._api.clock.speed))

    def _reconcile(self, name: store.Name) -> None:
        entry = self._api.store.get(indexes.PODS, name)
        if entry is None or not _pending(entry.object):
            self._nowhere.pop(name, None)
            return
        node, why = self._choose(entry.object)
        if node:
            self._nowhere.pop(name, None)
            subresources.bind(self._api, *name, {"target": {"kind": "Node", "name": node}}, options.Options())
            return
        self._nowhere[name] = None
        self._tell(entry.object, why)

    def _choose(self, pod: Object) -> tuple[str, collections.Counter[str]]:
        target = indexes.target(pod)
        names = [("", target)] if target else self._api.store.names(NODES)
        why: collections.Counter[str] = collections.Counter()
        fitting: list[str] = []
        ports = placement.host_ports(pod["spec"])
        for place in range(len(names)):
            name = names[(self._next + place) % len(names)]
            node = self._api.store.get(NODES, name)
            if node is None:
                continue
            refused = refusal(pod, node.object, self._room(node.object))
            if not refused and ports and self._ports_taken(name[1], ports):
                refused = "node(s) didn't have free ports for the requested pod ports"
            if refused:
                why[refused] += 1
                continue
            fitting.append(name[1])
            if len(fitting) >= _COMPARED:
                break
        if not target:
            self._next += 1
        return min(fitting, key=self._index.count_on, default=""), why

    def _ports_taken(self, node: str, ports: frozenset[tuple[str, int]]) -> bool:
        return any(ports & placement.host_ports(entry.object["spec"]) for entry in self._index.pods_on(node))

    def _room(self, node: Mapping[str, Any]) -> int:
        allocatable = ((node.get("status") or {}).get("allocatable") or {}).get("pods", _DEFAULT_ROOM)
        room = int(allocatable) if str(allocatable).isdigit() else _DEFAULT_ROOM
        return room - self._index.count_on(node["metadata"]["name"])

    def _tell(self, pod: Object, why: collections.Counter[str]) -> None:
        total = sum(why.values())
        told = ", ".join(f"{count} {reason}" for reason, count in sorted(why.items()))
        message = f"0/{total} nodes are available: {told}." if total else "no nodes available to schedule pods"
        known = (pod.get("status") or {}).get("conditions") or ()
        if any(each["type"] == "PodScheduled" and each.get("message") == message for each in known):
            return
        time, meta = self._api.time(), pod["metadata"]
        condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message}
        self._api.apply_status(
            self._api.kind("", "Pod"),
            meta["namespace"],
            meta["name"],
            lambda content: _set_scheduled(content, condition, time),
        )


def _changed(before: store.Entry, after: store.Entry) -> bool:
    """Whether a pod's own change may let it be scheduled."""
    return bool(before.object["spec"] != after.object["spec"])


def _node_changed(before: Mapping[str, Any], after: Mapping[str, Any]) -> bool:
    return (
        before.get("spec") != after.get("spec")
        or before["metadata"].get("labels") != after["metadata"].get("labels")
        or placement.ready(before) != placement.ready(after)
    )


class Taints:
    """Keeps the NoSchedule taints that follow from a node's conditions and from a cordon."""

    def __init__(self, api: apis.Api) -> None:
        self._api = api
        self.loop: loop.Loop[str] = loop.Loop(api, "taints", self._reconcile, self._all, pause=0.1)
        self.loop.follow(NODES, self._of_node)

    def _all(self) -> Iterable[str]:
        return [name for _, name in self._api.store.names(NODES)]

    def _of_node(self, event: store.Event) -> Iterable[str]:
        # Heartbeats change nothing here.
        if event.type != store.DELETED and _taints(event.entry.object) != _wanted_taints(event.entry.object):
            yield event.name[1]

    def _reconcile(self, name: str) -> None:
        entry = self._api.store.get(NODES, ("", name))
        if entry is None:
            return
        kept = [each for each in (entry.object.get("spec") or {}).get("taints") or () if not _ours(each)]
        wanted = _wanted_taints(entry.object)
        if wanted == _taints(entry.object):
            return
        time = self._api.time()

        def change(node: Object) -> None:
            made = [
                {"key": key, "effect": "NoSchedule", **({"timeAdded": time} if key == _UNSCHEDULABLE else {})}
                for key in sorted(wanted)
            ]
            node["spec"]["taints"] = kept + made
            if not node["spec"]["taints"]:
                del node["spec"]["taints"]

        self._api.apply_status(self._api.kind("", "Node"), "", name, change)


def _ours(taint: Mapping[str, Any]) -> bool:
    return taint.get("effect") == "NoSchedule" and taint.get("key") in (_NOT_READY, _UNREACHABLE, _UNSCHEDULABLE)


def _taints(node: Mapping[str, Any]) -> set[str]:
    return {each["key"] for each in (node.get("spec") or {}).get("taints") or () if _ours(each)}


def _wanted_taints(node: Mapping[str, Any]) -> set[str]:
    conditions = (node.get("status") or {}).get("conditions") or ()
    state = next((each["status"] for each in conditions if each["type"] == "Ready"), "False")
    found = {"True": set[str](), "Unknown": {_UNREACHABLE}}.get(state, {_NOT_READY})
    return found | ({_UNSCHEDULABLE} if (node.get("spec") or {}).get("unschedulable") else set())
