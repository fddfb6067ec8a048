"""The writing verbs: what happens to an object between the request for a write and the store.

A write starts from a private copy of what the caller sent, takes over what the server owns, lets `admission` and the
kind's own rules speak, and is stored only if it changed something.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from moorage.lab.kube import (
    admission,
    apply,
    behaviours,
    guards,
    kinds,
    manners,
    metadata,
    options,
    problem,
    removal,
    store,
)
from moorage.lab.kube import subresources as parts

if TYPE_CHECKING:
    from moorage.lab.kube import api as apis

Object = store.Object

_TRIES = 8


def create(
    api: apis.Api,
    kind: kinds.Kind,
    namespace: str,
    content: Object,
    how: options.Options,
    *,
    whole: bool = False,
    applied: bool = False,
) -> store.Entry:
    """Write a new object. ``whole``: with its status; ``applied``: its managed fields are settled already."""
    stored = admission.stored_kind(api, kind)
    made = admission.framed(stored, content)
    meta = made["metadata"]
    metadata.check_types(kind, meta)
    _check_namespace(kind, meta, namespace)
    if meta.get("resourceVersion"):
        raise problem.broken("resourceVersion should not be set on objects to be created")
    _be_born(api, stored, made)
    if not whole and not manners.born_with_status(stored):
        made.pop("status", None)
    admission.read(kind, made, how)
    if not applied:
        # What the server adds from here on is nobody's.
        admission.manage(stored, None, made, how, "", api.time())
    behaviours.prepare_create(api, stored, made, how.user)
    guards.before_create(api, stored, made, how.user)
    admission.check(stored, made)
    name = (meta.get("namespace", ""), meta["name"])
    there = api.store.get(kind.key, name)
    if there is not None:
        refusal = problem.already_exists(kind.group, kind.plural, meta["name"])
        if there.object["metadata"].get("deletionTimestamp"):
            refusal.message = f"object is being deleted: {refusal.message}"
        raise refusal
    if how.dry_run:
        return store.Entry(made, store.encoded(made), 0)
    return api.store.put(kind.key, name, made)


def _be_born(api: apis.Api, kind: kinds.Kind, made: Object) -> None:
    """Give a new object its name and the metadata that belongs to the server."""
    meta = made["metadata"]
    for field in metadata.OWNED:
        meta.pop(field, None)
    if not meta.get("name") and meta.get("generateName"):
        namespace = meta.get("namespace", "")
        for _ in range(_TRIES):
            meta["name"] = metadata.generated(meta["generateName"])
            if api.store.get(kind.key, (namespace, meta["name"])) is None:
                break
    meta["uid"] = metadata.new_uid()
    meta["creationTimestamp"] = api.time()
    if behaviours.counts_generations(kind):
        meta["generation"] = 1


def _check_namespace(kind: kinds.Kind, meta: Object, namespace: str) -> None:
    given = meta.get("namespace") or ""
    if kind.namespaced and given and given != namespace:
        raise problem.bad_request(
            "the namespace of the provided object does not match the namespace sent on the request"
        )
    if kind.namespaced:
        meta["namespace"] = namespace
    else:
        meta.pop("namespace", None)


def update(
    api: apis.Api, kind: kinds.Kind, namespace: str, name: str, content: Object, how: options.Options, subresource: str
) -> store.Entry:
    """Replace an object, or the part of it that the subresource is."""
    shape = parts.SCALE if subresource == "scale" else admission.stored_kind(api, kind)
    after = admission.framed(shape, content)
    meta = after["metadata"]
    metadata.check_types(kind, meta)
    if not meta.get("name"):
        raise problem.bad_request(
            f"the name of the object ({name} based on URL) was undeterminable: name must be provided"
        )
    _check_address(kind, meta, namespace, name)
    before = api.find(kind, namespace, name)
    if before is None:
        if subresource or not manners.created_by_update(kind):
            raise problem.not_found(kind.group, kind.plural, name)
        meta.pop("resourceVersion", None)
        return create(api, kind, namespace, after, how)
    required = how.user is not None and subresource != "scale" and manners.conditional(kind)
    _check_version(kind, before, meta, required=required)
    if meta.get("uid") and meta["uid"] != before.object["metadata"]["uid"]:
        where = f"/registry/{kind.plural}/{namespace}/{name}" if namespace else f"/registry/{kind.plural}/{name}"
        raise problem.conflict(
            kind.group,
            kind.plural,
            name,
            f"StorageError: invalid object, Code: 4, Key: {where}, ResourceVersion: 0, AdditionalErrorMsg:"
            f" Precondition failed: UID in precondition: {meta['uid']},"
            f" UID in object meta: {before.object['metadata']['uid']}",
        )
    if subresource != "scale":
        admission.read(kind, after, how)
    return replace(api, kind, before, after, how, subresource)


def _check_address(kind: kinds.Kind, meta: Object, namespace: str, name: str) -> None:
    if meta["name"] != name:
        raise problem.bad_request(
            f"the name of the object ({meta['name']}) does not match the name on the URL ({name})"
        )
    _check_namespace(kind, meta, namespace)


def _check_version(kind: kinds.Kind, before: store.Entry, meta: Object, *, required: bool) -> None:
    wanted = meta.get("resourceVersion") or "0"
    name = before.object["metadata"]["name"]
    if not wanted.isdecimal():
        raise problem.broken(f'strconv.ParseUint: parsing "{wanted}": invalid syntax')
    if int(wanted):
        if int(wanted) != before.revision:
            raise problem.conflict(kind.group, kind.plural, name)
    elif required:
        words = "Invalid value: 0x0: must be specified for an update"
        cause = problem.Cause("FieldValueInvalid", words, "metadata.resourceVersion")
        raise problem.invalid(kind.group, kind.plural, name, [cause])


def patch(
    api: apis.Api,
    kind: kinds.Kind,
    namespace: str,
    name: str,
    patch_type: str,
    body: Any,
    how: options.Options,
    subresource: str,
) -> store.Entry:
    """Change an object by a patch."""
    stored = admission.stored_kind(api, kind)
    body = admission.patch_body(patch_type, body)
    before = api.find(kind, namespace, name)
    if patch_type == options.APPLY_PATCH:
        return _apply(api, kind, namespace, name, before, body, how, subresource)
    if before is None:
        raise problem.not_found(kind.group, kind.plural, name)
    shown = parts.shown(stored, before, subresource)
    patched = admission.patched(stored, shown, patch_type, body)
    if not isinstance(patched, dict) or patched.get("kind") != shown["kind"]:
        raise _bad_patch(body)
    after = admission.framed(parts.SCALE if subresource == "scale" else stored, patched)
    meta = after["metadata"]
    try:
        metadata.check_types(kind, meta)
        _check_address(kind, {"name": name, **meta}, namespace, name)
        if meta.get("resourceVersion") and meta["resourceVersion"] != str(before.revision):
            raise problem.conflict(kind.group, kind.plural, name)
        if subresource != "scale":
            admission.read(kind, after, how)
    except problem.Problem as refusal:
        raise admission.mispatched(kind, patched, patch_type, body, refusal) from None
    return replace(api, kind, before, after, how, subresource)


def _bad_patch(body: Any) -> problem.Problem:
    shown = store.encoded(body).decode().replace('"', '\\"')
    cause = problem.Cause("FieldValueInvalid", f'Invalid value: "{shown}": the kind of an object is fixed', "patch")
    return problem.invalid("", "", "", [cause])


def _apply(
    api: apis.Api,
    kind: kinds.Kind,
    namespace: str,
    name: str,
    before: store.Entry | None,
    body: Object,
    how: options.Options,
    subresource: str,
) -> store.Entry:
    """Server-side apply: creates what is not there."""
    if subresource != "scale":
        admission.check_applied(kind, body)
    kind = admission.stored_kind(api, kind)
    if before is None and subresource:
        raise problem.not_found(kind.group, kind.plural, name)
    meta = body.setdefault("metadata", {})
    metadata.check_types(kind, meta)
    _check_address(kind, {"name": name, **meta}, namespace, name)
    meta["name"] = name
    # The numbers of a Scale belong to the object behind it; they are applied there. All else is applied as it was sent:
    # what is unknown in it is refused, not dropped.
    scaling = subresource == "scale"
    wanted = apply.behind_scale(kind, body) if scaling else body
    live = None if before is None else store.copied(before)
    if before is not None and meta.get("resourceVersion") not in (None, "", str(before.revision)):
        raise problem.conflict(kind.group, kind.plural, name)
    made = admission.applied(kind, live, wanted, how, subresource, api.time())
    if before is None:
        return create(api, kind, namespace, made, how, applied=True)
    return replace(api, kind, before, made, how, "" if scaling else subresource, applied=True)


def replace(
    api: apis.Api,
    kind: kinds.Kind,
    before: store.Entry,
    wanted: Object,
    how: options.Options,
    subresource: str | None,
    *,
    applied: bool = False,
    trusted: bool = False,
) -> store.Entry:
    """Write the object if it changed. Subresource None: status and all, for the lab itself.

    ``applied``: the managed fields are settled already; ``trusted``: the values need no checking.
    """
    stored = admission.stored_kind(api, kind)
    old = before.object
    causes = metadata.check_change(old["metadata"], wanted["metadata"])
    after = parts.merged(stored, before, wanted, subresource)
    meta = after["metadata"]
    metadata.keep_owned(old["metadata"], meta)
    if not applied and meta.get("managedFields") is None and _same_but_managers(after, old) and not causes:
        return before
    sent = meta.get("managedFields")
    books_change = applied or not (sent is None or sent == old["metadata"].get("managedFields"))
    if applied:
        admission.complete(stored, after)
    else:
        # Before the kind's rules speak: what the server adds or puts back is nobody's.
        admission.manage(stored, before, after, how, subresource or "", api.time())
    behaviours.prepare_update(api, stored, old, after, subresource)
    guards.before_update(api, stored, old, after, subresource, how.user)
    admission.check(stored, after, old, causes, values=not trusted)
    if not books_change and _same_but_managers(after, old):
        return before
    if behaviours.counts_generations(stored) and _spec_changed(stored, old, after):
        meta["generation"] = old["metadata"].get("generation", 0) + 1
    if after == old:
        return before
    return _store(api, stored, before, after, how)


def _store(api: apis.Api, kind: kinds.Kind, before: store.Entry, after: Object, how: options.Options) -> store.Entry:
    name = (after["metadata"].get("namespace", ""), after["metadata"]["name"])
    gone = removal.due(kind, after)
    if how.dry_run or gone:
        if gone and not how.dry_run:
            api.store.remove(kind.key, name)
        return store.Entry(after, store.encoded(after), before.revision)
    return api.store.put(kind.key, name, after)


def _same_but_managers(after: Object, old: Object) -> bool:
    if any(after.get(key) != old.get(key) for key in after.keys() | old.keys() if key != "metadata"):
        return False
    new, known = after["metadata"], old["metadata"]
    return all(new.get(key) == known.get(key) for key in new.keys() | known.keys() if key != "managedFields")


def _spec_changed(kind: kinds.Kind, old: Object, after: Object) -> bool:
    """Whether anything but metadata and status is different."""
    apart = {"metadata", "status"} if manners.has_status(kind) else {"metadata"}
    return any(after.get(key) != old.get(key) for key in (after.keys() | old.keys()) - apart)


def delete_collection(
    api: apis.Api, kind: kinds.Kind, chosen: list[store.Entry], how: options.DeleteOptions
) -> list[store.Entry]:
    """Delete the chosen objects."""
    for entry in chosen:
        meta = entry.object["metadata"]
        try:
            removal.delete(api, kind, meta.get("namespace", ""), meta["name"], how)
        except problem.Problem as refusal:
            # One may go as a consequence of another's going.
            if refusal.code != 404:
                raise
    return chosen


def change(api: apis.Api, kind: kinds.Kind, namespace: str, name: str, edit: Callable[[Object], None]) -> store.Entry:
    """Read, let ``edit`` change, write."""
    before = api.get(kind, namespace, name)
    after = store.copied(before)
    edit(after)
    if after == before.object:
        return before
    return replace(api, kind, before, after, options.Options(), None, trusted=True)


def put(api: apis.Api, content: Object) -> store.Entry:
    """Create or replace from a whole manifest."""
    kind = api.kinds.named(content["apiVersion"], content["kind"])
    if kind is None:
        raise LookupError(f"no kind {content['kind']} in {content['apiVersion']}")
    meta = content["metadata"]
    namespace = (meta.get("namespace") or "default") if kind.namespaced else ""
    before = api.find(kind, namespace, meta["name"])
    stored = admission.stored_kind(api, kind)
    if before is None:
        return create(api, kind, namespace, content, options.Options(), whole=True)
    wanted = admission.framed(stored, content)
    metadata.check_types(kind, wanted["metadata"])
    for field in (*metadata.OWNED, "resourceVersion"):
        wanted["metadata"].pop(field, None)
    admission.read(kind, wanted, options.Options())
    return replace(api, kind, before, wanted, options.Options(), None)
