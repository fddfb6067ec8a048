"""Workloads at write time: selectors must fit their templates and are settled for good; daemons count templates."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from moorage.lab.kube import labels as labels_
from moorage.lab.kube import problem, store

if TYPE_CHECKING:
    from moorage.lab.kube import api as apis

Object = store.Object

TEMPLATE_GENERATION = "deprecated.daemonset.template.generation"
_STATEFUL_CHANGEABLE = (
    "replicas",
    "ordinals",
    "template",
    "updateStrategy",
    "revisionHistoryLimit",
    "persistentVolumeClaimRetentionPolicy",
    "minReadySeconds",
)
_STATEFUL_WORDS = (
    "updates to statefulset spec for fields other than 'replicas', 'ordinals', 'template', 'updateStrategy',"
    " 'revisionHistoryLimit', 'persistentVolumeClaimRetentionPolicy' and 'minReadySeconds' are forbidden"
)
_STATUS: Mapping[str, Object] = {
    "DaemonSet": {
        "currentNumberScheduled": 0,
        "numberMisscheduled": 0,
        "desiredNumberScheduled": 0,
        "numberReady": 0,
    },
    "ReplicaSet": {"replicas": 0},
    "StatefulSet": {"replicas": 0, "availableReplicas": 0},
}


def create(api: apis.Api, content: Object) -> None:
    """Refuse a selector that misses its own template."""
    if content["kind"] == "DaemonSet":
        content["metadata"].setdefault("annotations", {})[TEMPLATE_GENERATION] = "1"
    _check_selector(content)
    _check_strategy(content)
    content["status"] = {**_STATUS.get(content["kind"], {}), **(content.get("status") or {})}


def _group(content: Mapping[str, Any]) -> str:
    return str(content["apiVersion"]).rpartition("/")[0]


def _refuse(content: Object, reason: str, message: str, field: str) -> None:
    cause = problem.Cause(reason, message, field)
    raise problem.invalid(_group(content), content["kind"], content["metadata"]["name"], [cause])


def _go_map(values: Mapping[str, str]) -> str:
    told = ", ".join(f"{json.dumps(key)}:{json.dumps(value)}" for key, value in sorted(values.items()))
    return f"map[string]string{{{told}}}"


def _check_selector(content: Object) -> None:
    spec = content["spec"]
    selector = spec.get("selector")
    if selector is None:
        _refuse(content, "FieldValueRequired", "Required value", "spec.selector")
    found = (spec.get("template") or {}).get("metadata", {}).get("labels") or {}
    if not labels_.matches(selector, found):
        told = f"Invalid value: {_go_map(found)}: `selector` does not match template `labels`"
        _refuse(content, "FieldValueInvalid", told, "spec.template.metadata.labels")


def _check_strategy(content: Object) -> None:
    """A Deployment that is recreated cannot say how it is rolled."""
    strategy = content["spec"].get("strategy") or {}
    if strategy.get("type") == "Recreate" and strategy.get("rollingUpdate") is not None:
        told = "Forbidden: may not be specified when strategy `type` is 'Recreate'"
        _refuse(content, "FieldValueForbidden", told, "spec.strategy.rollingUpdate")


def update(api: apis.Api, before: Mapping[str, Any], after: Object, subresource: str | None) -> None:
    """Selectors stay; of a StatefulSet most things do."""
    if subresource == "status":
        return
    old, new = before["spec"], after["spec"]
    if after["kind"] == "DaemonSet":
        _count_template(before, after)
    if subresource is None:
        return
    if after["kind"] == "StatefulSet":
        _check_selector(after)
        if any(old.get(field) != new.get(field) for field in {*old, *new} - {*_STATEFUL_CHANGEABLE}):
            _refuse(after, "FieldValueForbidden", f"Forbidden: {_STATEFUL_WORDS}", "spec")
        return
    if old.get("selector") != new.get("selector"):
        wanted = (new.get("selector") or {}).get("matchLabels") or {}
        told = (
            f"Invalid value: v1.LabelSelector{{MatchLabels:{_go_map(wanted)},"
            " MatchExpressions:[]v1.LabelSelectorRequirement(nil)}: field is immutable"
        )
        _refuse(after, "FieldValueInvalid", told, "spec.selector")
    _check_selector(after)
    _check_strategy(after)


def _count_template(before: Mapping[str, Any], after: Object) -> None:
    annotations = before["metadata"].get("annotations") or {}
    count = int(annotations.get(TEMPLATE_GENERATION, "0") or 0)
    changed = before["spec"].get("template") != after["spec"].get("template")
    after["metadata"].setdefault("annotations", {})[TEMPLATE_GENERATION] = str(count + changed)
