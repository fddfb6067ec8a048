"""The metadata of objects: what of it a client may write, and what belongs to the server.

Unlike the rest of an object metadata has the same fields in every kind, so its rules are here and not in schemas. What
the server owns (uid, creationTimestamp, generation, deletionTimestamp) is taken from the object as it is stored.
"""

from __future__ import annotations

import datetime
import random
import uuid
from collections.abc import Mapping
from typing import Any

from moorage.lab.kube import kinds, labelling, problem, store

Object = store.Object

# No vowels, and nothing that looks like another letter: Kubernetes' own alphabet for generated names.
_ALPHABET = "bcdfghjklmnpqrstvwxz2456789"
_SUFFIX = 5
_LONGEST_BASE = 63 - _SUFFIX
_MOST_ANNOTATION_BYTES = 256 * 1024

_RBAC = "rbac.authorization.k8s.io"
_LABEL_KINDS = {("", "namespaces")}
_LETTER_FIRST_KINDS = {("", "services")}
_PATH_KINDS = {(_RBAC, plural) for plural in ("roles", "rolebindings", "clusterroles", "clusterrolebindings")}

# What a client cannot change.
OWNED = ("uid", "creationTimestamp", "generation", "deletionTimestamp", "deletionGracePeriodSeconds", "selfLink")

_TYPES: Mapping[str, type] = {
    "name": str,
    "generateName": str,
    "namespace": str,
    "selfLink": str,
    "uid": str,
    "resourceVersion": str,
    "generation": int,
    "creationTimestamp": str,
    "deletionTimestamp": str,
    "deletionGracePeriodSeconds": int,
    "labels": dict,
    "annotations": dict,
    "ownerReferences": list,
    "finalizers": list,
    "managedFields": list,
}
_GO_TYPES = {str: "string", int: "int64", dict: "map[string]string", list: "[]string"}
_OWNER_FIELDS = ("apiVersion", "kind", "name", "uid")
# The last one is short as well, and the rule does not hold for the kind that has it.
_STANDARD_FINALIZERS = ("kubernetes", "orphan", "foregroundDeletion", "customresourcecleanup.apiextensions.k8s.io")


def timestamp(moment: datetime.datetime) -> str:
    """A moment as objects carry it."""
    # Every write has one, and strftime takes ten times as long.
    day = f"{moment.year:04d}-{moment.month:02d}-{moment.day:02d}"
    return f"{day}T{moment.hour:02d}:{moment.minute:02d}:{moment.second:02d}Z"


def moment(timestamp: str) -> datetime.datetime:
    """The moment that an object carries."""
    return datetime.datetime.fromisoformat(timestamp)


def generated(base: str) -> str:
    """A name that begins with ``base``."""
    return base[:_LONGEST_BASE] + "".join(random.choices(_ALPHABET, k=_SUFFIX))  # noqa: S311 - not a secret


def new_uid() -> str:
    return str(uuid.uuid4())


def unknown(meta: Mapping[str, Any]) -> list[str]:
    """The fields that no metadata has."""
    return [field for field in meta if field not in _TYPES]


def check_types(kind: kinds.Kind, meta: object) -> None:
    """Refuse metadata that cannot be read at all."""
    if not isinstance(meta, dict):
        raise _unreadable(kind, meta, "ObjectMeta", "v1.ObjectMeta")
    for field, value in meta.items():
        wanted = _TYPES.get(field)
        if wanted is not None and (not isinstance(value, wanted) or isinstance(value, bool)):
            raise _unreadable(kind, value, f"ObjectMeta.metadata.{field}", _GO_TYPES[wanted])
        if field in ("labels", "annotations"):
            for each in value.values():
                if not isinstance(each, str):
                    raise _unreadable(kind, each, f"ObjectMeta.metadata.{field}", "string")
        elif wanted is list:
            within: type = str if field == "finalizers" else dict
            for each in value:
                if not isinstance(each, within):
                    raise _unreadable(kind, each, f"ObjectMeta.metadata.{field}", _GO_TYPES[within])


def _unreadable(kind: kinds.Kind, value: object, field: str, wanted: str) -> problem.Problem:
    names = {bool: "bool", int: "number", float: "number", str: "string", list: "array", dict: "object"}
    found = names.get(type(value), "null")
    return problem.bad_request(
        f'{kind.name} in version "{kind.version}" cannot be handled as a {kind.name}:'
        f" json: cannot unmarshal {found} into Go struct field {field} of type {wanted}"
    )


def _invalid(value: object, wrong: str, field: str) -> problem.Cause:
    return problem.Cause("FieldValueInvalid", f'Invalid value: "{value}": {wrong}', field)


