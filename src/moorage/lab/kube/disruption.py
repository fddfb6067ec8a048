"""Evictions and the budgets that hold them back.

An eviction is a delete that asks first: the pod's PodDisruptionBudget must allow one more disruption, and is told of
the pod that is about to go, so that two evictions in a row do not both count on the same healthy pod. The controller
counts what a budget wants, has and allows, and forgets evictions that came to nothing.
"""

from __future__ import annotations

import dataclasses
import datetime
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from moorage.lab.kube import indexes, kinds, labels, loop, metadata, node_restriction, options, problem, shares, store

if TYPE_CHECKING:
    from moorage.lab.kube import api as apis

Object = store.Object

BUDGETS: kinds.Key = ("policy", "poddisruptionbudgets")

_PAUSE = 0.2
_REFUSED = "Cannot evict pod as it would violate the pod's disruption budget."
_SEVERAL = "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support."
_MOST_DISRUPTED = 2000
# After so long, a pod that was to be evicted and is still there is taken to stay.
_FORGOTTEN_AFTER = datetime.timedelta(minutes=2)
_CAUSE = "DisruptionBudget"
_VERSIONS = ("policy/v1", "policy/v1beta1")


def ready(pod: Mapping[str, Any]) -> bool:
    """Whether a pod serves."""
    conditions = (pod.get("status") or {}).get("conditions") or ()
    return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)


def evict(api: apis.Api, namespace: str, name: str, body: Object, how: options.Options) -> Object:
    """The eviction subresource of a pod: delete it, unless its budget forbids."""
    if body.get("apiVersion", "policy/v1") not in _VERSIONS or body.get("kind", "Eviction") != "Eviction":
        raise problem.bad_request(f"no kind {body.get('kind')!r} in {body.get('apiVersion')!r} that evicts a pod")
    if (body.get("metadata") or {}).get("name", "") != name:
        raise problem.bad_request("name in URL does not match name in Eviction object")
    pods = api.kind("", "Pod")
    pod = api.get(pods, namespace, name)
    node_restriction.check_eviction(how.user, pod.object)
    deletion = _delete_options(body, how)
    if _guarded(pod.object):
        _spend(api, pod.object, deletion.dry_run)
    if not deletion.dry_run:
        deletion = _mark(api, pods, pod, deletion)
    api.delete(pods, namespace, name, deletion)
    return {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201}


def _delete_options(body: Object, how: options.Options) -> options.DeleteOptions:
    asked = body.get("deleteOptions") or {}
    conditions = asked.get("preconditions") or {}
    return options.DeleteOptions(
        user=how.user,
        dry_run=how.dry_run or bool(asked.get("dryRun")),
        grace_seconds=asked.get("gracePeriodSeconds"),
        propagation=asked.get("propagationPolicy") or "",
        uid=conditions.get("uid") or "",
        resource_version=conditions.get("resourceVersion") or "",
    )


def _guarded(pod: Mapping[str, Any]) -> bool:
    """Whether a budget is to be asked: what does not run yet, or no longer, is no disruption."""
    phase = (pod.get("status") or {}).get("phase")
    return phase not in ("Succeeded", "Failed", "Pending") and not pod["metadata"].get("deletionTimestamp")


def budgets_of(api: apis.Api, pod: Mapping[str, Any]) -> list[store.Entry]:
    """The budgets that a pod counts to."""
    meta = pod["metadata"]
    return [
        entry
        for entry in api.store.entries(BUDGETS, meta["namespace"])
        if labels.matches(entry.object["spec"].get("selector"), meta.get("labels"))
    ]


