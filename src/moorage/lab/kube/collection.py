"""The garbage collector: what has lost all its owners goes, and what is deleted goes in the order it was asked for.

An owner is known by its uid: one of the same name that was made later owns nothing. In the background an owner goes
first and its dependants follow; in the foreground it waits, with a finalizer, until those that block it are gone; and
orphans are let go of before their owner goes. Owners that cannot be judged (their kind is not served, or they live in
a namespace while the dependant does not) are left alone, with what they own.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from moorage.lab.kube import indexes, kinds, loop, options, problem, removal, store

if TYPE_CHECKING:
    from moorage.lab.kube import api as apis

Object = store.Object

_PAUSE = 0.2


class _Owner(enum.Enum):
    SOLID = enum.auto()
    ABSENT = enum.auto()
    # In the midst of a foreground deletion.
    WAITING = enum.auto()
    # Of a kind that nobody serves, or out of reach.
    UNKNOWN = enum.auto()


def _finalizers(content: Mapping[str, Any]) -> list[str]:
    return content["metadata"].get("finalizers") or []


def _going(content: Mapping[str, Any], finalizer: str) -> bool:
    """Whether an object was deleted and waits with this finalizer."""
    return bool(content["metadata"].get("deletionTimestamp")) and finalizer in _finalizers(content)


class Collector:
    """Follows every write of every kind, and takes away what has no owner any more."""

    def __init__(self, api: apis.Api, index: indexes.Index) -> None:
        self._api = api
        self._index = index
        # Where the owners are that wait for their dependants, by uid.
        self._waiting: dict[str, indexes.Place] = {}
        self.loop: loop.Loop[indexes.Place] = loop.Loop(api, "collector", self._reconcile, self._all, pause=_PAUSE)
        self.loop.overhear(self._heard)

    def _all(self) -> Iterable[indexes.Place]:
        """Where there may be work at the beginning: what has owners, and what was being deleted."""
        for key in sorted(self._api.store.keys()):
            for entry in self._api.store.entries(key):
                meta = entry.object["metadata"]
                if meta.get("ownerReferences") or meta.get("deletionTimestamp"):
                    yield key, (meta.get("namespace", ""), meta["name"])

    def _heard(self, key: kinds.Key, event: store.Event) -> Iterable[indexes.Place]:
        meta = event.entry.object["metadata"]
        if event.type == store.DELETED:
            self._waiting.pop(meta["uid"], None)
            yield from self._index.dependants(meta["uid"])
            # They waited for this one, perhaps.
            yield from self._waiting_owners(meta.get("ownerReferences") or ())
            return
        old = None if event.before is None else event.before.object["metadata"]
        references = meta.get("ownerReferences") or ()
        known = () if old is None else old.get("ownerReferences") or ()
        if references and references != known:
            yield key, event.name
        if known and references != known:
            yield from self._waiting_owners(known)
        if meta.get("deletionTimestamp") and meta.get("finalizers"):
            yield key, event.name

    def _waiting_owners(self, references: Iterable[Mapping[str, Any]]) -> Iterable[indexes.Place]:
        if self._waiting:
            for uid in indexes.uids(references):
                if uid in self._waiting:
                    yield self._waiting[uid]

    def _reconcile(self, place: indexes.Place) -> None:
        key, name = place
        entry = self._api.store.get(key, name)
        kind = self._api.kinds.stored(*key)
        if entry is None or kind is None:
            return
        if _going(entry.object, removal.ORPHAN_FINALIZER):
            self._orphan(kind, entry)
        elif _going(entry.object, removal.FOREGROUND_FINALIZER):
            self._wait_for_dependants(place, kind, entry)
        elif not entry.object["metadata"].get("deletionTimestamp"):
            self._judge(kind, entry)

    def _orphan(self, kind: kinds.Kind, entry: store.Entry) -> None:
        uid = entry.object["metadata"]["uid"]
        for key, name in self._index.dependants(uid):
            dependant = self._api.kinds.stored(*key)
            if dependant is not None:
                self._let_go(dependant, name, {uid})
        self._drop_finalizer(kind, entry, removal.ORPHAN_FINALIZER)

    def _wait_for_dependants(self, place: indexes.Place, kind: kinds.Kind, entry: store.Entry) -> None:
        uid = entry.object["metadata"]["uid"]
        blocked = False
        for key, name in self._index.dependants(uid):
            dependant = self._api.store.get(key, name)
            if dependant is None:
                continue
            reference = next(each for each in indexes.owners(dependant.object) if each.get("uid") == uid)
            blocked = blocked or bool(reference.get("blockOwnerDeletion"))
            if uid not in self._waiting:
                self.loop.offer((key, name), 0)
        if blocked:
            self._waiting[uid] = place
            return
        self._waiting.pop(uid, None)
        self._drop_finalizer(kind, entry, removal.FOREGROUND_FINALIZER)

    def _judge(self, kind: kinds.Kind, entry: store.Entry) -> None:
        """Decide what the state of its owners means for an object."""
        meta = entry.object["metadata"]
        states = {each["uid"]: self._state(kind, meta, each) for each in indexes.owners(entry.object)}
        if not states or _Owner.UNKNOWN in states.values():
            return
        name = (meta.get("namespace", ""), meta["name"])
        if _Owner.SOLID in states.values():
            gone = {uid for uid, state in states.items() if state is not _Owner.SOLID}
            if gone:
                self._let_go(kind, name, gone)
            return
        policy = options.BACKGROUND
        if _Owner.WAITING in states.values() and self._index.has_dependants(meta["uid"]):
            self._break_circle(kind, entry)
            policy = options.FOREGROUND
        elif removal.ORPHAN_FINALIZER in _finalizers(entry.object):
            policy = options.ORPHAN
        elif removal.FOREGROUND_FINALIZER in _finalizers(entry.object):
            policy = options.FOREGROUND
        self._delete(kind, name, meta["uid"], policy)

    def _state(self, kind: kinds.Kind, meta: Mapping[str, Any], reference: Mapping[str, Any]) -> _Owner:
        owner = self._api.kinds.named(reference.get("apiVersion", ""), reference.get("kind", ""))
        if owner is None or (owner.namespaced and not kind.namespaced):
            return _Owner.UNKNOWN
        namespace = meta.get("namespace", "") if owner.namespaced else ""
        found = self._api.store.get(owner.key, (namespace, reference.get("name", "")))
        if found is None or found.object["metadata"]["uid"] != reference["uid"]:
            return _Owner.ABSENT
        return _Owner.WAITING if _going(found.object, removal.FOREGROUND_FINALIZER) else _Owner.SOLID

    def _break_circle(self, kind: kinds.Kind, entry: store.Entry) -> None:
        """Where A waits for B and B for A, B stops blocking A: or both would wait for ever."""
        meta = entry.object["metadata"]
        for place in self._index.dependants(meta["uid"]):
            dependant = self._api.store.get(*place)
            if dependant is not None and _going(dependant.object, removal.FOREGROUND_FINALIZER):
                self._change(kind, (meta.get("namespace", ""), meta["name"]), _unblock)
                return

    def _let_go(self, kind: kinds.Kind, name: store.Name, gone: set[str]) -> None:
        def change(content: Object) -> None:
            kept = [each for each in indexes.owners(content) if each.get("uid") not in gone]
            if kept:
                content["metadata"]["ownerReferences"] = kept
            else:
                content["metadata"].pop("ownerReferences", None)

        self._change(kind, name, change)

    def _drop_finalizer(self, kind: kinds.Kind, entry: store.Entry, finalizer: str) -> None:
        def change(content: Object) -> None:
            content["metadata"]["finalizers"] = [each for each in _finalizers(content) if each != finalizer]

        meta = entry.object["metadata"]
        self._change(kind, (meta.get("namespace", ""), meta["name"]), change)

    def _change(self, kind: kinds.Kind, name: store.Name, change: Callable[[Object], None]) -> None:
        try:
            self._api.apply_status(kind, *name, change)
        except problem.Problem as refusal:
            if refusal.code != 404:
                raise

    def _delete(self, kind: kinds.Kind, name: store.Name, uid: str, policy: str) -> None:
        try:
            self._api.delete(kind, *name, options.DeleteOptions(propagation=policy, uid=uid))
        except problem.Problem as refusal:
            # Another object of that name has taken its place, or nobody has.
            if refusal.code not in (404, 409):
                raise


def _unblock(content: Object) -> None:
    content["metadata"]["ownerReferences"] = [
        {**each, "blockOwnerDeletion": False} if each.get("blockOwnerDeletion") else each
        for each in indexes.owners(content)
    ]