def check(kind: kinds.Kind, meta: Mapping[str, Any]) -> list[problem.Cause]:
    """What is wrong with the metadata of an object that is to be written."""
    causes = _check_name(kind, meta)
    for key, value in (meta.get("labels") or {}).items():
        causes += [_invalid(key, wrong, "metadata.labels") for wrong in labelling.key_wrongs(key)]
        causes += [_invalid(value, wrong, "metadata.labels") for wrong in labelling.value_wrongs(value)]
    causes += _check_annotations(meta.get("annotations") or {})
    causes += _check_owners(meta.get("ownerReferences") or [])
    for number, finalizer in enumerate(meta.get("finalizers") or []):
        field = f"metadata.finalizers[{number}]"
        causes += [_invalid(finalizer, wrong, field) for wrong in labelling.key_wrongs(finalizer)]
        if "/" not in finalizer and finalizer not in _STANDARD_FINALIZERS:
            wrong = "name is neither a standard finalizer name nor is it fully qualified"
            # Custom kinds may keep the short names they had before this rule; only built-in ones are held to it.
            if not kind.custom:
                causes.append(_invalid(finalizer, wrong, field))
    return causes


def _check_name(kind: kinds.Kind, meta: Mapping[str, Any]) -> list[problem.Cause]:
    name = meta.get("name", "")
    if not name:
        words = "Required value: name or generateName is required"
        return [problem.Cause("FieldValueRequired", words, "metadata.name")]
    if kind.key in _PATH_KINDS:
        wrongs = labelling.path_wrongs(name)
    elif kind.key in _LABEL_KINDS:
        wrongs = labelling.name_wrongs(name, "label")
    elif kind.key in _LETTER_FIRST_KINDS:
        wrongs = labelling.name_wrongs(name, "letter first")
    else:
        wrongs = labelling.name_wrongs(name, "subdomain")
    return [_invalid(name, wrong, "metadata.name") for wrong in wrongs]


def _check_annotations(annotations: Mapping[str, str]) -> list[problem.Cause]:
    field = "metadata.annotations"
    causes = []
    for key in annotations:
        # Keys are compared without case, because tools of old wrote capitals into domains.
        causes += [_invalid(key, wrong, field) for wrong in labelling.key_wrongs(key.lower())]
    if sum(len(key) + len(value) for key, value in annotations.items()) > _MOST_ANNOTATION_BYTES:
        words = f"Too long: may not be more than {_MOST_ANNOTATION_BYTES} bytes"
        causes.append(problem.Cause("FieldValueTooLong", words, field))
    return causes


def _check_owners(owners: list[Mapping[str, Any]]) -> list[problem.Cause]:
    causes = []
    for owner in owners:
        for field in _OWNER_FIELDS:
            if not owner.get(field):
                wrong = f"{'version' if field == 'apiVersion' else field} must not be empty"
                causes.append(_invalid(owner.get(field, ""), wrong, f"metadata.ownerReferences.{field}"))
    controllers = [f"{owner.get('kind')}/{owner.get('name')}" for owner in owners if owner.get("controller")]
    if len(controllers) > 1:
        found = f'Found "true" in references for {controllers[0]} and {controllers[1]}'
        wrong = f"Invalid value: Only one reference can have Controller set to true. {found}"
        causes.append(problem.Cause("FieldValueInvalid", wrong, "metadata.ownerReferences"))
    return causes


def check_change(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[problem.Cause]:
    """What an update may not do to metadata; ``after`` is as the client wants it."""
    causes = []
    immutable = "field is immutable"
    if after.get("uid") and after["uid"] != before.get("uid"):
        causes.append(_invalid(after["uid"], immutable, "metadata.uid"))
    if after.get("deletionTimestamp") and after["deletionTimestamp"] != before.get("deletionTimestamp"):
        causes.append(_invalid(after["deletionTimestamp"], immutable, "metadata.deletionTimestamp"))
    if before.get("deletionTimestamp"):
        known = before.get("finalizers") or []
        added = sorted(set(after.get("finalizers") or []) - set(known))
        if added:
            listed = ", ".join(f'"{finalizer}"' for finalizer in added)
            words = (
                "Forbidden: no new finalizers can be added if the object is being deleted,"
                f" found new finalizers []string{{{listed}}}"
            )
            causes.append(problem.Cause("FieldValueForbidden", words, "metadata.finalizers"))
    return causes


def keep_owned(before: Mapping[str, Any], after: Object) -> None:
    """Put the server's own fields back as they were."""
    for field in (*OWNED, "resourceVersion", "generateName", "name", "namespace"):
        after.pop(field, None)
        if field in before:
            after[field] = before[field]