def _spend(api: apis.Api, pod: Mapping[str, Any], dry_run: bool) -> None:
    """Take one disruption from the pod's budget, or refuse."""
    found = budgets_of(api, pod)
    if len(found) > 1:
        raise problem.Problem(500, "", _SEVERAL)
    if not found or _unhealthy_may_go(pod, found[0].object):
        return
    budget = found[0].object
    status = budget.get("status") or {}
    name = budget["metadata"]["name"]
    if status.get("observedGeneration", 0) < budget["metadata"].get("generation", 0):
        raise _too_many(f"The disruption budget {name} is still being processed by the server.", 10)
    if len(status.get("disruptedPods") or {}) > _MOST_DISRUPTED:
        raise _too_many_unconfirmed(name)
    if status.get("disruptionsAllowed", 0) <= 0:
        raise _too_many(_why_not(name, status), 0)
    if dry_run:
        return
    time = api.time()

    def change(content: Object) -> None:
        content["status"]["disruptionsAllowed"] -= 1
        content["status"].setdefault("disruptedPods", {})[pod["metadata"]["name"]] = time
        if not content["status"]["disruptionsAllowed"]:
            _set_condition(content, _allowed_condition(content), time)

    api.apply_status(api.kind("policy", "PodDisruptionBudget"), budget["metadata"]["namespace"], name, change)


def _unhealthy_may_go(pod: Mapping[str, Any], budget: Mapping[str, Any]) -> bool:
    if ready(pod):
        return False
    if budget["spec"].get("unhealthyPodEvictionPolicy") == "AlwaysAllow":
        return True
    status = budget.get("status") or {}
    desired = status.get("desiredHealthy", 0)
    return bool(status.get("currentHealthy", 0) >= desired > 0)


def _why_not(name: str, status: Mapping[str, Any]) -> str:
    condition = next((each for each in status.get("conditions") or () if each["type"] == "DisruptionAllowed"), None)
    if condition is not None and condition["reason"] == "SyncFailed" and condition.get("message"):
        why = condition["message"]
        return f"The disruption budget {name} does not allow evicting pods currently because it failed sync: {why}"
    desired, healthy = status.get("desiredHealthy", 0), status.get("currentHealthy", 0)
    return f"The disruption budget {name} needs {desired} healthy pods and has {healthy} currently"


def _too_many(why: str, retry_after: int) -> problem.Problem:
    details = {"causes": [{"reason": _CAUSE, "message": why}]}
    return problem.Problem(429, "TooManyRequests", _REFUSED, details=details, retry_after=retry_after)


def _too_many_unconfirmed(name: str) -> problem.Problem:
    why = "DisruptedPods map too big - too many evictions not confirmed by PDB controller"
    refusal = problem.forbidden("policy", "poddisruptionbudget", name, why)
    told = "too many pending evictions not confirmed by PDB controller"
    message = f"The disruption budget {name} does not allow evicting pods currently: {told}"
    refusal.details["causes"] = [{"reason": _CAUSE, "message": message}]
    return refusal


def _mark(api: apis.Api, pods: kinds.Kind, pod: store.Entry, deletion: options.DeleteOptions) -> options.DeleteOptions:
    """Write on the pod why it goes. The preconditions are checked here, and then hold for what this write makes."""
    meta = pod.object["metadata"]
    why = ""
    if deletion.uid and deletion.uid != meta["uid"]:
        told = f"the UID in the precondition ({deletion.uid}) does not match the UID in record ({meta['uid']})."
        why = f"{told} The object might have been deleted and then recreated"
    elif deletion.resource_version and deletion.resource_version != str(pod.revision):
        told = f"the ResourceVersion in the precondition ({deletion.resource_version}) does not match"
        why = f"{told} the ResourceVersion in record ({pod.revision}). The object might have been modified"
    if why:
        raise problem.conflict("", "Pod", meta["name"], why)
    time = api.time()

    def change(content: Object) -> None:
        condition = {
            "type": "DisruptionTarget",
            "status": "True",
            "reason": "EvictionByEvictionAPI",
            "message": "Eviction API: evicting",
            "lastProbeTime": None,
            "lastTransitionTime": time,
        }
        conditions = content.setdefault("status", {}).setdefault("conditions", [])
        if not any(each["type"] == "DisruptionTarget" and each["status"] == "True" for each in conditions):
            content["status"]["conditions"] = [
                *(each for each in conditions if each["type"] != "DisruptionTarget"),
                condition,
            ]

    written = api.apply_status(pods, meta["namespace"], meta["name"], change)
    version = str(written.revision) if deletion.resource_version else ""
    return dataclasses.replace(deletion, resource_version=version)


