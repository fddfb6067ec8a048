"""Which pods have to leave a node that is drained, and which have no need to: a judgement by rules, without a call.

Pods of a DaemonSet would come back at once, mirrors of static pods are not the API's to remove, and finished ones
disturb nobody. All others go, with their local data, and those that nobody will make anew as well: the node goes, and
they would go with it. On a node out of reach nobody reports that a pod has ended, so its word is not waited for.
"""

from __future__ import annotations

import datetime
import enum
from collections.abc import Callable, Mapping
from typing import Any, Final

from moorage.machines import conditions, objects

Object = Mapping[str, Any]

MIRROR: Final = "kubernetes.io/config.mirror"
#: Seconds that pods on a node out of reach are given, and after which those that are to go count as gone.
UNREACHABLE_GRACE: Final = 1

_FINISHED: Final = frozenset(("Succeeded", "Failed"))


class Verdict(enum.Enum):
    """What becomes of a pod."""

    STAYS = "it may stay"
    GOES = "it is to be evicted"
    IS_GOING = "it was told to go and is waited for"


def judge(
    pod: Object, has_daemon_set: Callable[[str, str], bool], *, unreachable: bool, now: datetime.datetime
) -> Verdict:
    """What to do with a pod. ``has_daemon_set`` says whether there is a DaemonSet of that namespace and name."""
    if is_finished(pod) or MIRROR in objects.notes(pod):
        return Verdict.STAYS
    leaves = conditions.moment(objects.metadata(pod).get("deletionTimestamp"))
    if leaves is not None and unreachable:
        overdue = (now - leaves).total_seconds()
        if overdue > UNREACHABLE_GRACE:
            return Verdict.STAYS
        # One that was given a long time is told again: there is nobody on the node to use it.
        return Verdict.GOES if -overdue > UNREACHABLE_GRACE else Verdict.IS_GOING
    # A DaemonSet that is gone will not bring its pod back.
    if (name := _daemon_set(pod)) and has_daemon_set(objects.namespace(pod), name):
        return Verdict.STAYS
    return Verdict.IS_GOING if leaves is not None else Verdict.GOES


def is_finished(pod: Object) -> bool:
    return objects.status(pod).get("phase") in _FINISHED


def is_unreachable(node: Object) -> bool:
    """Whether nobody has heard of the node's kubelet for a while."""
    ready = conditions.find(objects.conditions(node), "Ready")
    return ready is not None and ready.get("status") == "Unknown"


def is_cordoned(node: Object) -> bool:
    return bool(objects.spec(node).get("unschedulable"))


def is_control_plane(node: Object) -> bool:
    held = objects.labels(node)
    return "node-role.kubernetes.io/control-plane" in held or "node-role.kubernetes.io/master" in held


def _daemon_set(pod: Object) -> str:
    """The name of the DaemonSet that manages the pod; others may call their kinds by the same word."""
    manager = objects.owner(pod) or {}
    is_one = manager.get("kind") == "DaemonSet" and str(manager.get("apiVersion")).startswith("apps/")
    return str(manager.get("name") or "") if is_one else ""
