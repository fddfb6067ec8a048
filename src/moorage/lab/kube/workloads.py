"""What the controllers of workloads have in common: making pods from templates, finding their own, counting them.

A controller owns the pods that name it as their manager; it lets go of those whose labels no longer match, and takes in
those that match and have no manager. Each kind of workload has a module of its own: `replicasets`, `deployments`,
`daemonsets`, `statefulsets`.
"""

from __future__ import annotations

import dataclasses
import json
import zlib
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from moorage.lab.kube import disruption, indexes, kinds, labels, metadata, options, problem, store

if TYPE_CHECKING:
    from moorage.lab.kube import api as apis

Object = store.Object

PAUSE = 0.2
REVISION_LABEL = "controller-revision-hash"
_ALPHABET = "bcdfghjklmnpqrstvwxz2456789"


def reference(owner: Mapping[str, Any]) -> Object:
    """The owner reference of what a controller makes."""
    return {
        "apiVersion": owner["apiVersion"],
        "kind": owner["kind"],
        "name": owner["metadata"]["name"],
        "uid": owner["metadata"]["uid"],
        "controller": True,
        "blockOwnerDeletion": True,
    }


def digest(template: Mapping[str, Any], salt: int = 0) -> str:
    """A short name for a template, the same whenever the template is the same."""
    text = json.dumps(template, sort_keys=True) + (str(salt) if salt else "")
    number = zlib.crc32(text.encode()) + (zlib.adler32(text.encode()) << 32)
    letters = []
    for _ in range(10):
        number, rest = divmod(number, len(_ALPHABET))
        letters.append(_ALPHABET[rest])
    return "".join(letters)


def pod_from(owner: Mapping[str, Any], template: Mapping[str, Any], *, name: str = "") -> Object:
    """A new pod of ``owner``; with a name made up by the server if none is given."""
    made: Object = json.loads(json.dumps({"spec": template.get("spec") or {}}))
    meta = template.get("metadata") or {}
    metadata_: Object = {"ownerReferences": [reference(owner)], "labels": dict(meta.get("labels") or {})}
    if meta.get("annotations"):
        metadata_["annotations"] = dict(meta["annotations"])
    if name:
        metadata_["name"] = name
    else:
        metadata_["generateName"] = f"{owner['metadata']['name']}-"
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata_, **made}


def active(pod: Mapping[str, Any]) -> bool:
    """Whether a pod counts: it is neither going nor done."""
    done = (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed")
    return not done and not pod["metadata"].get("deletionTimestamp")


def ready_since(pod: Mapping[str, Any]) -> str:
    """Since when a pod has been ready; empty if it is not."""
    for condition in (pod.get("status") or {}).get("conditions") or ():
        if condition["type"] == "Ready" and condition["status"] == "True":
            return condition.get("lastTransitionTime") or str(pod["metadata"]["creationTimestamp"])
    return ""


def waits_for(api: apis.Api, pod: Mapping[str, Any], least: int) -> float | None:
    """In how many seconds a pod will have been ready for ``least``: 0 is now, None if it is not ready."""
    since = ready_since(pod)
    if not since:
        return None
    if not least:
        return 0.0
    return max(0.0, least - (api.clock.wall() - metadata.moment(since)).total_seconds())


@dataclasses.dataclass(frozen=True)
class Counts:
    """Pods counted; ``again`` says in how many seconds another one will be available."""

    total: int
    ready: int
    available: int
    again: float | None


def counted(api: apis.Api, pods: Iterable[Mapping[str, Any]], least: int) -> Counts:
    """How many pods there are, how many serve, and how many have served long enough."""
    total = ready = available = 0
    again: float | None = None
    for pod in pods:
        total += 1
        left = waits_for(api, pod, least)
        if left is None:
            continue
        ready += 1
        if left == 0:
            available += 1
        else:
            again = left if again is None else min(again, left)
    return Counts(total, ready, available, again)


def claimed(api: apis.Api, index: indexes.Index, owner: Object, key: kinds.Key) -> list[store.Entry]:
    """The pods (or other dependants) of an owner, after it has let go of some and taken in others."""
    selector = owner["spec"].get("selector")
    kind = api.kinds.stored(*key)
    if kind is None:
        return []
    namespace, going = owner["metadata"]["namespace"], owner["metadata"].get("deletionTimestamp")
    found = []
    for entry in index.owned(owner["metadata"]["uid"], key):
        meta = entry.object["metadata"]
        if labels.matches(selector, meta.get("labels")) or going or meta.get("deletionTimestamp"):
            found.append(entry)
        else:
            _release(api, kind, entry, owner["metadata"]["uid"])
    if going or key != indexes.PODS:
        return found
    for entry in index.unmanaged(namespace):
        meta = entry.object["metadata"]
        if labels.matches(selector, meta.get("labels")) and active(entry.object):
            found.append(_adopt(api, kind, entry, owner))
    return found


def _release(api: apis.Api, kind: kinds.Kind, entry: store.Entry, uid: str) -> None:
    def change(content: Object) -> None:
        content["metadata"]["ownerReferences"] = [each for each in indexes.owners(content) if each["uid"] != uid]

    api.apply_status(kind, entry.object["metadata"]["namespace"], entry.object["metadata"]["name"], change)


def _adopt(api: apis.Api, kind: kinds.Kind, entry: store.Entry, owner: Object) -> store.Entry:
    def change(content: Object) -> None:
        content["metadata"]["ownerReferences"] = [*indexes.owners(content), reference(owner)]

    return api.apply_status(kind, entry.object["metadata"]["namespace"], entry.object["metadata"]["name"], change)


def owner_of(event: store.Event, *of_kinds: str) -> list[store.Name]:
    """The managers of an object before and after an event, if they are of these kinds."""
    found: dict[store.Name, None] = {}
    for entry in (event.before, event.entry):
        manager = None if entry is None else indexes.controller(entry.object)
        if manager is not None and manager["kind"] in of_kinds:
            found[event.name[0], manager["name"]] = None
    return list(found)


def delete(api: apis.Api, kind: kinds.Kind, content: Mapping[str, Any]) -> None:
    """Delete this very object, if it is still there."""
    meta = content["metadata"]
    try:
        how = options.DeleteOptions(uid=meta["uid"], propagation=options.BACKGROUND)
        api.delete(kind, meta.get("namespace", ""), meta["name"], how)
    except problem.Problem as refusal:
        if refusal.code not in (404, 409):
            raise


def set_status(api: apis.Api, kind: kinds.Kind, content: Object, status: Object, keep: Iterable[str] = ()) -> None:
    """Write the counts of a workload; zeros are left out as real ones are, except those named in ``keep``."""
    always = set(keep)
    told = {key: value for key, value in status.items() if value or key in always}
    if content.get("status") == told:
        return
    meta = content["metadata"]

    def change(found: Object) -> None:
        found["status"] = told

    api.apply_status(kind, meta["namespace"], meta["name"], change)


ready = disruption.ready
