"""StatefulSets: numbered pods that come one after the other and go in the opposite order, each with its claims.

A pod keeps its name when it is replaced. A new template is rolled out from the highest number down to the partition,
one pod at a time.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from moorage.lab.kube import indexes, kinds, loop, problem, store, workloads

if TYPE_CHECKING:
    from moorage.lab.kube import api as apis

Object = store.Object

KEY: kinds.Key = ("apps", "statefulsets")
_POD_NAME = "statefulset.kubernetes.io/pod-name"
_POD_INDEX = "apps.kubernetes.io/pod-index"


def _number(pod: Object) -> int:
    text = pod["metadata"]["name"].rpartition("-")[2]
    return int(text) if text.isdigit() else -1


class StatefulSets:
    """Makes and deletes the pods of StatefulSets."""

    def __init__(self, api: apis.Api, index: indexes.Index) -> None:
        self._api = api
        self._index = index
        self.loop: loop.Loop[store.Name] = loop.Loop(
            api, "statefulsets", self._reconcile, self._all, pause=workloads.PAUSE
        )
        self.loop.follow(KEY, lambda event: [event.name])
        self.loop.follow(indexes.PODS, lambda event: workloads.owner_of(event, "StatefulSet"))

    def _all(self) -> Iterable[store.Name]:
        return self._api.store.names(KEY)

    def _reconcile(self, name: store.Name) -> float | None:
        entry = self._api.store.get(KEY, name)
        if entry is None:
            return None
        wanted = entry.object
        pods = {
            _number(each.object): each.object for each in self._index.owned(wanted["metadata"]["uid"], indexes.PODS)
        }
        revision = f"{name[1]}-{workloads.digest(wanted['spec']['template'])}"
        if not wanted["metadata"].get("deletionTimestamp"):
            self._work(wanted, pods, revision)
        return self._tell(wanted, revision)

    def _work(self, wanted: Object, pods: dict[int, Object], revision: str) -> None:
        """Take the one next step (or, without order, all of a kind)."""
        spec = wanted["spec"]
        first = (spec.get("ordinals") or {}).get("start", 0)
        numbers = range(first, first + spec.get("replicas", 1))
        ordered = spec.get("podManagementPolicy", "OrderedReady") == "OrderedReady"
        kind = self._api.kind("", "Pod")
        for number in numbers:
            pod = pods.get(number)
            if pod is None:
                self._make(wanted, number, revision)
            elif (pod.get("status") or {}).get("phase") in ("Failed", "Succeeded"):
                workloads.delete(self._api, kind, pod)
            if ordered and (pod is None or not workloads.active(pod) or not workloads.ready(pod)):
                return
        for number in sorted((each for each in pods if each not in numbers), reverse=True):
            if not pods[number]["metadata"].get("deletionTimestamp"):
                workloads.delete(self._api, kind, pods[number])
            if ordered:
                return
        self._roll(wanted, pods, numbers, revision)

    def _roll(self, wanted: Object, pods: dict[int, Object], numbers: range, revision: str) -> None:
        strategy = wanted["spec"].get("updateStrategy") or {}
        if strategy.get("type", "RollingUpdate") != "RollingUpdate":
            return
        partition = (strategy.get("rollingUpdate") or {}).get("partition", 0)
        for number in reversed(numbers):
            pod = pods.get(number)
            if number < partition or pod is None:
                return
            if (pod["metadata"].get("labels") or {}).get(workloads.REVISION_LABEL) != revision:
                if not pod["metadata"].get("deletionTimestamp"):
                    workloads.delete(self._api, self._api.kind("", "Pod"), pod)
                return
            if not workloads.active(pod) or not workloads.ready(pod):
                return

    def _make(self, wanted: Object, number: int, revision: str) -> None:
        meta, spec = wanted["metadata"], wanted["spec"]
        name = f"{meta['name']}-{number}"
        pod = workloads.pod_from(wanted, spec["template"], name=name)
        pod["metadata"]["labels"] |= {workloads.REVISION_LABEL: revision, _POD_NAME: name, _POD_INDEX: str(number)}
        pod["spec"]["hostname"] = name
        if spec.get("serviceName"):
            pod["spec"]["subdomain"] = spec["serviceName"]
        for template in spec.get("volumeClaimTemplates") or ():
            claim = f"{template['metadata']['name']}-{name}"
            self._make_claim(wanted, template, claim)
            volumes = [
                each for each in pod["spec"].get("volumes") or () if each["name"] != template["metadata"]["name"]
            ]
            source = {"name": template["metadata"]["name"], "persistentVolumeClaim": {"claimName": claim}}
            pod["spec"]["volumes"] = [*volumes, source]
        self._api.create(self._api.kind("", "Pod"), meta["namespace"], pod)

    def _make_claim(self, wanted: Object, template: Object, name: str) -> None:
        labels = (wanted["spec"].get("selector") or {}).get("matchLabels") or {}
        claim = {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": {"name": name, "labels": {**(template["metadata"].get("labels") or {}), **labels}},
            "spec": template.get("spec") or {},
        }
        try:
            self._api.create(self._api.kind("", "PersistentVolumeClaim"), wanted["metadata"]["namespace"], claim)
        except problem.Problem as refusal:
            # A pod that comes back finds its data again.
            if refusal.reason != "AlreadyExists":
                raise

    def _tell(self, wanted: Object, revision: str) -> float | None:
        found = (each.object for each in self._index.owned(wanted["metadata"]["uid"], indexes.PODS))
        pods = [pod for pod in found if not pod["metadata"].get("deletionTimestamp")]
        counts = workloads.counted(self._api, pods, wanted["spec"].get("minReadySeconds", 0))
        updated = sum((pod["metadata"].get("labels") or {}).get(workloads.REVISION_LABEL) == revision for pod in pods)
        done = updated == wanted["spec"].get("replicas", 1) == counts.ready
        before = (wanted.get("status") or {}).get("currentRevision") or revision
        current = revision if done else before
        status = {
            "observedGeneration": wanted["metadata"].get("generation", 1),
            "replicas": counts.total,
            "readyReplicas": counts.ready,
            "availableReplicas": counts.available,
            "currentReplicas": sum(
                (pod["metadata"].get("labels") or {}).get(workloads.REVISION_LABEL) == current for pod in pods
            ),
            "updatedReplicas": updated,
            "currentRevision": current,
            "updateRevision": revision,
            "collisionCount": 0,
        }
        kind = self._api.kind("apps", "StatefulSet")
        workloads.set_status(self._api, kind, wanted, status, keep=("replicas", "availableReplicas", "collisionCount"))
        return counts.again
