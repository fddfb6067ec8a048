"""The parts of objects that have paths of their own: what is shown there, and what a write there may touch.

A write to the object itself leaves its status alone, and a write to the status leaves all else alone. Scale is a view:
it is shown as an object of its own kind and writes one number back.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from moorage.lab.kube import kinds, manners, options, problem, store

if TYPE_CHECKING:
    from moorage.lab.kube import api as apis

Object = store.Object

SCALE = kinds.Kind("autoscaling", "v1", "Scale", "scales")
_CSR = ("certificates.k8s.io", "certificatesigningrequests")
_NAMESPACES = ("", "namespaces")
# Subresources that are asked with POST and never read; others take them over before they get here.
ACTIONS = frozenset({"binding", "eviction", "token"})


def shown(kind: kinds.Kind, entry: store.Entry, subresource: str) -> Object:
    """What a client sees (and patches) under the subresource; a private copy."""
    if subresource == "scale":
        return scale(kind, entry.object)
    return store.copied(entry)


def scale(kind: kinds.Kind, content: Mapping[str, Any]) -> Object:
    """The Scale of an object."""
    paths = kind.scale or kinds.ScalePaths()
    meta = content["metadata"]
    kept = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")
    status: Object = {"replicas": _number(content, paths.status)}
    selector = _selector(content, paths.selector)
    if selector:
        status["selector"] = selector
    return {
        "kind": SCALE.name,
        "apiVersion": SCALE.api_version,
        "metadata": {field: meta[field] for field in kept if field in meta},
        "spec": {"replicas": _number(content, paths.replicas)},
        "status": status,
    }


def _steps(path: str) -> list[str]:
    return [step for step in path.split(".") if step]


def _at(content: Any, path: str) -> Any:
    for step in _steps(path):
        if not isinstance(content, Mapping) or step not in content:
            return None
        content = content[step]
    return content


def _number(content: Mapping[str, Any], path: str) -> int:
    found = _at(content, path)
    return found if isinstance(found, int) else 0


def _selector(content: Mapping[str, Any], path: str) -> str:
    found = _at(content, path) if path else None
    if isinstance(found, str):
        return found
    if found is None:
        found = _at(content, ".spec.selector")
    if not isinstance(found, Mapping):
        return ""
    return selector_text(found)


def selector_text(selector: Mapping[str, Any]) -> str:
    """A LabelSelector in its short spelling."""
    labels = selector.get("matchLabels") if "matchLabels" in selector or "matchExpressions" in selector else selector
    terms = [f"{key}={value}" for key, value in sorted((labels or {}).items())]
    for expression in selector.get("matchExpressions") or []:
        key, values = expression["key"], ",".join(sorted(expression.get("values") or []))
        terms.append(
            {
                "In": f"{key} in ({values})",
                "NotIn": f"{key} notin ({values})",
                "Exists": key,
                "DoesNotExist": f"!{key}",
            }[expression["operator"]]
        )
    return ",".join(terms)


def merged(kind: kinds.Kind, before: store.Entry, content: Object, subresource: str | None) -> Object:
    """The whole object after a write of ``content`` under the subresource; None writes everything."""
    if subresource is None:
        return content
    if subresource == "":
        return _main(kind, before, content)
    after = store.copied(before)
    if subresource == "status":
        _take(after, content, "status")
        if manners.status_with_metadata(kind):
            for field in ("labels", "annotations"):
                _take(after["metadata"], content["metadata"], field)
    elif subresource == "scale":
        _set_replicas(kind, after, content)
    elif subresource == "approval":
        _take(after.setdefault("status", {}), content.get("status") or {}, "conditions")
    elif subresource == "finalize":
        after["spec"] = dict(content.get("spec") or {})
    elif subresource == "ephemeralcontainers":
        _take(after.setdefault("spec", {}), content.get("spec") or {}, "ephemeralContainers")
    else:
        raise problem.no_such_path()
    if "managedFields" in content.get("metadata", {}) and subresource != "scale":
        after["metadata"]["managedFields"] = content["metadata"]["managedFields"]
    return after


def _main(kind: kinds.Kind, before: store.Entry, content: Object) -> Object:
    if manners.has_status(kind):
        content.pop("status", None)
        if "status" in before.object:
            content["status"] = store.copied(before)["status"]
    if kind.key == _NAMESPACES:
        # The finalizers in the spec change under finalize alone.
        content["spec"] = store.copied(before).get("spec", {})
    if kind.key == _CSR:
        content["spec"] = store.copied(before)["spec"]
    return content


def _take(to: Object, source: Mapping[str, Any], field: str) -> None:
    to.pop(field, None)
    if field in source:
        to[field] = source[field]


def _set_replicas(kind: kinds.Kind, content: Object, wanted: Object) -> None:
    paths = kind.scale or kinds.ScalePaths()
    replicas = (wanted.get("spec") or {}).get("replicas", 0)
    if not isinstance(replicas, int) or isinstance(replicas, bool):
        raise problem.bad_request(f"cannot read {replicas!r} as a number of replicas")
    if replicas < 0:
        words = f"Invalid value: {replicas}: must be greater than or equal to 0"
        cause = problem.Cause("FieldValueInvalid", words, "spec.replicas")
        raise problem.invalid(SCALE.group, SCALE.name, content["metadata"]["name"], [cause])
    *steps, last = _steps(paths.replicas)
    place = content
    for step in steps:
        place = place.setdefault(step, {})
    place[last] = replicas


def bind(api: apis.Api, namespace: str, name: str, content: Mapping[str, Any], how: options.Options) -> None:
    """The binding subresource: say on which node a pod is to run, once and for all."""
    target = content.get("target") or {}
    if target.get("kind", "Node") != "Node" or not target.get("name"):
        cause = problem.Cause("FieldValueRequired", "Required value", "target.name")
        raise problem.invalid("", "Binding", name, [cause])
    pods = api.kind("", "Pod")
    pod = api.get(pods, namespace, name).object
    node = pod["spec"].get("nodeName")
    if pod["metadata"].get("deletionTimestamp"):
        raise problem.conflict("", "pods/binding", name, f"pod {name} is being deleted, cannot be assigned to a host")
    if node:
        raise problem.conflict("", "pods/binding", name, f'pod {name} is already assigned to node "{node}"')

    def assign(pod: Object) -> None:
        pod["spec"]["nodeName"] = target["name"]
        status = pod.setdefault("status", {})
        others = [each for each in status.get("conditions") or [] if each.get("type") != "PodScheduled"]
        scheduled = {"type": "PodScheduled", "status": "True", "lastProbeTime": None, "lastTransitionTime": api.time()}
        status["conditions"] = [*others, scheduled]

    if not how.dry_run:
        api.apply_status(pods, namespace, name, assign)
