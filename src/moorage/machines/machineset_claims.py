"""Whose machine it is: a set takes those that its selector chooses and that nobody controls, and lets go of others.

What ties a machine to its set is the one owner reference with ``controller: true``, and in it the uid: a set that was
made anew under an old name is another set. Every change is tied to the version of the machine that was judged, so two
sets that choose the same orphan cannot both have it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from moorage.machines import objects, selectors
from moorage.machines.runtime import client as clients
from moorage.machines.runtime import errors, kinds

Object = Mapping[str, Any]


def reference(machine_set: Object) -> dict[str, Any]:
    """What a machine of the set says about it; the set waits for its machines if it is deleted in the foreground."""
    return {
        "apiVersion": kinds.MACHINE_SET.api_version,
        "kind": kinds.MACHINE_SET.kind,
        "name": objects.name(machine_set),
        "uid": objects.uid(machine_set),
        "controller": True,
        "blockOwnerDeletion": True,
    }


def controller_uid(machine: Object) -> str:
    """The uid of whoever controls it; empty for an orphan."""
    return str((objects.owner(machine) or {}).get("uid") or "")


class Claims:
    """One look at the machines of a set, adopting and releasing on the way."""

    def __init__(self, client: clients.Client, machine_set: Object, selector: selectors.Selector) -> None:
        self._client = client
        self._set = machine_set
        self._selector = selector
        self._may_adopt: bool | None = None

    def settle(self, candidates: Iterable[Object]) -> list[Object]:
        """The machines that are the set's own, those being deleted included.

        A refusal is passed on: who went on without a machine that should be its own would make another in its place.
        """
        own: list[Object] = []
        for machine in candidates:
            owner, chosen = controller_uid(machine), self._selector.chooses(machine)
            if owner and owner != objects.uid(self._set):
                continue
            if owner and (chosen or objects.is_deleted(machine)):
                own.append(machine)
            elif owner:
                self._release(machine)
            elif chosen and not objects.is_deleted(machine) and (adopted := self._adopt(machine)):
                own.append(adopted)
        return own

    def _adopt(self, machine: Object) -> Object | None:
        if not self._is_alive():
            return None
        owners = [dict(each) for each in objects.metadata(machine).get("ownerReferences") or ()]
        # A set that owns it without controlling it (somebody edited that) is not named twice: the API forbids it.
        owners = [each for each in owners if each.get("uid") != objects.uid(self._set)]
        return self._rewrite(machine, [*owners, reference(self._set)])

    def _release(self, machine: Object) -> None:
        owners = objects.metadata(machine).get("ownerReferences") or ()
        self._rewrite(machine, [dict(each) for each in owners if each.get("uid") != objects.uid(self._set)])

    def _rewrite(self, machine: Object, owners: list[dict[str, Any]]) -> Object | None:
        judged = {"uid": objects.uid(machine), "resourceVersion": objects.revision(machine)}
        body = {"metadata": {**judged, "ownerReferences": owners}}
        try:
            return self._client.patch(kinds.MACHINE, objects.name(machine), objects.namespace(machine), body)
        except errors.NotFound:
            return None

    def _is_alive(self) -> bool:
        """Whether the set is there and not being deleted, by the API's own word: it is asked once, if need be."""
        if self._may_adopt is None:
            try:
                found = self._client.get(kinds.MACHINE_SET, objects.name(self._set), objects.namespace(self._set))
                self._may_adopt = objects.uid(found) == objects.uid(self._set) and not objects.is_deleted(found)
            except errors.NotFound:
                self._may_adopt = False
        return self._may_adopt
