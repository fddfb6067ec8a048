"""The life of namespaces: nothing new in one that is going, which goes when all of its content is gone.

A deleted namespace is Terminating until the finalizer in its spec is taken away. The controller deletes what is in it,
of every kind; where finalizers or grace periods hold objects back, it says so in the namespace's conditions and looks
again when one of them changes.
"""

from __future__ import annotations

import collections
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from moorage.lab.kube import kinds, loop, options, problem, store

if TYPE_CHECKING:
    from moorage.lab.kube import api as apis

Object = store.Object

KEY: kinds.Key = ("", "namespaces")
ACTIVE = "Active"
TERMINATING = "Terminating"
FINALIZER = "kubernetes"
PROTECTED = frozenset({"default", "kube-system", "kube-public"})

_PAUSE = 0.2
_FINE: Mapping[str, tuple[str, str]] = {
    "NamespaceDeletionDiscoveryFailure": ("ResourcesDiscovered", "All resources successfully discovered"),
    "NamespaceDeletionGroupVersionParsingFailure": (
        "ParsedGroupVersions",
        "All legacy kube types successfully parsed",
    ),
    "NamespaceDeletionContentFailure": (
        "ContentDeleted",
        "All content successfully deleted, may be waiting on finalization",
    ),
    "NamespaceContentRemaining": ("ContentRemoved", "All content successfully removed"),
    "NamespaceFinalizersRemaining": ("ContentHasNoFinalizers", "All content-preserving finalizers finished"),
}


def held(content: Mapping[str, Any]) -> bool:
    """Whether a namespace waits for its content."""
    return bool((content.get("spec") or {}).get("finalizers"))


def check_open(api: apis.Api, kind: kinds.Kind, content: Mapping[str, Any]) -> None:
    """Refuse a new object in a namespace that is not there, or on its way out."""
    meta = content["metadata"]
    namespace = meta.get("namespace", "")
    found = api.store.get(KEY, ("", namespace))
    if found is None:
        raise problem.not_found("", "namespaces", namespace)
    if found.object["metadata"].get("deletionTimestamp"):
        why = f"unable to create new content in namespace {namespace} because it is being terminated"
        refusal = problem.forbidden(kind.group, kind.plural, meta.get("name", ""), why)
        told = f"namespace {namespace} is being terminated"
        refusal.details["causes"] = [{"reason": "NamespaceTerminating", "message": told, "field": "metadata.namespace"}]
        raise refusal


class Namespaces:
    """Empties the namespaces that were deleted."""

    def __init__(self, api: apis.Api) -> None:
        self._api = api
        self._going: set[str] = set()
        self.loop: loop.Loop[str] = loop.Loop(api, "namespaces", self._reconcile, self._all, pause=_PAUSE)
        self.loop.follow(("", "namespaces"), lambda event: [event.name[1]])
        self.loop.overhear(self._content_of)

    def _all(self) -> Iterable[str]:
        return [name for _, name in self._api.store.names(KEY)]

    def _content_of(self, key: kinds.Key, event: store.Event) -> Iterable[str]:
        namespace = event.name[0]
        return [namespace] if namespace in self._going else ()

    def _reconcile(self, name: str) -> float | None:
        found = self._api.store.get(KEY, ("", name))
        if found is None or not found.object["metadata"].get("deletionTimestamp") or not held(found.object):
            self._going.discard(name)
            return None
        self._going.add(name)
        failures = self._empty(name)
        remaining = self._remaining(name)
        self._tell(name, remaining, failures)
        if not remaining and not failures:
            kept = [each for each in found.object["spec"]["finalizers"] if each != FINALIZER]
            self._change(name, lambda namespace: namespace.update(spec={"finalizers": kept} if kept else {}))
            return None
        # What holds the rest back is heard of; failures are tried again.
        return 5.0 if failures else None

    def _empty(self, namespace: str) -> list[str]:
        failures = []
        for key in sorted(self._api.store.keys()):
            kind = self._api.kinds.stored(*key)
            if kind is None or not kind.namespaced:
                continue
            for _, name in self._api.store.names(key, namespace):
                entry = self._api.store.get(key, (namespace, name))
                if entry is None or entry.object["metadata"].get("deletionTimestamp"):
                    continue
                try:
                    how = options.DeleteOptions(propagation=options.BACKGROUND)
                    self._api.delete(kind, namespace, name, how)
                except problem.Problem as refusal:
                    if refusal.code != 404:
                        failures.append(refusal.message)
        return failures

    def _remaining(self, namespace: str) -> list[tuple[kinds.Key, store.Entry]]:
        return [
            (key, entry)
            for key in sorted(self._api.store.keys())
            if (kind := self._api.kinds.stored(*key)) is not None and kind.namespaced
            for entry in self._api.store.entries(key, namespace)
        ]

    def _tell(self, name: str, remaining: list[tuple[kinds.Key, store.Entry]], failures: list[str]) -> None:
        wanted = _conditions(remaining, failures)
        time = self._api.time()

        def change(namespace: Object) -> None:
            status = namespace.setdefault("status", {})
            known = {each["type"]: each for each in status.get("conditions") or ()}
            status["conditions"] = [_settled(known.get(each["type"]), each, time) for each in wanted]

        self._change(name, change)

    def _change(self, name: str, change: Callable[[Object], None]) -> None:
        self._api.apply_status(self._api.kind("", "Namespace"), "", name, change)


def _conditions(remaining: list[tuple[kinds.Key, store.Entry]], failures: list[str]) -> list[Object]:
    counts = collections.Counter(f"{plural}.{group}" for (group, plural), _ in remaining)
    finalizers = collections.Counter(
        finalizer for _, entry in remaining for finalizer in entry.object["metadata"].get("finalizers") or ()
    )
    bad: dict[str, tuple[str, str]] = {}
    if failures:
        told = f"Failed to delete all resource types, {len(failures)} remaining: {', '.join(sorted(failures))}"
        bad["NamespaceDeletionContentFailure"] = ("ContentDeletionFailed", told)
    if counts:
        told = ", ".join(sorted(f"{what} has {count} resource instances" for what, count in counts.items()))
        bad["NamespaceContentRemaining"] = ("SomeResourcesRemain", f"Some resources are remaining: {told}")
    if finalizers:
        told = ", ".join(sorted(f"{what} in {count} resource instances" for what, count in finalizers.items()))
        bad["NamespaceFinalizersRemaining"] = (
            "SomeFinalizersRemain",
            f"Some content in the namespace has finalizers remaining: {told}",
        )
    return [
        {"type": each, "status": "True", "reason": bad[each][0], "message": bad[each][1]}
        if each in bad
        else {"type": each, "status": "False", "reason": fine[0], "message": fine[1]}
        for each, fine in _FINE.items()
    ]


def _settled(known: Object | None, wanted: Object, time: str) -> Object:
    """The condition with the time since when it has been so."""
    since = known["lastTransitionTime"] if known and known["status"] == wanted["status"] else time
    return {"type": wanted["type"], "status": wanted["status"], "lastTransitionTime": since, **wanted}
