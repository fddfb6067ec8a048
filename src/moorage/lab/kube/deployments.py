"""Deployments: a ReplicaSet for each template, and pods moved from the old ones to the new one without a gap.

At most maxSurge pods more than wanted exist at a time, and at most maxUnavailable fewer are available. Every step is
taken from the counts of that moment, so that a roll-out that is interrupted, scaled or rolled back midway goes on from
where it is.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from moorage.lab.kube import indexes, kinds, loop, problem, progress, replicasets, store, workloads

if TYPE_CHECKING:
    from moorage.lab.kube import api as apis

Object = store.Object

KEY: kinds.Key = ("apps", "deployments")
HASH_LABEL = "pod-template-hash"
REVISION = "deployment.kubernetes.io/revision"
DESIRED = "deployment.kubernetes.io/desired-replicas"
MOST = "deployment.kubernetes.io/max-replicas"


def _available(content: Mapping[str, Any]) -> int:
    return int((content.get("status") or {}).get("availableReplicas", 0))


def _plain(template: Mapping[str, Any]) -> Object:
    """A template as the Deployment has it: without what was added for the ReplicaSet."""
    meta = dict(template.get("metadata") or {})
    meta["labels"] = {key: value for key, value in (meta.get("labels") or {}).items() if key != HASH_LABEL}
    return {**template, "metadata": meta}


def _revision(content: Mapping[str, Any]) -> int:
    text = (content["metadata"].get("annotations") or {}).get(REVISION, "0")
    return int(text) if text.isdigit() else 0


def _age(content: Mapping[str, Any]) -> tuple[str, str]:
    return content["metadata"]["creationTimestamp"], content["metadata"]["name"]


class Deployments:
    """Rolls out Deployments."""

    def __init__(self, api: apis.Api, index: indexes.Index) -> None:
        self._api = api
        self._index = index
        self.loop: loop.Loop[store.Name] = loop.Loop(
            api, "deployments", self._reconcile, self._all, pause=workloads.PAUSE
        )
        self.loop.follow(KEY, lambda event: [event.name])
        self.loop.follow(replicasets.KEY, lambda event: workloads.owner_of(event, "Deployment"))
        self.loop.follow(indexes.PODS, self._of_pod)

    def _all(self) -> Iterable[store.Name]:
        return self._api.store.names(KEY)

    def _of_pod(self, event: store.Event) -> Iterable[store.Name]:
        """The last old pod that goes lets a Deployment that recreates go on."""
        if event.type == store.DELETED:
            for name in workloads.owner_of(event, "ReplicaSet"):
                owner = self._api.store.get(replicasets.KEY, name)
                manager = None if owner is None else indexes.controller(owner.object)
                if manager is not None and manager["kind"] == "Deployment":
                    yield name[0], manager["name"]

    def _reconcile(self, name: store.Name) -> float | None:
        entry = self._api.store.get(KEY, name)
        if entry is None:
            return None
        wanted = entry.object
        sets = [each.object for each in workloads.claimed(self._api, self._index, wanted, replicasets.KEY)]
        if wanted["metadata"].get("deletionTimestamp"):
            return self._tell(wanted, sets, None)
        sets.sort(key=_age)
        template = _plain(wanted["spec"]["template"])
        new = next((each for each in sets if _plain(each["spec"]["template"]) == template), None)
        paused = bool(wanted["spec"].get("paused"))
        if not paused:
            new = self._new(wanted, sets, new)
            if new is None:
                return 0.0
        old = [each for each in sets if new is None or each["metadata"]["uid"] != new["metadata"]["uid"]]
        if self._rescaled(wanted, sets) or paused:
            self._share_out(wanted, new, old)
        elif new is not None and (wanted["spec"].get("strategy") or {}).get("type") == "Recreate":
            self._recreate(wanted, new, old)
        elif new is not None:
            self._roll(wanted, new, old)
        return self._finish(wanted, new)

    def _finish(self, wanted: Object, new: Object | None) -> float | None:
        name = wanted["metadata"]["namespace"], wanted["metadata"]["name"]
        found = self._api.store.get(KEY, name)
        if found is None:
            return None
        sets = [each.object for each in self._index.owned(wanted["metadata"]["uid"], replicasets.KEY)]
        uid = "" if new is None else new["metadata"]["uid"]
        now = next((each for each in sets if each["metadata"]["uid"] == uid), None)
        if now is not None and progress.complete(found.object, sets, now):
            self._forget_old(found.object, [each for each in sets if each is not now])
        return self._tell(found.object, sets, now)

    def _tell(self, wanted: Object, sets: list[Object], new: Object | None) -> float | None:
        status, again = progress.status(self._api, wanted, sets, new)
        workloads.set_status(self._api, self._api.kind("apps", "Deployment"), wanted, status)
        return again

    def _new(self, wanted: Object, sets: list[Object], new: Object | None) -> Object | None:
        """The ReplicaSet of the current template, made or brought up to date; None to try again under another name."""
        latest = max((_revision(each) for each in sets if each is not new), default=0)
        if new is None:
            revision = str(latest + 1)
            new = self._made(wanted, sets, revision)
            if new is None:
                return None
        else:
            revision = str(max(latest + 1, _revision(new)))
            if str(_revision(new)) != revision:
                new = self._change_set(new, lambda content: _annotate(content, {REVISION: revision}))
        if str(_revision(wanted)) != revision:
            meta = wanted["metadata"]
            kind = self._api.kind("apps", "Deployment")
            self._api.apply_status(
                kind, meta["namespace"], meta["name"], lambda content: _annotate(content, {REVISION: revision})
            )
        return new

    def _made(self, wanted: Object, sets: list[Object], revision: str) -> Object | None:
        meta, spec = wanted["metadata"], wanted["spec"]
        collisions = (wanted.get("status") or {}).get("collisionCount", 0)
        digest = workloads.digest(spec["template"], collisions)
        template = _labelled(spec["template"], digest)
        selector = dict(spec["selector"])
        selector["matchLabels"] = {**(selector.get("matchLabels") or {}), HASH_LABEL: digest}
        surge, _ = progress.limits(spec)
        made = {
            "apiVersion": "apps/v1",
            "kind": "ReplicaSet",
            "metadata": {
                "name": f"{meta['name']}-{digest}",
                "labels": dict(template["metadata"]["labels"]),
                "annotations": {
                    REVISION: revision,
                    DESIRED: str(progress.replicas(wanted)),
                    MOST: str(progress.replicas(wanted) + surge),
                },
                "ownerReferences": [workloads.reference(wanted)],
            },
            "spec": {
                "replicas": _room_for_new(wanted, sets, 0),
                "selector": selector,
                "template": template,
                **({"minReadySeconds": spec["minReadySeconds"]} if spec.get("minReadySeconds") else {}),
            },
        }
        try:
            return self._api.create(self._api.kind("apps", "ReplicaSet"), meta["namespace"], made).object
        except problem.Problem as refusal:
            if refusal.reason != "AlreadyExists":
                raise
        # Somebody else's ReplicaSet has the name: take another one.
        kind = self._api.kind("apps", "Deployment")

        def count(content: Object) -> None:
            content.setdefault("status", {})["collisionCount"] = collisions + 1

        self._api.apply_status(kind, meta["namespace"], meta["name"], count)
        return None

    def _rescaled(self, wanted: Object, sets: list[Object]) -> bool:
        """Whether somebody has changed how many are wanted since the ReplicaSets were told."""
        return any(
            progress.replicas(each)
            and (each["metadata"].get("annotations") or {}).get(DESIRED, "") != str(progress.replicas(wanted))
            for each in sets
        )

    def _share_out(self, wanted: Object, new: Object | None, old: list[Object]) -> None:
        """Give every ReplicaSet its share of a changed number of pods."""
        living = [each for each in (*old, *([new] if new else [])) if progress.replicas(each)]
        if len(living) <= 1:
            target = living[0] if living else new
            if target is not None:
                self._scale(wanted, target, progress.replicas(wanted))
            return
        surge, _ = progress.limits(wanted["spec"])
        total = sum(progress.replicas(each) for each in living)
        allowed = progress.replicas(wanted) + surge if progress.replicas(wanted) else 0
        left = allowed - total
        living.sort(key=lambda each: (-progress.replicas(each), _age(each)))
        given = [progress.replicas(each) + int(left * progress.replicas(each) / total) for each in living]
        # What rounding leaves goes to the largest.
        given[0] = max(0, given[0] + allowed - sum(given))
        for each, count in zip(living, given, strict=True):
            self._scale(wanted, each, count)

    def _recreate(self, wanted: Object, new: Object, old: list[Object]) -> None:
        for each in old:
            self._scale(wanted, each, 0)
        pods = (pod for each in old for pod in self._index.owned(each["metadata"]["uid"], indexes.PODS))
        if not any(True for _ in pods):
            self._scale(wanted, new, progress.replicas(wanted))

    def _roll(self, wanted: Object, new: Object, old: list[Object]) -> None:
        count = progress.replicas(wanted)
        if progress.replicas(new) > count:
            new = self._scale(wanted, new, count)
        elif progress.replicas(new) < count:
            room = _room_for_new(wanted, [*old, new], progress.replicas(new))
            if room > progress.replicas(new):
                self._scale(wanted, new, room)
                return
        _, unavailable = progress.limits(wanted["spec"])
        least = count - unavailable
        spare = sum(map(progress.replicas, (*old, new))) - least - (progress.replicas(new) - _available(new))
        if spare <= 0:
            return
        old = self._drop_unhealthy(wanted, old, spare)
        spare = sum(map(_available, (*old, new))) - least
        for each in old:
            fewer = min(progress.replicas(each), max(0, spare))
            if fewer:
                self._scale(wanted, each, progress.replicas(each) - fewer)
                spare -= fewer

    def _drop_unhealthy(self, wanted: Object, old: list[Object], spare: int) -> list[Object]:
        """Old pods that do not serve can go first: nobody will miss them."""
        found = []
        for each in old:
            fewer = min(spare, max(0, progress.replicas(each) - _available(each)))
            if fewer:
                each = self._scale(wanted, each, progress.replicas(each) - fewer)
                spare -= fewer
            found.append(each)
        return found

    def _scale(self, wanted: Object, target: Object, count: int) -> Object:
        surge, _ = progress.limits(wanted["spec"])
        notes = {DESIRED: str(progress.replicas(wanted)), MOST: str(progress.replicas(wanted) + surge)}

        def change(content: Object) -> None:
            content["spec"]["replicas"] = count
            _annotate(content, notes)

        return self._change_set(target, change)

    def _change_set(self, target: Object, change: Any) -> Object:
        meta = target["metadata"]
        kind = self._api.kind("apps", "ReplicaSet")
        return self._api.apply_status(kind, meta["namespace"], meta["name"], change).object

    def _forget_old(self, wanted: Object, old: list[Object]) -> None:
        kept = wanted["spec"].get("revisionHistoryLimit", 10)
        empty = [
            each
            for each in old
            if not progress.replicas(each)
            and not (each.get("status") or {}).get("replicas")
            and not each["metadata"].get("deletionTimestamp")
        ]
        empty.sort(key=_revision)
        for each in empty[: max(0, len(empty) - kept)]:
            workloads.delete(self._api, self._api.kind("apps", "ReplicaSet"), each)


def _annotate(content: Object, notes: Mapping[str, str]) -> None:
    meta = content["metadata"]
    meta["annotations"] = {**(meta.get("annotations") or {}), **notes}


def _labelled(template: Mapping[str, Any], digest: str) -> Object:
    meta = dict(template.get("metadata") or {})
    meta["labels"] = {**(meta.get("labels") or {}), HASH_LABEL: digest}
    return {**template, "metadata": meta}


def _room_for_new(wanted: Object, sets: list[Object], now: int) -> int:
    """How many pods the new ReplicaSet may have at this moment."""
    count = progress.replicas(wanted)
    if (wanted["spec"].get("strategy") or {}).get("type") == "Recreate":
        return 0 if any(progress.replicas(each) for each in sets) else count
    surge, _ = progress.limits(wanted["spec"])
    total = sum(map(progress.replicas, sets))
    if total >= count + surge:
        return now
    return now + min(count + surge - total, count - now)
