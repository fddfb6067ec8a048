"""How far a Deployment may go and has got: its limits, its counts, the conditions that `kubectl rollout` reads."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from moorage.lab.kube import metadata, shares, store

if TYPE_CHECKING:
    from moorage.lab.kube import api as apis

Object = store.Object

_DEFAULT_DEADLINE = 600


def limits(spec: Mapping[str, Any]) -> tuple[int, int]:
    """How many pods more than wanted there may be, and how many fewer available."""
    rolling = (spec.get("strategy") or {}).get("rollingUpdate") or {}
    wanted = spec.get("replicas", 1)
    if (spec.get("strategy") or {}).get("type") == "Recreate":
        return 0, wanted
    surge = shares.of(rolling.get("maxSurge", "25%"), wanted, up=True)
    unavailable = shares.of(rolling.get("maxUnavailable", "25%"), wanted, up=False)
    # With neither, nothing could ever move.
    return surge, min(wanted, unavailable if surge or unavailable else 1)


def replicas(content: Mapping[str, Any]) -> int:
    return int(content["spec"].get("replicas", 1))


def _sum(sets: list[Object], field: str) -> int:
    return sum((each.get("status") or {}).get(field, 0) for each in sets)


def complete(wanted: Mapping[str, Any], sets: list[Object], new: Mapping[str, Any]) -> bool:
    """Whether all pods are of the newest template, and serve."""
    count = replicas(wanted)
    status = new.get("status") or {}
    return bool(
        status.get("replicas", 0) == count
        and status.get("availableReplicas", 0) == count
        and _sum(sets, "replicas") == count
    )


def status(api: apis.Api, wanted: Object, sets: list[Object], new: Object | None) -> tuple[Object, float | None]:
    """The status of a Deployment, and in how many seconds its deadline may be missed."""
    known = wanted.get("status") or {}
    count, total, available = replicas(wanted), _sum(sets, "replicas"), _sum(sets, "availableReplicas")
    made: Object = {
        "observedGeneration": wanted["metadata"].get("generation", 1),
        "replicas": total,
        "updatedReplicas": 0 if new is None else (new.get("status") or {}).get("replicas", 0),
        "readyReplicas": _sum(sets, "readyReplicas"),
        "availableReplicas": available,
        "unavailableReplicas": max(0, total - available),
        "collisionCount": known.get("collisionCount", 0),
    }
    conditions = {each["type"]: each for each in known.get("conditions") or ()}
    _, unavailable = limits(wanted["spec"])
    _set(api, conditions, *_availability(available >= count - unavailable))
    again = None if new is None else _progress(api, conditions, wanted, made, sets, new)
    made["conditions"] = list(conditions.values())
    return made, again


def _availability(enough: bool) -> tuple[str, str, str, str]:
    if enough:
        return "Available", "True", "MinimumReplicasAvailable", "Deployment has minimum availability."
    return "Available", "False", "MinimumReplicasUnavailable", "Deployment does not have minimum availability."


def _progress(
    api: apis.Api, conditions: dict[str, Object], wanted: Object, made: Object, sets: list[Object], new: Object
) -> float | None:
    name = f'ReplicaSet "{new["metadata"]["name"]}"'
    known = wanted.get("status") or {}
    before = conditions.get("Progressing")
    if complete(wanted, sets, new):
        _set(api, conditions, "Progressing", "True", "NewReplicaSetAvailable", f"{name} has successfully progressed.")
        return None
    moved = any(
        made[field] > known.get(field, 0) for field in ("updatedReplicas", "readyReplicas", "availableReplicas")
    )
    moved = moved or made["replicas"] < known.get("replicas", 0)
    if before is None:
        message = f'Created new replica set "{new["metadata"]["name"]}"'
        _set(api, conditions, "Progressing", "True", "NewReplicaSetCreated", message)
    elif moved or before["reason"] == "NewReplicaSetAvailable":
        _set(api, conditions, "Progressing", "True", "ReplicaSetUpdated", f"{name} is progressing.", moved=True)
    return _deadline(api, conditions, wanted, name)


def _deadline(api: apis.Api, conditions: dict[str, Object], wanted: Object, name: str) -> float | None:
    limit = wanted["spec"].get("progressDeadlineSeconds", _DEFAULT_DEADLINE)
    condition = conditions["Progressing"]
    if condition["reason"] == "ProgressDeadlineExceeded" or wanted["spec"].get("paused"):
        return None
    left: float = limit - (api.clock.wall() - metadata.moment(condition["lastUpdateTime"])).total_seconds()
    if left > 0:
        return left + 1
    _set(api, conditions, "Progressing", "False", "ProgressDeadlineExceeded", f"{name} has timed out progressing.")
    return None


def _set(
    api: apis.Api,
    conditions: dict[str, Object],
    kind: str,
    state: str,
    reason: str,
    message: str,
    *,
    moved: bool = False,
) -> None:
    """Put a condition in place; its times only change with it, or when something ``moved``."""
    known, now = conditions.get(kind), api.time()
    if known and not moved and (known["status"], known["reason"]) == (state, reason):
        return
    since = known["lastTransitionTime"] if known and known["status"] == state else now
    conditions[kind] = {
        "type": kind,
        "status": state,
        "lastUpdateTime": now,
        "lastTransitionTime": since,
        "reason": reason,
        "message": message,
    }