def _allowed_condition(budget: Mapping[str, Any]) -> Object:
    enough = budget["status"].get("disruptionsAllowed", 0) > 0
    return {
        "type": "DisruptionAllowed",
        "status": "True" if enough else "False",
        "reason": "SufficientPods" if enough else "InsufficientPods",
        "message": "",
    }


def _set_condition(budget: Object, condition: Object, time: str) -> None:
    known = budget["status"].get("conditions") or []
    old = next((each for each in known if each["type"] == condition["type"]), None)
    since = old["lastTransitionTime"] if old and old["status"] == condition["status"] else time
    made = {
        **condition,
        "observedGeneration": budget["status"].get("observedGeneration", 0),
        "lastTransitionTime": since,
    }
    budget["status"]["conditions"] = [*(each for each in known if each["type"] != condition["type"]), made]


class Uncountable(Exception):  # noqa: N818 - what the budget is told, in its condition
    """How many pods there should be cannot be said."""


class Budgets:
    """Keeps the status of every budget."""

    def __init__(self, api: apis.Api) -> None:
        self._api = api
        self.loop: loop.Loop[store.Name] = loop.Loop(api, "budgets", self._reconcile, self._all, pause=_PAUSE)
        self.loop.follow(BUDGETS, lambda event: [event.name])
        self.loop.follow(indexes.PODS, self._of_pod)
        for plural in ("replicasets", "deployments", "statefulsets"):
            self.loop.follow(("apps", plural), self._of_controller)

    def _all(self) -> Iterable[store.Name]:
        return self._api.store.names(BUDGETS)

    def _of_pod(self, event: store.Event) -> Iterable[store.Name]:
        if event.before is not None and event.type == store.MODIFIED and _counts_alike(event):
            return
        found = [event.entry, *([event.before] if event.before is not None else [])]
        for entry in found:
            for budget in budgets_of(self._api, entry.object):
                yield budget.object["metadata"]["namespace"], budget.object["metadata"]["name"]

    def _of_controller(self, event: store.Event) -> Iterable[store.Name]:
        if event.before is None or event.before.object["spec"] != event.entry.object["spec"]:
            yield from self._api.store.names(BUDGETS, event.name[0])

    def _reconcile(self, name: store.Name) -> float | None:
        entry = self._api.store.get(BUDGETS, name)
        if entry is None:
            return None
        budget = entry.object
        selector = budget["spec"].get("selector")
        pods = [
            each.object
            for each in self._api.store.entries(indexes.PODS, name[0])
            if labels.matches(selector, each.object["metadata"].get("labels"))
        ]
        try:
            expected, desired = self._wanted(budget["spec"], pods)
        except Uncountable as why:
            self._tell_failure(name, str(why))
            return None
        disrupted, again = self._disrupted(budget, pods)
        healthy = sum(
            ready(pod) and not pod["metadata"].get("deletionTimestamp") and pod["metadata"]["name"] not in disrupted
            for pod in pods
        )
        self._tell(name, healthy, desired, expected, disrupted)
        return again

    def _wanted(self, spec: Mapping[str, Any], pods: list[Object]) -> tuple[int, int]:
        """How many pods there should be, and how many of them healthy."""
        if spec.get("maxUnavailable") is not None:
            expected = self._scale(pods)
            return expected, max(0, expected - shares.of(spec["maxUnavailable"], expected, up=True))
        least = spec.get("minAvailable")
        if isinstance(least, str):
            expected = self._scale(pods)
            return expected, shares.of(least, expected, up=True)
        return len(pods), 0 if least is None else least

    def _scale(self, pods: list[Object]) -> int:
        """The pods that the controllers of these pods want, all together."""
        scales: dict[str, int] = {}
        for pod in pods:
            manager = indexes.controller(pod)
            if manager is None or manager["uid"] in scales:
                continue
            uid, replicas = self._scale_of(pod, manager)
            scales[uid] = replicas
        return sum(scales.values())

    def _scale_of(self, pod: Object, manager: Mapping[str, Any]) -> tuple[str, int]:
        namespace = pod["metadata"]["namespace"]
        kind = self._api.kinds.named(manager["apiVersion"], manager["kind"])
        found = None if kind is None else self._api.store.get(kind.key, (namespace, manager["name"]))
        if kind is None or kind.scale is None or found is None or found.object["metadata"]["uid"] != manager["uid"]:
            raise Uncountable(f'found no controllers for pod "{pod["metadata"]["name"]}"')
        above = indexes.controller(found.object)
        if kind.key == ("apps", "replicasets") and above is not None and above["kind"] == "Deployment":
            deployment = self._api.store.get(("apps", "deployments"), (namespace, above["name"]))
            if deployment is not None and deployment.object["metadata"]["uid"] == above["uid"]:
                return above["uid"], int(deployment.object["spec"].get("replicas", 1))
        return manager["uid"], _replicas(found.object, kind)

    def _disrupted(self, budget: Object, pods: list[Object]) -> tuple[dict[str, str], float | None]:
        """The evictions not carried out yet, and when the first of them will be forgotten."""
        now, known = self._api.clock.wall(), (budget.get("status") or {}).get("disruptedPods") or {}
        kept: dict[str, str] = {}
        again: float | None = None
        for pod in pods:
            name = pod["metadata"]["name"]
            if name not in known or pod["metadata"].get("deletionTimestamp"):
                continue
            left = (metadata.moment(known[name]) + _FORGOTTEN_AFTER - now).total_seconds()
            if left > 0:
                kept[name] = known[name]
                again = left if again is None else min(again, left)
        return kept, again

    def _tell(self, name: store.Name, healthy: int, desired: int, expected: int, disrupted: dict[str, str]) -> None:
        time = self._api.time()

        def change(budget: Object) -> None:
            status = budget.setdefault("status", {})
            status["currentHealthy"], status["desiredHealthy"], status["expectedPods"] = healthy, desired, expected
            status["disruptionsAllowed"] = max(0, healthy - desired) if expected > 0 else 0
            status["observedGeneration"] = budget["metadata"].get("generation", 1)
            status.pop("disruptedPods", None)
            if disrupted:
                status["disruptedPods"] = disrupted
            _set_condition(budget, _allowed_condition(budget), time)

        self._api.apply_status(self._api.kind("policy", "PodDisruptionBudget"), *name, change)

    def _tell_failure(self, name: store.Name, why: str) -> None:
        time = self._api.time()

        def change(budget: Object) -> None:
            budget.setdefault("status", {})["disruptionsAllowed"] = 0
            failed = {"type": "DisruptionAllowed", "status": "False", "reason": "SyncFailed", "message": why}
            _set_condition(budget, failed, time)

        self._api.apply_status(self._api.kind("policy", "PodDisruptionBudget"), *name, change)


def _replicas(content: Mapping[str, Any], kind: kinds.Kind) -> int:
    place: Any = content
    for step in (kind.scale or kinds.ScalePaths()).replicas.strip(".").split("."):
        place = place.get(step) if isinstance(place, Mapping) else None
    return place if isinstance(place, int) else 1


def _counts_alike(event: store.Event) -> bool:
    before, after = event.before, event.entry
    return before is not None and _counted(before.object) == _counted(after.object)


def _counted(pod: Mapping[str, Any]) -> tuple[Any, ...]:
    meta = pod["metadata"]
    return meta.get("labels"), meta.get("deletionTimestamp"), meta.get("ownerReferences"), ready(pod)
