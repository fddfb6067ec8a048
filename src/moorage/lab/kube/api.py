"""What an API server does to objects, whoever asks: the rules of create, update, patch, delete, list and watch.

Every method is synchronous and therefore atomic: between reading an object and writing it back nobody else can have
written. Controllers call these methods directly; `server` calls them for clients over HTTP. What is refused is raised
as a `problem.Problem`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from moorage.engine import clock as clocks
from moorage.lab.kube import kinds as kinds_
from moorage.lab.kube import metadata, problem, removal, selectors, store, verbs
from moorage.lab.kube import options as options_

Object = store.Object
Options = options_.Options
DeleteOptions = options_.DeleteOptions


def _fine() -> str:
    return ""


def _silent(_namespace: str, _pod: str, _container: str, *, previous: bool) -> str:
    return ""


class PodLog(Protocol):
    """What a container of a pod has said; without its name, the first that says anything."""

    def __call__(self, namespace: str, pod: str, container: str, /, *, previous: bool) -> str: ...


class Api:
    """The API over a store. ``on_written`` is told of every write, in the midst of it."""

    def __init__(self, store: store.Store, kinds: kinds_.Kinds, clock: clocks.Clock) -> None:
        self.store = store
        self.kinds = kinds
        self.clock = clock
        # Why the store cannot be used at the moment; empty if it can.
        self.available: Callable[[], str] = _fine
        # Domains of reserved labels that kubelets may set on their own Nodes here, beyond what Kubernetes lets them.
        self.kubelet_label_domains: tuple[str, ...] = ()
        # What whoever runs the pods has heard from them.
        self.pod_log: PodLog = _silent
        self.on_written = store.on_write

    def kind(self, group: str, name: str) -> kinds_.Kind:
        """The kind of this group and name, in the version in which it is stored."""
        for kind in self.kinds:
            if kind.group == group and kind.name == name and kind.preferred:
                return kind
        raise LookupError(f"no kind {name} in group {group!r}")

    def find(self, kind: kinds_.Kind, namespace: str, name: str) -> store.Entry | None:
        """An object, or None."""
        return self.store.get(kind.key, (namespace, name))

    def get(self, kind: kinds_.Kind, namespace: str, name: str) -> store.Entry:
        """An object; 404 if there is none."""
        entry = self.store.get(kind.key, (namespace, name))
        if entry is None:
            raise problem.not_found(kind.group, kind.plural, name)
        return entry

    def entries(
        self,
        kind: kinds_.Kind,
        namespace: str = "",
        *,
        labels: str | selectors.Labels | None = None,
        fields: str | selectors.Fields | None = None,
    ) -> list[store.Entry]:
        """The objects of a namespace, or of all, that the selectors choose; in the order of their names."""
        matches = selectors.matcher(kind, labels, fields)
        return [entry for entry in self.store.entries(kind.key, namespace) if matches(entry.object)]

    def create(self, kind: kinds_.Kind, namespace: str, content: Object, options: Options | None = None) -> store.Entry:
        """Write a new object; ``content`` stays the caller's."""
        return verbs.create(self, kind, namespace, content, options or Options())

    def update(
        self,
        kind: kinds_.Kind,
        namespace: str,
        name: str,
        content: Object,
        options: Options | None = None,
        subresource: str = "",
    ) -> store.Entry:
        """Replace an object (or the part of it that the subresource is); ``content`` stays the caller's."""
        return verbs.update(self, kind, namespace, name, content, options or Options(), subresource)

    def patch(
        self,
        kind: kinds_.Kind,
        namespace: str,
        name: str,
        patch_type: str,
        body: Any,
        options: Options | None = None,
        subresource: str = "",
    ) -> store.Entry:
        """Change an object by a patch of one of the four types (by their media types)."""
        return verbs.patch(self, kind, namespace, name, patch_type, body, options or Options(), subresource)

    def delete(
        self,
        kind: kinds_.Kind,
        namespace: str,
        name: str,
        options: DeleteOptions | None = None,
    ) -> store.Entry | None:
        """Delete an object: None if it is gone, the object if it waits for finalizers or a grace period."""
        return removal.delete(self, kind, namespace, name, options or DeleteOptions())

    def delete_collection(
        self,
        kind: kinds_.Kind,
        namespace: str = "",
        options: DeleteOptions | None = None,
        *,
        labels: str | selectors.Labels | None = None,
        fields: str | selectors.Fields | None = None,
    ) -> list[store.Entry]:
        """Delete what the selectors choose; the objects as they were."""
        found = self.entries(kind, namespace, labels=labels, fields=fields)
        return verbs.delete_collection(self, kind, found, options or DeleteOptions())

    def watch(self, kind: kinds_.Kind, since: int | None = None) -> store.Watch:
        """The events of a kind after a revision, or from now on; 410 if they are not known any more."""
        try:
            return self.store.watch(kind.key, since)
        except store.Compacted:
            raise problem.expired(f"too old resource version: {since}") from None

    def apply_status(
        self, kind: kinds_.Kind, namespace: str, name: str, change: Callable[[Object], None]
    ) -> store.Entry:
        """Let ``change`` work on a private copy of the object, status included, and write what came of it."""
        return verbs.change(self, kind, namespace, name, change)

    def put(self, content: Object) -> store.Entry:
        """Create or replace an object from its whole manifest, status included."""
        return verbs.put(self, content)

    def time(self) -> str:
        """The cloud's time as objects carry it."""
        return metadata.timestamp(self.clock.wall())
