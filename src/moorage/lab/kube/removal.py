"""Deletion: at once, after a grace period, or when the last finalizer is gone.

An object that cannot go yet gets a deletionTimestamp and waits. Whoever takes the last finalizer away (the garbage
collector, a controller, a client) makes it go by that very write.
"""

from __future__ import annotations

import datetime
from typing import TYPE_CHECKING

from moorage.lab.kube import behaviours, guards, kinds, manners, metadata, options, problem, store

if TYPE_CHECKING:
    from moorage.lab.kube import api as apis

Object = store.Object

FOREGROUND_FINALIZER = "foregroundDeletion"
ORPHAN_FINALIZER = "orphan"


def delete(
    api: apis.Api, kind: kinds.Kind, namespace: str, name: str, how: options.DeleteOptions
) -> store.Entry | None:
    """Delete an object; None if it is gone."""
    before = api.get(kind, namespace, name)
    behaviours.check_delete(kind, name)
    guards.before_delete(kind, before.object, how.user)
    _check_conditions(kind, before, how)
    after = store.copied(before)
    grace = _grace(kind, after, how)
    _set_finalizers(kind, after, how.propagation)
    if not grace and not waits(kind, after):
        if not how.dry_run:
            api.store.remove(kind.key, (namespace, name))
        return None
    _mark(api, kind, after, grace)
    if after == before.object:
        return before
    if how.dry_run:
        return store.Entry(after, store.encoded(after), before.revision)
    return api.store.put(kind.key, (namespace, name), after)


def last_seen(api: apis.Api, kind: kinds.Kind, before: store.Entry) -> store.Entry:
    """How an object that went at once is shown: one that might have been given time is shown with none."""
    if kind.key != ("", "pods"):
        return before
    after = store.copied(before)
    _mark(api, kind, after, 0)
    return store.Entry(after, store.encoded(after), before.revision)


def waits(kind: kinds.Kind, content: Object) -> bool:
    """Whether a deleted object has to stay for a finalizer."""
    return bool(content["metadata"].get("finalizers")) or behaviours.held(kind, content)


def due(kind: kinds.Kind, content: Object) -> bool:
    """Whether an object was deleted and nothing keeps it any more."""
    meta = content["metadata"]
    return (
        bool(meta.get("deletionTimestamp")) and not meta.get("deletionGracePeriodSeconds") and not waits(kind, content)
    )


def _check_conditions(kind: kinds.Kind, before: store.Entry, how: options.DeleteOptions) -> None:
    meta = before.object["metadata"]
    why = ""
    if how.uid and how.uid != meta["uid"]:
        why = (
            f"the UID in the precondition ({how.uid}) does not match the UID in record ({meta['uid']})."
            " The object might have been deleted and then recreated"
        )
    elif how.resource_version and how.resource_version != str(before.revision):
        why = (
            f"the ResourceVersion in the precondition ({how.resource_version}) does not match the ResourceVersion in"
            f" record ({before.revision}). The object might have been modified"
        )
    if why:
        # This one refusal names the kind where others name the resource.
        raise problem.conflict(kind.group, kind.name, meta["name"], why)


def _grace(kind: kinds.Kind, content: Object, how: options.DeleteOptions) -> int:
    """The seconds to wait for; a second delete may shorten the first one's, never lengthen it."""
    meta = content["metadata"]
    if not meta.get("deletionTimestamp"):
        return behaviours.grace_seconds(kind, content, how.grace_seconds)
    left: int = meta.get("deletionGracePeriodSeconds") or 0
    if how.grace_seconds is None:
        return left
    return min(left, behaviours.grace_seconds(kind, content, how.grace_seconds))


def _set_finalizers(kind: kinds.Kind, content: Object, propagation: str) -> None:
    meta = content["metadata"]
    if not propagation and manners.orphans(kind) and not meta.get("deletionTimestamp"):
        propagation = options.ORPHAN
    if not propagation:
        return
    finalizers = [each for each in meta.get("finalizers") or [] if each not in (FOREGROUND_FINALIZER, ORPHAN_FINALIZER)]
    if propagation == options.FOREGROUND:
        finalizers.append(FOREGROUND_FINALIZER)
    elif propagation == options.ORPHAN:
        finalizers.append(ORPHAN_FINALIZER)
    if finalizers:
        meta["finalizers"] = finalizers
    else:
        meta.pop("finalizers", None)


def _mark(api: apis.Api, kind: kinds.Kind, content: Object, grace: int) -> None:
    meta = content["metadata"]
    given = meta.get("deletionGracePeriodSeconds") or 0
    if meta.get("deletionTimestamp"):
        asked = metadata.moment(meta["deletionTimestamp"]) - datetime.timedelta(seconds=given)
    else:
        asked = api.clock.wall()
        if meta.get("generation"):
            meta["generation"] += 1
    if not meta.get("deletionTimestamp") or grace != given:
        meta["deletionTimestamp"] = metadata.timestamp(asked + datetime.timedelta(seconds=grace))
        if not behaviours.held(kind, content):
            meta["deletionGracePeriodSeconds"] = grace
    behaviours.mark_deleted(kind, content)
