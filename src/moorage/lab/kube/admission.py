"""What every object passes on its way in, whatever its kind: reading by its schema, completion, validation, managers.

`verbs` decides when; here is how. A built-in kind is read as a typed server would: what does not fit is refused, what
is unknown is dropped with a warning (or refused, if the client asked to be strict).
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from moorage.lab.kube import apply, documents, kinds, managed, metadata, options, patches, problem, store, strategic
from moorage.lab.kube import schema as schemas

if TYPE_CHECKING:
    from moorage.lab.kube import api as apis

Object = store.Object

_FRONT = ("apiVersion", "kind", "metadata")
# What a refusal of a patch that cannot be read begins with.
_DECODING = {
    options.JSON_PATCH: "error decoding patch: ",
    options.MERGE_PATCH: "error decoding patch: ",
    options.APPLY_PATCH: "error decoding YAML: ",
}


def cloned(value: Any) -> Any:
    """A deep copy of a JSON value; several times faster than copy.deepcopy."""
    if isinstance(value, dict):
        return {key: cloned(each) if isinstance(each, dict | list) else each for key, each in value.items()}
    if isinstance(value, list):
        return [cloned(each) if isinstance(each, dict | list) else each for each in value]
    return value


def stored_kind(api: apis.Api, kind: kinds.Kind) -> kinds.Kind:
    """The kind in the version in which its objects are stored."""
    return kind if kind.preferred else api.kinds.stored(kind.group, kind.plural) or kind


def framed(kind: kinds.Kind, content: Object) -> Object:
    """A private copy with its kind in front, so that stored bytes of a kind begin alike; nulls in metadata are gone."""
    meta = content.get("metadata")
    if isinstance(meta, dict):
        meta = {key: cloned(value) for key, value in meta.items() if value is not None}
    made = {"apiVersion": kind.api_version, "kind": kind.name, "metadata": {} if meta is None else meta}
    for key, value in content.items():
        if key not in _FRONT:
            made[key] = cloned(value)
    return made


def read(kind: kinds.Kind, content: Object, how: options.Options) -> None:
    """Read an object by the schema of its kind, in place."""
    wrong = schemas.undecodable(kind, content)
    if wrong:
        raise problem.bad_request(wrong)
    unknown = [f'unknown field "metadata.{field}"' for field in metadata.unknown(content["metadata"])]
    for field in metadata.unknown(content["metadata"]):
        del content["metadata"][field]
    if kind.schema is not None:
        own = {key: value for key, value in content.items() if key not in _FRONT}
        if how.field_validation != options.IGNORE:
            unknown += schemas.unknown_fields(kind.schema, own)
        known = dict(own)
        schemas.prune(kind.schema, known)
        for key in own.keys() - known.keys():
            del content[key]
    tell_unknown(kind, unknown, how)
    complete(kind, content)


def tell_unknown(kind: kinds.Kind, found: Sequence[str], how: options.Options) -> None:
    """Warn of fields that are unknown or given twice, or refuse them."""
    if not found or how.field_validation == options.IGNORE:
        return
    if how.field_validation == options.STRICT:
        raise problem.bad_request(
            f'{kind.name} in version "{kind.version}" cannot be handled as a {kind.name}:'
            f" strict decoding error: {', '.join(found)}"
        )
    how.warnings.extend(found)


def complete(kind: kinds.Kind, content: Object) -> None:
    """Fill in the defaults of the kind's schema."""
    if kind.schema is None:
        return
    forgotten = content["metadata"].get("managedFields") == []
    schemas.apply_defaults(kind.schema, content)
    if forgotten:
        # No managers at all is something to say, unlike nothing said about them.
        content["metadata"]["managedFields"] = []


def check(
    kind: kinds.Kind,
    content: Object,
    old: Object | None = None,
    causes: Sequence[problem.Cause] = (),
    *,
    values: bool = True,
) -> None:
    """Refuse an object that breaks a rule of metadata or (``values``) of its schema, with all that is wrong."""
    found = [*causes, *metadata.check(kind, content["metadata"])]
    if values and kind.schema is not None and not _same_values(content, old):
        # The metadata of built-in kinds has been looked at, in the words that are its own.
        looked_at = content if kind.custom else {key: each for key, each in content.items() if key != "metadata"}
        found += schemas.validate(kind.schema, looked_at)
    if found:
        raise problem.invalid(kind.group, kind.name, content["metadata"].get("name", ""), found)


def _same_values(content: Object, old: Object | None) -> bool:
    """Whether nothing but metadata is different: what was valid stays so."""
    if old is None or content.keys() != old.keys():
        return False
    return all(value == old[key] for key, value in content.items() if key != "metadata")


def manage(
    kind: kinds.Kind, before: store.Entry | None, after: Object, how: options.Options, subresource: str, time: str
) -> None:
    """Note which fields the manager of this write has set."""
    old = None if before is None else before.object
    reset = managed.reset_fields(kind, subresource)
    managed.updated(kind.schema, old, after, how.manager, subresource, time, kind.api_version, reset=reset)


def check_applied(kind: kinds.Kind, wanted: Object) -> None:
    """Refuse to apply what is of another kind."""
    apply.check_kind(kind, wanted)


def applied(
    kind: kinds.Kind, live: Object | None, wanted: Object, how: options.Options, subresource: str, time: str
) -> Object:
    """The object after a server-side apply."""
    reset = managed.reset_fields(kind, subresource)
    after = apply.apply(kind.schema, live, wanted, how.manager, how.force, subresource, time, reset=reset)
    if wrong := schemas.unrestorable(kind, after):
        raise apply.unconvertible(wanted, wrong)
    return after


def patched(kind: kinds.Kind, shown: Object, patch_type: str, body: Any) -> Any:
    """What a patch makes of an object."""
    if patch_type == options.JSON_PATCH:
        return patches.json_patch(shown, body)
    if patch_type == options.MERGE_PATCH:
        return patches.merge_patch(shown, body)
    strategic.check_type(kind, patch_type)
    return strategic.merge(kind.schema, shown, body)


def mispatched(
    kind: kinds.Kind, content: Object, patch_type: str, patch: Any, refusal: problem.Problem
) -> problem.Problem:
    """The refusal of a patch that made of an object what cannot be read: told as a mistake of the patch."""
    _, unread, why = refusal.message.partition(f" cannot be handled as a {kind.name}: ")
    if not unread:
        return refusal
    if patch_type == options.STRATEGIC_PATCH:
        # Merged as typed objects, and not as the texts of such.
        told, why = patches.as_go(patch), schemas.unrestorable(kind, content) or why
    else:
        text = json.dumps(content, separators=(",", ":"), sort_keys=True, ensure_ascii=False)
        told = text.replace("\\", "\\\\").replace('"', '\\"')
    cause = problem.Cause("FieldValueInvalid", f'Invalid value: "{told}": {why}', "patch")
    return problem.invalid("", "", "", [cause])


def patch_body(patch_type: str, body: Any) -> Any:
    """The patch as a JSON value, if it is not one already."""
    if not isinstance(body, bytes | str):
        return cloned(body)
    try:
        if patch_type == options.APPLY_PATCH:
            return apply.check_document(documents.from_yaml(body))
        return documents.from_json(body)
    except (ValueError, RecursionError) as wrong:
        raise problem.bad_request(f"{_DECODING.get(patch_type, '')}{wrong}") from None
