"""Who belongs to whom, kept up to date with every write, so that no controller ever looks through all objects.

One index serves all controllers of a cluster. It is told of a write before they are, provided it was made first.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from moorage.lab.kube import kinds, store

if TYPE_CHECKING:
    from moorage.lab.kube import api as apis

Place = tuple[kinds.Key, store.Name]
"""Where an object is: its kind, namespace and name."""

PODS: kinds.Key = ("", "pods")
_NOBODY: Mapping[Any, None] = {}


def owners(content: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The owner references of an object."""
    return content["metadata"].get("ownerReferences") or []


def controller(content: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """The one owner that manages an object."""
    return next((each for each in owners(content) if each.get("controller")), None)


def target(pod: Mapping[str, Any]) -> str:
    """The node a pod is bound to, or the one it was made for: a DaemonSet names it in the pod's affinity."""
    spec = pod["spec"]
    if spec.get("nodeName"):
        return str(spec["nodeName"])
    affinity = (spec.get("affinity") or {}).get("nodeAffinity") or {}
    terms = (affinity.get("requiredDuringSchedulingIgnoredDuringExecution") or {}).get("nodeSelectorTerms") or []
    for field in terms[0].get("matchFields") or () if len(terms) == 1 else ():
        if field["key"] == "metadata.name" and field["operator"] == "In" and len(field["values"]) == 1:
            return str(field["values"][0])
    return ""


class Index:
    """Dependants by the uid of their owner; pods by their node, by owner and node, and those that nobody manages."""

    def __init__(self, api: apis.Api) -> None:
        self._store = api.store
        # Dictionaries without values: sets that keep their order, so that runs are alike.
        self._dependants: dict[str, dict[Place, None]] = {}
        self._on_node: dict[str, dict[store.Name, None]] = {}
        self._placed: dict[tuple[str, str], dict[store.Name, None]] = {}
        self._unmanaged: dict[str, dict[store.Name, None]] = {}
        for key in sorted(api.store.keys()):
            for entry in api.store.entries(key):
                meta = entry.object["metadata"]
                self._add(key, (meta.get("namespace", ""), meta["name"]), entry.object)
        api.on_written.append(self._written)

    def dependants(self, uid: str) -> list[Place]:
        """What names this object as an owner."""
        return list(self._dependants.get(uid, _NOBODY))

    def has_dependants(self, uid: str) -> bool:
        return uid in self._dependants

    def owned(self, uid: str, key: kinds.Key) -> Iterator[store.Entry]:
        """The objects of one kind that this one manages."""
        for place in self.dependants(uid):
            entry = self._store.get(*place) if place[0] == key else None
            if entry is not None:
                manager = controller(entry.object)
                if manager is not None and manager["uid"] == uid:
                    yield entry

    def pods_on(self, node: str) -> list[store.Entry]:
        """The pods bound to a node."""
        found = (self._store.get(PODS, name) for name in list(self._on_node.get(node, _NOBODY)))
        return [entry for entry in found if entry is not None]

    def placed(self, uid: str, node: str) -> list[store.Entry]:
        """The pods that an owner has on a node, or on their way to it."""
        found = (self._store.get(PODS, name) for name in list(self._placed.get((uid, node), _NOBODY)))
        return [entry for entry in found if entry is not None]

    def unmanaged(self, namespace: str) -> list[store.Entry]:
        """The pods of a namespace that have no controller."""
        found = (self._store.get(PODS, name) for name in list(self._unmanaged.get(namespace, _NOBODY)))
        return [entry for entry in found if entry is not None]

    def count_on(self, node: str) -> int:
        """How many pods are bound to a node."""
        return len(self._on_node.get(node, _NOBODY))

    def _written(self, key: kinds.Key, event: store.Event) -> None:
        if event.type == store.MODIFIED and event.before is not None and _alike(key, event.before, event.entry):
            return
        if event.before is not None:
            self._drop(key, event.name, event.before.object)
        if event.type != store.DELETED:
            self._add(key, event.name, event.entry.object)

    def _add(self, key: kinds.Key, name: store.Name, content: Mapping[str, Any]) -> None:
        for owner in owners(content):
            self._dependants.setdefault(owner.get("uid", ""), {})[key, name] = None
        if key == PODS:
            for places, at in self._pod_places(name, content):
                places.setdefault(at, {})[name] = None

    def _drop(self, key: kinds.Key, name: store.Name, content: Mapping[str, Any]) -> None:
        for owner in owners(content):
            _discard(self._dependants, owner.get("uid", ""), (key, name))
        if key == PODS:
            for places, at in self._pod_places(name, content):
                _discard(places, at, name)

    def _pod_places(
        self, name: store.Name, pod: Mapping[str, Any]
    ) -> Iterator[tuple[dict[Any, dict[store.Name, None]], Any]]:
        node = pod["spec"].get("nodeName")
        if node:
            yield self._on_node, node
        manager = controller(pod)
        if manager is None:
            yield self._unmanaged, name[0]
        elif manager["kind"] == "DaemonSet":
            yield self._placed, (manager["uid"], target(pod))


def _alike(key: kinds.Key, before: store.Entry, after: store.Entry) -> bool:
    if before.object["metadata"].get("ownerReferences") != after.object["metadata"].get("ownerReferences"):
        return False
    return key != PODS or before.object["spec"].get("nodeName") == after.object["spec"].get("nodeName")


def _discard(places: dict[Any, dict[Any, None]], at: Any, what: Any) -> None:
    found = places.get(at)
    if found is not None:
        found.pop(what, None)
        if not found:
            del places[at]


def uids(references: Iterable[Mapping[str, Any]]) -> set[str]:
    """The uids that owner references name."""
    return {each.get("uid", "") for each in references}
